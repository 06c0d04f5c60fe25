"""Groups of asynchronous operations that one thread, warp or warpgroup commits and waits for. Imports `happens_before`.

cp.async.commit_group, cp.async.bulk.commit_group and wgmma.commit_group share the rule: a commit makes a group of all
prior uncommitted operations, and groups complete in the order in which they were committed (PTX ISA 9.7.9.25.1.1).
So "waited for group g" is a clock, and each issuer has a channel: two for bulk groups, since wait_group.read waits only
until the sources have been read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from advisor.emulator.happens_before import AsyncOperation, Channel, Order, SyncPoint


@dataclass(slots=True, eq=False)
class Member:
    """An operation in a group. `read` and `written` turn true as it lands."""

    operation: AsyncOperation
    read: bool = False
    written: bool = False


@dataclass(slots=True)
class AsyncGroups:
    """The groups of one issuer, of one kind. `key` tells issuers of a cluster apart: ("bulk", rank, warp, lane)."""

    order: Order
    cluster: int
    rank: int
    key: Hashable
    name: str
    reads: Channel = field(init=False)
    writes: Channel = field(init=False)
    open: list[Member] = field(default_factory=list)
    groups: list[list[Member]] = field(default_factory=list)
    first: int = 1  # number of groups[0]; groups count from 1

    def __post_init__(self) -> None:
        self.reads = self.order.channel(self.cluster, self.rank, (self.key, "read"), f"{self.name} reads")
        self.writes = self.order.channel(self.cluster, self.rank, (self.key, "write"), f"{self.name} writes")

    def add(self, row: int, pc: int, lane: int) -> Member:
        """A new operation of the issuer. Give its reads to `async_access(..., channel=groups.reads)`."""
        member = Member(self.order.issue(row, pc, lane, self.writes))
        self.open.append(member)
        return member

    def commit(self) -> int:
        """Close the group, which may be empty, and return its number."""
        number = self.first + len(self.groups)
        for member in self.open:
            self.order.land(member.operation.records, number)
        self.groups.append(self.open)
        self.open = []
        return number

    def waited(self, pending: int) -> int:
        """The number of the last group that a wait for at most `pending` groups includes; 0 for none."""
        return max(0, self.first + len(self.groups) - 1 - pending)

    def ready(self, pending: int, *, read: bool = False) -> bool:
        """Whether wait_group{.read} `pending` may return."""
        return not self.unfinished(pending, read=read)

    def unfinished(self, pending: int, *, read: bool = False) -> list[Member]:
        """What wait_group{.read} `pending` still waits for."""
        last = self.waited(pending)
        return [
            each
            for group in self.groups[: max(0, last - self.first + 1)]
            for each in group
            if not (each.read if read else each.written and each.read)
        ]

    def wait(self, pending: int, rows: Iterable[int], *, read: bool = False) -> None:
        """The wait returns: the warps have observed the groups. Call when `ready`."""
        last = self.waited(pending)
        if last == 0:
            return
        rows = list(rows)
        self.order.learn(rows, self.reads, last)
        if not read:
            self.order.learn(rows, self.writes, last)
            done = last - self.first + 1
            if done > 0:
                del self.groups[:done]
                self.first += done

    def completions(self) -> SyncPoint:
        """What an arrive-on brings that the hardware does after all prior operations of the issuer. It closes a group:
        cp.async.mbarrier.arrive tracks what is uncommitted too (PTX ISA 9.7.13.15.15)."""
        last = self.commit()
        point = SyncPoint()
        self.order.complete(point, self.reads, last)
        self.order.complete(point, self.writes, last)
        return point

    def all_landed(self) -> bool:
        return all(each.read and each.written for group in (*self.groups, self.open) for each in group)

    def members(self) -> Sequence[Member]:
        return [each for group in (*self.groups, self.open) for each in group]
