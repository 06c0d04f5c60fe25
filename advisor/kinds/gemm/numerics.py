"""What a correct GEMM is: boundary cases, inputs, a float64 reference and the error that each element may have.

Imports `storage`, `problem`, `records` and NumPy. Pure: the same case gives the same bytes.

Arrays are flat, in the storage layout of the buffers of launch.json, padding included. `reference` and `bound` are
flat as well and hold NaN where an element is padding, so that a caller compares without knowing leading dimensions.
They take NumPy arrays or torch tensors and answer in kind: on a GPU with torch the float64 products run there.

The bound
---------
For y = act(x), x = alpha s_a s_b (A B) + beta C + bias, each output element may differ from the float64 value by

    u_out |y|  +  L (c |alpha s_a s_b| (|A| |B|) + u_epi (|beta C| + |bias| + |alpha s_a s_b A B|)) + u_act |x| + u_min

- `u_out` is the unit roundoff of D's type (round to nearest): 2^-8 bf16, 2^-11 fp16, 2^-24 fp32; `u_min` is half of its
  smallest subnormal.
- `c` bounds the accumulation. A tensor core adds the exact products of one K step (16 x 16-bit, 8 x tf32, 32 x fp8
  elements) to the accumulator after aligning all of them to the largest, and drops the bits below. With t bits kept
  a step errs by at most a few 2^-t of the magnitudes it adds. Over n steps the errors have no common sign, so they grow
  as sqrt(n) and not as n (Higham and Mary's probabilistic analysis); c = 2^-t (2 + 4 sqrt(n)), t = 22 for a float32
  accumulator that truncates (23 bits and one for the alignment).
- fp8 on Hopper and on mma.sync keeps about 14 bits: t = 13. `accumulate: fast` lets all n steps run there;
  `precise` adds partial sums to a float32 register every 4 steps (128 elements), so n = 4 at t = 13 and the float32
  sums of those follow at t = 22.
- split-K adds a few float32 sums, which the constant 2 covers.
- `u_epi` = 2^-22 for the float32 epilogue, and `L` the Lipschitz constant of the activation (gelu 1.13, silu 1.10).
- `u_act` = 2^-20 for gelu and silu, whose erff and expf err by a few units in the last place.

Integers
--------
A case with `data="integers"` draws small integers so that every partial sum is exact in the accumulator, in any
order: K r^2 stays below 2^22 (2^12 where 14 bits are kept) for values in [-r, r]; beyond that, all but so many K
positions of A are zero. Then D must equal the float64 value rounded once, bit for bit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.gemm.interface import arguments as launch_arguments
from advisor.kinds.storage import (
    EMULATED_STORED_ELEMENTS,
    MAX_STORED_ELEMENTS,
    UNIT_ROUNDOFF,
    cut_stride,
    numpy_type,
    poisoned,
)
from advisor.problem.base import TORCH_NAME
from advisor.problem.gemm import GemmProblem, Matrix
from advisor.records.candidate import Candidate, Family
from advisor.records.case import Case

Padding = Literal["own", "cut", "packed", "padded"]

_HALF_SUBNORMAL = {"bf16": 2.0**-134, "fp16": 2.0**-25, "fp32": 2.0**-150}
_LIPSCHITZ = {"none": 1.0, "relu": 1.0, "gelu": 1.13, "silu": 1.10}
_ACTIVATION_ERROR = {"none": 0.0, "relu": 0.0, "gelu": 2.0**-20, "silu": 2.0**-20}
_EPILOGUE_ERROR = 2.0**-22
_PROMOTE_EVERY = 128  # K elements between promotions of a precise fp8 sum

MAX_OWN_FLOPS = 2e13  # larger problems are checked at a reduced size: the reference must stay feasible
MAX_OWN_ELEMENTS = 2**30

# ---- cases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """One case before its strides are known. `m`, `n` and `k` count elements of the problem."""

    name: str
    why: str
    m: int
    n: int
    k: int
    batch: int = 1
    padding: Padding = "padded"
    integers: bool = False
    alpha: float | None = None
    beta: float | None = None
    scheduling: bool = False


def cases(p: GemmProblem, c: Candidate, resident_clusters: int, *, small: bool = False) -> list[Case]:
    """The problem's own shape and the boundaries of candidate `c`, which keeps `resident_clusters` resident.

    `small`, for the emulator: the own shape is cut to two cluster tiles with its ragged ends, and K is as deep as the
    wraps of the pipeline need. Every case gives a value to every argument of the launch file. `tma=False` cases have
    leading dimensions that only the portable kernel serves. Integer cases become normal ones where the activation is
    not exact.
    """
    exact = p.epilogue.activation in ("none", "relu")
    own = _cut_rows(p, c, exact) if small else _own_rows(p, exact)
    rows = [*own, *_residency_rows(c, max(1, resident_clusters), small), *_edge_rows(c, small)]
    return [_case(p, row, seed, exact) for seed, row in enumerate(rows, start=1)]


def own_case(p: GemmProblem) -> Case:
    """The problem's own extents and strides, however large, with normal data: what a benchmark times."""
    why = "the problem's own extents"
    return _case(p, _Row("own_shape", why, p.m, p.n, p.k, p.batch, "own"), seed=1, exact=False)


def _case(p: GemmProblem, row: _Row, seed: int, exact: bool) -> Case:
    values = arguments(p, row.m, row.n, row.k, row.batch, padding=row.padding)
    whole = row.integers and exact
    if whole:
        values["alpha"], beta = 1.0, 2.0
    else:
        values["alpha"] = p.epilogue.alpha if row.alpha is None else row.alpha
        beta = p.epilogue.beta if row.beta is None else row.beta
    values["beta"] = beta if p.uses_c else 0.0
    return Case(
        name=row.name,
        why=row.why,
        arguments=values,
        data="integers" if whole else "normal",
        seed=seed,
        tma=_serves_tma(p, values),
        scheduling=row.scheduling,
    )


def _own_rows(p: GemmProblem, exact: bool) -> list[_Row]:
    extents = [p.m, p.n, p.k, p.batch]
    while 2.0 * math.prod(extents) > MAX_OWN_FLOPS or _elements(*extents) > MAX_OWN_ELEMENTS:
        largest = extents.index(max(extents))
        extents[largest] = (extents[largest] + 1) // 2
    own = extents == [p.m, p.n, p.k, p.batch]
    name = "own_shape" if own else "own_shape_reduced"
    why = "the problem's own extents" + ("" if own else ", halved until a float64 reference is feasible")
    return _shape_rows(p, name, why, extents, own, exact, MAX_STORED_ELEMENTS)


def _shape_rows(
    p: GemmProblem, name: str, why: str, extents: list[int], own: bool, exact: bool, most: int
) -> list[_Row]:
    """The own shape, whole or cut. Its matrices have at most `most` elements, padding included."""
    m, n, k, batch = extents
    padding: Padding = "own" if own else "padded"
    if own and _stored_elements(p) > most:
        name, why, padding = f"{name}_cut", f"{why}, with short strides of the same alignment", "cut"
    rows = [_Row(name, why, m, n, k, batch, padding, scheduling=True)]
    if exact:
        rows.append(_Row(f"{name}_integers", f"{why}, bit for bit", m, n, k, batch, padding, integers=True))
    return rows


def _stored_elements(p: GemmProblem) -> int:
    """Of all matrices, with the problem's own extents and strides."""
    case = own_case(p)
    return sum(storage_elements(p, case, name) for name in matrices(p))


def _cut_rows(p: GemmProblem, c: Candidate, exact: bool) -> list[_Row]:
    """The own shape, each extent cut to a few tiles with what was left over behind the last whole one."""

    def cut(extent: int, tile: int, tiles: int) -> int:
        return extent if extent <= tile * tiles else (tiles - 1) * tile + (extent % tile or tile)

    across_m, across_n = _in_problem(c, *c.cluster_tile)
    k_tile = c.tile[2] * c.work.split_k
    extents = [cut(p.m, across_m, 2), cut(p.n, across_n, 2), cut(p.k, k_tile, c.stages + 1), min(p.batch, 2)]
    own = extents == [p.m, p.n, p.k, p.batch]
    name, why = ("own_shape", "the problem's own extents")
    if not own:
        name, why = "own_shape_cut", "the problem's own extents, cut to a few tiles with their ragged ends"
    return _shape_rows(p, name, why, extents, own, exact, EMULATED_STORED_ELEMENTS)


def _elements(m: int, n: int, k: int, batch: int) -> int:
    return batch * (m * k + n * k + 2 * m * n)


def _residency_rows(c: Candidate, resident: int, small: bool) -> list[_Row]:
    """Cluster counts around what is resident. Slices that are summed by a second kernel are clusters too. Two waves
    wrap the pipeline of a worker; `small` leaves it at that, else it wraps within a tile as well."""
    cluster_m, cluster_n = _in_problem(c, *c.cluster_tile)
    slices = c.work.split_k if c.cluster[2] == 1 else 1
    depth = (c.stages // 2 + 1 if small else c.stages + 1) * c.tile[2] * c.work.split_k
    waves = resident * 2 + 1 if small else resident * 5 // 2 + 1
    rows = []
    for name, why, clusters in (
        ("clusters_fewer", "one cluster fewer than are resident", resident - 1),
        ("clusters_equal", "as many clusters as are resident", resident),
        ("clusters_one_more", "one cluster more than are resident: a tail wave of one", resident + 1),
        ("clusters_waves", f"{'two' if small else 'two and a half'} waves and one: workers wrap between tiles", waves),
    ):
        down, across = _factor(max(1, clusters // slices))
        rows.append(_Row(name, why, down * cluster_m, across * cluster_n, depth, integers=True, scheduling=True))
    return rows


def _edge_rows(c: Candidate, small: bool) -> list[_Row]:
    tm, tn = _in_problem(c, c.tile[0], c.tile[1])
    cm, cn = _in_problem(c, *c.cluster_tile)
    tk = c.tile[2]
    deep = ((3 if small else 6) * c.stages + 1) * tk + tk // 2
    rows = [
        _Row(
            "tile_plus_one", "m and k one past a tile, n one short", 2 * tm + 1, 2 * tn - 1, 3 * tk + 1, scheduling=True
        ),
        _Row("tile_minus_one", "m and k one short, n one past", 2 * tm - 1, tn + 1, 2 * tk - 1, integers=True),
        _Row("unpadded", "odd extents, no padding: no TMA, no vectors", tm + 1, tn + 3, tk + 1, padding="packed"),
        _Row(
            "unpadded_integers",
            "odd extents, no padding, bit for bit",
            tm - 1,
            tn + 1,
            2 * tk - 1,
            padding="packed",
            integers=True,
        ),
        _Row("k_short", "K shorter than one stage", cm, cn + 1, max(1, tk // 2 - 1), integers=True),
        _Row("k_one", "a single K element", tm, tn, 1, integers=True),
        _Row("k_zero", "no K at all: the epilogue alone", tm + 1, tn + 1, 0, integers=True),
        _Row("k_deep", "K of many stages and a ragged end: phases wrap several times", tm, tn, deep),
        _Row("m_one", "a single row", 1, cn + 1, 2 * tk, integers=True),
        _Row("n_one", "a single column", cm + 1, 1, 2 * tk, integers=True),
        _Row(
            "batch_three",
            "three matrices with gaps between",
            cm + 1,
            cn - 1,
            2 * tk + 1,
            3,
            integers=True,
            scheduling=True,
        ),
        _Row("alpha_beta", "scalars other than the problem's", tm + 1, tn + 1, tk, alpha=-1.5, beta=0.75),
        _Row("m_zero", "no rows: nothing is launched or written", 0, tn, tk),
        _Row("n_zero", "no columns: nothing is launched or written", tm, 0, tk),
        _Row("batch_zero", "no matrices: nothing is launched or written", tm, tn, tk, 0),
    ]
    if c.work.split_k > 1:
        uneven = (2 * c.work.split_k + 1) * tk + 1
        rows += [
            _Row("k_one_slice", "one K tile: all slices but one are empty", cm, cn, tk, integers=True),
            _Row(
                "k_uneven_slices",
                "K tiles that the slices do not divide",
                cm,
                cn,
                uneven,
                integers=True,
                scheduling=True,
            ),
        ]
    return rows


def _in_problem(c: Candidate, mma_m: int, mma_n: int) -> tuple[int, int]:
    """(m, n) extents in the problem of extents in MMA coordinates."""
    return (mma_n, mma_m) if c.work.swap_ab else (mma_m, mma_n)


def _factor(count: int) -> tuple[int, int]:
    """Two factors of `count`, as near to each other as they get, the smaller first."""
    small = math.isqrt(count)
    while count % small:
        small -= 1
    return small, count // small


def arguments(
    p: GemmProblem, m: int, n: int, k: int, batch: int, *, padding: Padding = "packed"
) -> dict[str, int | float]:
    """A value for every argument of the launch file.

    `own` takes the problem's strides, `cut` short ones of the same alignment, `packed` the smallest ones; `padded`
    rounds each leading dimension up to 16 bytes, adds another 16, and puts a gap between the matrices of a batch.
    """
    values: dict[str, int | float] = {"m": m, "n": n, "k": k, "batch": batch}
    for name, matrix in matrices(p).items():
        inner, outer = _inner_outer(name, matrix, m, n, k)
        ld, stride = max(1, inner), max(1, inner) * outer
        if padding == "own":
            ld, stride = matrix.ld, matrix.batch_stride
        elif padding == "cut":
            ld = cut_stride(matrix.ld, max(1, inner), matrix.element_bytes)
            stride = cut_stride(matrix.batch_stride, ld * outer, matrix.element_bytes) if matrix.batch_stride else 0
        elif padding == "padded":
            step = 16 // matrix.element_bytes
            ld = -(-max(1, inner) // step) * step + step
            stride = ld * outer + (step if batch > 1 else 0)
        values[f"ld{name}"] = ld
        values[f"batch_stride_{name}"] = stride
    values["alpha"] = p.epilogue.alpha
    values["beta"] = p.epilogue.beta if p.uses_c else 0.0
    return {each.name: values[each.name] for each in launch_arguments(p)}


def matrices(p: GemmProblem) -> dict[str, Matrix]:
    return {"a": p.a, "b": p.b, **({"c": p.c} if p.uses_c else {}), "d": p.d}


def _logical_extents(name: str, m: int, n: int, k: int) -> tuple[int, int]:
    """(rows, columns) of a matrix as the mathematics has it: A m x k, B k x n, C and D m x n."""
    return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[name]


def _inner_outer(name: str, matrix: Matrix, m: int, n: int, k: int) -> tuple[int, int]:
    """(contiguous extent, extent that the leading dimension strides over)."""
    rows, columns = _logical_extents(name, m, n, k)
    return (columns, rows) if _is_row_major(name, matrix) else (rows, columns)


def _is_row_major(name: str, matrix: Matrix) -> bool:
    """Whether the second logical extent is the contiguous one."""
    return matrix.major == {"a": "k", "b": "n", "c": "n", "d": "n"}[name]


def _serves_tma(p: GemmProblem, values: Mapping[str, int | float]) -> bool:
    """Whether A and B can be described by a tensor map; C and D are reached without one where they are not aligned."""
    strides = [
        int(values[key]) * matrix.element_bytes
        for name, matrix in (("a", p.a), ("b", p.b))
        for key in (f"ld{name}", f"batch_stride_{name}")
    ]
    return all(each % 16 == 0 for each in strides) and min(p.a.align_bytes, p.b.align_bytes) >= 16


# ---- inputs --------------------------------------------------------------------------------------------------------


def inputs(p: GemmProblem, case: Case) -> dict[str, NDArray[Any]]:
    """Every buffer of the launch file, flat, in its storage type. Padding and outputs hold poison."""
    values = case.arguments
    m, n, k, batch = (int(values[each]) for each in ("m", "n", "k", "batch"))
    made: dict[str, NDArray[Any]] = {}
    streams = np.random.SeedSequence([case.seed, 0x5EED]).spawn(5)
    generators = {
        name: np.random.Generator(np.random.SFC64(seed))
        for name, seed in zip(("a", "b", "c", "bias", "subset"), streams, strict=True)
    }
    limit = _integer_range(p, k)
    for name, matrix in matrices(p).items():
        flat = poisoned(TORCH_NAME[matrix.dtype], storage_elements(p, case, name), output=name == "d")
        made[name.upper()] = flat
        if name == "d" or 0 in (m, n, batch) or (k == 0 and name in "ab"):
            continue
        view = view_of(flat, name, matrix, values)
        radius = limit.radius if name in "ab" else 8
        for index in range(batch if values[f"batch_stride_{name}"] else 1):
            view[index] = _draw(generators[name], view.shape[1:], case.data, radius, matrix.dtype)
        if name == "a" and case.data == "integers" and limit.positions < k:
            idle = generators["subset"].permutation(k)[limit.positions :]
            view[:, :, idle] = 0
    if p.epilogue.bias != "none":
        extent = n if p.epilogue.bias == "row" else m
        made["bias"] = _draw(generators["bias"], (extent,), case.data, 8, p.d.dtype)
    for name, normal, whole in (("a", 0.75, 0.5), ("b", 1.25, 2.0)):
        if getattr(p.scale, name) == "tensor":
            made[f"scale_{name}"] = np.array([whole if case.data == "integers" else normal], np.float32)
    return made


def storage_elements(p: GemmProblem, case: Case, name: str) -> int:
    """Elements of the flat buffer of matrix `name` (a, b, c, d), as the launch file's shape has it."""
    values = case.arguments
    m, n, k, batch = (int(values[each]) for each in ("m", "n", "k", "batch"))
    _, outer = _inner_outer(name, matrices(p)[name], m, n, k)
    return (max(batch, 1) - 1) * int(values[f"batch_stride_{name}"]) + outer * int(values[f"ld{name}"])


@dataclass(frozen=True)
class _IntegerRange:
    radius: int  # values lie in [-radius, radius]
    positions: int  # K positions of A that are not zero


def _integer_range(p: GemmProblem, k: int) -> _IntegerRange:
    """The widest range whose partial sums are exact in the accumulator, whatever the order of the sum."""
    limit = 2**12 if p.is_fp8 else 2**22
    for radius in (4, 3, 2, 1):
        if k * radius * radius <= limit:
            return _IntegerRange(radius, k)
    return _IntegerRange(1, limit)


def _draw(generator: np.random.Generator, shape: tuple[int, ...], data: str, radius: int, dtype: str) -> NDArray[Any]:
    """Random values in the storage type of `dtype`: normals rounded to it, or integers that it holds exactly."""
    if data == "integers":
        values = generator.integers(-radius, radius, shape, np.int8, endpoint=True).astype(np.float32)
    else:
        values = generator.standard_normal(shape, np.float32)
    return round_to(values, dtype)


def round_to(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """`values` in the storage type of a problem's `dtype`, rounded to nearest even; tf32 has its low 13 bits zero."""
    if dtype == "tf32":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        bits = (bits + 0xFFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)
        return bits.view(np.float32)
    if dtype == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # several times faster than a cast; there are no NaNs here
        return rounded.astype(np.uint16).view(numpy_type("bfloat16"))
    return values.astype(numpy_type(TORCH_NAME[dtype]))


# ---- reference -----------------------------------------------------------------------------------------------------


def reference(p: GemmProblem, case: Case, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{"D": the float64 result of the rounded inputs}, flat, NaN where D has padding. Torch tensors in, torch out."""
    return {"D": _evaluate(p, case, inputs, None)}


def bound(p: GemmProblem, case: Case, inputs: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """{"D": the largest allowed |D - reference| of each element}, flat, NaN where D has padding."""
    return {"D": _evaluate(p, case, inputs, family)}


def accumulation_constant(p: GemmProblem, family: Family, k: int) -> float:
    """`c` of the module's bound for a sum over `k` elements."""
    step = 32 // p.a.element_bytes
    steps = -(-k // step)

    def growth(bits: int, count: int) -> float:
        return float(2.0**-bits * (2 + 4 * math.sqrt(count)))

    if not p.is_fp8 or family == "sm100":
        return growth(22, steps)
    if p.accumulate == "fast":
        return growth(13, steps)
    return growth(13, min(steps, _PROMOTE_EVERY // step)) + growth(22, -(-k // _PROMOTE_EVERY))


def _evaluate(p: GemmProblem, case: Case, inputs: Mapping[str, Any], family: Family | None) -> Any:
    """The reference (`family` None) or the bound, block of rows by block of rows."""
    xp = _namespace(inputs["A"])
    values = case.arguments
    m, n, k, batch = (int(values[each]) for each in ("m", "n", "k", "batch"))
    result = xp.full_nan(inputs["D"])
    if 0 in (m, n, batch):
        return result
    out = view_of(result, "d", p.d, values)
    views = {name: view_of(inputs[name.upper()], name, matrix, values) for name, matrix in matrices(p).items()}
    scale = float(np.float32(values["alpha"]))
    for name in ("a", "b"):
        if getattr(p.scale, name) == "tensor":
            scale *= float(inputs[f"scale_{name}"][0])
    rows_at_once = max(1, min(m, 2**25 // n))
    for index in range(batch):
        b64 = xp.float64(views["b"][index])
        for start in range(0, m, rows_at_once):
            rows = slice(start, min(m, start + rows_at_once))
            a64 = xp.float64(views["a"][index, rows])
            terms = [scale * (a64 @ b64), *_added_terms(p, xp, views, inputs, values, index, rows)]
            x = sum(terms[1:], start=terms[0])
            if family is None:
                out[index, rows] = _activate(xp, p.epilogue.activation, x)
            else:
                size = abs(scale) * (abs(a64) @ abs(b64))
                out[index, rows] = _allowed(p, xp, accumulation_constant(p, family, k) * size, terms, x)
    return result


def _allowed(p: GemmProblem, xp: _Namespace, accumulation: Any, terms: list[Any], x: Any) -> Any:
    """The module's bound for one block of output elements."""
    activation = p.epilogue.activation
    epilogue = _EPILOGUE_ERROR * sum((abs(each) for each in terms[1:]), start=abs(terms[0]))
    before = _LIPSCHITZ[activation] * (accumulation + epilogue) + _ACTIVATION_ERROR[activation] * abs(x)
    rounding = UNIT_ROUNDOFF[p.d.dtype] * abs(_activate(xp, activation, x))
    # The computed value, not the exact one, is rounded: its unit is that of |y| plus what came before.
    return before * (1 + UNIT_ROUNDOFF[p.d.dtype]) + rounding + _HALF_SUBNORMAL[p.d.dtype]


def _added_terms(
    p: GemmProblem,
    xp: _Namespace,
    views: Mapping[str, Any],
    inputs: Mapping[str, Any],
    values: Mapping[str, int | float],
    index: int,
    rows: slice,
) -> list[Any]:
    """beta C and the bias of some rows of one matrix, where the problem has them."""
    terms = []
    if p.uses_c:
        terms.append(float(np.float32(values["beta"])) * xp.float64(views["c"][index, rows]))
    if p.epilogue.bias == "row":
        terms.append(xp.float64(inputs["bias"])[None, :])
    elif p.epilogue.bias == "col":
        terms.append(xp.float64(inputs["bias"])[rows, None])
    return terms


def _activate(xp: _Namespace, activation: str, x: Any) -> Any:
    if activation == "relu":
        return xp.relu(x)
    if activation == "gelu":
        return 0.5 * x * (1.0 + xp.erf(x * math.sqrt(0.5)))
    if activation == "silu":
        return 0.5 * x * (1.0 + xp.tanh(0.5 * x))  # x sigmoid(x), without an exponential that overflows
    return x


def view_of(flat: Any, name: str, matrix: Matrix, values: Mapping[str, int | float]) -> Any:
    """[batch, rows, columns] of a flat buffer, in the order of the mathematics, without a copy."""
    m, n, k, batch = (int(values[each]) for each in ("m", "n", "k", "batch"))
    rows, columns = _logical_extents(name, m, n, k)
    ld, batch_stride = int(values[f"ld{name}"]), int(values[f"batch_stride_{name}"])
    strides = (batch_stride, ld, 1) if _is_row_major(name, matrix) else (batch_stride, 1, ld)
    return _namespace(flat).strided(flat, (batch, rows, columns), strides)


# ---- NumPy and torch -----------------------------------------------------------------------------------------------


class _Namespace(Protocol):
    """The few operations that NumPy arrays and torch tensors spell differently."""

    def float64(self, x: Any) -> Any: ...
    def full_nan(self, like: Any) -> Any: ...
    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any: ...
    def relu(self, x: Any) -> Any: ...
    def tanh(self, x: Any) -> Any: ...
    def erf(self, x: Any) -> Any: ...


class _Numpy:
    def float64(self, x: Any) -> Any:
        return np.asarray(x).astype(np.float64)

    def full_nan(self, like: Any) -> Any:
        return np.full(like.shape, np.nan)

    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        # as_strided goes through a type string that NumPy does not read back for float8_e5m2.
        size = x.dtype.itemsize
        return np.ndarray(shape, x.dtype, x.view(np.uint8), strides=tuple(size * each for each in strides))

    def relu(self, x: Any) -> Any:
        return np.maximum(x, 0.0)

    def tanh(self, x: Any) -> Any:
        return np.tanh(x)

    def erf(self, x: Any) -> Any:
        return erf(x)


class _Torch:
    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def float64(self, x: Any) -> Any:
        return x.to(self._torch.float64)

    def full_nan(self, like: Any) -> Any:
        return self._torch.full(like.shape, math.nan, dtype=self._torch.float64, device=like.device)

    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        return x.as_strided(shape, strides)

    def relu(self, x: Any) -> Any:
        return x.clamp(min=0.0)

    def tanh(self, x: Any) -> Any:
        return self._torch.tanh(x)

    def erf(self, x: Any) -> Any:
        return self._torch.erf(x)


def _namespace(array: Any) -> _Namespace:
    if isinstance(array, np.ndarray):
        return _Numpy()
    return _Torch(sys.modules[type(array).__module__.split(".")[0]])


_ERF_STEP = 1.0 / 1024
_ERF_END = 6.0  # erf(6) is 1 in float64


@lru_cache
def _erf_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes = np.arange(0.0, _ERF_END + 2 * _ERF_STEP, _ERF_STEP)
    return np.array([math.erf(each) for each in nodes]), 2 / math.sqrt(math.pi) * np.exp(-nodes * nodes)


def erf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The error function to 1e-13, which NumPy lacks: cubic Hermite interpolation of math.erf with its derivative."""
    value, slope = _erf_table()
    size = np.minimum(np.abs(x), _ERF_END)
    node = (size / _ERF_STEP).astype(np.int64)
    t = size / _ERF_STEP - node
    left, right = value[node], value[node + 1]
    left_slope, right_slope = slope[node] * _ERF_STEP, slope[node + 1] * _ERF_STEP
    rise = right - left
    curve = 3 * rise - 2 * left_slope - right_slope
    cubic = left_slope + right_slope - 2 * rise
    return np.copysign(left + t * (left_slope + t * (curve + t * cubic)), x)
