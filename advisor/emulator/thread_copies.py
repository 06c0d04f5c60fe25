"""`cp.async`: copies of single threads, which land when the policy has it, or when their thread waits for them.

Imports its own room. They work in the generic proxy, and a wait of the thread that issued a copy is the only thing that
orders it: whoever touches the bytes while a copy is on its way races with it, that thread too (PTX ISA 9.7.9.25.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.lowering_memory import Access
from advisor.emulator.memory import GLOBAL_BASE, UNSIGNED
from advisor.emulator.scheduler import Group

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine

Array = NDArray[Any]
WORD_BYTES = 4  # no copy is smaller, and each is aligned to its size


class _Copy:
    """A `cp.async` of a group of warps that has not landed in every lane."""

    __slots__ = ("address", "group", "kept", "left", "number", "place", "rows", "source", "to", "words")

    def __init__(
        self,
        group: Group,
        to: Access,
        source: Access,
        place: Array,
        address: Array,
        kept: Array | None,
        mask: Array | None,
        number: Array,
    ) -> None:
        self.group = Group(group.rows, group.mask, group.block, None)
        self.rows = group.rows
        self.to = to
        self.source = source
        self.place = place
        self.address = address
        self.kept = kept
        self.left: Array = group.lanes() if mask is None else mask
        self.number = number
        self.words: Array = np.zeros(0, np.int64)  # of shared memory, once it is kept: [rows, 32, words]

    def keep(self, offsets: Array) -> None:
        """The operands outlive the block: they may be registers, which are written again."""
        self.place = self.place.copy()
        self.address = self.address.copy()
        self.kept = None if self.kept is None else self.kept.copy()
        self.left = self.left.copy()
        first = np.where(self.left, offsets, 0) // WORD_BYTES
        self.words = first[..., None] + np.arange(self.to.size // WORD_BYTES)


class ThreadCopies:
    """All copies of single threads of a machine that have not landed."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.committed: Array = np.zeros((machine.rows, 32), np.int64)
        self.pending: list[_Copy] = []
        self._marks: Array = np.zeros(machine.shared.bytes.data.size // WORD_BYTES + 1, np.int16)  # copies to each word
        self._landing = False

    def begin(self, rows: Array) -> None:
        """Threads of a new cluster: they have committed nothing."""
        self.committed[rows] = 0

    def issue(
        self,
        g: Group,
        to: Access,
        source: Access,
        place: Array,
        address: Array,
        kept: Array | None,
        mask: Array | None,
    ) -> None:
        """The bytes land now or at the wait, as the policy has it."""
        if mask is not None and not np.count_nonzero(mask):
            return
        machine = self.machine
        copy = _Copy(g, to, source, place, address, kept, mask, self.committed[g.sel].copy())
        if machine.predecessor.checks:  # where it is issued, wherever it lands
            reads = copy.left if kept is None else copy.left & (kept > 0)
            near = (address - np.uint64(GLOBAL_BASE)).view(np.int64)
            machine.predecessor.accessed(g, source.site, near, reads, write=False)
        policy = machine.queue.policy
        machine.bytes_moved["global async copy"] += int(copy.left.sum()) * to.size
        if policy == "eager" or (policy == "random" and machine.random.random() < 0.5):
            self._land(copy, copy.left)
            return
        copy.keep(machine.shared_offsets(g, to, place, copy.left))
        np.add.at(self._marks, copy.words[copy.left], 1)
        self.pending.append(copy)

    def commit(self, g: Group, lanes: Array | None) -> None:
        self.committed[g.rows] += 1 if lanes is None else lanes.astype(np.int64)

    def wait(self, g: Group, keep: int, lanes: Array | None) -> None:
        """All but the last `keep` groups of these threads land."""
        if not self.pending:
            return
        limit = np.full(self.committed.shape, -1, np.int64)
        limit[g.rows] = self.committed[g.rows] - int(keep) if lanes is None else np.where(
            lanes, self.committed[g.rows] - int(keep), -1
        )  # fmt: skip
        self._land_where(lambda copy: copy.number < limit[copy.rows])

    def wait_all(self, g: Group, lanes: Array | None) -> None:
        """All copies of these threads land, committed or not."""
        on = np.zeros(self.committed.shape, bool)
        on[g.rows] = g.lanes() if lanes is None else lanes
        self._land_where(lambda copy: on[copy.rows])

    def accessed(self, g: Group, a: Access, offset: Array, mask: Array | None, *, write: bool) -> None:
        """An access to shared memory by bytes' offsets [rows, 32], while copies are on their way."""
        if self._landing:
            return
        on = g.lanes() if mask is None else mask
        first = np.where(on, offset, 0) // WORD_BYTES
        hit = np.zeros(on.shape, bool)
        for each in range(-(-a.size // WORD_BYTES)):
            hit |= self._marks[first + each] > 0
        hit &= on
        if hit.any():
            index, lane = (int(each) for each in np.argwhere(hit)[0])
            self._race(g, a, index, lane, int(offset[index, lane]), write=write)

    def warps_end(self, rows: Array) -> None:
        """Warps that have no thread left take nothing with them that was on its way."""
        for copy in list(self.pending):
            gone = copy.left & np.isin(copy.rows, rows)[:, None]
            if not gone.any():
                continue
            index, lane = (int(each) for each in np.argwhere(gone)[0])
            message = "a cp.async was never waited for before its thread exited"
            who = self.machine.who(int(copy.rows[index]))
            self.machine.reporter.warn("EMU_COPY_IN_FLIGHT", message, who, copy.to.site, lane)
            self._take(copy, gone)

    # --- landing ------------------------------------------------------------------------------------------------------

    def _land_where(self, chosen: Any) -> None:
        for copy in list(self.pending):
            ready = copy.left & chosen(copy)
            if ready.any():
                self._take(copy, ready)
                self._land(copy, ready)

    def _take(self, copy: _Copy, lanes: Array) -> None:
        """These lanes of a copy are on their way no more."""
        np.subtract.at(self._marks, copy.words[lanes], 1)
        copy.left = copy.left & ~lanes
        if not copy.left.any():
            self.pending.remove(copy)

    def _land(self, copy: _Copy, lanes: Array) -> None:
        machine, group, to, kept = self.machine, copy.group, copy.to, copy.kept
        whole = lanes if kept is None else lanes & (kept >= to.size)
        zeros = [np.zeros(lanes.shape, UNSIGNED[to.width])] * to.count
        values = machine.load_global(group, copy.source, copy.address, whole) if whole.any() else zeros
        if kept is not None and not (whole == lanes).all():
            values = [np.where(whole, each, np.zeros_like(each)) for each in values]
            some = lanes & ~whole & (kept > 0)
            if some.any():
                values = self._partial(copy, values, some)
        self._landing = True  # the bytes of groups land in the order of the groups: no race between them
        machine.store_shared(group, to, copy.place, values, lanes)
        self._landing = False

    def _partial(self, copy: _Copy, values: list[Array], some: Array) -> list[Array]:
        """Lanes that copy fewer bytes than they fill: byte by byte, zeros after them."""
        assert copy.kept is not None
        kind = UNSIGNED[copy.to.width]
        result = [each.astype(kind).copy() for each in values]
        for index in range(copy.to.size):
            lanes = some & (copy.kept > index)
            if not lanes.any():
                continue
            one = Access(copy.source.site, "global", 1, 1)
            (byte,) = self.machine.load_global(copy.group, one, copy.address + np.uint64(index), lanes)
            element, shift = divmod(index, copy.to.width)
            result[element] |= np.where(lanes, byte.astype(kind) << kind(8 * shift), kind(0))
        return result

    # --- faults -------------------------------------------------------------------------------------------------------

    def _race(self, g: Group, a: Access, index: int, lane: int, offset: int, *, write: bool) -> NoReturn:
        """Reports an access to bytes that a copy is on its way to."""
        machine, row = self.machine, int(g.rows[index])
        near = np.arange(offset // WORD_BYTES, -(-(offset + a.size) // WORD_BYTES))
        copy, place = next(
            (each, found[0])
            for each in self.pending
            if len(found := np.argwhere(np.isin(each.words, near).any(axis=2) & each.left))
        )
        its_row, its_lane = int(copy.rows[place[0]]), int(place[1])
        whose = "this thread" if (its_row, its_lane) == (row, lane) else "another thread"
        event = machine.reporter.event("the copy", machine.who(its_row), copy.to.site, its_lane)
        machine.reporter.fail(
            "EMU_DATA_RACE",
            f"{a.size} bytes of shared memory are {'written' if write else 'read'} while a cp.async to them, which "
            f"{whose} has issued and not waited for, may still be on its way",
            machine.who(row),
            a.site,
            lane,
            history=(event,),
            fix="cp.async.wait_group by the thread that copies, which leaves no more groups than are newer than this "
            "copy; then a barrier, where other threads touch the bytes",
        )
