"""`setmaxnreg`: the registers of a CTA, which its warpgroups give back and take. Imports its own room.

A launch gives each thread the registers that the entry declares; what `setmaxnreg.dec` gives back lies in a pool of
the CTA, and `setmaxnreg.inc` blocks until the pool has enough (PTX ISA, setmaxnreg). PTX does not say that a warp which
exits leaves its registers to the pool, so here it does not. ptxas drops the instruction where it cannot tell the count
at entry (C7508): it wants `.maxnreg`, or `.minnctapersm` beside the size of the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.clocks import View
from advisor.emulator.ptx.graph import Block
from advisor.emulator.ptx.ir import Immediate, Instruction

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group, Parked

Array = NDArray[Any]
WARPS = 4  # of a warpgroup
FEWEST, MOST, STEP = 24, 256, 8


class RegisterPool:
    """Registers per thread of every resident warp, and what each CTA's pool holds."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        directives = machine.program.function.directives
        of_block = "minnctapersm" in directives and ("maxntid" in directives or "reqntid" in directives)
        self.counts = "maxnreg" in directives or of_block
        self.at_launch = -(-machine.world.launch.registers // STEP) * STEP
        self.held: Array = np.full(machine.rows, self.at_launch)
        self.free: Array = np.zeros(machine.slots, np.int64)  # registers
        self.done: list[list[str]] = [[] for _ in range(machine.rows)]  # what each warp has executed
        self.at: Array = np.zeros(machine.rows, np.int64)  # the warp's clock when it last did
        self.used = False

    def begin(self, rows: Array, slots: Array) -> None:
        """CTAs start."""
        if self.used:
            self.held[rows] = self.at_launch
            self.free[slots] = 0
            for row in rows.tolist():
                self.done[row] = []

    def change(self, group: Group, block: Block, instruction: Instruction) -> bool:
        """True where the warps go on; those for which the pool has too little are parked."""
        machine, site = self.machine, block.end
        qualifiers = instruction.qualifiers
        for qualifier in qualifiers:
            if qualifier not in ("inc", "dec", "sync", "aligned", "u32"):
                machine.refuse(instruction, f".{qualifier} is not known with setmaxnreg")
        if ("inc" in qualifiers) == ("dec" in qualifiers) or "sync" not in qualifiers or "aligned" not in qualifiers:
            machine.refuse(instruction, "setmaxnreg is .inc or .dec, .sync.aligned.u32")
        (operand,) = instruction.operands
        if not isinstance(operand, Immediate):
            machine.refuse(instruction, "the number of registers is a constant")
        wanted, up = operand.value, instruction.has("inc")
        if not FEWEST <= wanted <= MOST or wanted % STEP:
            text = f"{wanted} registers for a thread: {FEWEST} to {MOST} in steps of {STEP}"
            machine.fail(group, site, "EMU_REGISTERS", text, 0, 0)
        missing = machine.alive[group.rows] & ~group.lanes()
        if missing.any():
            row, lane = (int(each) for each in np.argwhere(missing)[0])
            machine.fail(
                group,
                site,
                "EMU_WARP_SYNC",
                f"an instruction of the whole warp, and lane {lane} is not here",
                row,
                lane,
            )
        if not self.counts:
            machine.reporter.warn(
                "EMU_REGISTERS_UNKNOWN",
                "setmaxnreg does nothing: the entry does not say how many registers a thread has at the launch",
                machine.who(int(group.rows[0])),
                site,
                fix=".maxnreg, or .minnctapersm beside .maxntid (__launch_bounds__ with two arguments)",
            )
            return True
        self.used = True
        for index in range(group.n):
            self._legal(group, index, site, f"{'inc' if up else 'dec'} {wanted}", wanted, up)
        if not up:
            before = self.held[group.rows]
            np.add.at(self.free, machine.slot_of[group.rows], (before - wanted) * 32)
            self.held[group.rows] = wanted
            machine.scheduler.woken = True
            return True
        granted = self._granted(group, wanted)
        if granted.all():
            return True
        if granted.any():
            machine.scheduler.enter(group.part(granted), block.successors[0])
            group = group.part(~granted)
        machine.scheduler.park(group, "registers", group.rows, lambda waiting: self._granted(waiting, wanted))
        return False

    def _granted(self, group: Group, wanted: int) -> Array:
        """Gives each warp its registers as far as the pool of its CTA has them."""
        found = np.zeros(group.n, bool)
        for index, row in enumerate(group.rows.tolist()):
            slot = self.machine.slot_of[row]
            more = (wanted - self.held[row]) * 32
            if more <= self.free[slot]:
                self.free[slot] -= more
                self.held[row] = wanted
                found[index] = True
        return found

    # --- what PTX asks of a warpgroup ---------------------------------------------------------------------------

    def _legal(self, group: Group, index: int, site: int, what: str, wanted: int, up: bool) -> None:
        """One that changes nothing needs no synchronisation before it: Triton asks twice for what it has."""
        machine = self.machine
        row = int(group.rows[index])
        held = int(self.held[row])
        others = self._others(row)
        if len(others) < WARPS - 1:
            text = (
                f"setmaxnreg.{what} of a warpgroup with {len(others) + 1} of {WARPS} warps: the CTA has "
                f"{machine.warps} warps, and all four warps of a warpgroup execute the same one"
            )
            machine.fail(group, site, "EMU_REGISTERS", text, index, 0)
        if (wanted < held) if up else (wanted > held):
            text = f"setmaxnreg.{what} of a warp that has {held}: .inc takes registers and .dec gives them back"
            machine.fail(group, site, "EMU_REGISTERS", text, index, 0)
        mine = self.done[row]
        mine.append(what)
        for other in others:
            theirs = self.done[other]
            if len(theirs) >= len(mine) and theirs[len(mine) - 1] != what:
                text = (
                    f"setmaxnreg.{what}, where warp {other % machine.warps} of its warpgroup has executed "
                    f"setmaxnreg.{theirs[len(mine) - 1]}"
                )
                machine.fail(group, site, "EMU_REGISTERS", text, index, 0)
            if len(mine) > 1 and wanted != held and not self._met(row, other, len(mine) - 1):
                text = (
                    f"a second setmaxnreg, and nothing orders the one before it of warp {other % machine.warps} "
                    "before this: the warps of a warpgroup synchronise between two"
                )
                machine.fail(group, site, "EMU_REGISTERS", text, index, 0)
        order_row = machine.order_row[row]
        self.at[row] = machine.order.epoch[order_row]
        machine.order.has_come(order_row)

    def _met(self, row: int, other: int, number: int) -> bool:
        """Whether the `number`-th setmaxnreg of another warp is ordered before this warp's next one."""
        machine = self.machine
        if not machine.races:
            return True
        if len(self.done[other]) > number:  # it has come to this one already, so the one before is over
            return True
        if len(self.done[other]) < number:
            return False
        order = machine.order
        seen = order.now[View.STARTED, machine.order_row[row], order.own[machine.order_row[other]]]
        return bool(seen >= self.at[other])

    def _others(self, row: int) -> list[int]:
        """The other warps of the warpgroup, those that have exited too."""
        machine = self.machine
        first = row // machine.warps * machine.warps
        start = first + (row - first) // WARPS * WARPS
        return [each for each in range(start, min(start + WARPS, first + machine.warps)) if each != row]

    def warps_end(self, rows: Array) -> None:
        """A warp that exits has executed what the others of its warpgroup have."""
        for row in rows.tolist() if self.used else ():
            for other in self._others(row):
                if len(self.done[other]) > len(self.done[row]):
                    machine = self.machine
                    machine.reporter.fail(
                        "EMU_REGISTERS",
                        f"a warp exits without the setmaxnreg.{self.done[other][len(self.done[row])]} that warp "
                        f"{other % machine.warps} of its warpgroup has executed",
                        machine.who(row),
                        machine.exit_site,
                        fix="all warps of a warpgroup execute the same setmaxnreg",
                    )

    def reason(self, parked: Parked) -> str:
        """What a parked warp waits for."""
        machine = self.machine
        row = int(parked.group.rows[0])
        slot = int(machine.slot_of[row])
        rows = np.arange(slot * machine.warps, (slot + 1) * machine.warps)
        gone = rows[~machine.alive[rows].any(axis=1)]
        together, launched = int(self.held[rows].sum()) * 32, self.at_launch * 32 * machine.warps
        text = (
            f"for more registers than the {int(self.held[row])} of each thread; the pool of its CTA holds "
            f"{int(self.free[slot])}, all warps together {together} of {launched}"
        )
        return text + (f"; {len(gone)} have exited, and PTX does not say that theirs come back" if len(gone) else "")
