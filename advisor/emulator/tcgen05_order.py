"""The order of tcgen05 operations in tensor memory, and the reports of those that lack it. Imports its own room.

PTX ISA 9.7.16.6 in short. mma, cp and shift run in a pipe: those of one thread run in the order of issue; they are
complete for whoever has observed the mbarrier of a later `tcgen05.commit` of that thread. ld and st are complete after
the `tcgen05.wait` of their warp. What another warp does afterwards must be ordered by ordinary synchronisation, of
which the relaxed kind is enough, with `tcgen05.fence::before_thread_sync` before it and `::after_thread_sync` after it
(a commit has the first one in it).

**Clocks.** Execution order alone is `View.STARTED` of `clocks`, and `View.HEARD` without relaxed operations. An
operation keeps the clock of its warp at its issue, at its wait and at the first fence before a synchronisation; a pipe
has a channel whose clock is the number of its commits. The fence after a synchronisation keeps what its warp has heard
of until then.

**Fences.** Triton, Gluon and CUTLASS write none: they release and acquire. So a kernel without any fence of a kind is
not held to that kind, but then a relaxed operation is not enough; one that has some is held to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NoReturn

import numpy as np

from advisor.emulator.clocks import Channel, Ints, View
from advisor.emulator.happens_before import AsyncOperation, Flags, Order
from advisor.emulator.report import Event, Who
from advisor.emulator.tmem import SHAPE, Array, Region

What = Literal["alloc", "mma", "cp", "shift", "ld", "st"]


@dataclass(slots=True, eq=False)
class Operation:
    """One tcgen05 operation that works in tensor memory."""

    what: What
    row: int
    lane: int | None
    pc: int
    who: Who
    epoch: int
    pipe: Pipe | None = None
    number: int = 0  # of the commit of its pipe that covers it
    done: int = 0  # ld, st: the clock of its warp at the wait
    released: int = 0  # the clock of its warp at the first fence::before_thread_sync that covers it
    partner: tuple[int, int] | None = None  # alloc of a pair: row and clock of the other warp, who knows as much


@dataclass(slots=True, eq=False)
class Pipe:
    """The mma, cp and shift of one thread."""

    channel: Channel
    number: int = 0  # of the last commit that had something to wait for
    open: list[tuple[Operation, AsyncOperation]] = field(default_factory=list)


@dataclass(slots=True)
class Shadow:
    """Who has touched each word of one SM's tensor memory: numbers of operations, and of sets of readers. A word that
    was allocated and never written has minus the number of the allocation."""

    writes: Ints = field(default_factory=lambda: np.zeros(SHAPE, np.int32))
    reads: Ints = field(default_factory=lambda: np.zeros(SHAPE, np.int32))


class TmemOrder:
    """The operations of a launch."""

    def __init__(self, order: Order, *, before: bool, after: bool) -> None:
        """`before` and `after`: whether the kernel has fences of that kind."""
        self.order = order
        self.before = before
        self.after = after
        self.operations: list[Operation | None] = [None]  # number 0: nobody
        self.sets: list[tuple[int, ...]] = [()]
        self._set_numbers: dict[tuple[int, ...], int] = {(): 0}
        self._pending: dict[tuple[int, str], list[Operation]] = {}  # ld and st that have not been waited for, by row
        self._unreleased: dict[int, list[Operation]] = {}
        self._heard: dict[int, Ints] = {}  # by row: what fence::after_thread_sync has let through

    # --- operations ---------------------------------------------------------------------------------------------

    def begin(self, rows: Array) -> None:
        """These rows are of a new cluster."""
        for row in rows.tolist():
            self._unreleased.pop(row, None)
            self._heard.pop(row, None)
            for what in ("ld", "st"):
                self._pending.pop((row, what), None)

    def issue(self, what: What, row: int, lane: int | None, pc: int, pipe: Pipe | None) -> Operation:
        made = Operation(what, row, lane, pc, self.order.who(row), int(self.order.epoch[row]), pipe)
        if pipe is None:
            self._pending.setdefault((row, what), []).append(made)
        elif self.before:
            self._unreleased.setdefault(row, []).append(made)
        return made

    def track(self, operation: Operation, shared: AsyncOperation) -> None:
        """The operation is to be covered by the next commit of its pipe, and its reads of shared memory with it."""
        assert operation.pipe is not None
        operation.pipe.open.append((operation, shared))

    def commit(self, pipe: Pipe) -> int:
        """`tcgen05.commit`: the number that stands for all operations of the pipe so far."""
        if pipe.open:
            pipe.number += 1
            for operation, shared in pipe.open:
                operation.number = pipe.number
                self.order.land(shared.records, pipe.number)
            pipe.open = []
        return pipe.number

    def wait(self, row: int, what: What) -> None:
        """`tcgen05.wait::ld` and `::st` of a warp."""
        epoch = int(self.order.epoch[row])
        waited = self._pending.pop((row, what), [])
        for each in waited:
            each.done = epoch
        if self.before:
            self._unreleased.setdefault(row, []).extend(waited)

    def before_thread_sync(self, row: int) -> None:
        epoch = int(self.order.epoch[row])
        for each in self._unreleased.pop(row, []):
            each.released = epoch

    def after_thread_sync(self, row: int) -> None:
        self._heard[row] = self.order.now[View.STARTED, row].copy()

    # --- accesses -----------------------------------------------------------------------------------------------

    def access(self, shadow: Shadow, operation: Operation, region: Region, *, write: bool) -> None:
        """Raises KernelFault EMU_TMEM_BEFORE_COMMIT, EMU_TMEM_NOT_WAITED, EMU_TMEM_RACE or EMU_TCGEN05_FENCE."""
        writes, reads = shadow.writes[region.index], shadow.reads[region.index]
        for number in _distinct(writes):
            self._check(abs(number), operation, region, earlier="written" if number > 0 else "allocated")
        held = _distinct(reads)
        if write:
            for number in {each for name in held for each in self.sets[name]}:
                self._check(number, operation, region, earlier="read")
        number = self._number(operation)
        if write:
            writes[...] = number
            reads[...] = 0
        elif len(held) == 1:
            reads[...] = self._joined(held[0], number)
        else:
            reads[...] = np.select([reads == name for name in held], [self._joined(name, number) for name in held])

    def freed(self, shadow: Shadow, region: Region, row: int, pc: int) -> None:
        """Columns are given back: everything in them is over. Raises EMU_TMEM_FREED_EARLY."""
        numbers = {abs(each) for each in _distinct(shadow.writes[region.index])}
        for name in _distinct(shadow.reads[region.index]):
            numbers.update(self.sets[name])
        for number in sorted(numbers):
            found = self.operations[number]
            if found is not None and not self._over(found, row):
                who = self.order.who(row)
                self.order.reporter.fail(
                    "EMU_TMEM_FREED_EARLY",
                    f"columns {region.column} to {region.column_end - 1} of tensor memory are freed while a "
                    f"tcgen05.{found.what} on them may still be running: {self._missing(found)}",
                    who,
                    pc,
                    history=(self._event(found),),
                    fix="let every warp that has used them wait (commit and mbarrier, wait::ld, wait::st) and meet the "
                    "freeing warp at a barrier",
                )

    def allocated(self, shadows: list[Shadow], region: Region, rows: list[int], pc: int) -> None:
        """Columns are allocated, in both CTAs of a pair by a warp of each: nothing in them has a value, and whoever
        touches them comes after the allocation. It is a synchronous instruction, so that no fence belongs to it."""
        clocks = [(row, int(self.order.epoch[row])) for row in rows]
        row, epoch = clocks[0]
        made = Operation("alloc", row, None, pc, self.order.who(row), epoch, done=epoch)
        made.partner = clocks[1] if len(clocks) > 1 else None
        number = self._number(made)
        for shadow in shadows:
            shadow.writes[region.index] = -number
            shadow.reads[region.index] = 0

    def blank(self, shadow: Shadow, region: Region) -> Flags:
        """Which words nobody has written since their allocation, shaped as the region."""
        found: Flags = shadow.writes[region.index] <= 0
        return found

    def uninitialised(self, shadow: Shadow, region: Region) -> bool:
        return bool(self.blank(shadow, region).any())

    def knows(self, rows: Array, pipe: Pipe, number: int) -> bool:
        """Whether one of these warps has observed that the pipe's commit `number` is complete."""
        return bool((self.order.now[View.STARTED, rows, pipe.channel.column] >= number).any())

    # --- inside -------------------------------------------------------------------------------------------------

    def _number(self, operation: Operation) -> int:
        if self.operations[-1] is not operation:
            self.operations.append(operation)
        return len(self.operations) - 1

    def _joined(self, name: int, number: int) -> int:
        """The set of readers `name` with one more, who stands for the earlier ones of its own kind and thread."""
        mine = self.operations[number]
        assert mine is not None
        kept = tuple(each for each in self.sets[name] if not _stands_for(mine, self.operations[each]))
        members = (*(each for each in kept if each != number), number)
        found = self._set_numbers.get(members)
        if found is None:
            found = self._set_numbers[members] = len(self.sets)
            self.sets.append(members)
        return found

    def _check(self, number: int, new: Operation, region: Region, *, earlier: str) -> None:
        old = self.operations[number]
        if old is None or old is new:
            return
        if old.pipe is not None and new.pipe is not None:
            if old.pipe is new.pipe or old.row == new.row:
                return
            ways = (self._sees(old.row, new.row, old.epoch, old.released), self._completed(old, new.row))
        else:
            ways = (self._ended(old, new.row), None)
        if True not in ways:
            self._fail(old, new, region, earlier, fence=False in ways)

    def _ended(self, old: Operation, row: int) -> bool | None:
        """Whether it has completed and this row knows: None: it does not; False: only fences are missing."""
        if old.pipe is not None:
            return self._completed(old, row)
        if old.what == "alloc":
            return self._allocated(old, row)
        if not old.done:
            return None
        return True if old.row == row else self._sees(old.row, row, old.done, old.released)

    def _allocated(self, old: Operation, row: int) -> bool | None:
        for of, clock in ((old.row, old.done), *([old.partner] if old.partner else [])):
            if of == row or self.order.now[View.STARTED, row, self.order.own[of]] >= clock:
                return True
        return None

    def _completed(self, old: Operation, row: int) -> bool | None:
        assert old.pipe is not None
        column = old.pipe.channel.column
        if not old.number or self.order.now[View.STARTED, row, column] < old.number:
            return None
        return self._heard_of(row, column, old.number)

    def _sees(self, of: int, row: int, clock: int, released: int) -> bool | None:
        column = int(self.order.own[of])
        if self.order.now[View.STARTED, row, column] < clock:
            return None
        if self.before and not released:
            return False
        return self._heard_of(row, column, released if self.before else clock)

    def _heard_of(self, row: int, column: int, clock: int) -> bool:
        """Whether a fence::after_thread_sync of this row came after it heard of the clock; or, where the kernel has
        none, whether it has heard of it by releases and acquires."""
        if not self.after:
            return bool(self.order.now[View.HEARD, row, column] >= clock)
        heard = self._heard.get(row)
        return heard is not None and column < heard.size and bool(heard[column] >= clock)

    def _over(self, old: Operation, row: int) -> bool:
        """Completed, for one who frees the columns: a synchronous instruction needs no fences."""
        return self._ended(old, row) is not None

    # --- reports ------------------------------------------------------------------------------------------------

    def _fail(self, old: Operation, new: Operation, region: Region, earlier: str, *, fence: bool) -> NoReturn:
        where = f"{region} of tensor memory"
        if old.what == "alloc":
            code, missing = "EMU_TMEM_UNALLOCATED", "nothing orders the allocation before it"
            fix = "a barrier between tcgen05.alloc and the first use, whether the address is read or known"
        elif fence:
            code = "EMU_TCGEN05_FENCE"
            missing = "they are ordered, but a tcgen05.fence is missing on the way"
            if not self.after:
                missing = "an mbarrier operation on the way is relaxed, and no tcgen05.fence is there beside it"
            fix = "fence::after_thread_sync after the wait or the barrier"
            if old.pipe is None or new.pipe is not None:
                fix = f"fence::before_thread_sync before the synchronisation, {fix}"
        elif old.pipe is not None and new.pipe is None:
            code, missing = "EMU_TMEM_BEFORE_COMMIT", self._missing(old)
            fix = "tcgen05.commit to an mbarrier after it, and wait for its phase first"
        elif old.pipe is None and not old.done:
            code, missing = "EMU_TMEM_NOT_WAITED", self._missing(old)
            fix = f"tcgen05.wait::{old.what}.sync.aligned in the warp that issued it"
        else:
            code, missing = "EMU_TMEM_RACE", "nothing orders one after the other"
            fix = "a barrier or an mbarrier between them, with the tcgen05 fences around it"
        self.order.reporter.fail(
            code,
            f"tcgen05.{new.what} touches {where}, {earlier} by an earlier tcgen05.{old.what}: {missing}",
            new.who,
            new.pc,
            new.lane,
            history=(self._event(old),),
            numbers={"column": region.column, "columns": region.column_end - region.column},
            fix=fix,
        )

    def _missing(self, old: Operation) -> str:
        if old.pipe is None:
            return f"no tcgen05.wait::{old.what} has come after it" if not old.done else "nothing orders it before"
        if not old.number:
            return "no tcgen05.commit of its thread has come after it"
        return "it was committed, and this warp has not observed the mbarrier's phase"

    def _event(self, old: Operation) -> Event:
        return self.order.reporter.event(f"tcgen05.{old.what}", old.who, old.pc, old.lane)


def _distinct(numbers: Ints) -> list[int]:
    """The different values, nearly always one."""
    first = numbers[0, 0, 0]
    if (numbers == first).all():
        return [int(first)]
    found: list[int] = np.unique(numbers).tolist()
    return found


def _stands_for(new: Operation, old: Operation | None) -> bool:
    return old is not None and old.row == new.row and old.what == new.what and old.lane == new.lane
