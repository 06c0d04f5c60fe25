"""What is looked at after a launch: every element against its bound, exact bits, poison, padding.

Imports `records` and NumPy. Works on NumPy arrays and on torch tensors of a GPU through `Arrays`, so that a large
result never leaves the device. All arrays are flat and in storage order; a reference of NaN marks padding.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.records.evidence import WorstElement

_WORD = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
_DESCRIBED = 3  # offending elements that a message names


class Arrays(Protocol):
    """The operations that NumPy and torch spell differently."""

    def bits(self, x: Any) -> Any: ...
    def float64(self, x: Any) -> Any: ...
    def rounded(self, x: Any, like: Any) -> Any:
        """float64 values that float32 holds exactly, rounded once to the type of `like`."""

    def isnan(self, x: Any) -> Any: ...
    def where(self, condition: Any, yes: Any, no: Any) -> Any: ...
    def count(self, mask: Any) -> int: ...
    def first(self, mask: Any) -> list[int]:
        """The first few indices where `mask` holds."""

    def argmax(self, x: Any) -> int: ...
    def scalar(self, x: Any, index: int) -> float: ...
    def digest(self, x: Any) -> str: ...
    def copy(self, x: Any) -> Any: ...
    def same(self, x: Any, y: Any) -> bool:
        """Whether two arrays have the same bits."""


class NumpyArrays:
    def bits(self, x: Any) -> Any:
        return x.view(_WORD[x.dtype.itemsize])

    def float64(self, x: Any) -> Any:
        return x.astype(np.float64)

    def rounded(self, x: Any, like: Any) -> Any:
        with np.errstate(over="ignore"):  # an integer past the largest fp16 rounds to infinity, as in the kernel
            return x.astype(np.float32).astype(like.dtype)

    def isnan(self, x: Any) -> Any:
        return np.isnan(x)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return np.where(condition, yes, no)

    def count(self, mask: Any) -> int:
        return int(np.count_nonzero(mask))

    def first(self, mask: Any) -> list[int]:
        return [int(each) for each in np.flatnonzero(mask)[:_DESCRIBED]]

    def argmax(self, x: Any) -> int:
        return int(np.argmax(x))

    def scalar(self, x: Any, index: int) -> float:
        return float(x[index])

    def digest(self, x: Any) -> str:
        return hashlib.sha256(np.ascontiguousarray(x).view(np.uint8).data).hexdigest()

    def copy(self, x: Any) -> Any:
        return x.copy()

    def same(self, x: Any, y: Any) -> bool:
        return bool(np.array_equal(self.bits(x), self.bits(y)))


class TorchArrays:
    """Tensors on the GPU. `torch` is passed in: only a process that has it makes one."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def bits(self, x: Any) -> Any:
        return x.view(getattr(self._torch, _WORD[x.element_size()]))

    def float64(self, x: Any) -> Any:
        return x.to(self._torch.float64)

    def rounded(self, x: Any, like: Any) -> Any:
        return x.to(self._torch.float32).to(like.dtype)

    def isnan(self, x: Any) -> Any:
        return self._torch.isnan(x)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return self._torch.where(condition, yes, no)

    def count(self, mask: Any) -> int:
        return int(self._torch.count_nonzero(mask))

    def first(self, mask: Any) -> list[int]:
        return [int(each) for each in self._torch.nonzero(mask)[:_DESCRIBED].flatten().tolist()]

    def argmax(self, x: Any) -> int:
        return int(self._torch.argmax(x))

    def scalar(self, x: Any, index: int) -> float:
        return float(x[index])

    def digest(self, x: Any) -> str:
        return hashlib.sha256(self.bits(x).cpu().numpy().view(np.uint8)).hexdigest()

    def copy(self, x: Any) -> Any:
        return x.clone()

    def same(self, x: Any, y: Any) -> bool:
        return bool(self._torch.equal(self.bits(x), self.bits(y)))


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one output buffer compares. `checks` holds what was looked at; all true means correct."""

    checks: dict[str, bool]
    detail: str
    worst: WorstElement | None
    digest: str
    ratio: float = 0.0  # largest error / bound

    @property
    def correct(self) -> bool:
        return all(self.checks.values())


def compare(xp: Arrays, got: Any, initial: Any, reference: Any, bound: Any, *, exact: bool) -> Comparison:
    """`got` (storage type) against `reference` and `bound` (float64, NaN at padding); `initial` is the poisoned buffer.

    `exact` asks for the reference rounded once, bit for bit; the sign of a zero is free. An infinite reference is met
    by the same infinity alone: an infinite bound, as arithmetic makes one of it, allows nothing else.
    """
    inside = ~xp.isnan(reference)
    got_bits, initial_bits = xp.bits(got), xp.bits(initial)
    touched = ~inside & (got_bits != initial_bits)
    unwritten = inside & (got_bits == initial_bits)
    value = xp.float64(got)
    same = value == reference
    with np.errstate(invalid="ignore"):  # the difference of two infinities
        error = xp.where(same, 0.0, abs(value - reference))
    wrong = inside & ~(same | ((error <= bound) & (bound < math.inf)))  # a NaN is wrong
    checks = {
        "within_bound": xp.count(wrong) == 0,
        "fully_overwritten": xp.count(unwritten) == 0,
        "padding_untouched": xp.count(touched) == 0,
    }
    problems = {"outside the bound": wrong, "never written": unwritten, "padding overwritten": touched}
    if exact:
        expected = xp.rounded(xp.where(inside, reference, 0.0), got)
        expected = xp.where(inside, xp.float64(expected), reference)
        different = inside & (value != expected)
        checks["exact_integers"] = xp.count(different) == 0
        problems["not the exact integer"] = different
    worst, ratio = _worst(xp, inside, value, reference, error, bound, problems)
    return Comparison(checks, describe(xp, problems), worst, xp.digest(got), ratio)


def _worst(
    xp: Arrays, inside: Any, value: Any, reference: Any, error: Any, bound: Any, problems: Mapping[str, Any]
) -> tuple[WorstElement | None, float]:
    """The element that uses most of its bound; one that is no number comes first. Its index counts storage elements."""
    if not inside.any():
        return None, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        share = xp.where(inside, xp.where(error == 0.0, 0.0, error / bound), -1.0)
    outside = problems["outside the bound"]
    share = xp.where(outside & ~(share > 1.0), math.inf, share)  # no number, or of a bound that allows nothing
    index = xp.argmax(share)
    exact = problems.get("not the exact integer")
    if exact is not None and xp.scalar(share, index) <= 1.0 and (where := xp.first(exact)):
        index = where[0]
    got, expected = xp.scalar(value, index), xp.scalar(reference, index)
    worst = WorstElement(
        index=[index],
        got=_finite(got),
        expected=_finite(expected),
        error=_finite(xp.scalar(error, index)),
        bound=_finite(xp.scalar(bound, index)),
    )
    ratio = xp.scalar(share, index)
    return worst, ratio


def _finite(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)


def describe(xp: Arrays, problems: Mapping[str, Any]) -> str:
    """Counts and first places of whatever went wrong; empty where nothing did."""
    parts = []
    for name, mask in problems.items():
        count = xp.count(mask)
        if count:
            places = ", ".join(str(each) for each in xp.first(mask))
            parts.append(f"{count} elements {name} (first at storage index {places})")
    return "; ".join(parts)


def written_once(counts: NDArray[Any], inside: NDArray[np.bool_]) -> tuple[bool, str]:
    """Whether every byte of each element that `inside` names was written exactly once, and no other byte ever.

    `counts` has one number for each byte of the flat buffer, `inside` one truth for each of its elements.
    """
    if not inside.size:
        return True, ""
    each = counts.reshape(inside.size, -1)
    wrong = np.flatnonzero((each != inside[:, None]).any(axis=1))
    if wrong.size == 0:
        return True, ""
    shown = ", ".join(f"element {at}: {_times(each[at])}" for at in wrong[:_DESCRIBED])
    return False, f"{wrong.size} elements not written exactly once ({shown})"


def _times(counts: NDArray[Any]) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low} times" if low == high else f"{low} to {high} times"


def traced_once(counts: NDArray[np.uint32]) -> tuple[bool, str]:
    """Whether every tile and slice was computed exactly once, and which were not."""
    wrong = np.flatnonzero(counts != 1)
    if wrong.size == 0:
        return True, ""
    shown = ", ".join(f"tile {each}: {counts.reshape(-1)[each]} times" for each in wrong[:_DESCRIBED])
    return False, f"{wrong.size} of {counts.size} tiles not computed exactly once ({shown})"
