"""The address spaces of one launch: global, shared with one window per CTA, local, param. NumPy, and its own room.

Addresses are 64-bit numbers in fixed windows, so that a generic address names its space. Buffers of global memory lie
256-byte aligned in one array with a gap after each; shared windows of the resident CTAs lie one after another in one
array, those of a cluster side by side; so that one gather serves warps of many CTAs. A shared address is
`rank << 24 | offset`, with the CTA's rank in its cluster, as compilers assume.

Every access names the lanes that make it and is checked: outside of every object, misaligned, read before written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.wide import B128

Array = NDArray[Any]

SHARED_WINDOW = 1 << 33
LOCAL_WINDOW = 2 << 33
PARAM_WINDOW = 3 << 33
GLOBAL_BASE = 1 << 40
SHARED_START = 1024
"""The first kilobyte of a shared window is the system's; static SMEM starts after it."""
RANK_SHIFT = 24
BUFFER_ALIGN = 256
GUARD_BYTES = 4096

UNSIGNED: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_WRITTEN = {size: UNSIGNED[size](int.from_bytes(b"\x01" * size, "little")) for size in UNSIGNED}
SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}


class AccessFault(Exception):
    """An access that is refused, before anybody knows which warp of the machine made it.

    `where` is the [row, lane] position inside the group that ran the instruction.
    """

    def __init__(self, code: str, message: str, where: tuple[int, int]) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where


@dataclass(slots=True)
class Buffer:
    """An object of global memory. `start` is its offset in the array."""

    name: str
    start: int
    bytes: int
    whole: bool  # every byte is known to hold a value

    @property
    def address(self) -> int:
        return GLOBAL_BASE + self.start


class Bytes:
    """A byte array with its views of every width, and a shadow that says which bytes were written."""

    def __init__(self, size: int, *, shadow: bool = True) -> None:
        size = -(-size // 16) * 16
        self.data = np.zeros(size, np.uint8)
        self.view: dict[int, Array] = {width: self.data.view(kind) for width, kind in UNSIGNED.items()}
        self.view[16] = self.data.view(B128)
        self.written = np.zeros(size if shadow else 0, np.uint8)
        self.marks: dict[int, Array] = {width: self.written.view(kind) for width, kind in UNSIGNED.items()}
        self.steps: Array | None = None  # with `count_writes`: by how much the count of writes rises at each byte

    def count_writes(self) -> None:
        """From here on, how often each byte is written is counted."""
        self.steps = np.zeros(self.data.size + 1, np.int32)

    def count(self, offsets: Array, size: int) -> None:
        """`size` bytes at each offset are being written. Two additions, however wide the access is."""
        if self.steps is not None:
            np.add.at(self.steps, offsets, 1)
            np.subtract.at(self.steps, offsets + size, 1)

    def writes(self, start: int, size: int) -> Array:
        """How often each of these bytes, which are a whole object, was written since `count_writes`."""
        assert self.steps is not None
        found: Array = np.cumsum(self.steps[start : start + size], dtype=np.int32)
        return found


class Global:
    """Global and constant memory: every buffer of the launch and every variable of the module."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._end = 0
        self.bytes = Bytes(0)
        self._starts: Array = np.zeros(0, np.int64)
        self._ends: Array = np.zeros(0, np.int64)
        self._hint: dict[int, Buffer] = {}

    def add(self, name: str, size: int, *, whole: bool) -> Buffer:
        buffer = Buffer(name, self._end, size, whole)
        self.buffers.append(buffer)
        self._end = -(-(self._end + size + GUARD_BYTES) // BUFFER_ALIGN) * BUFFER_ALIGN
        return buffer

    def seal(self) -> None:
        """Makes the array; no buffer is added after it."""
        self.bytes = Bytes(self._end)
        self._starts = np.array([each.start for each in self.buffers], np.int64)
        self._ends = np.array([each.start + each.bytes for each in self.buffers], np.int64)

    def content(self, buffer: Buffer) -> Array:
        return self.bytes.data[buffer.start : buffer.start + buffer.bytes]

    def fill(self, buffer: Buffer, content: Array, written: Array | None = None) -> None:
        """First bytes. `written` marks those that hold a value (default: all); a read of the others is a finding."""
        self.content(buffer)[:] = content
        self.marks(buffer)[:] = 1 if written is None else written
        buffer.whole = written is None or bool(written.all())

    def marks(self, buffer: Buffer) -> Array:
        """Which bytes of a buffer hold a value."""
        return self.bytes.written[buffer.start : buffer.start + buffer.bytes]

    def offsets(self, address: Array, size: int, mask: Array | None, site: int) -> tuple[Array, bool]:
        """Offsets in the array (of lanes that are off: of some byte that exists), and whether all bytes are whole."""
        buffer = self._hint.get(site)
        if buffer is None:
            buffer = self._find(address, size, mask, site)
        base = np.uint64(buffer.address)
        inside = address - base if mask is None else np.where(mask, address - base, np.uint64(0))
        if buffer.bytes < size or int(inside.max()) > buffer.bytes - size:
            return self._several(address, size, mask, site)
        if size > 1 and int(np.bitwise_or.reduce(inside, axis=None)) & (size - 1):
            raise misaligned(address, size, mask, "global")
        return inside.view(np.int64) + buffer.start, buffer.whole

    def _find(self, address: Array, size: int, mask: Array | None, site: int) -> Buffer:
        first = int(address.flat[0] if mask is None else address[mask].flat[0]) - GLOBAL_BASE
        index = int(np.searchsorted(self._starts, first, "right")) - 1
        if index < 0 or first + size > self._ends[index]:
            self._several(address, size, mask, site)  # it says what is wrong, or that another lane is the right one
        buffer = self.buffers[max(index, 0)]
        self._hint[site] = buffer
        return buffer

    def _several(self, address: Array, size: int, mask: Array | None, site: int) -> tuple[Array, bool]:
        """The slow way: every lane is looked up by itself."""
        self._hint.pop(site, None)
        active = np.ones(address.shape, bool) if mask is None else mask
        inside = (address - np.uint64(GLOBAL_BASE)).view(np.int64)
        index = np.searchsorted(self._starts, inside, "right") - 1
        known = (index >= 0) & (address >= np.uint64(GLOBAL_BASE))
        at = np.maximum(index, 0)
        bad = active & ~(known & (inside + size <= self._ends[at]))
        if bad.any():
            row, lane = (int(each) for each in np.argwhere(bad)[0])
            raise AccessFault("EMU_OUT_OF_BOUNDS", self.describe(int(address[row, lane]), size), (row, lane))
        if size > 1 and (inside[active] & (size - 1)).any():
            raise misaligned(address, size, mask, "global")
        whole = all(self.buffers[each].whole for each in np.unique(at[active]))
        first = self._starts[0] if len(self._starts) else 0
        return np.where(active, inside, first), whole

    def has(self, address: int, size: int) -> bool:
        """Whether one buffer has all of these bytes."""
        inside = address - GLOBAL_BASE
        index = int(np.searchsorted(self._starts, inside, "right")) - 1
        return index >= 0 and inside + size <= int(self._ends[index])

    def describe(self, address: int, size: int) -> str:
        """What lies at an address that no buffer has."""
        if address < 1 << 16:
            return f"{size} bytes at {address:#x}: a null pointer"
        inside = address - GLOBAL_BASE
        if not self.buffers or inside < 0:
            return f"{size} bytes at {address:#x}, which is no address of global memory"
        index = max(0, int(np.searchsorted(self._starts, inside, "right")) - 1)
        near = self.buffers[index]
        if inside < near.start:
            return f"{size} bytes at {address:#x}, {near.start - inside} bytes before the buffer {near.name}"
        past = inside + size - near.start - near.bytes
        return (
            f"{size} bytes at offset {inside - near.start} of the buffer {near.name}, which has {near.bytes}: "
            f"{past} bytes past its end"
        )


class Shared:
    """The shared windows of every resident CTA. Slot `s` has the bytes from `s * stride`."""

    def __init__(self, slots: int, static_bytes: int, dynamic_bytes: int, dynamic_start: int) -> None:
        self.static_bytes = static_bytes
        self.dynamic_start = dynamic_start  # offset from SHARED_START
        self.size = dynamic_start + dynamic_bytes if dynamic_bytes else static_bytes
        self.stride = -(-max(self.size, 1) // 1024) * 1024
        self.bytes = Bytes(slots * self.stride)

    def clear(self, slot: int) -> None:
        """A CTA starts in the slot: what the last one left has no value."""
        self.bytes.written[slot * self.stride : (slot + 1) * self.stride] = 0

    def offsets(
        self, address: Array, size: int, mask: Array | None, first_slot: Array, ranks: int, own: Array | None
    ) -> Array:
        """Offsets in the array. `first_slot` [n, 1]: the slot of rank 0 of each row's cluster; `own` [n, 1]: the
        ranks that a `.shared::cta` access must stay in."""
        offset = (address & np.uint32((1 << RANK_SHIFT) - 1)) - np.uint32(SHARED_START)
        rank = address >> np.uint32(RANK_SHIFT)
        if mask is not None:
            offset = np.where(mask, offset, np.uint32(0))
            rank = np.where(mask, rank, np.uint32(0) if own is None else own)
        if self.size < size or int(offset.max()) > self.size - size:
            raise self._outside(address, size, mask)
        if size > 1 and int(np.bitwise_or.reduce(offset, axis=None)) & (size - 1):
            raise misaligned(address, size, mask, "shared")
        if ranks > 1:
            wrong = rank != own if own is not None else rank >= ranks
            if np.count_nonzero(wrong):
                raise self._wrong_rank(address, mask, wrong, ranks)
            placed: Array = (first_slot + rank) * self.stride + offset
            return placed
        if int(rank.max()):
            raise self._wrong_rank(address, mask, rank > 0, ranks)
        window: Array = first_slot * self.stride + offset
        return window

    def _outside(self, address: Array, size: int, mask: Array | None) -> AccessFault:
        offset = (address & np.uint32((1 << RANK_SHIFT) - 1)).astype(np.int64) - SHARED_START
        bad = (offset < 0) | (offset + size > self.size)
        row, lane = _first(bad, mask)
        return AccessFault(
            "EMU_OUT_OF_BOUNDS",
            f"{size} bytes at offset {int(offset[row, lane])} of a shared window that has {self.size}",
            (row, lane),
        )

    def _wrong_rank(self, address: Array, mask: Array | None, wrong: Array, ranks: int) -> AccessFault:
        row, lane = _first(np.broadcast_to(wrong, address.shape), mask)
        rank = int(address[row, lane]) >> RANK_SHIFT
        return AccessFault(
            "EMU_OUT_OF_BOUNDS" if rank < ranks else "EMU_NO_SUCH_PEER",
            f"the shared address {int(address[row, lane]):#x} names CTA rank {rank}, which is not this access's CTA"
            if rank < ranks
            else f"the shared address {int(address[row, lane]):#x} names CTA rank {rank} of a cluster of {ranks}",
            (row, lane),
        )


class Local:
    """Local memory: a frame for every thread. Address `a` of a thread is byte `a` of its frame."""

    def __init__(self, threads: int, frame_bytes: int) -> None:
        self.frame = -(-frame_bytes // 16) * 16
        self.size = frame_bytes
        self.bytes = Bytes(threads * self.frame)

    def offsets(self, address: Array, size: int, mask: Array | None, thread: Array) -> Array:
        offset = address if mask is None else np.where(mask, address, np.uint64(0))
        if self.size < size or int(offset.max()) > self.size - size:
            row, lane = _first(address > np.uint64(max(0, self.size - size)), mask)
            raise AccessFault(
                "EMU_OUT_OF_BOUNDS",
                f"{size} bytes at offset {int(address[row, lane])} of a local frame that has {self.size}",
                (row, lane),
            )
        if size > 1 and int(np.bitwise_or.reduce(offset, axis=None)) & (size - 1):
            raise misaligned(address, size, mask, "local")
        found: Array = thread * self.frame + offset.view(np.int64)
        return found


def gather(memory: Bytes, offset: Array, width: int, count: int, mask: Array | None, check: bool) -> list[Array]:
    """`count` elements of `width` bytes from each offset, as unsigned integers. Raises EMU_UNINITIALISED."""
    index = offset >> SHIFT[width]
    source = memory.view[width]
    found = [source.take(index if each == 0 else index + each) for each in range(count)]
    if check:
        marks, wanted = memory.marks[width], _WRITTEN[width]
        for each in range(count):
            bad = marks.take(index if each == 0 else index + each) != wanted
            if mask is not None:
                bad &= mask
            if np.count_nonzero(bad):
                raise AccessFault(
                    "EMU_UNINITIALISED",
                    f"reads {width * count} bytes of which some were never written",
                    _first(bad, mask),
                )
    return found


def scatter(memory: Bytes, offset: Array, width: int, values: list[Array], mask: Array | None, mark: bool) -> None:
    """The inverse of `gather`. Of lanes that write the same bytes the last one stays."""
    if mask is not None:
        offset = offset[mask]
    index = offset >> SHIFT[width]
    memory.count(offset, width * len(values))
    target = memory.view[width]
    for each, value in enumerate(values):
        place = index if each == 0 else index + each
        target[place] = value if mask is None else np.broadcast_to(value, mask.shape)[mask]
        if mark:
            memory.marks[width][place] = _WRITTEN[width]


def pieces_of(data: Array, offsets: Array, chunk: int) -> Array:
    """[n, chunk] bytes at the offsets, which are multiples of 16, or of the chunk where that is less."""
    width = min(chunk, 16)
    rows = data.reshape(-1, width)
    at = offsets >> SHIFT[width]
    if chunk > width:
        at = at[:, None] + np.arange(chunk // width)
    found: Array = rows[at].reshape(len(offsets), chunk)
    return found


def misaligned(address: Array, size: int, mask: Array | None, space: str) -> AccessFault:
    row, lane = _first((address & address.dtype.type(size - 1)) != 0, mask)
    at = int(address[row, lane])
    return AccessFault(
        "EMU_MISALIGNED",
        f"{size} bytes of {space} memory at {at:#x}, which is {at % size} past a multiple of {size}",
        (row, lane),
    )


def _first(bad: Array, mask: Array | None) -> tuple[int, int]:
    where = np.argwhere(bad if mask is None else bad & mask)
    return (int(where[0][0]), int(where[0][1])) if len(where) else (0, 0)


# --- atomics ----------------------------------------------------------------------------------------------------------

Update = Callable[[Array, Array, Array | None], Array]


def atomic(
    memory: Bytes, offset: Array, width: int, update: Update, b: Array, c: Array | None, mask: Array | None
) -> Array:
    """Read, update, write of every lane that is on, in lane order. Gives the old values."""
    index = offset >> SHIFT[width]
    shape = index.shape
    target = memory.view[width]
    old = target.take(index)
    second = np.broadcast_to(b, shape)
    third = None if c is None else np.broadcast_to(c, shape)
    active = np.ones(shape, bool) if mask is None else mask
    memory.count(offset[active], width)
    places = index[active]
    if len(np.unique(places)) == len(places):
        target[places] = update(old[active], second[active], None if third is None else third[active])
        return old
    old = old.copy()
    for row, lane in np.argwhere(active):
        place = index[row, lane]
        before = target[place : place + 1].copy()
        old[row, lane] = before[0]
        cell = slice(lane, lane + 1)
        target[place] = update(before, second[row, cell], None if third is None else third[row, cell])[0]
    return old
