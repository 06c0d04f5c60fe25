"""Registers that belong to wgmma operations in flight: wgmma.fence and wgmma.wait_group. Imports `report`.

PTX ISA 9.7.15.7: wgmma.fence must come before the first wgmma.mma_async of a warpgroup, and between an access of a
register and a wgmma that uses it as accumulator or as A, except for the accumulator of wgmmas of one shape in a row.
Accumulators and A registers must not be touched before the group of their operation has been waited for (9.7.15.5).

The executor knows which instructions can touch such registers and calls `touch` for those alone. Registers are numbers
of the executor's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from advisor.emulator.report import Reporter, Who


@dataclass(slots=True)
class _InFlight:
    group: int  # 0 while the operation is not committed
    pc: int
    accumulator: bool
    shape: str


@dataclass(slots=True)
class WgmmaRegisters:
    """The registers of one warp."""

    reporter: Reporter
    who: Who
    committed: int = 0
    fenced: bool = False
    touched: dict[int, int] = field(default_factory=dict)  # register -> instruction that touched it since the fence
    held: dict[int, _InFlight] = field(default_factory=dict)

    def fence(self) -> None:
        """wgmma.fence: earlier register accesses precede the operations that follow."""
        self.fenced = True
        self.touched.clear()

    def issue(self, accumulator: Iterable[int], a: Iterable[int], shape: str, pc: int) -> None:
        """wgmma.mma_async. Raises EMU_WGMMA_FENCE for a register that was touched after the last wgmma.fence, or
        EMU_WGMMA_REGISTER for one that another operation in flight uses in another way."""
        if not self.fenced:
            self._fail(
                "EMU_WGMMA_FENCE", "the first wgmma.mma_async of the warpgroup comes with no wgmma.fence before it", pc
            )
        for registers, is_accumulator in ((list(accumulator), True), (list(a), False)):
            for register in registers:
                self._take(register, is_accumulator, shape, pc)

    def commit(self) -> None:
        """wgmma.commit_group."""
        self.committed += 1
        for each in self.held.values():
            if each.group == 0:
                each.group = self.committed

    def wait(self, pending: int) -> None:
        """wgmma.wait_group: at most `pending` of the latest groups are still in flight."""
        last = self.committed - pending
        self.held = {number: each for number, each in self.held.items() if each.group == 0 or each.group > last}

    def touch(self, registers: Iterable[int], pc: int, *, write: bool) -> None:
        """Another instruction reads or writes registers. Raises EMU_WGMMA_REGISTER for one in flight.

        Reading the A registers of an operation in flight changes nothing, so that is allowed.
        """
        for register in registers:
            holder = self.held.get(register)
            if holder is not None and (write or holder.accumulator):
                self._fail(
                    "EMU_WGMMA_REGISTER",
                    f"an instruction {'writes' if write else 'reads'} "
                    f"{'an accumulator' if holder.accumulator else 'an A operand'} of a wgmma in flight",
                    pc,
                    holder.pc,
                    fix="wgmma.wait_group first (after wgmma.commit_group)",
                )
            self.touched[register] = pc

    def in_flight(self) -> bool:
        return bool(self.held)

    def _take(self, register: int, accumulator: bool, shape: str, pc: int) -> None:
        if register in self.touched:
            self._fail(
                "EMU_WGMMA_FENCE",
                "a register of this wgmma was accessed after the last wgmma.fence",
                pc,
                self.touched[register],
                fix="wgmma.fence between the access and the wgmma",
            )
        holder = self.held.get(register)
        chained = holder is not None and accumulator and holder.accumulator and holder.shape == shape
        if holder is not None and not chained and (accumulator or holder.accumulator):
            self._fail(
                "EMU_WGMMA_REGISTER",
                "a wgmma uses a register that another one in flight has as "
                + ("accumulator" if holder.accumulator else "A operand"),
                pc,
                holder.pc,
                fix="only accumulators of one shape chain without a wait",
            )
        self.held[register] = _InFlight(0, pc, accumulator, shape)

    def _fail(self, code: str, message: str, pc: int, other: int = -1, *, fix: str = "") -> NoReturn:
        history = (self.reporter.event("the other instruction", self.who, other),) if other >= 0 else ()
        self.reporter.fail(code, message, self.who, pc, history=history, fix=fix)
