"""Rounding by rational arithmetic: the slow, plain statement that the emulator's fast arithmetic is held against."""

from __future__ import annotations

from fractions import Fraction
from math import floor, isfinite, isnan

import numpy as np

from advisor.emulator.formats import Format

EDGES_F32 = np.array(
    [
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x00FFFFFF, 0x3F800000,
        0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x33800000, 0x33800001, 0xB3800000, 0x4B800000, 0x4B800001, 0xCB7FFFFF,
        0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x40490FDB, 0x00400000,
        0x0C000000, 0x73000000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x4F000000, 0xCF000000,
        0x5F000000, 0xDF000000, 0x4F800000, 0x5F800000, 0x3F000000, 0x3FC00000, 0x40200000, 0xBF000000, 0x43E00000,
        0x43E80000, 0x43F00000, 0x3DCCCCCD, 0x01000000, 0x0D800000,
    ],
    dtype=np.uint32,
)  # fmt: skip


def quantum(exact: Fraction, layout: Format) -> int:
    """The exponent of the last mantissa bit that `exact` has in the format."""
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    return max(exponent, layout.smallest_exponent) - layout.mantissa


def whole(scaled: Fraction, rounding: str, negative: bool) -> int:
    """A non-negative rational to an integer."""
    down = floor(scaled)
    part = scaled - down
    if rounding == "rn":
        return down + (part > Fraction(1, 2) or (part == Fraction(1, 2) and down % 2 == 1))
    if rounding == "rna":
        return down + (part >= Fraction(1, 2))
    if rounding == "rz":
        return down
    return down + (part > 0 and negative == (rounding == "rm"))


def code(exact: Fraction, layout: Format, rounding: str, *, finite: bool = False, zero_negative: bool = False) -> int:
    """The code of a rational number in the format; zero takes the sign that is given."""
    sign = 1 << (layout.bits - 1)
    if exact == 0:
        return sign if zero_negative else 0
    negative = exact < 0
    step = quantum(exact, layout)
    count = whole(abs(exact) / Fraction(2) ** step, rounding, negative)
    magnitude = count + ((step + layout.mantissa - layout.smallest_exponent) << layout.mantissa)
    if magnitude > layout.largest:
        towards_zero = rounding == "rz" or (rounding == "rm" and not negative) or (rounding == "rp" and negative)
        beyond = layout.infinity if layout.infinity is not None else layout.nan
        magnitude = layout.largest if finite or towards_zero or beyond is None else beyond
    return magnitude | (sign if negative else 0)


def fraction(value: float) -> Fraction | None:
    """None for infinities and NaN."""
    return Fraction(float(value)) if isfinite(value) and not isnan(value) else None


def f32(values: object) -> np.ndarray:
    """The bits of numbers as f32."""
    return np.asarray(values, np.float32).view(np.uint32)


def tricky_f32(seed: int, count: int) -> np.ndarray:
    """Random f32 bits with the edges, neighbours in magnitude, few-bit values and all exponents."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 1 << 32, count // 3, dtype=np.uint32)
    near_one = rng.integers(0x3F000000, 0x41000000, count // 3, dtype=np.uint32)
    few_bits = (rng.integers(0, 1 << 32, count // 3, dtype=np.uint32) & np.uint32(0xFFF80000)).astype(np.uint32)
    result = np.concatenate([EDGES_F32, anything, near_one, few_bits])
    rng.shuffle(result)
    return result
