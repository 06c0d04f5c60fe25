"""The state of one launch, and what the generated code asks of it. Imports its own room, `machine` and `errors`.

Rows: every warp of every resident CTA is a row of the register arrays, `slot * warps + warp`; the CTAs of a cluster
have neighbouring slots. A slot is used again by the next cluster that starts. Methods named `load_`, `store_`, `atomic`
and so on are called from the blocks' functions with the group, the instruction's `Access`, and arrays [rows, 32].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import fragments, warps
from advisor.emulator.cluster_launch_control import ClusterLaunchControl
from advisor.emulator.counts import Counts
from advisor.emulator.dependent_launch import Predecessor
from advisor.emulator.engine import Engine
from advisor.emulator.happens_before import Order, Scope, Sem, Shadow, SyncPoint
from advisor.emulator.lowering_memory import Access
from advisor.emulator.memory import (
    GLOBAL_BASE,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_START,
    SHARED_WINDOW,
    UNSIGNED,
    AccessFault,
    Buffer,
    Bytes,
    Global,
    Local,
    Shared,
    Update,
    atomic,
    gather,
    scatter,
)
from advisor.emulator.mma import Numerics
from advisor.emulator.policy import AsyncQueue, RequestPolicy
from advisor.emulator.program import Program, unknown
from advisor.emulator.ptx.graph import Block
from advisor.emulator.ptx.ir import TYPE_BITS, Immediate, Instruction, Operand, Register, Symbol
from advisor.emulator.register_pool import RegisterPool
from advisor.emulator.report import KernelFault, Place, Reporter, Who, shown_file
from advisor.emulator.scheduler import Group, LanesMissing, Parked, Scheduler
from advisor.emulator.tcgen05 import Tcgen05
from advisor.emulator.thread_copies import ThreadCopies
from advisor.emulator.transfers import Transfers
from advisor.emulator.undefined_values import UndefinedValues
from advisor.emulator.warpgroups import Warpgroups
from advisor.emulator.wide import B128
from advisor.emulator.world import Cluster, World, warn_uncoalesced

Array = NDArray[Any]
_LANES = np.arange(32, dtype=np.uint32)
_FULL = np.uint32(0xFFFFFFFF)
_SCOPES = {"cta": Scope.CTA, "cluster": Scope.CLUSTER, "gpu": Scope.GPU, "sys": Scope.SYS}
_SEMANTICS = {
    "relaxed": Sem.RELAXED,
    "volatile": Sem.RELAXED,
    "mmio": Sem.RELAXED,
    "acquire": Sem.ACQUIRE,
    "release": Sem.RELEASE,
    "acq_rel": Sem.ACQ_REL,
    "sc": Sem.SC,
}


class Machine:
    """One kernel on one device. `world` decides which clusters are resident, `queue` when asynchronous work lands."""

    def __init__(
        self,
        program: Program,
        world: World,
        global_memory: Global,
        addresses: dict[str, np.uint64],
        parameters: bytes,
        dynamic_smem_bytes: int,
        *,
        queue: AsyncQueue,
        requests: RequestPolicy | None = None,
        seed: int = 0,
        scatter: float = 1 / 16,
        races: bool = True,
        numerics: Numerics = "fp32",
        step_limit: int = 50_000_000,
        progress: Callable[[int, int], None] | None = None,
        late: Sequence[Buffer] = (),
    ) -> None:
        self.program = program
        self.world = world
        self.queue = queue
        self.step_limit = step_limit
        self.progress = progress  # told how many clusters are over, of how many
        self.numerics: Numerics = numerics
        self.reporter: Reporter = world.reporter
        self.reporter.locator = self
        launch = world.launch
        self.ranks = launch.largest_size  # slots of a cluster; one of the smaller size leaves some of its own empty
        self.warps = -(-launch.threads // 32)
        first = world.start()
        capacity = sum(world.profile.sm_groups) * world.slots_per_sm // launch.cluster_size
        self.cluster_slots = min(launch.total_clusters, max(capacity, len(first)))
        self.slots = self.cluster_slots * self.ranks
        self.rows = self.slots * self.warps
        rows = self.rows
        self.registers: list[Array] = [np.zeros((rows, 32), kind) for kind in program.dtypes]
        self.alive: Array = np.zeros((rows, 32), bool)
        self.slot_of: Array = np.arange(rows) // self.warps
        self.cluster_slot_of: Array = self.slot_of // self.ranks
        self.live_warps: Array = np.zeros(self.slots, np.int64)
        self.cluster_live: Array = np.zeros(self.cluster_slots, np.int64)
        self.rank: Array = (self.slot_of % self.ranks).astype(np.uint32)[:, None]
        self.first_slot: Array = (self.cluster_slot_of * self.ranks)[:, None]
        self.window: Array = np.repeat(self.rank << np.uint32(RANK_SHIFT), 32, axis=1)
        self.clusters: list[Cluster | None] = [None] * self.cluster_slots
        self.cluster_shape: Array = np.tile(np.array(launch.largest, np.uint32), (self.cluster_slots, 1))
        self.ctaid: Array = np.zeros((self.slots, 3), np.uint32)
        self.specials: dict[str, Array] = {}
        # memory
        self.globals = global_memory
        self.addresses = addresses
        self.parameters = Bytes(len(parameters), shadow=False)
        self.parameters.data[: len(parameters)] = np.frombuffer(parameters, np.uint8)
        self.shared = Shared(self.slots, program.static_bytes, dynamic_smem_bytes, program.dynamic_start)
        self.local = Local(rows * 32, program.frame_bytes)
        self.thread: Array = np.arange(rows * 32).reshape(rows, 32)
        # order
        self.races = races
        self.order = Order(self.reporter)
        self.order_row: Array = np.zeros(rows, np.int64)
        self.shared_shadow = Shadow("shared", 0, self.shared.bytes.data.size)
        self.global_shadow = Shadow("global", 0, global_memory.bytes.data.size)
        self.cluster_points: list[dict[int, SyncPoint]] = [{} for _ in range(self.cluster_slots)]
        self.barrier_points: dict[int, SyncPoint] = {}  # by barrier: releases of warps that arrive and go on
        self.copies = ThreadCopies(self)
        self.random = np.random.default_rng(seed)
        self.bytes_moved: Counter[str] = Counter()
        self.multiply_adds: Counter[str] = Counter()  # of tcgen05
        self.phases: Counter[str] = Counter()  # completed, by kind of barrier
        self.counts = Counts(program.dynamic_start)
        self.stored: Array = np.zeros(self.cluster_slots, np.int64)  # bytes to global memory, of who is resident
        self.stored_by: Counter[int] = Counter()  # the same of clusters that are over, by their serial
        self.exit_site = -1
        self.engine = Engine(self)
        self.transfers = Transfers(self)
        self.warpgroups = Warpgroups(self)
        self.clc = ClusterLaunchControl(self, requests or RequestPolicy())
        self.undefined = UndefinedValues(self)
        self.at_launch = len(first)
        uses_tcgen05 = any(each.opcode == "tcgen05" for each in program.instructions)
        self.tcgen05 = Tcgen05(self) if uses_tcgen05 else None
        self.scheduler = Scheduler(self, seed, scatter)
        self.predecessor = Predecessor(self, late)
        self.register_pool = RegisterPool(self)
        self._begin(first)

    # --- clusters -----------------------------------------------------------------------------------------------

    def start_clusters(self) -> bool:
        """Starts what waits and fits. True where something started."""
        self.clc.pass_time()
        # Clusters of which some CTAs have exited leave room on the SMs; their rows are free when all have.
        free = self.clusters.count(None)
        begun = self.world.start(free) if self.world.pending and free else []
        self._begin(begun)
        return bool(begun)

    def _begin(self, begun: list[Cluster]) -> None:
        if not begun:
            return
        free = [index for index, each in enumerate(self.clusters) if each is None]
        started = [self._place(index, cluster) for index, cluster in zip(free[: len(begun)], begun, strict=True)]
        rows = np.sort(np.concatenate(started))
        self.specials = {name: each for name, each in self.specials.items() if name in _FIXED}
        mask = None if self.world.launch.threads % 32 == 0 else self.alive[rows]
        self.scheduler.enter(Group(rows, mask, 0, None), 0)

    def _place(self, index: int, cluster: Cluster) -> Array:
        self.clusters[index] = cluster
        self.cluster_shape[index] = cluster.shape
        self.counts.sizes[cluster.serial] = cluster.size
        cx, cy, _ = cluster.shape
        first, size = index * self.ranks, cluster.size
        for rank in range(size):
            x, y, z = cluster.first_ctaid
            self.ctaid[first + rank] = (x + rank % cx, y + rank // cx % cy, z + rank // (cx * cy))
            self.shared.clear(first + rank)
            if self.races:
                self.shared_shadow.clear((first + rank) * self.shared.stride, self.shared.stride)
        rows = np.arange(first * self.warps, (first + size) * self.warps)
        threads = np.tile(np.arange(self.warps * 32).reshape(self.warps, 32), (size, 1))
        self.alive[rows] = threads < self.world.launch.threads
        self.live_warps[first : first + size] = self.warps
        self.cluster_live[index] = self.warps * size
        self.copies.begin(rows)
        self.undefined.forget(rows)
        # As many rows for either size of cluster: its channels come after them, in the same columns.
        self.order_row[rows] = self.order.add_cluster(cluster.serial, self.ranks, self.warps)[:size].ravel()
        self.predecessor.begin(cluster.serial, rows)
        self.register_pool.begin(rows, np.arange(first, first + size))
        for rank in range(size):
            self.engine.begin(first + rank, cluster.serial, rank)
            if self.tcgen05 is not None:
                self.tcgen05.begin(first + rank, cluster, rank, rows[rank * self.warps : (rank + 1) * self.warps])
        self.cluster_points[index] = {}
        self.scheduler.cluster_phase[index] = 0
        self.scheduler.row_phase[rows] = 0
        self.scheduler.cluster_due[rows] = False
        self.scheduler.cluster_arrived[index] = 0
        return rows

    def warps_ended(self, rows: Array) -> None:
        """These warps have no thread left."""
        if self.predecessor.checks:
            self.predecessor.warps_end(rows)
        self.register_pool.warps_end(rows)
        self.copies.warps_end(rows)
        np.subtract.at(self.live_warps, self.slot_of[rows], 1)
        np.subtract.at(self.cluster_live, self.cluster_slot_of[rows], 1)
        for slot in np.unique(self.slot_of[rows]):
            if self.live_warps[slot] == 0:
                index = int(slot) // self.ranks
                cluster = self.clusters[index]
                assert cluster is not None
                of_cta = np.arange(slot * self.warps, (slot + 1) * self.warps)
                self.clc.cta_ended(int(slot), cluster.serial, self.order_row[of_cta])
                if self.tcgen05 is not None:
                    self.tcgen05.end(int(slot), of_cta)
                self.engine.end(int(slot), of_cta)
                if self.world.exit_cta(cluster.serial, int(slot) % self.ranks):
                    self.clc.cluster_ended(cluster.serial)
                    self.order.retire_cluster(cluster.serial)
                    self.stored_by[cluster.serial] = int(self.stored[index])
                    self.stored[index] = 0
                    self.clusters[index] = None

    # --- places and faults --------------------------------------------------------------------------------------

    def who(self, row: int) -> Who:
        cluster = self.clusters[int(self.cluster_slot_of[row])]
        serial = -1 if cluster is None else cluster.serial
        return Who(serial, int(self.rank[row, 0]), int(row) % self.warps)

    def place(self, who: Who | None, pc: int, lane: int | None) -> Place:
        """The reporter's question: where is this in the PTX, and which CTA is it."""
        line, source, text = None, None, ""
        if 0 <= pc < len(self.program.instructions):
            instruction = self.program.instructions[pc]
            line, text = instruction.line, instruction.text
            if instruction.place is not None:
                source = f"{shown_file(instruction.place.file)}:{instruction.place.line}"
        if who is None:
            return Place(line, source, text, lane=lane)
        cta = None
        for index, cluster in enumerate(self.clusters):
            if cluster is not None and cluster.serial == who.cluster:
                x, y, z = (int(each) for each in self.ctaid[index * self.ranks + who.rank])
                cta = (x, y, z)
        return Place(line, source, text, who.cluster, cta, who.rank, who.warp, lane)

    def fail(self, group: Group, site: int, code: str, message: str, row: int, lane: int) -> NoReturn:
        """Raises KernelFault for lane `lane` of the group's warp `row`."""
        self.reporter.fail(code, message, self.who(int(group.rows[row])), site, lane)

    def line(self, site: int) -> int:
        return self.program.instructions[site].line

    def refuse(self, instruction: Instruction, why: str) -> NoReturn:
        raise unknown(instruction, why)

    def trap(self, group: Group, site: int, lanes: Array | None) -> None:
        on = group.lanes() if lanes is None else lanes
        if on.any():
            row, lane = (int(each) for each in np.argwhere(on)[0])
            self.fail(group, site, "EMU_TRAP", "the kernel has stopped itself: a failed assertion", row, lane)

    # --- values -------------------------------------------------------------------------------------------------

    def operand(self, group: Group, operand: Operand, kind: str) -> Array:
        """An operand of the instruction that ends a block, [n, 32]."""
        bits = TYPE_BITS[kind]
        if isinstance(operand, Register):
            value = self.registers[self.program.slots[operand.name]][group.sel]
            return value if bits == 1 else value.astype(UNSIGNED[bits // 8], copy=False)
        if isinstance(operand, Immediate):
            return np.full((group.n, 32), operand.value & ((1 << bits) - 1), UNSIGNED[bits // 8])
        if isinstance(operand, Symbol) and operand.name in self.program.shared:
            offset = SHARED_START + self.program.shared[operand.name] + operand.offset
            found: Array = (self.window[group.sel] | np.uint32(offset)).astype(UNSIGNED[bits // 8])
            return found
        raise TypeError(f"{operand} is no operand of a wait")

    def set(self, group: Group, operand: Operand, value: Array) -> None:
        """Writes the result of an instruction that ends a block."""
        if isinstance(operand, Register) and operand.name in self.program.slots:
            target = self.registers[self.program.slots[operand.name]]
            target[group.sel] = value if group.mask is None else np.where(group.mask, value, target[group.sel])

    def special(self, name: str) -> Array:
        found = self.specials.get(name)
        if found is None:
            found = self.specials[name] = np.ascontiguousarray(np.broadcast_to(self._special(name), (self.rows, 32)))
        return found

    def _special(self, name: str) -> Any:
        launch = self.world.launch
        root, _, axis = name.partition(".")
        if axis:
            return self._vector(root, "xyz".index(axis))
        thread = (np.arange(self.rows) % self.warps * 32)[:, None] + np.arange(32)
        lane = np.broadcast_to(_LANES, (self.rows, 32))
        values: dict[str, Callable[[], Any]] = {
            "laneid": lambda: lane,
            "warpid": lambda: (thread // 32).astype(np.uint32),
            "nwarpid": lambda: np.uint32(64),
            "smid": lambda: self._smid()[:, None],
            "nsmid": lambda: np.uint32(self.world.profile.sms),
            "gridid": lambda: np.uint64(1),
            "cluster_ctarank": lambda: self.rank,
            "cluster_nctarank": lambda: self.cluster_shape.prod(axis=1, dtype=np.uint32)[self.cluster_slot_of][:, None],
            "is_explicit_cluster": lambda: np.bool_(self.ranks > 1),
            "lanemask_eq": lambda: np.uint32(1) << lane,
            "lanemask_lt": lambda: (np.uint32(1) << lane) - np.uint32(1),
            "lanemask_le": lambda: ((np.uint32(1) << lane) << np.uint32(1)) - np.uint32(1),
            "lanemask_gt": lambda: ~(((np.uint32(1) << lane) << np.uint32(1)) - np.uint32(1)),
            "lanemask_ge": lambda: ~((np.uint32(1) << lane) - np.uint32(1)),
            "dynamic_smem_size": lambda: np.uint32(self.shared.size - self.shared.dynamic_start),
            "total_smem_size": lambda: np.uint32(self.shared.size),
        }
        if name not in values:
            raise unknown(self.program.instructions[0], f"%{name} is not known; the launch is {launch.grid}")
        return values[name]()

    def _vector(self, root: str, axis: int) -> Any:
        launch = self.world.launch
        bx, by, _ = launch.block
        slot = self.slot_of
        if root == "tid":
            thread = (np.arange(self.rows) % self.warps * 32)[:, None] + np.arange(32)
            return ((thread % bx, thread // bx % by, thread // (bx * by))[axis]).astype(np.uint32)
        if root == "ctaid":
            return self.ctaid[slot, axis][:, None]
        extent = self.cluster_shape[self.cluster_slot_of, axis][:, None]  # clusters number the grid by their own size
        if root == "clusterid":
            return self.ctaid[slot, axis][:, None] // extent
        if root == "cluster_ctaid":
            return self.ctaid[slot, axis][:, None] % extent
        if root == "nclusterid":
            return np.uint32(launch.grid[axis]) // extent
        if root == "cluster_nctaid":
            return extent
        return np.uint32({"ntid": launch.block, "nctaid": launch.grid}[root][axis])

    def _smid(self) -> Array:
        found = np.zeros(self.rows, np.uint32)
        for index, cluster in enumerate(self.clusters):
            if cluster is not None:
                for rank, sm in enumerate(cluster.smids):
                    found[self.slot_of == index * self.ranks + rank] = sm
        return found

    def time(self, name: str, n: int) -> Array:
        """Clocks only run forward: a tick is a block of one group."""
        ticks = self.scheduler.steps * 32
        if name in ("clock64", "globaltimer"):
            return np.full((n, 32), ticks, np.uint64)
        high = name.endswith("_hi")
        return np.full((n, 32), ticks >> 32 if high else ticks & 0xFFFFFFFF, np.uint32)

    # --- loads and stores ---------------------------------------------------------------------------------------

    def load_global(self, g: Group, a: Access, address: Array, mask: Array | None) -> list[Array]:
        if mask is not None and not np.count_nonzero(mask):
            return [np.zeros(address.shape, UNSIGNED[a.width])] * a.count
        try:
            offset, whole = self.globals.offsets(address, a.size, mask, a.site)
            if self.predecessor.checks:
                self.predecessor.accessed(g, a.site, offset, mask, write=False)
            self._seen(g, a, self.global_shadow, offset, mask, reads=True)
            return gather(self.globals.bytes, offset, a.width, a.count, mask, not whole)
        except AccessFault as fault:
            self._refused(g, a.site, fault)

    def store_global(self, g: Group, a: Access, address: Array, values: list[Array], mask: Array | None) -> None:
        if mask is not None and not np.count_nonzero(mask):
            return
        try:
            offset, whole = self.globals.offsets(address, a.size, mask, a.site)
        except AccessFault as fault:
            self._refused(g, a.site, fault)
        if self.predecessor.checks:
            self.predecessor.accessed(g, a.site, offset, mask, write=True)
        self._seen(g, a, self.global_shadow, offset, mask, values=values, memory=self.globals.bytes)
        lanes = 32 if mask is None else np.count_nonzero(mask, axis=1)
        np.add.at(self.stored, self.cluster_slot_of[g.sel], lanes * a.size)
        scatter(self.globals.bytes, offset, a.width, values, mask, not whole)

    def load_shared(self, g: Group, a: Access, address: Array, mask: Array | None) -> list[Array]:
        if mask is not None and not np.count_nonzero(mask):
            return [np.zeros(address.shape, UNSIGNED[a.width])] * a.count
        try:
            offset = self.shared_places(g, a, address, mask)
            self._seen(g, a, self.shared_shadow, offset, mask, reads=True)
            values = gather(self.shared.bytes, offset, a.width, a.count, mask, True)
        except AccessFault as fault:
            self._refused(g, a.site, fault)
        if self.races and self.copies.pending:
            self.copies.accessed(g, a, offset, mask, write=False)
        return values

    def store_shared(self, g: Group, a: Access, address: Array, values: list[Array], mask: Array | None) -> None:
        if mask is not None and not np.count_nonzero(mask):
            return
        offset = self.shared_offsets(g, a, address, mask)
        if self.races and self.copies.pending:
            self.copies.accessed(g, a, offset, mask, write=True)
        self._seen(g, a, self.shared_shadow, offset, mask, values=values, memory=self.shared.bytes)
        scatter(self.shared.bytes, offset, a.width, values, mask, True)
        if a.everywhere and self.ranks > 1:
            remote = (address >> np.uint32(RANK_SHIFT)) != self.rank[g.sel]
            self.counts.remote_bytes += a.size * int(np.count_nonzero(remote if mask is None else remote & mask))

    def shared_offsets(self, g: Group, a: Access, address: Array, mask: Array | None) -> Array:
        """Places in the bytes of all shared memory. Raises KernelFault for those that are none."""
        try:
            return self.shared_places(g, a, address, mask)
        except AccessFault as fault:
            self._refused(g, a.site, fault)

    def shared_places(self, g: Group, a: Access, address: Array, mask: Array | None) -> Array:
        own = None if a.everywhere else self.rank[g.sel]
        offset = self.shared.offsets(address, a.size, mask, self.first_slot[g.sel], self.ranks, own)
        if a.everywhere and self.ranks > 1:
            self.peers(g, a.site, address, a.size, mask)
        return offset

    def peers(self, g: Group, site: int, address: Array, size: int, mask: Array | None) -> None:
        """Every CTA that is accessed runs, and its start is ordered before the access; how many sectors that takes."""
        rank = (address >> np.uint32(RANK_SHIFT)).astype(np.int64)
        for index in range(g.n):
            row = int(g.rows[index])
            remote = rank[index] != int(self.rank[row, 0])
            if mask is not None:
                remote &= mask[index]
            if not remote.any():
                continue
            for each in np.unique(rank[index][remote]).tolist():
                started = self.order.knows_started(int(self.order_row[row]), each)
                self.world.check_peer(self.who(row), each, started, site)
            warn_uncoalesced(self.reporter, address[index][remote].astype(np.int64), size, self.who(row), site)

    def load_local(self, g: Group, a: Access, address: Array, mask: Array | None) -> list[Array]:
        if mask is not None and not np.count_nonzero(mask):
            return [np.zeros(address.shape, UNSIGNED[a.width])] * a.count
        try:
            offset = self.local.offsets(address, a.size, mask, self.thread[g.sel])
            return gather(self.local.bytes, offset, a.width, a.count, mask, True)
        except AccessFault as fault:
            self._refused(g, a.site, fault)

    def store_local(self, g: Group, a: Access, address: Array, values: list[Array], mask: Array | None) -> None:
        if mask is not None and not np.count_nonzero(mask):
            return
        try:
            offset = self.local.offsets(address, a.size, mask, self.thread[g.sel])
        except AccessFault as fault:
            self._refused(g, a.site, fault)
        scatter(self.local.bytes, offset, a.width, values, mask, True)

    def load_param(self, g: Group, a: Access, address: Array, mask: Array | None) -> list[Array]:
        """Parameters by a computed address."""
        on = np.ones(address.shape, bool) if mask is None else mask
        size = self.program.param_bytes
        bad = on & ((address + np.uint64(a.size) > np.uint64(size)) | (address % np.uint64(a.size) != 0))
        if bad.any():
            row, lane = (int(each) for each in np.argwhere(bad)[0])
            message = f"{a.size} bytes at offset {int(address[row, lane])} of the parameters, which have {size}"
            self.fail(g, a.site, "EMU_OUT_OF_BOUNDS", message, row, lane)
        offset = np.where(on, address, np.uint64(0)).view(np.int64)
        return gather(self.parameters, offset, a.width, a.count, mask, False)

    def store_param(self, g: Group, a: Access, address: Array, values: list[Array], mask: Array | None) -> None:
        self.fail(g, a.site, "EMU_OUT_OF_BOUNDS", "a store to the parameters of a kernel", 0, 0)

    # --- generic addresses --------------------------------------------------------------------------------------

    def load_generic(self, g: Group, a: Access, address: Array, mask: Array | None) -> list[Array]:
        parts = self._windows(address, mask)
        if len(parts) == 1:
            space, place, lanes = parts[0]
            found: list[Array] = getattr(self, f"load_{space}")(g, _in_space(a, space), place, lanes)
            return found
        result = [np.zeros(address.shape, UNSIGNED[a.width]) for _ in range(a.count)]
        for space, place, lanes in parts:
            part = getattr(self, f"load_{space}")(g, _in_space(a, space), place, lanes)
            assert lanes is not None
            result = [np.where(lanes, new, old) for new, old in zip(part, result, strict=True)]
        return result

    def store_generic(self, g: Group, a: Access, address: Array, values: list[Array], mask: Array | None) -> None:
        for space, place, lanes in self._windows(address, mask):
            getattr(self, f"store_{space}")(g, _in_space(a, space), place, values, lanes)

    def _windows(self, address: Array, mask: Array | None) -> list[tuple[str, Array, Array | None]]:
        """The lanes of each space, with their addresses in it."""
        on = np.ones(address.shape, bool) if mask is None else mask
        window = address >> np.uint64(33)
        parts: list[tuple[str, Array, Array | None]] = []
        left = on
        for space, base, kind in (
            ("shared", SHARED_WINDOW, np.uint32),
            ("local", LOCAL_WINDOW, np.uint64),
            ("param", PARAM_WINDOW, np.uint64),
        ):
            inside = on & (window == np.uint64(base >> 33))
            if inside.any():
                parts.append((space, (address - np.uint64(base)).astype(kind), inside))
                left = left & ~inside
        if left.any() or not parts:
            parts.append(("global", address, mask if not parts else left))
        return parts

    # --- atomics ------------------------------------------------------------------------------------------------

    def atomic(
        self,
        g: Group,
        a: Access,
        address: Array,
        updates: Mapping[str, Update],
        b: list[Array],
        c: Array | None,
        mask: Array | None,
    ) -> list[Array]:
        """The old values of each element. Of a vector, each element is updated by itself (PTX ISA, atom). `updates` is
        by state space: what an operation does to subnormal numbers depends on it."""
        kind = B128 if a.width == 16 else UNSIGNED[a.width]
        if a.space == "generic":
            result = np.zeros(address.shape, kind)
            for space, place, lanes in self._windows(address, mask):
                (part,) = self.atomic(g, _in_space(a, space), place, updates, b, c, lanes)
                result = part if lanes is None else np.where(lanes, part, result)
            return [result]
        if mask is not None and not np.count_nonzero(mask):
            return [np.zeros(address.shape, kind)] * a.count
        try:
            if a.space == "shared":
                memory, shadow = self.shared.bytes, self.shared_shadow
                offset = self.shared_places(g, a, address, mask)
            else:
                memory, shadow = self.globals.bytes, self.global_shadow
                offset = self.globals.offsets(address, a.size, mask, a.site)[0]
                if self.predecessor.checks:
                    self.predecessor.accessed(g, a.site, offset, mask, write=True)
            gather(memory, offset, min(a.width, 8), a.size // min(a.width, 8), mask, True)
        except AccessFault as fault:
            self._refused(g, a.site, fault)
        self._seen(g, a, shadow, offset, mask, reads=True, atomic=True)
        update = updates[a.space]
        return [atomic(memory, offset + i * a.width, a.width, update, each, c, mask) for i, each in enumerate(b)]

    # --- order --------------------------------------------------------------------------------------------------

    def _seen(
        self,
        g: Group,
        a: Access,
        shadow: Shadow,
        offset: Array,
        mask: Array | None,
        *,
        reads: bool = False,
        atomic: bool = False,
        values: list[Array] | None = None,
        memory: Bytes | None = None,
    ) -> None:
        """Tells the happens-before checks of an access."""
        lanes = offset.size if mask is None else int(np.count_nonzero(mask))
        self.bytes_moved[f"{a.space} {'atomic' if atomic else 'load' if reads else 'store'}"] += lanes * a.size
        if not self.races:
            return
        strength = "relaxed" if atomic and a.strength == "weak" else a.strength
        scope = _SCOPES["gpu" if atomic and a.scope == "sys" else a.scope]
        strong = None if strength == "weak" else scope
        rows = self.order_row[g.rows]
        if strong is not None:
            self._strong(g, shadow, offset, mask, _SEMANTICS[strength], scope, reads or atomic, not reads or atomic)

        def payload() -> tuple[Array, Array]:
            assert values is not None
            assert memory is not None
            held = gather(memory, offset, a.width, a.count, mask, False)
            shape = offset.shape
            return np.stack([np.broadcast_to(each, shape) for each in values], -1), np.stack(held, -1)

        self.order.access(
            shadow,
            rows,
            offset,
            a.size,
            a.site,
            write=atomic or not reads,
            mask=mask,
            strong=strong,
            atomic=atomic,
            payload=payload if values is not None else None,
        )

    def _strong(
        self,
        g: Group,
        shadow: Shadow,
        offset: Array,
        mask: Array | None,
        sem: Sem,
        scope: Scope,
        reads: bool,
        writes: bool,
    ) -> None:
        for index in range(g.n):
            row = int(self.order_row[g.rows[index]])
            for place in np.unique(offset[index] if mask is None else offset[index][mask[index]]):
                if writes and not reads:
                    self.order.overwrite(shadow.space, int(place))
                self.order.strong(shadow.space, int(place), row, sem, scope, reads=reads, writes=writes)

    def fence(self, g: Group, site: int, qualifiers: tuple[str, ...], lanes: Array | None) -> None:
        rows = self.order_row[g.rows if lanes is None else g.rows[lanes.any(axis=1)]]
        if not len(rows) or not self.races:
            return
        scope = next((_SCOPES[each] for each in qualifiers if each in _SCOPES), Scope.SYS)
        if "gl" in qualifiers:
            scope = Scope.GPU
        sem = next((_SEMANTICS[each] for each in qualifiers if each in _SEMANTICS), Sem.ACQ_REL)
        if "mbarrier_init" in qualifiers:
            self.order.fence_mbarrier_init(rows.tolist())
        elif "tensormap::generic" in qualifiers:
            self.order.fence_proxy_tensormap(rows, sem, scope)
        elif "async::generic" in qualifiers:
            self.order.fence_proxy_async_restricted(rows, sem)
        elif "async" in qualifiers:
            names = {"global": "global", "shared::cta": "shared", "shared::cluster": "shared"}
            space = next((names[each] for each in qualifiers if each in names), None)
            self.order.fence_proxy_async(rows, space)  # type: ignore[arg-type]
        elif "proxy" not in qualifiers:
            self.order.fence(rows.tolist(), sem, scope)

    def ordered_barrier_arrival(self, rows: Array, keys: Array) -> None:
        """bar.arrive: what the warp has done until now is released, and what it does until others meet is not."""
        if self.races:
            for row, key in zip(self.order_row[rows].tolist(), keys.tolist(), strict=True):
                point = self.barrier_points.setdefault(key, SyncPoint())
                self.order.release(point, row, Sem.RELEASE, Scope.CTA)

    def ordered_barrier(self, key: int, rows: Array) -> None:
        """The warps that wait have met each other, and those that arrived earlier without waiting."""
        if not self.races:
            return
        point = self.barrier_points.pop(key, SyncPoint())
        for row in self.order_row[rows].tolist():
            self.order.acquire(point, row, Sem.ACQUIRE, Scope.CTA)
        if len(rows):
            self.order.cta_barrier(self.order_row[rows])

    def ordered_warp_barrier(self, rows: Array) -> None:
        """The lanes of these warps have met."""
        if self.races:
            self.order.lanes_met(self.order_row[rows])

    def ordered_cluster_arrival(self, rows: Array, relaxed: Array) -> None:
        for row, is_relaxed in zip(rows, relaxed, strict=True):
            sem = Sem.RELAXED if is_relaxed else Sem.RELEASE
            index = int(self.cluster_slot_of[row])
            phase = int(self.scheduler.cluster_phase[index])
            points = self.cluster_points[index]
            if phase not in points:
                points[phase] = SyncPoint()
                points.pop(phase - 2, None)
            self.order.release(points[phase], int(self.order_row[row]), sem, Scope.CLUSTER)

    def ordered_cluster_wait(self, rows: Array) -> None:
        for row in rows:
            point = self.cluster_points[int(self.cluster_slot_of[row])][int(self.scheduler.row_phase[row]) - 1]
            self.order.acquire(point, int(self.order_row[row]), Sem.ACQUIRE, Scope.CLUSTER)

    def _refused(self, g: Group, site: int, fault: AccessFault) -> NoReturn:
        self.fail(g, site, fault.code, fault.message, *fault.where)

    # --- clusters and barriers, from generated code -------------------------------------------------------------

    def mapped(self, address: Array, rank: Array) -> Array:
        """`mapa`: the same place in the window of another CTA."""
        kind = address.dtype.type
        found: Array = (address & kind((1 << RANK_SHIFT) - 1)) | (rank.astype(kind) << kind(RANK_SHIFT))
        return found

    def barrier_arrive(self, g: Group, site: int, number: Array, count: Array, lanes: Array | None) -> None:
        self.scheduler.arrive(g, site, number, count, lanes)

    def cluster_arrive(self, g: Group, site: int, relaxed: bool, lanes: Array | None) -> None:
        self.scheduler.cluster_arrive(g, site, relaxed, lanes)

    # --- lanes together -----------------------------------------------------------------------------------------

    shuffle = staticmethod(warps.shuffle)
    ballot = staticmethod(warps.ballot)
    vote = staticmethod(warps.vote)
    match_any = staticmethod(warps.match_any)
    match_all = staticmethod(warps.match_all)
    reduce = staticmethod(warps.reduce)
    reduce_float = staticmethod(warps.reduce_float)
    elect = staticmethod(warps.elect)

    def members(self, g: Group, site: int, named: Array, lanes: Array | None) -> Array | None:
        """The lanes that take part. All that the mask names must be here, and all that are here be named."""
        self.ordered_warp_barrier(g.rows)
        if lanes is None and not np.count_nonzero(named != _FULL):
            return None
        on: Array = np.ones((g.n, 32), bool) if lanes is None else lanes
        first = on.argmax(axis=1)
        mask = named[np.arange(g.n), first][:, None]
        wanted = ((mask >> _LANES) & np.uint32(1)).astype(bool)
        stray = on & ~wanted
        if self.scheduler.meetings.elsewhere is not None:
            on = on | self.scheduler.meetings.elsewhere[g.rows]
        missing = wanted & self.alive[g.sel] & ~on & np.asarray(on.any(axis=1))[:, None]
        for bad, what in ((stray, "is not in the mask that it names"), (missing, "is named by the mask but not here")):
            if bad.any():
                row, lane = (int(each) for each in np.argwhere(bad)[0])
                message = f"lane {lane} {what} ({int(mask[row, 0]):#010x})"
                if bad is missing:
                    raise LanesMissing(site, message, (row, lane))
                self.fail(g, site, "EMU_WARP_SYNC", message, row, lane)
        return on

    # --- matrices -----------------------------------------------------------------------------------------------

    transposed = staticmethod(fragments.transposed)

    def whole_warps(self, g: Group, site: int, lanes: Array | None) -> None:
        """`.aligned`: every lane of a warp that comes here is here."""
        self.ordered_warp_barrier(g.rows)
        if lanes is not None and not lanes.all():
            row, lane = (int(each) for each in np.argwhere(~lanes)[0])
            message = f"an instruction of the whole warp, and lane {lane} is not here"
            self.fail(g, site, "EMU_WARP_SYNC", message, row, lane)

    def load_matrix(
        self, g: Group, a: Access, address: Array, shape: str, count: int, transpose: bool, source: str
    ) -> list[Array]:
        used = fragments.row_lanes(shape, count)
        low, high = self.load_shared(g, a, address, None if used == 32 else _lanes_below(g.n, used))
        rows = np.stack((low, high), axis=-1)[:, :used].view(np.uint8).reshape(g.n, count, used // count, 16)
        if source:
            rows = fragments.decompressed(rows, source)
        return fragments.unstack(fragments.loaded(rows, shape, transpose=transpose))

    def store_matrix(
        self, g: Group, a: Access, address: Array, shape: str, transpose: bool, registers: list[Array]
    ) -> None:
        rows = fragments.stored(fragments.stack(registers), shape, transpose=transpose)
        used = rows.shape[1] * 8
        words = np.zeros((g.n, 32, 2), np.uint64)
        words[:, :used] = np.ascontiguousarray(rows).reshape(g.n, used, 16).view(np.uint64)
        mask = None if used == 32 else _lanes_below(g.n, used)
        self.store_shared(g, a, address, [words[..., 0], words[..., 1]], mask)

    # --- waits for asynchronous work ----------------------------------------------------------------------------

    def wait(self, group: Group, block: Block, instruction: Instruction) -> bool:
        if self.tcgen05 is not None and instruction.opcode == "tcgen05":
            return self.tcgen05.wait(group, block, instruction)
        if instruction.opcode != "mbarrier":
            self.refuse(instruction, "")
        return self.engine.wait(group, block, instruction)

    def reason(self, parked: Parked) -> str:
        if self.tcgen05 is not None and parked.kind == "tcgen05":
            return self.tcgen05.reason(parked)
        if parked.kind == "registers":
            return self.register_pool.reason(parked)
        return self.engine.reason(parked)

    def idle(self) -> bool:
        """No warp can run: lands something that is in flight, or other work gives its SMs back. False where neither."""
        return self.queue.idle() > 0 or self.clc.resume()

    def finish(self) -> None:
        """The grid is done; what nobody had to wait for lands now."""
        while self.queue.idle():
            pass


_FIXED = frozenset(
    [
        "tid.x",
        "tid.y",
        "tid.z",
        "ntid.x",
        "ntid.y",
        "ntid.z",
        "nctaid.x",
        "nctaid.y",
        "nctaid.z",
        "laneid",
        "warpid",
        "nwarpid",
        "nsmid",
        "cluster_ctarank",
        "lanemask_eq",
        "lanemask_lt",
        "lanemask_le",
        "lanemask_gt",
        "lanemask_ge",
        "dynamic_smem_size",
        "total_smem_size",
    ]
)
"""Special registers that do not change when another CTA takes a slot."""


def _lanes_below(n: int, count: int) -> Array:
    return np.repeat((np.arange(32) < count)[None, :], n, axis=0)


def _in_space(a: Access, space: str) -> Access:
    return Access(a.site, space, a.width, a.count, True, a.strength, a.scope)


__all__ = ["GLOBAL_BASE", "KernelFault", "Machine"]
