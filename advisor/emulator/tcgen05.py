"""The fifth-generation tensor core of every resident CTA: tcgen05 and its tensor memory. Imports its own room.

The machine's generated code comes here with groups of warps. mma, cp, shift and commit are issued by one thread and run
asynchronously: what they read and write is checked when they are issued, and done when the policy lets them land, in
the order of the pipe of their CTA or pair. ld and st act at once, and count as being in flight until their wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.clocks import SyncPoint
from advisor.emulator.mbarrier import BarrierUnit, By
from advisor.emulator.memory import RANK_SHIFT, SHARED_WINDOW
from advisor.emulator.policy import Pending
from advisor.emulator.ptx.graph import Block
from advisor.emulator.ptx.ir import Address, Instruction
from advisor.emulator.scheduler import Group, Parked
from advisor.emulator.shared_operand import CHUNK, Major
from advisor.emulator.tcgen05_descriptors import (
    InstructionDescriptor,
    SharedDescriptor,
    instruction_descriptor,
)
from advisor.emulator.tcgen05_layouts import (
    DataPath,
    Fragment,
    data_path,
    from_registers,
    to_registers,
)
from advisor.emulator.tcgen05_order import Operation, Pipe, Shadow, TmemOrder, What
from advisor.emulator.tcgen05_products import codes_from_shared, product
from advisor.emulator.tmem import Region, SmMemory, all_lanes, column_of, column_violation

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine
    from advisor.emulator.world import Cluster

Array = NDArray[Any]
_LOCAL = (1 << RANK_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class MultiplyForm:
    """One `tcgen05.mma`."""

    site: int
    kind: str
    cta_group: int
    ws: bool
    halvings: int = 0


@dataclass(frozen=True, slots=True)
class TransferForm:
    """One `tcgen05.ld` or `.st`. `split`: the distance of the second part of `16x32bx2`."""

    site: int
    fragment: Fragment
    split: int = 0


@dataclass(slots=True, eq=False)
class _Request:
    """An alloc, dealloc or relinquish_alloc_permit of one warp. `place`: the shared address, or the freed address."""

    operation: str
    row: int
    slot: int
    site: int
    pair: bool
    columns: int
    place: int
    done: bool = False


@dataclass(slots=True, eq=False)
class _Cta:
    """A resident CTA."""

    number: int
    slot: int
    rank: int
    cluster: int
    sm: int
    relinquished: bool = False
    stores: int = 0  # of addresses of allocations
    last_columns: int = 0  # of the latest allocation
    allocations: dict[int, int] = field(default_factory=dict)  # first column -> columns
    operands: dict[tuple[object, ...], Array] = field(default_factory=dict)  # places of chunks in shared memory
    commits: dict[Pipe, tuple[int, By]] = field(default_factory=dict)  # to its mbarriers: the last one of each pipe
    arrivals: list[Pending] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Thread:
    """The pipe of one thread, and the last of what it has issued."""

    pipe: Pipe
    last: Pending | None = None
    last_commit: Pending | None = None


@dataclass(slots=True, eq=False)
class _Issue:
    """An operation on its way from the generated code into its pipe."""

    g: Group
    index: int
    lane: int
    site: int
    ctas: list[_Cta]  # the CTA, or both of the pair, the even one first
    thread: _Thread
    operation: Operation
    reads: list[Array] = field(default_factory=list)  # chunks of shared memory


class Tcgen05:
    """Tensor memory and tensor cores of a machine whose kernel has tcgen05."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        fences = _one_group(machine)
        self.order = TmemOrder(machine.order, fences=fences)
        self.memory: dict[int, SmMemory] = {}  # by SM
        self.shadows: dict[int, Shadow] = {}
        self.ctas: dict[int, _Cta] = {}  # by slot
        self.threads: dict[tuple[int, int], _Thread] = {}  # by row and lane
        self.pipes: dict[int, Pending] = {}  # the last operation, by the first slot of a CTA or pair
        self.waiting: list[_Request] = []
        self.requests: dict[int, _Request] = {}  # by row
        self.begun = 0

    # --- CTAs ---------------------------------------------------------------------------------------------------

    def begin(self, slot: int, cluster: Cluster, rank: int, rows: Array) -> None:
        """A CTA starts in the slot; `rows` are its warps."""
        self.begun += 1
        self.ctas[slot] = _Cta(self.begun, slot, rank, cluster.serial, cluster.smids[rank])
        self.order.begin(self.machine.order_row[rows])
        for row in rows.tolist():
            for lane in range(32):
                self.threads.pop((row, lane), None)

    def end(self, slot: int, rows: Array) -> None:
        """The last warp of a CTA has exited. Raises EMU_TMEM_LEAK, EMU_TCGEN05_COMMIT and EMU_TMEM_PAIR."""
        machine = self.machine
        cta = self.ctas[slot]
        who, site = machine.who(int(rows[-1])), machine.exit_site
        if cta.allocations:
            held = ", ".join(f"{columns} from column {first}" for first, columns in cta.allocations.items())
            machine.reporter.fail(
                "EMU_TMEM_LEAK",
                f"the CTA exits and has not freed its tensor memory: {held}",
                who,
                site,
                numbers={"columns": sum(cta.allocations.values())},
                fix="tcgen05.dealloc on every path to the exit",
            )
        order_rows = machine.order_row[rows]
        for pipe, (number, by) in cta.commits.items():
            if machine.races and not self.order.knows(order_rows, pipe, number):
                issuer = machine.reporter.event("tcgen05.commit", machine.order.who(by.row), by.pc, by.lane)
                machine.reporter.fail(
                    "EMU_TCGEN05_COMMIT",
                    "the CTA exits while a tcgen05.commit may still be going to signal an mbarrier of it: nobody has "
                    "waited for it",
                    who,
                    site,
                    history=(issuer,),
                    fix="wait for its phase, or meet a warp that has done so, before the exit",
                )
        for each in cta.arrivals:
            machine.queue.land(each)
        for request in self.waiting:
            if request.pair and request.slot == self._peer(cta):
                self._fail_request(request, "EMU_TMEM_PAIR", "the peer CTA has exited without taking part")

    def _peer(self, cta: _Cta) -> int:
        return cta.slot - cta.rank + (cta.rank ^ 1)

    def _memory(self, cta: _Cta) -> SmMemory:
        found = self.memory.get(cta.sm)
        if found is None:
            found = self.memory[cta.sm] = SmMemory()
            self.shadows[cta.sm] = Shadow()
        return found

    # --- allocation ---------------------------------------------------------------------------------------------

    def wait(self, group: Group, block: Block, instruction: Instruction) -> bool:
        """`tcgen05.alloc`, `.dealloc` and `.relinquish_alloc_permit`. They stand until they are done: those of a pair
        until the peer's warp has come too."""
        machine = self.machine
        operation, site = instruction.qualifiers[0], block.end
        known = {operation, "cta_group::1", "cta_group::2", "sync", "aligned", "shared::cta", "b32"}
        for qualifier in instruction.qualifiers:
            if qualifier not in known:
                machine.refuse(instruction, f".{qualifier} is not known with tcgen05.{operation}")
        machine.whole_warps(group, site, group.mask)
        place, columns = self._allocation(group, instruction)
        for index, row in enumerate(group.rows.tolist()):
            request = _Request(
                operation,
                row,
                int(machine.slot_of[row]),
                site,
                instruction.has("cta_group::2"),
                int(columns[index, 0]),
                int(place[index, 0]),
            )
            self._check_request(request)
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

    def _allocation(self, group: Group, instruction: Instruction) -> tuple[Array, Array]:
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

    def _check_request(self, request: _Request) -> None:
        machine = self.machine
        cta = self.ctas[request.slot]
        if request.pair:
            self._check_peer(cta, request.row, request.site, None)
        if request.operation == "relinquish_alloc_permit":
            return
        wrong = column_violation(request.columns)
        if not wrong and request.operation == "alloc":
            if cta.relinquished:
                wrong = "an allocation after tcgen05.relinquish_alloc_permit"
            elif cta.last_columns and request.columns > cta.last_columns:
                wrong = f"an allocation of {request.columns} columns after one of {cta.last_columns}: they may not grow"
        elif not wrong and cta.allocations.get(column_of(request.place)) != request.columns:
            held = ", ".join(f"{columns} from column {first}" for first, columns in cta.allocations.items())
            wrong = f"{request.columns} columns from {request.place:#x} are freed, and the CTA has {held or 'none'}"
        if wrong:
            self._fail_request(request, "EMU_TMEM_ALLOC", wrong)
        if machine.races and request.operation == "dealloc":
            region = all_lanes(column_of(request.place), request.columns)
            self._memory(cta)
            row = int(machine.order_row[request.row])
            self.order.freed(self.shadows[cta.sm], region, row, request.site)

    def _check_peer(self, cta: _Cta, row: int, site: int, lane: int | None) -> None:
        """The other CTA of the pair runs, and that it has started is known."""
        machine = self.machine
        peer = cta.rank ^ 1
        started = peer < machine.ranks and machine.order.knows_started(int(machine.order_row[row]), peer)
        machine.world.check_peer(machine.who(row), peer, started, site, lane)

    def _fail_request(self, request: _Request, code: str, message: str) -> None:
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

    def _try(self, request: _Request) -> bool:
        together = [request]
        if request.pair:
            peer = self._peer(self.ctas[request.slot])
            partner = next(
                (each for each in self.waiting if each.slot == peer and each.operation == request.operation), None
            )
            if partner is None:
                return False
            if partner.columns != request.columns:
                message = f"{request.columns} columns, where the warp of the peer CTA has {partner.columns}"
                self._fail_request(request, "EMU_TMEM_PAIR", message)
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
        memories = [self._memory(self.ctas[each.slot]) for each in together]
        places = set.intersection(*(set(each.free_at(columns)) for each in memories))
        if not places:
            return False
        first = min(places)
        for request, memory in zip(together, memories, strict=True):
            cta = self.ctas[request.slot]
            memory.owner[first : first + columns] = cta.number
            cta.allocations[first] = columns
            cta.last_columns = columns
            self.order.clear(self.shadows[cta.sm], all_lanes(first, columns))
            self._tell(request, first)
        return True

    def _tell(self, request: _Request, address: int) -> None:
        """The address goes to shared memory. Such a store keeps its order with whatever else is done to the place, the
        asynchronous proxy included (PTX ISA 9.7.16.6.1): Triton lets a tensor copy overwrite it with no proxy fence."""
        machine = self.machine
        order = machine.order
        cta = self.ctas[request.slot]
        group = Group(np.array([request.row]), None, 0, None)
        if request.place % 4 or request.place >> RANK_SHIFT != cta.rank:
            message = (
                f"the address of the allocation goes to {request.place:#x}: a multiple of 4 in the CTA's own window"
            )
            machine.fail(group, request.site, "EMU_MISALIGNED", message, 0, 0)
        places = np.array([request.place & _LOCAL])
        offset = machine.engine.shared_offsets(group, 0, 0, request.site, request.slot, places, 4)
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
        cta = self.ctas[request.slot]
        if request.operation == "relinquish_alloc_permit":
            cta.relinquished = True
            return
        first = column_of(request.place)
        del cta.allocations[first]
        self._memory(cta).owner[first : first + request.columns] = 0

    def reason(self, parked: Parked) -> str:
        request = self.requests[int(parked.group.rows[0])]
        if request.pair and not any(each.slot == self._peer(self.ctas[request.slot]) for each in self.waiting):
            return f"at tcgen05.{request.operation} for a warp of the peer CTA"
        return f"at tcgen05.{request.operation} for {request.columns} columns of tensor memory"

    # --- loads and stores ---------------------------------------------------------------------------------------

    def load(self, g: Group, form: TransferForm, address: Array, lanes: Array | None) -> list[Array]:
        """`tcgen05.ld`: the registers, each [n, 32]."""
        fragment = form.fragment
        result = np.zeros((fragment.registers, g.n, 32), np.uint32)
        for index, cta, regions in self._warps(g, form, address, lanes):
            memory, shadow = self._memory(cta), self.shadows[cta.sm]
            if self.machine.races:
                operation = self._warp_operation("ld", g, index, form.site)
                for region in regions:
                    self.order.access(shadow, operation, region, write=False)
                    if self.order.uninitialised(shadow, region):
                        self._fail_uninitialised(g, index, None, form.site, region)
            words = [memory.data[each.index][0] for each in regions]
            result[:, index] = to_registers(fragment, words[0] if len(words) == 1 else np.concatenate(words, axis=1))
            self.machine.bytes_moved["tensor memory load"] += fragment.lanes * fragment.columns * len(regions) * 4
        return list(result)

    def store(self, g: Group, form: TransferForm, address: Array, registers: list[Array], lanes: Array | None) -> None:
        """`tcgen05.st`."""
        fragment = form.fragment
        stacked = np.stack([np.broadcast_to(each, (g.n, 32)) for each in registers])
        for index, cta, regions in self._warps(g, form, address, lanes):
            memory, shadow = self._memory(cta), self.shadows[cta.sm]
            if self.machine.races:
                operation = self._warp_operation("st", g, index, form.site)
                for region in regions:
                    self.order.access(shadow, operation, region, write=True)
            words = from_registers(fragment, stacked[:, index])
            for region, part in zip(regions, np.split(words, len(regions), axis=1), strict=True):
                memory.data[region.index] = part[None]
            self.machine.bytes_moved["tensor memory store"] += words.size * 4

    def wait_for(self, g: Group, site: int, what: Literal["ld", "st"], lanes: Array | None) -> None:
        """`tcgen05.wait::ld` and `::st`."""
        for index in self._whole(g, site, lanes):
            self.order.wait(int(self.machine.order_row[g.rows[index]]), what)

    def fence(self, g: Group, before: bool, lanes: Array | None) -> None:
        """`tcgen05.fence::before_thread_sync` and `::after_thread_sync`."""
        rows = g.rows if lanes is None else g.rows[lanes.any(axis=1)]
        for row in self.machine.order_row[rows].tolist():
            if before:
                self.order.before_thread_sync(row)
            else:
                self.order.after_thread_sync(row)

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
    ) -> list[tuple[int, _Cta, list[Region]]]:
        """Each warp of a load or store, its CTA, what it touches. Raises EMU_TMEM_LANES, EMU_TMEM_UNALLOCATED."""
        machine = self.machine
        found = []
        for index in self._whole(g, form.site, lanes):
            row = int(g.rows[index])
            first = int(address[index, 0])
            if (address[index] != first).any():
                lane = int((address[index] != first).argmax())
                machine.fail(g, form.site, "EMU_TMEM_LANES", "the lanes name different addresses", index, lane)
            regions = form.fragment.regions(first, form.split)
            warp = row % machine.warps % 4
            region = regions[0]
            if region.quarter != warp or region.lane_end > 32:
                end = region.quarter * 32 + region.lane_end
                message = (
                    f"lanes {region.quarter * 32 + region.lane} to {end - 1} of tensor memory, where warp "
                    f"{row % machine.warps} may touch lanes {warp * 32} to {warp * 32 + 31}"
                )
                machine.fail(g, form.site, "EMU_TMEM_LANES", message, index, 0)
            cta = self.ctas[int(machine.slot_of[row])]
            for each in regions:
                self._owned(g, index, None, form.site, cta, each)
            found.append((index, cta, regions))
        return found

    def _owned(self, g: Group, index: int, lane: int | None, site: int, cta: _Cta, region: Region) -> None:
        if not self._memory(cta).holds(cta.number, region):
            held = ", ".join(f"{columns} from {first}" for first, columns in cta.allocations.items())
            message = f"{region} of tensor memory, where CTA rank {cta.rank} has {held or 'none'} allocated"
            self.machine.fail(g, site, "EMU_TMEM_UNALLOCATED", message, index, lane or 0)

    def _fail_uninitialised(self, g: Group, index: int, lane: int | None, site: int, region: Region) -> None:
        message = f"reads {region} of tensor memory, of which some words were never written"
        self.machine.fail(g, site, "EMU_TMEM_UNINITIALISED", message, index, lane or 0)

    def _warp_operation(self, what: What, g: Group, index: int, site: int) -> Operation:
        return self.order.issue(what, int(self.machine.order_row[g.rows[index]]), None, site, None)

    # --- what one thread issues ---------------------------------------------------------------------------------

    def _issue(self, what: What, g: Group, index: int, lane: int, site: int, cta_group: int) -> _Issue:
        machine = self.machine
        row = int(g.rows[index])
        cta = self.ctas[int(machine.slot_of[row])]
        ctas = [cta]
        if cta_group == 2:
            self._check_peer(cta, row, site, lane)
            ctas = sorted((cta, self.ctas[self._peer(cta)]), key=lambda each: each.rank)
        thread = self._thread(row, lane)
        operation = self.order.issue(what, int(machine.order_row[row]), lane, site, thread.pipe)
        return _Issue(g, index, lane, site, ctas, thread, operation)

    def _thread(self, row: int, lane: int) -> _Thread:
        found = self.threads.get((row, lane))
        if found is None:
            who = self.machine.who(row)
            key = ("tcgen05", who.rank, who.warp, lane)
            name = f"tcgen05 of warp {who.warp} lane {lane}"
            found = self.threads[(row, lane)] = _Thread(
                Pipe(self.machine.order.channel(who.cluster, who.rank, key, name))
            )
        return found

    def _submit(self, issue: _Issue, run: Callable[[], None]) -> None:
        """Into the pipe of the CTA or pair: everything there runs in the order of issue."""
        machine = self.machine
        order = machine.order
        by = issue.operation
        shared = order.issue(by.row, by.pc, issue.lane, issue.thread.pipe.channel)
        self.order.track(by, shared)
        if issue.reads and machine.races:
            places = np.concatenate(issue.reads)
            order.async_access(shared, machine.shared_shadow, places, CHUNK, write=False)
        key = issue.ctas[0].slot
        before = self.pipes.get(key)
        label = f"tcgen05.{by.what} at line {machine.line(issue.site)}"
        made = machine.queue.submit([run], label, after=() if before is None else (before,))
        self.pipes[key] = issue.thread.last = made

    def _touch(self, issue: _Issue, cta: _Cta, regions: Sequence[Region], *, write: bool, initialised: bool) -> None:
        """The operation reads or writes tensor memory of a CTA. `initialised`: what is there goes into it."""
        for region in regions:
            self._owned(issue.g, issue.index, issue.lane, issue.site, cta, region)
            if not self.machine.races:
                continue
            shadow = self.shadows[cta.sm]
            if initialised and self.order.uninitialised(shadow, region):
                self._fail_uninitialised(issue.g, issue.index, issue.lane, issue.site, region)
            self.order.access(shadow, issue.operation, region, write=write)

    def _from_shared(
        self, issue: _Issue, cta: _Cta, value: int, extent: int, major: Major, form: InstructionDescriptor
    ) -> Array:
        """Where the chunks of an operand lie in shared memory, in units of a chunk, shaped as `Placement.chunks`."""
        placement = SharedDescriptor.decode(value)
        kind = form.container
        key = (placement, extent, major, kind)
        found = cta.operands.get(key)
        engine = self.machine.engine
        where = (issue.g, issue.index, issue.lane, issue.site)
        if found is None:
            wrong = placement.violations(form.kind, major)
            if wrong:
                self._fail(issue, "EMU_TCGEN05_DESCRIPTOR", "the shared memory descriptor: " + "; ".join(wrong))
            places = placement.chunks(extent, major, kind)
            offsets = engine.shared_offsets(*where, cta.slot, places.ravel(), CHUNK)
            found = cta.operands[key] = offsets.reshape(places.shape) // CHUNK
        engine.judge(issue.g, issue.index, issue.site, cta.slot, placement, extent, major, kind)
        flat = found.ravel() * CHUNK
        engine.must_be_written(*where, flat, CHUNK)
        issue.reads.append(flat)
        return found

    def _fail(self, issue: _Issue, code: str, message: str) -> None:
        self.machine.fail(issue.g, issue.site, code, message, issue.index, issue.lane)

    def multiply(
        self,
        g: Group,
        form: MultiplyForm,
        d: Array,
        a: Array,
        b: Array,
        descriptor: Array,
        use_d: Array,
        lanes: Array | None,
    ) -> None:
        """`tcgen05.mma` with both operands in shared memory."""
        for index, lane in self.machine.engine.each_lane(g, lanes):
            issue = self._issue("mma", g, index, lane, form.site, form.cta_group)
            what = self._described(issue, form, int(descriptor[index, lane]))
            path = self._path(issue, form, what, int(d[index, lane]))
            column = column_of(int(d[index, lane]))
            accumulate = bool(use_d[index, lane])
            share = what.n // form.cta_group
            left = [
                self._from_shared(issue, cta, int(a[index, lane]), path.rows, what.major_a, what) for cta in issue.ctas
            ]
            right = [
                self._from_shared(issue, cta, int(b[index, lane]), share, what.major_b, what) for cta in issue.ctas
            ]
            region = path.region(column, what.n)
            for cta in issue.ctas:
                self._touch(issue, cta, [region], write=True, initialised=accumulate)
            self._submit(issue, self._product(issue, form, what, path, region, left, right, accumulate))

    def _described(self, issue: _Issue, form: MultiplyForm, value: int) -> InstructionDescriptor:
        what = instruction_descriptor(form.kind, value)
        if isinstance(what, str):
            self._fail(issue, "EMU_TCGEN05_DESCRIPTOR", f"the instruction descriptor {value:#010x}: {what}")
        assert isinstance(what, InstructionDescriptor)
        wrong = what.violations(form.cta_group, ws=form.ws)
        if wrong:
            message = f"the instruction descriptor {value:#010x}: {'; '.join(wrong)}"
            self._fail(issue, "EMU_TCGEN05_DESCRIPTOR", message)
        return what

    def _path(self, issue: _Issue, form: MultiplyForm, what: InstructionDescriptor, address: int) -> DataPath:
        path = data_path(what.m, form.cta_group, form.ws, address)
        if isinstance(path, str):
            self._fail(issue, "EMU_TMEM_LANES", f"D begins at {path}")
        assert isinstance(path, DataPath)
        return path

    def _product(
        self,
        issue: _Issue,
        form: MultiplyForm,
        what: InstructionDescriptor,
        path: DataPath,
        region: Region,
        left: list[Array],
        right: list[Array],
        accumulate: bool,
    ) -> Callable[[], None]:
        chunks = self.machine.shared.bytes.data.reshape(-1, CHUNK)
        memories = [self._memory(each).data[region.index] for each in issue.ctas]

        def run() -> None:
            b = np.concatenate([codes_from_shared(chunks[each], what, what.b, what.major_b) for each in right])
            for places, words in zip(left, memories, strict=True):
                a = codes_from_shared(chunks[places], what, what.a, what.major_a)
                start = path.gather(words) if accumulate else None
                words[...] = path.scatter(product(what, a, b, start, halvings=form.halvings))

        return run

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(
        self, g: Group, site: int, cta_group: int, place: Array, mask: Array | None, lanes: Array | None
    ) -> None:
        """`tcgen05.commit`: an arrival at an mbarrier, or at the same place in several CTAs, when everything that the
        thread has issued so far is complete."""
        machine = self.machine
        for index, lane in machine.engine.each_lane(g, lanes):
            row = int(g.rows[index])
            if cta_group == 2:
                self._check_peer(self.ctas[int(machine.slot_of[row])], row, site, lane)
            thread = self._thread(row, lane)
            number = self.order.commit(thread.pipe)
            address = int(place[index, lane])
            targets = [address]
            if mask is not None:
                bits = int(mask[index, lane])
                targets = [address & _LOCAL | rank << RANK_SHIFT for rank in range(16) if bits >> rank & 1]
            point = SyncPoint()
            if number:
                machine.order.complete(point, thread.pipe.channel, number)
            machine.order.complete_after(point, int(machine.order_row[row]))
            before = tuple(each for each in (thread.last, thread.last_commit) if each is not None)
            by = machine.engine.by(g, index, site, lane)
            for target in targets:
                unit, local = machine.engine.unit(g, index, target, site, lane)
                unit.use(local, by, "tcgen05.commit")
                label = f"tcgen05.commit at line {machine.line(site)}"
                made = machine.queue.submit([self._arrival(unit, local, by, point)], label, after=before)
                cta = self.ctas[machine.engine.slot_of(g, index, target, site, lane)]
                if number:
                    cta.commits[thread.pipe] = (number, by)
                cta.arrivals = [*(each for each in cta.arrivals if not each.finished), made]
                thread.last_commit = made

    def _arrival(self, unit: BarrierUnit, address: int, by: By, point: SyncPoint) -> Callable[[], None]:
        engine = self.machine.engine

        def arrive() -> None:
            unit.async_arrive(address, by, point)
            engine.wake()

        return arrive


def _one_group(machine: Machine) -> bool:
    """All tcgen05 instructions of a kernel name one cta_group. Gives whether the kernel has tcgen05 fences."""
    seen: dict[str, int] = {}
    fences = False
    for index, instruction in enumerate(machine.program.instructions):
        if instruction.opcode != "tcgen05":
            continue
        for qualifier in instruction.qualifiers:
            if qualifier.startswith("cta_group::"):
                seen.setdefault(qualifier, index)
            fences = fences or qualifier.startswith("fence::")
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
    return fences
