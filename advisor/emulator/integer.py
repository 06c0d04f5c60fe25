"""Integer, logic, shift and bit instructions. Imports only its own room.

Division by zero is defined by no document: quotient and remainder are all ones, as on sm_90.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from advisor.emulator.formats import Bits
from advisor.emulator.operation import WIDTH, Mnemonic, Operation, signed, unsigned

Binary = Callable[[Bits, Bits], Bits]
INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
WORDS = ("u32", "u64", "s32", "s64")
RAW = ("b16", "b32", "b64")
PAIRS = {"u16x2": "u16", "s16x2": "s16"}


def is_signed(kind: str) -> bool:
    return kind.startswith("s")


def halves(bits: Bits) -> Bits:
    """The two 16-bit lanes of 32-bit values, low one first, as a new last axis."""
    return np.ascontiguousarray(bits).reshape((*np.shape(bits), 1)).view(np.uint16)


def joined(lanes: Bits, dtype: type[Any] = np.uint32) -> Bits:
    """The inverse of a split of every value into lanes."""
    word: Bits = np.ascontiguousarray(lanes).view(dtype)[..., 0]
    return word


def pairwise(function: Callable[..., Bits]) -> Callable[..., Bits]:
    """A 16-bit function applied to both lanes of 32-bit operands."""

    def packed(*operands: Bits) -> Bits:
        return joined(function(*[halves(each) for each in operands]))

    return packed


def _binary(word: Mnemonic, function: Callable[..., Any]) -> Operation:
    kind = word.types[0]
    return Operation(word.opcode, function, (kind, kind), (kind,))


# --- add, sub, mul, mad, div ------------------------------------------------------------------------------------------


def add_sub(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1:
        return None
    kind = word.types[0]
    function: Callable[..., Any] = np.add if word.root == "add" else np.subtract
    if kind in INTEGERS and word.only():
        return _binary(word, function)
    if kind in PAIRS and word.only():
        return _binary(word, pairwise(function))
    if kind == "s32" and word.only("sat"):
        return _binary(word, _saturating(function))
    if kind in WORDS and word.only("cc"):
        return _with_carry_out(word, kind)
    return None


def _saturating(function: Callable[..., Any]) -> Binary:
    def saturated(left: Bits, right: Bits) -> Bits:
        wide = function(left.view(np.int32).astype(np.int64), right.view(np.int32).astype(np.int64))
        held: Bits = np.clip(wide, -(1 << 31), (1 << 31) - 1).astype(np.int32)
        return held.view(np.uint32)

    return saturated


def _with_carry_out(word: Mnemonic, kind: str) -> Operation:
    """`add.cc`, `sub.cc`: the carry flag is a second result. A borrow is carry-out of the subtraction."""

    def add(left: Bits, right: Bits) -> tuple[Bits, Bits]:
        total = left + right
        return total, total < left

    def sub(left: Bits, right: Bits) -> tuple[Bits, Bits]:
        return left - right, left < right

    return Operation(word.opcode, add if word.root == "add" else sub, (kind, kind), (kind, "pred"))


def carry_chain(word: Mnemonic) -> Operation | None:
    """`addc`, `subc`: the carry flag is the last source, and with `.cc` the second result."""
    if len(word.types) != 1 or word.types[0] not in WORDS or not word.only("cc"):
        return None
    kind = word.types[0]
    dtype = unsigned(kind)
    out = word.has("cc")

    def addc(left: Bits, right: Bits, carry: Bits) -> Any:
        first = left + right
        total = first + carry.astype(dtype)
        return (total, (first < left) | (total < first)) if out else total

    def subc(left: Bits, right: Bits, borrow: Bits) -> Any:
        first = left - right
        total = first - borrow.astype(dtype)
        return (total, (left < right) | (first < total)) if out else total

    function = addc if word.root == "addc" else subc
    return Operation(word.opcode, function, (kind, kind, "pred"), (kind, "pred") if out else (kind,))


def multiply_high(kind: str) -> Binary:
    """The upper half of the product."""
    bits = WIDTH[kind]
    if bits < 64:
        narrow, wide = (signed(kind), np.int64) if is_signed(kind) else (unsigned(kind), np.uint64)
        shift = wide(bits)
        result = unsigned(kind)
        return lambda left, right: ((left.view(narrow).astype(wide) * right.view(narrow)) >> shift).astype(result)

    def high(left: Bits, right: Bits) -> Bits:
        half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
        left_low, left_high = left & low, left >> half
        right_low, right_high = right & low, right >> half
        middle = left_high * right_low + ((left_low * right_low) >> half)
        other = left_low * right_high + (middle & low)
        product: Bits = left_high * right_high + (middle >> half) + (other >> half)
        if is_signed(kind):
            product = product - np.where(left >> np.uint64(63), right, np.uint64(0))
            product = product - np.where(right >> np.uint64(63), left, np.uint64(0))
        return product

    return high


def multiply_wide(kind: str) -> tuple[Binary, str]:
    """The whole product in twice the width, and the type of it."""
    result = f"{kind[0]}{2 * WIDTH[kind]}"
    if is_signed(kind):
        narrow, wide = signed(kind), signed(result)
        out = unsigned(result)
        return lambda left, right: (left.view(narrow).astype(wide) * right.view(narrow)).view(out), result
    big = unsigned(result)
    return lambda left, right: left.astype(big) * right, result


def _product(word: Mnemonic) -> tuple[Binary, str] | None:
    """The multiplication of `mul`, `mad`, and the type of its result."""
    if len(word.types) != 1:
        return None
    kind = word.types[0]
    part = word.one_of({"lo", "hi", "wide"})
    if kind in INTEGERS and part == "lo":
        return np.multiply, kind
    if kind in INTEGERS and part == "hi":
        return multiply_high(kind), kind
    if kind in INTEGERS and part == "wide" and WIDTH[kind] < 64:
        return multiply_wide(kind)
    return None


def mul(word: Mnemonic) -> Operation | None:
    found = _product(word)
    if found is None or len(word.qualifiers) != 1:
        return None
    kind = word.types[0]
    return Operation(word.opcode, found[0], (kind, kind), (found[1],))


def mad(word: Mnemonic) -> Operation | None:
    found = _product(word)
    if found is None:
        return None
    kind = word.types[0]
    product, result = found
    sources = (kind, kind, result)
    if word.root == "mad" and len(word.qualifiers) == 1:
        return Operation(word.opcode, lambda a, b, c: product(a, b) + c, sources, (result,))
    if word.root == "mad" and word.only("lo", "hi", "sat") and word.has("hi") and kind == "s32":
        add = _saturating(np.add)
        return Operation(word.opcode, lambda a, b, c: add(product(a, b), c), sources, (result,))
    if word.root == "mad" and word.only("lo", "hi", "cc") and kind in WORDS:
        return Operation(word.opcode, _mad_carry_out(product), sources, (result, "pred"))
    if word.root == "madc" and word.only("lo", "hi", "cc") and kind in WORDS:
        return _madc(word, product, kind)
    return None


def _mad_carry_out(product: Binary) -> Callable[..., Any]:
    def function(a: Bits, b: Bits, c: Bits) -> tuple[Bits, Bits]:
        total = product(a, b) + c
        return total, total < c

    return function


def _madc(word: Mnemonic, product: Binary, kind: str) -> Operation:
    dtype = unsigned(kind)
    out = word.has("cc")

    def function(a: Bits, b: Bits, c: Bits, carry: Bits) -> Any:
        first = product(a, b) + c
        total = first + carry.astype(dtype)
        return (total, (first < c) | (total < first)) if out else total

    return Operation(word.opcode, function, (kind, kind, kind, "pred"), (kind, "pred") if out else (kind,))


def mul24(word: Mnemonic) -> Operation | None:
    """`mul24`, `mad24`: the product of the low 24 bits; `.hi` is its bits 47 to 16."""
    kind = word.types[0] if len(word.types) == 1 else ""
    part = word.one_of({"lo", "hi"})
    if kind not in ("u32", "s32") or not part or len(word.qualifiers) != 1:
        return None

    def low24(bits: Bits) -> Bits:
        if kind == "u32":
            return (bits & np.uint32(0xFFFFFF)).astype(np.int64)
        return ((bits << np.uint32(8)).view(np.int32) >> 8).astype(np.int64)

    def product(left: Bits, right: Bits) -> Bits:
        whole = low24(left) * low24(right)
        return (whole >> 16 if part == "hi" else whole).astype(np.uint32)

    if word.root == "mul24":
        return Operation(word.opcode, product, (kind, kind), (kind,))
    return Operation(word.opcode, lambda a, b, c: product(a, b) + c, (kind,) * 3, (kind,))


def _magnitude(bits: Bits, number: type[Any]) -> Bits:
    return np.where(bits.view(number) < 0, ~bits + bits.dtype.type(1), bits)


def div_rem(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in INTEGERS or not word.only():
        return None
    kind = word.types[0]
    quotient = word.root == "div"
    ones = unsigned(kind)(~unsigned(kind)(0))

    def divide(left: Bits, right: Bits) -> Bits:
        zero = right == 0
        safe = np.where(zero, right.dtype.type(1), right) if np.count_nonzero(zero) else right
        result = left // safe if quotient else left % safe
        return np.where(zero, ones, result) if safe is not right else result

    if not is_signed(kind):
        return _binary(word, divide)
    number = signed(kind)

    def divide_signed(left: Bits, right: Bits) -> Bits:
        result = divide(_magnitude(left, number), _magnitude(right, number))
        negative = ((left ^ right) if quotient else left).view(number) < 0
        result = np.where(negative, ~result + result.dtype.type(1), result)
        return np.where(right == 0, ones, result)

    return _binary(word, divide_signed)


# --- abs, neg, min, max, sad ------------------------------------------------------------------------------------------


def abs_neg(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in ("s16", "s32", "s64") or not word.only():
        return None
    kind = word.types[0]
    number = signed(kind)
    function: Callable[..., Any] = np.negative if word.root == "neg" else lambda bits: _magnitude(bits, number)
    return Operation(word.opcode, function, (kind,), (kind,))


def min_max(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or not word.only("relu"):
        return None
    kind = word.types[0]
    lane = PAIRS.get(kind, kind)
    if lane not in INTEGERS or (word.has("relu") and kind not in ("s32", "s16x2")):
        return None
    function = extreme(word.root, lane, relu=word.has("relu"))
    return _binary(word, pairwise(function) if kind in PAIRS else function)


def extreme(root: str, kind: str, *, relu: bool = False) -> Binary:
    """The smaller or larger of two integers; `relu` lifts a negative result to 0."""
    choose: Callable[..., Any] = np.minimum if root == "min" else np.maximum
    if not is_signed(kind):
        return choose
    number, raw = signed(kind), unsigned(kind)
    if relu:
        return lambda left, right: np.maximum(choose(left.view(number), right.view(number)), number(0)).view(raw)
    return lambda left, right: choose(left.view(number), right.view(number)).view(raw)


def sad(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in INTEGERS or not word.only():
        return None
    kind = word.types[0]
    less = extreme("min", kind)
    more = extreme("max", kind)
    return Operation(word.opcode, lambda a, b, c: c + (more(a, b) - less(a, b)), (kind,) * 3, (kind,))


# --- logic and shifts -------------------------------------------------------------------------------------------------


def logic(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in ("pred", *RAW) or not word.only():
        return None
    kind = word.types[0]
    if word.root == "not":
        return Operation(word.opcode, np.invert, (kind,), (kind,))
    if word.root == "cnot":
        dtype = unsigned(kind)
        return Operation(word.opcode, lambda a: (a == 0).astype(dtype), (kind,), (kind,))
    return _binary(word, {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[word.root])


@lru_cache(maxsize=256)
def lut3(table: int) -> Callable[[Bits, Bits, Bits], Bits]:
    """The function of `lop3` with this table: bit `4 a + 2 b + c` of it is the result."""
    ones = (0x0F, 0x33, 0x55)  # complements of the tables of a, b and c
    terms = [index for index in range(8) if table >> index & 1]
    for name, pattern in (("a", 0xF0), ("b", 0xCC), ("c", 0xAA)):
        if table in (pattern, pattern ^ 0xFF):
            return _single(name, inverted=table in ones)

    def function(a: Bits, b: Bits, c: Bits) -> Bits:
        first, second, third = np.broadcast_arrays(a, b, c)
        result: Bits = np.zeros_like(first)
        for index in terms:
            minterm = first if index & 4 else ~first
            minterm = minterm & (second if index & 2 else ~second)
            result |= minterm & (third if index & 1 else ~third)
        return result

    quick: dict[int, Callable[[Bits, Bits, Bits], Bits]] = {
        0x80: lambda a, b, c: a & b & c,
        0xFE: lambda a, b, c: a | b | c,
        0x96: lambda a, b, c: a ^ b ^ c,
        0xF8: lambda a, b, c: a | (b & c),
        0xEA: lambda a, b, c: (a & b) | c,
        0x6A: lambda a, b, c: (a & b) ^ c,
        0x78: lambda a, b, c: a ^ (b & c),
        0xCA: lambda a, b, c: (a & b) | (~a & c),
        0xE8: lambda a, b, c: (a & b) | (a & c) | (b & c),
    }
    return quick.get(table, function)


def _single(name: str, *, inverted: bool) -> Callable[[Bits, Bits, Bits], Bits]:
    position = "abc".index(name)

    def function(a: Bits, b: Bits, c: Bits) -> Bits:
        chosen = np.broadcast_arrays(a, b, c)[position]
        return ~chosen if inverted else chosen

    return function


def lop3(word: Mnemonic) -> Operation | None:
    """`lop3.b32 d, a, b, c, table`, and `lop3.or.b32 d|p, a, b, c, table, q`."""
    join = word.one_of({"or", "and"})
    if word.types != ("b32",) or join is None or len(word.qualifiers) > 1 or not word.only("or", "and"):
        return None
    sources = ("b32",) * 4
    if not join:
        return Operation(word.opcode, lambda a, b, c, table: lut3(_scalar(table) & 0xFF)(a, b, c), sources, ("b32",))

    def with_predicate(a: Bits, b: Bits, c: Bits, table: Bits, q: Bits) -> tuple[Bits, Bits]:
        result = lut3(_scalar(table) & 0xFF)(a, b, c)
        return result, (result != 0) | q if join == "or" else (result != 0) & q

    return Operation(word.opcode, with_predicate, (*sources, "pred"), ("b32", "pred"))


def _scalar(immediate: Bits) -> int:
    return int(np.asarray(immediate).flat[0])


def shift(word: Mnemonic) -> Operation | None:
    """Amounts beyond the width shift everything out; `shr` of a signed value then leaves its sign."""
    if len(word.types) != 1 or not word.only():
        return None
    kind = word.types[0]
    if kind not in RAW and (word.root == "shl" or kind not in INTEGERS):
        return None
    bits = WIDTH[kind]
    raw = unsigned(kind)
    last = np.uint32(bits - 1)
    if word.root == "shr" and is_signed(kind):
        number = signed(kind)
        return Operation(
            word.opcode,
            lambda a, b: (a.view(number) >> np.minimum(b, last).astype(number)).view(raw),
            (kind, "u32"),
            (kind,),
        )
    move: Callable[..., Any] = np.left_shift if word.root == "shl" else np.right_shift

    def function(a: Bits, b: Bits) -> Bits:
        result: Bits = move(a, np.minimum(b, last).astype(raw))
        outside = b > last
        return np.where(outside, raw(0), result) if np.count_nonzero(outside) else result

    return Operation(word.opcode, function, (kind, "u32"), (kind,))


def funnel(word: Mnemonic) -> Operation | None:
    way, mode = word.one_of({"l", "r"}), word.one_of({"clamp", "wrap"})
    if word.types != ("b32",) or not way or not mode or len(word.qualifiers) != 2:
        return None

    def function(a: Bits, b: Bits, c: Bits) -> Bits:
        amount = (np.minimum(c, np.uint32(32)) if mode == "clamp" else c & np.uint32(31)).astype(np.uint64)
        pair = b.astype(np.uint64) << np.uint64(32) | a
        if way == "r":
            return (pair >> amount).astype(np.uint32)
        upper = pair << amount >> np.uint64(32)
        return upper.astype(np.uint32)

    return Operation(word.opcode, function, ("b32", "b32", "u32"), ("b32",))


# --- bits -------------------------------------------------------------------------------------------------------------


def top_bit(bits: Bits) -> Bits:
    """The index of the highest 1 bit as int64; -1 where there is none."""
    wide = bits.astype(np.uint64)
    upper = (wide >> np.uint64(32)).astype(np.float64)
    lower = (wide & np.uint64(0xFFFFFFFF)).astype(np.float64)
    exponent = np.where(upper > 0, np.frexp(upper)[1] + 31, np.frexp(lower)[1] - 1)
    return exponent.astype(np.int64)


def count(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in ("b32", "b64") or not word.only():
        return None
    kind = word.types[0]
    bits = WIDTH[kind]
    function: Callable[..., Any] = lambda a: np.bitwise_count(a).astype(np.uint32)  # noqa: E731
    if word.root == "clz":
        function = lambda a: (bits - 1 - top_bit(a)).astype(np.uint32)  # noqa: E731
    return Operation(word.opcode, function, (kind,), ("u32",))


def bfind(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in WORDS or not word.only("shiftamt"):
        return None
    kind = word.types[0]
    number = signed(kind)
    amount = word.has("shiftamt")

    def function(a: Bits) -> Bits:
        bits = np.where(a.view(number) < 0, ~a, a) if is_signed(kind) else a
        top = top_bit(bits)
        return (np.where(top < 0, top, WIDTH[kind] - 1 - top) if amount else top).astype(np.uint32)

    return Operation(word.opcode, function, (kind,), ("u32",))


def brev(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in ("b32", "b64") or not word.only():
        return None
    kind = word.types[0]
    raw = unsigned(kind)
    steps = [(raw(1 << k), raw(sum(((1 << (1 << k)) - 1) << at for at in range(0, WIDTH[kind], 2 << k))))
             for k in range(WIDTH[kind].bit_length() - 1)]  # fmt: skip

    def function(a: Bits) -> Bits:
        for distance, mask in steps:
            a = ((a >> distance) & mask) | ((a & mask) << distance)
        return a

    return Operation(word.opcode, function, (kind,), (kind,))


def bfe(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in WORDS or not word.only():
        return None
    kind = word.types[0]
    top = WIDTH[kind] - 1
    raw = unsigned(kind)
    keep_sign = is_signed(kind)

    def function(a: Bits, b: Bits, c: Bits) -> Bits:
        start = (b & np.uint32(255)).astype(np.int64)
        length = (c & np.uint32(255)).astype(np.int64)
        field = np.where(start > top, raw(0), a >> np.minimum(start, top).astype(raw))
        mask = np.where(length > top, raw(0), raw(~raw(0)) << np.minimum(length, top).astype(raw))
        result: Bits = field & ~mask
        if keep_sign:
            sign = (a >> np.clip(start + length - 1, 0, top).astype(raw)) & raw(1)
            gone = np.where(start > top, raw(~raw(0)), ~(raw(~raw(0)) >> np.minimum(start, top).astype(raw)))
            result = np.where((sign == 1) & (length > 0), result | mask | gone, result)
        return result

    return Operation(word.opcode, function, (kind, "u32", "u32"), (kind,))


def bfi(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or word.types[0] not in ("b32", "b64") or not word.only():
        return None
    kind = word.types[0]
    top = np.uint32(WIDTH[kind] - 1)
    raw = unsigned(kind)
    ones = raw(~raw(0))

    def function(a: Bits, b: Bits, c: Bits, d: Bits) -> Bits:
        start = c & np.uint32(255)
        length = d & np.uint32(255)
        at = np.minimum(start, top).astype(raw)
        mask = np.where(length > top, ones, ~(ones << np.minimum(length, top).astype(raw))) << at
        mask = np.where(start > top, raw(0), mask)
        result: Bits = (b & ~mask) | ((a << at) & mask)
        return result

    return Operation(word.opcode, function, (kind, kind, "u32", "u32"), (kind,))


def fns(word: Mnemonic) -> Operation | None:
    """The n-th set bit from a base, upwards or downwards; 0xffffffff where there is none."""
    if word.types != ("b32",) or not word.only():
        return None

    def function(mask: Bits, base: Bits, offset: Bits) -> Bits:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        places = np.arange(32)
        bit = (mask[..., None] >> places.astype(np.uint32)) & np.uint32(1) == 1
        start = base.astype(np.int64)[..., None]
        number = offset.view(np.int32).astype(np.int64)[..., None]
        up = np.cumsum(bit & (places >= start), axis=-1)
        down = np.cumsum((bit & (places <= start))[..., ::-1], axis=-1)[..., ::-1]
        hit = np.where(number > 0, (up == number) & (places >= start), (down == -number) & (places <= start)) & bit
        hit = np.where(number == 0, bit & (places == start), hit)
        return np.where(hit.any(axis=-1), hit.argmax(axis=-1), 0xFFFFFFFF).astype(np.uint32)

    return Operation(word.opcode, function, ("b32", "b32", "s32"), ("b32",))


def szext(word: Mnemonic) -> Operation | None:
    mode = word.one_of({"clamp", "wrap"})
    if not mode or word.types not in (("u32",), ("s32",)) or len(word.qualifiers) != 1:
        return None
    kind = word.types[0]

    def function(a: Bits, b: Bits) -> Bits:
        count = b & np.uint32(31)
        whole = (b >= np.uint32(32)) if mode == "clamp" else np.zeros(np.shape(b), np.bool_)
        mask = np.where(whole, np.uint32(0), np.uint32(0xFFFFFFFF) << count)
        result = a & ~mask
        if kind == "s32":
            sign = (a >> ((count - np.uint32(1)) & np.uint32(31))) & np.uint32(1) == 1
            result = np.where(sign & (count != 0) & ~whole, result | mask, result)
        return result

    return Operation(word.opcode, function, (kind, "u32"), (kind,))


def bmsk(word: Mnemonic) -> Operation | None:
    mode = word.one_of({"clamp", "wrap"})
    if not mode or word.types != ("b32",) or len(word.qualifiers) != 1:
        return None

    def function(a: Bits, b: Bits) -> Bits:
        start = a.astype(np.uint64) if mode == "clamp" else (a & np.uint32(31)).astype(np.uint64)
        width = b.astype(np.uint64) if mode == "clamp" else (b & np.uint32(31)).astype(np.uint64)
        field = (np.uint64(1) << np.minimum(width, np.uint64(32))) - np.uint64(1)
        shifted = field << np.minimum(start, np.uint64(32))
        return (shifted & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return Operation(word.opcode, function, ("b32", "b32"), ("b32",))


_PRMT_MODES = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}  # selector -> source bytes of d.b0 to d.b3


def _permuted(a: Bits, b: Bits, control: int) -> Bits:
    """`prmt` with one control for all: bytes that stay neighbours move together."""
    picks = [control >> 4 * place & 15 for place in range(4)]
    result: Any = (a | b) & np.uint32(0)
    place = 0
    while place < 4:
        source = (a, b)[picks[place] >> 2 & 1]
        first = picks[place] & 3
        if picks[place] & 8:
            sign = (source >> np.uint32(8 * first + 7)) & np.uint32(1)
            result = result | sign * np.uint32(0xFF << 8 * place)
            place += 1
            continue
        count = 1
        while place + count < 4 and first + count < 4 and picks[place + count] == picks[place] + count:
            count += 1
        mask = np.uint32(((1 << 8 * count) - 1) << 8 * place)
        moved = source << np.uint32(8 * (place - first)) if place >= first else source >> np.uint32(8 * (first - place))
        result = result | (moved & mask)
        place += count
    return np.asarray(result)


def prmt(word: Mnemonic) -> Operation | None:
    mode = word.one_of(_PRMT_MODES)
    if word.types != ("b32",) or mode is None or not word.only(_PRMT_MODES):
        return None

    def generic(a: Bits, b: Bits, c: Bits) -> Bits:
        control = np.asarray(c)
        if control.size and (control.ndim == 0 or not any(control.strides) or (control == control.flat[0]).all()):
            chosen = _permuted(a, b, int(control.flat[0]) & 0xFFFF)
            return np.broadcast_to(chosen, np.broadcast_shapes(chosen.shape, control.shape))
        pair = b.astype(np.uint64) << np.uint64(32) | a
        result: Any = np.uint32(0)
        for place in range(4):
            control = (c >> np.uint32(4 * place)) & np.uint32(15)
            at = ((control & np.uint32(7)) << np.uint32(3)).astype(np.uint64)
            byte = ((pair >> at) & np.uint64(0xFF)).astype(np.uint32)
            sign = np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
            byte = np.where(control & np.uint32(8), sign, byte)
            result = result | byte << np.uint32(8 * place)
        return np.asarray(result)

    if not mode:
        return Operation(word.opcode, generic, ("b32",) * 3, ("b32",))
    controls = np.array([sum(b << 4 * i for i, b in enumerate(row)) for row in _PRMT_MODES[mode]], np.uint32)
    return Operation(word.opcode, lambda a, b, c: generic(a, b, controls[c & np.uint32(3)]), ("b32",) * 3, ("b32",))


def dot(word: Mnemonic) -> Operation | None:
    """`dp4a` on bytes; `dp2a` on two 16-bit values with the lower or upper two bytes."""
    if len(word.types) != 2 or not set(word.types) <= {"u32", "s32"}:
        return None
    left, right = word.types
    part = word.one_of({"lo", "hi"})
    if (word.root == "dp4a" and word.qualifiers) or (word.root == "dp2a" and (not part or len(word.qualifiers) != 1)):
        return None
    a_type = (signed if left == "s32" else unsigned)("b8" if word.root == "dp4a" else "b16")
    b_type = (signed if right == "s32" else unsigned)("b8")
    chosen = slice(None) if word.root == "dp4a" else slice(0, 2) if part == "lo" else slice(2, 4)

    def function(a: Bits, b: Bits, c: Bits) -> Bits:
        first = np.ascontiguousarray(a).reshape((*np.shape(a), 1)).view(a_type).astype(np.int64)
        second = np.ascontiguousarray(b).reshape((*np.shape(b), 1)).view(b_type)[..., chosen].astype(np.int64)
        total: Bits = (first * second).sum(axis=-1) + c
        return total.astype(np.uint32)

    kind = "u32" if left == right == "u32" else "s32"
    return Operation(word.opcode, function, (left, right, kind), (kind,))


BUILDERS: dict[str, Callable[[Mnemonic], Operation | None]] = {
    "add": add_sub, "sub": add_sub, "addc": carry_chain, "subc": carry_chain, "mul": mul, "mad": mad, "madc": mad,
    "mul24": mul24, "mad24": mul24, "div": div_rem, "rem": div_rem, "abs": abs_neg, "neg": abs_neg, "min": min_max,
    "max": min_max, "sad": sad, "and": logic, "or": logic, "xor": logic, "not": logic, "cnot": logic, "lop3": lop3,
    "shl": shift, "shr": shift, "shf": funnel, "popc": count, "clz": count, "bfind": bfind, "brev": brev, "bfe": bfe,
    "bfi": bfi, "fns": fns, "szext": szext, "bmsk": bmsk, "prmt": prmt, "dp4a": dot, "dp2a": dot,
}  # fmt: skip
