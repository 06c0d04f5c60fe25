"""Every PTX number format as bits: exact decoding to float64, and encoding with any rounding. NumPy only.

A value that was computed with an error (a sum in float64) is encoded after `to_odd`: a float64 whose last bit is sticky
rounds to any format of at most 24 bits as the exact value would, in every rounding mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]  # an array of unsigned integers, or of booleans for predicates
Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Format:
    """A binary float format. A code is `sign << (bits - 1) | magnitude`; magnitudes grow with the value.

    `largest` is the magnitude of the largest finite value, `infinity` that of infinity (None: the format has none),
    `nan` the code that a conversion gives for a NaN (None: the format has none, a NaN becomes the largest value).
    """

    name: str
    bits: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None
    nan: int | None
    signed: bool = True

    @property
    def smallest_exponent(self) -> int:
        return 1 - self.bias

    @property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        """The unsigned integer that holds one code."""
        return np.uint8 if self.bits <= 8 else np.uint16 if self.bits == 16 else np.uint32


F32 = Format("f32", 32, 23, 127, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF)
TF32 = Format("tf32", 19, 10, 127, 0x3FBFF, 0x3FC00, 0x3FFFF)  # the upper 19 bits of an f32
F16 = Format("f16", 16, 10, 15, 0x7BFF, 0x7C00, 0x7FFF)
BF16 = Format("bf16", 16, 7, 127, 0x7F7F, 0x7F80, 0x7FFF)
E5M2 = Format("e5m2", 8, 2, 15, 0x7B, 0x7C, 0x7F)
E4M3 = Format("e4m3", 8, 3, 7, 0x7E, None, 0x7F)
E3M2 = Format("e3m2", 6, 2, 3, 0x1F, None, None)
E2M3 = Format("e2m3", 6, 3, 1, 0x1F, None, None)
E2M1 = Format("e2m1", 4, 1, 1, 0x7, None, None)
FORMATS = {each.name: each for each in (F32, TF32, F16, BF16, E5M2, E4M3, E3M2, E2M3, E2M1)}


# --- decoding -------------------------------------------------------------------------------------------------------


def as_real(bits: Bits, name: str) -> Reals:
    """The values of `bits`, exactly, for every format but the integers. `ue8m0` code 255 is NaN."""
    return _decoder(name)(bits)


@lru_cache(maxsize=32)
def _decoder(name: str) -> Callable[[Bits], Reals]:
    if name == "f64":
        return lambda bits: bits.view(np.float64)
    if name == "f32":
        return lambda bits: bits.view(np.float32).astype(np.float64)
    if name == "f16":
        return lambda bits: bits.view(np.float16).astype(np.float64)
    if name == "bf16":
        return lambda bits: (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if name == "tf32":  # the multiplier does not see the lower 13 bits
        return lambda bits: (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    table = code_values(name)
    mask = len(table) - 1
    return lambda bits: table[bits & bits.dtype.type(mask)]


@lru_cache(maxsize=16)
def code_values(name: str) -> Reals:
    """The value of every code of a format of at most 8 bits."""
    if name == "ue8m0":
        table = np.ldexp(1.0, np.arange(256) - 127)
        table[255] = np.nan
        return table
    layout = FORMATS[name]
    codes = np.arange(1 << layout.bits)
    magnitude = codes & ((1 << (layout.bits - 1)) - 1)
    exponent = magnitude >> layout.mantissa
    fraction = magnitude & ((1 << layout.mantissa) - 1)
    hidden = np.where(exponent > 0, 1 << layout.mantissa, 0)
    values: Reals = np.ldexp(
        (fraction + hidden).astype(np.float64), np.maximum(exponent, 1) - layout.bias - layout.mantissa
    )
    if layout.infinity is not None:
        values[magnitude == layout.infinity] = np.inf
        values[magnitude > layout.infinity] = np.nan
    elif layout.nan is not None:
        values[magnitude > layout.largest] = np.nan
    values[codes >> (layout.bits - 1) == 1] *= -1.0
    return values


# --- encoding -------------------------------------------------------------------------------------------------------


def two_sum(left: Reals, right: Reals) -> tuple[Reals, Reals]:
    """The float64 sum and its exact error; the error is NaN where the sum is not finite."""
    total = left + right
    back = total - left
    return total, (left - (total - back)) + (right - back)


def to_odd(total: Reals, error: Reals) -> Reals:
    """`total + error` rounded to odd: where the error is not zero the last bit of the result is 1."""
    codes = total.view(np.int64)
    grows = error > 0
    inexact = (grows | (error < 0)) & ((codes & 1) == 0)
    away = np.where(grows == (total > 0), np.int64(1), np.int64(-1))
    return np.where(inexact, codes + away, codes).view(np.float64)


def encode(
    values: Reals, layout: Format, rounding: str = "rn", *, finite: bool = False, random: NDArray[Any] | None = None
) -> Bits:
    """The codes of `values`: exact ones, or the results of `to_odd`.

    `finite` is PTX's `.satfinite`: what is beyond the largest value becomes that value, infinity included. Without it
    overflow gives infinity, or the largest value where the rounding leads towards zero, or NaN in a format without
    infinity. `random` are the fractions in [0, 1) that rounding `rs` adds before it truncates.
    """
    if rounding != "rn":
        return _encode_any(values, layout, rounding, finite=finite, random=random)
    shift = 52 - layout.mantissa
    bits = np.ascontiguousarray(values).view(np.int64)
    magnitude = bits & np.int64((1 << 63) - 1)
    rounded = (magnitude + (((magnitude >> shift) & 1) + np.int64((1 << (shift - 1)) - 1))) >> shift
    codes = rounded - np.int64((1023 - layout.bias) << layout.mantissa)
    codes |= (bits >> 63 & 1) << (layout.bits - 1)
    smallest, largest = _normal_range(layout)
    usual = (magnitude >= smallest) & (magnitude <= largest)
    if np.count_nonzero(usual) != usual.size:
        rest = ~usual
        codes[rest] = _encode_any(np.asarray(values)[rest], layout, rounding, finite=finite, random=None)
    return codes.astype(layout.dtype).reshape(np.shape(values))


@lru_cache(maxsize=16)
def _normal_range(layout: Format) -> tuple[np.int64, np.int64]:
    """The smallest normal and the largest finite value, as the bits of a float64."""
    exponent, fraction = layout.largest >> layout.mantissa, layout.largest & ((1 << layout.mantissa) - 1)
    largest = (exponent - layout.bias + 1023) << 52 | fraction << (52 - layout.mantissa)
    return np.int64((layout.smallest_exponent + 1023) << 52), np.int64(largest)


def _encode_any(values: Reals, layout: Format, rounding: str, *, finite: bool, random: NDArray[Any] | None) -> Bits:
    """`encode` of any value with any rounding: subnormals, what overflows, what is no number."""
    magnitude = np.abs(values)
    negative = np.signbit(values)
    regular = np.isfinite(values)
    tame = np.where(regular, magnitude, 0.0)
    exponent = np.maximum(np.frexp(tame)[1] - 1, layout.smallest_exponent)
    exponent = np.where(tame == 0.0, layout.smallest_exponent, exponent)
    scaled = np.ldexp(tame, layout.mantissa - exponent)
    whole = _rounded(scaled, negative, rounding, random).astype(np.int64)
    codes = whole + ((exponent - layout.smallest_exponent).astype(np.int64) << layout.mantissa)
    overflow = codes > layout.largest
    if overflow.any():
        codes = np.where(overflow, _overflow_code(layout, negative, rounding, finite), codes)
    if not regular.all():
        beyond = layout.largest if finite or layout.infinity is None else layout.infinity
        if layout.infinity is None and not finite and layout.nan is not None:
            beyond = layout.nan
        codes = np.where(np.isinf(values), beyond, codes)
    codes |= negative.astype(np.int64) << (layout.bits - 1)
    if not regular.all():
        codes = np.where(np.isnan(values), layout.largest if layout.nan is None else layout.nan, codes)
    return codes.astype(layout.dtype)


def _rounded(scaled: Reals, negative: NDArray[np.bool_], rounding: str, random: NDArray[Any] | None) -> Reals:
    if rounding == "rn":
        return np.rint(scaled)
    down: Reals = np.floor(scaled)
    if rounding == "rz":
        return down
    part = scaled - down
    if rounding == "rna":
        return down + (part >= 0.5)
    if rounding == "rs":
        assert random is not None
        carried: Reals = down + (part + random >= 1.0)
        return carried
    up = negative if rounding == "rm" else ~negative
    return down + (up & (part > 0))


def _overflow_code(layout: Format, negative: NDArray[np.bool_], rounding: str, finite: bool) -> Any:
    if finite or rounding in ("rz", "rs"):
        return layout.largest
    beyond = layout.infinity if layout.infinity is not None else layout.nan
    if beyond is None:
        return layout.largest
    if rounding == "rm":
        return np.where(negative, beyond, layout.largest)
    if rounding == "rp":
        return np.where(negative, layout.largest, beyond)
    return beyond


def encode_ue8m0(values: Reals, rounding: str, *, finite: bool) -> Bits:
    """The unsigned power-of-two scale: the sign is dropped, NaN is 255, `rz` or `rp` of the magnitude.

    Zero and what is below 2^-127 become code 0, which stands for 2^-127."""
    magnitude = np.abs(values)
    fraction, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 1.0))
    power = exponent.astype(np.int64) - 1
    if rounding == "rp":
        power += fraction > 0.5
    codes = np.clip(np.where(magnitude == 0.0, 0, power + 127), 0, 255)
    codes = np.where((codes == 255) | np.isinf(magnitude), 254 if finite else 255, codes)
    return np.where(np.isnan(values), 255, codes).astype(np.uint8)


# --- the two conversions that every kernel of 16-bit tensors uses, without float64 -----------------------------------


def f32_to_bf16(bits: Bits) -> Bits:
    """Round to nearest even on the bits of an f32. A NaN becomes the canonical one."""
    rounded: Bits = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    if np.count_nonzero(nan):
        rounded = np.where(nan, np.uint32(0x7FFF), rounded)
    return rounded.astype(np.uint16)


def f32_to_f16(bits: Bits) -> Bits:
    """Round to nearest even; a NaN becomes the canonical one."""
    values = bits.view(np.float32)
    codes: Bits = np.asarray(values.astype(np.float16)).view(np.uint16)
    nan = values != values
    if np.count_nonzero(nan):
        codes = np.where(nan, np.uint16(0x7FFF), codes)
    return codes


def bf16_to_f32(bits: Bits) -> Bits:
    return bits.astype(np.uint32) << np.uint32(16)
