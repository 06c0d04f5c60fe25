"""Formulas of a launch file: what they compute, what they cannot reach, and how a wrong element is named."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator.expected import Comparison, compare, evaluate, expectations, first_bytes, float64_values
from advisor.errors import InputError
from advisor.records.launch import BufferInit, Expected, ResolvedLaunch

A = np.arange(12.0).reshape(3, 4) - 5
B = np.arange(8.0).reshape(2, 4)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A @ B.T", A @ B.T),
        ("np.abs(A) @ abs(B).T", np.abs(A) @ B.T),
        ("-A + 2 * A ** 2 / 4 - 1e-3", -A + 2 * A**2 / 4 - 1e-3),
        ("sum(A, axis=1, keepdims=True)", A.sum(1, keepdims=True)),
        ("exp(A - max(A)) / sum(exp(A - max(A)))", np.exp(A - A.max()) / np.exp(A - A.max()).sum()),
        ("where(A > 0, A, 0)", np.maximum(A, 0)),
        ("sqrt(mean(B ** 2, axis=(0, 1)))", np.sqrt(np.mean(B**2))),
        ("A[1:, ::2]", A[1:, ::2]),
        ("A[:, None, -1]", A[:, None, -1]),
        ("swapaxes(A, 0, 1)", A.T),
        ("A.mT", A.mT),
        ("reshape(A, 4, -1) @ reshape(B, 2, 4)[0, :3].T", A.reshape(4, -1) @ B[0, :3]),
    ],
)
def test_a_formula_is_what_numpy_makes_of_it(text: str, wanted: object) -> None:
    np.testing.assert_array_equal(evaluate(text, {"A": A, "B": B}), wanted)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A +",
        "C",
        "A.shape",
        "A.tofile('x')",
        "().__class__.__bases__",
        "__import__('os')",
        "np.load('x')",
        "np.linalg.norm(A)",
        "open('x')",
        "'text'",
        "[x for x in A]",
        "lambda: 1",
        "A @ B",
        "A[9]",
        "A[A > 0]",
        "sum(A, axis=7)",
        "sum(A, out=B)",
        "sum(A, axis=x)",
        "sum(*A)",
        "swapaxes()",
        "reshape(A, 5, 5)",
        "reshape(A, B)",
        "1 if A else 2",
        "A < B < A",
        "(" * 300 + "A" + ")" * 300,
        "-" * 3000 + "A",
        "A" * 5000,
    ],
)
def test_nothing_else_can_be_written(text: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(text, {"A": A, "B": B})
    assert caught.value.code == "EMU_FORMULA"


def test_a_power_of_whole_numbers_ends_at_once() -> None:
    with np.errstate(all="ignore"):
        assert evaluate("9 ** 9 ** 9 ** 9", {}) == np.inf


def launch_of(buffers: dict[str, BufferInit], *expected: Expected) -> ResolvedLaunch:
    return ResolvedLaunch(
        entry="k",
        target="sm_90",
        grid_blocks=(1, 1, 1),
        block=(1, 1, 1),
        cluster=(1, 1, 1),
        dynamic_smem_bytes=0,
        params=[],
        buffers=buffers,
        expected=list(expected),
    )


def comparison(after: list[float], formula: str, bound: str = "0.1") -> Comparison:
    buffer = BufferInit(shape=[4], dtype="float32")
    launch = launch_of({"y": buffer}, Expected(buffer="y", formula=formula, bound=bound))
    (found,) = expectations(launch, {"y": np.array([1, 2, 3, 4], np.float32)})
    return compare(found, np.array(after, np.float32).view(np.uint8), buffer)


def test_the_names_are_the_buffers_before_the_run() -> None:
    assert comparison([2, 4, 6, 8], "2 * y").passed
    assert not comparison([1, 2, 3, 4], "2 * y").passed


def test_the_element_furthest_beyond_its_bound_is_the_worst() -> None:
    found = comparison([2, 4.5, 6.3, 8], "2 * y", "where(y == 2, 0.45, 0.1)")
    assert (found.wrong, found.worst) == (2, (2,))
    assert str(found).startswith("y = 2 * y: 2 of 4 elements are wrong; worst y[2] is 6.30000019, wanted 6")


def test_an_error_at_the_bound_is_within_it_and_one_beyond_is_not() -> None:
    assert comparison([1.5, 2, 3, 4], "y", "0.5").passed
    assert not comparison([1.5, 2, 3, 4], "y", "0.4999999").passed


def test_nan_and_infinity_pass_only_where_the_formula_has_them() -> None:
    assert comparison([np.inf, 2, 3, 4], "where(y == 1, 1 / (y - y), y)").passed
    nan = comparison([1, np.nan, 3, 40], "y")
    assert (nan.wrong, nan.worst, nan.as_document()["value"]) == (2, (1,), "nan")
    assert not comparison([1, 2, 3, 4], "y + 0 / (y - y)").passed
    assert not comparison([np.inf, 2, 3, 4], "y", "1e30").passed
    assert not comparison([1, 2, 3, 5], "y", "0 / (y - y)").passed, "a bound of NaN bounds nothing"


@pytest.mark.parametrize(
    ("formula", "bound"), [("y @ z", "1"), ("swapaxes(y, 0, 1)", "1"), ("y[:3]", "1"), ("y", "y[:2]"), ("y", "1 / 0")]
)
def test_a_shape_that_does_not_fit_or_an_infinite_bound_is_refused(formula: str, bound: str) -> None:
    with pytest.raises(InputError, match="cannot be evaluated"):
        comparison([1, 2, 3, 4], formula, bound)


def test_values_of_four_bits_are_two_per_byte_low_first() -> None:
    buffer = BufferInit(shape=[2, 1], dtype="float4_e2m1fn_x2")
    values = float64_values(np.array([0x72, 0x9F], np.uint8), buffer)
    assert values.tolist() == [[1.0, 6.0], [-6.0, -0.5]]


def test_first_bytes_are_the_inputs_or_what_the_launch_makes() -> None:
    buffers = {
        name: BufferInit(shape=[4], dtype="float32", init=init)
        for name, init in (("a", "arange"), ("b", "poison"), ("c", "ones"))
    }
    found = first_bytes(launch_of(buffers), {"c": np.full(4, 7, np.float32)})
    values = {name: float64_values(raw, buffers[name]) for name, raw in found.items()}
    assert values["a"].tolist() == [0, 1, 2, 3]
    assert np.isnan(values["b"]).all()
    assert values["c"].tolist() == [7] * 4
