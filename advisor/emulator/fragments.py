"""Which lane and register holds which element of a matrix: mma.sync, wgmma, ldmatrix, stmatrix, movmatrix.

Register stacks have the shape [..., registers, 32]; matrices have the shape [..., rows, columns]. Both are codes
(unsigned integers). A wgmma operand is four stacks, one per warp of the warpgroup, 16 rows each. Imports NumPy only.

Every layout here is one of three. With g = lane / 4 and t = lane % 4 and e elements in a register:
  A  register (column half, row half): row g + 8 * row half, column 4e * column half + e * t + element
  B  register (row half):              row 4e * row half + e * t + element, column g
  C  register (block, row half, pair): row g + 8 * row half, column 8 * block + 2 * t + pair
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]

ELEMENT_BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "b16": 16,
    "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 8, "s8": 8, "u8": 8, "b8": 8, "s4": 4, "u4": 4, "b1": 1,
    "b4": 4, "b32": 32,
}  # fmt: skip
# The 6-bit and 4-bit floats of `kind::f8f6f4` lie in containers of 8 bits.


def register_bits(kind: str) -> int:
    """Registers are of 32 bits, but for f64."""
    return 64 if kind == "f64" else 32


def per_register(kind: str) -> int:
    return register_bits(kind) // ELEMENT_BITS[kind]


def stack(registers: Sequence[Bits]) -> Bits:
    """Registers of shape [..., 32] as one stack."""
    first = registers[0]
    result: Bits = np.empty((*first.shape[:-1], len(registers), 32), first.dtype)
    for index, each in enumerate(registers):
        result[..., index, :] = each
    return result


def unstack(registers: Bits) -> list[Bits]:
    """The registers of a stack, each contiguous."""
    last = registers.ndim - 1
    return list(np.ascontiguousarray(registers.transpose((last - 1, *range(last - 1), last))))


def split(registers: Bits, kind: str) -> Bits:
    """The elements in each register, low ones first, as a new last axis."""
    bits = ELEMENT_BITS[kind]
    words = np.ascontiguousarray(registers)[..., None]
    if bits == register_bits(kind):
        return words
    if bits == 16:
        return words.view(np.uint16)
    octets = words.view(np.uint8)
    if bits == 8:
        return octets
    if bits == 4:
        pairs = np.stack([octets & np.uint8(15), octets >> np.uint8(4)], axis=-1)
        return pairs.reshape((*octets.shape[:-1], 8))
    return np.unpackbits(octets, axis=-1, bitorder="little")


def join(elements: Bits, kind: str) -> Bits:
    """The inverse of `split` for the kinds that results have: 16, 32 and 64 bits, and bytes."""
    word = np.uint64 if register_bits(kind) == 64 else np.uint32
    packed: Bits = np.ascontiguousarray(elements).view(word)[..., 0]
    return packed


# --- operands and results of mma.sync and wgmma -----------------------------------------------------------------------


def matrix_a(registers: Bits, kind: str, rows: int = 16) -> Bits:
    """[..., registers, 32] to [..., rows, k], rows 16 or 8."""
    elements = split(registers, kind)
    *batch, count, _, width = elements.shape
    halves = rows // 8
    shaped = elements.reshape((*batch, count // halves, halves, 8, 4, width))
    order = (*range(len(batch)), *(len(batch) + each for each in (1, 2, 0, 3, 4)))
    return shaped.transpose(order).reshape((*batch, rows, count // halves * 4 * width))


def registers_a(matrix: Bits, kind: str) -> Bits:
    """The inverse of `matrix_a`."""
    *batch, rows, depth = matrix.shape
    width = per_register(kind)
    halves, columns = rows // 8, depth // (4 * width)
    shaped = matrix.reshape((*batch, halves, 8, columns, 4, width))
    order = (*range(len(batch)), *(len(batch) + each for each in (2, 0, 1, 3, 4)))
    return _packed(shaped.transpose(order).reshape((*batch, columns * halves, 32, width)), kind)


def matrix_b(registers: Bits, kind: str) -> Bits:
    """[..., registers, 32] to [..., k, 8]."""
    elements = split(registers, kind)
    *batch, count, _, width = elements.shape
    shaped = elements.reshape((*batch, count, 8, 4, width))
    order = (*range(len(batch)), *(len(batch) + each for each in (0, 2, 3, 1)))
    return shaped.transpose(order).reshape((*batch, count * 4 * width, 8))


def registers_b(matrix: Bits, kind: str) -> Bits:
    """The inverse of `matrix_b`."""
    *batch, depth, _ = matrix.shape
    width = per_register(kind)
    count = depth // (4 * width)
    shaped = matrix.reshape((*batch, count, 4, width, 8))
    order = (*range(len(batch)), *(len(batch) + each for each in (0, 3, 1, 2)))
    return _packed(shaped.transpose(order).reshape((*batch, count, 32, width)), kind)


def _packed(elements: Bits, kind: str) -> Bits:
    bits = ELEMENT_BITS[kind]
    if bits >= 8:
        return join(elements, kind)
    if bits == 4:
        return join(elements[..., 0::2] | elements[..., 1::2] << np.uint8(4), "b8")
    return join(np.packbits(elements, axis=-1, bitorder="little"), "b8")


def matrix_c(registers: Bits, kind: str, rows: int = 16) -> Bits:
    """An accumulator: [..., registers, 32] to [..., rows, n]. 16-bit results lie two in a register."""
    *batch, count, _ = registers.shape
    halves = rows // 8
    first = len(batch)
    if ELEMENT_BITS[kind] == 16:
        pairs = split(registers, kind).reshape((*batch, count // halves, halves, 8, 4, 2))
        order = (1, 2, 0, 3, 4)
    else:
        pairs = registers.reshape((*batch, count // (2 * halves), halves, 2, 8, 4))
        order = (1, 3, 0, 4, 2)
    moved = pairs.transpose((*range(first), *(first + each for each in order)))
    return moved.reshape((*batch, rows, moved.shape[first + 2] * 8))


def registers_c(matrix: Bits, kind: str) -> Bits:
    """The inverse of `matrix_c`; the rows say whether it is of 8 or 16."""
    *batch, rows, columns = matrix.shape
    halves, blocks = rows // 8, columns // 8
    first = len(batch)
    shaped = matrix.reshape((*batch, halves, 8, blocks, 4, 2))
    if ELEMENT_BITS[kind] == 16:
        moved = shaped.transpose((*range(first), *(first + each for each in (2, 0, 1, 3, 4))))
        return join(moved.reshape((*batch, blocks * halves, 32, 2)), kind)
    moved = shaped.transpose((*range(first), *(first + each for each in (2, 0, 4, 1, 3))))
    return moved.reshape((*batch, blocks * halves * 2, 32))


# --- ldmatrix, stmatrix, movmatrix ------------------------------------------------------------------------------------
#
# Memory is rows of 16 bytes. `row_lanes` says which lane's address is that of which row; the caller moves the bytes.


def row_lanes(shape: str, count: int) -> int:
    """How many lanes, from lane 0, give the address of a row: matrix by matrix, row by row."""
    return count * (16 if shape == "m16n16" else 8)


def loaded(rows: Bits, shape: str, *, transpose: bool) -> Bits:
    """`ldmatrix`: bytes [..., matrices, rows, 16] to a register stack.

    m8n8 holds 16-bit elements, one register a matrix; m16n16 and m8n16 hold bytes, two registers and one."""
    *batch, count, _, _ = rows.shape
    if shape == "m16n16":  # memory is column-major: 4 columns of two rows for every lane, two columns a register
        shaped = rows.reshape((*batch, count, 4, 2, 2, 2, 8))  # lane % 4, register, column, row half, lane / 4
        first = len(batch)
        order = (*range(first + 1), *(first + each for each in (2, 5, 1, 4, 3)))
        elements = shaped.transpose(order).reshape((*batch, count * 2, 32, 4))
        return join(elements, "b8")
    if shape == "m8n16" or not transpose:
        return np.ascontiguousarray(rows).view(np.uint32).reshape((*batch, count, 32))
    halves = np.ascontiguousarray(rows).view(np.uint16)
    return join(np.swapaxes(halves, -1, -2).reshape((*batch, count, 32, 2)), "b16")


def stored(registers: Bits, shape: str, *, transpose: bool) -> Bits:
    """`stmatrix`: a register stack to bytes [..., matrices, 8, 16]. The inverse of `loaded` for m8n8.

    m16n8 holds bytes and is stored by columns: element (row, column) at byte `row` of memory row `column`."""
    *batch, count, _ = registers.shape
    if shape == "m16n8":
        octets = np.ascontiguousarray(registers)[..., None].view(np.uint8)
        shaped = octets.reshape((*batch, count, 8, 4, 2, 2))  # lane / 4, lane % 4, row half, column
        first = len(batch)
        order = (*range(first + 1), *(first + each for each in (2, 4, 3, 1)))
        return shaped.transpose(order).reshape((*batch, count, 8, 16))
    if not transpose:
        return np.ascontiguousarray(registers).view(np.uint8).reshape((*batch, count, 8, 16))
    halves = np.ascontiguousarray(registers)[..., None].view(np.uint16).reshape((*batch, count, 8, 8))
    turned = np.ascontiguousarray(np.swapaxes(halves, -1, -2))
    return turned.view(np.uint8)


def transposed(register: Bits) -> Bits:
    """`movmatrix`: the 8 x 8 matrix of 16-bit elements in one register, transposed."""
    rows = stored(register[..., None, :], "m8n8", transpose=False)
    result: Bits = loaded(rows, "m8n8", transpose=True)[..., 0, :]
    return result


def decompressed(rows: Bits, source: str) -> Bits:
    """Rows of 16 elements of 6 or 4 bits, padded to 16 bytes, as 16 bytes.

    A 6-bit element lies in the lower bits of its byte, a 4-bit one in the middle four, as `kind::f8f6f4` reads them."""
    if source == "b4x16_p64":
        packed = rows[..., :8]
        pairs = np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1).reshape(rows.shape)
        return pairs << np.uint8(2)
    bits = np.unpackbits(rows[..., :12], axis=-1, bitorder="little").reshape((*rows.shape[:-1], 16, 6))
    return np.packbits(bits, axis=-1, bitorder="little")[..., 0]
