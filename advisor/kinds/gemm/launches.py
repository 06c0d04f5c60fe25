"""What the launches of the two TMA families have in common: the MMA's view of the problem, tensor maps, parameters, the
second kernel of a split over scratch memory, traced twins. Imports `problem`, `records` and `tma`.

Names: M, N and K, tiles and operands A and B are those of the MMA. With `swap_ab` the MMA's A is the caller's B and M
runs along the caller's n; `MmaView` is the one place that turns one into the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from advisor.kinds.gemm import tma
from advisor.problem.base import TORCH_NAME
from advisor.problem.gemm import GemmProblem, Matrix
from advisor.records.candidate import Candidate, Family
from advisor.records.launch import (
    Kernel,
    LaunchAttributes,
    Param,
    PtrParam,
    ScalarParam,
    ScratchParam,
    Swizzle,
    TensorMapParam,
    Value,
)

CLUSTER_SLICES = (2, 4, 8)  # K slices of one cluster, summed over DSMEM
MAX_SCRATCH_SLICES = 16
K_BYTES = 128  # one K step of a stage: the width of the swizzle
SMEM_BYTES = 227 * 1024  # the opt-in limit of one CTA, compute capability 9.0 and 10.x
REDUCE_THREADS = 256
REDUCE_REGISTERS = 64  # __launch_bounds__(256, 4)
ELEMENT = {"bf16": "bf16", "fp16": "fp16", "tf32": "tf32", "e4m3": "e4m3", "e5m2": "e5m2", "fp32": "float"}
SWIZZLE_OF_LINE: dict[int, Swizzle] = {128: "128B", 64: "64B", 32: "32B", 16: "none"}  # by bytes of a box line


@dataclass(frozen=True, slots=True)
class MmaView:
    """The problem as the MMA sees it. Strings are the caller's names: expressions of launch.json are made of them."""

    m: str
    n: str
    a: Literal["a", "b"]  # the caller's operand that is the MMA's A
    b: Literal["a", "b"]
    a_k_major: bool
    b_k_major: bool
    c_n_major: bool
    d_n_major: bool
    bias: Literal["none", "row", "col"]


def mma_view(p: GemmProblem, c: Candidate) -> MmaView:
    """The problem in the candidate's coordinates. D^T = B^T A^T: a swap exchanges operands, majors and bias."""
    a_k_major, b_k_major = p.a.major == "k", p.b.major == "k"
    bias = p.epilogue.bias
    if not c.work.swap_ab:
        return MmaView("m", "n", "a", "b", a_k_major, b_k_major, p.c.major == "n", p.d.major == "n", bias)
    flipped: dict[str, Literal["none", "row", "col"]] = {"none": "none", "row": "col", "col": "row"}
    return MmaView("n", "m", "b", "a", b_k_major, a_k_major, p.c.major == "m", p.d.major == "m", flipped[bias])


def operand(p: GemmProblem, name: str) -> Matrix:
    matrix: Matrix = getattr(p, name)
    return matrix


def slices_in_cluster(c: Candidate) -> bool:
    """Whether the K slices of a tile are CTAs of one cluster, summed over DSMEM."""
    return c.cluster[2] > 1


def slices_in_scratch(c: Candidate) -> bool:
    """Whether the K slices of a tile are clusters of their own, summed by a second kernel."""
    return c.work.split_k > 1 and c.cluster[2] == 1


def kernel_id(c: Candidate) -> str:
    x, y, z = c.cluster
    shape = f"_{x}x{y}x{z}" if c.cluster_size > 1 else ""
    if c.work.preferred_cluster is not None:
        shape += "_or_" + "x".join(map(str, c.work.preferred_cluster))
    return f"{c.family}_{c.schedule}{shape}" + (f"_s{c.work.split_k}" if slices_in_scratch(c) else "")


# --- grids -------------------------------------------------------------------------------------------------------


def cluster_tiles(p: GemmProblem, c: Candidate) -> str:
    """Cluster tiles of a launch, as an expression: over M, N, slices that are clusters of their own, and the batch."""
    view = mma_view(p, c)
    m, n = c.cluster_tile
    slices = f" * {c.work.split_k}" if slices_in_scratch(c) else ""
    return f"ceil_div({view.m}, {m}) * ceil_div({view.n}, {n}) * batch{slices}"


def grid_blocks(p: GemmProblem, c: Candidate) -> tuple[Value, Value, Value]:
    """Clusters lie along x: the long axis. A cluster for every tile, or as many as are resident where each walks
    several."""
    x, y, z = c.unit
    tiles = cluster_tiles(p, c)
    if c.schedule in ("one_tile", "clc"):
        return f"{tiles} * {x}", y, z
    # As many CTAs as the budget has SMs, because CTAs spread over SMs before they share one; all that are
    # resident where the budget is the whole GPU.
    budget = f"max(sm_budget // {c.cluster_size}, 1) + sm_budget // num_sms * max_active_clusters"
    clusters = f"min(max_active_clusters, {budget}, {tiles})"
    if c.work.preferred_cluster is not None:  # whole units of work, of as many of the smaller clusters as are resident
        smaller = f"min(max_active_clusters, {budget}) * {c.cluster_size} // {c.unit_size}"
        clusters = f"min(max({smaller}, 1), {tiles})"
    return f"{clusters} * {x}" if x > 1 else clusters, y, z


# --- tensor maps -------------------------------------------------------------------------------------------------


def conditions(p: GemmProblem, names: Iterable[str]) -> list[str]:
    """What the run-time arguments must satisfy beside the device, as expressions for the ladder, for operands that are
    read or written through tensor maps."""
    found = []
    for name in names:
        size = operand(p, name).element_bytes
        found.append(f"aligned('{name.upper()}', {tma.BASE_BYTES})")
        found.append(f"ld{name} * {size} % {tma.STRIDE_BYTES} == 0")
        found.append(f"(batch <= 1 or batch_stride_{name} * {size} % {tma.STRIDE_BYTES} == 0)")
    return found


def line_elements(rows: int, k_major: bool, element_bytes: int) -> int:
    """Elements of one line of an operand's tile in shared memory: 128 bytes of K, or the most of M or N that divide the
    tile's rows and fit 128 bytes."""
    most = K_BYTES // element_bytes
    return most if k_major else math.gcd(rows, most)


def slice_lines(lines: int, receivers: int) -> int:
    """Lines of the slice that each of the CTAs which share a tile loads: whole groups of 8, which the swizzle repeats
    after, so with few lines some CTAs load nothing."""
    return lines // math.gcd(max(1, lines // 8), receivers)


def sharers(p: GemmProblem, c: Candidate) -> tuple[int, int]:
    """CTAs that one load of A reaches, and one of B (or of a pair's half of B).

    The tcgen05 family forms groups in which each CTA has a slice, so few lines make small groups; the wgmma family has
    one group, in which some CTAs may load nothing.
    """
    x, y, _ = c.unit
    if c.family != "sm100":
        return y, x
    view, (tile_m, tile_n, k) = mma_view(p, c), c.tile
    a_lines = tile_m if view.a_k_major else k
    b_lines = tile_n // c.work.mma_ctas if view.b_k_major else k
    return math.gcd(max(1, a_lines // 8), y), math.gcd(max(1, b_lines // 8), max(1, x // c.work.mma_ctas))


def operand_map(
    p: GemmProblem, name: str, source: str, extent: str, rows: int, k_major: bool, receivers: int
) -> TensorMapParam:
    """An operand's tile, cut into the slices that the CTAs which share it load."""
    matrix = operand(p, source)
    size = matrix.element_bytes
    line = line_elements(rows, k_major, size)
    lines = rows if k_major else K_BYTES // size
    inner, outer = ("k", extent) if k_major else (extent, "k")
    return TensorMapParam(
        name=name,
        buffer=source.upper(),
        dtype=TORCH_NAME[matrix.dtype],
        rank=3,
        global_dim=[f"max({inner}, 1)", f"max({outer}, 1)", "max(batch, 1)"],
        global_stride_bytes=_strides(source, size),
        box_dim=[line, slice_lines(lines, receivers), 1],
        element_strides=[1, 1, 1],
        swizzle=SWIZZLE_OF_LINE[line * size] if k_major or size < 4 else "128B_ATOM_32B",  # tcgen05, tf32
    )


def box_map(p: GemmProblem, view: MmaView, source: Literal["c", "d"], rows: int, columns: int) -> TensorMapParam:
    """C or D, in boxes of `rows` by `columns` of the MMA's view."""
    matrix = operand(p, source)
    size = matrix.element_bytes
    n_major = view.c_n_major if source == "c" else view.d_n_major
    inner, outer = (view.n, view.m) if n_major else (view.m, view.n)
    line, lines = (columns, rows) if n_major else (rows, columns)
    return TensorMapParam(
        name=f"map_{source}",
        buffer=source.upper(),
        dtype=TORCH_NAME[matrix.dtype],
        rank=3,
        global_dim=[f"max({inner}, 1)", f"max({outer}, 1)", "max(batch, 1)"],
        global_stride_bytes=_strides(source, size),
        box_dim=[line, lines, 1],
        element_strides=[1, 1, 1],
        swizzle=SWIZZLE_OF_LINE.get(line * size, "none"),
        l2_promotion="none",
    )


def _strides(name: str, size: int) -> list[Value]:
    """Byte strides of rows and batches. With one batch the batch stride is never used, but the encoder checks it."""
    step = tma.STRIDE_BYTES
    return [
        f"ld{name} * {size}",
        f"min(align_up(batch_stride_{name} * {size}, {step}), {tma.MAX_STRIDE_BYTES - step})",
    ]


# --- other parameters --------------------------------------------------------------------------------------------


def matrix_params(name: str) -> list[Param]:
    """A matrix by pointer, leading dimension and batch stride."""
    return [
        PtrParam(name=name, buffer=name.upper()),
        ScalarParam(kind="i64", name=f"ld{name}", value=f"ld{name}"),
        ScalarParam(kind="i64", name=f"batch_stride_{name}", value=f"batch_stride_{name}"),
    ]


def beta_param() -> ScalarParam:
    return ScalarParam(kind="f32", name="beta", value="beta")


def epilogue_params(p: GemmProblem) -> list[Param]:
    """Bias, scales, alpha."""
    params: list[Param] = []
    if p.epilogue.bias != "none":
        params.append(PtrParam(name="bias", buffer="bias"))
    params += [PtrParam(name=f"scale_{x}", buffer=f"scale_{x}") for x in ("a", "b") if getattr(p.scale, x) == "tensor"]
    return [*params, ScalarParam(kind="f32", name="alpha", value="alpha")]


def extent_params(view: MmaView, *, k: bool = True) -> list[Param]:
    """The last parameters of every kernel: m, n, k, batch."""
    values = [("m", view.m), ("n", view.n), *([("k", "k")] if k else []), ("batch", "batch")]
    return [ScalarParam(kind="u32", name=name, value=value) for name, value in values]


def partials_param(p: GemmProblem, c: Candidate) -> ScratchParam:
    """float [batch][slice][outer][inner rounded up to 4], as split_k_reduce.cuh lays it out."""
    view = mma_view(p, c)
    inner, outer = (view.n, view.m) if view.d_n_major else (view.m, view.n)
    return ScratchParam(
        name="partials", bytes=f"batch * {c.work.split_k} * {outer} * align_up({inner}, 4) * 4", align=256, init="none"
    )


# --- kernels beside the main one ---------------------------------------------------------------------------------


def reduce_kernel(p: GemmProblem, c: Candidate, name: str, source: str, entry: str, targets: Iterable[str]) -> Kernel:
    """The second kernel of a split over scratch memory."""
    view = mma_view(p, c)
    inner, outer = (view.n, view.m) if view.d_n_major else (view.m, view.n)
    quads = f"batch * {outer} * ceil_div({inner}, 4)"
    params: list[Param] = [partials_param(p, c), *matrix_params("d")]
    if p.uses_c:
        params += [*matrix_params("c"), beta_param()]
    params += [*epilogue_params(p), *extent_params(view, k=False)]
    family: Family = c.family
    return Kernel(
        id=name,
        family=family,
        schedule=c.schedule,
        source=source,
        defines={"ADVISOR_REDUCE": 1, "ADVISOR_SPLIT_K": c.work.split_k},
        entry=entry,
        images={target: f"build/{name}.{target}.cubin" for target in targets},
        block=(REDUCE_THREADS, 1, 1),
        cluster=(1, 1, 1),
        nonportable=False,
        carveout="default",
        dynamic_smem_bytes=0,
        registers=REDUCE_REGISTERS,
        grid_blocks=(f"min(ceil_div({quads}, {REDUCE_THREADS}), num_sms * 16)", 1, 1),
        attributes=LaunchAttributes(programmatic_stream_serialization=p.launch.pdl),
        params=params,
        tile=c.tile,
        split_k=c.work.split_k,
        swap_ab=c.work.swap_ab,
    )


def traced_kernel(kernel: Kernel, buffer: str = "trace") -> Kernel:
    """The kernel's traced twin: it also adds 1 to a uint32 of `buffer`, [batch][split_k][tiles of M][tiles of N] of one
    CTA, for every tile and slice that it finishes. The caller zeroes the buffer."""
    params: list[Param] = list(kernel.params)
    params.insert(len(params) - 4, PtrParam(name="trace", buffer=buffer))  # before m, n, k, batch
    changes: dict[str, Any] = {
        "id": f"{kernel.id}_traced",
        "defines": {**kernel.defines, "ADVISOR_TRACE": 1},
        "params": params,
    }
    return kernel.model_copy(update=changes)


def trace_shape(p: GemmProblem, c: Candidate) -> list[Value]:
    """Extents of the trace buffer, as expressions over the arguments."""
    view = mma_view(p, c)
    return [
        "batch",
        c.work.split_k,
        f"ceil_div({view.m}, {c.tile[0]})",
        f"ceil_div({view.n}, {c.tile[1]})",
    ]
