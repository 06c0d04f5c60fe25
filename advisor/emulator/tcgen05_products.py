"""The arithmetic of tcgen05.mma: D = A x B + D, with block scales. Imports only its own room.

PTX leaves the order and the rounding of the sum open. Here the products of one instruction and the accumulator are
added in float64, which holds them almost always exactly, and rounded once to the type of D. Nobody has measured how a
B200 adds, so `numerics="model"` is the same here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import fragments
from advisor.emulator.formats import Bits, Reals, as_real
from advisor.emulator.mma import Product, finished, multiply_add, operand
from advisor.emulator.shared_operand import CHUNK, Major, operand_from_chunks
from advisor.emulator.tcgen05_descriptors import InstructionDescriptor
from advisor.emulator.tmem import Array

_PACKED = {"e2m1": "b4x16_p64", "e2m3": "b6x16_p32", "e3m2": "b6x16_p32"}  # 16 elements in 16 bytes, with padding
_FILLED = {"b4x16_p64": 8, "b6x16_p32": 12}


def filled_bytes(form: InstructionDescriptor, kind: str) -> int:
    """Bytes of each chunk in shared memory that hold elements; padding follows."""
    return filled_bytes_of(_PACKED.get(kind, "") if form.container == "b8" else "")


def filled_bytes_of(packing: str) -> int:
    return _FILLED.get(packing, CHUNK)


def codes_from_shared(chunks: NDArray[np.uint8], form: InstructionDescriptor, kind: str, major: Major) -> Bits:
    """The codes [extent, k] of an operand from its chunks in shared memory, [chunks, chunks, 16]."""
    if form.container == "b8" and kind in _PACKED:
        chunks = fragments.decompressed(chunks, _PACKED[kind])
    return operand_from_chunks(chunks, major, form.container)


def codes_from_words(words: Array, form: InstructionDescriptor) -> Bits:
    """The codes [..., rows, k] of an A in tensor memory from its words [..., rows, words]."""
    chunks = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape[:-1], -1, CHUNK)
    return operand_from_chunks(chunks, "K", form.container)


def product(
    form: InstructionDescriptor,
    a: Bits,
    b: Bits,
    start: Array | None,
    *,
    scales: tuple[Bits, Bits] | None = None,
    halvings: int = 0,
) -> Array:
    """Words of D [rows, n] from codes of A [rows, k] and of B [n, k], and from words of D (None: it does not go in).

    `scales` are codes [rows, blocks] and [n, blocks]; D goes in times 2^-`halvings`."""
    if form.kind == "i8":
        kinds = Product(form.a, form.b, "s32", saturate=form.saturate)
        return multiply_add(a, np.ascontiguousarray(b.T), start, kinds)
    left, right = _reals(a, form.a, form), _reals(b, form.b, form)
    if scales is not None:
        left *= _spread(scales[0], form)
        right *= _spread(scales[1], form)
    if form.negate_a != form.negate_b:
        left = -left
    total = left @ right.T
    if start is not None:
        held = as_real(start if form.d == "f32" else start.astype(np.uint16), form.d)
        total += held * 2.0**-halvings if halvings else held
    words: Array = finished(total, form.d).astype(np.uint32, copy=False)
    return words


def _reals(codes: Bits, kind: str, form: InstructionDescriptor) -> Reals:
    return as_real(codes, kind) if form.container == "b4" else operand(codes, kind)


def _spread(scales: Bits, form: InstructionDescriptor) -> Reals:
    """[rows, k] from the scales [rows, blocks]. A ue4m3 is an e4m3 without a sign."""
    values = as_real(scales, "ue8m0") if form.scale_type == "ue8m0" else as_real(scales & np.uint8(0x7F), "e4m3")
    return np.repeat(values, form.k // scales.shape[1], axis=1)
