"""mma.sync: sums against rational arithmetic, the chip's model against its own definition in Python integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import trunc

import numpy as np
import pytest

from advisor.emulator import fragments
from advisor.emulator.formats import F16, F32, FORMATS, as_real, encode
from advisor.emulator.mma import Accumulation, Product, model_of, multiply_add, operand, warp_mma
from advisor.emulator.numbers import quiet
from tests.emulator import exact

FLOAT_FORMS = [
    "m16n8k16.row.col.f32.bf16.bf16.f32", "m16n8k16.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f16.f16.f16.f16",
    "m16n8k8.row.col.f32.f16.f16.f32", "m16n8k8.row.col.f32.bf16.bf16.f32", "m16n8k8.row.col.f32.tf32.tf32.f32",
    "m16n8k4.row.col.f32.tf32.tf32.f32", "m16n8k32.row.col.f32.e4m3.e5m2.f32", "m16n8k16.row.col.f16.e4m3.e4m3.f16",
    "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", "m16n8k32.row.col.kind::f8f6f4.f32.e2m3.e4m3.f32",
]  # fmt: skip
INTEGER_FORMS = [
    "m16n8k32.row.col.s32.s8.u8.s32", "m16n8k16.row.col.satfinite.s32.u8.u8.s32", "m8n8k16.row.col.s32.s8.s8.s32",
    "m16n8k64.row.col.s32.s4.u4.s32", "m8n8k32.row.col.s32.u4.s4.s32", "m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "m8n8k128.row.col.s32.b1.b1.s32.and.popc",
]  # fmt: skip
BITS = fragments.ELEMENT_BITS


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def float_codes(shape: tuple[int, ...], kind: str, seed: int) -> np.ndarray:
    """Codes of values of a few magnitudes, with zeros; tf32 with bits below its own."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 3, shape)
    values[rng.random(shape) < 0.1] = 0.0
    if kind == "tf32":
        return values.astype(np.float32).view(np.uint32)
    codes = encode(values, FORMATS[kind], finite=True)
    return codes << np.uint8(2) if kind == "e2m1" else codes


def spread(a: np.ndarray, b: np.ndarray, c: np.ndarray, kinds: Product) -> list[list[np.ndarray]]:
    """The registers of the three operands."""
    stacks = (fragments.registers_a(a, kinds.a), fragments.registers_b(b, kinds.b), fragments.registers_c(c, kinds.d))
    return [fragments.unstack(each) for each in stacks]


@pytest.mark.parametrize("form", FLOAT_FORMS)
def test_a_sum_is_rounded_once(form: str) -> None:
    mma = warp_mma(f"mma.sync.aligned.{form}")
    assert mma is not None
    kinds = mma.product
    a = float_codes((2, mma.m, mma.k), kinds.a, 1)
    b = float_codes((2, mma.k, mma.n), kinds.b, 2)
    c = float_codes((2, mma.m, mma.n), kinds.d, 3)
    registers = spread(a, b, c, kinds)
    assert [len(each) for each in registers] == [mma.a_registers, mma.b_registers, mma.d_registers]
    d = mma(*registers)
    assert all(each.shape == (2, 32) for each in d)
    result = fragments.matrix_c(fragments.stack(d), kinds.d, mma.m)
    left, right, start = operand(a, kinds.a), operand(b, kinds.b), as_real(c, kinds.d)
    for row in range(mma.m):
        for column in range(mma.n):
            terms = zip(left[1, row].tolist(), right[1, :, column].tolist(), strict=True)
            total = Fraction(start[1, row, column]) + sum(Fraction(x) * Fraction(y) for x, y in terms)
            assert int(result[1, row, column]) == exact.code(total, FORMATS[kinds.d], "rn")


@pytest.mark.parametrize("form", INTEGER_FORMS)
def test_integer_sums_are_exact_and_wrap_or_saturate(form: str) -> None:
    mma = warp_mma(f"mma.sync.aligned.{form}")
    assert mma is not None
    kinds = mma.product
    rng = np.random.default_rng(4)
    a = rng.integers(0, 1 << BITS[kinds.a], (mma.m, mma.k), dtype=np.uint8)
    b = rng.integers(0, 1 << BITS[kinds.b], (mma.k, mma.n), dtype=np.uint8)
    c = rng.integers(0, 1 << 32, (mma.m, mma.n), dtype=np.uint32)
    c[0, 0], c[1, 1] = 0x7FFFFFFF, 0x80000000
    registers = spread(a, b, c, kinds)
    result = fragments.matrix_c(fragments.stack(mma(*registers)), "s32", mma.m).view(np.int32)

    def number(code: int, kind: str) -> int:
        bits = BITS[kind]
        return code - (1 << bits) if kind[0] == "s" and code >> (bits - 1) else code

    for row in range(mma.m):
        for column in range(mma.n):
            pairs = list(zip(a[row].tolist(), b[:, column].tolist(), strict=True))
            if kinds.bit_operation:
                total = sum(x ^ y if kinds.bit_operation == "xor" else x & y for x, y in pairs)
            else:
                total = sum(number(x, kinds.a) * number(y, kinds.b) for x, y in pairs)
            total += int(c[row, column].view(np.int32))
            if kinds.saturate:
                wanted = min(max(total, -(1 << 31)), (1 << 31) - 1)
            else:
                wanted = (total + (1 << 31)) % (1 << 32) - (1 << 31)
            assert int(result[row, column]) == wanted


def test_double_precision_is_a_chain_of_fused_multiply_adds() -> None:
    mma = warp_mma("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    assert mma is not None
    rng = np.random.default_rng(5)
    a, b, c = rng.standard_normal((8, 4)), rng.standard_normal((4, 8)), rng.standard_normal((8, 8))
    registers = spread(*[each.view(np.uint64) for each in (a, b, c)], mma.product)
    result = fragments.matrix_c(fragments.stack(mma(*registers)), "f64", 8).view(np.float64)
    for row in range(8):
        for column in range(8):
            running = c[row, column]
            for at in range(4):
                running = float(Fraction(a[row, at]) * Fraction(b[at, column]) + Fraction(running))
            assert result[row, column] == running


def floor_log2(value: Fraction) -> int:
    exponent = abs(value).numerator.bit_length() - abs(value).denominator.bit_length()
    return exponent - (Fraction(2) ** exponent > abs(value))


def modelled(a: list[float], b: list[float], c: float, kinds: Product) -> int:
    """The definition of the model for one element, in integers."""
    if kinds.model.widened:
        firsts = [at for half in (0, 2) for at in range(len(a)) if at % 4 in (half, half + 1)]
        inner = replace(kinds, a="f16", b="f16", model=replace(kinds.model, widened=False))
        code = modelled([a[at] for at in firsts], [b[at] for at in firsts], 0.0, inner)
        value = float(as_real(np.array([code], FORMATS[kinds.d].dtype), kinds.d)[0])
        return exact.code(Fraction(value) + Fraction(c), FORMATS[kinds.d], "rn")
    smallest = (FORMATS[kinds.a].smallest_exponent, FORMATS[kinds.b].smallest_exponent)
    running = Fraction(c)
    for at in range(0, len(a), kinds.model.block):
        pairs = [(Fraction(x), Fraction(y)) for x, y in zip(a[at : at + kinds.model.block], b[at:], strict=False)]
        exponents = [
            max(floor_log2(x), smallest[0]) + max(floor_log2(y), smallest[1]) for x, y in pairs if x != 0 and y != 0
        ]
        if running != 0:
            exponents.append(max(floor_log2(running), -126 if kinds.d == "f32" else -14))
        if not exponents:
            return 0
        unit = Fraction(2) ** (max(exponents) - kinds.model.fraction_bits)
        total = (sum(trunc(x * y / unit) for x, y in pairs) + trunc(running / unit)) * unit
        if kinds.d == "f16":
            code = exact.code(total, F16, "rn")
        else:
            code = exact.code(total, F32, "rz") & (0xFFFFFFFF << (23 - kinds.model.result_bits) & 0xFFFFFFFF)
        running = Fraction(float(as_real(np.array([code], FORMATS[kinds.d].dtype), kinds.d)[0]))
    return code


@pytest.mark.parametrize(("kind", "d", "depth", "warpgroup"), [
    ("f16", "f32", 16, False), ("bf16", "f32", 32, False), ("tf32", "f32", 16, True), ("e4m3", "f32", 32, True),
    ("e5m2", "f32", 64, True), ("f16", "f16", 16, True), ("e4m3", "f32", 32, False), ("e4m3", "f16", 32, True),
    ("e5m2", "f16", 32, False), ("e4m3", "f32", 16, False),
])  # fmt: skip
def test_the_model_is_its_definition(kind: str, d: str, depth: int, warpgroup: bool) -> None:
    kinds = Product(kind, kind, d, model=model_of(kind, warpgroup=warpgroup, depth=depth))
    a, b, c = float_codes((8, depth), kind, 6), float_codes((depth, 8), kind, 7), float_codes((8, 8), d, 8)
    a[0] = 0
    c[0, 0] = 0
    got = multiply_add(a, b, c, kinds, "model")
    left, right, start = operand(a, kind), operand(b, kind), as_real(c, d)
    for row in range(8):
        for column in range(8):
            wanted = modelled(left[row].tolist(), right[:, column].tolist(), float(start[row, column]), kinds)
            assert int(got[row, column]) == wanted, (row, column)


def test_the_model_loses_what_fp32_keeps_and_more_in_fp8() -> None:
    one, small = 0x3F80, 0x2C00  # bf16: 1 and 2^-39
    a = np.full((8, 16), one, np.uint16)
    b = np.full((16, 8), small, np.uint16)
    b[0] = one
    kinds = Product("bf16", "bf16", "f32", model=model_of("bf16", warpgroup=True))
    assert (multiply_add(a, b, None, kinds, "model") == 0x3F800000).all()
    c = np.full((8, 8), 0x3F800001, np.uint32)
    fp8 = Product("e4m3", "e4m3", "f32", model=model_of("e4m3", warpgroup=True))
    zeros = np.zeros((8, 32), np.uint8), np.zeros((32, 8), np.uint8)
    assert (multiply_add(*zeros, c, fp8, "model") == 0x3F800000).all()
    assert (multiply_add(*zeros, c, fp8, "fp32") == 0x3F800001).all()
    finer = Product("e4m3", "e4m3", "f32", model=Accumulation(32, 25))
    assert (multiply_add(*zeros, c, finer, "model") == 0x3F800001).all()


def test_byte_operands_of_mma_sync_meet_the_accumulator_after_their_sum() -> None:
    """2^-24 beside 1 is half a step: the addition after the sum rounds it to even, one unit would cut it."""
    mma = warp_mma("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32")
    assert mma is not None
    a, b = np.zeros((16, 32), np.uint8), np.zeros((32, 8), np.uint8)
    a[:, 0], b[0] = 0x0C, 0x0C  # 2^-12 each
    c = np.full((16, 8), 0x3F800000, np.uint32)
    c[1] = 0x3F800001
    result = multiply_add(a, b, c, mma.product, "model")
    assert (result[0] == 0x3F800000).all()
    assert (result[1] == 0x3F800002).all()
    one_unit = replace(mma.product, model=Accumulation(16, 25))
    assert (multiply_add(a, b, c, one_unit, "model")[1] == 0x3F800001).all()


@pytest.mark.parametrize("numerics", ["fp32", "model"])
def test_infinities_and_nan_pass_through(numerics: str) -> None:
    a = np.zeros((8, 16), np.uint16)
    b = np.zeros((16, 8), np.uint16)
    a[0, 0], a[1, 0], a[2, 0] = 0x7C00, 0x7E01, 0xFC00
    b[0, :] = 0x3C00
    b[0, 7] = 0
    kinds = Product("f16", "f16", "f32", model=model_of("f16", warpgroup=False))
    result = multiply_add(a, b, None, kinds, numerics)
    assert result[0, 0] == 0x7F800000
    assert result[1, 0] == 0x7FFFFFFF
    assert result[2, 0] == 0xFF800000
    assert result[0, 7] == 0x7FFFFFFF
    assert result[3, 3] == 0


def test_tf32_operands_are_cut_not_rounded() -> None:
    one_and_more = np.full((16, 8), 0x3F801FFF, np.uint32)
    ones = np.full((8, 8), 0x3F800000, np.uint32)
    kinds = Product("tf32", "tf32", "f32", model=model_of("tf32", warpgroup=False))
    assert (multiply_add(one_and_more, ones, None, kinds) == exact.f32([8.0])[0]).all()


@pytest.mark.parametrize("form", [
    "m16n8k16.row.col.f32.tf32.tf32.f32", "m16n8k16.col.row.f32.f16.f16.f32", "m16n8k16.row.col.f32.f16.bf16.f32",
    "m16n8k16.row.col.f16.bf16.bf16.f16", "m16n8k8.row.col.s32.s8.s8.s32", "m16n8k256.row.col.s32.b1.b1.s32",
    "m16n8k16.row.col.satfinite.f32.f16.f16.f32", "m16n8k16.row.col.f32.f16.f16.f16", "m8n8k4.row.col.f32.f16.f16.f32",
    "m16n8k16.row.col.f32.f16.f16.f32.xor.popc", "m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32", "m16n8k16.row.col",
])  # fmt: skip
def test_a_form_that_is_not_there_is_not_guessed(form: str) -> None:
    assert warp_mma(f"mma.sync.aligned.{form}") is None
