"""Integer, logic, shift and bit instructions, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from advisor.emulator.numbers import operation, quiet, roots
from advisor.emulator.operation import WIDTH, unsigned

Bits = np.ndarray
KINDS = ("u16", "u32", "u64", "s16", "s32", "s64")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def run(opcode: str, *operands: object, **how: int) -> object:
    found = operation(opcode, **how)
    assert found is not None, opcode
    arrays = [np.asarray(each, unsigned(kind)) for each, kind in zip(operands, found.sources, strict=True)]
    result = found.function(*arrays)
    for each, kind in zip(result if isinstance(result, tuple) else (result,), found.results, strict=True):
        assert each.dtype == unsigned(kind), (opcode, each.dtype)
    return result


def number(code: int, kind: str) -> int:
    bits = WIDTH[kind]
    return code - (1 << bits) if kind.startswith("s") and code >> (bits - 1) else code


def code(value: int, kind: str) -> int:
    return value & ((1 << WIDTH[kind]) - 1)


def operands(kind: str, seed: int, count: int = 400) -> Bits:
    raw = unsigned(kind)
    bits = WIDTH[kind]
    edges = [0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1, 0x55, bits]
    rng = np.random.default_rng(seed)
    result = np.concatenate([np.array(edges, raw), rng.integers(0, 1 << bits, count, dtype=raw),
                             rng.integers(0, 200, 40).astype(raw)])  # fmt: skip
    rng.shuffle(result)
    return result


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


ONE_TYPE: dict[str, Callable[[int, int, int, int], int]] = {  # of a, b, c and the width
    "add": lambda a, b, c, w: a + b,
    "sub": lambda a, b, c, w: a - b,
    "mul.lo": lambda a, b, c, w: a * b,
    "mul.hi": lambda a, b, c, w: a * b >> w,
    "mad.lo": lambda a, b, c, w: a * b + c,
    "mad.hi": lambda a, b, c, w: (a * b >> w) + c,
    "min": lambda a, b, c, w: min(a, b),
    "max": lambda a, b, c, w: max(a, b),
    "sad": lambda a, b, c, w: c + abs(a - b),
    "div": lambda a, b, c, w: truncated(a, b) if b else -1,
    "rem": lambda a, b, c, w: a - truncated(a, b) * b if b else -1,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("root", ONE_TYPE)
def test_arithmetic_agrees_with_python(root: str, kind: str) -> None:
    columns = [operands(kind, seed) for seed in (1, 2, 3)]
    opcode = f"{root}.{kind}"
    found = operation(opcode)
    assert found is not None
    got = run(opcode, *columns[: len(found.sources)])
    for index, row in enumerate(zip(*columns, strict=True)):
        a, b, c = (number(int(each), kind) for each in row)
        assert int(got[index]) == code(ONE_TYPE[root](a, b, c, WIDTH[kind]), kind), (opcode, a, b, c)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products_have_twice_the_bits(kind: str) -> None:
    a, b = operands(kind, 1), operands(kind, 2)
    double = f"{kind[0]}{2 * WIDTH[kind]}"
    c = operands(double, 3)
    products = [number(int(x), kind) * number(int(y), kind) for x, y in zip(a, b, strict=True)]
    assert [int(each) for each in run(f"mul.wide.{kind}", a, b)] == [code(each, double) for each in products]
    sums = [code(product + int(z), double) for product, z in zip(products, c, strict=True)]
    assert [int(each) for each in run(f"mad.wide.{kind}", a, b, c)] == sums


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_absolute_value_and_negation_wrap_at_the_smallest_number(kind: str) -> None:
    a = operands(kind, 4)
    values = [number(int(each), kind) for each in a]
    assert [int(each) for each in run(f"abs.{kind}", a)] == [code(abs(each), kind) for each in values]
    assert [int(each) for each in run(f"neg.{kind}", a)] == [code(-each, kind) for each in values]


@pytest.mark.parametrize("kind", ["u32", "u64"])
def test_carry_chains_add_and_subtract_numbers_of_two_words(kind: str) -> None:
    bits = WIDTH[kind]
    low_a, high_a, low_b, high_b = (operands(kind, seed) for seed in range(4))
    for root, sign in (("add", 1), ("sub", -1)):
        low, carry = run(f"{root}.cc.{kind}", low_a, low_b)
        high, out = run(f"{root}c.cc.{kind}", high_a, high_b, carry)
        alone = run(f"{root}c.{kind}", high_a, high_b, carry)
        np.testing.assert_array_equal(alone, high)
        for index in range(len(low)):
            first = int(low_a[index]) | int(high_a[index]) << bits
            second = int(low_b[index]) | int(high_b[index]) << bits
            total = first + sign * second
            assert int(low[index]) | int(high[index]) << bits == total % (1 << 2 * bits)
            assert bool(out[index]) == (total < 0 or total >> 2 * bits > 0)


def test_multiply_add_with_carry_makes_a_double_word_product() -> None:
    a, b, c, d = (operands("u32", seed) for seed in range(4))
    low, carry = run("mad.lo.cc.u32", a, b, c)
    high = run("madc.hi.u32", a, b, d, carry)
    for index in range(len(a)):
        total = int(a[index]) * int(b[index]) + int(c[index]) + (int(d[index]) << 32)
        assert int(low[index]) | int(high[index]) << 32 == total % (1 << 64)


def test_saturating_sums_stop_at_the_ends() -> None:
    a, b = operands("s32", 1), operands("s32", 2)
    for root, sign in (("add", 1), ("sub", -1)):
        wanted = [number(int(x), "s32") + sign * number(int(y), "s32") for x, y in zip(a, b, strict=True)]
        clamped = [code(min(max(each, -(1 << 31)), (1 << 31) - 1), "s32") for each in wanted]
        assert run(f"{root}.sat.s32", a, b).tolist() == clamped


@pytest.mark.parametrize("kind", ["b16", "b32", "b64"])
def test_shifts_beyond_the_width_leave_nothing_or_the_sign(kind: str) -> None:
    bits = WIDTH[kind]
    a = operands(kind, 1)
    amounts = np.random.default_rng(2).integers(0, bits + 40, len(a)).astype(np.uint32)
    amounts[:2] = 0xFFFFFFFF
    mask = (1 << bits) - 1
    rows = list(zip(a.tolist(), amounts.tolist(), strict=True))
    small = [min(amount, bits) for _, amount in rows]
    assert run(f"shl.{kind}", a, amounts).tolist() == [x << n & mask for (x, _), n in zip(rows, small, strict=True)]
    assert run(f"shr.u{bits}", a, amounts).tolist() == [x >> n for (x, _), n in zip(rows, small, strict=True)]
    signed_kind = f"s{bits}"
    assert run(f"shr.{signed_kind}", a, amounts).tolist() == [
        number(x, signed_kind) >> n & mask for (x, _), n in zip(rows, small, strict=True)
    ]


def test_funnel_shifts_clamp_or_wrap() -> None:
    a, b = operands("u32", 1), operands("u32", 2)
    amount = np.random.default_rng(2).integers(0, 70, len(a)).astype(np.uint32)
    for mode in ("clamp", "wrap"):
        left, right = run(f"shf.l.{mode}.b32", a, b, amount), run(f"shf.r.{mode}.b32", a, b, amount)
        for index in range(len(a)):
            n = min(int(amount[index]), 32) if mode == "clamp" else int(amount[index]) & 31
            pair = int(b[index]) << 32 | int(a[index])
            assert int(left[index]) == pair << n >> 32 & 0xFFFFFFFF
            assert int(right[index]) == pair >> n & 0xFFFFFFFF


def test_every_lop3_table_is_its_boolean_function() -> None:
    a, b, c = np.uint8(0xF0), np.uint8(0xCC), np.uint8(0xAA)
    wide = [np.full((2, 32), each, np.uint32) for each in (a, b, c)]
    for table in range(256):
        assert (run("lop3.b32", *wide, table) & np.uint32(0xFF) == table).all(), table
    result, hit = run("lop3.or.b32", *wide, np.full((2, 32), 0x80, np.uint32), np.zeros((2, 32), bool))
    assert hit.all()
    assert (result == 0x80).all()


@pytest.mark.parametrize("kind", ["pred", "b16", "b32", "b64"])
def test_logic(kind: str) -> None:
    raw = unsigned(kind)
    a, b = (np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)) if kind == "pred" else (
        operands(kind, 1), operands(kind, 2))  # fmt: skip
    np.testing.assert_array_equal(run(f"and.{kind}", a, b), a & b)
    np.testing.assert_array_equal(run(f"or.{kind}", a, b), a | b)
    np.testing.assert_array_equal(run(f"xor.{kind}", a, b), a ^ b)
    np.testing.assert_array_equal(run(f"not.{kind}", a), ~a)
    np.testing.assert_array_equal(run(f"cnot.{kind}", a), (a == 0).astype(raw))


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_counting_and_reversing_bits(kind: str) -> None:
    a = operands(kind, 1)
    bits = WIDTH[kind]
    text = [f"{int(each):0{bits}b}" for each in a]
    assert run(f"popc.{kind}", a).tolist() == [each.count("1") for each in text]
    assert run(f"clz.{kind}", a).tolist() == [bits - len(each.lstrip("0")) for each in text]
    assert run(f"brev.{kind}", a).tolist() == [int(each[::-1], 2) for each in text]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_finding_the_top_bit(kind: str) -> None:
    a = operands(kind, 1)
    bits = WIDTH[kind]
    for opcode, amount in ((f"bfind.{kind}", False), (f"bfind.shiftamt.{kind}", True)):
        got = run(opcode, a)
        for index, each in enumerate(a):
            value = number(int(each), kind)
            top = (~value if value < 0 else value).bit_length() - 1
            assert int(got[index]) == (0xFFFFFFFF if top < 0 else bits - 1 - top if amount else top)


def field(a: int, start: int, length: int, kind: str) -> int:
    """The semantics of `bfe` as PTX writes them, bit by bit."""
    top = WIDTH[kind] - 1
    start, length = start & 255, length & 255
    sign = 0 if kind[0] == "u" or length == 0 else a >> min(start + length - 1, top) & 1
    bits = [(a >> (start + i) & 1) if i < length and start + i <= top else sign for i in range(top + 1)]
    return sum(bit << i for i, bit in enumerate(bits))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields_are_extracted_and_inserted(kind: str) -> None:
    a, b = operands(kind, 1), operands(kind, 2)
    rng = np.random.default_rng(3)
    start = rng.choice([0, 1, 5, 31, 32, 40, 63, 64, 255, 256, 300], len(a)).astype(np.uint32)
    length = rng.choice([0, 1, 8, 31, 32, 33, 63, 64, 200, 256], len(a)).astype(np.uint32)
    got = run(f"bfe.{kind}", a, start, length)
    inserted = run(f"bfi.b{WIDTH[kind]}", a, b, start, length)
    for index in range(len(a)):
        at, count = int(start[index]), int(length[index])
        assert int(got[index]) == field(int(a[index]), at, count, kind), (at, count)
        at, count = at & 255, count & 255
        mask = ((1 << count) - 1) << at & ((1 << WIDTH[kind]) - 1)
        assert int(inserted[index]) == (int(b[index]) & ~mask) | (int(a[index]) << at & mask), (at, count)


def test_finding_the_nth_set_bit() -> None:
    offsets = np.array([1, -1, 1, -1, 0, 17], np.int32).view(np.uint32)
    found = run("fns.b32", [0xAAAAAAAA] * 6, [3, 3, 2, 2, 3, 0], offsets)
    assert found.tolist() == [3, 3, 3, 1, 3, 0xFFFFFFFF]


def test_extension_and_masks_clamp_or_wrap() -> None:
    assert run("szext.wrap.u32", [0xFFFFFFFF], [0])[0] == 0
    assert run("szext.clamp.s32", [0x80], [8])[0] == 0xFFFFFF80
    assert run("szext.clamp.u32", [0x1FF, 0x1FF], [8, 40]).tolist() == [0xFF, 0x1FF]
    assert run("szext.wrap.s32", [0x1F], [37])[0] == 0xFFFFFFFF
    assert run("bmsk.wrap.b32", [1, 33], [2, 34]).tolist() == [6, 6]
    assert run("bmsk.clamp.b32", [4, 32, 0], [32, 1, 40]).tolist() == [0xFFFFFFF0, 0, 0xFFFFFFFF]


def test_byte_permutes_pick_replicate_and_extend_signs() -> None:
    a, b = [0x33221100], [0x77665584]
    assert run("prmt.b32", a, b, [0x7531])[0] == 0x77553311
    assert run("prmt.b32", a, b, [0x000C])[0] == 0x000000FF
    rng = np.random.default_rng(6)
    first, second = (rng.integers(0, 1 << 32, (2, 32), dtype=np.uint32) for _ in range(2))
    controls = rng.integers(0, 1 << 16, (2, 32), dtype=np.uint32)
    each_its_own = run("prmt.b32", first, second, controls)
    for at in np.ndindex(2, 32):  # one control for a whole register is another way through
        assert run("prmt.b32", first, second, controls[at])[at] == each_its_own[at]
    assert run("prmt.b32", first, second, np.full((2, 32), 0x5410)).tolist() == (first & 0xFFFF | second << 16).tolist()
    modes = {"f4e": 0x84332211, "b4e": 0x66770011, "rc8": 0x11111111, "ecl": 0x33221111, "ecr": 0x11111100,
             "rc16": 0x33223322}  # fmt: skip
    for mode, wanted in modes.items():
        assert run(f"prmt.b32.{mode}", a, b, [1])[0] == wanted, mode


def test_dot_products_extend_each_operand_by_its_own_sign() -> None:
    rng = np.random.default_rng(4)
    a, b, c = (rng.integers(0, 1 << 32, 300, dtype=np.uint32) for _ in range(3))
    for left in ("u32", "s32"):
        for right in ("u32", "s32"):
            bytes_a = a.view(np.int8 if left == "s32" else np.uint8).reshape(-1, 4).astype(int)
            bytes_b = b.view(np.int8 if right == "s32" else np.uint8).reshape(-1, 4).astype(int)
            words_a = a.view(np.int16 if left == "s32" else np.uint16).reshape(-1, 2).astype(int)
            four = ((bytes_a * bytes_b).sum(axis=1) + c).astype(np.uint32)
            np.testing.assert_array_equal(run(f"dp4a.{left}.{right}", a, b, c), four)
            upper = ((words_a * bytes_b[:, 2:]).sum(axis=1) + c).astype(np.uint32)
            np.testing.assert_array_equal(run(f"dp2a.hi.{left}.{right}", a, b, c), upper)


def test_16_bit_pairs_and_relu() -> None:
    assert run("add.u16x2", [0xFFFF0001], [0x00010001])[0] == 0x00000002
    assert run("max.s16x2", [0x8000FFFF], [0x00010002])[0] == 0x00010002
    assert run("max.relu.s16x2", [0x8000FFFF], [0x8001FFFE])[0] == 0
    assert run("min.relu.s32", [5], [0xFFFFFFFF])[0] == 0


def test_products_of_24_bits() -> None:
    assert run("mul24.lo.u32", [0xFF000003], [5])[0] == 15
    assert run("mul24.hi.s32", [0x00800000], [0x00800000])[0] == ((1 << 46) >> 16) & 0xFFFFFFFF
    assert run("mad24.lo.s32", [0xFFFFFFFF], [3], [10])[0] == 7


def test_operands_broadcast_and_are_not_written() -> None:
    a = np.arange(64, dtype=np.uint32).reshape(2, 32)
    before = a.copy()
    np.testing.assert_array_equal(run("mad.lo.s32", a, np.uint32(3), np.uint32(1)), a * 3 + 1)
    assert run("brev.b32", a).shape == (2, 32)
    assert run("lop3.b32", a, np.uint32(7), np.uint32(0), np.uint32(0xF0)).shape == (2, 32)
    np.testing.assert_array_equal(a, before)


@pytest.mark.parametrize("opcode", [
    "add.b32", "mul.u32", "mul.wide.u64", "mad.wide.lo.u32", "shl.u32", "add.sat.u32", "popc.u32", "lop3.b64",
    "shf.l.b32", "min.relu.u32", "and.u32", "prmt.b64", "dp4a.u32", "addc.u16", "bfe.b32", "div.cc.u32",
    "frobnicate.b32",
])  # fmt: skip
def test_a_type_or_qualifier_that_the_instruction_does_not_have_is_not_guessed(opcode: str) -> None:
    assert operation(opcode) is None


def test_the_roots_name_what_is_near() -> None:
    assert {"add", "lop3", "cvt", "setp", "fma", "dp4a"} <= roots()
