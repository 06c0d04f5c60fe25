"""Tensor copies, bulk copies and stores of single threads that land later; tensor maps. Imports its own room.

What a thread starts is done lane by lane; `engine` has the mbarriers that count the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.async_groups import AsyncGroups, Member
from advisor.emulator.happens_before import AsyncOperation, Scope, Sem, Shadow
from advisor.emulator.mbarrier import BarrierUnit, By
from advisor.emulator.memory import GLOBAL_BASE, PARAM_WINDOW, RANK_SHIFT, SHIFT, UNSIGNED, Bytes, Update, pieces_of
from advisor.emulator.policy import Pending
from advisor.emulator.shared_operand import TileBox
from advisor.emulator.targets import load_violations
from advisor.emulator.tensor_map import IMAGE_BYTES, DataType, Swizzle, TensorMap
from advisor.emulator.updates import update
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.emulator.lowering_memory import Access
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group

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


@dataclass(slots=True)
class _Flight:
    """Pending operations of the members of bulk groups: what a wait has to land."""

    read: Pending
    write: Pending


@dataclass(slots=True)
class _Moved:
    """Bytes that a copy carries from its read to its write."""

    values: Array | None = None


class Transfers:
    """The copies of a machine, and the bulk groups of its threads."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.engine = machine.engine
        self.groups: dict[tuple[int, int], AsyncGroups] = {}  # by row and lane
        self.flights: dict[int, _Flight] = {}  # by id of a member
        self.maps: dict[bytes, TensorMap | None] = {}

    def forget(self, rows: Array) -> None:
        """These warps have exited."""
        for row in rows.tolist():
            for lane in range(32):
                self.groups.pop((row, lane), None)

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
        for index, lane in self.engine.each_lane(g, lanes):
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
            if machine.predecessor.checks:
                machine.predecessor.accessed_by(g, index, lane, form.site, np.array([start]), write=False)
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
        for index, lane in self.engine.each_lane(g, lanes):
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
            slot = self.engine.slot_of(g, index, address, site, lane)
            offsets = self.engine.shared_offsets(g, index, lane, site, slot, places & _LOCAL, 16)
            return machine.shared.bytes, machine.shared_shadow, int(offsets[0])
        offsets = self.engine.global_offsets(g, index, lane, site, places, 16, write=True)
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
        slot = self.engine.slot_of(g, index, address, form.site, lane)
        transfer = self._transfer(form, tensor, where, address & _LOCAL)
        target = self.engine.shared_offsets(g, index, lane, form.site, slot, transfer.shared, transfer.chunk)
        places = transfer.globals_[transfer.inside]
        source = self.engine.global_offsets(g, index, lane, form.site, places, transfer.chunk, write=False)
        unit, at = self.engine.unit(g, index, barrier, form.site, lane)
        by = self.engine.by(g, index, form.site, lane)
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
            self.engine.wake()

        rows = 4 if form.four_rows else math.prod(tensor.box_counts[1:])
        swizzle, element = _SWIZZLE_NAMES.get(tensor.swizzle, ""), _ELEMENTS.get(tensor.dtype, "")
        self._box(slot, TileBox(address & _LOCAL, rows, tensor.row_bytes, swizzle, element))
        machine.bytes_moved["tensor load"] += transfer.tx_bytes
        self.engine.submit(by.row, [read, write], f"tensor load at line {machine.line(form.site)}")
        return int(transfer.tx_bytes)

    def _box(self, slot: int, box: TileBox) -> None:
        cta = self.engine.ctas[slot]
        if box.swizzle and cta.boxes.get(box.start) != box:
            for start in [each.start for each in cta.boxes.values() if each.start < box.end and box.start < each.end]:
                del cta.boxes[start]
            cta.boxes[box.start] = box
            cta.judged.clear()

    def _tensor_store(
        self, g: Group, index: int, lane: int, form: TensorCopy, tensor: TensorMap, where: list[int], address: int
    ) -> None:
        machine = self.machine
        slot = self.engine.slot_of(g, index, address, form.site, lane)
        transfer = self._transfer(form, tensor, where, address & _LOCAL)
        inside = transfer.inside
        source = self.engine.shared_offsets(g, index, lane, form.site, slot, transfer.shared[inside], transfer.chunk)
        places = transfer.globals_[inside]
        target = self.engine.global_offsets(g, index, lane, form.site, places, transfer.chunk, write=True)
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
        self.engine.must_be_written(g, index, lane, site, source, chunk)
        groups = self._groups(g, index, lane)
        row = int(machine.order_row[g.rows[index]])
        member = groups.add(row, site, lane)
        if machine.races:
            order = machine.order
            order.async_access(
                member.operation, machine.shared_shadow, source, chunk, write=False, channel=groups.reads
            )
            scope = None if change is None else Scope.GPU
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
        first = self.engine.submit(row, [read], f"{label}, its read")
        second = self.engine.submit(row, [write], label, after=(first,))
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
        for index, lane in self.engine.each_lane(g, lanes):
            if (int(g.rows[index]), lane) in self.groups:
                self._groups(g, index, lane).commit()

    def bulk_wait(self, g: Group, site: int, count: int, read: bool, lanes: Array | None) -> None:
        for index, lane in self.engine.each_lane(g, lanes):
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
        for index, lane in self.engine.each_lane(g, lanes):
            count = int(size[index, lane])
            ends = [int(to[index, lane]), int(source[index, lane])]
            if count % 16 or ends[0] % 16 or ends[1] % 16:
                message = f"a bulk copy of {count} bytes from {ends[1]:#x} to {ends[0]:#x}: all are multiples of 16"
                self.machine.fail(g, form.site, "EMU_MISALIGNED", message, index, lane)
            if count == 0:
                continue
            steps = np.arange(0, count, 16)
            if barrier is None:
                slot = self.engine.slot_of(g, index, ends[1], form.site, lane)
                taken = self.engine.shared_offsets(g, index, lane, form.site, slot, (ends[1] & _LOCAL) + steps, 16)
                given = self.engine.global_offsets(g, index, lane, form.site, ends[0] + steps, 16, write=True)
                self.machine.bytes_moved["bulk store"] += count
                self._store(g, index, lane, form.site, taken, given, 16, form.change)
                continue
            at = int(barrier[index, lane])
            ranks = [None] if mask is None else [each for each in range(16) if int(mask[index, lane]) >> each & 1]
            for rank in ranks:
                high = 0 if rank is None else rank << RANK_SHIFT
                there = [ends[0], at] if rank is None else [ends[0] & _LOCAL | high, at & _LOCAL | high]
                self._bulk_load(g, index, lane, form, there[0], ends[1], count, there[1])

    def bulk_prefetch(self, g: Group, site: int, source: Array, size: Array, lanes: Array | None) -> None:
        """`cp.async.bulk.prefetch` into L2. It gives no value to anybody: no race, no read of what nobody has written
        or of what an earlier kernel still writes; only the bytes that it names have to exist."""
        for index, lane in self.engine.each_lane(g, lanes):
            address, count = int(source[index, lane]), int(size[index, lane])
            if count % 16 or address % 16:
                message = f"a bulk prefetch of {count} bytes from {address:#x}: both are multiples of 16"
                self.machine.fail(g, site, "EMU_MISALIGNED", message, index, lane)
            if count and not self.machine.globals.has(address, count):
                message = f"a bulk prefetch of {self.machine.globals.describe(address, count)}"
                self.machine.fail(g, site, "EMU_OUT_OF_BOUNDS", message, index, lane)

    def _bulk_load(
        self, g: Group, index: int, lane: int, form: Bulk, to: int, source: int, count: int, barrier: int
    ) -> None:
        machine = self.machine
        self._signals(g, index, lane, form.site, to, barrier)
        steps = np.arange(0, count, 16)
        slot = self.engine.slot_of(g, index, to, form.site, lane)
        target = self.engine.shared_offsets(g, index, lane, form.site, slot, (to & _LOCAL) + steps, 16)
        if form.source == "global":
            taken, memory, shadow = (
                self.engine.global_offsets(g, index, lane, form.site, source + steps, 16, write=False),
                machine.globals.bytes,
                machine.global_shadow,
            )
        else:
            own = self.engine.slot_of(g, index, source, form.site, lane)
            taken, memory, shadow = (
                self.engine.shared_offsets(g, index, lane, form.site, own, (source & _LOCAL) + steps, 16),
                machine.shared.bytes,
                machine.shared_shadow,
            )
            self.engine.must_be_written(g, index, lane, form.site, taken, 16)
        unit, at = self.engine.unit(g, index, barrier, form.site, lane)
        by = self.engine.by(g, index, form.site, lane)
        operation = machine.order.issue(by.row, by.pc, lane, unit.use(at, by, "a bulk copy").channel)
        if form.change is not None:
            self.engine.must_be_written(g, index, lane, form.site, target, 16)
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
            self.engine.wake()

        machine.bytes_moved["bulk load"] += count
        self.engine.submit(by.row, [read, write], f"bulk copy at line {machine.line(form.site)}")

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
        for index, lane in self.engine.each_lane(g, lanes):
            address, at = int(place[index, lane]), int(barrier[index, lane])
            if address % access.size:
                message = f"{access.size} bytes of shared memory at {address:#x}"
                machine.fail(g, access.site, "EMU_MISALIGNED", message, index, lane)
            self._signals(g, index, lane, access.site, address, at)
            slot = self.engine.slot_of(g, index, address, access.site, lane)
            where = np.array([address & _LOCAL])
            target = self.engine.shared_offsets(g, index, lane, access.site, slot, where, access.size)
            unit, local = self.engine.unit(g, index, at, access.site, lane)
            by = self.engine.by(g, index, access.site, lane)
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
            self.engine.submit(by.row, [land], f"st.async at line {machine.line(access.site)}")

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
            self.engine.wake()

        return land

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


def _pieces(memory: Bytes, offsets: Array, chunk: int) -> Array:
    return pieces_of(memory.data, offsets, chunk)


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
