"""What a correct row reduction is: boundary cases, inputs, a float64 reference and the error an element may have.

Imports `storage`, `problem`, `records`, this package's `kernels` and NumPy. Pure: the same case gives
the same bytes. Arrays are flat, in the storage layout of launch.json, padding included; `reference` and `bound` hold
NaN where an element is padding. They take NumPy arrays or torch tensors and answer in kind.

The bound
---------
Beside `u_out |y|` and half a subnormal for the rounding of the result, an element may differ from float64 by

    softmax                r |y|, r = 2^-16 (2^-20 where 24 bits are kept): exp as a power of two of a rounded exponent
    log_softmax, logsumexp 2^-20 (1 + |largest| + |y|)
    layernorm              2^-20 ((|x| + mean of |x|) s |w| + |b|), s = 1 / sqrt(variance + eps)
    rmsnorm                2^-20 (|x| s |w| + |b|), s = 1 / sqrt(mean square + eps)
    sum                    2^-21 sum |x|: trees of sums, a few dozen deep
    max                    nothing

A case with `data="integers"` has integers in [-2, 2]: sums of up to 2^22 of them are exact, and must match bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.row_reduce import kernels
from advisor.kinds.storage import (
    EMULATED_STORED_ELEMENTS,
    MAX_STORED_ELEMENTS,
    UNIT_ROUNDOFF,
    cut_stride,
    numpy_type,
    poisoned,
)
from advisor.problem.base import MAX_EXTENT, TORCH_NAME
from advisor.problem.row_reduce import MAX_COLS, RowReduceProblem
from advisor.records.candidate import Candidate
from advisor.records.case import Case
from advisor.records.launch import Argument, Buffer

HALF_SUBNORMAL = {"bf16": 2.0**-134, "fp16": 2.0**-25, "fp32": 2.0**-149}
MAX_OWN_ELEMENTS = 2**29  # larger problems are checked with fewer rows
EMULATED_ELEMENTS = 2**21  # of a case in the emulator


def arguments(p: RowReduceProblem) -> list[Argument]:
    """Extents, strides in elements, eps; the default of each is the problem's own value."""
    return [
        Argument(name="rows", type="i64", min=0, max=MAX_EXTENT, default=p.rows),
        Argument(name="cols", type="i64", min=0, max=MAX_COLS, default=p.cols),
        Argument(name="row_stride", type="i64", min=1, default=p.row_stride),
        Argument(name="out_stride", type="i64", min=1, default=max(1, p.cols) if p.elementwise else 1),
        Argument(name="eps", type="f32", default=p.eps),
    ]


def buffers(p: RowReduceProblem) -> dict[str, Buffer]:
    """X and Y are flat: the strides say how they fold."""
    found = {
        "X": Buffer(dtype=_torch(p.dtype), shape=["rows * row_stride"], role="in"),
        "Y": Buffer(dtype=_torch(p.out_dtype), shape=["rows * out_stride"], role="out"),
    }
    for name in ("weight", "bias"):
        if getattr(p, name):
            found[name] = Buffer(dtype=_torch(p.dtype), shape=["cols"], role="in")
    return found


def _torch(dtype: str) -> Any:
    return TORCH_NAME[dtype]


MANY_THREADS = 2048  # of a cluster, of which the emulator runs fewer cases
SAID_BY_OTHERS = {
    "rows_fewer",
    "clusters_fewer",
    "clusters_equal",
    "cols_one",
    "cols_vector",
    "cols_vector_more",
    "cols_most",
    "unpadded_integers",
}
"""Cases that say nothing which another one beside them does not say too: of few threads all are run."""


# ---- cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    name: str
    why: str
    rows: int
    cols: int
    pad: int = 16  # bytes that strides are rounded up to, and one such step more; 0: packed
    integers: bool = False
    scheduling: bool = False


def cases(p: RowReduceProblem, c: Candidate, resident_clusters: int, *, small: bool = False) -> list[Case]:
    """The problem's own shape and the boundaries of candidate `c`, which keeps `resident_clusters` resident."""
    side, size = kernels.rows_per_cta(c), c.cluster_size
    elements, threads = kernels.vector_elements(p), kernels.work_of(c).row_threads
    step = elements * threads * size  # columns that all threads of a row take at once
    own_rows, own_cols = p.rows, p.cols
    if small:
        wrapped = (c.stages + 1) * step
        if not kernels.capacity(p, c) and own_cols > 2 * wrapped:  # slots wrap, with the own ragged end
            own_cols = wrapped + own_cols % step
        own_rows = min(own_rows, max(2 * side, min(3, max(1, EMULATED_ELEMENTS // max(1, own_cols)))))
    else:
        own_rows = min(own_rows, max(1, MAX_OWN_ELEMENTS // max(1, own_cols)))
    most = EMULATED_STORED_ELEMENTS if small else MAX_STORED_ELEMENTS
    own = (own_rows, own_cols) == (p.rows, p.cols) and p.rows * p.row_stride <= most
    name, why = ("own_shape", "the problem's own extents") if own else ("own_shape_cut", "the own extents, cut")
    shapes = [_Shape(name, why, own_rows, own_cols, 0, scheduling=True)]
    if p.op in ("sum", "max"):
        shapes.append(_Shape(f"{name}_integers", f"{why}, bit for bit", own_rows, own_cols, 0, True))
    short = min(max(1, own_cols), step + elements + 1)  # columns of cases that are about rows
    resident = max(1, resident_clusters)
    shapes += [
        _Shape("one_row", "a single row", 1, short, integers=True),
        _Shape("rows_fewer", "one row fewer than a CTA computes side by side", max(1, side - 1), short),
        _Shape("clusters_fewer", "fewer rows than clusters", max(1, (resident - 1) * side), short, scheduling=True),
        _Shape("clusters_equal", "a row for each cluster", resident * side, short, integers=True, scheduling=True),
        _Shape("clusters_one_more", "a tail wave of one", resident * side + 1, short, scheduling=True),
        _Shape("clusters_waves", "two waves and one", (2 * resident + 1) * side, short, integers=True, scheduling=True),
        _Shape("cols_one", "a single column", side + 1, 1, integers=True),
        _Shape("cols_below_cluster", "fewer columns than CTAs", side + 1, max(1, size - 1), integers=True),
        _Shape("cols_vector_less", "one column short of a vector for each thread", 2 * side, max(1, step - 1)),
        _Shape("cols_vector", "a vector for each thread", 2 * side, step, integers=True),
        _Shape("cols_vector_more", "one column past a vector for each thread", 2 * side, step + 1, integers=True),
        _Shape("unpadded", "odd columns, packed: no row but the first is aligned", 2 * side + 1, 2 * elements + 1, 0),
        _Shape("unpadded_integers", "the same, bit for bit", 2 * side + 1, step + 3, 0, integers=True),
        _Shape("rows_zero", "no rows: nothing is launched or written", 0, short),
    ]
    capacity = kernels.capacity(p, c)
    if capacity:
        shapes += [
            _Shape("cols_most", "as many columns as the cluster keeps", 2, capacity, scheduling=True),
            _Shape("cols_most_less", "one column less", side + 1, max(1, capacity - 1), integers=True),
        ]
    else:
        shapes.append(
            _Shape(
                "cols_wrap",
                "slots are used over again, with a ragged end",
                2,
                (c.stages + 1) * step + 1,
                scheduling=True,
            )
        )
    if small and size * c.threads > MANY_THREADS:
        shapes = [each for each in shapes if each.name not in SAID_BY_OTHERS]
    if p.op != "max":
        shapes.append(_Shape("cols_zero", "rows without columns", side + 1, 0, integers=True))
    return [_case(p, shape, seed, most) for seed, shape in enumerate(shapes, start=1)]


def own_case(p: RowReduceProblem) -> Case:
    """The problem's own extents and strides, however large, with normal data: what a benchmark times."""
    return _case(p, _Shape("own_shape", "the problem's own extents", p.rows, p.cols, 0), 1)


def _case(p: RowReduceProblem, shape: _Shape, seed: int, most: int | None = None) -> Case:
    """X has at most `most` elements, padding included: where the problem's own stride makes it more, it is cut."""
    own = shape.cols == p.cols and shape.pad == 0
    row_stride = p.row_stride if own else _stride(shape.cols, p.in_bytes, shape.pad)
    if own and most is not None and shape.rows * row_stride > most:
        row_stride = cut_stride(row_stride, max(1, p.cols), p.in_bytes)
    out_stride = 1 if not p.elementwise else max(1, shape.cols) if own else _stride(shape.cols, p.out_bytes, shape.pad)
    values: dict[str, int | float] = {
        "rows": shape.rows,
        "cols": shape.cols,
        "row_stride": row_stride,
        "out_stride": out_stride,
        "eps": p.eps,
    }
    aligned = row_stride * p.in_bytes % 16 == 0 and (not p.elementwise or out_stride * p.out_bytes % 16 == 0)
    return Case(
        name=shape.name,
        why=shape.why,
        arguments=values,
        data="integers" if shape.integers and p.op in ("sum", "max") else "normal",
        seed=seed,
        tma=aligned,
        scheduling=shape.scheduling,
    )


def _stride(cols: int, element_bytes: int, pad: int) -> int:
    step = pad // element_bytes
    return max(1, cols) if pad == 0 else -(-max(1, cols) // step) * step + step


# ---- inputs ----------------------------------------------------------------------------------------------------------


def inputs(p: RowReduceProblem, case: Case) -> dict[str, NDArray[Any]]:
    """Every buffer of the launch file, flat, in its storage type. Padding and outputs hold poison."""
    rows, cols, row_stride, out_stride = extents(case)
    rng = np.random.default_rng(case.seed)
    x = poisoned(TORCH_NAME[p.dtype], rows * row_stride, output=False)
    made = {"X": x, "Y": poisoned(TORCH_NAME[p.out_dtype], rows * out_stride, output=True)}
    view = x.reshape(rows, row_stride)[:, :cols]
    view[...] = _drawn(rng, (rows, cols), case.data).astype(x.dtype)
    for name in ("weight", "bias"):
        if getattr(p, name):
            made[name] = _drawn(rng, (cols,), "normal").astype(x.dtype)
    return made


def extents(case: Case) -> tuple[int, int, int, int]:
    """(rows, cols, row_stride, out_stride)"""
    rows, cols, row_stride, out_stride = (
        int(case.arguments[name]) for name in ("rows", "cols", "row_stride", "out_stride")
    )
    return rows, cols, row_stride, out_stride


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], data: str) -> NDArray[Any]:
    if data == "integers":
        return rng.integers(-2, 3, shape).astype(np.float32)
    return rng.standard_normal(shape, dtype=np.float32)


def storage(dtype: str) -> np.dtype[Any]:
    return numpy_type(TORCH_NAME[dtype])


# ---- reference and bound ---------------------------------------------------------------------------------------------


class _Numpy:
    """The operations that NumPy and torch spell differently."""

    @staticmethod
    def wide(x: Any) -> Any:
        return x.astype(np.float64)

    @staticmethod
    def filled(like: Any, count: int) -> Any:
        return np.full(count, np.nan)

    @staticmethod
    def zeros(like: Any, rows: int) -> Any:
        return np.zeros((rows, 1))

    exp, log, sqrt = np.exp, np.log, np.sqrt

    @staticmethod
    def sum(x: Any) -> Any:
        return x.sum(axis=1, keepdims=True)

    @staticmethod
    def max(x: Any) -> Any:
        return x.max(axis=1, keepdims=True, initial=-np.inf)


class _Torch:
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.exp, self.log, self.sqrt = torch.exp, torch.log, torch.sqrt

    def wide(self, x: Any) -> Any:
        return x.to(self.torch.float64)

    def filled(self, like: Any, count: int) -> Any:
        return self.torch.full((count,), float("nan"), dtype=self.torch.float64, device=like.device)

    def zeros(self, like: Any, rows: int) -> Any:
        return self.torch.zeros((rows, 1), dtype=self.torch.float64, device=like.device)

    def sum(self, x: Any) -> Any:
        return x.sum(1, keepdim=True)

    def max(self, x: Any) -> Any:
        if x.shape[1] == 0:
            return self.torch.full((x.shape[0], 1), float("-inf"), dtype=x.dtype, device=x.device)
        return x.amax(1, keepdim=True)


def _library(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return _Numpy
    import sys

    return _Torch(sys.modules["torch"])


def reference(p: RowReduceProblem, case: Case, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"Y": _result(p, case, given)[0]}


def bound(p: RowReduceProblem, case: Case, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"Y": _result(p, case, given)[1]}


def _result(p: RowReduceProblem, case: Case, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """(reference, bound), flat, NaN at padding. A block of rows at a time: in float64 a large X takes much room."""
    rows, cols, row_stride, out_stride = extents(case)
    x, xp = given["X"], _library(given["X"])
    wanted, allowed = xp.filled(x, rows * out_stride), xp.filled(x, rows * out_stride)
    width = cols if p.elementwise else 1
    if rows == 0 or width == 0:
        return wanted, allowed
    weight, bias = (xp.wide(given[name])[None, :] if getattr(p, name) else None for name in ("weight", "bias"))
    step = max(1, 2**24 // max(1, cols))
    for first in range(0, rows, step):
        last = min(rows, first + step)
        block = xp.wide(x.reshape(rows, row_stride)[first:last, :cols])
        y, extra = _block(p, xp, block, float(np.float32(case.arguments["eps"])), weight, bias)
        wanted.reshape(rows, out_stride)[first:last, :width] = y
        rounding = UNIT_ROUNDOFF[p.out_dtype] * abs(y) + HALF_SUBNORMAL[p.out_dtype]
        allowed.reshape(rows, out_stride)[first:last, :width] = rounding + extra
    return wanted, allowed


def _block(p: RowReduceProblem, xp: Any, x: Any, eps: float, weight: Any, bias: Any) -> tuple[Any, Any]:
    """(y, what it may err by before it is rounded) of some rows."""
    if p.op == "sum":
        return xp.sum(x), 2.0**-21 * xp.sum(abs(x))
    if p.op == "max":
        y = xp.max(x)
        return y, 0.0 * y
    if p.op in ("softmax", "log_softmax", "logsumexp"):
        return _exponential(p, xp, x)
    zero = xp.zeros(x, x.shape[0])
    mean, size = (xp.sum(x) / x.shape[1], xp.sum(abs(x)) / x.shape[1]) if p.op == "layernorm" else (zero, zero)
    scale = 1.0 / xp.sqrt(xp.sum((x - mean) * (x - mean)) / x.shape[1] + eps)
    y, magnitude = (
        (x - mean) * scale,
        (abs(x) + size) * scale,
    )  # a mean errs with what it adds up
    if weight is not None:
        y, magnitude = y * weight, magnitude * abs(weight)
    if bias is not None:
        y, magnitude = y + bias, magnitude + abs(bias)
    return y, 2.0**-20 * magnitude


def _exponential(p: RowReduceProblem, xp: Any, x: Any) -> tuple[Any, Any]:
    if x.shape[1] == 0:
        y = xp.log(xp.zeros(x, x.shape[0])) if not isinstance(x, np.ndarray) else np.full((x.shape[0], 1), -np.inf)
        return y, xp.zeros(x, x.shape[0])
    largest = xp.max(x)
    powers = xp.exp(x - largest)
    total = xp.sum(powers)
    if p.op == "softmax":
        y = powers / total
        return y, (2.0**-20 if p.out_dtype == "fp32" else 2.0**-16) * y + 2.0**-125
    y = (x - largest) - xp.log(total) if p.op == "log_softmax" else largest + xp.log(total)
    return y, 2.0**-20 * (1.0 + abs(largest) + abs(y))
