"""`cvt` in all type pairs, against rational arithmetic and ml_dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor, trunc

import ml_dtypes
import numpy as np
import pytest

from advisor.emulator.formats import FORMATS, Format, as_real
from advisor.emulator.numbers import operation, quiet
from advisor.emulator.operation import WIDTH, unsigned
from tests.emulator import exact
from tests.emulator.exact import f32, tricky_f32

Bits = np.ndarray
INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
F64 = Format("f64", 64, 52, 1023, (0x7FF << 52) - 1, 0x7FF << 52, 0x7FF8 << 48)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def run(opcode: str, *operands: Bits) -> Bits:
    found = operation(opcode)
    assert found is not None, opcode
    result: Bits = found.function(*operands)
    assert result.dtype == unsigned(found.results[0])
    return result


def limits(kind: str) -> tuple[int, int]:
    bits = WIDTH[kind]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def number(code: int, kind: str) -> int:
    return code - (1 << WIDTH[kind]) if kind[0] == "s" and code >> (WIDTH[kind] - 1) else code


def half_even(value: Fraction) -> int:
    return round(value)


WHOLE = {"rni": half_even, "rzi": trunc, "rmi": floor, "rpi": ceil}


def floats(kind: str, seed: int) -> Bits:
    rng = np.random.default_rng(seed)
    if WIDTH[kind] == 16:
        return rng.integers(0, 1 << 16, 400, dtype=np.uint16)
    bits = tricky_f32(seed, 500)
    if kind == "f32":
        bits[::2] = f32((rng.standard_normal(len(bits[::2])) * 300).round(1))
        return bits
    halves = rng.integers(-400, 400, 100) / 2
    large = np.ldexp(rng.standard_normal(200), rng.integers(0, 70, 200))
    return np.concatenate([halves, large, [np.nan, np.inf, -np.inf, 2.0**63, -(2.0**63), 2.0**64]]).view(np.uint64)


@pytest.mark.parametrize("rounding", WHOLE)
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_become_integers_clamped_with_a_rule_for_nan(source: str, kind: str, rounding: str) -> None:
    codes = floats(source, 1)
    low, high = limits(kind)
    got = run(f"cvt.{rounding}.{kind}.{source}", codes)
    for value, result in zip(as_real(codes, source).tolist(), got.tolist(), strict=True):
        if value != value:
            wanted = 1 << (WIDTH[kind] - 1) if source == "f64" or WIDTH[kind] == 64 else 0
            assert result == wanted
        elif value in (float("inf"), float("-inf")):
            assert number(result, kind) == (high if value > 0 else low)
        else:
            assert number(result, kind) == min(max(WHOLE[rounding](Fraction(value)), low), high), value


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("result", ["f16", "bf16", "f32", "f64"])
def test_integers_become_floats_rounded_once(result: str, kind: str, rounding: str) -> None:
    bits = WIDTH[kind]
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 1 << bits, 150, dtype=unsigned(kind))
    edges = np.array([0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1], codes.dtype)
    codes = np.concatenate([codes, codes >> codes.dtype.type(bits // 2), codes & ~codes.dtype.type(0xFF), edges])
    if bits == 64:
        half_way = (np.uint64(1 << 63) | (codes & np.uint64(0xFF << 40)) | np.uint64(1 << 39)) + (codes & np.uint64(1))
        above = [1 << at | 1 << at - 24 | 1 for at in range(53, 64)]  # half way between two f32, and one more
        codes = np.concatenate([codes, half_way, np.array(above, np.uint64)])
    layout = F64 if result == "f64" else FORMATS[result]
    got = run(f"cvt.{rounding}.{result}.{kind}", codes)
    for code, found in zip(codes.tolist(), got.tolist(), strict=True):
        assert found == exact.code(Fraction(number(code, kind)), layout, rounding), code


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("result", INTEGERS)
def test_integers_wrap_or_saturate(result: str, source: str) -> None:
    codes = np.random.default_rng(3).integers(0, 1 << WIDTH[source], 300, dtype=unsigned(source))
    codes[:4] = [0, 1, (1 << WIDTH[source]) - 1, 1 << (WIDTH[source] - 1)]
    low, high = limits(result)
    wrapped, held = run(f"cvt.{result}.{source}", codes), run(f"cvt.sat.{result}.{source}", codes)
    for code, first, second in zip(codes.tolist(), wrapped.tolist(), held.tolist(), strict=True):
        value = number(code, source)
        assert first == value & ((1 << WIDTH[result]) - 1)
        assert number(second, result) == min(max(value, low), high)


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("result", "source"), [("f32", "f64"), ("f16", "f64"), ("bf16", "f64"), ("f16", "f32"),
                                                ("bf16", "f32"), ("bf16", "f16"), ("f16", "bf16")])  # fmt: skip
def test_floats_narrow_in_every_direction(result: str, source: str, rounding: str) -> None:
    codes = floats(source, 4)
    if source == "f64":
        rng = np.random.default_rng(4)
        more = np.ldexp(rng.standard_normal(300), rng.integers(-160, 140, 300))
        half_way = np.float64(1) + np.ldexp(1.0, -np.arange(1, 40))
        codes = np.concatenate([codes, more.view(np.uint64), half_way.view(np.uint64)])
    got = run(f"cvt.{rounding}.{result}.{source}", codes)
    layout = FORMATS[result]
    for value, found in zip(as_real(codes, source).tolist(), got.tolist(), strict=True):
        rational = exact.fraction(value)
        if value != value:
            assert source == "f64" or found == layout.nan
        elif rational is not None:
            negative = bool(np.signbit(value))
            assert found == exact.code(rational, layout, rounding, zero_negative=negative), value
        else:
            assert found == layout.infinity | (1 << (layout.bits - 1) if value < 0 else 0)


def test_a_nan_of_f64_keeps_sign_and_top_of_its_payload() -> None:
    codes = np.array([0x7FF8000000000000, 0x7FF56B5449D6DC05, 0xFFF0000000000001], np.uint64)
    assert run("cvt.rn.f32.f64", codes).tolist() == [0x7FC00000, 0x7FEB5AA2, 0xFFC00000]
    assert run("cvt.rz.f16.f64", codes).tolist() == [0x7E00, 0x7F5A, 0xFE00]
    assert run("cvt.rn.bf16.f64", codes).tolist() == [0x7FC0, 0x7FEB, 0xFFC0]


def test_floats_widen_exactly() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    for source in ("f16", "bf16"):
        values = as_real(codes, source)
        number_ = ~np.isnan(values)
        single = run(f"cvt.f32.{source}", codes).view(np.float32)
        np.testing.assert_array_equal(single[number_], values[number_].astype(np.float32))
        np.testing.assert_array_equal(run(f"cvt.f64.{source}", codes).view(np.float64), values)
    assert run("cvt.f32.f16", np.array([0x7E00], np.uint16))[0] == 0x7FFFFFFF


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_rounding_to_a_whole_number_within_a_type(kind: str) -> None:
    codes = floats(kind, 5)
    values = as_real(codes, kind)
    for name, ufunc in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        got = as_real(run(f"cvt.{name}.{kind}.{kind}", codes), kind)
        number_ = ~np.isnan(values)
        np.testing.assert_array_equal(got[number_], ufunc(values)[number_])
        np.testing.assert_array_equal(np.signbit(got[number_]), np.signbit(values[number_]))


def test_tf32_keeps_ten_bits() -> None:
    codes = tricky_f32(6, 2000)
    for rounding in ("rna", "rn", "rz"):
        got = run(f"cvt.{rounding}.tf32.f32", codes)
        assert (got[(got & np.uint32(0x7FFFFFFF)) <= 0x7F800000] & np.uint32(0x1FFF) == 0).all()
        for code, found in zip(codes, got.tolist(), strict=True):
            rational = exact.fraction(float(code.view(np.float32)))
            if rational is not None:
                negative = bool(code >> 31)
                assert found == exact.code(rational, FORMATS["tf32"], rounding, zero_negative=negative) << 13
    assert run("cvt.rn.relu.tf32.f32", f32([-1.0, 2.0])).tolist() == [0, 0x40000000]
    assert run("cvt.rna.satfinite.tf32.f32", f32([3e38 * 2]))[0] == 0x7F7FE000
    odd = np.array([0x7FB9BCB7, 0xFFC00001, 0x7F800001, 0xFF800000, 0x7F7FF000], np.uint32)
    cut = [0x7FB9A000, 0xFFC00000, 0x7F800000, 0xFF800000, 0x7F800000]
    assert run("cvt.rna.tf32.f32", odd).tolist() == cut
    assert run("cvt.rna.satfinite.tf32.f32", odd).tolist() == [each - 0x2000 for each in cut]


def test_half_pairs_put_the_first_source_on_top() -> None:
    a, b = tricky_f32(7, 600), tricky_f32(8, 600)
    for kind in ("f16", "bf16"):
        for form in ("rn", "rz", "rn.relu", "rz.relu.satfinite", "rn.satfinite"):
            got = run(f"cvt.{form}.{kind}x2.f32", a, b)
            np.testing.assert_array_equal((got >> np.uint32(16)).astype(np.uint16), run(f"cvt.{form}.{kind}.f32", a))
            np.testing.assert_array_equal(got.astype(np.uint16), run(f"cvt.{form}.{kind}.f32", b))
    assert run("cvt.rn.relu.bf16.f32", f32([-1.0, -0.0, np.nan, 2.0])).tolist() == [0, 0, 0x7FFF, 0x4000]
    assert run("cvt.rn.satfinite.f16.f32", f32([1e9, -np.inf])).tolist() == [0x7BFF, 0xFBFF]


ML_TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
            "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn}  # fmt: skip


@pytest.mark.parametrize("kind", ML_TYPES)
def test_small_pairs_from_f32_and_from_halves_and_back(kind: str) -> None:
    limit = float(np.array([FORMATS[kind].largest], np.uint8).view(ML_TYPES[kind]).astype(np.float32)[0])
    step = 4 if kind == "e2m1" else 8
    rng = np.random.default_rng(9)
    values = (rng.standard_normal((2, 800)) * limit / 2).astype(np.float16).astype(np.float32)
    held = np.clip(values, -limit, limit).astype(ML_TYPES[kind]).view(np.uint8).astype(np.uint32)
    got = run(f"cvt.rn.satfinite.{kind}x2.f32", *values.view(np.uint32))
    np.testing.assert_array_equal(got, held[0] << step | held[1])
    halves = values.astype(np.float16).view(np.uint16).astype(np.uint32)
    packed = halves[0] << np.uint32(16) | halves[1]
    np.testing.assert_array_equal(run(f"cvt.rn.satfinite.{kind}x2.f16x2", packed), got)
    back = run(f"cvt.rn.f16x2.{kind}x2", got)
    upper = (back >> np.uint32(16)).astype(np.uint16).view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(upper, held[0].astype(np.uint8).view(ML_TYPES[kind]).astype(np.float32))
    brain = run(f"cvt.rn.bf16x2.{kind}x2", got)
    upper = (brain >> np.uint32(16)).astype(np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(upper, held[0].astype(np.uint8).view(ML_TYPES[kind]).astype(np.float32))
    lifted = run(f"cvt.rn.satfinite.relu.{kind}x2.f32", *values.view(np.uint32))
    positive = np.clip(values, 0, limit).astype(ML_TYPES[kind]).view(np.uint8).astype(np.uint32)
    np.testing.assert_array_equal(lifted, positive[0] << step | positive[1])


def test_scales_pack_and_unpack() -> None:
    assert run("cvt.rp.satfinite.ue8m0x2.f32", f32([3.0]), f32([1.0]))[0] == 129 << 8 | 127
    assert run("cvt.rz.ue8m0x2.bf16x2", np.array([0x40403F80], np.uint32))[0] == 128 << 8 | 127
    assert run("cvt.rn.bf16x2.ue8m0x2", np.array([128 << 8 | 127], np.uint16))[0] == 0x40003F80


def test_stochastic_conversions_use_their_own_random_bits() -> None:
    value = f32([1 + 0.5 * 2.0**-7])
    assert run("cvt.rs.bf16x2.f32", value, value, np.array([0x80007FFF], np.uint32))[0] == 0x3F813F80
    four = run("cvt.rs.satfinite.e4m3x4.f32", *[f32([1.0625])] * 4, np.array([0x8000_7FFF], np.uint32))
    assert four[0] == 0x39393838
    half = run("cvt.rs.f16x2.f32", *[f32([1 + 0.5 * 2.0**-10])] * 2, np.array([0x10000FFF], np.uint32))
    assert half[0] == 0x3C013C00


def test_packing_saturates_and_moves_the_third_source_up() -> None:
    def words(*values: int) -> Bits:
        return np.array(values, np.int64).astype(np.uint32)

    a, b = words(-5, 300, 1 << 20), words(100, -300, -(1 << 20))
    assert run("cvt.pack.sat.u8.s32.b32", a, b, words(0x1234, 0, 0)).tolist() == [0x12340064, 0xFF00, 0xFF00]
    assert run("cvt.pack.sat.s8.s32.b32", a, b, words(0, 0, 0)).tolist() == [0xFB64, 0x7F80, 0x7F80]
    assert run("cvt.pack.sat.s16.s32", a, b).tolist() == [0xFFFB0064, 0x012CFED4, 0x7FFF8000]
    assert run("cvt.pack.sat.u4.s32.b32", a, b, words(1, 0, 0))[0] == 0x10F


def test_flushing_conversions() -> None:
    small = np.array([0x80000001, 0x00400000], np.uint32)
    assert run("cvt.rmi.ftz.s32.f32", small).tolist() == [0, 0]
    assert run("cvt.rmi.s32.f32", small).tolist() == [0xFFFFFFFF, 0]
    tiny = np.array([1e-40]).view(np.uint64)
    assert run("cvt.rn.ftz.f32.f64", tiny)[0] == 0
    assert run("cvt.rn.f32.f64", tiny)[0] != 0


@pytest.mark.parametrize("opcode", [
    "cvt.f32.f64", "cvt.rn.f64.f32", "cvt.s32.f32", "cvt.rn.s32.f32", "cvt.rzi.f32.s32", "cvt.f32.s32",
    "cvt.rn.u32.s32", "cvt.rn.e4m3x2.f32", "cvt.rz.satfinite.e4m3x2.f32", "cvt.rn.relu.f32.f64", "cvt.rni.f16.f32",
    "cvt.rm.bf16x2.f32", "cvt.ftz.f64.f16", "cvt.pack.sat.u16.s32.b32", "cvt.pack.u8.s32.b32",
    "cvt.rn.f16x2.f16", "cvt.rna.f16.f32", "cvt.u32", "cvt.rn.f32.e4m3x2",
])  # fmt: skip
def test_a_pair_or_rounding_that_ptx_does_not_have_is_not_guessed(opcode: str) -> None:
    assert operation(opcode) is None
