"""Who is ordered before whom: vector clocks, the asynchronous proxy, scopes, and shadow memory. Imports `report`.

The rules are those of the PTX memory consistency model (PTX ISA chapter 8): two overlapping accesses of which one
writes are a data race unless they are related in causality order or are morally strong (8.7.1); synchronisation comes
from barriers, from release and acquire patterns and from fences (8.8, 8.9.4), and reaches other threads through its
transitivity (8.9.5). Accesses of the generic and of the asynchronous proxy to one location also need a proxy fence on
the path between them (8.6; 9.7.9.25.2), except that the completion of an asynchronous operation brings its own.

**Agents.** A warp is an agent: its lanes share a clock, so the order between lanes of one warp is not checked. An
asynchronous operation has its own record with a clock of a *channel*: of the mbarrier that it signals (the clock is the
number of the phase in which it landed) or of the group that it belongs to (the number of the group). Both complete in
order, so "has observed phase p" and "has waited for group g" are single numbers, as program order is for a warp.

**Views.** What a warp knows is one vector per `View`, since a path counts for some pairs of accesses and not for
others. A new kind of ordering (tensor memory, for one) is one more view and one more method; nothing here lists agents
or barriers by kind.

**Shadow memory** keeps, for each granule, the record of the last write and the records of the reads since. The granule
starts at 16 bytes and is refined when a smaller access arrives, which loses nothing: every access until then was whole
granules. One call takes a whole batch of warps, or a whole bulk copy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NoReturn

import numpy as np
import numpy.typing as npt

from advisor.emulator.report import Event, Reporter, Who

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Space = Literal["shared", "global"]

IN_FLIGHT = 2**31 - 1  # the clock of an operation that nobody can have observed
MAX_READERS = 256  # a granule remembers this many readers; of more, the latest


class View(IntEnum):
    """The kinds of path between two accesses. A view holds, for each agent, up to which of its clocks a path exists."""

    BASE = 0  # base causality order: generic to generic, and everything after a completed asynchronous operation
    ASYNC_SHARED = 1  # with a proxy fence on it: generic writes of shared memory to the asynchronous proxy
    ASYNC_GLOBAL = 2  # the same for global memory
    INIT = 3  # only mbarrier.init is ordered: fence.mbarrier_init
    READS = 4  # as BASE, whatever the scopes were: enough for a read that has returned before a later write
    STARTED = 5  # execution order alone, relaxed operations included: a peer is known to have started
    TENSORMAP_RELEASED = 6  # fence.proxy.tensormap::generic.release on it
    TENSORMAP = 7  # and the acquire after it


VIEWS = len(View)


class Scope(IntEnum):
    CTA = 0
    CLUSTER = 1
    GPU = 2
    SYS = 3


class Sem(IntEnum):
    RELAXED = 0
    ACQUIRE = 1
    RELEASE = 2
    ACQ_REL = 3
    SC = 4


# Record flags. Bits 0-2 hold 1 + scope of a strong operation, 0 for a weak one.
STRONG_MASK = 7
WRITE = 8
ASYNC = 16
BARRIER = 32  # the write was mbarrier.init
JOINT = 64  # several warps wrote the same value; ordered after one of them is enough
ATOMIC = 128


@dataclass(slots=True)
class Knowledge:
    """Clocks that a release hands on: those of its own cluster, and what it knew of other clusters."""

    cluster: int
    clocks: Ints  # [view, column]
    foreign: dict[int, Ints] = field(default_factory=dict)

    def copy(self) -> Knowledge:
        return Knowledge(self.cluster, self.clocks.copy(), {key: each.copy() for key, each in self.foreign.items()})

    def absorb(self, other: Knowledge) -> None:
        self.clocks = _joined(self.clocks, other.clocks)
        for cluster, clocks in other.foreign.items():
            mine = self.foreign.get(cluster)
            self.foreign[cluster] = clocks.copy() if mine is None else _joined(mine, clocks)

    def only(self, *views: View) -> Knowledge:
        return Knowledge(
            self.cluster, _only(self.clocks, views), {key: _only(each, views) for key, each in self.foreign.items()}
        )


class SyncPoint:
    """What releases have left at a synchronisation object: an mbarrier, a named barrier, an atomic location.

    Kept by the CTA of the releaser and by scope, since a release synchronises with an acquire only when the scope of
    each includes the other thread (morally strong, PTX ISA 8.9.4).
    """

    __slots__ = ("anyone", "parts")

    def __init__(self) -> None:
        self.parts: dict[tuple[int, int, int], Knowledge] = {}  # (cluster, rank, scope level) of the releaser
        self.anyone: dict[int, Knowledge] = {}  # by cluster: completions, which every observer of the object learns

    def copy(self) -> SyncPoint:
        twin = SyncPoint()
        twin.parts = {key: each.copy() for key, each in self.parts.items()}
        twin.anyone = {key: each.copy() for key, each in self.anyone.items()}
        return twin

    def absorb(self, other: SyncPoint) -> None:
        for key, each in other.parts.items():
            self.add(key, each)
        for cluster, each in other.anyone.items():
            self._add_anyone(cluster, each)

    def add(self, key: tuple[int, int, int], knowledge: Knowledge) -> None:
        mine = self.parts.get(key)
        if mine is None:
            self.parts[key] = knowledge.copy()
        else:
            mine.absorb(knowledge)

    def _add_anyone(self, cluster: int, knowledge: Knowledge) -> None:
        mine = self.anyone.get(cluster)
        if mine is None:
            self.anyone[cluster] = knowledge.copy()
        else:
            mine.absorb(knowledge)


class Shadow:
    """Shadow of one linear range of addresses: all global buffers, or the shared windows of all resident CTAs."""

    def __init__(self, space: Space, base: int, size: int) -> None:
        self.space: Space = space
        self.base = base
        self.size = size
        self.shift = 4
        cells = (size >> 4) + 1
        self.writes: Ints = np.zeros(cells, np.int32)  # record of the last write; 0 is the host, before the kernel
        self.reads: Ints = np.zeros(cells, np.int32)  # 0 none, a record, or minus the index of a set of records
        self.holds_barriers = False

    def refine(self, shift: int) -> None:
        """Split the granules. Exact, since every access so far was a whole number of them."""
        factor = 1 << (self.shift - shift)
        self.writes = np.repeat(self.writes, factor)
        self.reads = np.repeat(self.reads, factor)
        self.shift = shift

    def clear(self, address: int, size: int) -> None:
        """Forget a range: a new CTA takes the shared memory of one that has exited."""
        first, last = (address - self.base) >> self.shift, (address - self.base + size) >> self.shift
        self.writes[first:last] = 0
        self.reads[first:last] = 0

    def cells(self, addresses: Longs, size: int) -> Longs:
        """Granules of accesses of `size` bytes, flattened; each access gives size >> shift of them."""
        offsets = addresses - self.base
        low = int(np.bitwise_or.reduce(offsets, initial=0)) | size
        if low & ((1 << self.shift) - 1):
            self.refine((low & -low).bit_length() - 1)
        first = offsets >> self.shift
        count = size >> self.shift
        if count == 1:
            return first
        spread: Longs = (first[:, None] + np.arange(count)).ravel()
        return spread


@dataclass(slots=True)
class Channel:
    """Where asynchronous operations complete in order: the phases of one mbarrier, the groups of one thread."""

    cluster: int
    column: int
    rank: int
    name: str


@dataclass(slots=True, eq=False)
class AsyncOperation:
    """An asynchronous operation between its issue and its completion. `records` are what it did in shadow memory."""

    row: int
    pc: int
    lane: int
    channel: Channel
    records: list[int] = field(default_factory=list)


class Order:
    """The clocks of every resident warp, the records of accesses, and the checks on them."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter or Reporter()
        self.now: Ints = np.zeros((VIEWS, 0, 32), np.int32)
        self.epoch: Ints = np.zeros(0, np.int32)
        self.own: Longs = np.zeros(0, np.int64)  # column of a warp in its cluster
        self.cluster_of: Longs = np.zeros(0, np.int64)
        self.rank_of: Longs = np.zeros(0, np.int64)
        self._foreign: dict[int, dict[int, Ints]] = {}  # row -> cluster -> clocks
        self._released: dict[int, dict[int, Knowledge]] = {}  # row -> scope of a release fence -> what it covers
        self._pending: dict[int, dict[int, SyncPoint]] = {}  # row -> what relaxed reads have observed
        self._clusters: dict[int, _Cluster] = {}
        self._warps_of: dict[int, int] = {}  # of retired clusters too
        self._free_blocks: dict[int, list[int]] = {}
        self._locations: dict[tuple[str, int], SyncPoint] = {}
        self._fence_sc: dict[tuple[int, ...], SyncPoint] = {}
        # records; 0 is the host
        self._count = 1
        self._cluster: Ints = np.full(1024, -1, np.int32)
        self._column: Ints = np.zeros(1024, np.int32)
        self._clock: Ints = np.zeros(1024, np.int32)
        self._rank: Ints = np.zeros(1024, np.int32)
        self._pc: Ints = np.full(1024, -1, np.int32)
        self._flags: Ints = np.zeros(1024, np.int32)
        self._issuer: dict[int, tuple[Who, int]] = {}  # asynchronous record -> issuing warp and lane
        self._cached: dict[tuple[int, int], tuple[Longs, Ints, Ints]] = {}
        self._sets: list[tuple[int, ...]] = [()]
        self._set_index: dict[tuple[int, ...], int] = {(): 0}
        self._unions: dict[tuple[int, int], int] = {}
        self._joint: dict[int, tuple[int, ...]] = {}

    # --- agents -------------------------------------------------------------------------------------------------------

    def add_cluster(self, serial: int, ctas: int, warps: int) -> Longs:
        """Rows of a cluster that becomes resident, [cta rank, warp]. Everything before the launch is ordered before."""
        total = ctas * warps
        self._need_columns(total + 8)
        free = self._free_blocks.setdefault(total, [])
        first = free.pop() if free else self._new_rows(total)
        rows = np.arange(first, first + total)
        self.now[:, rows, :] = 0
        self.epoch[rows] = 1
        self.own[rows] = np.arange(total)
        self.cluster_of[rows] = serial
        self.rank_of[rows] = np.repeat(np.arange(ctas), warps)
        self._clusters[serial] = _Cluster(serial, ctas, warps, first)
        self._warps_of[serial] = warps
        self._mark_own(rows)
        return rows.reshape(ctas, warps)

    def retire_cluster(self, serial: int) -> None:
        """Give the rows back. Records stay: what the cluster did to global memory is still unordered with others."""
        cluster = self._clusters.pop(serial)
        total = cluster.ctas * cluster.warps
        for row in range(cluster.first_row, cluster.first_row + total):
            self._foreign.pop(row, None)
            self._released.pop(row, None)
            self._pending.pop(row, None)
        self._free_blocks[total].append(cluster.first_row)

    def who(self, row: int) -> Who:
        cluster = self._clusters[int(self.cluster_of[row])]
        return Who(cluster.serial, int(self.rank_of[row]), int(self.own[row]) % cluster.warps)

    def channel(self, cluster: int, rank: int, key: Hashable, name: str) -> Channel:
        """The channel with this key of a cluster, made on first use: an mbarrier's, a thread's bulk groups."""
        owner = self._clusters[cluster]
        known = owner.channels.get(key)
        if known is None:
            column = owner.ctas * owner.warps + len(owner.channels)
            self._need_columns(column + 1)
            known = owner.channels[key] = Channel(cluster, column, rank, name)
        return known

    def _new_rows(self, total: int) -> int:
        first = self.epoch.size
        self.now = np.concatenate([self.now, np.zeros((VIEWS, total, self.now.shape[2]), np.int32)], axis=1)
        self.epoch = np.concatenate([self.epoch, np.zeros(total, np.int32)])
        self.own = np.concatenate([self.own, np.zeros(total, np.int64)])
        self.cluster_of = np.concatenate([self.cluster_of, np.zeros(total, np.int64)])
        self.rank_of = np.concatenate([self.rank_of, np.zeros(total, np.int64)])
        return first

    def _need_columns(self, columns: int) -> None:
        width = self.now.shape[2]
        if columns > width:
            more = max(columns, width * 2) - width
            self.now = np.concatenate([self.now, np.zeros((*self.now.shape[:2], more), np.int32)], axis=2)

    def _mark_own(self, rows: Longs) -> None:
        columns = self.own[rows]
        for view in (View.BASE, View.READS, View.STARTED):
            self.now[view, rows, columns] = self.epoch[rows]

    def _tick(self, rows: Longs) -> None:
        self.epoch[rows] += 1
        self._mark_own(rows)

    # --- release and acquire ------------------------------------------------------------------------------------------

    def knowledge(self, row: int) -> Knowledge:
        foreign = self._foreign.get(row)
        copied = {key: each.copy() for key, each in foreign.items()} if foreign else {}
        return Knowledge(int(self.cluster_of[row]), self.now[:, row, :].copy(), copied)

    def release(self, point: SyncPoint, row: int, sem: Sem, scope: Scope) -> None:
        """A release pattern's write: st.release, atom.release, mbarrier.arrive, the arrival at a barrier.

        A relaxed one hands on only what an earlier fence of this thread has released (PTX ISA 8.8, third form of the
        pattern), and the bare fact that this warp has come so far.
        """
        cluster, rank = int(self.cluster_of[row]), int(self.rank_of[row])
        known = self.knowledge(row)
        if sem in (Sem.RELEASE, Sem.ACQ_REL, Sem.SC):
            point.add((cluster, rank, scope), known)
        else:
            point.add((cluster, rank, scope), known.only(View.STARTED))
            for level, covered in self._released.get(row, {}).items():
                point.add((cluster, rank, min(scope, level)), covered)
        self._tick(np.array([row]))

    def complete(self, point: SyncPoint, channel: Channel, clock: int) -> None:
        """An asynchronous operation of `channel` has completed at this object.

        "When the current phase of the mbarrier object is complete, [...] all threads participating in that mbarrier
        object can access the result" (PTX ISA 9.7.9.25.1.2), with an implicit generic-async proxy fence (9.7.9.25.2).
        It orders the operation's own accesses alone, not what its issuer did before (8.9.1.1).
        """
        clocks = np.zeros((VIEWS, channel.column + 1), np.int32)
        clocks[:, channel.column] = clock
        point._add_anyone(channel.cluster, Knowledge(channel.cluster, clocks))

    def acquire(self, point: SyncPoint, row: int, sem: Sem, scope: Scope) -> None:
        """An acquire pattern's read that has observed the object: ld.acquire, a try_wait that returned true.

        A relaxed one learns nothing yet; a later fence of this thread completes the pattern (PTX ISA 8.8).
        """
        if sem in (Sem.ACQUIRE, Sem.ACQ_REL, Sem.SC):
            self._observe(point, row, scope)
        elif point.parts or point.anyone:
            for known in (*point.parts.values(), *point.anyone.values()):
                self._learn(row, known.only(View.STARTED))
            self._pending.setdefault(row, {})[id(point)] = point.copy()

    def _observe(self, point: SyncPoint, row: int, scope: Scope) -> None:
        cluster, rank = int(self.cluster_of[row]), int(self.rank_of[row])
        for known in point.anyone.values():
            self._learn(row, known)
        for (theirs, their_rank, level), known in point.parts.items():
            if theirs != cluster:
                strong = level >= Scope.GPU and scope >= Scope.GPU
            else:
                strong = their_rank == rank or (level >= Scope.CLUSTER and scope >= Scope.CLUSTER)
            self._learn(row, known if strong else known.only(View.READS, View.STARTED))

    def _learn(self, row: int, known: Knowledge) -> None:
        mine = int(self.cluster_of[row])
        self._learn_clocks(row, mine, known.cluster, known.clocks)
        for cluster, clocks in known.foreign.items():
            self._learn_clocks(row, mine, cluster, clocks)

    def _learn_clocks(self, row: int, mine: int, cluster: int, clocks: Ints) -> None:
        if cluster == mine:
            part = self.now[:, row, : clocks.shape[1]]
            np.maximum(part, clocks, out=part)
        else:
            foreign = self._foreign.setdefault(row, {})
            held = foreign.get(cluster)
            foreign[cluster] = clocks.copy() if held is None else _joined(held, clocks)

    def cta_barrier(self, rows: Longs) -> None:
        """All these warps have met: bar.sync, barrier.sync (PTX ISA 8.9.4, second rule). One call per completion."""
        met = self.now[:, rows, :].max(axis=1)
        self.now[:, rows, :] = met[:, None, :]
        if self._foreign:
            together: dict[int, Ints] = {}
            for row in rows.tolist():
                for cluster, clocks in self._foreign.get(row, {}).items():
                    held = together.get(cluster)
                    together[cluster] = clocks if held is None else _joined(held, clocks)
            for row in rows.tolist() if together else ():
                self._foreign[row] = {key: each.copy() for key, each in together.items()}
        self._tick(rows)

    # --- fences -------------------------------------------------------------------------------------------------------

    def fence(self, rows: Iterable[int], sem: Sem, scope: Scope) -> None:
        """fence{.sem}.scope and membar: the fence half of release and acquire patterns, and Fence-SC order.

        `fence.sc` synchronises with every earlier `fence.sc` whose scope and whose own include each other (8.9.4).
        """
        for row in rows:
            if sem in (Sem.ACQUIRE, Sem.ACQ_REL, Sem.SC):
                for point in self._pending.pop(row, {}).values():
                    self._observe(point, row, scope)
            if sem == Sem.SC:
                for level, key in enumerate(self._scope_keys(row)[: min(scope, Scope.GPU) + 1]):
                    shared = self._fence_sc.setdefault(key, SyncPoint())
                    self._observe(shared, row, Scope(level))
                    shared.add((int(self.cluster_of[row]), int(self.rank_of[row]), level), self.knowledge(row))
            if sem in (Sem.RELEASE, Sem.ACQ_REL, Sem.SC):
                self._cover(row, scope, self.knowledge(row))
                self._tick(np.array([row]))

    def fence_mbarrier_init(self, rows: Iterable[int]) -> None:
        """fence.mbarrier_init.release.cluster: covers only this thread's prior mbarrier.init (PTX ISA 9.7.13.4)."""
        for row in rows:
            known = self.knowledge(row)
            known.clocks[View.INIT] = np.maximum(known.clocks[View.INIT], known.clocks[View.BASE])
            self._cover(row, Scope.CLUSTER, known.only(View.INIT))
            self._tick(np.array([row]))

    def fence_proxy_async(self, rows: Longs, space: Space | None = None) -> None:
        """fence.proxy.async{.global, .shared::cta, .shared::cluster}: generic accesses before it, by this thread or
        ordered before this thread, precede asynchronous ones after it (PTX ISA 9.7.13.4; the fence may lie anywhere on
        the path, 8.9.5). Without a space it is for all of them."""
        for wanted, view in (("shared", View.ASYNC_SHARED), ("global", View.ASYNC_GLOBAL)):
            if space is None or space == wanted:
                self._lift(rows, View.BASE, view)
        self._tick(rows)

    def fence_proxy_async_restricted(self, rows: Longs, sem: Sem) -> None:
        """fence.proxy.async::generic.{release, acquire}.sync_restrict::shared::*.cluster: one direction, in a pair."""
        if sem == Sem.RELEASE:
            self._lift(rows, View.BASE, View.ASYNC_SHARED)
        self.fence(rows.tolist(), sem, Scope.CLUSTER)

    def fence_proxy_tensormap(self, rows: Longs, sem: Sem, scope: Scope) -> None:
        """fence.proxy.tensormap::generic.{release, acquire}.scope; tensormap.cp_fenceproxy ends with the release."""
        if sem == Sem.RELEASE:
            self._lift(rows, View.BASE, View.TENSORMAP_RELEASED)
        self.fence(rows.tolist(), sem, scope)
        if sem == Sem.ACQUIRE:
            self._lift(rows, View.TENSORMAP_RELEASED, View.TENSORMAP)

    def _lift(self, rows: Longs, source: View, target: View) -> None:
        self.now[target, rows, :] = np.maximum(self.now[target, rows, :], self.now[source, rows, :])
        for row in rows.tolist() if self._foreign else ():
            for clocks in self._foreign.get(row, {}).values():
                np.maximum(clocks[target], clocks[source], out=clocks[target])

    def _cover(self, row: int, scope: Scope, known: Knowledge) -> None:
        covered = self._released.setdefault(row, {})
        if scope in covered:
            covered[scope].absorb(known)
        else:
            covered[scope] = known

    def _scope_keys(self, row: int) -> tuple[tuple[int, ...], ...]:
        cluster, rank = int(self.cluster_of[row]), int(self.rank_of[row])
        return (cluster, rank), (cluster,), ()

    # --- strong accesses ----------------------------------------------------------------------------------------------

    def strong(
        self,
        space: Space,
        address: int,
        row: int,
        sem: Sem,
        scope: Scope,
        *,
        reads: bool,
        writes: bool,
    ) -> None:
        """A strong ld, st, atom or red on a location that may carry synchronisation. One call per warp and address.

        `reads` is false for st and for red: "red.add [M], 1; fence.acquire is not an acquire pattern" (PTX ISA
        8.11.1). A relaxed access by a warp that has released nothing, to a location without history, costs one look-up.
        """
        key = (space, address)
        point = self._locations.get(key)
        if reads and point is not None:
            self.acquire(point, row, sem, scope)
        if writes and (sem in (Sem.RELEASE, Sem.ACQ_REL, Sem.SC) or row in self._released):
            if point is None:
                point = self._locations[key] = SyncPoint()
            self.release(point, row, sem, scope)

    def overwrite(self, space: Space, address: int) -> None:
        """Call before a strong store that is no read-modify-write: what was released at the location can no longer be
        observed (observation order, PTX ISA 8.9.2, runs through read-modify-writes only)."""
        self._locations.pop((space, address), None)

    # --- accesses -----------------------------------------------------------------------------------------------------

    def access(
        self,
        shadow: Shadow,
        rows: Longs,
        addresses: Longs,
        size: int,
        pc: int,
        *,
        write: bool,
        mask: Flags | None = None,
        strong: Scope | None = None,
        atomic: bool = False,
        payload: Callable[[], tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]] | None = None,
    ) -> None:
        """One instruction of a batch of warps in step: `rows` [warps], `addresses` and `mask` [warps, lanes].

        Raises KernelFault EMU_DATA_RACE, or EMU_BARRIER_OVERWRITTEN for a write onto a live mbarrier. `size` is bytes
        per lane. `strong` is the scope of a strong access: two morally strong accesses are no race (PTX ISA 8.7.1).
        `payload` gives, when it is asked, the values being written and those that memory holds, each shaped like
        `addresses` (more trailing axes are allowed): two warps that write the same value do not race here, since
        compilers let warps with the same data store it twice.
        """
        which: Longs
        if mask is None:
            which = np.repeat(np.arange(rows.size), addresses.shape[1])
            flat = addresses.ravel()
        else:
            which = np.nonzero(mask)[0]
            flat = addresses[mask]
        if flat.size == 0:
            return
        flags = (WRITE if write else 0) | (0 if strong is None else 1 + min(strong, Scope.GPU))
        flags |= ATOMIC if atomic else 0
        records = self._warp_records(rows, pc, flags)
        cells = shadow.cells(flat, size)
        per_lane = cells.size // flat.size
        if per_lane > 1:
            which = np.repeat(which, per_lane)
        batch = _Batch(shadow, rows[which], cells, records[which], flags, pc, mask, addresses, per_lane, payload)
        self._check_writes(batch)
        if write:
            self._check_reads(batch)
            self._store_write(batch)
        else:
            self._store_read(batch)

    def _warp_records(self, rows: Longs, pc: int, flags: int) -> Ints:
        cached = self._cached.get((pc, flags))
        epochs = self.epoch[rows]
        if cached is not None and np.array_equal(cached[0], rows) and np.array_equal(cached[1], epochs):
            return cached[2]
        records = self._new_records(
            self.cluster_of[rows], self.own[rows], epochs, self.rank_of[rows], pc, flags, rows.size
        )
        self._cached[pc, flags] = (rows.copy(), epochs, records)
        return records

    def _new_records(
        self,
        cluster: Longs | int,
        column: Longs | int,
        clock: Ints | int,
        rank: Longs | int,
        pc: int,
        flags: int,
        count: int,
    ) -> Ints:
        first, last = self._count, self._count + count
        if last > self._cluster.size:
            more = max(count, self._cluster.size)
            for name in ("_cluster", "_column", "_clock", "_rank", "_pc", "_flags"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, np.int32)]))
        self._cluster[first:last] = cluster
        self._column[first:last] = column
        self._clock[first:last] = clock
        self._rank[first:last] = rank
        self._pc[first:last] = pc
        self._flags[first:last] = flags
        self._count = last
        return np.arange(first, last, dtype=np.int32)

    def _unordered(self, records: Ints, rows: Longs, view: View | Longs) -> Flags:
        """Which of these records have no path, in this view, to the rows beside them."""
        seen = self.now[view, rows, self._column[records]]
        unordered: Flags = (
            (records > 0)
            & ((seen < self._clock[records]) | (self._cluster[records] != self.cluster_of[rows]))
        )  # fmt: skip
        return unordered

    def _check_writes(self, batch: _Batch) -> None:
        old = batch.shadow.writes[batch.cells]
        if not old.any():
            return
        flags = self._flags[old]
        if batch.shadow.holds_barriers and batch.flags & WRITE:
            live = np.nonzero(flags & BARRIER)[0]
            if live.size:
                self._overwrites_barrier(batch, int(live[0]), int(old[live[0]]))
        view: View | Longs = View.BASE
        if batch.flags & ASYNC:
            fenced = View.ASYNC_SHARED if batch.shadow.space == "shared" else View.ASYNC_GLOBAL
            view = np.where(flags & ASYNC, View.BASE, fenced)
        bad = np.nonzero(self._unordered(old, batch.rows, view))[0]
        if bad.size:
            self._judge(batch, bad, old[bad], view)

    def _check_reads(self, batch: _Batch) -> None:
        old = batch.shadow.reads[batch.cells]
        if not old.any():
            return
        single = np.maximum(old, 0)
        bad = np.nonzero(self._unordered(single, batch.rows, View.READS))[0]
        if bad.size:
            self._judge(batch, bad, single[bad], View.READS)
        many = np.nonzero(old < 0)[0]
        if many.size == 0:
            return
        keys = old[many].astype(np.int64) * -(self.epoch.size + 1) + batch.rows[many]
        _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
        for number, first in enumerate(firsts.tolist()):
            members = np.array(self._sets[-int(old[many[first]])], np.int32)
            row = np.full(members.size, batch.rows[many[first]])
            for member in members[self._unordered(members, row, View.READS)].tolist():
                here = many[inverse == number]
                self._judge(batch, here, np.full(here.size, member, np.int32), View.READS)

    def _judge(self, batch: _Batch, bad: Longs, old: Ints, view: View | Longs) -> None:
        """Of suspicious pairs, drop the morally strong, those ordered across clusters, and equal values."""
        rows = batch.rows[bad]
        left: Flags = ~self._morally_strong(old, rows, batch.flags)
        foreign = self._cluster[old] != self.cluster_of[rows]
        doubtful = left & (foreign | ((self._flags[old] & JOINT) != 0))
        if doubtful.any():
            views = view[bad] if isinstance(view, np.ndarray) else np.full(bad.size, view)
            answers: dict[tuple[int, int, int], bool] = {}
            for at in np.nonzero(doubtful)[0].tolist():
                key = (int(old[at]), int(rows[at]), int(views[at]))
                if key not in answers:
                    answers[key] = self._ordered_elsewhere(*key)
                left[at] = not answers[key]
        if left.any() and batch.payload is not None and batch.flags & WRITE:
            writes = (self._flags[old] & WRITE) != 0
            if (left & writes).any():
                same = batch.same_value()[bad] & writes & left
                for at in np.nonzero(same)[0].tolist():
                    batch.joint[int(bad[at])] = int(old[at])
                left &= ~same
        if left.any():
            at = int(np.nonzero(left)[0][0])
            self._race(batch, int(bad[at]), int(old[at]))

    def _morally_strong(self, old: Ints, rows: Longs, flags: int) -> Flags:
        mine = flags & STRONG_MASK
        theirs = self._flags[old] & STRONG_MASK
        none: Flags = np.zeros(old.size, np.bool_)
        if not mine:
            return none
        same_cluster = self._cluster[old] == self.cluster_of[rows]
        same_cta = same_cluster & (self._rank[old] == self.rank_of[rows])
        both = np.minimum(theirs, mine)
        strong: Flags = (theirs > 0) & (
            same_cta | (same_cluster & (both >= 1 + Scope.CLUSTER)) | (both >= 1 + Scope.GPU)
        )
        return strong

    def _ordered_elsewhere(self, record: int, row: int, view: int) -> bool:
        if record in self._joint:
            return any(self._ordered_elsewhere(each, row, view) for each in self._joint[record])
        cluster = int(self._cluster[record])
        if cluster == int(self.cluster_of[row]):
            return bool(self.now[view, row, self._column[record]] >= self._clock[record])
        clocks = self._foreign.get(row, {}).get(cluster)
        column = int(self._column[record])
        return clocks is not None and column < clocks.shape[1] and bool(clocks[view, column] >= self._clock[record])

    def _store_write(self, batch: _Batch) -> None:
        shadow, cells, records = batch.shadow, batch.cells, batch.records
        values = records
        if batch.joint:
            values = records.copy()
            made: dict[tuple[int, int], int] = {}
            for at, other in batch.joint.items():
                pair = (other, int(records[at]))
                if pair not in made:
                    made[pair] = self._make_joint(pair, batch.pc)
                values[at] = made[pair]
        shadow.writes[cells] = values
        shadow.reads[cells] = 0
        lost = np.nonzero(shadow.writes[cells] != values)[0]
        if lost.size and not batch.flags & ASYNC:
            self._same_batch(batch, lost, values)

    def _same_batch(self, batch: _Batch, lost: Longs, values: Ints) -> None:
        """Warps in step that wrote one location: neither can be ordered before the other."""
        winners = batch.shadow.writes[batch.cells[lost]]
        strong = self._morally_strong(winners, batch.rows[lost], batch.flags)
        doubtful = lost[~strong]
        if doubtful.size == 0:
            return
        if batch.payload is None:
            self._race(batch, int(doubtful[0]), int(winners[~strong][0]))
        written = batch.written()
        place = {int(cell): at for at, cell in enumerate(batch.cells.tolist())}  # the last lane to write a cell wins
        for at in doubtful.tolist():
            cell = int(batch.cells[at])
            winner = int(batch.shadow.writes[cell])
            if written[at] != written[place[cell]]:
                self._race(batch, at, winner)
            batch.shadow.writes[cell] = self._make_joint((winner, int(values[at])), batch.pc)

    def _make_joint(self, pair: tuple[int, int], pc: int) -> int:
        members = tuple(sorted({inner for each in pair for inner in self._joint.get(each, (each,))}))
        first = members[-1]
        record = int(
            self._new_records(
                int(self._cluster[first]), int(self._column[first]), IN_FLIGHT, int(self._rank[first]), pc,
                WRITE | JOINT, 1,
            )[0]
        )  # fmt: skip
        self._joint[record] = members
        return record

    def _store_read(self, batch: _Batch) -> None:
        shadow, cells, records = batch.shadow, batch.cells, batch.records
        old = shadow.reads[cells]
        values = records
        if old.any():
            # A reader that is ordered before this one needs no memory of its own: who is ordered after this one is
            # ordered after both. An asynchronous read hands on only itself, so it replaces nobody.
            keep: Flags = old != 0 if batch.flags & ASYNC else (old < 0) | self._unordered(old, batch.rows, View.READS)
            if keep.any():
                values = records.copy()
                for at, union in self._unions_of(old, records, np.nonzero(keep)[0]):
                    values[at] = union
        shadow.reads[cells] = values
        if batch.flags & ASYNC:
            return
        lost = np.nonzero(shadow.reads[cells] != values)[0]
        if lost.size:
            for record in np.unique(records[lost]).tolist():
                mine = lost[records[lost] == record]
                there = shadow.reads[cells[mine]]
                for value in np.unique(there).tolist():
                    shadow.reads[cells[mine[there == value]]] = self._union(value, record)

    def _unions_of(self, old: Ints, records: Ints, at: Longs) -> list[tuple[Longs, int]]:
        keys = old[at].astype(np.int64) * (self._count + 1) + records[at]
        _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return [
            (at[inverse == number], self._union(int(old[at[first]]), int(records[at[first]])))
            for number, first in enumerate(firsts.tolist())
        ]

    def _union(self, value: int, record: int) -> int:
        """The reader set `value` with one reader more; of each warp only its latest read is kept."""
        known = self._unions.get((value, record))
        if known is not None:
            return known
        members = self._sets[-value] if value < 0 else (value,) if value > 0 else ()
        warp = not self._flags[record] & ASYNC
        kept = [
            each
            for each in members
            if each != record
            and not (
                warp
                and self._cluster[each] == self._cluster[record]
                and self._column[each] == self._column[record]
            )
        ]  # fmt: skip
        joined = (*kept, record)[-MAX_READERS:]
        if len(joined) == 1:
            answer = record
        else:
            index = self._set_index.get(joined)
            if index is None:
                index = self._set_index[joined] = len(self._sets)
                self._sets.append(joined)
            answer = -index
        self._unions[value, record] = answer
        return answer

    # --- asynchronous operations --------------------------------------------------------------------------------------

    def issue(self, row: int, pc: int, lane: int, channel: Channel) -> AsyncOperation:
        """An asynchronous operation leaves its thread. It is ordered after prior instructions (PTX ISA 8.9.1.1), and
        before nothing until its channel's clock has been observed."""
        return AsyncOperation(row, pc, lane, channel)

    def async_access(
        self,
        operation: AsyncOperation,
        shadow: Shadow,
        addresses: Longs,
        size: int,
        *,
        write: bool,
        generic: bool = False,
        channel: Channel | None = None,
    ) -> None:
        """Accesses of an asynchronous operation: `addresses` [n] of `size` bytes each. One call for a whole box.

        `generic`: cp.async, st.async and red.async work in the generic proxy. `channel`: where another mbarrier than
        the operation's own signals this part of it, as for each destination of a multicast.
        """
        flags = (WRITE if write else 0) | ASYNC
        record = self._async_record(operation, channel or operation.channel, flags)
        cells = shadow.cells(addresses, size)
        count = cells.size
        if count == 0:
            return
        rows = np.full(count, operation.row, np.int64)
        batch = _Batch(
            shadow, rows, cells, np.full(count, record, np.int32), flags, operation.pc, None,
            addresses[:, None], max(1, count // addresses.size), None, operation.lane,
        )  # fmt: skip
        if generic:
            batch.flags &= ~ASYNC
            self._check_writes(batch)
            batch.flags |= ASYNC
        else:
            self._check_writes(batch)
        if write:
            self._check_reads(batch)
            self._store_write(batch)
        else:
            self._store_read(batch)

    def _async_record(self, operation: AsyncOperation, channel: Channel, flags: int) -> int:
        record = int(
            self._new_records(channel.cluster, channel.column, IN_FLIGHT, channel.rank, operation.pc, flags, 1)[0]
        )
        operation.records.append(record)
        self._issuer[record] = (self.who(operation.row), operation.lane)
        return record

    def land(self, records: Iterable[int], clock: int) -> None:
        """The operation has completed (or its group was committed) with this clock of its channel."""
        for record in records:
            self._clock[record] = clock

    def learn(self, rows: Iterable[int], channel: Channel, clock: int) -> None:
        """A wait of these warps has returned: cp.async.bulk.wait_group, wgmma.wait_group and their like."""
        for row in rows:
            part = self.now[:, row, channel.column]
            np.maximum(part, clock, out=part)

    # --- barriers, peers, exits ---------------------------------------------------------------------------------------

    def init_barrier(self, shadow: Shadow, row: int, address: int, pc: int) -> int:
        """mbarrier.init: a generic write of 8 bytes that only mbarrier operations may follow. Returns its record."""
        rows, place = np.array([row]), np.array([[address]])
        self.access(shadow, rows, place, 8, pc, write=True)
        record = int(self._new_records(
            int(self.cluster_of[row]), int(self.own[row]), int(self.epoch[row]), int(self.rank_of[row]), pc,
            WRITE | BARRIER, 1,
        )[0])  # fmt: skip
        shadow.writes[shadow.cells(place[:, 0], 8)] = record
        shadow.holds_barriers = True
        return record

    def inval_barrier(self, shadow: Shadow, row: int, address: int, pc: int) -> None:
        """mbarrier.inval: the location is ordinary memory again."""
        cells = shadow.cells(np.array([address]), 8)
        shadow.writes[cells] = 0
        self.access(shadow, np.array([row]), np.array([[address]]), 8, pc, write=True)

    def sees_init(self, row: int, record: int) -> bool:
        """Whether mbarrier.init with this record is ordered before the next operation of the warp."""
        if self._ordered_elsewhere(record, row, View.BASE):
            return True
        return self._ordered_elsewhere(record, row, View.INIT)

    def column(self, record: int) -> int:
        """The column of a record's agent: which channel an asynchronous operation's record belongs to."""
        return int(self._column[record])

    def has_heard(self, rows: Sequence[int], of: int, clock: int) -> bool:
        """Whether one of these warps is ordered after the moment when warp `of` of its cluster had this clock."""
        return bool((self.now[View.STARTED, list(rows), self.own[of]] >= clock).any())

    def sees_tensor_map(self, shadow: Shadow, row: int, address: int, pc: int, lane: int | None = None) -> None:
        """A TMA instruction reads its tensor map through the tensormap proxy: a map that the kernel has written needs
        fence.proxy.tensormap::generic release and acquire (PTX ISA 9.7.13.4). Raises EMU_TENSOR_MAP_FENCE."""
        cells = shadow.cells(np.array([address]), 128)
        for record in np.unique(shadow.writes[cells]).tolist():
            if record and not self._ordered_elsewhere(record, row, View.TENSORMAP):
                self.reporter.fail(
                    "EMU_TENSOR_MAP_FENCE",
                    f"the tensor map at {address:#x} was written by the kernel and is read through the tensormap proxy "
                    "with no release and acquire between",
                    self.who(row),
                    pc,
                    lane,
                    history=(self.describe(record),),
                    numbers={"address": address},
                    fix="fence.proxy.tensormap::generic.release after the write, and the .acquire with the map's "
                    "address before its use",
                )

    def knows_started(self, row: int, rank: int) -> bool:
        """Whether anything orders the start of CTA `rank` of the warp's cluster before the warp's next operation."""
        cluster = self._clusters[int(self.cluster_of[row])]
        columns = slice(rank * cluster.warps, (rank + 1) * cluster.warps)
        return bool(self.now[View.STARTED, row, columns].any())

    def at_exit(self, shadow: Shadow, address: int, size: int, rows: Longs, pc: int) -> None:
        """The last warp of a CTA exits: its shared memory, [address, address + size), goes away.

        Every access to it must be ordered before the exit of some warp of the CTA (the programming guide's rule that
        distributed shared memory needs its CTA alive; PTX ISA 9.7.9.25 for asynchronous ones). Raises
        EMU_ASYNC_AT_EXIT for an asynchronous operation that nobody has waited for, EMU_PEER_EXITED for a peer's access.
        """
        first, last = (address - shadow.base) >> shadow.shift, (address + size - shadow.base) >> shadow.shift
        held = set(np.unique(shadow.writes[first:last]).tolist())
        for value in np.unique(shadow.reads[first:last]).tolist():
            held.update(self._sets[-value] if value < 0 else (value,))
        rank = int(self.rank_of[rows[0]])
        cluster = int(self.cluster_of[rows[0]])
        for record in sorted(held):
            asynchronous = bool(self._flags[record] & ASYNC)
            if record == 0 or record in self._joint or self._cluster[record] != cluster:
                continue
            if not asynchronous and self._rank[record] == rank:
                continue
            if (self.now[View.STARTED, rows, self._column[record]] >= self._clock[record]).any():
                continue
            code = "EMU_ASYNC_AT_EXIT" if asynchronous else "EMU_PEER_EXITED"
            what = "an asynchronous operation" if asynchronous else "an access of a peer CTA"
            self.reporter.fail(
                code,
                f"the CTA exits while {what} on its shared memory may still be running: nothing orders it before the "
                "exit",
                self.who(int(rows[-1])),
                pc,
                history=(self.describe(record),),
                fix="wait for it: the operation's mbarrier or group, or a cluster barrier before the exit",
            )

    # --- reports ------------------------------------------------------------------------------------------------------

    def describe(self, record: int) -> Event:
        """A record as a line of history."""
        if record == 0:
            return self.reporter.event("written before the launch", None, -1)
        flags = int(self._flags[record])
        pc = int(self._pc[record])
        verb = "atomic" if flags & ATOMIC else "write" if flags & WRITE else "read"
        if flags & BARRIER:
            verb = "mbarrier.init"
        if flags & ASYNC:
            who, lane = self._issuer[record]
            state = "in flight" if self._clock[record] == IN_FLIGHT else "completed"
            return self.reporter.event(f"asynchronous {verb}, {state}, issued", who, pc, lane)
        cluster = int(self._cluster[record])
        rank = int(self._rank[record])
        warp = int(self._column[record]) - rank * self._warps_of[cluster]
        strong = ""
        if flags & STRONG_MASK:
            strong = f" ({Scope((flags & STRONG_MASK) - 1).name.lower()} scope)"
        return self.reporter.event(f"{verb}{strong}", Who(cluster, rank, warp), pc)

    def _missing(self, batch: _Batch, row: int, record: int) -> tuple[str, str]:
        """What would have ordered the pair, and what to add."""
        if record in self._joint:
            record = self._joint[record][0]
        flags, column, clock = int(self._flags[record]), int(self._column[record]), int(self._clock[record])
        inside = int(self._cluster[record]) == int(self.cluster_of[row])

        def known(view: View) -> bool:
            return inside and bool(self.now[view, row, column] >= clock)

        if flags & ASYNC:
            if clock == IN_FLIGHT:
                return "the asynchronous operation has not completed", "wait for its mbarrier phase or its group first"
            return (
                "the asynchronous operation has completed, but this warp has not observed that",
                "wait for its mbarrier phase or its group, or synchronise with a warp that has",
            )
        if batch.flags & ASYNC and known(View.BASE):
            return (
                "the accesses are ordered, but one is of the generic proxy and one of the async proxy, with no proxy "
                "fence between",
                f"fence.proxy.async.{'shared::cta' if batch.shadow.space == 'shared' else 'global'} between the write "
                "and the barrier that precedes the asynchronous operation",
            )
        if known(View.READS):
            return (
                "a release and an acquire lie between, but their scopes do not include each other's thread",
                "give both .cluster (or .gpu) scope",
            )
        if known(View.STARTED):
            return (
                "only relaxed synchronisation lies between",
                "use .release on the arrival and .acquire on the wait, or a fence beside the relaxed ones",
            )
        return "nothing orders one before the other", "put a barrier, or a release and an acquire, between them"

    def _race(self, batch: _Batch, at: int, record: int) -> NoReturn:
        row = int(batch.rows[at])
        address, lane = batch.locate(at)
        missing, fix = self._missing(batch, row, record)
        verb = "write" if batch.flags & WRITE else "read"
        proxy = "asynchronous " if batch.flags & ASYNC else ""
        self.reporter.fail(
            "EMU_DATA_RACE",
            f"{proxy}{verb} of {batch.shadow.space} memory at {address:#x} races with an earlier "
            f"{'write' if self._flags[record] & WRITE else 'read'}: {missing}",
            self.who(row),
            batch.pc,
            lane,
            history=(self.describe(record if record not in self._joint else self._joint[record][0]),),
            numbers={"address": address},
            fix=fix,
        )

    def _overwrites_barrier(self, batch: _Batch, at: int, record: int) -> NoReturn:
        address, lane = batch.locate(at)
        self.reporter.fail(
            "EMU_BARRIER_OVERWRITTEN",
            f"a write to {address:#x} hits a live mbarrier",
            self.who(int(batch.rows[at])),
            batch.pc,
            lane,
            history=(self.describe(record),),
            numbers={"address": address},
            fix="mbarrier.inval first, or keep the barrier out of the way of the data",
        )


@dataclass(slots=True)
class _Cluster:
    serial: int
    ctas: int
    warps: int
    first_row: int
    channels: dict[Hashable, Channel] = field(default_factory=dict)


@dataclass(slots=True)
class _Batch:
    """One access call, flattened to granules."""

    shadow: Shadow
    rows: Longs
    cells: Longs
    records: Ints
    flags: int
    pc: int
    mask: Flags | None
    addresses: Longs
    per_lane: int
    payload: Callable[[], tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]] | None
    lane: int | None = None
    joint: dict[int, int] = field(default_factory=dict)

    def locate(self, at: int) -> tuple[int, int | None]:
        """Byte address and lane of a flattened granule."""
        address = self.shadow.base + (int(self.cells[at]) << self.shadow.shift)
        if self.lane is not None:
            return address, self.lane
        element = at // self.per_lane
        lanes = self.addresses.shape[1]
        return address, int(np.nonzero(self.mask)[1][element]) if self.mask is not None else element % lanes

    def same_value(self) -> Flags:
        """Per granule: whether the lane writes what memory holds."""
        assert self.payload is not None
        written, held = self.payload()
        equal: Flags = np.asarray(written == held)
        equal = np.asarray(equal.reshape(*self.addresses.shape, -1).all(axis=-1))
        picked: Flags = equal.ravel() if self.mask is None else equal[self.mask]
        return np.repeat(picked, self.per_lane)

    def written(self) -> list[bytes]:
        """Per granule: the bytes that its lane writes into it."""
        assert self.payload is not None
        values = np.ascontiguousarray(self.payload()[0])
        flat = values.reshape(*self.addresses.shape, -1).view(np.uint8)
        lanes = flat.reshape(-1, flat.shape[-1]) if self.mask is None else flat[self.mask]
        width = max(1, lanes.shape[1] // self.per_lane)
        return [each.tobytes()[part * width : (part + 1) * width] for each in lanes for part in range(self.per_lane)]


def _joined(one: Ints, other: Ints) -> Ints:
    if one.shape[1] < other.shape[1]:
        one, other = other, one
    joined = one.copy()
    part = joined[:, : other.shape[1]]
    np.maximum(part, other, out=part)
    return joined


def _only(clocks: Ints, views: Sequence[View]) -> Ints:
    kept = np.zeros_like(clocks)
    for view in views:
        kept[view] = clocks[view]
    return kept
