"""The tcgen05 family (sm_100a, sm_100f, sm_103a): footprint, barriers, limits and kernel specs. Imports `problem`,
`records`, `launches` and `tma`.

One warp loads through TMA, one thread issues the MMAs, four warps take the sums out of tensor memory; with Cluster
Launch Control one warp asks for work, and where C is added one loads it. Everything that the planner charges, the
launch file asks for and the kernel lays out comes from the functions here; the template is
`kernels/gemm_sm100.cu.j2`.

Names: M, N and K, tiles and operands A and B are those of the MMA; `launches.MmaView` turns the caller's into them.

Sources: PTX ISA, tcgen05 (shapes, CTA pairs, tensor memory, descriptors), mbarrier and clusterlaunchcontrol;
cuTensorMapEncodeTiled; the limits are those of the profiles.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from advisor.kinds.gemm import launches, tma
from advisor.kinds.gemm.launches import (
    CLUSTER_SLICES,
    ELEMENT,
    K_BYTES,
    MAX_SCRATCH_SLICES,
    mma_view,
    operand,
    slices_in_cluster,
    slices_in_scratch,
)
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate, Resources, Schedule
from advisor.records.launch import Kernel, KernelSpec, LaunchAttributes, Param
from advisor.records.rows import BarrierRow, Violation

TEMPLATE = "kernels/gemm_sm100.cu.j2"
SOURCE = "kernel_sm100.cu"
TARGETS = ("sm_100a", "sm_103a", "sm_100f")  # 10.0, 10.3, and one image that loads on both
ENTRY = "gemm_sm100"
REDUCE_ENTRY = "gemm_sm100_reduce"

THREADS = 256
REGISTERS = 255  # __launch_bounds__(256, 1): all of an SM; the epilogue warps hold a chunk of the accumulator
TILE_M = (64, 128)  # per CTA; 64 rows alone leave half of the tensor memory lanes idle
TILE_N = (8, 16, 32, 64, 96, 128, 192, 256)
CLUSTER_EXTENTS = (1, 2, 4, 8, 16)
MAX_CLUSTER = 16
MIN_SMALLER_CLUSTER = 2  # beside a preferred one: every SM has a neighbour to share a cluster with
TF32_LINE = 32  # elements of one line of an MN-major operand: the swizzle of 32-byte units has this width alone
MIN_STAGES, MAX_STAGES = 2, 10
SCHEDULES: tuple[Schedule, ...] = ("one_tile", "static", "clc")
TMEM_COLUMNS = 512
TMEM_MIN_COLUMNS = 32
CLC_SLOTS = 3
CLC_RESPONSE_BYTES = 16
EPILOGUE_WARPS = 4
CHUNK_LINE_BYTES = 128  # the most of one line of a chunk of C or D in shared memory: the widest swizzle
BARRIER_BYTES = 8


def tile_k(p: GemmProblem) -> int:
    """K elements of one stage: 128 bytes, the width of the swizzle."""
    return K_BYTES // p.a.element_bytes


# --- tensor memory -----------------------------------------------------------------------------------------------


def folded(c: Candidate) -> bool:
    """Whether the accumulator lies in two halves of the lanes: 64 rows of a pair."""
    return c.work.mma_ctas == 2 and c.tile[0] == 64


def accumulator_columns(c: Candidate) -> int:
    """Tensor memory columns of one accumulator. A pair of 64 rows per CTA folds N over both halves of the lanes."""
    return c.tile[1] // 2 if folded(c) else c.tile[1]


def accumulators(c: Candidate) -> int:
    """Two where the next tile's MMAs can run under this tile's epilogue: persistent, both fit 512 columns, and the ring
    is not taken by the partial sums of slices."""
    persistent = c.schedule != "one_tile" and not slices_in_cluster(c)
    return 2 if persistent and 2 * accumulator_columns(c) <= TMEM_COLUMNS else 1


def tmem_columns(c: Candidate) -> int:
    """The allocation: one, a power of two from 32 up. Above 512 the candidate is illegal."""
    return 1 << (max(TMEM_MIN_COLUMNS, accumulators(c) * accumulator_columns(c)) - 1).bit_length()


# --- footprint ---------------------------------------------------------------------------------------------------


def loads_c_through_tma(p: GemmProblem) -> bool:
    """C of proven alignment comes through TMA and a warp of its own; else the epilogue reads it where it lies."""
    return p.uses_c and p.c.element_bytes in (2, 4) and not tma.operand_violations(p, "c")


def stage_bytes(p: GemmProblem, c: Candidate) -> tuple[int, int]:
    """(A, B) bytes of one stage in one CTA; each CTA of a pair holds half of B's rows."""
    del p
    return c.tile[0] * K_BYTES, c.tile[1] // c.work.mma_ctas * K_BYTES


def warp_rows(c: Candidate) -> int:
    """Rows of one epilogue warp: all of its 32 lanes, or 16 of them."""
    return 16 if c.tile[0] == 64 and not folded(c) else 32


def chunk_columns(p: GemmProblem, c: Candidate) -> int:
    """Columns that an epilogue warp finishes and stores at a time: a line of at most 128 bytes of C and of D; where the
    CTAs of a cluster share the chunks of a tile, few enough (8 at least) that each has some."""
    widest = max(p.d.element_bytes, p.c.element_bytes if loads_c_through_tma(p) else 0)
    columns = math.gcd(accumulator_columns(c), min(64, CHUNK_LINE_BYTES // widest))
    if slices_in_cluster(c):
        while columns > 8 and columns % 16 == 0 and accumulator_columns(c) // columns < c.cluster[2]:
            columns //= 2
    return columns


def partial_bytes(p: GemmProblem, c: Candidate) -> int:
    """What a CTA receives of partial sums, in the ring's memory: every slice of the chunks that it owns."""
    columns, z = chunk_columns(p, c), c.cluster[2]
    turns = -(-(accumulator_columns(c) // columns) // z)
    return turns * z * EPILOGUE_WARPS * warp_rows(c) * columns * 4


def resources(p: GemmProblem, c: Candidate) -> Resources:
    """What one CTA occupies. The parts lie in this order, without gaps: those before the barriers are multiples of 128
    bytes, and each box in them starts on a multiple of its swizzle's period."""
    a_bytes, b_bytes = stage_bytes(p, c)
    boxes = 2 * EPILOGUE_WARPS * warp_rows(c) * chunk_columns(p, c)  # elements: two chunks of each warp
    final = not slices_in_scratch(c)
    clc = c.schedule == "clc"
    parts = (
        ("a", c.stages * a_bytes),
        ("b", c.stages * b_bytes),
        ("store", boxes * p.d.element_bytes if final and tma.store_through_tma(p) else 0),
        ("c", boxes * p.c.element_bytes if final and loads_c_through_tma(p) else 0),
        ("responses", CLC_SLOTS * CLC_RESPONSE_BYTES if clc else 0),
        ("barriers", sum(row.count for row in _mbarriers(p, c)) * BARRIER_BYTES),
        ("tmem", BARRIER_BYTES),  # where the allocation leaves its address
    )
    return Resources(
        threads=c.threads,
        registers=REGISTERS,
        static_smem_bytes=0,
        dynamic_smem_bytes=sum(size for _, size in parts),
        tmem_columns=tmem_columns(c),
        smem_parts=parts,
    )


def stages_that_fit(p: GemmProblem, c: Candidate, smem_bytes: int) -> int:
    """The most stages, at most 10, of a candidate like `c` whose CTA takes `smem_bytes` or less; below 2 none fit."""
    empty = resources(p, replace(c, stages=0)).dynamic_smem_bytes
    stage = sum(stage_bytes(p, c)) + 2 * BARRIER_BYTES
    return max(0, min(MAX_STAGES, (smem_bytes - empty) // stage))


def fitted(p: GemmProblem, c: Candidate) -> Candidate:
    """The candidate, with fewer stages where its own do not fit one CTA."""
    most = stages_that_fit(p, c, launches.SMEM_BYTES)
    return replace(c, stages=min(c.stages, max(most, MIN_STAGES)))


# --- barriers ----------------------------------------------------------------------------------------------------


def barriers(p: GemmProblem, c: Candidate) -> list[BarrierRow]:
    """Every barrier of the kernel, with the arithmetic of its counts."""
    return _mbarriers(p, c) + _cluster_rows(c)


def _mbarriers(p: GemmProblem, c: Candidate) -> list[BarrierRow]:
    """The mbarrier arrays of one CTA, in address order."""
    pair = c.work.mma_ctas == 2
    scope = "pair" if pair else "cta"
    a_bytes, b_bytes = stage_bytes(p, c)
    of_a, of_b = launches.sharers(p, c)
    depth = accumulators(c)
    smaller = "; {} in the smaller clusters" if c.work.preferred_cluster is not None else ""
    rows = [
        BarrierRow(
            name="full",
            scope="cluster" if of_a * of_b > 1 else scope,
            count=c.stages,
            arrivals=1,
            arrivals_from="the load warp of the CTA that issues the MMAs, with expect_tx",
            tx_bytes=c.work.mma_ctas * (a_bytes + b_bytes),
            phases=f"once a K block: operands have landed, {c.work.mma_ctas} CTA x (A {a_bytes} + B {b_bytes}) bytes"
            + ("; both CTAs' loads count on the even one's" if pair else ""),
            failure="too many bytes: the MMA waits for ever; too few: it reads what has not landed",
        ),
        BarrierRow(
            name="empty",
            scope="cluster" if c.unit_size > 1 else "cta",
            count=c.stages,
            arrivals=of_a + of_b - 1,
            arrivals_from=f"tcgen05.commit of every CTA whose MMAs read what this one's loads write: {of_a} along y + "
            f"{of_b} along x - 1" + smaller.format(sum(launches.sharers(p, c.in_smaller_clusters)) - 1),
            tx_bytes=0,
            phases="once a K block: all of those MMAs have read the stage",
            failure="too low: a copy overwrites a stage that an MMA still reads; too high: the loads stop",
        ),
        BarrierRow(
            name="accumulator_full",
            scope=scope,
            count=depth,
            arrivals=1,
            arrivals_from="one tcgen05.commit" + (", multicast to both CTAs: mask 3 << (rank & ~1)" if pair else ""),
            tx_bytes=0,
            phases="once a tile: its sums are complete",
            failure="the epilogue reads columns that an MMA still writes",
        ),
        BarrierRow(
            name="accumulator_empty",
            scope=scope,
            count=depth,
            arrivals=EPILOGUE_WARPS * c.work.mma_ctas,
            arrivals_from=f"{EPILOGUE_WARPS} epilogue warps x {c.work.mma_ctas} CTA"
            + (", at the even one" if pair else ""),
            tx_bytes=0,
            phases="once a tile: every epilogue warp has taken its lanes",
            failure="the next tile's MMAs overwrite sums that are being read",
        ),
    ]
    if loads_c_through_tma(p) and not slices_in_scratch(c):
        rows += _c_rows(p, c)
    return rows + (_clc_rows(p, c) if c.schedule == "clc" else [])


def _c_rows(p: GemmProblem, c: Candidate) -> list[BarrierRow]:
    box = warp_rows(c) * chunk_columns(p, c) * p.c.element_bytes
    return [
        BarrierRow(
            name="c_full",
            scope="cta",
            count=2,
            arrivals=1,
            arrivals_from="the warp that loads C, with expect_tx",
            tx_bytes=EPILOGUE_WARPS * box,
            phases=f"once a chunk: C has landed, {EPILOGUE_WARPS} boxes x {box} bytes",
            failure="the epilogue adds what has not landed",
        ),
        BarrierRow(
            name="c_empty",
            scope="cta",
            count=2,
            arrivals=EPILOGUE_WARPS,
            arrivals_from=f"{EPILOGUE_WARPS} epilogue warps",
            tx_bytes=0,
            phases="once a chunk: every epilogue warp has read its box",
            failure="the next chunk of C overwrites one that is being read",
        ),
    ]


def _clc_rows(p: GemmProblem, c: Candidate) -> list[BarrierRow]:
    readers = EPILOGUE_WARPS + 3 + loads_c_through_tma(p)
    scope = "cluster" if c.cluster_size > 1 else "cta"
    return [
        BarrierRow(
            name="clc_full",
            scope=scope,
            count=CLC_SLOTS,
            arrivals=1,
            arrivals_from="each CTA's own scheduler warp, with expect_tx",
            tx_bytes=CLC_RESPONSE_BYTES,
            phases="once a request: its response has landed, in every CTA",
            failure="a CTA that is not armed loses the response and waits for ever",
        ),
        BarrierRow(
            name="clc_empty",
            scope=scope,
            count=CLC_SLOTS,
            arrivals=readers * c.cluster_size,
            arrivals_from=f"{readers} reading warps x {c.cluster_size} CTA, at CTA 0",
            tx_bytes=0,
            phases="once a response: every reading warp of every CTA has read it and passed the proxy fence",
            failure="a slow warp reads the next response: warps disagree on the tile",
        ),
        BarrierRow(
            name="clc_throttle",
            scope="cta",
            count=1,
            arrivals=1,
            arrivals_from="the load warp of CTA 0, as it begins a tile",
            tx_bytes=0,
            phases="once a tile: the next one may be asked for",
            failure="a cluster hoards tiles that idle ones could run, or asks after a failure",
        ),
    ]


def _cluster_rows(c: Candidate) -> list[BarrierRow]:
    """barrier.cluster: every thread of every CTA arrives."""
    size, pair = c.unit_size, c.work.mma_ctas == 2
    if size == 1:
        return []
    when = {"start": (1, "once, before the first remote access" + (" and the pair's tensor memory allocation" * pair))}
    if slices_in_cluster(c):
        text = "three times a tile: every ring is idle; all partial sums have arrived; all of them are read"
        when["partials"] = (3, text)
    if pair:
        when["tmem_release"] = (1, "once, before the pair's tensor memory is released")
    when["exit"] = (1, "once, before every thread's exit")
    return [
        BarrierRow(
            name=name,
            scope="cluster",
            count=count,
            arrivals=c.threads * size,
            arrivals_from=f"{c.threads} threads x {size} CTAs (barrier.cluster)"
            + (f"; x {c.cluster_size} in the smaller clusters" if c.work.preferred_cluster is not None else ""),
            tx_bytes=0,
            phases=phases,
            failure="memory of a CTA is used before it runs or after it has gone",
        )
        for name, (count, phases) in when.items()
    ]


# --- what the family cannot do -----------------------------------------------------------------------------------


def violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    """Every clause of this family that the candidate breaks. What depends on a device (SMEM, TMEM, residency, the limit
    of the cluster size) is the planner's."""
    return [
        *tma.input_violations(p),
        *_shape_violations(p, c),
        *_cluster_violations(c),
        *_split_violations(p, c),
        *_major_violations(p, c),
    ]


def _shape_violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    found = []
    tile_m, tile_n, k = c.tile
    pair = c.work.mma_ctas == 2
    step = 16 if pair else 8
    if tile_m not in TILE_M or tile_n not in range(step, 257, step):
        found.append(
            Violation(
                "MMA_SHAPE",
                "tcgen05.mma takes M 64 or 128 per CTA, and N 8 to 256 in steps of 8 for one CTA, 16 to 256 in steps "
                f"of 16 for a pair (mma_ctas: 2); the tile is {tile_m} x {tile_n} for {'a pair' if pair else 'one'}",
                {"tile": list(c.tile), "mma_ctas": c.work.mma_ctas},
            )
        )
    if k != tile_k(p):
        found.append(
            Violation(
                "TILE_K",
                f"one stage is {K_BYTES} bytes of K: {tile_k(p)} elements, not {k}",
                {"tile_k": k, "needed": tile_k(p)},
            )
        )
    if c.schedule == "ticket":
        found.append(
            Violation(
                "SCHEDULE_NOT_BUILT",
                "the tcgen05 family claims work through CLC, not a ticket",
                {"schedule": c.schedule},
            )
        )
    if not MIN_STAGES <= c.stages <= MAX_STAGES:
        found.append(
            Violation(
                "STAGES_RANGE",
                f"{c.stages} stages; {MIN_STAGES} to {MAX_STAGES} are built",
                {"stages": c.stages, "max": MAX_STAGES},
            )
        )
    return found


def _cluster_violations(c: Candidate) -> list[Violation]:
    found = []
    if c.work.mma_ctas == 2 and c.cluster[0] % 2:
        found.append(
            Violation(
                "PAIR_IN_CLUSTER",
                f"a CTA pair is ranks 2k and 2k+1 along cluster x, so x must be even; it is {c.cluster[0]}",
                {"cluster": list(c.cluster), "mma_ctas": 2},
            )
        )
    if c.work.preferred_cluster is not None:
        found += _preferred_violations(c, c.work.preferred_cluster)
    x, y, z = c.unit
    if x not in CLUSTER_EXTENTS or y not in CLUSTER_EXTENTS or c.unit_size > MAX_CLUSTER:
        found.append(
            Violation(
                "CLUSTER_SHAPE",
                f"cluster {x}x{y}x{z}: x and y are {_either(CLUSTER_EXTENTS)} and their product with z at most "
                f"{MAX_CLUSTER}",
                {"cluster": [x, y, z], "max": MAX_CLUSTER},
            )
        )
    if (c.work.multicast_a, c.work.multicast_b) != (y, x):
        found.append(
            Violation(
                "MULTICAST_SHAPE",
                f"multicast of A to {c.work.multicast_a} and of B to {c.work.multicast_b} CTAs: in a cluster of "
                f"{x}x{y}x{z} one load of A serves the {y} along y, one of B the {x} along x",
                {"multicast_a": c.work.multicast_a, "multicast_b": c.work.multicast_b, "cluster": [x, y, z]},
            )
        )
    return found


def _preferred_violations(c: Candidate, preferred: tuple[int, int, int]) -> list[Violation]:
    """Clauses of a launch that mixes two cluster sizes. The shape is the driver's rule (driver_types.h,
    cudaLaunchAttributePreferredClusterDimension); the others are what this kernel needs of it."""
    found = []
    numbers: dict[str, object] = {"cluster": list(c.cluster), "preferred_cluster": list(preferred)}
    whole = all(want % side == 0 for want, side in zip(preferred, c.cluster, strict=True))
    if not whole or preferred == c.cluster or preferred[2] != c.cluster[2] or c.cluster_size < MIN_SMALLER_CLUSTER:
        found.append(
            Violation(
                "PREFERRED_CLUSTER_SHAPE",
                f"a preferred cluster of {_by(preferred)} with a cluster of {_by(c.cluster)}: it is larger, a multiple "
                f"in x and y, and equal in z; the smaller one has {MIN_SMALLER_CLUSTER} CTAs at least",
                numbers,
            )
        )
    if c.cluster[2] > 1:
        found.append(
            Violation(
                "PREFERRED_CLUSTER_SLICES",
                f"{c.cluster[2]} slices of K meet in the cluster: they are summed in clusters of one size",
                numbers,
            )
        )
    if c.schedule == "clc":
        found.append(
            Violation(
                "PREFERRED_CLUSTER_CLC",
                "no document says of which size the cluster is that a request takes over in a launch that mixes two: "
                "one tile per cluster or static",
                {**numbers, "schedule": c.schedule},
            )
        )
    return found


def _by(triple: tuple[int, int, int]) -> str:
    return "x".join(map(str, triple))


def _split_violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    found = []
    split, z = c.work.split_k, c.cluster[2]
    legal = split == z if z > 1 else 1 <= split <= MAX_SCRATCH_SLICES
    if not legal or (z > 1 and z not in CLUSTER_SLICES):
        found.append(
            Violation(
                "SPLIT_K_SHAPE",
                f"{split} slices of K with a cluster z of {z}: either z is 1 and the slices are 1 to "
                f"{MAX_SCRATCH_SLICES}, or both are {_either(CLUSTER_SLICES)}",
                {"split_k": split, "cluster_z": z},
            )
        )
    if split > 1 and c.schedule == "clc":
        found.append(
            Violation(
                "SPLIT_K_SCHEDULE",
                "split-K runs one tile per cluster or static persistent: its slices cost the same, there is no skew to "
                "even out",
                {"split_k": split, "schedule": c.schedule},
            )
        )
    ring = c.stages * sum(stage_bytes(p, c))
    if slices_in_cluster(c) and partial_bytes(p, c) > ring:
        found.append(
            Violation(
                "SPLIT_K_RING",
                f"{partial_bytes(p, c)} bytes of partial sums are left in the ring's memory, which has {ring}: more "
                "stages or a smaller tile",
                {"partial_bytes": partial_bytes(p, c), "ring_bytes": ring},
            )
        )
    return found


def _major_violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    """Operands that are not K-major: rows of tf32 and of 8-bit types come in units."""
    found = []
    view = mma_view(p, c)
    for role, name, k_major, rows in (
        ("A", view.a, view.a_k_major, c.tile[0]),
        ("B", view.b, view.b_k_major, c.tile[1]),
    ):
        matrix = operand(p, name)
        if k_major:
            continue
        step = TF32_LINE * (c.work.mma_ctas if role == "B" else 1)
        if matrix.element_bytes == 4 and rows % step:
            found.append(
                Violation(
                    "MMA_SHAPE",
                    f"operand {name.upper()} is {matrix.major}-major tf32, whose lines have 128 bytes: tiles of {role} "
                    f"come in steps of {step}; it is {rows}",
                    {"tile": list(c.tile), "mma_ctas": c.work.mma_ctas},
                )
            )
        step = 16 * c.work.mma_ctas
        if matrix.element_bytes == 1 and role == "B" and rows % step:
            found.append(
                Violation(
                    "MMA_SHAPE",
                    f"operand {name.upper()} is {matrix.major}-major and 8-bit: N comes in steps of {step} for "
                    f"{c.work.mma_ctas} CTA{'s' if step > 16 else ''}; it is {rows}",
                    {"tile": list(c.tile), "mma_ctas": c.work.mma_ctas},
                )
            )
    return found


def _either(options: tuple[object, ...]) -> str:
    return ", ".join(map(str, options[:-1])) + f" or {options[-1]}"


# --- kernels -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sm100Context:
    """What the template is rendered over. Everything else about a kernel is a macro of its compilation."""

    tile_m: int
    tile_n: int
    tile_k: int
    threads: int
    swapped: bool
    a_type: str
    b_type: str
    c_type: str
    d_type: str
    a_k_major: bool
    b_k_major: bool
    c_n_major: bool
    d_n_major: bool
    tma_store: bool
    use_c: bool
    tma_c: bool
    bias: str
    activation: str
    scale_a: bool
    scale_b: bool
    pdl: bool


def context(p: GemmProblem, c: Candidate) -> Sm100Context:
    view = mma_view(p, c)
    return Sm100Context(
        tile_m=c.tile[0],
        tile_n=c.tile[1],
        tile_k=c.tile[2],
        threads=c.threads,
        swapped=c.work.swap_ab,
        a_type=ELEMENT[operand(p, view.a).dtype],
        b_type=ELEMENT[operand(p, view.b).dtype],
        c_type=ELEMENT[p.c.dtype],
        d_type=ELEMENT[p.d.dtype],
        a_k_major=view.a_k_major,
        b_k_major=view.b_k_major,
        c_n_major=view.c_n_major,
        d_n_major=view.d_n_major,
        tma_store=tma.store_through_tma(p),
        use_c=p.uses_c,
        tma_c=loads_c_through_tma(p),
        bias=view.bias,
        activation=p.epilogue.activation,
        scale_a=p.scale.a == "tensor",
        scale_b=p.scale.b == "tensor",
        pdl=p.launch.pdl,
    )


def kernels(p: GemmProblem, c: Candidate) -> list[KernelSpec]:
    """The kernels that run the candidate, in launch order: one, or two where slices of K meet in scratch memory."""
    rendered = asdict(context(p, c))
    name = launches.kernel_id(c)
    main = _main(p, c, f"{name}_main" if slices_in_scratch(c) else name)
    specs = [
        KernelSpec(
            kernel=main,
            template=TEMPLATE,
            context=rendered,
            role="chosen",
            conditions=conditions(p, c),
            traced=launches.traced_kernel(main),
            trace_shape=launches.trace_shape(p, c),
        )
    ]
    if slices_in_scratch(c):
        reduce = launches.reduce_kernel(p, c, f"{name}_reduce", SOURCE, REDUCE_ENTRY, TARGETS)
        specs.append(KernelSpec(kernel=reduce, template=TEMPLATE, context=rendered, role="reduce"))
    return specs


def conditions(p: GemmProblem, c: Candidate) -> list[str]:
    """What the run-time arguments must satisfy beside the device: of the operands that pass through tensor maps."""
    names = ["a", "b"]
    if not slices_in_scratch(c):
        names += [*(["c"] if loads_c_through_tma(p) else []), *(["d"] if tma.store_through_tma(p) else [])]
    return launches.conditions(p, names)


def _main(p: GemmProblem, c: Candidate, name: str) -> Kernel:
    taken = resources(p, c)
    return Kernel(
        id=name,
        family="sm100",
        schedule=c.schedule,
        source=SOURCE,
        defines=_defines(p, c),
        entry=ENTRY,
        images={target: f"build/{name}.{target}.cubin" for target in TARGETS},
        block=(c.threads, 1, 1),
        cluster=c.cluster,
        nonportable=c.nonportable,
        dynamic_smem_bytes=taken.dynamic_smem_bytes,
        tmem_columns=taken.tmem_columns,
        registers=taken.registers,
        grid_blocks=launches.grid_blocks(p, c),
        attributes=LaunchAttributes(
            programmatic_stream_serialization=p.launch.pdl, preferred_cluster=c.work.preferred_cluster
        ),
        params=_main_params(p, c),
        tile=c.tile,
        split_k=c.work.split_k,
        swap_ab=c.work.swap_ab,
    )


def _defines(p: GemmProblem, c: Candidate) -> dict[str, int | str]:
    x, y, z = c.cluster
    taken = resources(p, c)
    offset, offsets = 0, {}
    for part, size in taken.smem_parts:
        offsets[f"ADVISOR_SMEM_{part.upper()}"] = offset
        offset += size
    preferred = {}
    if c.work.preferred_cluster is not None:
        preferred = {"ADVISOR_PREFERRED_X": c.unit[0], "ADVISOR_PREFERRED_Y": c.unit[1]}
    return {
        "ADVISOR_SCHEDULE": f"ADVISOR_{c.schedule.upper()}",
        "ADVISOR_CLUSTER_X": x,
        "ADVISOR_CLUSTER_Y": y,
        "ADVISOR_CLUSTER_Z": z,
        **preferred,
        "ADVISOR_MMA_CTAS": c.work.mma_ctas,
        "ADVISOR_SPLIT_K": c.work.split_k,
        "ADVISOR_RASTER_ALONG_M": int(c.work.raster.order == "along_m"),
        "ADVISOR_RASTER_GROUP": c.work.raster.group,
        "ADVISOR_STAGES": c.stages,
        "ADVISOR_ACCUMULATORS": accumulators(c),
        "ADVISOR_TMEM_COLUMNS": taken.tmem_columns,
        "ADVISOR_COLUMNS": chunk_columns(p, c),
        **offsets,
    }


def _main_params(p: GemmProblem, c: Candidate) -> list[Param]:
    view, pair = mma_view(p, c), c.work.mma_ctas
    params: list[Param] = [
        launches.operand_map(p, "map_a", view.a, view.m, c.tile[0], view.a_k_major, c.unit[1]),
        launches.operand_map(p, "map_b", view.b, view.n, c.tile[1] // pair, view.b_k_major, c.unit[0] // pair),
    ]
    if slices_in_scratch(c):
        return [*params, launches.partials_param(p, c), *launches.extent_params(view)]
    rows, columns = warp_rows(c), chunk_columns(p, c)
    if tma.store_through_tma(p):
        params.append(launches.box_map(p, view, "d", rows, columns))
    params += launches.matrix_params("d")
    if loads_c_through_tma(p):
        params += [launches.box_map(p, view, "c", rows, columns), launches.beta_param()]
    elif p.uses_c:
        params += [*launches.matrix_params("c"), launches.beta_param()]
    return [*params, *launches.epilogue_params(p), *launches.extent_params(view)]
