"""`cvt` between all types and packed types. Imports only its own room.

A source is read exactly as float64 (64-bit integers with a sticky last bit) and encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from advisor.emulator.floating import (
    f32_bits,
    flush_f32,
    relu_half,
    round_f32,
    round_fraction_f64,
    saturate_f32,
    saturate_half,
)
from advisor.emulator.formats import (
    BF16,
    F32,
    FORMATS,
    TF32,
    Bits,
    Format,
    Reals,
    as_real,
    bf16_to_f32,
    code_values,
    encode,
    encode_ue8m0,
    f32_to_bf16,
    f32_to_f16,
)
from advisor.emulator.integer import halves, joined
from advisor.emulator.operation import ROUNDINGS, WIDTH, Mnemonic, Operation, signed, unsigned

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
_TO_INTEGER: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_SMALL_PAIRS = {f"{each}x2": each for each in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
_SMALL_QUADS = {f"{each}x4": each for each in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
_HALF_PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}
Convert = Callable[..., Bits]


def cvt(word: Mnemonic) -> Operation | None:
    if word.has("pack"):
        return _pack_saturated(word)
    if len(word.types) != 2:
        return None
    result, source = word.types
    if result in INTEGERS:
        return _integer_result(word, result, source)
    if result in FLOATS and source in INTEGERS:
        return _from_integer(word, result, source)
    if result in FLOATS and source in FLOATS:
        return _between_floats(word, result, source)
    if result == "tf32" and source == "f32":
        return _to_tf32(word)
    return _packed(word, result, source)


# --- to integers ------------------------------------------------------------------------------------------------------


def _integer_result(word: Mnemonic, result: str, source: str) -> Operation | None:
    if source in INTEGERS and word.only("sat"):
        between = _saturating_integer(result, source) if word.has("sat") else _extend(result, source)
        return Operation(word.opcode, between, (source,), (result,))
    rounding = word.one_of(_TO_INTEGER)
    if source not in FLOATS or not rounding or not word.only(_TO_INTEGER, "ftz", "sat"):
        return None
    if word.has("ftz") and source != "f32":
        return None
    whole = _TO_INTEGER[rounding]
    finish = _clamp_to(result, nan_is_top=source == "f64" or WIDTH[result] == 64)

    def function(a: Bits) -> Bits:
        return finish(whole(as_real(flush_f32(a) if word.has("ftz") else a, source)))

    return Operation(word.opcode, function, (source,), (result,))


def _extend(result: str, source: str) -> Convert:
    target = unsigned(result)
    if source.startswith("s"):
        number = signed(source)
        return lambda a: a.view(number).astype(target)
    return lambda a: a.astype(target)


def _limits(kind: str) -> tuple[int, int]:
    bits = WIDTH[kind]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind.startswith("s") else (0, (1 << bits) - 1)


def _saturating_integer(result: str, source: str) -> Convert:
    low, high = (max(_limits(result)[0], _limits(source)[0]), min(_limits(result)[1], _limits(source)[1]))
    number = signed(source) if source.startswith("s") else unsigned(source)
    target = unsigned(result)
    return lambda a: np.clip(a.view(number), number(low), number(high)).astype(target)


def _clamp_to(result: str, *, nan_is_top: bool) -> Callable[[Reals], Bits]:
    """Whole float64 numbers to an integer type, clamped. A NaN is 0, or the top bit alone where 64 bits take part."""
    low, high = _limits(result)
    target = unsigned(result)
    for_nan = target(1 << (WIDTH[result] - 1) if nan_is_top else 0)

    def function(values: Reals) -> Bits:
        inside = (values >= float(low)) & (values < float(high + 1))
        tame = np.where(inside, values, 0.0)
        if low == 0 and high >= 1 << 63:
            upper = tame >= 2.0**63
            codes = np.where(upper, tame - 2.0**63, tame).astype(np.int64).view(np.uint64)
            codes = np.where(upper, codes | np.uint64(1 << 63), codes)
        else:
            codes = tame.astype(np.int64).astype(target)
        if inside.all():
            return codes
        edge = np.where(values < 0, target(low & ((1 << WIDTH[result]) - 1)), target(high))
        codes = np.where(inside, codes, edge)
        return np.where(np.isnan(values), for_nan, codes)

    return function


def _pack_saturated(word: Mnemonic) -> Operation | None:
    """`cvt.pack.sat.s16.s32 d, a, b`, and `cvt.pack.sat.u8.s32.b32 d, a, b, c` which moves the bits of c up."""
    kind = word.opcode.split(".")[3] if len(word.qualifiers) >= 2 and len(word.opcode.split(".")) > 3 else ""
    if kind[:1] not in ("u", "s") or kind[1:] not in ("2", "4", "8", "16"):
        return None
    size = int(kind[1:])
    rest = "s32" if size == 16 else "s32.b32"
    if word.opcode != f"cvt.pack.sat.{kind}.{rest}":
        return None
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if kind[0] == "s" else (0, (1 << size) - 1)
    mask = np.uint32((1 << size) - 1)

    def held(a: Bits) -> Bits:
        return np.clip(a.view(np.int32), np.int32(low), np.int32(high)).view(np.uint32) & mask

    def pair(a: Bits, b: Bits) -> Bits:
        return held(a) << np.uint32(size) | held(b)

    if size == 16:
        return Operation(word.opcode, pair, ("s32", "s32"), ("b32",))
    return Operation(
        word.opcode, lambda a, b, c: pair(a, b) | c << np.uint32(2 * size), ("s32", "s32", "b32"), ("b32",)
    )


# --- to floats --------------------------------------------------------------------------------------------------------


def _exact_integer(bits: Bits, kind: str) -> Reals:
    """An integer as float64, the last bit sticky where 53 bits do not hold it."""
    number = signed(kind) if kind.startswith("s") else unsigned(kind)
    values = bits.view(number)
    if WIDTH[kind] < 64:
        real: Reals = values.astype(np.float64)
        return real
    negative = values < 0
    size = np.where(negative, ~bits + np.uint64(1), bits)
    lost = (size & np.uint64(0x7FF)) != 0
    odd = np.where(lost, (size & ~np.uint64(0x7FF)) | np.uint64(0x800), size)
    large = size >= np.uint64(1 << 53)
    result = np.where(large, odd, size).astype(np.float64)
    return np.where(negative, -result, result)


def _from_integer(word: Mnemonic, result: str, source: str) -> Operation | None:
    rounding = word.one_of(ROUNDINGS)
    if not rounding or not word.only(ROUNDINGS, "ftz", "sat") or (word.has("ftz") and result != "f32"):
        return None
    if word.has("sat") and result == "bf16":
        return None
    if result == "f64":
        convert = _integer_to_f64(source, rounding)
    elif result == "f32":
        convert = lambda a: round_f32(_exact_integer(a, source), None, rounding).view(np.uint32)  # noqa: E731
    else:
        layout = FORMATS[result]
        convert = lambda a: encode(_exact_integer(a, source), layout, rounding)  # noqa: E731
    return Operation(word.opcode, _saturated(convert, result) if word.has("sat") else convert, (source,), (result,))


def _integer_to_f64(source: str, rounding: str) -> Convert:
    number = signed(source) if source.startswith("s") else unsigned(source)
    if rounding == "rn" or WIDTH[source] < 64:
        return lambda a: a.view(number).astype(np.float64).view(np.uint64)
    slow = np.vectorize(lambda value: round_fraction_f64(Fraction(int(value)), rounding), otypes=[np.float64])
    return lambda a: slow(a.view(number)).view(np.uint64)


def _saturated(convert: Convert, kind: str) -> Convert:
    if kind == "f32":
        return lambda *operands: saturate_f32(convert(*operands))
    if kind == "f64":

        def clamp(*operands: Bits) -> Bits:
            values = convert(*operands).view(np.float64)
            return np.where(values > 0, np.minimum(values, 1.0), 0.0).view(np.uint64)

        return clamp
    return lambda *operands: saturate_half(convert(*operands), kind)


def _between_floats(word: Mnemonic, result: str, source: str) -> Operation | None:
    whole = word.one_of(_TO_INTEGER)
    rounding = word.one_of(ROUNDINGS)
    if whole is None or rounding is None or (whole and rounding):
        return None
    half = result in ("f16", "bf16")
    narrowing = half and source == "f32"
    if not word.only(_TO_INTEGER, ROUNDINGS, "ftz", "sat", *(("relu", "satfinite") if narrowing else ())):
        return None
    if word.has("ftz") and "f32" not in (result, source):
        return None
    loses = WIDTH[result] < WIDTH[source] or (half and source in ("f16", "bf16") and result != source)
    if (loses and not rounding) or (not loses and rounding) or (whole and result != source):
        return None
    convert = _whole(result, whole) if whole else _float_to_float(word, result, source, rounding)
    if word.has("ftz"):
        convert = _flushing(convert, result, source)
    if word.has("relu"):
        kept = convert
        convert = lambda a: relu_half(kept(a), result)  # noqa: E731
    return Operation(word.opcode, _saturated(convert, result) if word.has("sat") else convert, (source,), (result,))


def _flushing(convert: Convert, result: str, source: str) -> Convert:
    before: Convert = flush_f32 if source == "f32" else lambda a: a
    if (result, source) == ("f64", "f32"):  # the flush is an instruction of its own, whose NaN is canonical
        before = lambda a: f32_copy(flush_f32(a))  # noqa: E731
    after: Convert = flush_f32 if result == "f32" else lambda a: a
    return lambda a: after(convert(before(a)))


def _whole(kind: str, name: str) -> Convert:
    """Rounding to a whole number within one format."""
    ufunc = _TO_INTEGER[name]
    if kind == "f32":
        return lambda a: f32_bits(ufunc(a.view(np.float32)))
    if kind == "f64":
        return lambda a: np.asarray(ufunc(a.view(np.float64))).view(np.uint64)
    return lambda a: encode(ufunc(as_real(a, kind)), FORMATS[kind])


def _float_to_float(word: Mnemonic, result: str, source: str, rounding: str) -> Convert:
    finite = word.has("satfinite")
    if result == source:
        return f32_copy if result == "f32" else lambda a: a
    if result == "f64":
        return lambda a: _quiet_f64(as_real(a, source).view(np.uint64))
    if result == "f32":
        if source == "f64":
            return lambda a: _narrow_nan(f32_bits(round_f32(a.view(np.float64), None, rounding)), a, F32)
        if source == "bf16":
            return bf16_to_f32
        return lambda a: f32_bits(a.view(np.float16).astype(np.float32))
    if source == "f32" and rounding == "rn" and not finite:
        return f32_to_bf16 if result == "bf16" else f32_to_f16
    layout = FORMATS[result]
    if source == "f64":
        return lambda a: _narrow_nan(encode(a.view(np.float64), layout, rounding), a, layout)
    return lambda a: encode(as_real(a, source), layout, rounding, finite=finite)


def _quiet_f64(codes: Bits) -> Bits:
    nan = (codes & np.uint64((1 << 63) - 1)) > np.uint64(0x7FF << 52)
    return np.where(nan, codes | np.uint64(1 << 51), codes) if np.count_nonzero(nan) else codes


def _narrow_nan(codes: Bits, source: Bits, layout: Format) -> Bits:
    """A NaN of f64 keeps its sign and the top of its payload, and becomes quiet: the one source that has this rule."""
    nan = (source & np.uint64((1 << 63) - 1)) > np.uint64(0x7FF << 52)
    if not np.count_nonzero(nan):
        return codes
    quiet = np.uint64(((1 << layout.bits - 1 - layout.mantissa) - 1) << layout.mantissa | 1 << layout.mantissa - 1)
    payload = (source & np.uint64((1 << 52) - 1)) >> np.uint64(52 - layout.mantissa)
    kept = source >> np.uint64(63) << np.uint64(layout.bits - 1) | quiet | payload
    return np.where(nan, kept.astype(codes.dtype), codes)


def f32_copy(bits: Bits) -> Bits:
    """`cvt.f32.f32`: the value itself, a NaN canonical."""
    return f32_bits(bits.view(np.float32))


def _to_tf32(word: Mnemonic) -> Operation | None:
    rounding = word.one_of({"rna", "rn", "rz"})
    if (
        not rounding
        or not word.only("rna", "rn", "rz", "relu", "satfinite")
        or (rounding == "rna" and word.has("relu"))
    ):
        return None
    finite = word.has("satfinite")
    if rounding == "rna":
        return Operation(word.opcode, _rounded_away(finite), ("f32",), ("tf32",))

    def function(a: Bits) -> Bits:
        codes = encode(as_real(a, "f32"), TF32, rounding, finite=finite) << np.uint32(13)
        if word.has("relu"):
            nan = (codes & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
            codes = np.where((codes >> np.uint32(31) == 1) & ~nan, np.uint32(0), codes)
        return codes

    return Operation(word.opcode, function, ("f32",), ("tf32",))


def _rounded_away(finite: bool) -> Convert:
    """`rna` as the compiler spells it for sm_90, which has no instruction for it: add half a step to what is finite,
    cut; `.satfinite` takes one step off what is not finite then. A NaN whose payload is cut away becomes infinity."""
    magnitude, infinity = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
    kept, step = np.uint32(0xFFFFE000), np.uint32(0x2000)

    def function(a: Bits) -> Bits:
        codes: Bits = (a + np.where((a & magnitude) < infinity, step >> np.uint32(1), np.uint32(0))) & kept
        return np.where((codes & magnitude) >= infinity, codes - step, codes) if finite else codes

    return function


# --- packed types -----------------------------------------------------------------------------------------------------


def _packed(word: Mnemonic, result: str, source: str) -> Operation | None:
    if result in _HALF_PAIRS and source == "f32":
        return _to_half_pair(word, result)
    if result in _SMALL_PAIRS and source in ("f32", *_HALF_PAIRS):
        return _to_small_pair(word, result, source)
    if result in _HALF_PAIRS and source in _SMALL_PAIRS:
        return _from_small_pair(word, result, source)
    if result in _SMALL_QUADS and source == "f32":
        return _to_small_quad(word, result)
    if result == "ue8m0x2" and source in ("f32", "bf16x2"):
        return _to_scales(word, source)
    if (result, source) == ("bf16x2", "ue8m0x2") and word.only("rn") and word.has("rn"):
        return Operation(word.opcode, _from_scales, (source,), (result,))
    return None


def _relu(values: Reals) -> Reals:
    """Negative values become 0; a NaN stays one."""
    return np.where(values < 0, 0.0, np.where(values == 0, 0.0, values))


def _pack(high: Bits, low: Bits, bits: int, dtype: type[Any]) -> Bits:
    packed: Bits = high.astype(dtype) << dtype(bits) | low
    return packed


def _to_half_pair(word: Mnemonic, result: str) -> Operation | None:
    """`d[31:16]` from the first source, `d[15:0]` from the second."""
    rounding = word.one_of({"rn", "rz", "rs"})
    if not rounding or not word.only("rn", "rz", "rs", "relu", "satfinite"):
        return None
    kind = _HALF_PAIRS[result]
    if rounding == "rs":
        return _half_pair_stochastic(word, result, kind)
    layout = FORMATS[kind]
    finite = word.has("satfinite")
    quick: Convert = f32_to_bf16 if kind == "bf16" else f32_to_f16
    plain = rounding == "rn" and not finite

    def convert(a: Bits) -> Bits:
        codes = quick(a) if plain else encode(as_real(a, "f32"), layout, rounding, finite=finite)
        return relu_half(codes, kind) if word.has("relu") else codes

    def function(a: Bits, b: Bits) -> Bits:
        return _pack(convert(a), convert(b), 16, np.uint32)

    return Operation(word.opcode, function, ("f32", "f32"), (result,))


def _half_pair_stochastic(word: Mnemonic, result: str, kind: str) -> Operation:
    layout = FORMATS[kind]
    used = 13 if kind == "f16" else 16  # as many as the f32 has discarded bits
    mask = np.uint32((1 << used) - 1)

    def convert(a: Bits, random: Bits) -> Bits:
        fractions = (random & mask).astype(np.float64) * 2.0**-used
        codes = encode(as_real(a, "f32"), layout, "rs", finite=word.has("satfinite"), random=fractions)
        return relu_half(codes, kind) if word.has("relu") else codes

    def function(a: Bits, b: Bits, random: Bits) -> Bits:
        return _pack(convert(a, random >> np.uint32(16)), convert(b, random), 16, np.uint32)

    return Operation(word.opcode, function, ("f32", "f32", "b32"), (result,))


def _small(values: Reals, layout: Format, word: Mnemonic, random: Any = None) -> Bits:
    if word.has("relu"):
        values = _relu(values)
    codes = encode(values, layout, "rn" if random is None else "rs", finite=True, random=random)
    return codes


def _to_small_pair(word: Mnemonic, result: str, source: str) -> Operation | None:
    if not word.only("rn", "satfinite", "relu") or not (word.has("rn") and word.has("satfinite")):
        return None
    layout = FORMATS[_SMALL_PAIRS[result]]
    step = 4 if layout.bits == 4 else 8
    dtype = unsigned(result)
    if source == "f32":

        def function(a: Bits, b: Bits) -> Bits:
            high, low = _small(as_real(a, "f32"), layout, word), _small(as_real(b, "f32"), layout, word)
            return _pack(high, low, step, dtype)

        return Operation(word.opcode, function, ("f32", "f32"), (result,))
    kind = _HALF_PAIRS[source]

    def from_pair(a: Bits) -> Bits:
        codes = _small(as_real(halves(a), kind), layout, word)
        return _pack(codes[..., 1], codes[..., 0], step, dtype)

    return Operation(word.opcode, from_pair, (source,), (result,))


def _from_small_pair(word: Mnemonic, result: str, source: str) -> Operation | None:
    """To f16x2, and to bf16x2 (sm_120a): exact."""
    if not word.only("rn", "relu") or not word.has("rn"):
        return None
    kind = _SMALL_PAIRS[source]
    step = 4 if kind == "e2m1" else 8

    table = encode(code_values(kind), FORMATS[_HALF_PAIRS[result]])
    if word.has("relu"):
        table = relu_half(table, _HALF_PAIRS[result])
    mask = len(table) - 1

    def function(a: Bits) -> Bits:
        return _pack(table[(a >> a.dtype.type(step)) & mask], table[a & mask], 16, np.uint32)

    return Operation(word.opcode, function, (source,), (result,))


def _to_small_quad(word: Mnemonic, result: str) -> Operation | None:
    """`cvt.rs...e4m3x4.f32 d, {a, b, e, f}, rbits`: a in the upper place; a and b share random bits, as e and f do."""
    if not word.only("rs", "satfinite", "relu") or not (word.has("rs") and word.has("satfinite")):
        return None
    layout = FORMATS[_SMALL_QUADS[result]]
    dtype = unsigned(result)
    step = 4 if layout.bits == 4 else 8

    def function(a: Bits, b: Bits, e: Bits, f: Bits, random: Bits) -> Bits:
        upper, lower = _random_halves(random, layout)
        parts: Sequence[tuple[Bits, Reals]] = ((a, upper), (b, upper), (e, lower), (f, lower))
        packed: Any = dtype(0)
        for bits, fractions in parts:
            packed = packed << dtype(step) | _small(as_real(bits, "f32"), layout, word, fractions).astype(dtype)
        return np.asarray(packed)

    return Operation(word.opcode, function, ("f32",) * 4 + ("b32",), (result,))


def _random_halves(random: Bits, layout: Format) -> tuple[Reals, Reals]:
    """The fractions for the operands a, b and for e, f."""
    low, high = random & np.uint32(0xFFFF), random >> np.uint32(16)
    if layout.bits != 4:
        return high.astype(np.float64) * 2.0**-16, low.astype(np.float64) * 2.0**-16
    upper = (high & np.uint32(0xFF00)) | (low >> np.uint32(8))
    lower = (high & np.uint32(0xFF)) << np.uint32(8) | (low & np.uint32(0xFF))
    return upper.astype(np.float64) * 2.0**-16, lower.astype(np.float64) * 2.0**-16


def _to_scales(word: Mnemonic, source: str) -> Operation | None:
    rounding = word.one_of({"rz", "rp"})
    if not rounding or not word.only("rz", "rp", "satfinite"):
        return None
    finite = word.has("satfinite")
    if source == "f32":

        def function(a: Bits, b: Bits) -> Bits:
            high = encode_ue8m0(as_real(a, "f32"), rounding, finite=finite)
            return _pack(high, encode_ue8m0(as_real(b, "f32"), rounding, finite=finite), 8, np.uint16)

        return Operation(word.opcode, function, ("f32", "f32"), ("ue8m0x2",))

    def from_pair(a: Bits) -> Bits:
        codes = encode_ue8m0(as_real(halves(a), "bf16"), rounding, finite=finite)
        return _pack(codes[..., 1], codes[..., 0], 8, np.uint16)

    return Operation(word.opcode, from_pair, ("bf16x2",), ("ue8m0x2",))


def _from_scales(a: Bits) -> Bits:
    codes = np.ascontiguousarray(a).reshape((*np.shape(a), 1)).view(np.uint8)
    return joined(encode(as_real(codes, "ue8m0"), BF16))


BUILDERS: dict[str, Callable[[Mnemonic], Operation | None]] = {"cvt": cvt}
