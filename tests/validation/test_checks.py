"""What is looked at after a launch: each kind of wrong output must be named, and a right one must pass."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from advisor.records.base import canonical_json
from advisor.records.evidence import WorstElement
from advisor.validation.checks import NumpyArrays, compare, traced_once, written_once

XP = NumpyArrays()
POISON = np.array([0xFFE5], np.uint16).view(ml_dtypes.bfloat16)[0]


def outputs() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(got, initial, reference, bound) of 3 rows of 5, the last column of which is padding."""
    reference = np.arange(15, dtype=np.float64).reshape(3, 5)
    reference[:, 4] = np.nan
    bound = np.where(np.isnan(reference), np.nan, 0.01)
    initial = np.full(15, POISON)
    got = np.where(np.isnan(reference), np.float32(0), reference).astype(ml_dtypes.bfloat16).reshape(-1)
    got[np.isnan(reference).reshape(-1)] = POISON
    return got, initial, reference.reshape(-1), bound.reshape(-1)


def result(got: np.ndarray, exact: bool = True) -> Any:
    _, initial, reference, bound = outputs()
    return compare(XP, got, initial, reference, bound, exact=exact)


def test_a_right_output_passes_every_check() -> None:
    found = result(outputs()[0])
    assert found.correct
    assert set(found.checks) == {"within_bound", "fully_overwritten", "padding_untouched", "exact_integers"}
    assert found.detail == ""
    assert found.worst is not None
    assert found.worst.error == 0.0


def test_an_element_outside_its_bound_is_named() -> None:
    got = outputs()[0]
    got[7] = 9.0
    found = result(got, exact=False)
    assert found.checks["within_bound"] is False
    assert found.worst is not None
    assert (found.worst.index, found.worst.got, found.worst.expected, found.worst.bound) == ([7], 9.0, 7.0, 0.01)
    assert "1 elements outside the bound (first at storage index 7)" in found.detail


def test_an_element_that_was_never_written_is_named() -> None:
    got = outputs()[0]
    got[3] = POISON
    found = result(got)
    assert found.checks["fully_overwritten"] is False
    assert found.checks["within_bound"] is False
    assert "never written" in found.detail
    assert found.worst is not None
    assert found.worst.got == "nan"


def test_padding_that_was_written_is_named_even_with_a_nan() -> None:
    got = outputs()[0]
    got[4] = np.float32("nan")
    found = result(got)
    assert found.checks == {
        "within_bound": True,
        "fully_overwritten": True,
        "padding_untouched": False,
        "exact_integers": True,
    }
    assert "padding overwritten" in found.detail


def test_a_nan_or_an_infinity_is_outside_every_bound() -> None:
    for value in ("nan", "inf"):
        got = outputs()[0]
        got[0] = np.float32(value)
        found = result(got, exact=False)
        assert not found.checks["within_bound"]
        assert found.worst is not None
        assert found.worst.index == [0]
        assert isinstance(found.worst.error, str)


@pytest.mark.parametrize("exact", [False, True])
def test_an_infinite_reference_is_met_by_the_same_infinity_alone(exact: bool) -> None:
    """A logsumexp of no columns is -inf, and the bound that arithmetic makes of it is infinite."""
    reference, bound = np.array([-np.inf, 1.0]), np.array([np.inf, 0.01])
    initial = np.full(2, POISON)
    for value, right in (("-inf", True), ("inf", False), ("nan", False), ("-3e38", False)):
        got = np.array([value, 1.0]).astype(np.float32).astype(ml_dtypes.bfloat16)
        found = compare(XP, got, initial, reference, bound, exact=exact)
        assert found.correct is right, value
        assert found.checks["within_bound"] is right, value
        assert found.worst is not None
        assert (found.worst.index, found.worst.expected, found.worst.bound) == ([0], "-inf", "inf")
        assert (found.worst.error, found.ratio) == (0.0, 0.0) if right else (found.ratio > 1.0)
        assert WorstElement.model_validate_json(canonical_json(found.worst)).expected == "-inf"


def test_an_infinite_bound_of_a_number_allows_nothing_else() -> None:
    got, initial = np.array([2.0], ml_dtypes.bfloat16), np.full(1, POISON)
    assert not compare(XP, got, initial, np.array([1.0]), np.array([np.inf]), exact=False).correct


def test_an_integer_within_the_bound_but_not_exact_is_caught() -> None:
    _, initial, reference, _ = outputs()
    bound = np.where(np.isnan(reference), np.nan, 2.0)
    got = outputs()[0]
    got[6] = 7.0
    found = compare(XP, got, initial, reference, bound, exact=True)
    assert found.checks["within_bound"] is True
    assert found.checks["exact_integers"] is False
    assert found.worst is not None
    assert found.worst.index == [6]


def test_the_sign_of_a_zero_is_free() -> None:
    got = outputs()[0]
    got[0] = -0.0
    assert result(got).correct


def test_integers_that_the_type_cannot_hold_are_rounded_once() -> None:
    reference = np.array([257.0, 259.0])  # ties between bf16 neighbours: to even
    got = np.array([256.0, 260.0], ml_dtypes.bfloat16)
    initial = np.full(2, POISON)
    assert compare(XP, got, initial, reference, np.full(2, 2.0), exact=True).correct
    got[1] = 258.0
    assert not compare(XP, got, initial, reference, np.full(2, 2.0), exact=True).correct


def test_an_output_without_elements_is_right_when_nothing_was_touched() -> None:
    initial = np.full(4, POISON)
    nothing = np.full(4, np.nan)
    assert compare(XP, initial.copy(), initial, nothing, nothing, exact=True).correct
    got = initial.copy()
    got[1] = 0.0
    assert not compare(XP, got, initial, nothing, nothing, exact=True).correct


def test_equal_outputs_have_equal_digests_and_others_do_not() -> None:
    got = outputs()[0]
    other = got.copy()
    other[0] = 1.0
    assert result(got).digest == result(got.copy()).digest != result(other).digest


@pytest.mark.parametrize(("counts", "once"), [([1, 1, 1], True), ([1, 0, 1], False), ([1, 2, 1], False), ([], True)])
def test_tracing_tells_tiles_that_ran_never_or_twice(counts: list[int], once: bool) -> None:
    found, words = traced_once(np.array(counts, np.uint32))
    assert found is once
    assert ("tile 1" in words) is not once


def test_every_byte_inside_written_once_and_none_outside() -> None:
    inside = np.array([True, True, False])
    assert written_once(np.array([1, 1, 1, 1, 0, 0]), inside) == (True, "")
    assert written_once(np.zeros(0, np.int32), np.zeros(0, bool)) == (True, "")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([2, 2, 1, 1, 0, 0], "element 0: 2 times"),
        ([1, 1, 0, 1, 0, 0], "element 1: 0 to 1 times"),
        ([1, 1, 1, 1, 0, 1], "element 2: 0 to 1 times"),
        ([0, 0, 1, 1, 0, 0], "element 0: 0 times"),
    ],
)
def test_a_byte_written_twice_never_or_outside_is_named(counts: list[int], words: str) -> None:
    holds, detail = written_once(np.array(counts), np.array([True, True, False]))
    assert not holds
    assert words in detail
    assert detail.startswith("1 elements")
