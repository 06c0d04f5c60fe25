"""What works beside the warps: mbarriers, tensor and bulk copies, wgmma. Imports its own room.

The machine's generated code comes here with groups of warps; what one thread starts (an elected lane, as a rule) is
done lane by lane. When an operation lands is the policy's choice (`policy.AsyncQueue`); who may see what it did is the
business of `happens_before`. A wait for a thread's own work lands it on the spot: later is not allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import fragments
from advisor.emulator.async_groups import AsyncGroups, Member
from advisor.emulator.happens_before import AsyncOperation, Scope, Sem, Shadow
from advisor.emulator.mbarrier import BarrierUnit, By, Mbarrier
from advisor.emulator.memory import (
    GLOBAL_BASE,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_START,
    SHIFT,
    UNSIGNED,
    AccessFault,
    Bytes,
    Update,
)
from advisor.emulator.policy import Pending
from advisor.emulator.ptx.graph import Block
from advisor.emulator.ptx.ir import Address, Instruction, Register, Sink
from advisor.emulator.shared_operand import (
    CHUNK,
    Major,
    Placement,
    TileBox,
    mismatch,
    operand_from_chunks,
    other_element,
)
from advisor.emulator.targets import load_violations
from advisor.emulator.tensor_map import IMAGE_BYTES, DataType, Swizzle, TensorMap
from advisor.emulator.updates import update
from advisor.emulator.wgmma import Descriptor, WarpgroupMma
from advisor.emulator.wgmma_registers import WgmmaRegisters
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.emulator.lowering_memory import Access
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group, Parked

Array = NDArray[Any]
_LOCAL = (1 << RANK_SHIFT) - 1
_BLANK = TensorMap(DataType.UINT8, 0, (1,), (), (1,), (1,))
_REDUCED = {
    DataType.UINT32: "u32",
    DataType.INT32: "s32",
    DataType.UINT64: "u64",
    DataType.INT64: "s64",
    DataType.FLOAT16: "f16",
    DataType.BFLOAT16: "bf16",
    DataType.FLOAT32: "f32",
    DataType.FLOAT32_FTZ: "f32",
    DataType.TFLOAT32: "f32",
    DataType.TFLOAT32_FTZ: "f32",
    DataType.FLOAT64: "f64",
}
_SWIZZLE_NAMES = {Swizzle.NONE: "none", Swizzle.B32: "32B", Swizzle.B64: "64B", Swizzle.B128: "128B"}
_ELEMENTS = {
    DataType.FLOAT16: "f16",
    DataType.BFLOAT16: "bf16",
    **dict.fromkeys((DataType.FLOAT32, DataType.FLOAT32_FTZ, DataType.TFLOAT32, DataType.TFLOAT32_FTZ), "tf32"),
}


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """One `cp{.reduce}.async.bulk.tensor`."""

    site: int
    rank: int
    store: bool
    reduction: str
    four_rows: bool
    everywhere: bool
    pair: bool = False  # .cta_group::2: the mbarrier may be of the other CTA of the pair


@dataclass(frozen=True, slots=True)
class Bulk:
    """One `cp.async.bulk` between `source` and `to`, each "global" or "shared"."""

    site: int
    to: str
    source: str
    everywhere: bool
    change: tuple[int, Update] | None = None  # of `cp.reduce.async.bulk`: bytes of an element, and what becomes of it


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


@dataclass(slots=True)
class _Flight:
    """Pending operations of the members of bulk groups: what a wait has to land."""

    read: Pending
    write: Pending


@dataclass(slots=True)
class _Moved:
    """Bytes that a copy carries from its read to its write."""

    values: Array | None = None


@dataclass(slots=True)
class _Cta:
    """The asynchronous side of a resident CTA."""

    barriers: BarrierUnit
    boxes: dict[int, TileBox] = field(default_factory=dict)
    judged: dict[tuple[object, ...], bool] = field(default_factory=dict)


class Engine:
    """All asynchronous work of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ctas: dict[int, _Cta] = {}  # by slot
        self.groups: dict[tuple[int, int], AsyncGroups] = {}  # by row and lane
        self.flights: dict[int, _Flight] = {}  # by id of a member
        self.warpgroups: dict[int, tuple[AsyncGroups, WgmmaRegisters]] = {}  # by first row
        self.maps: dict[bytes, TensorMap | None] = {}

    # --- CTAs ---------------------------------------------------------------------------------------------------

    def begin(self, slot: int, cluster: int, rank: int) -> None:
        machine = self.machine
        unit = BarrierUnit(
            machine.order,
            machine.shared_shadow,
            cluster,
            rank,
            base=slot * machine.shared.stride - SHARED_START,
            on_phase=lambda barrier: self._phase_over(barrier, cluster, rank),
        )
        self.ctas[slot] = _Cta(unit)

    def _phase_over(self, barrier: Mbarrier, cluster: int, rank: int) -> None:
        machine = self.machine
        machine.phases["mbarrier"] += 1
        offset = barrier.address - SHARED_START
        machine.counts.phase(offset, (cluster, rank), barrier.arrived, barrier.announced)
        self.wake()

    def end(self, slot: int, rows: Array) -> None:
        """The last warp of a CTA has exited: nothing may be on its way to it any more."""
        machine = self.machine
        order_rows = machine.order_row[rows]
        last = By(int(order_rows[-1]), machine.exit_site)
        self.ctas[slot].barriers.at_exit(order_rows.tolist(), last)
        if machine.races:
            start = slot * machine.shared.stride
            machine.order.at_exit(machine.shared_shadow, start, machine.shared.stride, order_rows, machine.exit_site)
        for row in rows.tolist():
            for lane in range(32):
                self.groups.pop((row, lane), None)
            self.warpgroups.pop(row, None)

    def _submit(
        self, row: int, stages: list[Callable[[], None]], label: str, after: tuple[Pending, ...] = ()
    ) -> Pending:
        """An operation that a warp (a row of `order`) has issued."""
        owner = int(self.machine.order.cluster_of[row])
        return self.machine.queue.submit(stages, label, after, owner)

    def wake(self) -> None:
        self.machine.scheduler.woken = True

    # --- lanes --------------------------------------------------------------------------------------------------

    def each_lane(self, g: Group, lanes: Array | None) -> Iterator[tuple[int, int]]:
        on = g.lanes() if lanes is None else lanes
        rows, lanes_on = np.nonzero(on)
        yield from zip(rows.tolist(), lanes_on.tolist(), strict=True)

    def by(self, g: Group, index: int, site: int, lane: int | None) -> By:
        return By(int(self.machine.order_row[g.rows[index]]), site, lane)

    def unit(self, g: Group, index: int, address: int, site: int, lane: int) -> tuple[BarrierUnit, int]:
        """The barriers of the CTA that a shared address names, and the address in its window."""
        slot = self.slot_of(g, index, address, site, lane)
        return self.ctas[slot].barriers, address & _LOCAL

    def slot_of(self, g: Group, index: int, address: int, site: int, lane: int) -> int:
        machine = self.machine
        row = int(g.rows[index])
        rank = address >> RANK_SHIFT
        if rank != int(machine.rank[row, 0]):
            started = machine.order.knows_started(int(machine.order_row[row]), rank) if rank < machine.ranks else False
            machine.world.check_peer(machine.who(row), rank, started, site, lane)
        return int(machine.first_slot[row, 0]) + rank

    # --- mbarrier -----------------------------------------------------------------------------------------------

    def barrier(
        self, operation: str, g: Group, site: int, place: Array, count: Array | None, lanes: Array | None
    ) -> None:
        for index, lane in self.each_lane(g, lanes):
            by = self.by(g, index, site, lane)
            unit, address = self.unit(g, index, int(place[index, lane]), site, lane)
            number = 0 if count is None else int(count[index, lane])
            if operation == "init":
                self._inside(g, index, address, site, lane)
                unit.init(address, number, by)
                self.machine.counts.initialised(address - SHARED_START, number)
                self._mark(unit, address)
            elif operation == "inval":
                unit.inval(address, by)
            elif operation == "expect_tx":
                unit.expect_tx(address, number, by)
            else:
                unit.complete_tx(address, number, by)

    def _inside(self, g: Group, index: int, address: int, site: int, lane: int) -> None:
        offset = address - SHARED_START
        if not 0 <= offset <= self.machine.shared.size - 8:
            message = f"an mbarrier at offset {offset} of a shared window that has {self.machine.shared.size}"
            self.machine.fail(g, site, "EMU_OUT_OF_BOUNDS", message, index, lane)

    def _mark(self, unit: BarrierUnit, address: int) -> None:
        start = unit.base + address
        self.machine.shared.bytes.written[start : start + 8] = 1

    def arrive(
        self,
        g: Group,
        site: int,
        place: Array,
        count: Array | None,
        bytes_: Array | None,
        lanes: Array | None,
        *,
        drop: bool,
        no_complete: bool,
        relaxed: bool,
        cluster: bool,
    ) -> Array:
        states = np.zeros((g.n, 32), np.uint64)
        for index, lane in self.each_lane(g, lanes):
            unit, address = self.unit(g, index, int(place[index, lane]), site, lane)
            states[index, lane] = unit.arrive(
                address,
                self.by(g, index, site, lane),
                1 if count is None else int(count[index, lane]),
                expect_tx=0 if bytes_ is None else int(bytes_[index, lane]),
                drop=drop,
                no_complete=no_complete,
                sem=Sem.RELAXED if relaxed else Sem.RELEASE,
                scope=Scope.CLUSTER if cluster else Scope.CTA,
            )
        return states

    def arrive_after_copies(self, g: Group, site: int, place: Array, no_increment: bool, lanes: Array | None) -> None:
        """`cp.async.mbarrier.arrive`: here the thread's copies land first."""
        self.machine.land_copies(g, lanes)
        for index, lane in self.each_lane(g, lanes):
            unit, address = self.unit(g, index, int(place[index, lane]), site, lane)
            by = self.by(g, index, site, lane)
            if not no_increment:
                unit.count_in(address, by)
            unit.arrive(address, by)

    def wait(self, group: Group, block: Block, instruction: Instruction) -> bool:
        """`mbarrier.try_wait` and `.test_wait`. A try_wait stands until its phase is complete."""
        machine = self.machine
        known = {"try_wait", "test_wait", "parity", "acquire", "relaxed", "cta", "cluster", "b64"}
        for qualifier in instruction.qualifiers:
            if qualifier not in known and qualifier not in ("shared", "shared::cta"):
                machine.refuse(instruction, f".{qualifier} is not known with {instruction.opcode}")
        done = self._test(group, block, instruction, np.ones(group.n, bool))
        if instruction.has("test_wait"):
            if done.all():
                return True
            group.block = block.successors[0]
            machine.scheduler.resting.append(group)
            return False
        if done.all():
            return True
        if done.any():
            machine.scheduler.enter(group.part(done), block.successors[0])
            group = group.part(~done)

        watched = self._watched(group, instruction)

        def retry(waiting: Group) -> Array:
            if all(barrier.phase == phase for barrier, phase in watched.items()):
                return np.zeros(waiting.n, bool)
            watched.update({barrier: barrier.phase for barrier in watched})
            return self._test(waiting, block, instruction, self._complete(waiting, instruction))

        machine.scheduler.park(group, "mbarrier", group.rows, retry)
        return False

    def _watched(self, group: Group, instruction: Instruction) -> dict[Mbarrier, int]:
        """The barriers that these warps wait at, with their phases: until one changes there is nothing to ask."""
        place, _ = self._places(group, instruction)
        on = group.lanes()
        found = {}
        for index, row in enumerate(group.rows.tolist()):
            unit = self.ctas[int(self.machine.slot_of[row])].barriers
            for address in set(place[index][on[index]].tolist()):
                barrier = unit.barriers[address & _LOCAL]
                found[barrier] = barrier.phase
        return found

    def _places(self, group: Group, instruction: Instruction) -> tuple[Array, Array]:
        """Shared addresses and the parity or state of each lane."""
        machine = self.machine
        operand = instruction.operands[1]
        assert isinstance(operand, Address)
        is_shared = instruction.has("shared") or instruction.has("shared::cta")
        wide = machine.operand(group, operand.base, "u32" if is_shared else "u64")
        place = (wide.astype(np.uint64) + np.uint64(operand.offset & 0xFFFFFFFF)).astype(np.uint32)
        return place, machine.operand(group, instruction.operands[2], "u32" if instruction.has("parity") else "u64")

    def _complete(self, group: Group, instruction: Instruction) -> Array:
        """Rows of which some lane's phase is complete, without any effect."""
        place, phase = self._places(group, instruction)
        found = np.zeros(group.n, bool)
        parity = instruction.has("parity")
        lanes = group.lanes().argmax(axis=1)
        for index, lane in enumerate(lanes.tolist()):
            slot = int(self.machine.slot_of[group.rows[index]])
            unit, address = self.ctas[slot].barriers, int(place[index, lane]) & _LOCAL
            found[index] = not parity or unit.complete(address, int(phase[index, lane]))
        return found

    def _test(self, group: Group, block: Block, instruction: Instruction, which: Array) -> Array:
        """Tests the rows that `which` names and writes the predicate of those where a lane's phase is complete."""
        place, phase = self._places(group, instruction)
        parity = instruction.has("parity")
        sem = Sem.RELAXED if instruction.has("relaxed") else Sem.ACQUIRE
        scope = Scope.CLUSTER if instruction.has("cluster") else Scope.CTA
        result = np.zeros((group.n, 32), bool)
        on = group.lanes()
        remote = on & ((place >> np.uint32(RANK_SHIFT)) != self.machine.rank[group.sel])
        if remote.any():
            row, first = (int(each) for each in np.argwhere(remote)[0])
            message = f"a wait on the mbarrier at {int(place[row, first]):#x} of another CTA: only its own CTA can"
            self.machine.fail(group, block.end, "EMU_BARRIER_OTHER_CTA", message, row, first)
        for index in np.flatnonzero(which).tolist():
            answers: dict[tuple[int, int], bool] = {}
            for lane in np.flatnonzero(on[index]).tolist():
                key = (int(place[index, lane]), int(phase[index, lane]))
                if key not in answers:
                    by = self.by(group, index, block.end, lane)
                    unit, address = self.unit(group, index, key[0], block.end, lane)
                    test = unit.test_parity if parity else unit.test_state
                    answers[key] = test(address, key[1], by, sem=sem, scope=scope)
                result[index, lane] = answers[key]
        done: Array = np.asarray(result.any(axis=1))
        poll = instruction.has("test_wait")
        to = instruction.operands[0]
        if (done.any() or poll) and isinstance(to, Register | Sink):
            part = group if done.all() or poll else group.part(done)
            self.machine.set(part, to, result if done.all() or poll else result[done])
        return done

    def reason(self, parked: Parked) -> str:
        group = parked.group
        instruction = self.machine.scheduler.blocks[group.block].terminator
        assert instruction is not None
        place, phase = self._places(group, instruction)
        lane = int(group.lanes()[0].argmax())
        unit = self.ctas[int(self.machine.slot_of[group.rows[0]])].barriers
        barrier = unit.barriers.get(int(place[0, lane]) & _LOCAL)
        state = unit.describe(barrier) if barrier is not None else "an mbarrier that is not there"
        return f"for parity {int(phase[0, lane])} of {state}"

    # --- tensor copies ------------------------------------------------------------------------------------------

    def tensor_copy(
        self,
        g: Group,
        form: TensorCopy,
        descriptor: Array,
        coordinates: list[Array],
        place: Array,
        barrier: Array | None,
        mask: Array | None,
        lanes: Array | None,
    ) -> None:
        for index, lane in self.each_lane(g, lanes):
            where = [int(each[index, lane].view(np.int32)) for each in coordinates]
            tensor = self._tensor_map(g, index, lane, form, int(descriptor[index, lane]))
            address = int(place[index, lane])
            tiled_store = form.store and not form.four_rows
            broken = tensor.copy_violations(where, address & _LOCAL, store=tiled_store)
            if not form.store:
                broken += load_violations(self.machine.program.module.target, tensor)
            if broken:
                self.machine.fail(g, form.site, "EMU_TENSOR_COPY", "; ".join(broken), index, lane)
            if barrier is None:
                self._tensor_store(g, index, lane, form, tensor, where, address)
                continue
            at = int(barrier[index, lane])
            if mask is None:
                self._signals(g, index, lane, form.site, address, at, form.pair)
                moved = self._tensor_load(g, index, lane, form, tensor, where, address, at)
                self._count_load(g, index, int(descriptor[index, lane]), moved, 0)
                continue
            moved = 0
            for rank in range(16):
                if int(mask[index, lane]) >> rank & 1:
                    # In pairs every destination signals the CTA of its pair that has the parity of the barrier's.
                    told = rank & ~1 | at >> RANK_SHIFT & 1 if form.pair else rank
                    there = at & _LOCAL | told << RANK_SHIFT
                    to = address & _LOCAL | rank << RANK_SHIFT
                    moved = self._tensor_load(g, index, lane, form, tensor, where, to, there)
            self._count_load(g, index, int(descriptor[index, lane]), moved, int(mask[index, lane]))

    def _count_load(self, g: Group, index: int, descriptor: int, moved: int, mask: int) -> None:
        machine = self.machine
        who = machine.who(int(g.rows[index]))
        param = "" if descriptor >= GLOBAL_BASE else machine.program.parameter_at(descriptor % PARAM_WINDOW)
        machine.counts.load(param, (who.cluster, who.rank), moved, mask)

    def _signals(self, g: Group, index: int, lane: int, site: int, to: int, barrier: int, pair: bool = False) -> None:
        """The mbarrier of a copy is in the CTA that gets the bytes; with .cta_group::2 in that CTA or its peer."""
        given, told = to >> RANK_SHIFT, barrier >> RANK_SHIFT
        if given == told or (pair and given ^ 1 == told):
            return
        where = "that CTA or the other of its pair" if pair else "that CTA"
        message = f"bytes for CTA rank {given} and an mbarrier of rank {told}: it must be in {where}"
        self.machine.fail(g, site, "EMU_BARRIER_OTHER_CTA", message, index, lane)

    def _tensor_map(self, g: Group, index: int, lane: int, form: TensorCopy, address: int) -> TensorMap:
        machine = self.machine
        if address >= GLOBAL_BASE:
            source, start = machine.globals.bytes.data, address - GLOBAL_BASE
            if machine.races:
                row = int(machine.order_row[g.rows[index]])
                machine.order.sees_tensor_map(machine.global_shadow, row, start, form.site, lane)
        else:
            source, start = machine.parameters.data, address - PARAM_WINDOW if address >= PARAM_WINDOW else address
        image = source[start : start + IMAGE_BYTES].tobytes() if start >= 0 else b""
        if image not in self.maps:
            self.maps[image] = TensorMap.from_image(image) if len(image) == IMAGE_BYTES else None
        found = self.maps[image]
        if found is None or found.rank != form.rank or found.violations():
            what = (
                "no tensor map is at this address"
                if found is None
                else f"a tensor map of rank {found.rank} in an instruction for rank {form.rank}"
                if found.rank != form.rank
                else "the tensor map breaks the encoder's rules: " + "; ".join(found.violations())
            )
            machine.fail(g, form.site, "EMU_TENSOR_COPY", what, index, lane)
        return found

    def replace_field(
        self,
        g: Group,
        site: int,
        space: str,
        place: Array,
        field: str,
        ordinal: int,
        value: Array,
        lanes: Array | None,
    ) -> None:
        """`tensormap.replace`. A map starts as 128 zero bytes, or as a copy of another one."""
        machine = self.machine
        for index, lane in self.each_lane(g, lanes):
            memory, shadow, start = self._image_place(g, index, lane, site, space, int(place[index, lane]))
            image = memory.data[start : start + IMAGE_BYTES]
            held = TensorMap.from_image(image.tobytes()) if image.any() else _BLANK
            if held is None:
                machine.fail(g, site, "EMU_TENSOR_COPY", "no tensor map is at this address", index, lane)
            self._one_access(g, index, site, shadow, start, write=True)
            try:
                made = held.replaced(field, int(value[index, lane]), ordinal)
            except InputError as error:
                machine.fail(g, site, error.code, error.message, index, lane)
            image[:] = np.frombuffer(made.image(), np.uint8)
            memory.written[start : start + IMAGE_BYTES] = 1

    def publish_map(self, g: Group, site: int, to: Array, source: Array, scope: str, lanes: Array | None) -> None:
        """`tensormap.cp_fenceproxy`: one copy of 128 bytes for the warp, and the release of the tensormap proxy."""
        machine = self.machine
        on = g.lanes() if lanes is None else lanes
        for index in np.flatnonzero(on.any(axis=1)).tolist():
            lane = int(on[index].argmax())
            taken, read, start = self._image_place(g, index, lane, site, "shared", int(source[index, lane]))
            given, written, end = self._image_place(g, index, lane, site, "global", int(to[index, lane]))
            self._one_access(g, index, site, read, start, write=False)
            self._one_access(g, index, site, written, end, write=True)
            given.data[end : end + IMAGE_BYTES] = taken.data[start : start + IMAGE_BYTES]
            given.written[end : end + IMAGE_BYTES] = 1
            row = machine.order_row[g.rows[index : index + 1]]
            machine.order.fence_proxy_tensormap(row, Sem.RELEASE, Scope[scope.upper()])

    def _image_place(
        self, g: Group, index: int, lane: int, site: int, space: str, address: int
    ) -> tuple[Bytes, Shadow, int]:
        """The memory that holds a tensor map, its shadow, and where the map is: at a multiple of 64 bytes."""
        machine = self.machine
        if address % 64:
            message = f"a tensor map at {address:#x}, which is no multiple of 64"
            machine.fail(g, site, "EMU_MISALIGNED", message, index, lane)
        places = np.arange(address, address + IMAGE_BYTES, 16)
        if space == "shared":
            slot = self.slot_of(g, index, address, site, lane)
            offsets = self.shared_offsets(g, index, lane, site, slot, places & _LOCAL, 16)
            return machine.shared.bytes, machine.shared_shadow, int(offsets[0])
        offsets = self._global_offsets(g, index, lane, site, places, 16)
        return machine.globals.bytes, machine.global_shadow, int(offsets[0])

    def _one_access(self, g: Group, index: int, site: int, shadow: Shadow, start: int, *, write: bool) -> None:
        if self.machine.races:
            row = self.machine.order_row[g.rows[index : index + 1]]
            self.machine.order.access(shadow, row, np.array([[start]]), IMAGE_BYTES, site, write=write)

    def _transfer(self, form: TensorCopy, tensor: TensorMap, where: list[int], address: int) -> Any:
        if form.four_rows:
            return tensor.gather4(where[0], where[1:], address)
        return tensor.transfer(where, address)

    def _tensor_load(
        self,
        g: Group,
        index: int,
        lane: int,
        form: TensorCopy,
        tensor: TensorMap,
        where: list[int],
        address: int,
        barrier: int,
    ) -> int:
        """Into one CTA. Returns the bytes that its mbarrier will count."""
        machine = self.machine
        slot = self.slot_of(g, index, address, form.site, lane)
        transfer = self._transfer(form, tensor, where, address & _LOCAL)
        target = self.shared_offsets(g, index, lane, form.site, slot, transfer.shared, transfer.chunk)
        source = self._global_offsets(g, index, lane, form.site, transfer.globals_[transfer.inside], transfer.chunk)
        unit, at = self.unit(g, index, barrier, form.site, lane)
        by = self.by(g, index, form.site, lane)
        operation = machine.order.issue(by.row, by.pc, lane, unit.use(at, by, "a tensor copy").channel)
        self._read_and_write(operation, machine.global_shadow, source, machine.shared_shadow, target, transfer.chunk)
        moved = _Moved()
        fill = tensor.fill_bytes(transfer.chunk)

        def read() -> None:
            values = np.broadcast_to(fill, (len(target), transfer.chunk)).copy()
            values[transfer.inside] = tensor.loaded(_pieces(machine.globals.bytes, source, transfer.chunk))
            moved.values = values

        def write() -> None:
            assert moved.values is not None
            _put(machine.shared.bytes, target, moved.values)
            unit.complete_tx(at, transfer.tx_bytes, by, operation)
            self.wake()

        rows = 4 if form.four_rows else math.prod(tensor.box_counts[1:])
        swizzle, element = _SWIZZLE_NAMES.get(tensor.swizzle, ""), _ELEMENTS.get(tensor.dtype, "")
        self._box(slot, TileBox(address & _LOCAL, rows, tensor.row_bytes, swizzle, element))
        machine.bytes_moved["tensor load"] += transfer.tx_bytes
        self._submit(by.row, [read, write], f"tensor load at line {machine.line(form.site)}")
        return int(transfer.tx_bytes)

    def _box(self, slot: int, box: TileBox) -> None:
        cta = self.ctas[slot]
        if box.swizzle and cta.boxes.get(box.start) != box:
            for start in [each.start for each in cta.boxes.values() if each.start < box.end and box.start < each.end]:
                del cta.boxes[start]
            cta.boxes[box.start] = box
            cta.judged.clear()

    def _tensor_store(
        self, g: Group, index: int, lane: int, form: TensorCopy, tensor: TensorMap, where: list[int], address: int
    ) -> None:
        machine = self.machine
        slot = self.slot_of(g, index, address, form.site, lane)
        transfer = self._transfer(form, tensor, where, address & _LOCAL)
        inside = transfer.inside
        source = self.shared_offsets(g, index, lane, form.site, slot, transfer.shared[inside], transfer.chunk)
        target = self._global_offsets(g, index, lane, form.site, transfer.globals_[inside], transfer.chunk)
        machine.bytes_moved["tensor store"] += int(inside.sum()) * transfer.chunk
        change = self._update(g, index, lane, form, tensor) if form.reduction else None
        self._store(g, index, lane, form.site, source, target, transfer.chunk, change)

    def _update(self, g: Group, index: int, lane: int, form: TensorCopy, tensor: TensorMap) -> tuple[int, Update]:
        """Element bytes and the function of `cp.reduce.async.bulk.tensor`."""
        kind = _REDUCED.get(tensor.dtype, "")
        flushed = tensor.dtype in (DataType.FLOAT32_FTZ, DataType.TFLOAT32_FTZ)
        function = update(form.reduction, kind, flushed=flushed) if kind else None
        if kind in ("f32", "f64") and form.reduction != "add":  # an illegal instruction on a chip
            function = None
        if function is None:
            message = f"a reduction {form.reduction} over elements of {tensor.dtype.name}"
            self.machine.fail(g, form.site, "EMU_TENSOR_COPY", message, index, lane)
        return tensor.dtype.bits // 8, function

    # --- groups of bulk copies ----------------------------------------------------------------------------------

    def _store(
        self,
        g: Group,
        index: int,
        lane: int,
        site: int,
        source: Array,
        target: Array,
        chunk: int,
        change: tuple[int, Update] | None,
    ) -> None:
        """Shared to global, in the bulk group of the thread."""
        machine = self.machine
        self.must_be_written(g, index, lane, site, source, chunk)
        groups = self._groups(g, index, lane)
        row = int(machine.order_row[g.rows[index]])
        member = groups.add(row, site, lane)
        if machine.races:
            order = machine.order
            order.async_access(
                member.operation, machine.shared_shadow, source, chunk, write=False, channel=groups.reads
            )
            scope = None if update is None else Scope.GPU
            order.async_access(member.operation, machine.global_shadow, target, chunk, write=True, atomic=scope)
        machine.stored[machine.cluster_slot_of[g.rows[index]]] += target.size * chunk
        moved = _Moved()

        def read() -> None:
            moved.values = _pieces(machine.shared.bytes, source, chunk)
            member.read = True

        def write() -> None:
            assert moved.values is not None
            values = moved.values
            if change is not None:
                values = _changed(change, _pieces(machine.globals.bytes, target, chunk), values)
            _put(machine.globals.bytes, target, values)
            member.written = True

        label = f"bulk store at line {machine.line(site)}"
        first = self._submit(row, [read], f"{label}, its read")
        second = self._submit(row, [write], label, after=(first,))
        self.flights[id(member)] = _Flight(first, second)

    def _groups(self, g: Group, index: int, lane: int) -> AsyncGroups:
        machine = self.machine
        row = int(g.rows[index])
        found = self.groups.get((row, lane))
        if found is None:
            who = machine.who(row)
            key = ("bulk", who.rank, who.warp, lane)
            name = f"bulk groups of warp {who.warp} lane {lane}"
            found = self.groups[(row, lane)] = AsyncGroups(machine.order, who.cluster, who.rank, key, name)
        return found

    def bulk_commit(self, g: Group, site: int, lanes: Array | None) -> None:
        for index, lane in self.each_lane(g, lanes):
            if (int(g.rows[index]), lane) in self.groups:
                self._groups(g, index, lane).commit()

    def bulk_wait(self, g: Group, site: int, count: int, read: bool, lanes: Array | None) -> None:
        for index, lane in self.each_lane(g, lanes):
            groups = self.groups.get((int(g.rows[index]), lane))
            if groups is None:
                continue
            for member in groups.unfinished(count, read=read):
                self._land(member, read)
            groups.wait(count, [int(self.machine.order_row[g.rows[index]])], read=read)

    def _land(self, member: Member, read: bool) -> None:
        flight = self.flights.get(id(member))
        if flight is None:
            return
        self.machine.queue.land(flight.read)
        if not read:
            self.machine.queue.land(flight.write)
            del self.flights[id(member)]

    # --- plain bulk copies --------------------------------------------------------------------------------------

    def bulk_copy(
        self,
        g: Group,
        form: Bulk,
        to: Array,
        source: Array,
        size: Array,
        barrier: Array | None,
        mask: Array | None,
        lanes: Array | None,
    ) -> None:
        for index, lane in self.each_lane(g, lanes):
            count = int(size[index, lane])
            ends = [int(to[index, lane]), int(source[index, lane])]
            if count % 16 or ends[0] % 16 or ends[1] % 16:
                message = f"a bulk copy of {count} bytes from {ends[1]:#x} to {ends[0]:#x}: all are multiples of 16"
                self.machine.fail(g, form.site, "EMU_MISALIGNED", message, index, lane)
            if count == 0:
                continue
            steps = np.arange(0, count, 16)
            if barrier is None:
                slot = self.slot_of(g, index, ends[1], form.site, lane)
                taken = self.shared_offsets(g, index, lane, form.site, slot, (ends[1] & _LOCAL) + steps, 16)
                given = self._global_offsets(g, index, lane, form.site, ends[0] + steps, 16)
                self.machine.bytes_moved["bulk store"] += count
                self._store(g, index, lane, form.site, taken, given, 16, form.change)
                continue
            at = int(barrier[index, lane])
            ranks = [None] if mask is None else [each for each in range(16) if int(mask[index, lane]) >> each & 1]
            for rank in ranks:
                high = 0 if rank is None else rank << RANK_SHIFT
                there = [ends[0], at] if rank is None else [ends[0] & _LOCAL | high, at & _LOCAL | high]
                self._bulk_load(g, index, lane, form, there[0], ends[1], count, there[1])

    def _bulk_load(
        self, g: Group, index: int, lane: int, form: Bulk, to: int, source: int, count: int, barrier: int
    ) -> None:
        machine = self.machine
        self._signals(g, index, lane, form.site, to, barrier)
        steps = np.arange(0, count, 16)
        slot = self.slot_of(g, index, to, form.site, lane)
        target = self.shared_offsets(g, index, lane, form.site, slot, (to & _LOCAL) + steps, 16)
        if form.source == "global":
            taken, memory, shadow = (
                self._global_offsets(g, index, lane, form.site, source + steps, 16),
                machine.globals.bytes,
                machine.global_shadow,
            )
        else:
            own = self.slot_of(g, index, source, form.site, lane)
            taken, memory, shadow = (
                self.shared_offsets(g, index, lane, form.site, own, (source & _LOCAL) + steps, 16),
                machine.shared.bytes,
                machine.shared_shadow,
            )
            self.must_be_written(g, index, lane, form.site, taken, 16)
        unit, at = self.unit(g, index, barrier, form.site, lane)
        by = self.by(g, index, form.site, lane)
        operation = machine.order.issue(by.row, by.pc, lane, unit.use(at, by, "a bulk copy").channel)
        if form.change is not None:
            self.must_be_written(g, index, lane, form.site, target, 16)
        scope = None if form.change is None else Scope.GPU
        self._read_and_write(operation, shadow, taken, machine.shared_shadow, target, 16, scope)
        moved = _Moved()

        def read() -> None:
            moved.values = _pieces(memory, taken, 16)

        def write() -> None:
            assert moved.values is not None
            values = moved.values
            if form.change is not None:
                values = _changed(form.change, _pieces(machine.shared.bytes, target, 16), values)
            _put(machine.shared.bytes, target, values)
            unit.complete_tx(at, count, by, operation)
            self.wake()

        machine.bytes_moved["bulk load"] += count
        self._submit(by.row, [read, write], f"bulk copy at line {machine.line(form.site)}")

    # --- stores of single threads -------------------------------------------------------------------------------

    def remote_store(
        self,
        g: Group,
        access: Access,
        place: Array,
        barrier: Array,
        values: list[Array],
        change: Update | None,
        lanes: Array | None,
    ) -> None:
        """`st.async` and `red.async`: the bytes land later, and the destination's mbarrier counts them."""
        machine = self.machine
        machine.peers(g, access.site, place, access.size, g.mask if lanes is None else lanes)
        for index, lane in self.each_lane(g, lanes):
            address, at = int(place[index, lane]), int(barrier[index, lane])
            if address % access.size:
                message = f"{access.size} bytes of shared memory at {address:#x}"
                machine.fail(g, access.site, "EMU_MISALIGNED", message, index, lane)
            self._signals(g, index, lane, access.site, address, at)
            slot = self.slot_of(g, index, address, access.site, lane)
            where = np.array([address & _LOCAL])
            target = self.shared_offsets(g, index, lane, access.site, slot, where, access.size)
            unit, local = self.unit(g, index, at, access.site, lane)
            by = self.by(g, index, access.site, lane)
            operation = machine.order.issue(by.row, by.pc, lane, unit.use(local, by, "st.async").channel)
            if machine.races:
                order, shadow = machine.order, machine.shared_shadow
                scope = None if change is None else Scope.CLUSTER
                order.async_access(operation, shadow, target, access.size, write=True, generic=True, atomic=scope)
            words = [each[index, lane : lane + 1].copy() for each in values]
            land = self._landing(unit, local, by, operation, access, int(target[0]), words, change)
            machine.bytes_moved["remote store"] += access.size
            if address >> RANK_SHIFT != int(machine.rank[g.rows[index], 0]):
                machine.counts.remote_bytes += access.size
            self._submit(by.row, [land], f"st.async at line {machine.line(access.site)}")

    def _landing(
        self,
        unit: BarrierUnit,
        local: int,
        by: By,
        operation: AsyncOperation,
        access: Access,
        start: int,
        words: list[Array],
        change: Update | None,
    ) -> Callable[[], None]:
        memory = self.machine.shared.bytes

        def land() -> None:
            for each, word in enumerate(words):
                cell = slice((start >> SHIFT[access.width]) + each, (start >> SHIFT[access.width]) + each + 1)
                view = memory.view[access.width]
                view[cell] = word if change is None else change(view[cell].copy(), word, None)
            memory.written[start : start + access.size] = 1
            unit.complete_tx(local, access.size, by, operation)
            self.wake()

        return land

    # --- places -------------------------------------------------------------------------------------------------

    def _read_and_write(
        self,
        operation: AsyncOperation,
        source: Any,
        taken: Array,
        target: Any,
        given: Array,
        chunk: int,
        atomic: Scope | None = None,
    ) -> None:
        if self.machine.races:
            self.machine.order.async_access(operation, source, taken, chunk, write=False)
            self.machine.order.async_access(operation, target, given, chunk, write=True, atomic=atomic)

    def shared_offsets(self, g: Group, index: int, lane: int, site: int, slot: int, places: Array, chunk: int) -> Array:
        shared = self.machine.shared
        offsets = places - SHARED_START
        if len(offsets) and (int(offsets.min()) < 0 or int(offsets.max()) > shared.size - chunk):
            message = (
                f"a copy over offsets {int(offsets.min())} to {int(offsets.max()) + chunk} of a shared window "
                f"that has {shared.size}"
            )
            self.machine.fail(g, site, "EMU_OUT_OF_BOUNDS", message, index, lane)
        found: Array = offsets + slot * shared.stride
        return found

    def _global_offsets(self, g: Group, index: int, lane: int, site: int, places: Array, chunk: int) -> Array:
        if not len(places):
            return np.zeros(0, np.int64)
        wide = places.astype(np.uint64)[None, :]
        try:
            # Chunks are as wide as both ends allow, so their own size says nothing of the alignment of an address.
            first = self.machine.globals.offsets(wide, 1, None, -1 - site)[0]
            self.machine.globals.offsets(wide + np.uint64(chunk - 1), 1, None, -1 - site)
        except AccessFault as fault:
            self.machine.fail(g, site, fault.code, fault.message, index, lane)
        found: Array = first[0]
        return found

    def must_be_written(self, g: Group, index: int, lane: int, site: int, offsets: Array, chunk: int) -> None:
        """What an operation reads from shared memory must have been written."""
        if not _pieces_of(self.machine.shared.bytes.written, offsets, chunk).all():
            message = "an asynchronous operation reads shared memory of which some bytes were never written"
            self.machine.fail(g, site, "EMU_UNINITIALISED", message, index, lane)

    # --- wgmma --------------------------------------------------------------------------------------------------

    def _warpgroups(
        self, g: Group, site: int, lanes: Array | None
    ) -> Iterator[tuple[int, AsyncGroups, WgmmaRegisters]]:
        """The position of each warpgroup's first warp in the group: all four warps are here with all lanes."""
        machine = self.machine
        machine.whole_warps(g, site, g.mask if lanes is None else lanes)
        rows = g.rows
        if (
            g.n % 4
            or (rows[::4] % machine.warps % 4).any()
            or (rows.reshape(-1, 4) != rows[::4, None] + np.arange(4)).any()
        ):
            message = "an instruction of the whole warpgroup, and one of its four warps is not here"
            machine.fail(g, site, "EMU_WARP_SYNC", message, 0, 0)
        for index in range(0, g.n, 4):
            row = int(rows[index])
            found = self.warpgroups.get(row)
            if found is None:
                who = machine.who(row)
                key = ("wgmma", who.rank, who.warp)
                name = f"wgmma groups of warps {who.warp} to {who.warp + 3}"
                groups = AsyncGroups(machine.order, who.cluster, who.rank, key, name)
                found = self.warpgroups[row] = (groups, WgmmaRegisters(machine.reporter, who))
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
            found = self.warpgroups.get(row)
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
        offsets = self.shared_offsets(g, index, 0, form.site, slot, flat, CHUNK)
        self.judge(g, index, form.site, slot, descriptor, extent, major, kind, kind)
        self.must_be_written(g, index, 0, form.site, offsets, CHUNK)
        if machine.races:
            machine.order.async_access(
                member.operation, machine.shared_shadow, offsets, CHUNK, write=False, channel=groups.reads
            )
        chunks = machine.shared.bytes.data.reshape(-1, CHUNK)[offsets // CHUNK]
        return operand_from_chunks(chunks.reshape((*places.shape, CHUNK)), major, kind)

    def judge(
        self,
        g: Group,
        index: int,
        site: int,
        slot: int,
        placement: Placement,
        extent: int,
        major: Major,
        kind: str,
        element: str,
    ) -> None:
        """Whether the descriptor describes the tile that lies there, and the instruction its elements."""
        cta = self.ctas[slot]
        key = (placement, extent, major, kind, element)
        if key in cta.judged or not cta.boxes:
            return
        boxes = list(cta.boxes.values())
        wrong = mismatch(placement, extent, major, kind, boxes)
        other = other_element(placement, extent, major, kind, element, boxes)
        if (wrong or other) and not self._copied(slot, placement.start if wrong is None else wrong.offset):
            return
        cta.judged[key] = True
        if wrong is not None:
            self.machine.fail(g, site, "EMU_DESCRIPTOR_TILE", wrong.text, index, 0)
        if other:
            text = f"the instruction takes {element}, where the tensor map of the tile has elements of {other}"
            if fragments.ELEMENT_BITS[other] != fragments.ELEMENT_BITS[element]:
                self.machine.fail(g, site, "EMU_DESCRIPTOR_TILE", text, index, 0)
            self.machine.reporter.warn("EMU_OPERAND_TYPE", text, self.machine.who(int(g.rows[index])), site)

    def _copied(self, slot: int, offset: int) -> bool:
        """Whether a copy was the last to write this place: a tile that threads have written over is no tile."""
        machine = self.machine
        start = slot * machine.shared.stride - SHARED_START
        return not machine.races or machine.order.copied(machine.shared_shadow, start + offset)


def _pieces_of(data: Array, offsets: Array, chunk: int) -> Array:
    """[n, chunk] bytes at the offsets, which are multiples of 16, or of the chunk where that is less."""
    width = min(chunk, 16)
    rows = data.reshape(-1, width)
    at = offsets >> SHIFT[width]
    if chunk > width:
        at = at[:, None] + np.arange(chunk // width)
    found: Array = rows[at].reshape(len(offsets), chunk)
    return found


def _pieces(memory: Bytes, offsets: Array, chunk: int) -> Array:
    return _pieces_of(memory.data, offsets, chunk)


def _changed(change: tuple[int, Update], old: Array, values: Array) -> Array:
    """What a reduction makes of bytes in memory and the bytes of a copy."""
    width, function = change
    kind = UNSIGNED[width]
    found: Array = function(old.view(kind), values.view(kind), None).view(np.uint8)
    return found


def _put(memory: Bytes, offsets: Array, values: Array) -> None:
    """The inverse of `_pieces`; what is written counts as written."""
    chunk = values.shape[1]
    width = min(chunk, 16)
    at = offsets >> SHIFT[width]
    if chunk > width:
        at = (at[:, None] + np.arange(chunk // width)).ravel()
        values = values.reshape(-1, width)
    memory.count(offsets, chunk)
    memory.data.reshape(-1, width)[at] = values
    memory.written.reshape(-1, width)[at] = 1
