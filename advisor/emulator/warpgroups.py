"""wgmma on the machine: groups of four warps, their asynchronous products, and what may touch their registers.

Imports its own room. What a product computes is the business of `wgmma`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.async_groups import AsyncGroups, Member
from advisor.emulator.scheduler import LanesMissing
from advisor.emulator.shared_operand import CHUNK, Major, operand_from_chunks
from advisor.emulator.wgmma import Descriptor, WarpgroupMma
from advisor.emulator.wgmma_registers import WgmmaRegisters

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Multiply:
    """One `wgmma.mma_async`."""

    site: int
    form: WarpgroupMma
    scales: tuple[int, int]
    major_a: Major
    major_b: Major
    accumulators: tuple[int, ...]
    a_registers: tuple[int, ...]


class Warpgroups:
    """The wgmma groups of a machine and what their registers are up to."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.engine = machine.engine
        self.groups: dict[int, tuple[AsyncGroups, WgmmaRegisters]] = {}  # by first row

    def forget(self, rows: Array) -> None:
        """These warps have exited."""
        for row in rows.tolist():
            self.groups.pop(row, None)

    def _warpgroups(
        self, g: Group, site: int, lanes: Array | None
    ) -> Iterator[tuple[int, AsyncGroups, WgmmaRegisters]]:
        """The position of each warpgroup's first warp in the group: all four warps are here with all lanes."""
        machine = self.machine
        machine.whole_warps(g, site, g.mask if lanes is None else lanes)
        rows = g.rows
        group_of = rows - rows % machine.warps % 4
        together = np.searchsorted(group_of, group_of, "right") - np.searchsorted(group_of, group_of) == 4
        if not together.all():
            message = "an instruction of the whole warpgroup, and one of its four warps is not here"
            raise LanesMissing(site, message, (int(np.argmin(together)), 0), together)
        for index in range(0, g.n, 4):
            row = int(rows[index])
            found = self.groups.get(row)
            if found is None:
                who = machine.who(row)
                key = ("wgmma", who.rank, who.warp)
                name = f"wgmma groups of warps {who.warp} to {who.warp + 3}"
                groups = AsyncGroups(machine.order, who.cluster, who.rank, key, name)
                found = self.groups[row] = (groups, WgmmaRegisters(machine.reporter, who))
            yield index, *found

    def warpgroup_fence(self, g: Group, site: int, lanes: Array | None) -> None:
        for _, _, registers in self._warpgroups(g, site, lanes):
            registers.fence()

    def warpgroup_commit(self, g: Group, site: int, lanes: Array | None) -> None:
        for _, groups, registers in self._warpgroups(g, site, lanes):
            groups.commit()
            registers.commit()

    def warpgroup_wait(self, g: Group, site: int, count: int, lanes: Array | None) -> None:
        for index, groups, registers in self._warpgroups(g, site, lanes):
            groups.wait(count, self.machine.order_row[g.rows[index : index + 4]].tolist())
            registers.wait(count)

    def touch(self, g: Group, read: tuple[tuple[int, int], ...], written: tuple[tuple[int, int], ...]) -> None:
        """Other instructions use registers that are operands of a wgmma somewhere: (register, instruction)."""
        for row in np.unique(g.rows - g.rows % self.machine.warps % 4).tolist():
            found = self.groups.get(row)
            if found is not None:
                for register, site in read:
                    found[1].touch((register,), site, write=False)
                for register, site in written:
                    found[1].touch((register,), site, write=True)

    def multiply(
        self, g: Group, form: Multiply, a: Any, b: Array, d: list[Array], use_d: Array, lanes: Array | None
    ) -> list[Array]:
        results = [np.empty((g.n, 32), np.uint32) for _ in d]
        for index, groups, registers in self._warpgroups(g, form.site, lanes):
            registers.issue(form.accumulators, form.a_registers, form.form.opcode, form.site)
            row = int(g.rows[index])
            member = groups.add(int(self.machine.order_row[row]), form.site, 0)
            member.read = member.written = True
            part = slice(index, index + 4)
            kind = form.form.product
            if isinstance(a, list):
                left = form.form.a_from_registers([each[part] for each in a])
            else:
                left = self._operand(g, index, form, groups, member, int(a[index, 0]), 64, form.major_a, kind.a)
            right = self._operand(g, index, form, groups, member, int(b[index, 0]), form.form.n, form.major_b, kind.b)
            start = form.form.d_from_registers([each[part] for each in d]) if use_d[index, 0] else None
            scale_a, scale_b = form.scales
            product = form.form(left, right, start, scale_a=scale_a, scale_b=scale_b, numerics=self.machine.numerics)
            for result, value in zip(results, form.form.d_to_registers(product), strict=True):
                result[part] = value
        return results

    def _operand(
        self,
        g: Group,
        index: int,
        form: Multiply,
        groups: AsyncGroups,
        member: Member,
        value: int,
        extent: int,
        major: Major,
        kind: str,
    ) -> Array:
        machine = self.machine
        row = int(g.rows[index])
        slot = int(machine.slot_of[row])
        descriptor = Descriptor.decode(value)
        places = descriptor.chunks(extent, major, kind)
        flat = places.ravel()
        offsets = self.engine.shared_offsets(g, index, 0, form.site, slot, flat, CHUNK)
        self.engine.judge(g, index, form.site, slot, descriptor, extent, major, kind, kind)
        self.engine.must_be_written(g, index, 0, form.site, offsets, CHUNK)
        if machine.races:
            machine.order.async_access(
                member.operation, machine.shared_shadow, offsets, CHUNK, write=False, channel=groups.reads
            )
        chunks = machine.shared.bytes.data.reshape(-1, CHUNK)[offsets // CHUNK]
        return operand_from_chunks(chunks.reshape((*places.shape, CHUNK)), major, kind)
