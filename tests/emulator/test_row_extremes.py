"""Rows of the largest and smallest numbers, of infinities and NaN, and far from 0: as torch has them and as float64 has
them, each beside a kernel that lacks what makes it so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.emulator.policy import POLICIES
from advisor.kinds.row_reduce import numerics
from advisor.records.candidate import Candidate
from tests.emulator.rows import RowKernel, candidate, own_case, problem
from tests.kinds import torch_rows

NORMS = torch_rows.NORMS
LARGEST = float(np.finfo(np.float32).max)
FORMS = {
    "a part of a warp to a row": candidate(threads=64, row_threads=8, vectors=10, batch=2),
    "a warp to a row": candidate(threads=64, row_threads=32, vectors=3),
    "a CTA to a row": candidate(vectors=2, batch=2),
    "a cluster to a row": candidate(cluster=2, schedule="static", vectors=2, slots=3),
    "read early": candidate(cluster=2, schedule="static", vectors=3, slots=5, early=2, prefetch=3),
    "rows asked ahead": candidate(threads=64, row_threads=32, vectors=3, prefetch=2),
    "streamed": candidate(schedule="static", vectors=0),
    "streamed by a cluster": candidate(cluster=4, vectors=0, batch=2),
    "portable": candidate("portable", vectors=0, batch=2),
    "claimed": candidate("sm100", cluster=2, schedule="clc", vectors=2, slots=3),
}


def misfits(
    op: str,
    dtype: str,
    out_dtype: str,
    c: Candidate,
    *edits: tuple[str, str, str],
    affine: str = "",
    **options: Any,
) -> set[str]:
    """The extreme rows that have another class than torch's somewhere, or err by more than the bound. With weights and
    biases that are extreme too, only the first. `affine`: "", "normal" or "extreme"."""
    rows = torch_rows.extreme_rows(dtype)
    weights = {"weight": bool(affine), "bias": bool(affine) and op == "layernorm"}
    p = problem(op, len(rows), 300, dtype=dtype, out_dtype=out_dtype, row_stride=304, **weights)
    width = 300 if p.elementwise else 1
    case = own_case(p, out_stride=304 if p.elementwise else 1)
    inputs = numerics.inputs(p, case)
    inputs["X"].reshape(len(rows), 304)[:, :300] = np.stack(list(rows.values()))
    if affine == "extreme":
        inputs |= {name: each for name, each in torch_rows.extreme_weights(dtype).items() if weights[name]}
    typed = RowKernel(p, c, edits).run(case, inputs, **options).typed("Y")
    with np.errstate(all="ignore"):
        exact, allowed = (each(p, case, inputs)["Y"] for each in (numerics.reference, numerics.bound))
        exact_classes = torch_rows.classes(exact.astype(typed.dtype))
        found = typed.astype(np.float64)
        near = np.abs(found - exact) <= allowed
    by_row: list[NDArray[Any]] = [
        each.reshape(len(rows), -1)[:, :width] for each in (torch_rows.classes(found), exact_classes, near)
    ]
    question = "affine" if affine == "extreme" else "extreme"
    theirs = torch_rows.recorded()[f"{question}.{op}.{dtype}.{out_dtype}"].reshape(len(rows), width)
    wrong = set()
    for name, row, ours, right, close, wanted in zip(rows, rows.values(), *by_row, theirs, strict=True):
        numbers = row.astype(np.float64)
        if ((wanted != torch_rows.ANY) & (ours != wanted)).any():
            wrong.add(name)
        if affine != "extreme" and np.isfinite(numbers).all() and (op != "sum" or np.abs(numbers).sum() < LARGEST):
            wrong |= {name} if (ours != right).any() or not close[right == torch_rows.FINITE].all() else set()
    return wrong


QUICK = 4  # pairs of types; the others only differ from one of them in what is written
EVERY = [pytest.param(*each, marks=[pytest.mark.slow] if i >= QUICK else []) for i, each in enumerate(torch_rows.PAIRS)]


@pytest.mark.parametrize("op", torch_rows.OPS)
@pytest.mark.parametrize(("dtype", "out_dtype"), EVERY)
def test_extreme_rows_have_torchs_infinities_and_nan_and_float64s_numbers(op: str, dtype: str, out_dtype: str) -> None:
    assert misfits(op, dtype, out_dtype, FORMS["a cluster to a row"]) == set()


def test_what_torch_gives_for_extremes_is_seldom_left_open() -> None:
    """ANY excuses whatever stands there: three rows of a layernorm and of a sum, whose own additions overflow."""
    for name, theirs in torch_rows.recorded().items():
        if name.startswith("extreme."):
            excused = (theirs == torch_rows.ANY).reshape(len(theirs), -1).any(axis=1).sum()
            assert excused <= (3 if name.split(".")[1] in ("layernorm", "sum") else 0), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", NORMS)
def test_every_form_of_a_norm_computes_an_overflowed_row_again(op: str, form: str) -> None:
    c = FORMS[form]
    if c.family == "portable" or c.cluster_size == 4:
        assert misfits(op, "fp32", "bf16", c, affine="normal") == set()
    assert misfits(op, "bf16", "bf16", c, affine="normal") == set()


@pytest.mark.parametrize("op", NORMS)
@pytest.mark.parametrize(("dtype", "out_dtype"), EVERY)
def test_extreme_weights_and_biases_have_torchs_infinities_and_nan(op: str, dtype: str, out_dtype: str) -> None:
    assert misfits(op, dtype, out_dtype, FORMS["a cluster to a row"], affine="extreme") == set()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_second_exchange_of_a_row_is_ordered_under_every_policy(policy: Any) -> None:
    for form in ("a cluster to a row", "read early", "streamed by a cluster"):
        assert misfits("layernorm", "bf16", "fp32", FORMS[form], async_policy=policy, seed=3) == set()


AGAIN = "if (__builtin_expect(kRowThreads < 32 ? __any_sync(0xffffffffu, overflowed) : overflowed, 0)) {"
FAULTS: dict[str, tuple[str, tuple[str, str, str], set[str]]] = {
    "no row is computed again": (
        "a cluster to a row", ("kernel", AGAIN, "if (false) {"), {"all the largest", "one largest of zeros"},
    ),
    "the row beside one that is computed again is taken for one": (
        "a part of a warp to a row", ("kernel", "if (overflowed) whole = scaled;", "whole = scaled;"), {"subnormal"},
    ),
    "what is computed again is not scaled": (
        "a cluster to a row", ("row_op.cuh", "kUnit = 0x1p-80f", "kUnit = 1.0f"), {"one largest of zeros"},
    ),
    "each CTA takes its own first element as the origin": (
        "a cluster to a row", ("kernel", "to_f32(*begin)", "to_f32(begin[rank * run * kCount])"),
        {"ordinary ones, then the largest"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_second_computation_is_seen(name: str) -> None:
    form, edit, rows = FAULTS[name]
    assert rows <= misfits("layernorm", "bf16", "bf16", FORMS[form], edit)


# ---- rows of one number, and far from 0 ------------------------------------------------------------------------------

EQUAL = ("row_op.cuh", "p.b == 0.0f && fabsf(p.a) > 0x1p-40f", "false")


def _of_equal_numbers(dtype: str, form: str, *edits: tuple[str, str, str]) -> NDArray[np.float64]:
    numbers = np.array([1000.0, -30000.0, 0.2998046875, 7.0, 0.0])  # of 11 digits, or 8 of them
    rows = np.repeat(numbers[:, None], 504, axis=1).astype(numerics.storage(dtype)).astype(np.float32)
    return RowKernel(problem("layernorm", *rows.shape, dtype=dtype), FORMS[form], edits).of(rows)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("form", ["a cluster to a row", "streamed"])
def test_a_row_of_one_number_has_no_deviation(dtype: str, form: str) -> None:
    assert not _of_equal_numbers(dtype, form).any()


def test_a_row_of_one_number_would_have_that_of_its_rounding() -> None:
    assert _of_equal_numbers("bf16", "streamed", EQUAL).any()


MEANS = ("row_op.cuh", "kOp == Op::layernorm && (kExact || sizeof(T) == 4);", "false;")


def _worst_far_from_0(out_dtype: str, *edits: tuple[str, str, str]) -> float:
    """The largest error of layernorms of float32 rows about 1e4, in units of what the result's rounding may be."""
    rows = torch_rows.normal_rows(1e4)[:4]
    p = problem("layernorm", *rows.shape, dtype="fp32", out_dtype=out_dtype)
    case = own_case(p)
    exact = numerics.reference(p, case, {**numerics.inputs(p, case), "X": rows.reshape(-1)})["Y"].reshape(rows.shape)
    found = RowKernel(p, candidate(cluster=2, schedule="static", vectors=2, slots=3), edits).of(rows)
    allowed = numerics.UNIT_ROUNDOFF[out_dtype] * np.abs(exact) * 1.001 + 2.0**-24
    return float(np.max(np.abs(found - exact) / allowed))


@pytest.mark.parametrize("out_dtype", ["bf16", "fp16"])
def test_float32_rows_far_from_0_lose_nothing_but_the_rounding_of_the_result(out_dtype: str) -> None:
    assert _worst_far_from_0(out_dtype) <= 1.0


def test_with_one_float_for_the_mean_they_would() -> None:
    assert _worst_far_from_0("fp16", MEANS) > 4.0
