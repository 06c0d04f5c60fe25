"""wgmma: the forms, the shared memory descriptor, where an operand's bytes lie, and whether a tile lies there.

An operand in shared memory is read in chunks of 16 bytes. A chunk is 16 bytes along K of one row (K-major), or 16 bytes
along M or N at one k (MN-major). Addresses are offsets in the CTA's own shared window. Imports only its own room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import fragments
from advisor.emulator.formats import Bits
from advisor.emulator.mma import BYTE_FLOATS, Numerics, Product, model_of, multiply_add

Major = Literal["K", "MN"]
CHUNK = 16  # bytes
_WIDTHS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}  # of one row of a swizzle atom
_SWIZZLES = ("none", "128B", "64B", "32B")  # by the code in bits 62 and 63
_DEPTH_BYTES = 32  # of K in one instruction, for every type
Offsets = NDArray[np.int64]


def swizzled(offsets: Offsets, swizzle: str, base_offset: int = 0) -> Offsets:
    """Where a byte of the plain layout lies: bits 4 to 6 of the address are turned by bits 7 to 9.

    `base_offset` is the phase of a pattern that does not start on its boundary."""
    mask = _WIDTHS[swizzle] - CHUNK
    row = (offsets >> 7) - base_offset if base_offset else offsets >> 7
    return offsets ^ ((row << 4) & mask)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A decoded shared memory descriptor; byte offsets."""

    start: int
    leading_bytes: int
    stride_bytes: int
    base_offset: int
    swizzle: str
    reserved: int  # the bits that must be zero

    @classmethod
    def decode(cls, value: int) -> Descriptor:
        def field(low: int) -> int:
            return (value >> low & 0x3FFF) << 4

        reserved = value & (0b11 << 14 | 0b11 << 30 | 0b111 << 46 | 0x3FF << 52)
        return cls(field(0), field(16), field(32), value >> 49 & 7, _SWIZZLES[value >> 62 & 3], reserved)

    def encode(self) -> int:
        """The 64-bit value."""
        value = (self.start & 0x3FFFF) >> 4 | (self.leading_bytes & 0x3FFFF) >> 4 << 16
        value |= (self.stride_bytes & 0x3FFFF) >> 4 << 32 | self.base_offset << 49
        return value | _SWIZZLES.index(self.swizzle) << 62 | self.reserved

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
    width = _WIDTHS[swizzle]
    if major == "K":
        row = np.arange(extent)[:, None]
        chunk = np.arange(_DEPTH_BYTES // CHUNK)[None, :]
        step = leading if swizzle == "none" else CHUNK  # the leading offset of a swizzled K-major operand is not read
        plain = row % 8 * width + row // 8 * stride + chunk * step
    else:
        per_chunk = elements_per_chunk(kind)
        chunk = np.arange(extent // per_chunk)[:, None]
        depth = np.arange(depth_of(kind))[None, :]
        per_row = width // CHUNK
        block, group = (stride, leading) if swizzle == "none" else (leading, stride)
        plain = chunk % per_row * CHUNK + chunk // per_row * block + depth % 8 * width + depth // 8 * group
    result = swizzled(start + plain, swizzle, base_offset)
    result.flags.writeable = False
    return result


def elements_per_chunk(kind: str) -> int:
    return CHUNK * 8 // fragments.ELEMENT_BITS[kind]


def depth_of(kind: str) -> int:
    """K of one instruction."""
    return _DEPTH_BYTES * 8 // fragments.ELEMENT_BITS[kind]


def operand_from_chunks(chunks: NDArray[np.uint8], major: Major, kind: str) -> Bits:
    """The codes [..., extent, k] of an operand from its chunks [..., chunks, chunks, 16]."""
    bits = fragments.ELEMENT_BITS[kind]
    if major == "K":
        flat = np.ascontiguousarray(chunks).reshape((*chunks.shape[:-2], _DEPTH_BYTES))
        if bits == 1:
            return np.unpackbits(flat, axis=-1, bitorder="little")
        return flat.view({8: np.uint8, 16: np.uint16, 32: np.uint32}[bits])
    elements = np.ascontiguousarray(chunks).view(np.uint16)  # MN-major is for 16-bit types alone
    turned = np.swapaxes(elements, -1, -2)
    return turned.reshape((*chunks.shape[:-3], -1, chunks.shape[-2]))


def read_operand(memory: NDArray[np.uint8], descriptor: Descriptor, extent: int, major: Major, kind: str) -> Bits:
    """The codes [extent, k] of an operand in `memory`, the bytes of a CTA's shared window from its offset 0."""
    chunks = memory[: len(memory) // CHUNK * CHUNK].reshape(-1, CHUNK)
    return operand_from_chunks(chunks[descriptor.chunks(extent, major, kind) // CHUNK], major, kind)


# --- the instruction --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WarpgroupMma:
    """One `wgmma.mma_async` form: D (64 x n) = A (64 x k) x B (k x n) + D."""

    opcode: str
    n: int
    k: int
    product: Product

    @property
    def d_registers(self) -> int:
        return self.n // 2 // fragments.per_register(self.product.d)

    @property
    def a_registers(self) -> int:
        """Registers of A, where it is not in shared memory."""
        return 4

    @property
    def may_transpose(self) -> bool:
        """Whether the form has operands imm-trans: MN-major is for 16-bit types."""
        return self.product.a in ("f16", "bf16")

    @property
    def may_negate(self) -> bool:
        """Whether the form has operands imm-scale."""
        return self.product.d != "s32"

    @property
    def multiply_adds(self) -> int:
        return 64 * self.n * self.k

    def a_from_registers(self, registers: Sequence[Bits]) -> Bits:
        """A [..., 64, k] from registers of shape [..., 4 warps, 32]."""
        matrix = fragments.matrix_a(fragments.stack(registers), self.product.a)
        return matrix.reshape((*matrix.shape[:-3], 64, self.k))

    def d_from_registers(self, registers: Sequence[Bits]) -> Bits:
        """D [..., 64, n] from registers of shape [..., 4 warps, 32]."""
        matrix = fragments.matrix_c(fragments.stack(registers), self.product.d)
        return matrix.reshape((*matrix.shape[:-3], 64, self.n))

    def d_to_registers(self, matrix: Bits) -> list[Bits]:
        """The inverse of `d_from_registers`."""
        warps = matrix.reshape((*matrix.shape[:-2], 4, 16, self.n))
        return fragments.unstack(fragments.registers_c(warps, self.product.d))

    def __call__(
        self,
        a: Bits,
        b: Bits,
        d: Bits | None,
        *,
        scale_a: int = 1,
        scale_b: int = 1,
        numerics: Numerics = "fp32",
    ) -> Bits:
        """D [..., 64, n] from A [..., 64, k], B as it is read, [..., n, k], and D (None: scale-d is false)."""
        if scale_a * scale_b < 0:
            bits = fragments.ELEMENT_BITS[self.product.a]
            a = a ^ a.dtype.type(1 << (bits - 1))
        return multiply_add(a, np.ascontiguousarray(np.swapaxes(b, -1, -2)), d, self.product, numerics)


_EIGHTS = frozenset(range(8, 257, 8))
_INTEGER_COLUMNS = frozenset({8, 16, 24, *range(32, 257, 16)})


@lru_cache(maxsize=512)
def warpgroup_mma(opcode: str) -> WarpgroupMma | None:
    """The form of a `wgmma.mma_async` opcode, or None where there is no such form. Sparse forms are not here."""
    words = opcode.split(".")
    if words[:4] != ["wgmma", "mma_async", "sync", "aligned"] or len(words) < 8:
        return None
    shape, *rest = words[4:]
    saturate = "satfinite" in rest
    kinds = [each for each in rest if each != "satfinite"]
    if not shape.startswith("m64n") or "k" not in shape or len(kinds) < 3:
        return None
    columns, depth = shape[4:].split("k")
    if not (columns.isdigit() and depth.isdigit()):
        return None
    d, a, b, *tail = kinds
    n, k = int(columns), int(depth)
    if not _legal(n, d, a, b, tail) or k != depth_of(a) or (saturate and a not in ("s8", "u8")):
        return None
    bits: Literal["", "and"] = "and" if a == "b1" else ""
    return WarpgroupMma(opcode, n, k, Product(a, b, d, saturate, bits, model_of(a, warpgroup=True)))


def _legal(n: int, d: str, a: str, b: str, tail: list[str]) -> bool:
    if a == "b1":
        return (b, d) == ("b1", "s32") and tail == ["and", "popc"] and n in _INTEGER_COLUMNS
    if tail:
        return False
    if a in ("s8", "u8"):
        return b in ("s8", "u8") and d == "s32" and n in _INTEGER_COLUMNS
    if n not in _EIGHTS:
        return False
    if a in ("e4m3", "e5m2"):
        return b in BYTE_FLOATS & {"e4m3", "e5m2"} and d in ("f16", "f32")
    return a == b and (d in ("f16", "f32") if a == "f16" else a in ("bf16", "tf32") and d == "f32")


# --- does the descriptor describe the tile? ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TileBox:
    """A box that a tensor copy has put into shared memory: rows of `row_bytes`, swizzled, from offset `start`."""

    start: int
    rows: int
    row_bytes: int
    swizzle: str

    @property
    def end(self) -> int:
        return self.start + self.rows * self.row_bytes


class Mismatch(NamedTuple):
    """Where the operand that a descriptor describes is not the tile that was written."""

    where: tuple[int, int]  # row (M or N) and chunk along K; MN-major: chunk along M or N, and k
    offset: int
    text: str


def mismatch(descriptor: Descriptor, extent: int, major: Major, kind: str, boxes: Iterable[TileBox]) -> Mismatch | None:
    """The first chunk of the operand that is not the element of the tile that its neighbours say it is, or None.

    Inside one box, one step along M or N must be one step in the box, and one step along K too. Where several boxes
    make up a tile, each is held to that on its own: how boxes follow each other is the kernel's affair. Chunks outside
    every box (written by other means) are not judged, unless the operand runs out of a box that it has begun.
    """
    first, last = _span(descriptor, extent, major, kind)
    near = tuple(box for box in boxes if box.start <= last and box.end > first)
    return _mismatch(descriptor, extent, major, kind, near) if near else None


@lru_cache(maxsize=1024)
def _span(descriptor: Descriptor, extent: int, major: Major, kind: str) -> tuple[int, int]:
    offsets = descriptor.chunks(extent, major, kind)
    return int(offsets.min()), int(offsets.max())


@lru_cache(maxsize=1024)  # a main loop reads the same few stages again and again
def _mismatch(
    descriptor: Descriptor, extent: int, major: Major, kind: str, boxes: tuple[TileBox, ...]
) -> Mismatch | None:
    offsets = descriptor.chunks(extent, major, kind)
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
            return _report(descriptor, box, (at[0], at[1]), offsets, row, chunk)
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
    descriptor: Descriptor, box: TileBox, at: tuple[int, int], offsets: Offsets, row: Offsets, chunk: Offsets
) -> Mismatch:
    offset = int(offsets[at])
    text = (
        f"the descriptor's chunk {at} is at shared offset {offset}, which holds row {int(row[at])}, bytes from "
        f"{int(chunk[at]) * CHUNK} of the box at {box.start}; the descriptor says swizzle {descriptor.swizzle}, "
        f"leading {descriptor.leading_bytes}, stride {descriptor.stride_bytes}; the box has swizzle {box.swizzle}, "
        f"rows of {box.row_bytes} bytes"
    )
    return Mismatch(at, offset, text)
