"""`setp`, `set`, `selp` and `slct`: every comparison, with NaN, joined predicates, packed lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from advisor.emulator.numbers import operation, quiet

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
VALUES = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan], np.float32)
Bits = np.ndarray


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def run(opcode: str, *operands: Bits, **how: int) -> object:
    found = operation(opcode, **how)
    assert found is not None, opcode
    return found.function(*operands)


def pairs() -> tuple[Bits, Bits]:
    left, right = np.meshgrid(VALUES, VALUES)
    return left.ravel(), right.ravel()


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", [*COMPARE, *(f"{each}u" for each in COMPARE), "num", "nan"])
def test_float_comparisons_are_ordered_or_unordered(name: str, kind: str) -> None:
    left, right = pairs()
    if kind == "bf16":
        a, b = ((each.view(np.uint32) >> 16).astype(np.uint16) for each in (left, right))
    else:
        dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[kind]
        a, b = (each.astype(dtype).view(f"u{np.dtype(dtype).itemsize}") for each in (left, right))
    got = run(f"setp.{name}.{kind}", a, b)
    assert got.dtype == np.bool_
    for x, y, result in zip(left.tolist(), right.tolist(), got, strict=True):
        unordered = x != x or y != y
        if name in ("num", "nan"):
            assert result == (unordered == (name == "nan"))
        elif name.endswith("u"):
            assert result == (unordered or COMPARE[name[:-1]](x, y)), (name, x, y)
        else:
            assert result == (not unordered and COMPARE[name](x, y)), (name, x, y)


@pytest.mark.parametrize("name", COMPARE)
def test_integer_comparisons_follow_the_sign_of_the_type(name: str) -> None:
    codes = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
    a, b = (each.ravel() for each in np.meshgrid(codes, codes))
    for kind, view in (("u32", np.uint32), ("s32", np.int32)):
        wanted = [COMPARE[name](int(x), int(y)) for x, y in zip(a.view(view), b.view(view), strict=True)]
        assert run(f"setp.{name}.{kind}", a, b).tolist() == wanted
    if name in ("lt", "le", "gt", "ge"):
        alias = {"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}[name]
        np.testing.assert_array_equal(run(f"setp.{alias}.u32", a, b), run(f"setp.{name}.u32", a, b))


def test_two_destinations_and_a_joined_predicate() -> None:
    a, b = np.array([1, 2, 3, 4], np.uint32), np.array([2, 2, 2, 2], np.uint32)
    third = np.array([True, True, False, False])
    p, q = run("setp.lt.and.u32", a, b, third, destinations=2)
    assert p.tolist() == [True, False, False, False]
    assert q.tolist() == [False, True, False, False]
    p, q = run("setp.lt.u32", a, b, destinations=2)
    assert (p ^ q).all()
    assert run("setp.ge.xor.s32", a, b, third).tolist() == [True, False, True, True]


def test_packed_halves_compare_lane_by_lane() -> None:
    a, b = np.array([0x3C004000], np.uint32), np.array([0x40003C00], np.uint32)  # lanes (2, 1) and (1, 2)
    low, high = run("setp.gt.f16x2", a, b, destinations=2)
    assert (bool(low[0]), bool(high[0])) == (True, False)
    assert run("set.gt.f16x2.f16x2", a, b)[0] == 0x00003C00
    assert run("set.gt.u32.f16x2", a, b)[0] == 0x0000FFFF


def test_set_writes_all_ones_or_one() -> None:
    one, two = np.array([0x3F800000], np.uint32), np.array([0x40000000], np.uint32)
    assert run("set.lt.u32.f32", one, two)[0] == 0xFFFFFFFF
    assert run("set.lt.f32.f32", one, two)[0] == 0x3F800000
    assert run("set.gt.s32.s32", one, two)[0] == 0
    assert run("set.lt.and.f32.u32", one, two, np.array([False]))[0] == 0


def test_flushed_subnormals_compare_equal_to_zero() -> None:
    small, zero = np.array([1], np.uint32), np.array([0], np.uint32)
    assert not run("setp.eq.f32", small, zero)[0]
    assert run("setp.eq.ftz.f32", small, zero)[0]


def test_selection_by_predicate_and_by_sign() -> None:
    a, b = np.array([1, 2], np.uint32), np.array([3, 4], np.uint32)
    assert run("selp.b32", a, b, np.array([True, False])).tolist() == [1, 4]
    assert run("slct.u32.s32", a, b, np.array([5, 0xFFFFFFFF], np.uint32)).tolist() == [1, 4]
    nan_and_minus_zero = np.array([0x7FC00000, 0x80000000], np.uint32)
    assert run("slct.b32.f32", a, b, nan_and_minus_zero).tolist() == [3, 2]


@pytest.mark.parametrize("opcode", ["setp.lt.b32", "setp.ltu.s32", "setp.f32", "setp.lt.nand.u32", "setp.lt.ftz.f64",
                                    "set.lt.u64.f32", "selp.pred", "slct.b32.u32", "setp.eq.u8"])  # fmt: skip
def test_what_ptx_does_not_have_is_not_guessed(opcode: str) -> None:
    assert operation(opcode) is None
