"""What is true of the portable GEMM kernels: mma.sync and cp.async, one CTA for each output tile.

The single home of their tiles, their shared memory, their registers and their limits: the planner charges what the
launch file asks for. Imports `problem` and `records`.

    shared memory   stages x (A tile, B tile), each tile rows x K step; after the main loop the same bytes hold the
                    accumulators as floats, on their way out
    threads         a warp computes 16 to 64 rows by 16 to 64 columns of the tile
    images          sm_80 serves 8.x (fp8 needs sm_89), sm_90, sm_100 (10.x) and sm_120 (12.x): no architecture-specific
                    instruction, so each runs on every later minor version
    dependent launch  none: sm_80 has no griddepcontrol, so a portable kernel starts when what is before it has ended
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from advisor.kinds.gemm.work import GemmWork
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate, Resources
from advisor.records.launch import Kernel, KernelSpec, Param, PtrParam, ScalarParam
from advisor.records.rows import BarrierRow, Violation

TEMPLATE = "kernels/gemm_portable.cu.j2"
SOURCE = "kernel_portable.cu"
ENTRY = "gemm_portable"
KERNEL_ID = "portable_one_tile"

WARPS: dict[tuple[int, int], tuple[int, int]] = {
    (128, 128): (2, 4),
    (128, 64): (2, 2),
    (64, 128): (2, 2),
    (64, 64): (2, 2),
    (128, 32): (4, 1),
    (32, 128): (1, 4),
    (64, 32): (2, 2),
    (32, 64): (2, 2),
    (128, 16): (4, 1),
    (16, 128): (1, 4),
    (32, 32): (2, 2),
    (16, 64): (1, 4),
}
"""Tile (M, N) -> warps along M and N. A warp's part is a multiple of 16 both ways: an ldmatrix brings 16 rows."""

K_STEP_BYTES = (64, 128)
"""A K step is two or four MMAs deep; shorter, and the barrier between steps shows; longer, and stages get few."""

STAGES = (2, 3, 4)
MAX_SMEM_BYTES = 101_376
"""99 KB: what every GPU from sm_86 to sm_120 gives a block. (8.0, 9.0 and 10.x have more.)"""

ACCUMULATOR_BYTES = 4
MAX_GRID_BLOCKS = 2**31 - 1  # of grid x
REGISTERS_PER_SM = 65_536  # on every target of the family
MAX_REGISTERS = 255

_DEVICE_TYPE = {"bf16": "bf16", "fp16": "fp16", "tf32": "tf32", "e4m3": "e4m3", "e5m2": "e5m2", "fp32": "float"}


@dataclass(frozen=True, slots=True)
class Context:
    """What the template sees: types, layouts and what the epilogue holds. Equal for every variant of a bundle."""

    a_type: str
    b_type: str
    c_type: str
    d_type: str
    a_k_major: bool
    b_k_major: bool
    c_n_major: bool
    d_n_major: bool
    uses_c: bool
    bias: Literal["none", "row", "col"]
    activation: Literal["none", "relu", "gelu", "silu"]
    scale_a: bool
    scale_b: bool
    promote: bool  # fp8 sums leave the tensor core for a float register after every instruction


def images(p: GemmProblem) -> tuple[str, ...]:
    """The targets that a bundle builds."""
    return ("sm_89" if p.is_fp8 else "sm_80", "sm_90", "sm_100", "sm_120")


def candidates(p: GemmProblem) -> list[Candidate]:
    """Every tile with the deepest pipeline of each K step that 99 KB hold, largest tile first."""
    rows = []
    for (tile_m, tile_n), (warps_m, warps_n) in WARPS.items():
        for k_bytes in K_STEP_BYTES:
            stages = min(STAGES[-1], MAX_SMEM_BYTES // ((tile_m + tile_n) * k_bytes))
            rows.append(
                Candidate(
                    family="portable",
                    cluster=(1, 1, 1),
                    schedule="one_tile",
                    tile=(tile_m, tile_n, k_bytes // p.a.element_bytes),
                    stages=stages,
                    threads=32 * warps_m * warps_n,
                    work=GemmWork(),
                )
            )
    return rows


def violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    """Every clause of the family that the candidate breaks."""
    found = [*_shape_violations(c), *_tile_violations(p, c)]
    tile_m, tile_n, _ = c.tile
    blocks = -(-p.m // max(1, tile_m)) * -(-p.n // max(1, tile_n)) * p.batch
    if blocks > MAX_GRID_BLOCKS:
        found.append(
            Violation(
                "PORTABLE_GRID",
                f"{blocks} tiles of {tile_m} x {tile_n} are more than the {MAX_GRID_BLOCKS} blocks of one launch",
                {"blocks": blocks, "limit": MAX_GRID_BLOCKS},
            )
        )
    return found


def _shape_violations(c: Candidate) -> list[Violation]:
    work = c.work
    found = []
    if (
        c.cluster != (1, 1, 1)
        or work.preferred_cluster
        or (work.mma_ctas, work.multicast_a, work.multicast_b) != (1, 1, 1)
    ):
        found.append(
            Violation(
                "PORTABLE_CLUSTER",
                f"a portable kernel runs where there are no clusters, so not as {'x'.join(map(str, c.cluster))}",
                {"cluster": list(c.cluster), "mma_ctas": work.mma_ctas},
            )
        )
    if c.schedule != "one_tile":
        found.append(
            Violation(
                "PORTABLE_SCHEDULE",
                f"a portable kernel computes one tile per CTA; it has no {c.schedule} schedule",
                {"schedule": c.schedule},
            )
        )
    if work.split_k != 1:
        found.append(
            Violation("PORTABLE_SPLIT_K", "a portable kernel does not split K", {"split_k": work.split_k}),
        )
    if work.swap_ab:
        found.append(Violation("PORTABLE_SWAP", "a portable kernel has tiles low in M, so it never swaps operands"))
    return found


def _tile_violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    tile_m, tile_n, tile_k = c.tile
    warps = WARPS.get((tile_m, tile_n))
    if warps is None:
        known = ", ".join(f"{m}x{n}" for m, n in WARPS)
        message = f"there is no portable kernel with a tile of {tile_m} x {tile_n}; there are {known}"
        return [Violation("PORTABLE_TILE", message, {"tile": list(c.tile)})]
    found = []
    threads = 32 * warps[0] * warps[1]
    if c.threads != threads:
        message = (
            f"a tile of {tile_m} x {tile_n} takes {warps[0]} x {warps[1]} warps = {threads} threads, not {c.threads}"
        )
        found.append(Violation("PORTABLE_THREADS", message, {"threads": c.threads, "needed": threads}))
    k_bytes = tile_k * p.a.element_bytes
    if k_bytes not in K_STEP_BYTES:
        options = " or ".join(str(each // p.a.element_bytes) for each in K_STEP_BYTES)
        message = f"a K step of {tile_k} {p.a.dtype} is {k_bytes} bytes; portable kernels step by {options}"
        found.append(Violation("PORTABLE_K_STEP", message, {"tile_k": tile_k, "bytes": k_bytes}))
    if c.stages not in STAGES:
        message = f"{c.stages} stages; portable kernels have {STAGES[0]} to {STAGES[-1]}"
        found.append(Violation("PORTABLE_STAGES", message, {"stages": c.stages}))
    smem = resources(p, c).dynamic_smem_bytes
    if smem > MAX_SMEM_BYTES:
        message = (
            f"{c.stages} stages x ({tile_m} + {tile_n}) rows x {k_bytes} bytes = {smem} bytes of shared memory; "
            f"a block has {MAX_SMEM_BYTES} on every target of the family"
        )
        found.append(Violation("PORTABLE_SMEM", message, {"smem_bytes": smem, "limit": MAX_SMEM_BYTES}))
    return found


def min_ctas(p: GemmProblem, c: Candidate) -> int:
    """CTAs that an SM's registers must hold: the launch bound that caps the registers of a thread.

    The cap leaves 64 registers and more beside the accumulators. Unpacking fp8, gathering a transposed tile, and
    loading a large tile with few threads take more than that, and would spill.
    """
    gathers = p.a.element_bytes != 2 and (p.a.major != "k" or p.b.major != "k")
    roomy = p.is_fp8 or gathers
    warps = c.threads // 32
    warps_per_sm = 12 if roomy else 16
    if c.tile[0] * c.tile[1] // c.threads > 32 and (roomy or warps == 4):
        warps_per_sm -= 4
    return max(1, warps_per_sm // warps)


def resources(p: GemmProblem, c: Candidate) -> Resources:
    """What one CTA occupies. Registers are the cap that the launch bounds set."""
    tile_m, tile_n, tile_k = c.tile
    k_bytes = tile_k * p.a.element_bytes
    parts = [
        (f"stage {stage} {name}", rows * k_bytes)
        for stage in range(c.stages)
        for name, rows in (("A", tile_m), ("B", tile_n))
    ]
    beyond = tile_m * tile_n * ACCUMULATOR_BYTES - sum(size for _, size in parts)
    if beyond > 0:
        parts.append(("accumulators beyond the stages", beyond))
    # The assembler rounds the cap down to the unit that registers are allocated in: 8 per thread.
    registers = min(MAX_REGISTERS, REGISTERS_PER_SM // (c.threads * min_ctas(p, c)) // 8 * 8)
    return Resources(
        threads=c.threads,
        registers=registers,
        static_smem_bytes=0,
        dynamic_smem_bytes=sum(size for _, size in parts),
        tmem_columns=0,
        smem_parts=tuple(parts),
    )


def fitted(p: GemmProblem, c: Candidate) -> Candidate:
    """The candidate: it has no twin that takes more than it does."""
    del p
    return c


def barriers(p: GemmProblem, c: Candidate) -> list[BarrierRow]:
    """One barrier: the CTA's own, once for each K step."""
    return [
        BarrierRow(
            name="k step",
            scope="cta",
            count=1,
            arrivals=c.threads,
            arrivals_from=f"{c.threads} threads of the CTA, after each has awaited its own copies of the step",
            tx_bytes=0,
            phases=f"once for each step of {c.tile[2]} along K",
            failure="a warp would read a tile before it has landed, or one would be overwritten while it is read",
        )
    ]


def kernels(p: GemmProblem, c: Candidate) -> list[KernelSpec]:
    """The one kernel of a candidate, for every target of the family."""
    need = resources(p, c)
    tile_m, tile_n, tile_k = c.tile
    warps_m, warps_n = WARPS[tile_m, tile_n]
    kernel = Kernel(
        id=KERNEL_ID,
        family="portable",
        schedule="one_tile",
        source=SOURCE,
        defines={
            "ADVISOR_TILE_M": tile_m,
            "ADVISOR_TILE_N": tile_n,
            "ADVISOR_TILE_K": tile_k,
            "ADVISOR_STAGES": c.stages,
            "ADVISOR_WARPS_M": warps_m,
            "ADVISOR_WARPS_N": warps_n,
            "ADVISOR_MIN_CTAS": min_ctas(p, c),
            "ADVISOR_RASTER_ALONG_M": int(c.work.raster.order == "along_m"),
            "ADVISOR_RASTER_GROUP": c.work.raster.group,
        },
        entry=ENTRY,
        images={target: f"build/{KERNEL_ID}.{target}.cubin" for target in images(p)},
        block=(c.threads, 1, 1),
        cluster=(1, 1, 1),
        nonportable=False,
        dynamic_smem_bytes=need.dynamic_smem_bytes,
        static_smem_bytes=need.static_smem_bytes,
        registers=need.registers,
        grid_blocks=(f"ceil_div(m, {tile_m}) * ceil_div(n, {tile_n}) * batch", "1", "1"),
        params=_params(p),
        tile=c.tile,
    )
    return [
        KernelSpec(
            kernel=kernel,
            template=TEMPLATE,
            context=asdict(context(p)),
            role="portable",
            traced=_traced(kernel),
            trace_shape=list(kernel.grid_blocks[:1]),
        )
    ]


def _traced(kernel: Kernel) -> Kernel:
    """The twin that also adds 1 to a uint32 for every tile, one for each CTA."""
    return kernel.model_copy(
        update={
            "id": f"{kernel.id}_traced",
            "defines": {**kernel.defines, "ADVISOR_TRACE": 1},
            "params": [*kernel.params, PtrParam(name="trace", buffer="trace")],
        }
    )


def context(p: GemmProblem) -> Context:
    """The template's context for a problem."""
    return Context(
        a_type=_DEVICE_TYPE[p.a.dtype],
        b_type=_DEVICE_TYPE[p.b.dtype],
        c_type=_DEVICE_TYPE[p.c.dtype],
        d_type=_DEVICE_TYPE[p.d.dtype],
        a_k_major=p.a.major == "k",
        b_k_major=p.b.major == "k",
        c_n_major=p.c.major == "n",
        d_n_major=p.d.major == "n",
        uses_c=p.uses_c,
        bias=p.epilogue.bias,
        activation=p.epilogue.activation,
        scale_a=p.scale.a == "tensor",
        scale_b=p.scale.b == "tensor",
        promote=p.is_fp8 and p.accumulate == "precise",
    )


def _params(p: GemmProblem) -> list[Param]:
    """The entry's parameters in order. What the problem does not have is a null pointer or 0."""
    pointers: dict[str, str | None] = {
        "a": "A",
        "b": "B",
        "c": "C" if p.uses_c else None,
        "d": "D",
        "bias": "bias" if p.epilogue.bias != "none" else None,
        "scale_a": "scale_a" if p.scale.a == "tensor" else None,
        "scale_b": "scale_b" if p.scale.b == "tensor" else None,
    }
    leading = {name: f"ld{name}" if name != "c" or p.uses_c else "0" for name in "abcd"}
    strides = {name: f"batch_stride_{name}" if name != "c" or p.uses_c else "0" for name in "abcd"}
    params: list[Param] = [PtrParam(name=name, buffer=buffer) for name, buffer in pointers.items()]
    params += [ScalarParam(kind="u32", name=name, value=name) for name in ("m", "n", "k", "batch")]
    params += [ScalarParam(kind="i64", name=f"ld{name}", value=value) for name, value in leading.items()]
    params += [ScalarParam(kind="i64", name=f"batch_stride_{name}", value=value) for name, value in strides.items()]
    params += [ScalarParam(kind="f32", name=name, value=name) for name in ("alpha", "beta")]
    return params
