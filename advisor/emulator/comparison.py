"""`set`, `setp`, `selp`, `slct`. Imports only its own room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from advisor.emulator.floating import flush_f32, flush_half, is_nan, to_f32
from advisor.emulator.formats import Bits
from advisor.emulator.integer import halves, joined
from advisor.emulator.operation import WIDTH, Mnemonic, Operation, signed, unsigned

_COMPARE: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_OPPOSITE = {"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}  # an unordered test is the negated ordered one
_JOIN: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_FLOATS = ("f16", "bf16", "f32", "f64")
_PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
Compare = Callable[[Bits, Bits], Bits]


def _integers(name: str, kind: str) -> Compare | None:
    if kind.startswith("b"):
        return _COMPARE[name] if name in ("eq", "ne") else None
    if kind.startswith("u"):
        return _COMPARE.get(_UNSIGNED_NAMES.get(name, name))
    ufunc = _COMPARE.get(name)
    if ufunc is None:
        return None
    number = signed(kind)
    return lambda a, b: ufunc(a.view(number), b.view(number))


def _floats(name: str, kind: str, *, flush: bool) -> Compare | None:
    def values(bits: Bits) -> Any:
        if flush:
            bits = flush_f32(bits) if kind == "f32" else flush_half(bits)
        return to_f32(bits, kind) if WIDTH[kind] == 16 else bits.view(np.float32 if kind == "f32" else np.float64)

    if name in ("num", "nan"):
        wanted = name == "nan"
        return lambda a, b: (is_nan(a, kind) | is_nan(b, kind)) == wanted
    if name == "ne":  # IEEE's own `!=` is true for NaN, PTX's ordered one is not
        return lambda a, b: (values(a) < values(b)) | (values(a) > values(b))
    if name == "neu":
        return lambda a, b: np.not_equal(values(a), values(b))
    if name == "equ":
        return lambda a, b: ~((values(a) < values(b)) | (values(a) > values(b)))
    if name in _COMPARE:
        ufunc = _COMPARE[name]
        return lambda a, b: ufunc(values(a), values(b))
    opposite = _COMPARE.get(_OPPOSITE.get(name, ""))
    return None if opposite is None else lambda a, b: ~opposite(values(a), values(b))


def _comparison(word: Mnemonic, kind: str) -> tuple[Compare, str] | None:
    """The comparison on lanes of `kind`, and the operator that joins it with a predicate ("" for none)."""
    rest = [each for each in word.qualifiers if each != "ftz"]
    if not rest or len(rest) > 2 or (len(rest) == 2 and rest[1] not in _JOIN):
        return None
    flush = word.has("ftz")
    if kind in _FLOATS:
        found = None if flush and kind not in ("f32", "f16") else _floats(rest[0], kind, flush=flush)
    else:
        found = None if flush or WIDTH.get(kind, 0) not in (16, 32, 64) else _integers(rest[0], kind)
    return None if found is None else (found, rest[1] if len(rest) == 2 else "")


def setp(word: Mnemonic) -> Operation | None:
    """`setp.lt.s32 p|q, a, b` and `setp.lt.and.s32 p|q, a, b, c`; q joins the opposite of the comparison."""
    if len(word.types) != 1:
        return None
    kind = word.types[0]
    found = _comparison(word, _PACKED.get(kind, kind))
    if found is None:
        return None
    compare, join = found
    sources = (kind, kind, "pred") if join else (kind, kind)
    if kind in _PACKED:
        return Operation(word.opcode, _setp_packed(compare, join), sources, ("pred", "pred"))
    if word.destinations < 2:
        function = compare if not join else _joined_compare(compare, join)
        return Operation(word.opcode, function, sources, ("pred",))
    if not join:

        def both(a: Bits, b: Bits) -> tuple[Bits, Bits]:
            result = compare(a, b)
            return result, ~result

        return Operation(word.opcode, both, sources, ("pred", "pred"))
    ufunc = _JOIN[join]

    def both_joined(a: Bits, b: Bits, c: Bits) -> tuple[Bits, Bits]:
        result = compare(a, b)
        return ufunc(result, c), ufunc(~result, c)

    return Operation(word.opcode, both_joined, sources, ("pred", "pred"))


def _joined_compare(compare: Compare, join: str) -> Callable[..., Bits]:
    ufunc = _JOIN[join]
    return lambda a, b, c: ufunc(compare(a, b), c)


def _setp_packed(compare: Compare, join: str) -> Callable[..., tuple[Bits, Bits]]:
    def function(a: Bits, b: Bits, *more: Bits) -> tuple[Bits, Bits]:
        result = compare(halves(a), halves(b))
        low, high = result[..., 0], result[..., 1]
        if not join:
            return low, high
        return _JOIN[join](low, more[0]), _JOIN[join](high, more[0])

    return function


_ONE: dict[str, int] = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def set_(word: Mnemonic) -> Operation | None:
    """`set.lt.u32.f32 d, a, b`: all ones, or 1.0 for a float destination."""
    if len(word.types) != 2:
        return None
    result, kind = word.types
    lane = _PACKED.get(kind, kind)
    found = _comparison(word, lane)
    out = _PACKED.get(result, result)
    if found is None or out not in ("u16", "s16", "u32", "s32", *_ONE) or (result in _PACKED and result != kind):
        return None
    compare, join = found
    test = _joined_compare(compare, join) if join else compare
    sources = (kind, kind, "pred") if join else (kind, kind)
    narrow = np.uint16 if kind in _PACKED else unsigned(out)
    true = narrow(_ONE[out]) if out in _ONE else narrow(~narrow(0))

    def function(a: Bits, b: Bits, *more: Bits) -> Bits:
        return np.where(test(a, b, *more), true, narrow(0))

    if kind not in _PACKED:
        return Operation(word.opcode, function, sources, (result,))

    def packed(a: Bits, b: Bits, *more: Bits) -> Bits:
        return joined(function(halves(a), halves(b), *[np.asarray(each)[..., None] for each in more]))

    return Operation(word.opcode, packed, sources, (result,))


def selp(word: Mnemonic) -> Operation | None:
    if len(word.types) != 1 or not word.only() or WIDTH[word.types[0]] < 16:
        return None
    kind = word.types[0]
    return Operation(word.opcode, lambda a, b, p: np.where(p, a, b), (kind, kind, "pred"), (kind,))


def slct(word: Mnemonic) -> Operation | None:
    """The first operand where the third is at least 0 (a NaN is not), else the second."""
    if len(word.types) != 2 or word.types[1] not in ("s32", "f32") or not word.only("ftz"):
        return None
    kind, test = word.types
    if word.has("ftz") and test != "f32":
        return None

    def function(a: Bits, b: Bits, c: Bits) -> Bits:
        if test == "s32":
            return np.where(c.view(np.int32) >= 0, a, b)
        return np.where((flush_f32(c) if word.has("ftz") else c).view(np.float32) >= 0, a, b)

    return Operation(word.opcode, function, (kind, kind, test), (kind,))


BUILDERS: dict[str, Callable[[Mnemonic], Operation | None]] = {"set": set_, "setp": setp, "selp": selp, "slct": slct}
