"""The tensor memory of every SM in use, and what each resident CTA has of it. Imports its own room."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.mbarrier import By, Mbarrier
from advisor.emulator.policy import Pending
from advisor.emulator.scheduler import Group
from advisor.emulator.tcgen05_order import Pipe, Shadow, TmemOrder
from advisor.emulator.tmem import Region, SmMemory

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine

Array = NDArray[Any]


@dataclass(slots=True, eq=False)
class Commit:
    """A tcgen05.commit on its way to an mbarrier: the `number` of its pipe, and the phase in which it has arrived."""

    number: int
    by: By
    barrier: Mbarrier
    remote: bool  # the mbarrier is in another CTA than the thread
    phase: int | None = None


@dataclass(slots=True, eq=False)
class Cta:
    """A resident CTA."""

    number: int  # counts the CTAs that have begun
    slot: int
    rank: int
    cluster: int
    sm: int
    relinquished: bool = False
    stores: int = 0  # of addresses of allocations
    last_columns: int = 0  # of the latest allocation
    allocations: dict[int, int] = field(default_factory=dict)  # first column -> columns
    operands: dict[tuple[object, ...], Array] = field(default_factory=dict)  # places of chunks in shared memory
    commits: dict[Pipe, Commit] = field(default_factory=dict)  # to its mbarriers: the last one of each pipe
    arrivals: list[Pending] = field(default_factory=list)

    @property
    def peer_slot(self) -> int:
        """The slot of the other CTA of its pair."""
        return self.slot - self.rank + (self.rank ^ 1)

    @property
    def held(self) -> str:
        """Its allocations, for a message."""
        return ", ".join(f"{columns} from column {first}" for first, columns in self.allocations.items()) or "none"


@dataclass(frozen=True, slots=True)
class Spot:
    """Where an instruction is being executed: a group, a warp of it, a lane, the instruction."""

    group: Group
    index: int
    lane: int
    site: int

    @property
    def row(self) -> int:
        return int(self.group.rows[self.index])


class TensorMemory:
    """The tensor memory of one launch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        _check_groups(machine)
        used = {each.qualifiers[0] for each in machine.program.instructions if each.opcode == "tcgen05"}
        before, after = ("fence::before_thread_sync" in used, "fence::after_thread_sync" in used)
        self.order = TmemOrder(machine.order, before=before, after=after)
        self.ctas: dict[int, Cta] = {}  # by slot
        self._memory: dict[int, SmMemory] = {}  # by SM
        self._shadows: dict[int, Shadow] = {}

    def begin(self, slot: int, cluster: int, rank: int, sm: int, number: int) -> None:
        self.ctas[slot] = Cta(number, slot, rank, cluster, sm)

    def of(self, cta: Cta) -> SmMemory:
        """The tensor memory of the CTA's SM."""
        found = self._memory.get(cta.sm)
        if found is None:
            found = self._memory[cta.sm] = SmMemory()
            self._shadows[cta.sm] = Shadow()
        return found

    def shadow(self, cta: Cta) -> Shadow:
        self.of(cta)
        return self._shadows[cta.sm]

    def cta_of(self, row: int) -> Cta:
        return self.ctas[int(self.machine.slot_of[row])]

    def pair(self, cta: Cta, cta_group: int) -> list[Cta]:
        """The CTA, or both of its pair, the even one first."""
        if cta_group == 1:
            return [cta]
        return sorted((cta, self.ctas[cta.peer_slot]), key=lambda each: each.rank)

    def check_peer(self, cta: Cta, row: int, site: int, lane: int | None) -> None:
        """The other CTA of the pair runs, and that it has started is known. Raises EMU_NO_SUCH_PEER,
        EMU_PEER_EXITED and EMU_PEER_NOT_STARTED."""
        machine = self.machine
        peer = cta.rank ^ 1
        started = peer < machine.ranks and machine.order.knows_started(int(machine.order_row[row]), peer)
        machine.world.check_peer(machine.who(row), peer, started, site, lane)

    def check_owned(self, spot: Spot, cta: Cta, region: Region) -> None:
        """Raises EMU_TMEM_UNALLOCATED."""
        if not self.of(cta).holds(cta.number, region):
            message = f"{region} of tensor memory, where CTA rank {cta.rank} has {cta.held} allocated"
            self.fail(spot, "EMU_TMEM_UNALLOCATED", message)

    def check_initialised(self, spot: Spot, cta: Cta, region: Region) -> None:
        """Raises EMU_TMEM_UNINITIALISED."""
        if self.order.uninitialised(self.shadow(cta), region):
            message = f"reads {region} of tensor memory, of which some words were never written"
            self.fail(spot, "EMU_TMEM_UNINITIALISED", message)

    def fail(self, spot: Spot, code: str, message: str) -> None:
        self.machine.fail(spot.group, spot.site, code, message, spot.index, spot.lane)


def _check_groups(machine: Machine) -> None:
    """All tcgen05 instructions of a kernel name one cta_group. Raises EMU_TCGEN05_MIXED_GROUP."""
    seen: dict[str, int] = {}
    for index, instruction in enumerate(machine.program.instructions):
        if instruction.opcode != "tcgen05":
            continue
        for qualifier in instruction.qualifiers:
            if qualifier.startswith("cta_group::"):
                seen.setdefault(qualifier, index)
    if len(seen) > 1:
        (one, first), (other, second) = sorted(seen.items(), key=lambda each: each[1])
        machine.reporter.fail(
            "EMU_TCGEN05_MIXED_GROUP",
            f"the kernel has tcgen05 instructions of .{one} and of .{other}",
            None,
            second,
            history=(machine.reporter.event(f".{one}", None, first),),
            fix="one cta_group per kernel",
        )


def uniform(values: NDArray[np.unsignedinteger[Any]], index: int) -> tuple[int, int | None]:
    """The value that the lanes of a warp share, and the first lane that has another one."""
    first = values[index, 0]
    differs = values[index] != first
    return int(first), int(differs.argmax()) if differs.any() else None
