"""The kernel before this one on the stream, still running when this one starts. Imports its own room.

A launch with programmatic stream serialization may start early; `griddepcontrol.wait` makes a thread wait until the
kernels before it have completed and what they wrote is visible to the grid (PTX ISA, griddepcontrol). Here that
kernel is late: the buffers that it writes hold poison until it ends, and it ends when nothing else can go on (under the
eager policy at once, under the random one at any time). Whoever touches one of the buffers must come after a wait, its
own or one that something orders before it; that is a clock of its own in `clocks`, so it does not hang on the schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.clocks import View
from advisor.emulator.memory import Buffer
from advisor.emulator.ptx.graph import Block
from advisor.emulator.ptx.ir import Instruction

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group

Array = NDArray[Any]
_FIX = "griddepcontrol.wait (cudaGridDependencySynchronize) before it, in this thread or in one that it has met since"


class Predecessor:
    """`late` are the buffers that it writes until it ends. Without any there is none, and nothing is checked."""

    def __init__(self, machine: Machine, late: Sequence[Buffer]) -> None:
        self.machine = machine
        self.late = sorted(late, key=lambda each: each.start)
        self.over = not self.late
        self.checks = machine.races and bool(self.late)
        self._starts: Array = np.array([each.start for each in self.late], np.int64)
        self._ends: Array = np.array([each.start + each.bytes for each in self.late], np.int64)
        self._column = machine.ranks * machine.warps  # the first channel of every cluster
        self._apart: dict[int, tuple[int, Array]] = {}  # warps of which some lanes have waited: since when, and which
        if not self.late:
            return
        memory = machine.globals
        self._left = [(each, memory.content(each).copy(), memory.marks(each).copy()) for each in self.late]
        for each in self.late:
            memory.fill(each, np.full(each.bytes, 0xFF, np.uint8), np.zeros(each.bytes, np.uint8))
        machine.queue.hold(self._end)

    def _end(self) -> None:
        """It has completed, and its writes are performed."""
        for buffer, content, marks in self._left:
            self.machine.globals.fill(buffer, content, marks)
        self.over = True
        self.machine.scheduler.woken = True

    def begin(self, serial: int, rows: Array) -> None:
        """A cluster starts; `rows` are its warps in the machine."""
        if self.checks:
            channel = self.machine.order.channel(serial, 0, "predecessor", "the kernel before this one")
            assert channel.column == self._column
            for row in rows.tolist():
                self._apart.pop(row, None)

    # --- griddepcontrol -----------------------------------------------------------------------------------------

    def control(self, group: Group, block: Block, instruction: Instruction) -> bool:
        """True where the warps go on; else they are parked until the kernel before this one has ended."""
        if instruction.qualifiers not in (("wait",), ("launch_dependents",)):
            self.machine.refuse(instruction, "wait and launch_dependents are known")
        if not self.late or instruction.has("launch_dependents"):
            return True
        if self.over:
            self._observed(group)
            return True
        self.machine.scheduler.park(group, "predecessor", group.rows, self._retry)
        return False

    def _retry(self, group: Group) -> Array:
        if self.over:
            self._observed(group)
        return np.full(group.n, self.over)

    def _observed(self, group: Group) -> None:
        """These lanes have waited."""
        machine = self.machine
        if not self.checks:
            return
        rows = machine.order_row[group.rows]
        machine.order.learn_alone(rows, self._column)
        lanes = group.lanes() | ~machine.alive[group.rows]
        for index in np.flatnonzero(~lanes.all(axis=1)).tolist():
            row = int(group.rows[index])
            _, before = self._apart.get(row, (0, np.zeros(32, bool)))
            self._apart[row] = (int(machine.order.epoch[rows[index]]), lanes[index] | before)

    # --- who may touch what it writes ---------------------------------------------------------------------------

    def accessed(self, g: Group, site: int, offset: Array, mask: Array | None, *, write: bool) -> None:
        """Lanes [n, 32] of a group access global memory at these offsets of its array."""
        knows = self._knows(g.rows)
        if knows.all():
            return
        bad = ~knows & self._inside(offset)
        if mask is not None:
            bad &= mask
        if bad.any():
            row, lane = (int(each) for each in np.argwhere(bad)[0])
            self._early(g, site, row, lane, int(offset[row, lane]), write=write)

    def accessed_by(self, g: Group, index: int, lane: int, site: int, offsets: Array, *, write: bool) -> None:
        """One thread starts an asynchronous operation on global memory at these offsets."""
        if self._knows(g.rows[index : index + 1])[0, lane]:
            return
        bad = self._inside(offsets)
        if bad.any():
            self._early(g, site, index, lane, int(offsets[bad][0]), write=write)

    def warps_end(self, rows: Array) -> None:
        """Warns of a warp that leaves without having waited."""
        knows = self._knows(rows).any(axis=1)
        for row in rows[~knows].tolist():
            self.machine.reporter.warn(
                "EMU_GRID_WAIT_SKIPPED",
                "a warp exits, and no griddepcontrol.wait is ordered before its exit",
                self.machine.who(row),
                self.machine.exit_site,
                fix="let every warp of every CTA wait, before early exits too: a grid of which nobody waits may be "
                "over before the kernel before it is, and the kernel after it reads that one's results",
            )

    def _knows(self, rows: Array) -> Array:
        """[n, 32]: whether a wait is ordered before the next access of each lane."""
        order = self.machine.order
        found = np.repeat(order.knows_alone(self.machine.order_row[rows], self._column, View.BASE)[:, None], 32, axis=1)
        for index, row in enumerate(rows.tolist() if self._apart else ()):
            since, lanes = self._apart.get(row, (0, np.ones(32, bool)))
            if order.met[self.machine.order_row[row]] >= since:
                self._apart.pop(row, None)
            else:
                found[index] &= lanes
        return found

    def _inside(self, offsets: Array) -> Array:
        index = np.searchsorted(self._starts, offsets, "right") - 1
        found: Array = (index >= 0) & (offsets < self._ends[np.maximum(index, 0)])
        return found

    def _early(self, g: Group, site: int, index: int, lane: int, offset: int, *, write: bool) -> None:
        buffer = next(each for each in self.late if each.start <= offset < each.start + each.bytes)
        does = ("writes", "write it over") if write else ("reads", "write it")
        self.machine.reporter.fail(
            "EMU_GRID_WAIT",
            f"{does[0]} {buffer.name} at byte {offset - buffer.start} before griddepcontrol.wait: the kernel before "
            f"this one may still {does[1]}",
            self.machine.who(int(g.rows[index])),
            site,
            lane,
            numbers={"buffer": buffer.name, "offset": offset - buffer.start},
            fix=_FIX,
        )
