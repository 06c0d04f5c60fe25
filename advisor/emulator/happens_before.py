"""Data races: records of accesses in shadow memory, and the check of each new access against them. Imports `clocks`.

Two overlapping accesses of which one writes are a data race unless they are related in causality order or are morally
strong (PTX ISA 8.7.1). Accesses of the generic and of the asynchronous proxy to one location also need a proxy fence
on the path between them (8.6; 9.7.9.25.2), except that the completion of an asynchronous operation brings its own.
`clocks` has the order.

**Shadow memory** keeps, for each granule, the record of the last write and the records of the reads since. The granule
starts at 16 bytes and is refined when a smaller access arrives, which loses nothing: every access until then was whole
granules. One call takes a whole batch of warps, or a whole bulk copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from advisor.emulator.clocks import Channel, Clocks, Ints, Longs, Scope, Sem, Space, SyncPoint, View
from advisor.emulator.lanes import SEVERAL, UNKNOWN, LaneMarks, Lanes, lanes_of
from advisor.emulator.report import Event, Reporter, Who

__all__ = ["AsyncOperation", "Channel", "Order", "Scope", "Sem", "Shadow", "SyncPoint", "View"]

Flags = npt.NDArray[np.bool_]

IN_FLIGHT = 2**31 - 1  # the clock of an operation that nobody can have observed
MEMORY = 1 << 16  # sets of readers that are kept before those out of use are dropped
MAX_READERS = 256  # a granule remembers this many readers; of more, the latest

# Record flags. Bits 0-2 hold 1 + scope of a strong operation, 0 for a weak one.
STRONG_MASK = 7
WRITE = 8
ASYNC = 16
BARRIER = 32  # the write was mbarrier.init
JOINT = 64  # several warps wrote the same value; ordered after one of them is enough
ATOMIC = 128
GENERIC = 256  # with ASYNC: an asynchronous operation of the generic proxy

_RELAXED = (
    "only relaxed synchronisation lies between",
    "use .release on the arrival and .acquire on the wait, or a fence beside the relaxed ones",
)
_LANES_APART = (
    "another lane of the warp made it, and the lanes have not met since",
    "bar.warp.sync (__syncwarp) between the two",
)


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
        self.lanes = LaneMarks(cells)

    def refine(self, shift: int) -> None:
        """Split the granules. Exact, since every access so far was a whole number of them."""
        factor = 1 << (self.shift - shift)
        self.writes = np.repeat(self.writes, factor)
        self.reads = np.repeat(self.reads, factor)
        self.lanes.refine(factor)
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


@dataclass(slots=True, eq=False)
class AsyncOperation:
    """An asynchronous operation between its issue and its completion. `records` are what it did in shadow memory."""

    row: int
    pc: int
    lane: int
    channel: Channel
    records: list[int] = field(default_factory=list)


class Order(Clocks):
    """The records of accesses, and the checks on them."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        super().__init__(reporter)
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
        self._shadows: WeakSet[Shadow] = WeakSet()
        self._collect_at = MEMORY
        self._wants_collection = False
        self._joint: dict[int, tuple[int, ...]] = {}

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
        if not write:
            self._shadows.add(shadow)
        self.accessed[rows] = self.epoch[rows]
        batch = _Batch(shadow, rows[which], cells, records[which], flags, pc, mask, addresses, per_lane, payload)
        lanes = lanes_of(mask, addresses.shape[0], addresses.shape[1], per_lane)
        self._check_writes(batch)
        left = self._check_lanes(batch, lanes)
        if write:
            self._check_reads(batch)
            self._store_write(batch)
            lost = shadow.lanes.wrote(cells, lanes)
            if lost.size and payload is not None and strong is None:
                self._check_collisions(batch, lost)
        else:
            self._store_read(batch)
            shadow.lanes.read(cells, left)
        if self._wants_collection:
            self._collect_sets()

    def _warp_records(self, rows: Longs, pc: int, flags: int) -> Ints:
        cached = self._cached.get((pc, flags))
        epochs = self.epoch[rows]
        if (
            cached is not None
            and np.array_equal(cached[0], rows)
            and np.array_equal(cached[1], epochs)
            and np.array_equal(self._cluster[cached[2]], self.cluster_of[rows])  # rows are used again
        ):
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
            # A write that has completed is over: another asynchronous one over it needs to come later and no more.
            view = np.where(flags & ASYNC, View.STARTED if batch.flags & WRITE else View.BASE, fenced)
        elif batch.flags & WRITE and (flags & ASYNC).any():  # a thread that overwrites needs no more either
            view = np.where(flags & ASYNC, View.STARTED, View.BASE)
        bad = np.nonzero(self._unordered(old, batch.rows, view))[0]
        if bad.size:
            self._judge(batch, bad, old[bad], view)

    def _check_reads(self, batch: _Batch) -> None:
        old = batch.shadow.reads[batch.cells]
        if not old.any():
            return
        single = np.maximum(old, 0)
        view = self._reads_view(batch, single)
        bad = np.nonzero(self._unordered(single, batch.rows, view))[0]
        if bad.size:
            self._judge(batch, bad, single[bad], view)
        many = np.nonzero(old < 0)[0]
        if many.size == 0:
            return
        keys = old[many].astype(np.int64) * -(self.epoch.size + 1) + batch.rows[many]
        _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
        for number, first in enumerate(firsts.tolist()):
            members = np.array(self._sets[-int(old[many[first]])], np.int32)
            row = np.full(members.size, batch.rows[many[first]])
            views = self._reads_view(batch, members)
            for member in members[self._unordered(members, row, views)].tolist():
                here = many[inverse == number]
                left = np.full(here.size, member, np.int32)
                self._judge(batch, here, left, self._reads_view(batch, left))

    def _reads_view(self, batch: _Batch, records: Ints) -> View | Longs:
        """The path that a write needs from these reads: an asynchronous one has been fenced when it completed."""
        if batch.reads_view == View.READS:
            return View.READS
        return np.where(self._flags[records] & ASYNC, View.READS, batch.reads_view)

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

    def _check_lanes(self, batch: _Batch, lanes: Lanes) -> Lanes:
        """Accesses by other lanes of the same warp since its lanes have met. Returns the lanes that a read leaves."""
        shadow, cells = batch.shadow, batch.cells
        if lanes[0] == UNKNOWN:
            return lanes
        apart = shadow.lanes.written_by_others(cells, lanes)
        if apart.size:
            self._judge_lanes(batch, apart, shadow.writes[cells[apart]])
        apart = shadow.lanes.read_by_others(cells, lanes)
        if apart.size == 0:
            return lanes
        reads = np.maximum(shadow.reads[cells[apart]], 0)
        if batch.flags & WRITE:
            self._judge_lanes(batch, apart, reads)
            return lanes
        together = apart[self._since_met(reads, batch.rows[apart])]
        if together.size:
            lanes = lanes.copy()
            lanes[together] = SEVERAL
        return lanes

    def _check_collisions(self, batch: _Batch, lost: Longs) -> None:
        """Lanes of one warp that store to one place in one instruction: warns where the values differ."""
        if ("EMU_STORE_COLLISION", batch.pc) in self.reporter.warnings:
            return
        cells, from_end = np.unique(batch.cells[::-1], return_index=True)
        last = (batch.cells.size - 1 - from_end)[np.searchsorted(cells, batch.cells[lost])]
        values = batch.granules()
        apart = (values[lost] != values[last]).any(axis=1) & (batch.rows[lost] == batch.rows[last])
        if not apart.any():
            return
        at = int(np.flatnonzero(apart)[0])
        address, lane = batch.locate(int(lost[at]))
        winner = batch.locate(int(last[at]))[1]
        self.reporter.warn(
            "EMU_STORE_COLLISION",
            f"lanes {lane} and {winner} store different values to {batch.shadow.space} memory at {address:#x} in one "
            "instruction: which of them stays is undefined",
            self.who(int(batch.rows[lost[at]])),
            batch.pc,
            lane,
            numbers={"address": address, "lanes": [lane, winner]},
            fix="let one lane store, or use an atomic operation",
        )

    def _since_met(self, records: Ints, rows: Longs) -> Flags:
        """Which of these records are of the same warp and later than the last meeting of its lanes."""
        same: Flags = (records > 0) & (self._column[records] == self.own[rows])
        same &= (self._clock[records] >= self.met[rows]) & (self._cluster[records] == self.cluster_of[rows])
        same &= self._flags[records] & (ASYNC | BARRIER | JOINT) == 0
        return same

    def _judge_lanes(self, batch: _Batch, apart: Longs, old: Ints) -> None:
        """Two lanes of one warp: atomics do not race, nor do writes of the same value."""
        near = self._since_met(old, batch.rows[apart])
        if not near.any():
            return
        apart, old = apart[near], old[near]
        left: Flags = ~self._morally_strong(old, batch.rows[apart], batch.flags)
        if batch.payload is not None and batch.flags & WRITE and left.any():
            left &= ~(((self._flags[old] & WRITE) != 0) & batch.same_value()[apart])
        if left.any():
            at = int(np.flatnonzero(left)[0])
            self._race(batch, int(apart[at]), int(old[at]), _LANES_APART)

    def _morally_strong(self, old: Ints, rows: Longs, flags: int) -> Flags:
        mine = flags & STRONG_MASK
        theirs = self._flags[old] & STRONG_MASK
        none: Flags = np.zeros(old.size, np.bool_)
        if not mine:
            return none
        proxies = (self._flags[old] & (ASYNC | GENERIC)) == ASYNC  # moral strength is within one proxy
        theirs = np.where(proxies == ((flags & (ASYNC | GENERIC)) == ASYNC), theirs, 0)
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
            self._read_together(shadow, cells, values, lost)

    def _read_together(self, shadow: Shadow, cells: Longs, values: Ints, lost: Longs) -> None:
        """Several warps of the batch have read the same granules: give each its whole set of readers at once, since
        most granules then share one set, and sets on the way there would only cost memory."""
        contended = np.unique(cells[lost])
        at = np.minimum(np.searchsorted(contended, cells), contended.size - 1)
        inside = contended[at] == cells
        pairs = np.unique((cells[inside] << 32) | (values[inside].astype(np.int64) & 0xFFFFFFFF))
        readers = pairs.astype(np.int32)  # the low half, with its sign
        starts = np.searchsorted(pairs >> 32, contended)
        counts = np.diff(np.append(starts, pairs.size))
        for count in np.unique(counts).tolist():
            mine = np.nonzero(counts == count)[0]
            rows = readers[starts[mine][:, None] + np.arange(count)]
            if (rows == rows[0]).all():
                shadow.reads[contended[mine]] = self._union_of(rows[0].tolist())
                continue
            distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
            unions = np.array([self._union_of(each) for each in distinct.tolist()], np.int32)
            shadow.reads[contended[mine]] = unions[inverse.reshape(-1)]

    def _union_of(self, values: Sequence[int]) -> int:
        """The set of all readers that these values stand for, oldest first."""
        members = {inner for each in values for inner in (self._sets[-each] if each < 0 else (each,))}
        return self._intern(tuple(sorted(members))[-MAX_READERS:])

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
        answer = self._intern((*kept, record)[-MAX_READERS:])
        if len(self._unions) > MEMORY:
            self._unions.clear()
        self._unions[value, record] = answer
        return answer

    def _intern(self, members: tuple[int, ...]) -> int:
        if len(members) == 1:
            return members[0]
        index = self._set_index.get(members)
        if index is None:
            self._wants_collection |= len(self._sets) > self._collect_at
            index = self._set_index[members] = len(self._sets)
            self._sets.append(members)
        return -index

    def _collect_sets(self) -> None:
        """Drop the sets that no granule refers to any more. Between accesses only: one in hand holds set numbers."""
        shadows = list(self._shadows)
        used = np.unique(np.concatenate([np.minimum(each.reads, 0) for each in shadows]))
        kept = (-used[used < 0]).tolist()
        numbers = np.zeros(len(self._sets), np.int32)
        numbers[kept] = np.arange(1, len(kept) + 1)
        for each in shadows:
            negative = each.reads < 0
            each.reads[negative] = -numbers[-each.reads[negative]]
        self._sets = [(), *(self._sets[each] for each in kept)]
        self._set_index = {members: number for number, members in enumerate(self._sets)}
        self._unions.clear()
        self._collect_at = max(MEMORY, 2 * len(self._sets))
        self._wants_collection = False

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
        fenced_reads: bool = False,
        atomic: Scope | None = None,
        channel: Channel | None = None,
    ) -> None:
        """Accesses of an asynchronous operation: `addresses` [n] of `size` bytes each. One call for a whole box.

        `generic`: cp.async, st.async and red.async work in the generic proxy. `fenced_reads`: a generic read before
        this write needs a proxy fence, as the response of Cluster Launch Control does. `atomic`: the scope of a
        reduction, each part of which is a relaxed atomic operation, so that two of them do not race
        (cp.reduce.async.bulk: gpu; red.async: cluster). `channel`: where another mbarrier than the operation's own
        signals this part of it, as for each destination of a multicast.
        """
        flags = (WRITE if write else 0) | ASYNC | (GENERIC if generic else 0)
        flags |= 0 if atomic is None else ATOMIC | (1 + atomic)
        record = self._async_record(operation, channel or operation.channel, flags)
        cells = shadow.cells(addresses, size)
        count = cells.size
        if count == 0:
            return
        if not write:
            self._shadows.add(shadow)
        rows = np.full(count, operation.row, np.int64)
        batch = _Batch(
            shadow, rows, cells, np.full(count, record, np.int32), flags, operation.pc, None,
            addresses[:, None], max(1, count // addresses.size), None, operation.lane,
            reads_view=View.READS_ASYNC if fenced_reads else View.READS,
        )  # fmt: skip
        if generic:
            batch.flags &= ~ASYNC
            self._check_writes(batch)
            batch.flags |= ASYNC
        else:
            self._check_writes(batch)
        lane = np.full(count, operation.lane, np.uint8)
        self._check_lanes(batch, lane)
        if write:
            self._check_reads(batch)
            self._store_write(batch)
            shadow.lanes.writes[cells] = UNKNOWN
        else:
            self._store_read(batch)
            shadow.lanes.reads[cells] = UNKNOWN

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

    def copied(self, shadow: Shadow, address: int) -> bool:
        """Whether the last write of the granule at this address was that of an asynchronous operation."""
        record = int(shadow.writes[(address - shadow.base) >> shadow.shift])
        return bool(self._flags[record] & ASYNC)

    def column(self, record: int) -> int:
        """The column of a record's agent: which channel an asynchronous operation's record belongs to."""
        return int(self._column[record])

    def knows(self, rows: Longs, channel: Channel, clock: int) -> bool:
        """Whether one of these warps has observed that the channel came to this clock."""
        return bool((self.now[View.STARTED, rows, channel.column] >= clock).any())

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
            if known(View.STARTED):
                return _RELAXED
            return (
                "the asynchronous operation has completed, but this warp has not observed that",
                "wait for its mbarrier phase or its group, or synchronise with a warp that has",
            )
        needs_fence = not flags & WRITE and batch.reads_view == View.READS_ASYNC
        if batch.flags & ASYNC and known(View.READS if needs_fence else View.BASE):
            return (
                "the accesses are ordered, but one is of the generic proxy and one of the async proxy, with no proxy "
                "fence between",
                f"fence.proxy.async.{'shared::cta' if batch.shadow.space == 'shared' else 'global'} between the write "
                "and the barrier that precedes the asynchronous operation",
            )
        if known(View.READS) or known(View.HEARD):
            return (
                "what lies between is relaxed, or its scopes do not include each other's thread",
                "a release and an acquire, both of .cluster (or .gpu) scope",
            )
        if known(View.STARTED):
            return _RELAXED
        return "nothing orders one before the other", "put a barrier, or a release and an acquire, between them"

    def _race(self, batch: _Batch, at: int, record: int, why: tuple[str, str] | None = None) -> NoReturn:
        row = int(batch.rows[at])
        address, lane = batch.locate(at)
        missing, fix = why or self._missing(batch, row, record)
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
    reads_view: View = View.READS

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

    def granules(self) -> npt.NDArray[np.uint8]:
        """Per granule: the bytes that its lane writes into it."""
        assert self.payload is not None
        values = np.ascontiguousarray(self.payload()[0])
        flat = values.reshape(*self.addresses.shape, -1).view(np.uint8)
        lanes = flat.reshape(-1, flat.shape[-1]) if self.mask is None else flat[self.mask]
        return lanes.reshape(len(lanes) * self.per_lane, -1)

    def written(self) -> list[bytes]:
        """The same as strings of bytes."""
        return [each.tobytes() for each in self.granules()]
