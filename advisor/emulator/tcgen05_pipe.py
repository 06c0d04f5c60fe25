"""mma, cp, shift and commit of tcgen05: what one thread issues, and what happens when it lands. Imports its own room.

What an operation reads and writes is checked when it is issued. It is done when the policy lets it land, after whatever
was issued before it in its CTA or pair: the pipe is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.emulator import fragments
from advisor.emulator.clocks import SyncPoint
from advisor.emulator.mbarrier import BarrierUnit
from advisor.emulator.memory import RANK_SHIFT
from advisor.emulator.policy import Pending
from advisor.emulator.scheduler import Group
from advisor.emulator.shared_operand import CHUNK, Major
from advisor.emulator.tcgen05_descriptors import (
    InstructionDescriptor,
    SharedDescriptor,
    instruction_descriptor,
    scale_violations,
    zero_columns,
)
from advisor.emulator.tcgen05_layouts import (
    CopyShape,
    DataPath,
    data_path,
    scale_bytes,
    scale_columns,
    scale_regions,
)
from advisor.emulator.tcgen05_order import Operation, Pipe, What
from advisor.emulator.tcgen05_products import (
    codes_from_shared,
    codes_from_words,
    filled_bytes,
    filled_bytes_of,
    product,
)
from advisor.emulator.tcgen05_state import Array, Commit, Cta, Spot, TensorMemory
from advisor.emulator.tmem import Region, column_of, lane_of

_LOCAL = (1 << RANK_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class MultiplyForm:
    """One `tcgen05.mma`. `blocks`: scales of a row in one instruction, or 0; `block_size`: elements of one, or 0."""

    site: int
    kind: str
    cta_group: int
    ws: bool
    a_in_tensor_memory: bool
    blocks: int = 0
    block_size: int = 0
    halvings: int = 0
    a_shift: bool = False

    def scales_of(self, k: int) -> int:
        """Scales of a row for this K."""
        return k // self.block_size if self.block_size else self.blocks


@dataclass(frozen=True, slots=True)
class CopyForm:
    """One `tcgen05.cp`. `source`: how 6-bit or 4-bit elements are packed in shared memory; empty: bytes as they are."""

    site: int
    cta_group: int
    shape: CopyShape
    source: str = ""


@dataclass(slots=True)
class Operands:
    """What a `tcgen05.mma` names, each [warps, lanes]. `a` is a descriptor or an address in tensor memory."""

    d: Array
    a: Array
    b: Array
    descriptor: Array
    use_d: Array
    disabled: Sequence[Array] = ()
    scales: Sequence[Array] = ()
    zero_mask: Array | None = None


@dataclass(slots=True, eq=False)
class _Thread:
    """The pipe of one thread, and the last of what it has issued."""

    pipe: Pipe
    last: Pending | None = None
    last_commit: Pending | None = None


@dataclass(slots=True, eq=False)
class _Issue:
    """An operation on its way from the generated code into the pipe."""

    spot: Spot
    ctas: list[Cta]  # the CTA, or both of the pair, the even one first
    thread: _Thread
    operation: Operation
    reads: list[Array] = field(default_factory=list)  # chunks of shared memory


@dataclass(slots=True, eq=False)
class _Multiplication:
    """A `tcgen05.mma` with its operands found. Per CTA: places of chunks, or regions of tensor memory."""

    form: MultiplyForm
    what: InstructionDescriptor
    path: DataPath
    accumulate: bool
    d: list[list[Region]]
    d_region: Region
    a: list[Array] | Region
    b: list[Array]
    scales: tuple[int, int] | None = None  # the columns of those of A and of B
    shift: int = 0
    zeros: Array | None = None


class Pipes:
    """The pipes of every resident CTA and pair."""

    def __init__(self, memory: TensorMemory) -> None:
        self.memory = memory
        self.machine = memory.machine
        self.threads: dict[tuple[int, int], _Thread] = {}  # by row and lane
        self.last: dict[int, Pending] = {}  # the last operation, by the first slot of a CTA or pair
        self.noted = False  # that the sums are not modelled

    # --- CTAs ---------------------------------------------------------------------------------------------------

    def begin(self, rows: Iterable[int]) -> None:
        """These rows are of a new CTA."""
        for row in rows:
            for lane in range(32):
                self.threads.pop((row, lane), None)

    def end(self, cta: Cta, rows: Array) -> None:
        """A CTA has exited. Raises EMU_TCGEN05_COMMIT where a commit may still be going to signal it.

        Whoever knows that the operations of a commit are complete is taken to know that its arrivals are, and those of
        earlier commits of the thread: other projects' kernels, which ran on a B200, rely on it. PTX promises the
        arrival to those alone who have waited for it; of a peer's, the CTA gets a warning (EMU_TCGEN05_COMMIT_UNSEEN).
        """
        machine = self.machine
        for pipe, commit in cta.commits.items():
            if not machine.races:
                break
            by, who = commit.by, machine.who(int(rows[-1]))
            if not self.memory.order.knows(machine.order_row[rows], pipe, commit.number):
                issuer = machine.reporter.event("tcgen05.commit", machine.order.who(by.row), by.pc, by.lane)
                machine.reporter.fail(
                    "EMU_TCGEN05_COMMIT",
                    "the CTA exits while a tcgen05.commit may still be going to signal an mbarrier of it: nobody has "
                    "waited for it",
                    who,
                    machine.exit_site,
                    history=(issuer,),
                    fix="wait for its phase, or meet a warp that has done so, before the exit",
                )
            if commit.remote and (commit.phase is None or commit.phase > commit.barrier.observed):
                machine.reporter.warn(
                    "EMU_TCGEN05_COMMIT_UNSEEN",
                    f"what it tracks is complete, but {who} exits and no warp of its CTA has waited for the arrival at "
                    f"the mbarrier at {commit.barrier.address:#x}",
                    machine.order.who(by.row),
                    by.pc,
                    by.lane,
                    fix="wait for the last phase of each mbarrier that a peer's commits arrive at, before the exit",
                )
        for each in cta.arrivals:
            machine.queue.land(each)

    # --- the way into the pipe ----------------------------------------------------------------------------------

    def _issue(self, what: What, spot: Spot, cta_group: int) -> _Issue:
        machine = self.machine
        cta = self.memory.cta_of(spot.row)
        if cta_group == 2:
            self.memory.check_peer(cta, spot.row, spot.site, spot.lane)
        thread = self._thread(spot)
        row = int(machine.order_row[spot.row])
        operation = self.memory.order.issue(what, row, spot.lane, spot.site, thread.pipe)
        return _Issue(spot, self.memory.pair(cta, cta_group), thread, operation)

    def _thread(self, spot: Spot) -> _Thread:
        key = (spot.row, spot.lane)
        found = self.threads.get(key)
        if found is None:
            who = self.machine.who(spot.row)
            name = f"tcgen05 of warp {who.warp} lane {spot.lane}"
            channel = self.machine.order.channel(
                who.cluster, who.rank, ("tcgen05", who.rank, who.warp, spot.lane), name
            )
            found = self.threads[key] = _Thread(Pipe(channel))
        return found

    def _submit(self, issue: _Issue, run: Callable[[], None]) -> None:
        machine = self.machine
        operation = issue.operation
        shared = machine.order.issue(operation.row, operation.pc, issue.spot.lane, issue.thread.pipe.channel)
        self.memory.order.track(operation, shared)
        if issue.reads and machine.races:
            places = np.concatenate(issue.reads)
            machine.order.async_access(shared, machine.shared_shadow, places, CHUNK, write=False)
        key = issue.ctas[0].slot
        before = self.last.get(key)
        label = f"tcgen05.{operation.what} at line {machine.line(issue.spot.site)}"
        owner = int(machine.order.cluster_of[operation.row])
        made = machine.queue.submit([run], label, () if before is None else (before,), owner)
        self.last[key] = issue.thread.last = made

    def _touch(self, issue: _Issue, cta: Cta, regions: Iterable[Region], *, write: bool, taken: bool) -> None:
        """The operation reads or writes tensor memory of a CTA. `taken`: what is there goes into it."""
        for region in regions:
            self.memory.check_owned(issue.spot, cta, region)
            if self.machine.races:
                if taken:
                    self.memory.check_initialised(issue.spot, cta, region)
                self.memory.order.access(self.memory.shadow(cta), issue.operation, region, write=write)

    def _chunks(
        self,
        issue: _Issue,
        cta: Cta,
        value: int,
        extent: int,
        major: Major,
        container: str,
        kind: str,
        *,
        element: str,
        chunks: int | None = None,
        k: int = 0,
    ) -> Array:
        """Where an operand lies in shared memory, in units of a chunk, shaped as `Placement.chunks`. `element`: its
        type, where it has to be what a tensor copy has put there; `chunks` of each row, where that is not all."""
        placement = SharedDescriptor.decode(value)
        key = (placement, extent, major, container, chunks, k)
        found = cta.operands.get(key)
        engine, spot = self.machine.engine, issue.spot
        where = (spot.group, spot.index, spot.lane, spot.site)
        if found is None:
            wrong = placement.violations(kind, major, k)
            if wrong:
                self._fail(issue, "EMU_TCGEN05_DESCRIPTOR", "the shared memory descriptor: " + "; ".join(wrong))
            long = k == 96
            places = placement.long_chunks(extent) if long else placement.chunks(extent, major, container)[:, :chunks]
            offsets = engine.shared_offsets(*where, cta.slot, places.ravel(), CHUNK)
            found = cta.operands[key] = offsets.reshape(places.shape) // CHUNK
        if element and k != 96:
            engine.judge(spot.group, spot.index, spot.site, cta.slot, placement, extent, major, container, element)
        return found

    def _read(self, issue: _Issue, places: Array, filled: int = CHUNK) -> Array:
        """The operation reads these chunks of shared memory; `filled` bytes of each count."""
        flat = places.ravel()
        if not self.machine.shared.bytes.written.reshape(-1, CHUNK)[flat, :filled].all():
            message = "an asynchronous operation reads shared memory of which some bytes were never written"
            self._fail(issue, "EMU_UNINITIALISED", message)
        issue.reads.append(flat * CHUNK)
        return places

    def _fail(self, issue: _Issue, code: str, message: str) -> None:
        self.memory.fail(issue.spot, code, message)

    # --- mma ----------------------------------------------------------------------------------------------------

    def multiply(self, g: Group, form: MultiplyForm, operands: Operands, lanes: Array | None) -> None:
        """`tcgen05.mma`."""
        if self.machine.numerics == "model" and not self.noted:
            self.noted = True
            message = "nobody has measured how this tensor core adds: its sums are those of --mma fp32"
            self.machine.reporter.warn("EMU_TCGEN05_NUMERICS", message, None, form.site)
        for index, lane in self.machine.engine.each_lane(g, lanes):
            issue = self._issue("mma", Spot(g, index, lane, form.site), form.cta_group)
            found = self._multiplication(issue, form, operands)
            what = found.what
            self.machine.multiply_adds[f"kind::{what.kind} cta_group::{form.cta_group}"] += what.m * what.n * what.k
            self._submit(issue, self._product(issue, found))

    def _multiplication(self, issue: _Issue, form: MultiplyForm, operands: Operands) -> _Multiplication:
        at = (issue.spot.index, issue.spot.lane)
        what = self._described(issue, form, int(operands.descriptor[at]))
        d = int(operands.d[at])
        path = data_path(what.m, form.cta_group, form.ws, d)
        if isinstance(path, str):
            self._fail(issue, "EMU_TMEM_LANES", f"D begins at {path}")
        assert isinstance(path, DataPath)
        shift, zeros = 0, None
        if operands.zero_mask is not None:
            zeros, shift = zero_columns(int(operands.zero_mask[at]), what.m, what.n)
        region = path.region(column_of(d), what.n)
        found = _Multiplication(
            form,
            what,
            path,
            bool(operands.use_d[at]),
            self._enabled(issue, path, region, operands.disabled),
            region,
            self._left(issue, form, what, path, int(operands.a[at]), d),
            self._right(issue, form, what, int(operands.b[at]), shift),
            shift=shift,
            zeros=zeros,
        )
        if operands.scales:
            addresses = [int(each[at]) for each in operands.scales]
            found.scales = self._scales(issue, form, what, path, addresses[0], addresses[1])
        for cta, regions in zip(issue.ctas, found.d, strict=True):
            self._touch(issue, cta, regions, write=True, taken=found.accumulate)
        return found

    def _described(self, issue: _Issue, form: MultiplyForm, value: int) -> InstructionDescriptor:
        what = instruction_descriptor(form.kind, value)
        if isinstance(what, str):
            self._fail(issue, "EMU_TCGEN05_DESCRIPTOR", f"the instruction descriptor {value:#010x}: {what}")
        assert isinstance(what, InstructionDescriptor)
        wrong = (*what.violations(form.cta_group, ws=form.ws), *scale_violations(what, form.scales_of(what.k)))
        if what.k == 96 and not self.machine.program.module.target.startswith("sm_103"):
            wrong += (f"K 96 is for sm_103a, and the kernel for {self.machine.program.module.target}",)
        if form.a_shift and what.m == 64:
            wrong += ("a shifted A has M 128 or 256",)
        if wrong:
            message = f"the instruction descriptor {value:#010x}: {'; '.join(wrong)}"
            self._fail(issue, "EMU_TCGEN05_DESCRIPTOR", message)
        return what

    def _enabled(
        self, issue: _Issue, path: DataPath, region: Region, disabled: Sequence[Array]
    ) -> list[list[Region]]:  # fmt: skip
        """The lanes of D that each CTA writes."""
        if not disabled:
            return [[region] for _ in issue.ctas]
        at = (issue.spot.index, issue.spot.lane)
        words = np.array([int(each[at]) for each in disabled], np.uint32).reshape(len(issue.ctas), 4)
        return [path.enabled(region, each) if each.any() else [region] for each in words]

    def _left(
        self, issue: _Issue, form: MultiplyForm, what: InstructionDescriptor, path: DataPath, value: int, d: int
    ) -> list[Array] | Region:
        """A: its chunks in the shared memory of each CTA, or its region of tensor memory."""
        if not form.a_in_tensor_memory:
            return [
                self._read(
                    issue,
                    self._chunks(
                        issue, cta, value, path.rows, what.major_a, what.container, what.kind, element=what.a, k=what.k
                    ),
                    filled_bytes(what, what.a),
                )
                for cta in issue.ctas
            ]
        if what.major_a == "MN":
            self._fail(issue, "EMU_TCGEN05_DESCRIPTOR", "an A in tensor memory is K-major")
        if lane_of(value) != lane_of(d):
            message = f"A begins at lane {lane_of(value)}, where D begins at lane {lane_of(d)}"
            self._fail(issue, "EMU_TMEM_LANES", message)
        words = what.k * fragments.ELEMENT_BITS[what.container] // 32  # of a row
        region = path.operand_region(column_of(value), words)
        for cta in issue.ctas:
            self._touch(issue, cta, [region], write=False, taken=True)
        return region

    def _right(
        self, issue: _Issue, form: MultiplyForm, what: InstructionDescriptor, value: int, shift: int
    ) -> list[Array]:  # fmt: skip
        """B: each CTA of a pair has half of its columns."""
        extent = what.n // form.cta_group + shift
        element = "" if shift else what.b
        return [
            self._read(
                issue,
                self._chunks(
                    issue, cta, value, extent, what.major_b, what.container, what.kind, element=element, k=what.k
                ),
                filled_bytes(what, what.b),
            )
            for cta in issue.ctas
        ]

    def _scales(
        self, issue: _Issue, form: MultiplyForm, what: InstructionDescriptor, path: DataPath, a: int, b: int
    ) -> tuple[int, int]:
        for address in (a, b):
            if lane_of(address):
                self._fail(issue, "EMU_TMEM_LANES", f"scales begin at lane {lane_of(address)}, which is not 0")
        count = form.scales_of(what.k)
        regions = [
            *scale_regions(path.rows, column_of(a), what.scale_a_id, count),
            *scale_regions(what.n // path.parts, column_of(b), what.scale_b_id, count),
        ]
        for cta in issue.ctas:
            self._touch(issue, cta, regions, write=False, taken=True)
        return column_of(a), column_of(b)

    def _product(self, issue: _Issue, found: _Multiplication) -> Callable[[], None]:
        chunks = self.machine.shared.bytes.data.reshape(-1, CHUNK)
        what, path = found.what, found.path
        memories = [self.memory.of(each).data for each in issue.ctas]

        def run() -> None:
            b = np.concatenate([codes_from_shared(chunks[each], what, what.b, what.major_b) for each in found.b])
            if found.shift:
                b = b[found.shift :]
            if found.zeros is not None:
                b = np.where(found.zeros[:, None], b.dtype.type(0), b)
            for each, (memory, regions) in enumerate(zip(memories, found.d, strict=True)):
                if isinstance(found.a, Region):
                    copies = codes_from_words(path.copies(memory[found.a.index]), what)
                    if found.form.a_shift:
                        copies = np.concatenate([copies[:, 1:], copies[:, -1:]], axis=1)
                else:
                    copies = codes_from_shared(chunks[found.a[each]], what, what.a, what.major_a)[None]
                words = path.scatter(self._columns(issue, found, memory, copies, b))
                for region in regions:
                    lanes = slice(region.lane - found.d_region.lane, region.lane_end - found.d_region.lane)
                    memory[region.index] = words[region.quarter : region.quarter_end, lanes]

        return run

    def _columns(self, issue: _Issue, found: _Multiplication, memory: Array, copies: Array, b: Array) -> Array:
        """D [rows, n] of one CTA. Parts differ where A or its scales lie in tensor memory once for each."""
        what, path, form = found.what, found.path, found.form
        start = path.gather(memory[found.d_region.index]) if found.accumulate else None
        if len(copies) == 1 and (path.parts == 1 or found.scales is None):
            scales = None if found.scales is None else self._scale_codes(issue, found, memory, 0)
            return product(what, copies[0], b, start, scales=scales, halvings=form.halvings)
        share = what.n // path.parts
        done = []
        for part in range(path.parts):
            columns = slice(part * share, (part + 1) * share)
            scales = None if found.scales is None else self._scale_codes(issue, found, memory, part)
            done.append(
                product(
                    what,
                    copies[min(part, len(copies) - 1)],
                    b[columns],
                    None if start is None else start[:, columns],
                    scales=scales,
                    halvings=form.halvings,
                )
            )
        return np.concatenate(done, axis=1)

    def _scale_codes(self, issue: _Issue, found: _Multiplication, memory: Array, part: int) -> tuple[Array, Array]:
        """Scales of A [rows, blocks] and of the columns of B that are in this part. Every quarter has a copy."""
        assert found.scales is not None
        what, path = found.what, found.path
        first = part * 4 // path.parts
        count = found.form.scales_of(what.k)
        codes = []
        for name, column, rows, identifier in (
            ("A", found.scales[0], path.rows, what.scale_a_id),
            ("B", found.scales[1], what.n // path.parts, what.scale_b_id),
        ):
            columns = slice(column, column + scale_columns(rows, identifier, count))
            words = memory[first : first + 4 // path.parts, :, columns]
            each = [scale_bytes(quarter, rows, count, identifier) for quarter in words]
            if any((other != each[0]).any() for other in each[1:]):
                message = f"the scales of {name} from column {column} are not the same in every quarter of the lanes"
                self._fail(issue, "EMU_TCGEN05_SCALES", message)
            codes.append(each[0])
        return codes[0], codes[1]

    # --- cp and shift -------------------------------------------------------------------------------------------

    def copy(self, g: Group, form: CopyForm, address: Array, descriptor: Array, lanes: Array | None) -> None:
        """`tcgen05.cp`: rows of shared memory to tensor memory, in each CTA from its own."""
        for index, lane in self.machine.engine.each_lane(g, lanes):
            issue = self._issue("cp", Spot(g, index, lane, form.site), form.cta_group)
            region = form.shape.region(int(address[index, lane]))
            if isinstance(region, str):
                self._fail(issue, "EMU_TMEM_LANES", f"the copy goes to {region}")
            assert isinstance(region, Region)
            value = int(descriptor[index, lane])
            sources = []
            for cta in issue.ctas:
                rows, chunks = form.shape.rows, form.shape.chunks
                places = self._chunks(issue, cta, value, rows, "K", "b8", "cp", element="", chunks=chunks)
                filled = filled_bytes_of(form.source)
                sources.append(self._read(issue, places, filled))
                self._touch(issue, cta, [region], write=True, taken=False)
            size = form.shape.rows * form.shape.chunks * CHUNK * len(issue.ctas)
            self.machine.bytes_moved["tensor memory copy"] += size
            self._submit(issue, self._copied(issue, form, region, sources))

    def _copied(self, issue: _Issue, form: CopyForm, region: Region, sources: list[Array]) -> Callable[[], None]:
        chunks = self.machine.shared.bytes.data.reshape(-1, CHUNK)
        memories = [self.memory.of(each).data for each in issue.ctas]

        def run() -> None:
            for places, memory in zip(sources, memories, strict=True):
                rows = chunks[places]
                if form.source:
                    rows = fragments.decompressed(rows, form.source)
                words = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint32)
                memory[region.index] = form.shape.scatter(words)

        return run

    def shift(self, g: Group, site: int, cta_group: int, address: Array, lanes: Array | None) -> None:
        """`tcgen05.shift.down`: 8 columns of the lanes of one quarter, each lane from the one after it."""
        for index, lane in self.machine.engine.each_lane(g, lanes):
            issue = self._issue("shift", Spot(g, index, lane, site), cta_group)
            first = int(address[index, lane])
            quarter, column = lane_of(first) // 32, column_of(first)
            if lane_of(first) % 32 or quarter > 3:
                self._fail(issue, "EMU_TMEM_LANES", f"lane {lane_of(first)}, where a shift takes 0, 32, 64 or 96")
            region = Region(quarter, quarter + 1, 0, 32, column, column + 8)
            for cta in issue.ctas:
                self._touch(issue, cta, [region], write=True, taken=True)
            self._submit(issue, self._shifted(issue, region))

    def _shifted(self, issue: _Issue, region: Region) -> Callable[[], None]:
        memories = [self.memory.of(each).data[region.index] for each in issue.ctas]

        def run() -> None:
            for words in memories:
                words[:, :-1] = words[:, 1:].copy()

        return run

    # --- commit -------------------------------------------------------------------------------------------------

    def commit(
        self, g: Group, site: int, cta_group: int, place: Array, mask: Array | None, lanes: Array | None
    ) -> None:
        """`tcgen05.commit`: an arrival at an mbarrier, or at the same place in several CTAs, when everything that the
        thread has issued so far is complete."""
        machine = self.machine
        engine, order = machine.engine, machine.order
        for index, lane in engine.each_lane(g, lanes):
            spot = Spot(g, index, lane, site)
            if cta_group == 2:
                self.memory.check_peer(self.memory.cta_of(spot.row), spot.row, site, lane)
            thread = self._thread(spot)
            number = self.memory.order.commit(thread.pipe)
            address = int(place[index, lane])
            targets = [address]
            if mask is not None:
                bits = int(mask[index, lane])
                targets = [address & _LOCAL | rank << RANK_SHIFT for rank in range(16) if bits >> rank & 1]
            point = SyncPoint()
            if number:
                order.complete(point, thread.pipe.channel, number)
            order.complete_after(point, int(machine.order_row[spot.row]))
            before = tuple(each for each in (thread.last, thread.last_commit) if each is not None)
            by = engine.by(g, index, site, lane)
            for target in targets:
                unit, local = engine.unit(g, index, target, site, lane)
                barrier = unit.use(local, by, "tcgen05.commit")
                label = f"tcgen05.commit at line {machine.line(site)}"
                owner = int(order.cluster_of[by.row])
                commit = Commit(number, by, barrier, unit.rank != int(order.rank_of[by.row]))
                made = machine.queue.submit([self._arrival(unit, local, commit, point)], label, before, owner)
                cta = self.memory.ctas[engine.slot_of(g, index, target, site, lane)]
                cta.commits[thread.pipe] = commit
                cta.arrivals = [*(each for each in cta.arrivals if not each.finished), made]
                thread.last_commit = made

    def _arrival(self, unit: BarrierUnit, address: int, commit: Commit, point: SyncPoint) -> Callable[[], None]:
        engine = self.machine.engine

        def arrive() -> None:
            commit.phase = unit.async_arrive(address, commit.by, point)
            engine.wake()

        return arrive
