"""`tcgen05.alloc`, `.dealloc` and `.relinquish_alloc_permit`: who waits for columns, or a peer. Imports its own room.

Each of them stands until it is done (PTX ISA 9.7.16.7): an allocation until the SM has the columns, one of a pair
until the peer's warp has come too. PTX lets `dealloc` of a pair go on alone, too; here it never does, so that a kernel
that relies on it does not end (9.7.16.5, table 48).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.emulator.memory import RANK_SHIFT, SHARED_WINDOW
from advisor.emulator.ptx.graph import Block
from advisor.emulator.ptx.ir import Address, Instruction
from advisor.emulator.scheduler import Group, Parked
from advisor.emulator.tcgen05_state import Array, Cta, TensorMemory
from advisor.emulator.tmem import all_lanes, column_of, column_violation

_LOCAL = (1 << RANK_SHIFT) - 1


@dataclass(slots=True, eq=False)
class _Request:
    """One of the three of one warp. `place`: the shared address for the result, or the address that is freed."""

    operation: str
    row: int
    cta: Cta
    site: int
    pair: bool
    columns: int
    place: int
    done: bool = False


class Allocator:
    """The requests of a launch."""

    def __init__(self, memory: TensorMemory) -> None:
        self.memory = memory
        self.machine = memory.machine
        self.waiting: list[_Request] = []
        self.requests: dict[int, _Request] = {}  # by row

    def end(self, cta: Cta, row: int) -> None:
        """A CTA has exited. Raises EMU_TMEM_LEAK, and EMU_TMEM_PAIR where its peer waits for it."""
        machine = self.machine
        if cta.allocations:
            machine.reporter.fail(
                "EMU_TMEM_LEAK",
                f"the CTA exits and has not freed its tensor memory: {cta.held}",
                machine.who(row),
                machine.exit_site,
                numbers={"columns": sum(cta.allocations.values())},
                fix="tcgen05.dealloc on every path to the exit",
            )
        for request in self.waiting:
            if request.pair and request.cta.slot == cta.peer_slot:
                self._fail(request, "EMU_TMEM_PAIR", "the peer CTA has exited without taking part")

    def wait(self, group: Group, block: Block, instruction: Instruction) -> bool:
        """The instruction that ends a block. True: go on; False: the group is parked or has been parted."""
        machine = self.machine
        operation, site = instruction.qualifiers[0], block.end
        known = {operation, "cta_group::1", "cta_group::2", "sync", "aligned", "shared::cta", "b32"}
        for qualifier in instruction.qualifiers:
            if qualifier not in known:
                machine.refuse(instruction, f".{qualifier} is not known with tcgen05.{operation}")
        machine.whole_warps(group, site, group.mask)
        place, columns = self._operands(group, instruction)
        for index, row in enumerate(group.rows.tolist()):
            request = _Request(
                operation,
                row,
                self.memory.cta_of(row),
                site,
                instruction.has("cta_group::2"),
                int(columns[index, 0]),
                int(place[index, 0]),
            )
            self._check(request)
            self.requests[row] = request
            self.waiting.append(request)
        done = self._settled(group)
        if done.all():
            return True
        if done.any():
            machine.scheduler.enter(group.part(done), block.successors[0])
            group = group.part(~done)
        machine.scheduler.park(group, "tcgen05", group.rows, self._settled)
        return False

    def reason(self, parked: Parked) -> str:
        """What a group waits for."""
        request = self.requests[int(parked.group.rows[0])]
        if request.pair and self._partner(request) is None:
            return f"at tcgen05.{request.operation} for a warp of the peer CTA"
        return f"at tcgen05.{request.operation} for {request.columns} columns of tensor memory"

    def _operands(self, group: Group, instruction: Instruction) -> tuple[Array, Array]:
        """The first operand, an address, and the number of columns."""
        machine = self.machine
        operation = instruction.qualifiers[0]
        if operation == "relinquish_alloc_permit":
            zeros = np.zeros((group.n, 32), np.uint32)
            return zeros, zeros
        columns = machine.operand(group, instruction.operands[1], "u32")
        first = instruction.operands[0]
        if operation == "dealloc":
            return machine.operand(group, first, "u32"), columns
        assert isinstance(first, Address)
        if instruction.has("shared::cta"):
            return machine.operand(group, first.base, "u32") + np.uint32(first.offset & 0xFFFFFFFF), columns
        wide = machine.operand(group, first.base, "u64") + np.uint64(first.offset & 0xFFFFFFFFFFFFFFFF)
        return (wide - np.uint64(SHARED_WINDOW)).astype(np.uint32), columns

    def _check(self, request: _Request) -> None:
        cta = request.cta
        if request.pair:
            self.memory.check_peer(cta, request.row, request.site, None)
        if request.operation == "relinquish_alloc_permit":
            return
        wrong = column_violation(request.columns)
        if not wrong and request.operation == "alloc":
            if cta.relinquished:
                wrong = "an allocation after tcgen05.relinquish_alloc_permit"
            elif cta.last_columns and request.columns > cta.last_columns:
                wrong = f"an allocation of {request.columns} columns after one of {cta.last_columns}: they may not grow"
        elif not wrong:
            self._check_held(request)
        if wrong:
            self._fail(request, "EMU_TMEM_ALLOC", wrong)
        if self.machine.races and request.operation == "dealloc":
            region = all_lanes(column_of(request.place), request.columns)
            row = int(self.machine.order_row[request.row])
            self.memory.order.freed(self.memory.shadow(cta), region, row, request.site)

    def _check_held(self, request: _Request) -> None:
        cta = request.cta
        if cta.allocations.get(column_of(request.place)) != request.columns:
            wrong = f"{request.columns} columns from {request.place:#x} are freed, and the CTA has {cta.held}"
            self._fail(request, "EMU_TMEM_ALLOC", wrong)

    def _fail(self, request: _Request, code: str, message: str) -> None:
        who = self.machine.who(request.row)
        self.machine.reporter.fail(code, message, who, request.site, numbers={"columns": request.columns})

    def _settled(self, group: Group) -> Array:
        """Does what can be done, and says which rows may go on."""
        while any(self._try(each) for each in list(self.waiting) if not each.done):
            pass
        done = np.array([self.requests[row].done for row in group.rows.tolist()])
        for row in group.rows[done].tolist():
            del self.requests[row]
        return done

    def _partner(self, request: _Request) -> _Request | None:
        return next(
            (
                each
                for each in self.waiting
                if each.cta.slot == request.cta.peer_slot and each.operation == request.operation
            ),
            None,
        )

    def _try(self, request: _Request) -> bool:
        together = [request]
        if request.pair:
            partner = self._partner(request)
            if partner is None:
                return False
            if partner.columns != request.columns:
                message = f"{request.columns} columns, where the warp of the peer CTA has {partner.columns}"
                self._fail(request, "EMU_TMEM_PAIR", message)
            together.append(partner)
        if request.operation == "alloc":
            if not self._allocate(together):
                return False
        else:
            for each in together:
                self._give_back(each)
        for each in together:
            each.done = True
            self.waiting.remove(each)
        self.machine.engine.wake()
        return True

    def _allocate(self, together: list[_Request]) -> bool:
        """Columns at one place in the tensor memory of every CTA that takes part."""
        columns = together[0].columns
        memories = [self.memory.of(each.cta) for each in together]
        places = set.intersection(*(set(each.free_at(columns)) for each in memories))
        if not places:
            return False
        first = min(places)
        rows = [int(self.machine.order_row[each.row]) for each in together]
        shadows = [self.memory.shadow(each.cta) for each in together]
        self.memory.order.allocated(shadows, all_lanes(first, columns), rows, together[0].site)
        for request, memory in zip(together, memories, strict=True):
            cta = request.cta
            memory.owner[first : first + columns] = cta.number
            cta.allocations[first] = columns
            cta.last_columns = columns
            self._tell(request, first)
        return True

    def _tell(self, request: _Request, address: int) -> None:
        """The address goes to shared memory. Such a store keeps its order with whatever else is done to the place, the
        asynchronous proxy included (PTX ISA 9.7.16.6.1): Triton lets a tensor copy overwrite it with no proxy fence."""
        machine = self.machine
        order = machine.order
        cta = request.cta
        group = Group(np.array([request.row]), None, 0, None)
        if request.place % 4 or request.place >> RANK_SHIFT != cta.rank:
            message = f"the address of the allocation goes to {request.place:#x}: a multiple of 4 in the CTA's window"
            machine.fail(group, request.site, "EMU_MISALIGNED", message, 0, 0)
        places = np.array([request.place & _LOCAL])
        offset = machine.engine.shared_offsets(group, 0, 0, request.site, cta.slot, places, 4)
        if machine.races:
            row = int(machine.order_row[request.row])
            channel = order.channel(cta.cluster, cta.rank, ("tcgen05.alloc", cta.rank), "tcgen05.alloc")
            store = order.issue(row, request.site, 0, channel)
            order.async_access(store, machine.shared_shadow, offset, 4, write=True, generic=True)
            cta.stores += 1
            order.land(store.records, cta.stores)
            order.learn([row], channel, cta.stores)
        machine.shared.bytes.view[4][offset // 4] = address
        machine.shared.bytes.written[int(offset[0]) : int(offset[0]) + 4] = 1

    def _give_back(self, request: _Request) -> None:
        cta = request.cta
        if request.operation == "relinquish_alloc_permit":
            cta.relinquished = True
            return
        self._check_held(request)  # another warp may have freed them since this one came
        first = column_of(request.place)
        del cta.allocations[first]
        self.memory.of(cta).owner[first : first + request.columns] = 0
