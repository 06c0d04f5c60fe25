"""`kind: row_reduce`: defaults, and what is refused with its place and its fix."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from advisor.errors import ProblemError
from advisor.problem import parse_problem, problem_schema
from advisor.problem.row_reduce import RowReduceProblem

GOOD = {"kind": "row_reduce", "op": "softmax", "rows": 4096, "cols": 131072}


def parse(**changes: Any) -> RowReduceProblem:
    lines = [f"{key}: {_text(value)}" for key, value in {**GOOD, **changes}.items() if value is not None]
    problem = parse_problem("\n".join(lines) + "\n", "rows.yaml")
    assert isinstance(problem, RowReduceProblem)
    return problem


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_defaults_are_packed_rows_of_bf16_and_a_result_of_the_same_type() -> None:
    p = parse()
    assert (p.name, p.row_stride, p.dtype, p.out_dtype, p.eps) == ("rows", 131072, "bf16", "bf16", 1e-5)
    assert parse(dtype="fp32").out_dtype == "fp32"
    assert RowReduceProblem.model_validate(p.model_dump(mode="json")) == p


def test_no_rows_and_no_columns_are_valid() -> None:
    assert parse(rows=0).rows == 0
    assert parse(cols=0).row_stride == 1
    assert parse(op="sum", cols=0).cols == 0


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "negative rows": ({"rows": -1}, "PROBLEM_RANGE", "rows"),
    "negative columns": ({"cols": -5}, "PROBLEM_RANGE", "cols"),
    "columns that are no number": ({"cols": ".nan"}, "PROBLEM_TYPE", "cols"),
    "columns in quotes": ({"cols": '"4096"'}, "PROBLEM_TYPE", "cols"),
    "columns beyond the limit": ({"cols": 2**29}, "PROBLEM_RANGE", "cols"),
    "eps that is infinite": ({"eps": ".inf"}, "PROBLEM_TYPE", "eps"),
    "eps that is no number": ({"eps": ".nan"}, "PROBLEM_TYPE", "eps"),
    "eps below zero": ({"eps": -1.0}, "PROBLEM_RANGE", "eps"),
    "an operation that is not one": ({"op": "softmix"}, "PROBLEM_CHOICE", "op"),
    "a type that is not one": ({"dtype": "e4m3"}, "PROBLEM_CHOICE", "dtype"),
    "bf16 to fp16": ({"out_dtype": "fp16"}, "PROBLEM_TYPE_PAIR", "out_dtype"),
    "fp16 to bf16": ({"dtype": "fp16", "out_dtype": "bf16"}, "PROBLEM_TYPE_PAIR", "out_dtype"),
    "rows that overlap": ({"row_stride": 1000}, "PROBLEM_ROW_STRIDE", "row_stride"),
    "rows beyond any memory": ({"rows": 2**31 - 1, "row_stride": 2**30}, "PROBLEM_ABSURD_SIZE", "rows"),
    "eps of a softmax": ({"eps": 1.0e-6}, "PROBLEM_CHOICE", "eps"),
    "pdl": ({"launch": "{pdl: true}"}, "PROBLEM_UNKNOWN_KEY", "launch"),
    "a cluster of 3": ({"overrides": "{cluster: [3, 1, 1]}"}, "PROBLEM_CHOICE", "overrides.cluster"),
    "a cluster of 32": ({"overrides": "{cluster: [32, 1, 1]}"}, "PROBLEM_CHOICE", "overrides.cluster"),
    "a stride beyond 64 bits": ({"row_stride": 2**63}, "PROBLEM_RANGE", "row_stride"),
    "a weight of a softmax": ({"weight": True}, "PROBLEM_CHOICE", "weight"),
    "the largest of nothing": ({"op": "max", "cols": 0}, "PROBLEM_RANGE", "cols"),
    "a key of another kind": ({"m": 5}, "PROBLEM_UNKNOWN_KEY", "m"),
    "a cluster across rows": ({"overrides": "{cluster: [2, 2, 1]}"}, "PROBLEM_CHOICE", "overrides.cluster"),
    "no operation": ({"op": None}, "PROBLEM_MISSING_KEY", "op"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_its_place_and_a_fix(name: str) -> None:
    changes, code, field = BAD[name]
    with pytest.raises(ProblemError) as caught:
        parse(**changes)
    error = caught.value
    assert error.code == code
    assert error.fix
    assert error.where is not None
    assert error.where.path == "rows.yaml"
    assert error.where.field == field


@pytest.mark.parametrize("changes", [{}, {"op": "layernorm", "weight": True, "bias": True, "eps": 0.0}, {"rows": 0}])
def test_the_schema_takes_what_the_loader_takes(changes: dict[str, Any]) -> None:
    parse(**changes)
    jsonschema.validate({**GOOD, **changes}, problem_schema())


@pytest.mark.parametrize("changes", [{"rows": -1}, {"op": "softmix"}, {"m": 5}, {"eps": -1.0}])
def test_the_schema_refuses_what_the_loader_refuses(changes: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**GOOD, **changes}, problem_schema())


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"op": "mean"}, "did you mean sum?"),
        ({"op": "rms_norm"}, "did you mean rmsnorm?"),
        ({"op": "lse"}, "did you mean logsumexp?"),
        ({"dtype": "float64"}, "did you mean fp32?"),
        ({"batch": 4}, "rows counts those of all batches"),
        ({"dim": -1}, "rows and cols say the shape; op runs along the columns"),
        ({"launch": "{pdl: true}"}, "row reductions have no pdl: remove the line"),
        ({"columns": 5}, "did you mean cols?"),
        ({"eps": 1.0e-3}, "remove eps, or write op: rmsnorm"),
    ],
)
def test_the_fix_is_what_was_meant(changes: dict[str, Any], fix: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse(**changes)
    assert caught.value.fix == fix
