"""The fifth-generation tensor core of every resident CTA: tcgen05 and its tensor memory. Imports its own room.

The machine's generated code comes here with groups of warps. This module has the loads and stores, which act at once
and count as being in flight until their wait; `tcgen05_pipe` has what one thread issues, `tcgen05_allocation` the
columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.ptx.graph import Block
from advisor.emulator.ptx.ir import Instruction
from advisor.emulator.scheduler import Group, Parked
from advisor.emulator.tcgen05_allocation import Allocator
from advisor.emulator.tcgen05_layouts import Fragment, from_registers, to_registers
from advisor.emulator.tcgen05_order import Operation, What
from advisor.emulator.tcgen05_pipe import Pipes
from advisor.emulator.tcgen05_state import Cta, Spot, TensorMemory, uniform
from advisor.emulator.tmem import Region

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine
    from advisor.emulator.world import Cluster

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TransferForm:
    """One `tcgen05.ld` or `.st`. `split`: the distance of the second part of `16x32bx2`."""

    site: int
    fragment: Fragment
    split: int = 0


class Tcgen05:
    """Tensor memory and tensor cores of a machine whose kernel has tcgen05."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.memory = TensorMemory(machine)
        self.allocator = Allocator(self.memory)
        self.pipes = Pipes(self.memory)
        self.begun = 0

    # --- CTAs ---------------------------------------------------------------------------------------------------

    def begin(self, slot: int, cluster: Cluster, rank: int, rows: Array) -> None:
        """A CTA starts in the slot; `rows` are its warps."""
        self.begun += 1
        self.memory.begin(slot, cluster.serial, rank, cluster.smids[rank], self.begun)
        self.memory.order.begin(self.machine.order_row[rows])
        self.pipes.begin(rows.tolist())

    def end(self, slot: int, rows: Array) -> None:
        """The last warp of a CTA has exited. Raises EMU_TMEM_LEAK, EMU_TCGEN05_COMMIT and EMU_TMEM_PAIR."""
        cta = self.memory.ctas[slot]
        self.allocator.end(cta, int(rows[-1]))
        self.pipes.end(cta, rows)

    def wait(self, group: Group, block: Block, instruction: Instruction) -> bool:
        return self.allocator.wait(group, block, instruction)

    def reason(self, parked: Parked) -> str:
        return self.allocator.reason(parked)

    # --- loads and stores ---------------------------------------------------------------------------------------

    def load(
        self, g: Group, form: TransferForm, address: Array, lanes: Array | None
    ) -> tuple[list[Array], list[Array] | None]:
        """`tcgen05.ld`: the registers, each [n, 32], and in which lanes each has a word that nobody has written; None
        where all were written."""
        fragment = form.fragment
        result = np.zeros((fragment.registers, g.n, 32), np.uint32)
        blank: Array | None = None
        for index, cta, regions in self._warps(g, form, address, lanes):
            if self.machine.races:
                operation = self._operation("ld", g, index, form.site)
                for region in regions:
                    self.memory.order.access(self.memory.shadow(cta), operation, region, write=False)
                shadow = self.memory.shadow(cta)
                if any(self.memory.order.uninitialised(shadow, each) for each in regions):
                    blank = np.zeros(result.shape, bool) if blank is None else blank
                    holes = [
                        np.where(self.memory.order.blank(shadow, each)[0], ~np.uint32(0), np.uint32(0))
                        for each in regions
                    ]
                    joined = holes[0] if len(holes) == 1 else np.concatenate(holes, axis=1)
                    blank[:, index] = to_registers(fragment, joined) != 0
            words = [self.memory.of(cta).data[each.index][0] for each in regions]
            result[:, index] = to_registers(fragment, words[0] if len(words) == 1 else np.concatenate(words, axis=1))
            self.machine.bytes_moved["tensor memory load"] += fragment.lanes * fragment.columns * len(regions) * 4
        return list(result), None if blank is None else list(blank)

    def store(self, g: Group, form: TransferForm, address: Array, registers: list[Array], lanes: Array | None) -> None:
        """`tcgen05.st`."""
        fragment = form.fragment
        stacked = np.stack([np.broadcast_to(each, (g.n, 32)) for each in registers])
        for index, cta, regions in self._warps(g, form, address, lanes):
            if self.machine.races:
                operation = self._operation("st", g, index, form.site)
                for region in regions:
                    self.memory.order.access(self.memory.shadow(cta), operation, region, write=True)
            words = from_registers(fragment, stacked[:, index])
            for region, part in zip(regions, np.split(words, len(regions), axis=1), strict=True):
                self.memory.of(cta).data[region.index] = part[None]
            self.machine.bytes_moved["tensor memory store"] += words.size * 4

    def wait_for(self, g: Group, site: int, what: Literal["ld", "st"], lanes: Array | None) -> None:
        """`tcgen05.wait::ld` and `::st`."""
        for index in self._whole(g, site, lanes):
            self.memory.order.wait(int(self.machine.order_row[g.rows[index]]), what)

    def fence(self, g: Group, before: bool, lanes: Array | None) -> None:
        """`tcgen05.fence::before_thread_sync` and `::after_thread_sync`."""
        rows = g.rows if lanes is None else g.rows[lanes.any(axis=1)]
        for row in self.machine.order_row[rows].tolist():
            if before:
                self.memory.order.before_thread_sync(row)
            else:
                self.memory.order.after_thread_sync(row)

    def _whole(self, g: Group, site: int, lanes: Array | None) -> list[int]:
        """The warps that execute an instruction; every lane of theirs does."""
        on = g.lanes() if lanes is None else lanes
        which = np.flatnonzero(on.any(axis=1))
        if not on[which].all():
            self.machine.whole_warps(g, site, on | ~on.any(axis=1, keepdims=True))
        found: list[int] = which.tolist()
        return found

    def _warps(
        self, g: Group, form: TransferForm, address: Array, lanes: Array | None
    ) -> list[tuple[int, Cta, list[Region]]]:
        """Each warp of a load or store, its CTA, what it touches. Raises EMU_TMEM_LANES, EMU_TMEM_UNALLOCATED."""
        machine = self.machine
        found = []
        for index in self._whole(g, form.site, lanes):
            row = int(g.rows[index])
            first, other = uniform(address, index)
            if other is not None:
                self.memory.fail(Spot(g, index, other, form.site), "EMU_TMEM_LANES", "its lanes name several addresses")
            regions = form.fragment.regions(first, form.split)
            warp = row % machine.warps
            region = regions[0]
            if region.quarter != warp % 4 or region.lane_end > 32:
                low = region.quarter * 32 + region.lane
                message = (
                    f"lanes {low} to {low + form.fragment.lanes - 1} of tensor memory, where warp {warp} may touch "
                    f"lanes {warp % 4 * 32} to {warp % 4 * 32 + 31}"
                )
                self.memory.fail(Spot(g, index, 0, form.site), "EMU_TMEM_LANES", message)
            cta = self.memory.cta_of(row)
            for each in regions:
                self.memory.check_owned(Spot(g, index, 0, form.site), cta, each)
            found.append((index, cta, regions))
        return found

    def _operation(self, what: What, g: Group, index: int, site: int) -> Operation:
        return self.memory.order.issue(what, int(self.machine.order_row[g.rows[index]]), None, site, None)
