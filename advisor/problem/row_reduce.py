"""`kind: row_reduce`: an operation over each row of X[rows, cols], as torch defines it.

    softmax log_softmax layernorm rmsnorm   Y[rows, cols] = op(X); the norms times weight[cols], plus bias[cols]
    logsumexp sum max                       Y[rows] = op(X)

The model is the resolved problem, as that of a GEMM is. Extents and strides count elements. Y is packed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from advisor.problem.base import (
    ELEMENT_BYTES,
    MAX_FLOAT32,
    MAX_SPAN_BYTES,
    Assume,
    AtLeastOne,
    Constraints,
    Extent,
    Frozen,
    Name,
    Positive,
    Problem,
    SharedGpu,
    Target,
    Triple,
    broken,
    name_rule,
    written,
)

Op = Literal["softmax", "log_softmax", "layernorm", "rmsnorm", "logsumexp", "sum", "max"]
RowType = Literal["bf16", "fp16", "fp32"]

ELEMENTWISE = ("softmax", "log_softmax", "layernorm", "rmsnorm")
NORMS = ("layernorm", "rmsnorm")
DEFAULT_EPS = 1.0e-5  # as in torch
MAX_COLS = 2**28  # a row's bytes stay in 31 bits
OUT_TYPES: dict[str, tuple[str, ...]] = {
    "bf16": ("bf16", "fp32"),
    "fp16": ("fp16", "fp32"),
    "fp32": ("fp32", "bf16", "fp16"),
}
"""Types that are written of each type that is read. fp16 has no room for bf16's range, bf16 none for fp16's digits."""


class RowOverrides(Frozen):
    """Forced choices; each one absent means the planner decides."""

    kernel: Literal["sm100", "sm90", "portable"] | None = None
    cluster: Triple | None = None  # [CTAs of a row, 1, 1]
    schedule: Literal["one_tile", "static", "clc"] | None = None
    stages: AtLeastOne | None = None  # slots of 16 bytes that a thread has


class RowReduceProblem(Problem):
    """A row reduction, resolved."""

    derived: ClassVar[tuple[str, ...]] = ("row_stride",)
    extents: ClassVar[tuple[str, ...]] = ("rows", "cols")
    other_names: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("launch", "pdl"), "row reductions have no pdl: remove the line"),
        **dict.fromkeys(("axis", "dim", "m", "n", "shape"), "rows and cols say the shape; op runs along the columns"),
        "batch": "rows counts those of all batches",
    }
    other_values: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **dict.fromkeys(("mean", "average", "avg"), ("sum",)),
        **dict.fromkeys(("min", "amax", "argmax"), ("max",)),
        **dict.fromkeys(("lse", "log_sum_exp"), ("logsumexp",)),
    }
    begins: ClassVar[str] = "kind: row_reduce, op:, rows:, cols: and dtype:"

    kind: Literal["row_reduce"]
    name: Name = "row_reduce"
    op: Op
    rows: Extent
    cols: Annotated[int, Field(ge=0, le=MAX_COLS)]
    row_stride: Positive
    dtype: RowType = "bf16"
    out_dtype: RowType
    weight: bool = False
    bias: bool = False
    eps: Annotated[float, Field(ge=0.0, le=MAX_FLOAT32, allow_inf_nan=False)] = DEFAULT_EPS
    target: Target = "auto"
    shared_gpu: SharedGpu = SharedGpu()
    assume: Assume = Assume()
    constraints: Constraints = Constraints()
    overrides: RowOverrides = RowOverrides()

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return fill_row(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _check_rules(self) -> RowReduceProblem:
        for rule in (name_rule, _type_rule, _stride_rule, _affine_rule, _empty_rule, _cluster_rule):
            rule(self)
        return self

    @property
    def elementwise(self) -> bool:
        """Whether there is a result for each element, not for each row."""
        return self.op in ELEMENTWISE

    @property
    def in_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def out_bytes(self) -> int:
        return ELEMENT_BYTES[self.out_dtype]

    @property
    def words(self) -> str:
        out = "" if self.out_dtype == self.dtype else f" to {self.out_dtype}"
        columns = "".join(f", {name}" for name in ("weight", "bias") if getattr(self, name))
        return f"row_reduce {self.op} rows={self.rows} cols={self.cols}, {self.dtype}{out}{columns}"

    @classmethod
    def file_schema(cls) -> dict[str, Any]:
        return written(cls.model_json_schema(), "A row reduction", ("kind", "op", "rows", "cols"), _DESCRIPTIONS)


_DESCRIPTIONS = {
    "kind": "What the problem is. row_reduce: an operation over each row of X[rows, cols].",
    "op": "softmax, log_softmax, layernorm and rmsnorm write a row for a row; logsumexp, sum and max a number.",
    "rows": "Rows of X. 0 is valid: nothing to launch.",
    "cols": "Columns of X. 0 is valid, but for max: sums of nothing.",
    "row_stride": "Elements from one row of X to the next. Default: packed.",
    "dtype": "Type of X, weight and bias.",
    "out_dtype": "Type of Y. Default: that of X.",
    "weight": "layernorm and rmsnorm: a factor for each column.",
    "bias": "layernorm and rmsnorm: a term for each column.",
    "eps": "layernorm and rmsnorm: added to the variance or the mean square.",
}


def fill_row(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with the packed stride and the type of the result. Values of the wrong type are the model's to name."""
    filled = dict(data)
    cols = data.get("cols")
    if isinstance(cols, int) and not isinstance(cols, bool):
        filled.setdefault("row_stride", max(1, cols))
    dtype = data.get("dtype", "bf16")
    filled.setdefault("out_dtype", dtype if dtype in get_args(RowType) else "bf16")
    return filled


def _type_rule(p: RowReduceProblem) -> None:
    allowed = OUT_TYPES[p.dtype]
    if p.out_dtype not in allowed:
        raise broken(
            "PROBLEM_TYPE_PAIR",
            "out_dtype",
            p.out_dtype,
            f"no kernel reads {p.dtype} and writes {p.out_dtype}; of {p.dtype} it writes {' or '.join(allowed)}",
            f"write out_dtype: {allowed[0]}",
        )


def _stride_rule(p: RowReduceProblem) -> None:
    if p.row_stride < p.cols:
        raise broken(
            "PROBLEM_ROW_STRIDE",
            "row_stride",
            p.row_stride,
            f"row_stride counts elements from one row to the next, so it is at least cols = {p.cols}",
            f"write row_stride: {p.cols} or more, or leave it out for packed rows",
            row_stride=p.row_stride,
            cols=p.cols,
        )
    span = p.rows * p.row_stride * p.in_bytes
    if span > MAX_SPAN_BYTES:
        raise broken(
            "PROBLEM_ABSURD_SIZE",
            "rows",
            p.rows,
            f"the rows would span {span / 2**40:.0f} TiB with their stride; the limit is {MAX_SPAN_BYTES // 2**40} TiB",
            "check rows, cols and row_stride: they count elements, not bytes",
            span_bytes=span,
            limit_bytes=MAX_SPAN_BYTES,
        )


def _affine_rule(p: RowReduceProblem) -> None:
    for field in ("weight", "bias"):
        if getattr(p, field) and p.op not in NORMS:
            raise broken(
                "PROBLEM_CHOICE",
                field,
                True,
                f"{field} belongs to {' and '.join(NORMS)}, and op is {p.op}",
                f"remove {field}, or write op: rmsnorm",
            )
    if p.eps != DEFAULT_EPS and p.op not in NORMS:
        raise broken(
            "PROBLEM_CHOICE",
            "eps",
            p.eps,
            f"eps belongs to {' and '.join(NORMS)}, and op is {p.op}",
            "remove eps, or write op: rmsnorm",
        )


def _empty_rule(p: RowReduceProblem) -> None:
    if p.op == "max" and p.cols == 0 and p.rows > 0:
        raise broken(
            "PROBLEM_RANGE",
            "cols",
            0,
            "a row without columns has no largest element; torch refuses it too",
            "write cols: 1 or more",
        )


def _cluster_rule(p: RowReduceProblem) -> None:
    cluster = p.overrides.cluster
    if cluster is not None and (cluster[1:] != (1, 1) or cluster[0] not in (1, 2, 4, 8, 16)):
        raise broken(
            "PROBLEM_CHOICE",
            "overrides.cluster",
            list(cluster),
            "a cluster shares one row along x, so it is [1, 1, 1], [2, 1, 1], [4, 1, 1], [8, 1, 1] or [16, 1, 1]",
            "write overrides: {cluster: [8, 1, 1]}",
        )


PROBLEM = RowReduceProblem
