"""Floating-point instructions, against rational arithmetic: every rounding, edges of the range, NaN and zero rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from advisor.emulator.formats import F32, FORMATS, as_real
from advisor.emulator.numbers import operation, quiet
from tests.emulator import exact
from tests.emulator.exact import f32, tricky_f32

NAN = 0x7FFFFFFF
ARITHMETIC: dict[str, Callable[..., Fraction]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "fma": lambda a, b, c: a * b + c,
}
Bits = np.ndarray


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def run(opcode: str, *operands: Bits, **how: int) -> Bits:
    found = operation(opcode, **how)
    assert found is not None, opcode
    result: Bits = found.function(*operands)
    return result


def cancels_to_negative_zero(root: str, values: list[float], rounding: str) -> bool:
    """The sign of an exact zero, by IEEE 754."""
    if root in ("mul", "div"):
        return bool(np.signbit(values[0]) != np.signbit(values[1]))
    left = np.signbit(values[0]) != np.signbit(values[1]) if root == "fma" else np.signbit(values[0])
    right = np.signbit(values[-1]) != (root == "sub")
    return bool(left) if left == right else rounding == "rm"


def expected(root: str, kind: str, rounding: str, operands: list[int]) -> int | None:
    """The code of the exact result; None where an operand is not finite or a divisor is zero."""
    values = [float(as_real(np.array([each], np.uint32 if kind == "f32" else np.uint16), kind)[0]) for each in operands]
    rational = [exact.fraction(each) for each in values]
    if any(each is None for each in rational) or (root == "div" and values[1] == 0):
        return None
    result = (ARITHMETIC | {"div": operator.truediv})[root](*rational)
    negative = cancels_to_negative_zero(root, values, rounding)
    return exact.code(result, FORMATS[kind], rounding, zero_negative=negative)


def check(opcode: str, root: str, kind: str, rounding: str, columns: list[Bits]) -> None:
    got = run(opcode, *columns)
    compared = 0
    for index in range(len(got)):
        operands = [int(each[index]) for each in columns]
        wanted = expected(root, kind, rounding, operands)
        if wanted is not None:
            assert int(got[index]) == wanted, (
                opcode,
                [hex(each) for each in operands],
                hex(int(got[index])),
                hex(wanted),
            )
            compared += 1
    assert compared > len(got) // 2


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("root", ["add", "sub", "mul", "div", "fma"])
def test_f32_results_are_the_exactly_rounded_ones(root: str, rounding: str) -> None:
    columns = [tricky_f32(seed, 1500) for seed in range(3 if root == "fma" else 2)]
    if root in ("add", "fma"):  # cancellations and sums near half way
        columns[-1][::3] = columns[0][::3] ^ np.uint32(0x80000000)
        columns[-1][1::7] = (columns[0][1::7] & np.uint32(0xFF800000)) - np.uint32(24 << 23)
    check(f"{root}.{rounding}.f32", root, "f32", rounding, columns)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("root", ["add", "sub", "mul", "fma"])
def test_half_results_are_the_exactly_rounded_ones(root: str, kind: str) -> None:
    rng = np.random.default_rng(7)
    columns = [rng.integers(0, 1 << 16, 2500, dtype=np.uint16) for _ in range(3 if root == "fma" else 2)]
    columns[-1][::4] = (columns[0][::4] & np.uint16(0xFF80)) - np.uint16(0x0400)
    check(f"{root}.rn.{kind}", root, kind, "rn", columns)


def test_a_product_rounded_to_float64_and_then_to_f32_would_be_wrong_and_fma_is_not() -> None:
    left, right, addend = f32([4097.0]), f32([4097.0]), f32([2.0**-60])
    naive = np.float32(np.float64(4097.0) * 4097.0 + 2.0**-60)
    assert run("fma.rn.f32", left, right, addend)[0] == f32([16785410.0])[0]
    assert naive == np.float32(16785408.0)


def test_f64_fma_and_directed_roundings_agree_with_rational_numbers() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal(200), rng.standard_normal(200)
    c = np.where(rng.random(200) < 0.5, -a * b, rng.standard_normal(200))
    got = run("fma.rn.f64", *[each.view(np.uint64) for each in (a, b, c)]).view(np.float64)
    for index in range(200):
        assert got[index] == float(Fraction(a[index]) * Fraction(b[index]) + Fraction(c[index]))
    down = run("div.rm.f64", a.view(np.uint64), b.view(np.uint64)).view(np.float64)
    up = run("div.rp.f64", a.view(np.uint64), b.view(np.uint64)).view(np.float64)
    for index in range(200):
        quotient = Fraction(a[index]) / Fraction(b[index])
        assert Fraction(down[index]) <= quotient <= Fraction(up[index])
        assert np.nextafter(down[index], np.inf) == up[index] or down[index] == up[index]


def test_f64_zeros_take_the_sign_that_the_operands_and_the_rounding_give() -> None:
    one, minus = np.array([1.0]).view(np.uint64), np.array([-1.0]).view(np.uint64)
    assert run("add.rm.f64", one, minus)[0] == 1 << 63
    assert run("add.rz.f64", one, minus)[0] == 0
    negative_zero = np.array([-0.0]).view(np.uint64)
    assert run("fma.rn.f64", negative_zero, one, negative_zero)[0] == 1 << 63
    tiny, negative, nothing = (np.array([each]).view(np.uint64) for each in (1e-200, -1e-200, 0.0))
    assert run("fma.rn.f64", tiny, negative, nothing)[0] == 1 << 63  # below the range, not an exact zero
    assert run("fma.rp.f64", tiny, negative, nothing)[0] == 1 << 63
    assert run("fma.rm.f64", tiny, negative, nothing)[0] == 1 << 63 | 1


def test_results_that_are_no_number_are_the_canonical_nan() -> None:
    infinity, zero = f32([np.inf]), f32([0.0])
    payload = np.array([0x7FC12345], np.uint32)
    assert run("sub.f32", infinity, infinity)[0] == NAN
    assert run("mul.f32", infinity, zero)[0] == NAN
    assert run("add.f32", payload, zero)[0] == NAN
    assert run("fma.rn.f32", infinity, zero, payload)[0] == NAN
    assert run("fma.rm.f32", infinity, zero, zero)[0] == NAN
    assert run("div.rn.f32", zero, zero)[0] == NAN
    assert run("div.rz.f32", f32([1.0]), zero)[0] == infinity[0]
    assert run("add.f16", np.array([0x7C00], np.uint16), np.array([0xFC00], np.uint16))[0] == 0x7FFF
    assert run("fma.rn.bf16", *[np.array([each], np.uint16) for each in (0x7F80, 0, 0)])[0] == 0x7FFF


def test_flush_to_zero_keeps_the_sign_and_touches_operands_and_results() -> None:
    small = np.array([0x00400000, 0x80400000], np.uint32)
    one = f32([1.0, 1.0])
    assert run("mul.ftz.f32", small, f32([2.0**30, 2.0**30])).tolist() == [0, 0x80000000]
    assert run("mul.f32", small, one).tolist() == small.tolist()
    assert run("mul.ftz.f32", np.array([0x00800000] * 2, np.uint32), f32([0.5, -0.5])).tolist() == [0, 0x80000000]
    assert run("add.ftz.f16", np.array([0x0200], np.uint16), np.array([0x8000], np.uint16))[0] == 0


def test_saturation_clamps_to_one_and_a_nan_to_zero() -> None:
    values = np.concatenate([f32([-1.0, 0.5, 2.0, np.inf, -0.0]), np.array([NAN], np.uint32)])
    assert run("add.sat.f32", values, f32([0.0] * 6)).view(np.float32).tolist() == [0.0, 0.5, 1.0, 1.0, 0.0, 0.0]
    assert run("cvt.sat.f32.f32", values).view(np.float32).tolist() == [0.0, 0.5, 1.0, 1.0, 0.0, 0.0]


def test_relu_lifts_negative_results_and_oob_nan_gives_zero() -> None:
    def lane(*values: int) -> Bits:
        return np.array(values, np.uint16)

    assert run("fma.rn.relu.f16", lane(0x3C00, 0x7C00), lane(0xBC00, 0), lane(0, 0)).tolist() == [0, 0x7FFF]
    assert run("fma.rn.oob.f16", lane(0xFFFF, 0x3C00), lane(0x3C00, 0x3C00), lane(0, 0)).tolist() == [0, 0x3C00]


def test_packed_instructions_work_on_both_lanes_and_broadcast_an_immediate() -> None:
    rng = np.random.default_rng(9)
    a, b, c = (rng.integers(0, 1 << 32, (3, 32), dtype=np.uint32) for _ in range(3))
    got = run("fma.rn.bf16x2", a, b, c)
    for shift in (0, 16):
        lanes = [((each >> np.uint32(shift)) & np.uint32(0xFFFF)).astype(np.uint16) for each in (a, b, c)]
        np.testing.assert_array_equal((got >> np.uint32(shift)).astype(np.uint16), run("fma.rn.bf16", *lanes))
    immediate = run("add.f16x2", a, np.uint32(0x3C003C00))
    np.testing.assert_array_equal(immediate, run("add.f16x2", a, np.full((3, 32), 0x3C003C00, np.uint32)))
    two = run("mul.f32x2", a.view(np.uint64), b.view(np.uint64)).view(np.uint32)
    np.testing.assert_array_equal(two, run("mul.f32", a, b))


def test_minimum_and_maximum_prefer_numbers_order_zeros_and_can_let_nan_win() -> None:
    nan = np.array([NAN], np.uint32)
    one, zero, negative = f32([1.0]), f32([0.0]), f32([-0.0])
    for root, of_zeros in (("min", negative), ("max", zero)):
        assert run(f"{root}.f32", nan, one)[0] == one[0]
        assert run(f"{root}.f32", one, nan)[0] == one[0]
        assert run(f"{root}.f32", nan, nan)[0] == NAN
        assert run(f"{root}.NaN.f32", one, nan)[0] == NAN
        assert run(f"{root}.f32", zero, negative)[0] == run(f"{root}.f32", negative, zero)[0] == of_zeros[0]
        assert run(f"{root}.NaN.f32", zero, negative)[0] == of_zeros[0]
    assert run("min.xorsign.abs.f32", f32([-3.0]), f32([2.0]))[0] == f32([-2.0])[0]
    assert run("max.f32", one, zero, f32([5.0]), sources=3)[0] == f32([5.0])[0]
    lanes = np.array([0x7FFF3C00], np.uint32)
    assert run("max.f16x2", lanes, np.array([0x40004000], np.uint32))[0] == 0x40004000
    assert run("max.NaN.bf16x2", np.array([0xFFC03F80], np.uint32), np.array([0x40004000], np.uint32))[0] == 0x7FFF4000


@pytest.mark.parametrize("root", ["min", "max"])
def test_random_minima_agree_with_numpy_where_no_nan_or_zero_takes_part(root: str) -> None:
    a, b = tricky_f32(1, 3000), tricky_f32(2, 3000)
    regular = ~(np.isnan(a.view(np.float32)) | np.isnan(b.view(np.float32)))
    a, b = a[regular], b[regular]
    theirs = (np.minimum if root == "min" else np.maximum)(a.view(np.float32), b.view(np.float32))
    for opcode in (f"{root}.f32", f"{root}.NaN.f32"):
        np.testing.assert_array_equal(run(opcode, a, b).view(np.float32), theirs)


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_square_roots_and_reciprocals_are_exactly_rounded(rounding: str) -> None:
    bits = tricky_f32(4, 900) & np.uint32(0x7FFFFFFF)
    roots, parts = run(f"sqrt.{rounding}.f32", bits), run(f"rcp.{rounding}.f32", bits)
    for operand, root, part in zip(bits, roots, parts, strict=True):
        value = exact.fraction(float(operand.view(np.float32)))
        if value is None or value == 0:
            continue
        assert int(part) == exact.code(1 / value, F32, rounding)
        found = Fraction(float(root.view(np.float32)))
        below = Fraction(float(np.nextafter(root.view(np.float32), np.float32(0))))
        above = Fraction(float(np.nextafter(root.view(np.float32), np.float32(np.inf))))
        if rounding == "rn":
            assert ((below + found) / 2) ** 2 <= value <= ((above + found) / 2) ** 2
        elif rounding == "rp":
            assert below**2 < value <= found**2
        else:
            assert found**2 <= value < above**2


def test_approximations_stay_within_the_documented_error_and_say_so() -> None:
    values = np.linspace(0.01, 30, 5000, dtype=np.float32)
    for root, truth in (("ex2", np.exp2), ("lg2", np.log2), ("rcp", np.reciprocal), ("rsqrt", lambda x: x**-0.5),
                        ("sin", np.sin), ("cos", np.cos), ("tanh", np.tanh), ("sqrt", np.sqrt)):  # fmt: skip
        found = operation(f"{root}.approx.ftz.f32" if root != "tanh" else "tanh.approx.f32")
        assert found is not None
        assert found.approximate
        got = found.function(values.view(np.uint32)).view(np.float32)
        np.testing.assert_allclose(got, truth(values.astype(np.float64)), rtol=2.0**-23, atol=2.0**-24)
    plain = operation("fma.rn.f32")
    assert plain is not None
    assert not plain.approximate


def test_ex2_of_f16_cuts_subnormal_results_and_rounds_the_others() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    found = operation("ex2.approx.f16x2")
    assert found is not None
    got = found.function(codes.astype(np.uint32)).astype(np.uint16)
    powers = np.exp2(codes.view(np.float16).astype(np.float64))
    small = powers < 2.0**-14
    np.testing.assert_array_equal(got[small], np.floor(powers[small] * 2.0**24).astype(np.uint16))
    usual = ~small & (powers < 65519)
    np.testing.assert_array_equal(got[usual], powers[usual].astype(np.float16).view(np.uint16))
    assert got[0x4C00] == 0x7C00
    assert got[0x7C01] == got[0xFE00] == 0x7FFF


def test_corner_cases_of_the_functions_follow_their_tables() -> None:
    corners = np.array([0xFF800000, 0x80000000, 0x00000000, 0x7F800000, 0x7FC00000], np.uint32)  # -inf -0 +0 +inf nan
    table = {
        "ex2.approx.ftz.f32": [0, 0x3F800000, 0x3F800000, 0x7F800000, NAN],
        "lg2.approx.ftz.f32": [NAN, 0xFF800000, 0xFF800000, 0x7F800000, NAN],
        "rcp.approx.ftz.f32": [0x80000000, 0xFF800000, 0x7F800000, 0, NAN],
        "rsqrt.approx.ftz.f32": [NAN, 0xFF800000, 0x7F800000, 0, NAN],
        "sqrt.approx.ftz.f32": [NAN, 0x80000000, 0, 0x7F800000, NAN],
        "sin.approx.ftz.f32": [NAN, 0x80000000, 0, NAN, NAN],
        "cos.approx.ftz.f32": [NAN, 0x3F800000, 0x3F800000, NAN, NAN],
        "tanh.approx.f32": [0xBF800000, 0x80000000, 0, 0x3F800000, NAN],
    }
    for opcode, wanted in table.items():
        assert run(opcode, corners).tolist() == wanted, opcode


def test_approximate_division_flushes_the_reciprocal_of_a_huge_divisor() -> None:
    huge = f32([2.0**127])
    assert run("div.approx.f32", f32([2.0**100]), huge)[0] == 0
    assert run("div.full.f32", f32([2.0**100]), huge)[0] == f32([2.0**-27])[0]
    assert run("div.approx.f32", f32([np.inf]), huge)[0] == NAN


def test_sign_instructions_change_the_sign_of_all_but_a_nan() -> None:
    for opcode in ("neg.f32", "abs.f32", "neg.ftz.f32", "abs.ftz.f32"):
        assert run(opcode, np.array([0xFFC01234, 0x7F800001], np.uint32)).tolist() == [NAN, NAN], opcode
    assert run("neg.f16x2", np.array([0x3C00FD00], np.uint32))[0] == 0xBC007FFF
    assert run("abs.bf16", np.array([0xFF81, 0xFF80], np.uint16)).tolist() == [0x7FFF, 0x7F80]
    signalling = np.array([0xFFF0000000000001], np.uint64)
    assert run("neg.f64", signalling)[0] == run("abs.f64", signalling)[0] == 0xFFF8000000000001
    assert run("neg.f32", np.array([1, 0], np.uint32)).tolist() == [0x80000001, 0x80000000]
    assert run("neg.ftz.f32", np.array([1], np.uint32))[0] == 0x80000000
    assert run("neg.bf16x2", np.array([0x3F803F80], np.uint32))[0] == 0xBF80BF80
    assert run("abs.f16x2", np.array([0xBC008000], np.uint32))[0] == 0x3C000000
    assert run("copysign.f32", f32([-1.0]), f32([3.0]))[0] == f32([-3.0])[0]
    assert run("abs.f64", np.array([-2.0]).view(np.uint64)).view(np.float64)[0] == 2.0


def test_properties_of_numbers() -> None:
    values = np.array([0, 1, 0x00800000, 0x7F800000, NAN], np.uint32)
    wanted = {
        "finite": [1, 1, 1, 0, 0], "infinite": [0, 0, 0, 1, 0], "number": [1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 1], "normal": [1, 0, 1, 0, 0], "subnormal": [0, 1, 0, 0, 0],
    }  # fmt: skip
    for name, row in wanted.items():
        assert run(f"testp.{name}.f32", values).astype(int).tolist() == row


def test_mixed_instructions_widen_their_16_bit_operands() -> None:
    half = np.array([0x3C01], np.uint16)
    assert run("add.f32.f16", half, f32([2.0**-24]))[0] == run("add.f32", f32([1 + 2.0**-10]), f32([2.0**-24]))[0]
    assert run("fma.rz.f32.bf16", *[np.array([0x3F80], np.uint16)] * 2, f32([1.0]))[0] == f32([2.0])[0]


@pytest.mark.parametrize("opcode", [
    "add.rx.f32", "fma.f32", "fma.rn.ftz.bf16", "add.ftz.f64", "div.f32", "rcp.f32", "ex2.f32", "mul.relu.f16",
    "min.ftz.f64", "abs.sat.f32", "tanh.approx.f64", "mul.rn.rz.f32", "div.rn.f16", "add.rn.rn.f32", "sqrt.approx.f64",
])  # fmt: skip
def test_a_qualifier_that_the_instruction_does_not_have_is_not_guessed(opcode: str) -> None:
    assert operation(opcode) is None
