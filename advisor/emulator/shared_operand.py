"""A matrix operand in shared memory: where its bytes lie, and whether the tile that was copied there lies so.

wgmma and tcgen05 read operands alike: in chunks of 16 bytes, under one of a few swizzles, with two strides. A chunk is
16 bytes along K of one row (K-major), or 16 bytes along M or N at one k (MN-major). Addresses are offsets in the CTA's
own shared window. Imports only its own room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import fragments
from advisor.emulator.formats import Bits

Major = Literal["K", "MN"]
CHUNK = 16  # bytes
DEPTH_BYTES = 32  # of K in one instruction, for every type
SWIZZLE_WIDTHS = {"none": 16, "32B": 32, "64B": 64, "128B": 128, "128B_32B": 128}  # of one row of a swizzle atom
Offsets = NDArray[np.int64]


def swizzled(offsets: Offsets, swizzle: str, base_offset: int = 0) -> Offsets:
    """Where a byte of the plain layout lies: bits 4 to 6 of the address are turned by bits 7 to 9.

    "128B_32B" moves units of 32 bytes: bits 5 and 6 are turned by bits 7 and 8. `base_offset` is the phase of a pattern
    that does not start on its boundary."""
    row = (offsets >> 7) - base_offset if base_offset else offsets >> 7
    if swizzle == "128B_32B":
        return offsets ^ ((row & 3) << 5)
    mask = SWIZZLE_WIDTHS[swizzle] - CHUNK
    return offsets ^ ((row << 4) & mask)


@dataclass(frozen=True, slots=True)
class Placement:
    """What a shared memory descriptor says of an operand; byte offsets."""

    start: int
    leading_bytes: int
    stride_bytes: int
    base_offset: int
    swizzle: str

    def chunks(self, extent: int, major: Major, kind: str) -> Offsets:
        """Byte offsets of the chunks of an operand with `extent` rows (M or N).

        K-major: [extent, 2]. MN-major: [extent / elements in a chunk, k]."""
        low = self.start & 1023  # the swizzle sees no more of the start
        found = _chunk_offsets(
            low, self.leading_bytes, self.stride_bytes, self.base_offset, self.swizzle, extent, major, kind
        )
        return found + (self.start - low)


@lru_cache(maxsize=4096)
def _chunk_offsets(
    start: int, leading: int, stride: int, base_offset: int, swizzle: str, extent: int, major: Major, kind: str
) -> Offsets:
    width = SWIZZLE_WIDTHS[swizzle]
    if major == "K":
        row = np.arange(extent)[:, None]
        chunk = np.arange(DEPTH_BYTES // CHUNK)[None, :]
        step = leading if swizzle == "none" else CHUNK  # the leading offset of a swizzled K-major operand is not read
        plain = row % 8 * width + row // 8 * stride + chunk * step
    else:
        per_chunk = elements_per_chunk(kind)
        chunk = np.arange(extent // per_chunk)[:, None]
        depth = np.arange(depth_of(kind))[None, :]
        per_row = width // CHUNK
        lines = 4 if swizzle == "128B_32B" else 8  # k's in an atom
        block, group = (stride, leading) if swizzle == "none" else (leading, stride)
        plain = chunk % per_row * CHUNK + chunk // per_row * block + depth % lines * width + depth // lines * group
    result = swizzled(start + plain, swizzle, base_offset)
    result.flags.writeable = False
    return result


def elements_per_chunk(kind: str) -> int:
    return CHUNK * 8 // fragments.ELEMENT_BITS[kind]


def depth_of(kind: str) -> int:
    """K of one instruction."""
    return DEPTH_BYTES * 8 // fragments.ELEMENT_BITS[kind]


_CODES: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def operand_from_chunks(chunks: NDArray[np.uint8], major: Major, kind: str) -> Bits:
    """The codes [..., extent, k] of an operand from its chunks [..., chunks, chunks, 16]."""
    bits = fragments.ELEMENT_BITS[kind]
    if major == "K":
        flat = np.ascontiguousarray(chunks).reshape((*chunks.shape[:-2], chunks.shape[-2] * CHUNK))
        if bits == 1:
            return np.unpackbits(flat, axis=-1, bitorder="little")
        if bits == 4:
            pairs = np.stack([flat & np.uint8(15), flat >> np.uint8(4)], axis=-1)
            return pairs.reshape((*flat.shape[:-1], -1))
        codes: Bits = flat.view(_CODES[bits])
        return codes
    elements = np.ascontiguousarray(chunks).view(_CODES[bits])
    turned: Bits = np.swapaxes(elements, -1, -2)
    return turned.reshape((*chunks.shape[:-3], -1, chunks.shape[-2]))


def read_operand(memory: NDArray[np.uint8], placement: Placement, extent: int, major: Major, kind: str) -> Bits:
    """The codes [extent, k] of an operand in `memory`, the bytes of a CTA's shared window from its offset 0."""
    chunks = memory[: len(memory) // CHUNK * CHUNK].reshape(-1, CHUNK)
    return operand_from_chunks(chunks[placement.chunks(extent, major, kind) // CHUNK], major, kind)


# --- does the descriptor describe the tile? ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TileBox:
    """A box that a tensor copy has put into shared memory: rows of `row_bytes`, swizzled, from offset `start`."""

    start: int
    rows: int
    row_bytes: int
    swizzle: str
    element: str = ""  # f16, bf16 or tf32, where the map says so: maps of integers carry anything

    @property
    def end(self) -> int:
        return self.start + self.rows * self.row_bytes


class Mismatch(NamedTuple):
    """Where the operand that a descriptor describes is not the tile that was written."""

    where: tuple[int, int]  # row (M or N) and chunk along K; MN-major: chunk along M or N, and k
    offset: int
    text: str


def mismatch(placement: Placement, extent: int, major: Major, kind: str, boxes: Iterable[TileBox]) -> Mismatch | None:
    """The first chunk of the operand that is not the element of the tile that its neighbours say it is, or None.

    Inside one box, one step along M or N must be one step in the box, and one step along K too. Where several boxes
    make up a tile, each is held to that on its own: how boxes follow each other is the kernel's affair. Chunks outside
    every box (written by other means) are not judged, unless the operand runs out of a box that it has begun.
    """
    first, last = _span(placement, extent, major, kind)
    near = tuple(box for box in boxes if box.start <= last and box.end > first)
    return _mismatch(placement, extent, major, kind, near) if near else None


def other_element(
    placement: Placement, extent: int, major: Major, kind: str, element: str, boxes: Iterable[TileBox]
) -> str:
    """The floating-point type of a box under the operand that is not the `element` that the instruction takes."""
    first, last = _span(placement, extent, major, kind)
    for box in boxes:
        if box.start <= last and box.end > first and box.element not in ("", element):
            return box.element
    return ""


@lru_cache(maxsize=1024)
def _span(placement: Placement, extent: int, major: Major, kind: str) -> tuple[int, int]:
    offsets = placement.chunks(extent, major, kind)
    return int(offsets.min()), int(offsets.max())


@lru_cache(maxsize=1024)  # a main loop reads the same few stages again and again
def _mismatch(
    placement: Placement, extent: int, major: Major, kind: str, boxes: tuple[TileBox, ...]
) -> Mismatch | None:
    offsets = placement.chunks(extent, major, kind)
    shape = offsets.shape
    first_axis, second_axis = np.indices(shape)
    line, along = (first_axis, second_axis) if major == "K" else (second_axis, first_axis)
    touched = [box for box in boxes if ((offsets >= box.start) & (offsets < box.end)).any()]
    outside = np.ones(shape, np.bool_)
    for box in touched:
        inside = (offsets >= box.start) & (offsets < box.end)
        outside &= ~inside
        wrong, row, chunk = _steps(offsets, inside, line, along, box)
        if wrong.any():
            at = tuple(int(each) for each in np.argwhere(wrong)[0])
            return _report(placement, box, (at[0], at[1]), offsets, row, chunk)
    if touched and outside.any():
        at = tuple(int(each) for each in np.argwhere(outside)[0])
        offset = int(offsets[at])
        text = f"chunk {at} at shared offset {offset} lies outside every box of the tile"
        return Mismatch((at[0], at[1]), offset, text)
    return None


def _steps(offsets: Offsets, inside: Any, line: Any, along: Any, box: TileBox) -> tuple[Any, Offsets, Offsets]:
    """Which chunks inside the box break the rule, and the row and chunk of the box that each one is."""
    plain = swizzled(offsets, box.swizzle) - box.start  # the swizzle is its own inverse
    row, chunk = plain // box.row_bytes, plain % box.row_bytes // CHUNK
    row_shift, chunk_shift = row - line, chunk - along
    begin = np.argwhere(inside)[0]
    wrong = inside & ((row_shift != row_shift[tuple(begin)]) | (chunk_shift != chunk_shift[tuple(begin)]))
    return wrong, row, chunk


def _report(
    placement: Placement, box: TileBox, at: tuple[int, int], offsets: Offsets, row: Offsets, chunk: Offsets
) -> Mismatch:
    offset = int(offsets[at])
    text = (
        f"the descriptor's chunk {at} is at shared offset {offset}, which holds row {int(row[at])}, bytes from "
        f"{int(chunk[at]) * CHUNK} of the box at {box.start}; the descriptor says swizzle {placement.swizzle}, "
        f"leading {placement.leading_bytes}, stride {placement.stride_bytes}; the box has swizzle {box.swizzle}, "
        f"rows of {box.row_bytes} bytes"
    )
    return Mismatch(at, offset, text)
