"""Floating-point arithmetic and comparison. Imports only its own room.

f32, f16 and bf16 results are the exactly rounded ones, with the canonical NaN (0x7fffffff, 0x7fff). f64 keeps the
payload of a NaN operand. `abs` and `neg` follow the same two rules: the chip adds -0 to the operand, with its sign
changed on the way in, and a NaN's is not. `fma` rounds once: the product is exact in float64, and the sum is repaired
where its own rounding would show. `.approx` instructions give the correctly rounded value of the function where the
chip's table gives a value a few units away; they are marked `approximate`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from advisor.emulator.formats import (
    BF16,
    F16,
    FORMATS,
    Bits,
    Reals,
    as_real,
    bf16_to_f32,
    encode,
    f32_to_bf16,
    f32_to_f16,
    to_odd,
    two_sum,
)
from advisor.emulator.integer import joined, pairwise
from advisor.emulator.operation import ROUNDINGS, Mnemonic, Operation, unsigned

HALF = ("f16", "bf16")
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
Floats = np.ndarray[Any, np.dtype[np.float32]]
_CANONICAL_F32 = np.uint32(0x7FFFFFFF)
_SIGN_F32 = np.uint32(0x80000000)
F16_SMALLEST = 2.0**F16.smallest_exponent  # of the normal values


# --- f32 --------------------------------------------------------------------------------------------------------------


def f32_bits(values: Floats) -> Bits:
    """The bits of float32 results, every NaN canonical."""
    bits: Bits = np.asarray(values).view(np.uint32)
    nan = values != values
    return np.where(nan, _CANONICAL_F32, bits) if np.count_nonzero(nan) else bits


def flush_f32(bits: Bits) -> Bits:
    """Subnormals become zeros of their sign."""
    small = (bits & np.uint32(0x7F800000)) == 0
    return np.where(small, bits & _SIGN_F32, bits) if np.count_nonzero(small) else bits


def saturate_f32(bits: Bits) -> Bits:
    """To [+0, 1]; a NaN becomes +0."""
    values = bits.view(np.float32)
    return np.where(values > 0, np.minimum(values, np.float32(1)), np.float32(0)).view(np.uint32)


def round_f32(total: Reals, error: Reals | None, rounding: str) -> Floats:
    """`total + error` as float32, rounded once."""
    if rounding == "rn":
        if error is not None:
            total = to_odd(total, error)
        return total.astype(np.float32)
    near = total.astype(np.float32)
    back = near.astype(np.float64) - total
    rest = np.float64(0) if error is None else np.where(np.isfinite(error), error, 0.0)
    finite = np.isfinite(total)
    high, low = (back > rest) & finite, (back < rest) & finite
    if rounding == "rz":
        high, low = high & (total > 0), low & (total < 0)
    down = np.nextafter(near, np.float32(-np.inf))
    up = np.nextafter(near, np.float32(np.inf))
    if rounding != "rp":
        near = np.where(high, down, near)
    if rounding != "rm":
        near = np.where(low, up, near)
    if rounding == "rz":  # a step across zero from the smallest subnormal keeps the sign
        near = np.copysign(near, total.astype(np.float32))
    return near


def _sum_f32(left: Reals, right: Reals, rounding: str) -> Floats:
    if rounding == "rm":  # an exact zero of opposite signs is -0 in this mode alone
        total, error = two_sum(-left, -right)
        return round_f32(-total, -error, rounding)
    return round_f32(*two_sum(left, right), rounding)


def fma_f32(a: Bits, b: Bits, c: Bits) -> Bits:
    """a * b + c rounded once to nearest even."""
    product = a.view(np.float32).astype(np.float64) * b.view(np.float32)
    addend = c.view(np.float32).astype(np.float64)
    total: Reals = np.asarray(product + addend)
    codes = total.view(np.uint64)
    # Rounding twice differs only where the float64 sum lies half way between two f32, or is subnormal there.
    risky = (codes & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    small = np.abs(total) < 2.0**-126
    if np.count_nonzero(risky) or np.count_nonzero(small):
        total = to_odd(*two_sum(product, addend))
    return f32_bits(total.astype(np.float32))


def _fma_f32(rounding: str) -> Callable[..., Bits]:
    if rounding == "rn":
        return fma_f32

    def function(a: Bits, b: Bits, c: Bits) -> Bits:
        product = a.view(np.float32).astype(np.float64) * b.view(np.float32)
        return f32_bits(_sum_f32(product, c.view(np.float32).astype(np.float64), rounding))

    return function


def _binary_f32(root: str, rounding: str) -> Callable[..., Bits]:
    if rounding == "rn":
        ufunc: Any = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[root]
        return lambda a, b: f32_bits(ufunc(a.view(np.float32), b.view(np.float32)))

    def real(bits: Bits) -> Reals:
        return bits.view(np.float32).astype(np.float64)

    if root == "mul":
        return lambda a, b: f32_bits(round_f32(real(a) * real(b), None, rounding))
    if root == "div":
        return lambda a, b: f32_bits(_quotient_f32(real(a), real(b), rounding))
    if root == "sub":
        return lambda a, b: f32_bits(_sum_f32(real(a), -real(b), rounding))
    return lambda a, b: f32_bits(_sum_f32(real(a), real(b), rounding))


def _quotient_f32(left: Reals, right: Reals, rounding: str) -> Floats:
    """left / right of two float32 values; the remainder of the float64 quotient says which way it was rounded.

    The quotient is cut to 28 bits first: times a 24-bit divisor it is then exact."""
    whole = left / right
    cut: Reals = (whole.view(np.int64) & np.int64(~((1 << 25) - 1))).view(np.float64)
    rest = left - cut * right
    error = np.where(np.isfinite(whole) & (rest != 0), np.copysign(np.abs(cut) * 2.0**-60, rest * np.sign(right)), 0.0)
    return round_f32(cut, error, rounding)


def ftz(function: Callable[..., Bits]) -> Callable[..., Bits]:
    return lambda *operands: flush_f32(function(*[flush_f32(each) for each in operands]))


def _finished(function: Callable[..., Bits], *, flush: bool, saturate: bool) -> Callable[..., Bits]:
    if flush:
        function = ftz(function)
    if saturate:
        inner = function
        return lambda *operands: saturate_f32(inner(*operands))
    return function


# --- f16 and bf16 -----------------------------------------------------------------------------------------------------


def to_f32(bits: Bits, kind: str) -> Floats:
    """The float32 values of f16 or bf16 codes."""
    if kind == "f16":
        return bits.view(np.float16).astype(np.float32)
    widened: Floats = bf16_to_f32(bits).view(np.float32)
    return widened


def from_f32(values: Floats, kind: str) -> Bits:
    bits = np.asarray(values).view(np.uint32)
    return f32_to_f16(bits) if kind == "f16" else f32_to_bf16(bits)


def _fma_half(kind: str) -> Callable[..., Bits]:
    layout = FORMATS[kind]
    below = np.uint64((1 << (52 - layout.mantissa)) - 1)
    half_way = np.uint64(1 << (51 - layout.mantissa))
    smallest = 2.0**layout.smallest_exponent

    def function(a: Bits, b: Bits, c: Bits) -> Bits:
        product, addend = as_real(a, kind) * as_real(b, kind), as_real(c, kind)
        total: Reals = product + addend
        risky = (total.view(np.uint64) & below) == half_way
        if np.count_nonzero(risky) or np.count_nonzero(np.abs(total) < smallest):
            total = to_odd(*two_sum(product, addend))
        return encode(total, layout)

    return function


def _binary_half(root: str, kind: str) -> Callable[..., Bits]:
    ufunc: Any = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[root]
    if kind == "f16" or root != "mul":  # float32 holds twice the bits and two more: rounding twice is rounding once
        return lambda a, b: from_f32(ufunc(to_f32(a, kind), to_f32(b, kind)), kind)

    def function(a: Bits, b: Bits) -> Bits:
        left, right = to_f32(a, kind), to_f32(b, kind)
        product = np.asarray(left * right)
        if np.count_nonzero(np.abs(product) < np.float32(2.0**-126)):  # there float32 has rounded
            return encode(as_real(a, kind) * as_real(b, kind), BF16)
        return from_f32(product, kind)

    return function


def flush_half(bits: Bits) -> Bits:
    return np.where((bits & np.uint16(0x7C00)) == 0, bits & np.uint16(0x8000), bits)


def relu_half(bits: Bits, kind: str) -> Bits:
    """Negative values become +0, a NaN the canonical one."""
    infinity = np.uint16(0x7C00 if kind == "f16" else 0x7F80)
    nan = (bits & np.uint16(0x7FFF)) > infinity
    return np.where(nan, np.uint16(0x7FFF), np.where(bits >> np.uint16(15) == 1, np.uint16(0), bits))


def saturate_half(bits: Bits, kind: str) -> Bits:
    values = to_f32(bits, kind)
    return from_f32(np.where(values > 0, np.minimum(values, np.float32(1)), np.float32(0)), kind)


_OOB_NAN = {"f16": np.uint16(0xFFFF), "bf16": np.uint16(0xFFFF)}


def _half_form(word: Mnemonic, function: Callable[..., Bits], kind: str) -> Callable[..., Bits]:
    """What the qualifiers of a 16-bit instruction add, per lane."""
    if word.has("ftz"):
        plain = function
        function = lambda *operands: flush_half(plain(*[flush_half(each) for each in operands]))  # noqa: E731
    if word.has("relu"):
        raw = function
        function = lambda *operands: relu_half(raw(*operands), kind)  # noqa: E731
    if word.has("sat"):
        unbound = function
        function = lambda *operands: saturate_half(unbound(*operands), kind)  # noqa: E731
    if word.has("oob"):
        counted = function

        def function(*operands: Bits) -> Bits:
            outside = operands[0] == _OOB_NAN[kind]
            for each in operands[1:]:
                outside = outside | (each == _OOB_NAN[kind])
            return np.where(outside, np.uint16(0), counted(*operands))

    return function


# --- f64 --------------------------------------------------------------------------------------------------------------


def _exact_f64(compute: Callable[..., Fraction], rounding: str) -> Callable[..., Bits]:
    """Directed rounding of f64, and its fma, one element at a time with rational numbers: rare, and slow.

    The second result says where the exact value is zero: what its sign is, the operands decide."""

    def one(*values: float) -> tuple[float, bool]:
        exact = compute(*[Fraction(each) for each in values])
        return round_fraction_f64(exact, rounding), exact == 0

    return np.vectorize(one, otypes=[np.float64, np.bool_])


def round_fraction_f64(exact: Fraction, rounding: str) -> float:
    """The float64 nearest to `exact`, or its neighbour on the side that `rounding` asks for."""
    try:
        near = float(exact)
    except OverflowError:
        near = float("inf") if exact > 0 else float("-inf")
    if rounding == "rn":
        return near
    above = near == float("inf") or (np.isfinite(near) and Fraction(near) > exact)
    below = near == float("-inf") or (np.isfinite(near) and Fraction(near) < exact)
    if above and (rounding == "rm" or (rounding == "rz" and exact > 0)):
        return float(np.nextafter(near, -np.inf))
    if below and (rounding == "rp" or (rounding == "rz" and exact < 0)):
        return float(np.nextafter(near, np.inf))
    return near


_SPLIT = float((1 << 27) + 1)


def _product_error(left: Reals, right: Reals, product: Reals) -> Reals:
    """What the rounded float64 product lacks, exactly."""
    high_left = left * _SPLIT - (left * _SPLIT - left)
    high_right = right * _SPLIT - (right * _SPLIT - right)
    low_left, low_right = left - high_left, right - high_right
    rest: Reals = low_left * low_right - (
        ((product - high_left * high_right) - low_left * high_right) - high_left * low_right
    )
    return rest


def fma_f64(a: Bits, b: Bits, c: Bits) -> Bits:
    """a * b + c rounded once to nearest even: sums of exact errors, the last one rounded to odd.

    Operands beyond 2^±300, whose errors could leave the range, go the slow way."""
    x, y, z = (each.view(np.float64) for each in np.broadcast_arrays(a, b, c))
    usual = np.ones(x.shape, np.bool_)
    for each in (x, y, z):
        size = np.abs(each)
        usual &= (size == 0) | ((size > 2.0**-300) & (size < 2.0**300))
    product: Reals = np.asarray(x * y)
    upper, lower = two_sum(z, _product_error(x, y, product))
    total, rest = two_sum(product, upper)
    result = total + to_odd(*two_sum(lower, rest))
    result = np.where(product == 0, product + z, result)
    if not usual.all():
        result = np.where(usual, result, _fma_f64_rational(a, b, c).view(np.float64))
    return result.view(np.uint64)


def _f64(root: str, rounding: str) -> Callable[..., Bits]:
    if root == "fma" and rounding == "rn":
        return fma_f64
    return _rational_f64(root, rounding)


def _rational_f64(root: str, rounding: str) -> Callable[..., Bits]:
    ufunc: Any = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}.get(root)
    if root != "fma" and rounding == "rn":
        return lambda a, b: np.asarray(ufunc(a.view(np.float64), b.view(np.float64))).view(np.uint64)
    arithmetic: dict[str, Callable[..., Fraction]] = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "div": operator.truediv,
        "fma": lambda a, b, c: a * b + c,
    }
    slow = _exact_f64(arithmetic[root], rounding)

    def function(*operands: Bits) -> Bits:
        values = np.broadcast_arrays(*[each.view(np.float64) for each in operands])
        plain = np.asarray(values[0] * values[1] + values[2] if root == "fma" else ufunc(*values))
        regular = np.isfinite(values[0])
        for each in values[1:]:
            regular &= np.isfinite(each)
        if root == "div":
            regular &= values[1] != 0
        result = np.array(plain)
        if regular.any():
            chosen, zero = slow(*[each[regular] for each in values])
            signed = _zero_f64(root, [each[regular] for each in values], plain[regular], rounding)
            result[regular] = np.where(zero, signed, chosen)
        return result.view(np.uint64)

    return function


def _zero_f64(root: str, values: Any, plain: Reals, rounding: str) -> Reals:
    """The zero that an exact zero is: of the product's sign, and -0 for a cancellation under rm."""
    if root in ("mul", "div"):
        return np.copysign(0.0, plain)
    left = values[0] * values[1] if root == "fma" else values[0]
    right = values[2] if root == "fma" else -values[1] if root == "sub" else values[1]
    same = np.signbit(left) == np.signbit(right)
    cancelled = -0.0 if rounding == "rm" else 0.0
    return np.where(same, np.copysign(0.0, left), cancelled)


_fma_f64_rational = _rational_f64("fma", "rn")


# --- add, sub, mul, fma, div ------------------------------------------------------------------------------------------


def arithmetic(word: Mnemonic) -> Operation | None:
    rounding = word.one_of(ROUNDINGS, "rn")
    kind = word.types[0] if word.types else ""
    root = "fma" if word.root == "mad" else word.root
    arity = 3 if root == "fma" else 2
    if rounding is None or (word.root in ("fma", "mad", "div") and not word.one_of(ROUNDINGS)):
        return None
    if len(word.types) == 2 and kind == "f32" and word.types[1] in HALF and word.only(ROUNDINGS, "sat"):
        return _mixed(word, root, rounding)
    if len(word.types) != 1:
        return None
    if kind == "f32" and word.only(ROUNDINGS, "ftz", *([] if root == "div" else ["sat"])):
        function = _finished(_f32(root, rounding), flush=word.has("ftz"), saturate=word.has("sat"))
        return Operation(word.opcode, function, ("f32",) * arity, ("f32",))
    if kind == "f32x2" and root != "div" and word.only(ROUNDINGS, "ftz"):
        lanes = _finished(_f32(root, rounding), flush=word.has("ftz"), saturate=False)
        return Operation(word.opcode, _two_f32(lanes), ("f32x2",) * arity, ("f32x2",))
    if kind == "f64" and word.only(ROUNDINGS):
        return Operation(word.opcode, _f64(root, rounding), ("f64",) * arity, ("f64",))
    return _half_arithmetic(word, root, rounding, arity)


def _half_arithmetic(word: Mnemonic, root: str, rounding: str, arity: int) -> Operation | None:
    kind = word.types[0]
    lane = PACKED.get(kind, kind)
    extras = ("ftz", "sat") if lane == "f16" else ()
    more = ("relu", "oob") if root == "fma" else ()
    if lane not in HALF or root == "div" or rounding != "rn" or not word.only("rn", *extras, *more):
        return None
    if word.root == "mad" or (word.has("relu") and word.has("sat")):
        return None
    function = _half_form(word, _fma_half(lane) if root == "fma" else _binary_half(root, lane), lane)
    if kind in PACKED:
        function = pairwise(function)
    return Operation(word.opcode, function, (kind,) * arity, (kind,))


def _f32(root: str, rounding: str) -> Callable[..., Bits]:
    return _fma_f32(rounding) if root == "fma" else _binary_f32(root, rounding)


def _two_f32(function: Callable[..., Bits]) -> Callable[..., Bits]:
    def packed(*operands: Bits) -> Bits:
        split = [np.ascontiguousarray(each).reshape((*np.shape(each), 1)).view(np.uint32) for each in operands]
        return joined(function(*split), np.uint64)

    return packed


def _mixed(word: Mnemonic, root: str, rounding: str) -> Operation | None:
    """`add.f32.bf16 d, a, c` and `fma.rn.f32.f16 d, a, b, c`: 16-bit operands beside an f32 one."""
    if root not in ("add", "sub", "fma"):
        return None
    kind = word.types[1]
    inner = _finished(_f32(root, rounding), flush=False, saturate=word.has("sat"))
    narrow = 2 if root == "fma" else 1

    def function(*operands: Bits) -> Bits:
        wide = [np.asarray(to_f32(each, kind)).view(np.uint32) for each in operands[:narrow]]
        return inner(*wide, operands[-1])

    return Operation(word.opcode, function, (kind,) * narrow + ("f32",), ("f32",))


# --- functions of one operand -----------------------------------------------------------------------------------------


_FUNCTIONS: dict[str, Callable[[Reals], Reals]] = {
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def function_of_one(word: Mnemonic) -> Operation | None:
    kind = word.types[0] if len(word.types) == 1 else ""
    approximate = word.has("approx")
    rounding = word.one_of(ROUNDINGS)
    if rounding is None or bool(rounding) == approximate:
        return None
    if kind == "f32" and word.only("approx", "ftz", ROUNDINGS if word.root in ("rcp", "sqrt") else ()):
        return _approximated(word) if approximate else _rounded_f32(word, rounding)
    lane = PACKED.get(kind, kind)
    if approximate and lane in HALF and word.root in ("tanh", "ex2") and word.only("approx", "ftz"):
        return _half_function(word, kind, lane)
    if kind != "f64" or word.root not in ("rcp", "sqrt", "rsqrt"):
        return None
    if approximate and word.root != "sqrt" and word.only("approx", "ftz"):
        return _gross_f64(word)
    return _rounded_f64(word, rounding) if rounding and word.root != "rsqrt" and word.only(ROUNDINGS) else None


def _approximated(word: Mnemonic) -> Operation:
    compute = _FUNCTIONS[word.root]

    def plain(a: Bits) -> Bits:
        return f32_bits(compute(a.view(np.float32).astype(np.float64)).astype(np.float32))

    function = ftz(plain) if word.has("ftz") else plain
    return Operation(word.opcode, function, ("f32",), ("f32",), approximate=True)


def _rounded_f32(word: Mnemonic, rounding: str) -> Operation:
    if word.root == "rcp":
        divide = _binary_f32("div", rounding)
        one = np.uint32(0x3F800000)

        def plain(a: Bits) -> Bits:
            return divide(np.full(np.shape(a), one), a)

    else:

        def plain(a: Bits) -> Bits:
            values = a.view(np.float32).astype(np.float64)
            root: Reals = np.sqrt(values)
            cut: Reals = (root.view(np.int64) & np.int64(~((1 << 27) - 1))).view(np.float64)  # its square is exact
            rest = np.where(np.isfinite(root), values - cut * cut, 0.0)
            error = np.where(rest != 0, np.copysign(cut * 2.0**-60, rest), 0.0)
            return f32_bits(round_f32(cut, error, rounding))

    function = ftz(plain) if word.has("ftz") else plain
    return Operation(word.opcode, function, ("f32",), ("f32",))


def _rounded_f64(word: Mnemonic, rounding: str) -> Operation | None:
    if word.root == "rcp":
        divide = _f64("div", rounding)
        one = np.float64(1).view(np.uint64)
        return Operation(word.opcode, lambda a: divide(np.full(np.shape(a), one), a), ("f64",), ("f64",))

    def root(value: float) -> float:
        near = float(np.sqrt(value))
        if rounding == "rn" or not np.isfinite(near) or Fraction(near) ** 2 == Fraction(value):
            return near
        too_large = Fraction(near) ** 2 > Fraction(value)
        if too_large and rounding in ("rz", "rm"):
            return float(np.nextafter(near, 0.0))
        return near if too_large or rounding != "rp" else float(np.nextafter(near, np.inf))

    if rounding == "rn":
        return Operation(word.opcode, lambda a: np.sqrt(a.view(np.float64)).view(np.uint64), ("f64",), ("f64",))
    slow = np.vectorize(root, otypes=[np.float64])
    return Operation(word.opcode, lambda a: slow(a.view(np.float64)).view(np.uint64), ("f64",), ("f64",))


def _gross_f64(word: Mnemonic) -> Operation:
    """`rcp.approx.ftz.f64`, `rsqrt.approx.ftz.f64`: from the upper word, into the upper word."""
    compute = _FUNCTIONS[word.root]
    upper = np.uint64(0xFFFFFFFF00000000)

    def flush(bits: Bits) -> Bits:
        small = (bits & np.uint64(0x7FF0000000000000)) == 0
        return np.where(small, bits & np.uint64(1 << 63), bits)

    def function(a: Bits) -> Bits:
        values: Reals = np.asarray(compute(flush(a & upper).view(np.float64)))
        nan = values != values
        return np.where(nan, np.uint64(0x7FFFFFFF00000000), flush(values.view(np.uint64) & upper))

    return Operation(word.opcode, function, ("f64",), ("f64",), approximate=True)


def _half_function(word: Mnemonic, kind: str, lane: str) -> Operation | None:
    if word.has("ftz") != (word.root == "ex2" and lane == "bf16"):
        return None
    compute = _FUNCTIONS[word.root]

    def plain(a: Bits) -> Bits:
        values = compute(as_real(a, lane))
        codes = encode(values, BF16 if lane == "bf16" else F16)
        if word.root == "ex2" and lane == "f16":  # the chip cuts what it shifts out of a subnormal result
            small = values < F16_SMALLEST
            codes = np.where(small, encode(np.where(small, values, 0.0), F16, "rz"), codes)
        return codes

    function = plain
    if word.has("ftz"):

        def function(a: Bits) -> Bits:
            return flush_bf16(plain(flush_bf16(a)))

    return Operation(word.opcode, pairwise(function) if kind in PACKED else function, (kind,), (kind,), True)


def flush_bf16(bits: Bits) -> Bits:
    return np.where((bits & np.uint16(0x7F80)) == 0, bits & np.uint16(0x8000), bits)


def approximate_division(word: Mnemonic) -> Operation | None:
    """`div.approx.f32` and `div.full.f32`."""
    way = word.one_of({"approx", "full"})
    if word.types != ("f32",) or not way or not word.only("approx", "full", "ftz"):
        return None

    def plain(a: Bits, b: Bits) -> Bits:
        left, right = a.view(np.float32), b.view(np.float32)
        quotient = left / right
        if way == "approx":  # the reciprocal of a divisor beyond 2^126 is flushed
            huge = (np.abs(right) > np.float32(2.0**126)) & np.isfinite(right)
            quotient = np.where(huge, np.where(np.isinf(left), np.float32(np.nan), quotient * np.float32(0)), quotient)
        return f32_bits(quotient)

    function = ftz(plain) if word.has("ftz") else plain
    return Operation(word.opcode, function, ("f32", "f32"), ("f32",), approximate=True)


# --- sign, min, max, tests --------------------------------------------------------------------------------------------

_SIGN = {"f32": 31, "f64": 63, "f16": 15, "bf16": 15}
_INFINITY = {"f32": 0x7F800000, "f64": 0x7FF0000000000000, "f16": 0x7C00, "bf16": 0x7F80}

_CANONICAL = {"f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000, "f16": 0x7FFF, "bf16": 0x7FFF}


def is_nan(bits: Bits, kind: str) -> Bits:
    raw = unsigned(kind)
    nan: Bits = (bits & raw((1 << _SIGN[kind]) - 1)) > raw(_INFINITY[kind])
    return nan


def abs_neg(word: Mnemonic) -> Operation | None:
    """The sign bit is cleared or turned. A NaN becomes the canonical one; in f64 it keeps sign and payload, quiet."""
    kind = word.types[0] if len(word.types) == 1 else ""
    lane = PACKED.get(kind, kind)
    if lane not in _SIGN or not word.only(*(["ftz"] if lane in ("f32", "f16") else [])):
        return None
    raw = unsigned(lane)
    sign, canonical = raw(1 << _SIGN[lane]), raw(_CANONICAL[lane])
    ufunc: Any = np.bitwise_xor if word.root == "neg" else np.bitwise_and
    operand = sign if word.root == "neg" else ~sign
    flush: Callable[[Bits], Bits] = flush_f32 if lane == "f32" else flush_half

    def function(a: Bits) -> Bits:
        nan = is_nan(a, lane)
        result: Bits = ufunc(flush(a) if word.has("ftz") else a, operand)
        if not np.count_nonzero(nan):
            return result
        return np.where(nan, a | canonical if lane == "f64" else canonical, result)

    return Operation(word.opcode, pairwise(function) if kind in PACKED else function, (kind,), (kind,))


def copysign(word: Mnemonic) -> Operation | None:
    """The sign of the first operand on the value of the second."""
    if word.types not in (("f32",), ("f64",)) or not word.only():
        return None
    kind = word.types[0]
    raw = unsigned(kind)
    sign, rest = raw(1 << _SIGN[kind]), raw((1 << _SIGN[kind]) - 1)
    return Operation(word.opcode, lambda a, b: (a & sign) | (b & rest), (kind, kind), (kind,))


def _ordered(bits: Bits, kind: str) -> Bits:
    """Integers in the order of the values, -0 below +0."""
    raw = unsigned(kind)
    negative = bits >> raw(_SIGN[kind]) == 1
    return np.where(negative, ~bits, bits | raw(1 << _SIGN[kind]))


def _extreme(root: str, kind: str, *, nan_wins: bool) -> Callable[[Bits, Bits], Bits]:
    if kind in ("f32", "f64") and not nan_wins:
        return _extreme_quick(root, kind)
    raw = unsigned(kind)
    canonical = raw(_CANONICAL[kind])

    def function(a: Bits, b: Bits) -> Bits:
        first, second = _ordered(a, kind), _ordered(b, kind)
        result = np.where((first < second) == (root == "min"), a, b)
        left, right = is_nan(a, kind), is_nan(b, kind)
        either = left | right
        if not np.count_nonzero(either):
            return result
        result = np.where(left, b, np.where(right, a, result))
        return np.where(either if nan_wins else left & right, canonical, result)

    return function


def _extreme_quick(root: str, kind: str) -> Callable[[Bits, Bits], Bits]:
    """Of equal values only zeros differ: the signs' `and` is the larger, their `or` the smaller."""
    number: Any = np.float32 if kind == "f32" else np.float64
    canonical = unsigned(kind)(_CANONICAL[kind])
    choose: Any = np.fmin if root == "min" else np.fmax
    merge: Any = np.bitwise_or if root == "min" else np.bitwise_and

    def function(a: Bits, b: Bits) -> Bits:
        left, right = a.view(number), b.view(number)
        values = choose(left, right)
        bits: Bits = np.where(left == right, merge(a, b), np.asarray(values).view(unsigned(kind)))
        nan = values != values
        return np.where(nan, canonical, bits) if np.count_nonzero(nan) else bits

    return function


def min_max(word: Mnemonic) -> Operation | None:
    kind = word.types[0] if len(word.types) == 1 else ""
    lane = PACKED.get(kind, kind)
    three = word.sources == 3
    allowed = ["ftz"] if lane in ("f32", "f16") else []
    if lane not in _SIGN or (three and kind != "f32"):
        return None
    if kind != "f64":
        allowed += ["NaN", "abs"] + ([] if three else ["xorsign"])
    if not word.only(*allowed) or (not three and word.has("abs") != word.has("xorsign")):
        return None
    function = _min_max_lane(word, lane)
    if kind in PACKED:
        function = pairwise(function)
    return Operation(word.opcode, function, (kind,) * (3 if three else 2), (kind,))


def _min_max_lane(word: Mnemonic, kind: str) -> Callable[..., Bits]:
    choose = _extreme(word.root, kind, nan_wins=word.has("NaN"))
    raw = unsigned(kind)
    sign, rest = raw(1 << _SIGN[kind]), raw((1 << _SIGN[kind]) - 1)
    flush: Callable[[Bits], Bits] = flush_f32 if kind == "f32" else flush_half

    def function(a: Bits, b: Bits, *more: Bits) -> Bits:
        operands = [a, b, *more]
        if word.has("ftz"):
            operands = [flush(each) for each in operands]
        signs = (operands[0] ^ operands[1]) & sign
        if word.has("abs"):
            operands = [each & rest for each in operands]
        result = choose(operands[0], operands[1])
        if more:
            result = choose(result, operands[2])
        if word.has("xorsign"):
            result = np.where(is_nan(result, kind), result, (result & rest) | signs)
        return result

    return function


def testp(word: Mnemonic) -> Operation | None:
    kind = word.types[0] if len(word.types) == 1 else ""
    if kind not in ("f32", "f64") or len(word.qualifiers) != 1:
        return None
    raw = unsigned(kind)
    rest, infinity = raw((1 << _SIGN[kind]) - 1), raw(_INFINITY[kind])
    smallest = raw(0x00800000 if kind == "f32" else 1 << 52)
    tests: dict[str, Callable[[Bits], Bits]] = {
        "finite": lambda m: m < infinity,
        "infinite": lambda m: m == infinity,
        "number": lambda m: m <= infinity,
        "notanumber": lambda m: m > infinity,
        "normal": lambda m: ((m >= smallest) & (m < infinity)) | (m == 0),
        "subnormal": lambda m: (m < smallest) & (m > 0),
    }
    test = tests.get(word.qualifiers[0])
    return None if test is None else Operation(word.opcode, lambda a: test(a & rest), (kind,), ("pred",))


BUILDERS: dict[str, Callable[[Mnemonic], Operation | None]] = {
    "add": arithmetic, "sub": arithmetic, "mul": arithmetic, "fma": arithmetic, "mad": arithmetic, "div": arithmetic,
    "rcp": function_of_one, "sqrt": function_of_one, "rsqrt": function_of_one, "sin": function_of_one,
    "cos": function_of_one, "lg2": function_of_one, "ex2": function_of_one, "tanh": function_of_one,
    "abs": abs_neg, "neg": abs_neg, "copysign": copysign, "min": min_max, "max": min_max, "testp": testp,
}  # fmt: skip
