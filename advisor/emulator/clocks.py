"""Vector clocks: what each warp knows of the others, and how barriers, releases, acquires and fences hand it on.

Imports `report`. Synchronisation comes from barriers, from release and acquire patterns and from fences (PTX ISA 8.8,
8.9.4), and reaches other threads through its transitivity (8.9.5).

**Agents.** A warp is an agent: its lanes share a clock, so the order between lanes of one warp is not checked. An
asynchronous operation has its own record with a clock of a *channel*: of the mbarrier that it signals (the clock is the
number of the phase in which it landed) or of the group that it belongs to (the number of the group). Both complete in
order, so "has observed phase p" and "has waited for group g" are single numbers, as program order is for a warp.

**Views.** What a warp knows is one vector per `View`, since a path counts for some pairs of accesses and not for
others. A new kind of ordering (tensor memory, for one) is one more view and one more method; nothing here lists agents
or barriers by kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

from advisor.emulator.report import Reporter, Who

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Space = Literal["shared", "global"]


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
    READS_ASYNC = 8  # as READS, with a proxy fence on it: a read before an asynchronous write that needs one
    HEARD = 9  # as STARTED, without relaxed operations: enough for tensor memory where a kernel has no tcgen05 fences


VIEWS = len(View)
_READ_VIEWS = (View.READS, View.READS_ASYNC, View.STARTED, View.HEARD)
"""What a release and an acquire hand on whose scopes do not include each other's thread, at an object at which no other
thread of the cluster names the scope that would."""
_OUT_OF_SCOPE = (View.STARTED, View.HEARD)
"""The same, where one does."""
_CLOSED = [View.READS, View.READS_ASYNC]
"""What a relaxed arrival hands on of the reads before the CTA's last barrier."""


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


@dataclass(slots=True)
class Knowledge:
    """Clocks that a release hands on: those of its own cluster, and what it knew of other clusters.

    Never changed once made, so that synchronisation objects may share one."""

    cluster: int
    clocks: Ints  # [view, column]
    foreign: dict[int, Ints] = field(default_factory=dict)

    def joined(self, other: Knowledge) -> Knowledge:
        foreign = dict(self.foreign)
        for cluster, clocks in other.foreign.items():
            mine = foreign.get(cluster)
            foreign[cluster] = clocks if mine is None else _joined(mine, clocks)
        return Knowledge(self.cluster, _joined(self.clocks, other.clocks), foreign)

    @property
    def released(self) -> bool:
        """Whether it is of a release, and not of a relaxed operation or a commit, which hand on execution order."""
        return bool(self.clocks[View.BASE].any())

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
        twin.parts = dict(self.parts)
        twin.anyone = dict(self.anyone)
        return twin

    def absorb(self, other: SyncPoint) -> None:
        for key, each in other.parts.items():
            self.add(key, each)
        for each in other.anyone.values():
            self.add_completion(each)

    def add(self, key: tuple[int, int, int], knowledge: Knowledge) -> None:
        mine = self.parts.get(key)
        self.parts[key] = knowledge if mine is None else mine.joined(knowledge)

    def add_completion(self, knowledge: Knowledge) -> None:
        mine = self.anyone.get(knowledge.cluster)
        self.anyone[knowledge.cluster] = knowledge if mine is None else mine.joined(knowledge)


@dataclass(slots=True)
class Channel:
    """Where asynchronous operations complete in order: the phases of one mbarrier, the groups of one thread."""

    cluster: int
    column: int
    rank: int
    name: str


class Clocks:
    """The clocks of every resident warp."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter or Reporter()
        self.now: Ints = np.zeros((VIEWS, 0, 32), np.int32)
        self._closed: Ints = np.zeros((2, 0, 32), np.int32)  # views of `_CLOSED` at a warp's last barrier of the CTA
        self.epoch: Ints = np.zeros(0, np.int32)
        self.met: Ints = np.zeros(0, np.int32)  # the epoch since which the lanes of a warp have not met
        self.accessed: Ints = np.zeros(0, np.int32)  # the epoch of a warp's last access
        self.own: Longs = np.zeros(0, np.int64)  # column of a warp in its cluster
        self.cluster_of: Longs = np.zeros(0, np.int64)
        self.rank_of: Longs = np.zeros(0, np.int64)
        self._foreign: dict[int, dict[int, Ints]] = {}  # row -> cluster -> clocks
        self._released: dict[int, dict[int, Knowledge]] = {}  # row -> scope of a release fence -> what it covers
        self._pending: dict[int, SyncPoint] = {}  # row -> what relaxed reads have observed
        self._clusters: dict[int, _Cluster] = {}
        self._warps_of: dict[int, int] = {}  # of retired clusters too
        self._free_blocks: dict[int, list[int]] = {}
        self._locations: dict[tuple[str, int], SyncPoint] = {}
        self._fence_sc: dict[tuple[int, ...], SyncPoint] = {}

    # --- agents -------------------------------------------------------------------------------------------------------

    def add_cluster(self, serial: int, ctas: int, warps: int) -> Longs:
        """Rows of a cluster that becomes resident, [cta rank, warp]. Everything before the launch is ordered before."""
        total = ctas * warps
        self._need_columns(total + 8)
        free = self._free_blocks.setdefault(total, [])
        first = free.pop() if free else self._new_rows(total)
        rows = np.arange(first, first + total)
        self.now[:, rows, :] = 0
        self._closed[:, rows] = 0
        self.epoch[rows] = 1
        self.met[rows] = 1
        self.accessed[rows] = 0
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
        self._closed = np.concatenate([self._closed, np.zeros((2, total, self.now.shape[2]), np.int32)], axis=1)
        self.epoch = np.concatenate([self.epoch, np.zeros(total, np.int32)])
        self.met = np.concatenate([self.met, np.zeros(total, np.int32)])
        self.accessed = np.concatenate([self.accessed, np.zeros(total, np.int32)])
        self.own = np.concatenate([self.own, np.zeros(total, np.int64)])
        self.cluster_of = np.concatenate([self.cluster_of, np.zeros(total, np.int64)])
        self.rank_of = np.concatenate([self.rank_of, np.zeros(total, np.int64)])
        return first

    def _need_columns(self, columns: int) -> None:
        width = self.now.shape[2]
        if columns > width:
            more = max(columns, width * 2) - width
            self.now = np.concatenate([self.now, np.zeros((*self.now.shape[:2], more), np.int32)], axis=2)
            self._closed = np.concatenate([self._closed, np.zeros((*self._closed.shape[:2], more), np.int32)], axis=2)

    def _mark_own(self, rows: Longs) -> None:
        columns = self.own[rows]
        for view in (View.BASE, View.READS, View.STARTED, View.HEARD):
            self.now[view, rows, columns] = self.epoch[rows]

    def _tick(self, rows: Longs) -> None:
        self.epoch[rows] += 1
        self._mark_own(rows)

    def lanes_met(self, rows: Longs) -> None:
        """The lanes of each of these warps have met: what one has done is ordered before what another does next."""
        since = rows[self.accessed[rows] == self.epoch[rows]]
        if since.size:
            self._tick(since)
        self.met[rows] = self.epoch[rows]

    # --- release and acquire ------------------------------------------------------------------------------------------

    def knowledge(self, row: int) -> Knowledge:
        return Knowledge(int(self.cluster_of[row]), self.now[:, row, :].copy(), dict(self._foreign.get(row, {})))

    def release(self, point: SyncPoint, row: int, sem: Sem, scope: Scope) -> None:
        """A release pattern's write: st.release, atom.release, mbarrier.arrive, the arrival at a barrier.

        A relaxed one hands on only what an earlier fence of this thread has released (PTX ISA 8.8, third form of the
        pattern), the bare fact that this warp has come so far, and that reads before the last barrier of the CTA are
        over: they have returned, and no compiler moves them behind a barrier. Those since may be moved.
        """
        cluster, rank = int(self.cluster_of[row]), int(self.rank_of[row])
        known = self.knowledge(row)
        if sem in (Sem.RELEASE, Sem.ACQ_REL, Sem.SC):
            point.add((cluster, rank, scope), known)
        else:
            reached = known.only(View.STARTED)
            reached.clocks[_CLOSED] = self._closed[:, row]
            point.add((cluster, rank, scope), reached)
            self._release_covered(point, row, scope)
        self._tick(np.array([row]))

    def _release_covered(self, point: SyncPoint, row: int, scope: Scope) -> None:
        """What earlier release fences of the warp cover, through a relaxed write at this object."""
        cluster, rank = int(self.cluster_of[row]), int(self.rank_of[row])
        for level, covered in self._released.get(row, {}).items():
            point.add((cluster, rank, min(scope, level)), covered)

    def complete(self, point: SyncPoint, channel: Channel, clock: int) -> None:
        """An asynchronous operation of `channel` has completed at this object.

        "When the current phase of the mbarrier object is complete, [...] all threads participating in that mbarrier
        object can access the result" (PTX ISA 9.7.9.25.1.2), with an implicit generic-async proxy fence (9.7.9.25.2).
        It orders the operation's own accesses alone, not what its issuer did before (8.9.1.1).
        """
        clocks = np.zeros((VIEWS, channel.column + 1), np.int32)
        clocks[:, channel.column] = clock
        point.add_completion(Knowledge(channel.cluster, clocks))

    def complete_after(self, point: SyncPoint, row: int) -> None:
        """What this warp has issued so far is complete at this object: whoever observes that comes after all that the
        warp had done and seen by now. That is execution order and no more, as with a relaxed arrival."""
        known = self.knowledge(row).only(View.STARTED, View.HEARD)
        point.add((int(self.cluster_of[row]), int(self.rank_of[row]), Scope.CLUSTER), known)
        self._tick(np.array([row]))

    def acquire(self, point: SyncPoint, row: int, sem: Sem, scope: Scope) -> None:
        """An acquire pattern's read that has observed the object: ld.acquire, a try_wait that returned true.

        A relaxed one learns nothing yet; a later fence of this thread completes the pattern (PTX ISA 8.8).
        """
        if sem in (Sem.ACQUIRE, Sem.ACQ_REL, Sem.SC):
            self._observe(point, row, scope)
        elif point.parts or point.anyone:
            for known in (*point.parts.values(), *point.anyone.values()):
                self._learn(row, known.only(View.STARTED))
            self._pending.setdefault(row, SyncPoint()).absorb(point)

    def _observe(self, point: SyncPoint, row: int, scope: Scope) -> None:
        if self.accessed[row] == self.epoch[row]:  # a lane may have acquired what another one of its warp released
            self._tick(np.array([row]))
        self.met[row] = self.epoch[row]
        cluster, rank = int(self.cluster_of[row]), int(self.rank_of[row])
        for known in point.anyone.values():
            self._learn(row, known)
        weak: list[Knowledge] = []
        named = False  # a release of another CTA names a scope that includes this thread
        for (theirs, their_rank, level), known in point.parts.items():
            if theirs != cluster:
                strong = level >= Scope.GPU and scope >= Scope.GPU
            else:
                strong = their_rank == rank or (level >= Scope.CLUSTER and scope >= Scope.CLUSTER)
                named = named or (their_rank != rank and level >= Scope.CLUSTER and known.released)
            if strong:
                self._learn(row, known)
            else:
                weak.append(known)
        for known in weak:
            self._learn(row, known.only(*(_OUT_OF_SCOPE if named else _READ_VIEWS)))

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
            foreign[cluster] = clocks if held is None else _joined(held, clocks)

    def cta_barrier(self, rows: Longs) -> None:
        """All these warps have met: bar.sync, barrier.sync (PTX ISA 8.9.4, second rule). One call per completion."""
        met = self.now[:, rows, :].max(axis=1)
        self.now[:, rows, :] = met[:, None, :]
        self._closed[:, rows] = met[_CLOSED, None]
        if self._foreign:
            together: dict[int, Ints] = {}
            for row in rows.tolist():
                for cluster, clocks in self._foreign.get(row, {}).items():
                    held = together.get(cluster)
                    together[cluster] = clocks if held is None else _joined(held, clocks)
            for row in rows.tolist() if together else ():
                self._foreign[row] = dict(together)
        self._tick(rows)
        self.met[rows] = self.epoch[rows]

    def has_come(self, row: int) -> None:
        """What the warp does from here on is told from what it did: others may ask whether they have heard of it."""
        self._tick(np.array([row]))

    # --- one event ----------------------------------------------------------------------------------------------------

    def learn_alone(self, rows: Longs, column: int) -> None:
        """An event that happens once has been observed by these warps: every path from them hands that on. `column` is
        its channel, the same one in every cluster."""
        self.now[:, rows, column] = 1
        self._tick(rows)

    def knows_alone(self, rows: Longs, column: int, view: View) -> npt.NDArray[np.bool_]:
        """Whether the event is ordered before the next operation of each of these warps."""
        found: npt.NDArray[np.bool_] = self.now[view, rows, column] > 0
        for index in np.flatnonzero(~found).tolist() if self._foreign else ():
            foreign = self._foreign.get(int(rows[index]), {}).values()
            found[index] = any(each.shape[1] > column and each[view, column] for each in foreign)
        return found

    # --- fences -------------------------------------------------------------------------------------------------------

    def fence(self, rows: Iterable[int], sem: Sem, scope: Scope) -> None:
        """fence{.sem}.scope and membar: the fence half of release and acquire patterns, and Fence-SC order.

        `fence.sc` synchronises with every earlier `fence.sc` whose scope and whose own include each other (8.9.4).
        """
        for row in rows:
            if sem in (Sem.ACQUIRE, Sem.ACQ_REL, Sem.SC):
                observed = self._pending.pop(row, None)
                if observed is not None:
                    self._observe(observed, row, scope)
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
            inits = np.zeros_like(self.now[:, row, :])
            inits[View.INIT] = np.maximum(self.now[View.INIT, row], self.now[View.BASE, row])
            self._cover(row, Scope.CLUSTER, Knowledge(int(self.cluster_of[row]), inits))
            self._tick(np.array([row]))

    def fence_proxy_async(self, rows: Longs, space: Space | None = None) -> None:
        """fence.proxy.async{.global, .shared::cta, .shared::cluster}: generic accesses before it, by this thread or
        ordered before this thread, precede asynchronous ones after it (PTX ISA 9.7.13.4; the fence may lie anywhere on
        the path, 8.9.5). Without a space it is for all of them."""
        for wanted, view in (("shared", View.ASYNC_SHARED), ("global", View.ASYNC_GLOBAL)):
            if space is None or space == wanted:
                self._lift(rows, View.BASE, view)
        if space != "global":
            self._lift(rows, View.READS, View.READS_ASYNC)
        self._tick(rows)

    def fence_proxy_async_restricted(self, rows: Longs, sem: Sem) -> None:
        """fence.proxy.async::generic.{release, acquire}.sync_restrict::shared::*.cluster: one direction, in a pair."""
        if sem == Sem.RELEASE:
            self._lift(rows, View.BASE, View.ASYNC_SHARED)
            self._lift(rows, View.READS, View.READS_ASYNC)
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
            foreign = self._foreign.get(row, {})
            for cluster, clocks in list(foreign.items()):
                lifted = clocks.copy()
                np.maximum(lifted[target], lifted[source], out=lifted[target])
                foreign[cluster] = lifted

    def _cover(self, row: int, scope: Scope, known: Knowledge) -> None:
        covered = self._released.setdefault(row, {})
        covered[scope] = covered[scope].joined(known) if scope in covered else known

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
        releasing = sem in (Sem.RELEASE, Sem.ACQ_REL, Sem.SC)
        if not writes or not (releasing or row in self._released):
            return
        if point is None:
            point = self._locations[key] = SyncPoint()
        if releasing:
            self.release(point, row, sem, scope)
        else:
            self._release_covered(point, row, scope)

    def overwrite(self, space: Space, address: int) -> None:
        """Call before a strong store that is no read-modify-write: what was released at the location can no longer be
        observed (observation order, PTX ISA 8.9.2, runs through read-modify-writes only)."""
        self._locations.pop((space, address), None)


@dataclass(slots=True)
class _Cluster:
    serial: int
    ctas: int
    warps: int
    first_row: int
    channels: dict[Hashable, Channel] = field(default_factory=dict)


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
