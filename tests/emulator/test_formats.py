"""Decoding and encoding of every float format, against ml_dtypes and against rational arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from advisor.emulator.formats import (
    BF16,
    E4M3,
    F32,
    FORMATS,
    as_real,
    code_values,
    encode,
    encode_ue8m0,
    f32_to_bf16,
    f32_to_f16,
    to_odd,
    two_sum,
)
from advisor.emulator.numbers import quiet
from tests.emulator import exact

ML_TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("name", ML_TYPES)
def test_every_code_of_a_small_format_has_the_value_that_ml_dtypes_gives(name: str) -> None:
    table = code_values(name)
    theirs = np.arange(len(table), dtype=np.uint8).view(ML_TYPES[name]).astype(np.float64)
    np.testing.assert_array_equal(table, theirs)
    number = ~np.isnan(table)
    np.testing.assert_array_equal(np.signbit(table)[number], np.signbit(theirs)[number])


@pytest.mark.parametrize(("name", "theirs"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_every_16_bit_code_decodes_and_comes_back(name: str, theirs: type) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    values = as_real(codes, name)
    np.testing.assert_array_equal(values, codes.view(theirs).astype(np.float64))
    number = ~np.isnan(values)
    np.testing.assert_array_equal(encode(values, FORMATS[name])[number], codes[number])
    assert (encode(values, FORMATS[name])[~number] == 0x7FFF).all()


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_nearest_even_of_f32_agrees_with_ml_dtypes(name: str) -> None:
    bits = exact.tricky_f32(1, 30_000)
    values = bits.view(np.float32)
    limit = code_values(name)[FORMATS[name].largest]
    values = values[np.abs(values) <= limit]  # beyond it PTX saturates and ml_dtypes does not
    theirs = values.astype(ML_TYPES[name]).view(np.uint8)
    np.testing.assert_array_equal(encode(values.astype(np.float64), FORMATS[name], finite=True), theirs)


@pytest.mark.parametrize(("name", "quick", "theirs"), [
    ("bf16", f32_to_bf16, ml_dtypes.bfloat16), ("f16", f32_to_f16, np.float16),
])  # fmt: skip
def test_the_two_quick_conversions_agree_with_numpy_and_with_the_general_one(name, quick, theirs) -> None:
    bits = exact.tricky_f32(2, 30_000)
    values = bits.view(np.float32)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(quick(bits)[number], values[number].astype(theirs).view(np.uint16))
    np.testing.assert_array_equal(quick(bits), encode(values.astype(np.float64), FORMATS[name]))


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp", "rna"])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_sums_round_once_in_every_format_and_direction(name: str, rounding: str) -> None:
    layout = FORMATS[name]
    rng = np.random.default_rng(3)
    scale = rng.integers(layout.smallest_exponent - layout.mantissa - 3, layout.bias + 2, 300)
    left = np.ldexp(rng.integers(-(1 << 12), 1 << 12, 300).astype(np.float64), scale - 11)
    half_steps = np.ldexp(1.0, np.maximum(scale, layout.smallest_exponent) - layout.mantissa - 1)
    right = np.where(rng.random(300) < 0.5, rng.choice([-1.0, 1.0], 300) * half_steps * 2.0**-60, half_steps)
    right[:3] = 0.0
    codes = encode(to_odd(*two_sum(left, right)), layout, rounding)
    for a, b, got in zip(left, right, codes, strict=True):
        total = Fraction(a) + Fraction(b)
        assert int(got) == exact.code(total, layout, rounding, zero_negative=bool(np.signbit(a + b))), (a, b)


def test_rounding_the_rounded_sum_again_is_seen_as_wrong() -> None:
    half = np.array([1.0 + 2.0**-8])  # half way between two bf16
    little = np.array([2.0**-70])
    once = encode(to_odd(*two_sum(half, little)), BF16)
    twice = encode(half + little, BF16)
    assert once[0] == 0x3F81
    assert twice[0] == 0x3F80


def test_overflow_saturates_only_when_asked_and_rounding_can_prevent_it() -> None:
    big = np.array([1e39, -1e39, np.inf, -np.inf])
    assert encode(big, F32).tolist() == [0x7F800000, 0xFF800000, 0x7F800000, 0xFF800000]
    assert encode(big, F32, finite=True).tolist() == [0x7F7FFFFF, 0xFF7FFFFF, 0x7F7FFFFF, 0xFF7FFFFF]
    assert encode(big, F32, "rz").tolist() == [0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000]
    assert encode(big, F32, "rm").tolist() == [0x7F7FFFFF, 0xFF800000, 0x7F800000, 0xFF800000]
    assert encode(np.array([449.0, 464.0, 465.0, np.nan]), E4M3, finite=True).tolist() == [0x7E, 0x7E, 0x7E, 0x7F]
    assert encode(np.array([500.0, -np.inf]), E4M3).tolist() == [0x7F, 0xFF]


def test_a_nan_becomes_the_largest_value_of_a_format_without_nan() -> None:
    for name in ("e2m3", "e3m2", "e2m1"):
        assert encode(np.array([np.nan]), FORMATS[name], finite=True)[0] == FORMATS[name].largest


def test_stochastic_rounding_carries_exactly_when_the_random_bits_reach_one() -> None:
    value = np.full(4, 1.0 + 0.75 * 2.0**-7)
    random = np.array([0.0, 0.25 - 2.0**-16, 0.25, 1 - 2.0**-16])
    assert encode(value, BF16, "rs", random=random).tolist() == [0x3F80, 0x3F80, 0x3F81, 0x3F81]
    assert encode(-value, BF16, "rs", random=random).tolist() == [0xBF80, 0xBF80, 0xBF81, 0xBF81]


def test_power_of_two_scales_round_up_or_down_and_drop_the_sign() -> None:
    values = np.array([1.0, 1.5, -3.0, 0.0, 2.0**-130, np.inf, np.nan, 2.0**127])
    assert encode_ue8m0(values, "rz", finite=True).tolist() == [127, 127, 128, 0, 0, 254, 255, 254]
    assert encode_ue8m0(values, "rp", finite=True).tolist() == [127, 128, 129, 0, 0, 254, 255, 254]
