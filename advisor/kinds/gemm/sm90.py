"""The wgmma family (sm_90a): footprint, barriers, limits, kernels. Imports `problem`, `records`, `launches` and `tma`.

One warpgroup produces through TMA, one or two consume with wgmma. Everything that the planner charges, the launch
file asks for and the kernel lays out comes from the functions here; the template is `kernels/gemm_sm90.cu.j2`.

Names: M, N and K, tiles and operands A and B are those of the MMA; `launches.MmaView` turns the caller's into them.

Sources: PTX ISA (wgmma shapes, majors and descriptors; setmaxnreg; mbarrier; cp.async.bulk.tensor) and
cuTensorMapEncodeTiled. TMA's 16-byte units at the end of a stored line, and the speed of relaxed arrivals over released
ones: measured on an H200.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache

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
from advisor.records.launch import Kernel, KernelSpec, LaunchAttributes, Param, ScratchParam
from advisor.records.rows import BarrierRow, Violation

TEMPLATE = "kernels/gemm_sm90.cu.j2"
SOURCE = "kernel_sm90.cu"
TARGET = "sm_90a"
ENTRY = "gemm_sm90"
REDUCE_ENTRY = "gemm_sm90_reduce"

TILE_M = (64, 128, 256)
TILE_N = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
CLUSTER_EXTENTS = (1, 2, 4, 8, 16)
MAX_CLUSTER = 16
MIN_STAGES, MAX_STAGES = 2, 16
USUAL_STAGES, SMALL_TILE = (
    8,
    64 * 32,
)  # on an H200 more stages gain 1 to 5 % with small tiles and cost 3 to 7 % with others
SCHEDULES: tuple[Schedule, ...] = ("one_tile", "static", "ticket")
TICKET_BYTES = 8  # index and "more", of scheduler.cuh

ROWS_PER_WGMMA = 64
WARPGROUP = 128  # threads
BARRIER_BYTES = 8
REGISTERS_PER_SM = 65536
# Accumulators of a thread: what is left of a consumer's registers for addresses, descriptors and the epilogue.
MAX_ACCUMULATORS = 128
PING_PONG_COLUMNS, BUSY_PING_PONG_COLUMNS = 176, 144  # of a tile of 128 rows: as many accumulators in each thread
MAX_PROMOTED_ACCUMULATORS = 192  # the sums of a stage and the sums so far

USUAL_CHUNK, NARROW_CHUNK, MAX_CHUNK = 64, 16, 88  # columns
STORED_BYTES = 2  # of an element of D that TMA stores


def consumers(c: Candidate) -> int:
    """Consumer warpgroups: one for 64 rows, two from 128 on."""
    return 1 if c.tile[0] <= ROWS_PER_WGMMA else 2


def ping_pong_columns(p: GemmProblem, swapped: bool) -> int:
    """The widest tile of 128 rows whose sums the registers of one warpgroup hold beside what its epilogue needs; 0
    where they hold none: with the sums of a stage as well, or with an address for each element of C."""
    c_n_major = p.c.major == ("m" if swapped else "n")
    if promotes(p) or (p.uses_c and not c_n_major):
        return 0
    return BUSY_PING_PONG_COLUMNS if p.uses_c or p.epilogue.activation == "gelu" else PING_PONG_COLUMNS


def ping_pong(p: GemmProblem, c: Candidate) -> bool:
    """Whether the two consumer warpgroups take whole tiles in turn, so that one multiplies while the other finishes its
    tile: persistent workers whose tile fits the accumulators of one warpgroup. `ping_pong` of cost.py is the same."""
    if c.schedule == "one_tile" or slices_in_cluster(c):
        return False
    return c.tile[0] == 2 * ROWS_PER_WGMMA and c.tile[1] <= ping_pong_columns(p, c.work.swap_ab)


def sharers(p: GemmProblem, c: Candidate) -> int:
    """Consumer warpgroups of one tile."""
    return 1 if ping_pong(p, c) else consumers(c)


def threads(tile_m: int) -> int:
    """Threads of a CTA whose tile has `tile_m` rows: the producer's warpgroup and the consumers'."""
    return WARPGROUP * (2 if tile_m <= ROWS_PER_WGMMA else 3)


def tile_k(p: GemmProblem) -> int:
    """K elements of one stage: 128 bytes."""
    return K_BYTES // p.a.element_bytes


def stores_through_tma(p: GemmProblem) -> bool:
    """16-bit D of proven alignment leaves through TMA; everything else through ordinary stores."""
    return p.d.element_bytes == STORED_BYTES and tma.store_through_tma(p)


def promotes(p: GemmProblem) -> bool:
    """Whether the sums of each stage are added up in registers: fp8 tensor cores keep about 14 bits of a sum."""
    return p.is_fp8 and p.accumulate == "precise"


def streamed(p: GemmProblem, c: Candidate) -> tuple[bool, bool]:
    """Whether A, and B, of the MMA is read once: one cluster tile has all of the other extent. A hint to the L2, from
    the extents that were planned for; a launch with others is as right."""
    m, n = (p.n, p.m) if c.work.swap_ab else (p.m, p.n)
    x, y, _ = c.cluster
    one_across, one_down = n <= y * c.tile[1], m <= x * c.tile[0]
    return one_across and not one_down, one_down and not one_across


# --- footprint ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterPlan:
    """Registers of a thread. `launch` is what the compiler is held to (launch bounds of `threads` and `ctas_per_sm`);
    `setmaxnreg` moves it to the roles, which together hold no more than the launch does; where they are equal nothing
    moves."""

    ctas_per_sm: int
    launch: int
    producer: int
    consumer: int


def register_plan(c: Candidate) -> RegisterPlan:
    if consumers(c) == 1 and c.tile[1] > 128:  # accumulators and epilogue need more than 2 CTAs on an SM would leave
        return RegisterPlan(ctas_per_sm=1, launch=255, producer=255, consumer=255)
    if consumers(c) == 1:  # half an SM: 256 x 128 registers, so that two small CTAs can share one
        return RegisterPlan(ctas_per_sm=2, launch=128, producer=40, consumer=216)
    return RegisterPlan(ctas_per_sm=1, launch=168, producer=40, consumer=232)


def stage_bytes(c: Candidate) -> tuple[int, int]:
    """(A, B) bytes of one stage."""
    return c.tile[0] * K_BYTES, c.tile[1] * K_BYTES


def chunk_columns(c: Candidate) -> int:
    """Columns that the epilogue finishes and stores at a time, with 64 rows: a whole number of them makes the tile.

    At most 64; 88 where 176 columns would have to go 16 at a time: a chunk takes the warps, and TMA, about as long
    whatever its width. Where the CTAs of a cluster share the chunks of a tile, few enough that each has some.
    """
    return columns_of_a_chunk(c.tile[0], c.tile[1], c.cluster[2])


@cache  # asked for every candidate of the space, which has few tiles
def columns_of_a_chunk(tile_m: int, tile_n: int, slices: int) -> int:
    """`chunk_columns` of a tile whose `slices` of K meet in a cluster (1: they do not)."""
    divisors = [each for each in range(8, MAX_CHUNK + 1, 8) if tile_n % each == 0] or [8]  # a width that is refused
    usual = [each for each in divisors if each <= USUAL_CHUNK]
    if slices > 1:
        return max((each for each in usual if _chunks(tile_m, tile_n, each) >= slices), default=divisors[0])
    return usual[-1] if usual[-1] > NARROW_CHUNK or tile_m > 2 * ROWS_PER_WGMMA else divisors[-1]


def store_buffers(c: Candidate) -> int:
    """Buffers of a chunk that each consumer warpgroup has: one of a wide chunk."""
    return 2 if chunk_columns(c) <= USUAL_CHUNK else 1


def _chunks(tile_m: int, tile_n: int, columns: int) -> int:
    """Chunks of one consumer warpgroup, where warpgroups share a tile."""
    return max(1, tile_m // (2 * ROWS_PER_WGMMA)) * (tile_n // columns)


def partial_bytes(c: Candidate) -> int:
    """What a CTA receives of partial sums, in the ring's memory: every slice of the chunks that it owns."""
    columns, z = chunk_columns(c), c.cluster[2]
    turns = -(-_chunks(c.tile[0], c.tile[1], columns) // z)
    return consumers(c) * turns * z * ROWS_PER_WGMMA * columns * 4


def store_bytes(p: GemmProblem, c: Candidate) -> int:
    """The buffers of chunks, 64 rows each, for every consumer warpgroup; none where D is stored from registers."""
    if not stores_through_tma(p) or slices_in_scratch(c):
        return 0
    return consumers(c) * store_buffers(c) * ROWS_PER_WGMMA * chunk_columns(c) * STORED_BYTES


def barrier_bytes(p: GemmProblem, c: Candidate) -> int:
    """full and empty of every stage; whose turn it is, one for each warpgroup; full and empty of the ticket, and its
    slot."""
    turns = 2 if ping_pong(p, c) else 0
    return (2 * c.stages + turns + (3 if c.schedule == "ticket" else 0)) * BARRIER_BYTES


def resources(p: GemmProblem, c: Candidate) -> Resources:
    """What one CTA occupies. The parts lie in this order, without gaps: those before the barriers are multiples of
    1024 bytes, the alignment of a 128-byte swizzle."""
    a_bytes, b_bytes = stage_bytes(c)
    parts = (
        ("a", c.stages * a_bytes),
        ("b", c.stages * b_bytes),
        ("store", store_bytes(p, c)),
        ("barriers", barrier_bytes(p, c)),
    )
    return Resources(
        threads=c.threads,
        registers=register_plan(c).launch,
        static_smem_bytes=0,
        dynamic_smem_bytes=sum(size for _, size in parts),
        tmem_columns=0,
        smem_parts=parts,
    )


def useful_stages(tile_m: int, tile_n: int) -> int:
    """The most stages that a plan gives a tile by itself."""
    return MAX_STAGES if tile_m * tile_n <= SMALL_TILE else USUAL_STAGES


def stages_that_fit(p: GemmProblem, c: Candidate, smem_bytes: int) -> int:
    """The most stages, at most 16, of a candidate like `c` whose CTA takes `smem_bytes` or less; below 2 none fit."""
    empty = resources(p, replace(c, stages=0)).dynamic_smem_bytes
    stage = sum(stage_bytes(c)) + 2 * BARRIER_BYTES
    return max(0, min(MAX_STAGES, (smem_bytes - empty) // stage))


def fitted(p: GemmProblem, c: Candidate) -> Candidate:
    """The candidate, with fewer stages where its own do not fit one CTA."""
    most = stages_that_fit(p, c, launches.SMEM_BYTES)
    return replace(c, stages=min(c.stages, max(most, MIN_STAGES)))


def barriers(p: GemmProblem, c: Candidate) -> list[BarrierRow]:
    """Every barrier of the kernel, with the arithmetic of its counts."""
    x, y, _ = c.cluster
    size, warps = c.cluster_size, 4 * consumers(c)
    senders = x + y - 1
    a_bytes, b_bytes = stage_bytes(c)
    rows = [
        BarrierRow(
            name="full",
            scope="cta" if senders == 1 else "cluster",
            count=c.stages,
            arrivals=1,
            arrivals_from="the CTA's own producer, with expect_tx",
            tx_bytes=a_bytes + b_bytes,
            phases="once a K block: both operand tiles have landed, whoever sent them",
            failure="too few bytes: wgmma reads what has not landed; too many: the consumers hang",
        ),
        BarrierRow(
            name="empty",
            scope="cta" if senders == 1 else "cluster",
            count=c.stages,
            arrivals=4 * sharers(p, c) * senders,
            arrivals_from=f"{4 * sharers(p, c)} warps that read it x {senders} CTAs of this one's row and column "
            f"(x {x} + y {y} - 1)",
            tx_bytes=0,
            phases="once a K block: every CTA that this one's copies reach has read the stage",
            failure="too low: a copy overwrites a stage that a peer still reads; too high: the producer hangs",
        ),
    ]
    if ping_pong(p, c):
        rows.append(
            BarrierRow(
                name="turn",
                scope="cta",
                count=2,
                arrivals=4,
                arrivals_from="the warps of the other consumer warpgroup, behind the last stage of its tile",
                tx_bytes=0,
                phases="once a tile of its warpgroup: the tile before has waited for all of its stages",
                failure="stages are waited for two phases ahead, where parity cannot tell them apart: wgmma reads what "
                "has not landed",
            )
        )
    if c.schedule == "ticket":
        readers = (1 + warps) * size
        rows += [
            BarrierRow(
                name="ticket_full",
                scope="cta" if size == 1 else "cluster",
                count=1,
                arrivals=1,
                arrivals_from="the ticket warp of CTA 0, which writes this CTA's slot",
                tx_bytes=0 if size == 1 else TICKET_BYTES,
                phases="once a ticket",
                failure="a reader takes the tile before",
            ),
            BarrierRow(
                name="ticket_empty",
                scope="cta" if size == 1 else "cluster",
                count=1,
                arrivals=readers,
                arrivals_from=f"(1 producer warp + {warps} consumer warps) x {size} CTAs, at CTA 0",
                tx_bytes=0,
                phases="once a ticket: every reading warp of every CTA has read it",
                failure="too low: a slot is overwritten unread, and the CTAs of a cluster part; too high: no more work",
            ),
        ]
    if stores_through_tma(p) and not slices_in_scratch(c):
        rows.append(
            BarrierRow(
                name="store",
                scope="warpgroup",
                count=consumers(c),
                arrivals=WARPGROUP,
                arrivals_from="the threads of one consumer warpgroup",
                tx_bytes=0,
                phases="once a chunk of D: it lies in shared memory, and the other buffer has drained",
                failure="TMA stores what has not been written",
            )
        )
    if slices_in_cluster(c):
        refill = c.schedule != "one_tile"  # else nothing follows but the barrier at the exit
        phases = "a tile: every ring is idle; all partial sums have arrived" + (
            "; all of them are read" if refill else ""
        )
        rows.append(_cluster_row(c, "partials", 3 if refill else 2, phases))
    if size > 1:
        rows += [
            _cluster_row(c, "start", 1, "once, before the first remote access"),
            _cluster_row(c, "exit", 1, "once, before every thread's exit"),
        ]
    return rows


def _cluster_row(c: Candidate, name: str, count: int, phases: str) -> BarrierRow:
    return BarrierRow(
        name=name,
        scope="cluster",
        count=count,
        arrivals=c.threads * c.cluster_size,
        arrivals_from=f"{c.threads} threads x {c.cluster_size} CTAs (barrier.cluster)",
        tx_bytes=0,
        phases=phases,
        failure="memory of a CTA is used before it runs or after it has gone",
    )


# --- what the family cannot do -----------------------------------------------------------------------------------


def violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    """Every clause of this family that the candidate breaks. What depends on a device (SMEM, residency, the limit of
    the cluster size) is the planner's."""
    return [
        *_shape_violations(p, c),
        *_cluster_violations(c),
        *_split_violations(c),
        *_operand_violations(p, c),
        *_accumulator_violations(p, c),
    ]


def _shape_violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    found = []
    m, n, k = c.tile
    if m not in TILE_M or n not in TILE_N:
        found.append(
            Violation(
                "SM90_TILE",
                f"a tile of {m} x {n}: wgmma tiles have M of {_either(TILE_M)} and N of {_either(TILE_N)}",
                {"tile_m": m, "tile_n": n},
            )
        )
    if k != tile_k(p):
        found.append(
            Violation(
                "SM90_TILE_K",
                f"a K step of {k} elements: a stage holds {K_BYTES} bytes of K, {tile_k(p)} elements of {p.a.dtype}",
                {"tile_k": k, "needed": tile_k(p)},
            )
        )
    if c.threads != threads(m):
        found.append(
            Violation(
                "SM90_THREADS",
                f"{c.threads} threads: a tile of {m} rows has a producer and {consumers(c)} consumer warpgroups, "
                f"{threads(m)} threads",
                {"threads": c.threads, "needed": threads(m)},
            )
        )
    if not MIN_STAGES <= c.stages <= MAX_STAGES:
        found.append(
            Violation(
                "SM90_STAGES",
                f"{c.stages} stages: the ring has {MIN_STAGES} to {MAX_STAGES}",
                {"stages": c.stages, "min": MIN_STAGES, "max": MAX_STAGES},
            )
        )
    if c.schedule not in SCHEDULES:
        found.append(
            Violation(
                "CLC_UNSUPPORTED",
                f"schedule {c.schedule}: Hopper has no Cluster Launch Control; it has {_either(SCHEDULES)}",
                {"schedule": c.schedule},
            )
        )
    return found


def _cluster_violations(c: Candidate) -> list[Violation]:
    found = []
    x, y, z = c.cluster
    if x not in CLUSTER_EXTENTS or y not in CLUSTER_EXTENTS or c.cluster_size > MAX_CLUSTER:
        found.append(
            Violation(
                "CLUSTER_SHAPE",
                f"cluster {x}x{y}x{z}: x and y are {_either(CLUSTER_EXTENTS)} and their product with z at most "
                f"{MAX_CLUSTER}",
                {"cluster": [x, y, z], "max": MAX_CLUSTER},
            )
        )
    if c.work.preferred_cluster is not None:
        found.append(
            Violation(
                "PREFERRED_CLUSTER_UNSUPPORTED",
                "two cluster sizes in a launch begin with compute capability 10.0: here the size is compiled in",
                {"preferred_cluster": list(c.work.preferred_cluster)},
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
    if c.work.mma_ctas != 1:
        found.append(Violation("NO_CTA_PAIR", "wgmma works within one CTA", {"mma_ctas": c.work.mma_ctas}))
    return found


def _split_violations(c: Candidate) -> list[Violation]:
    found = []
    split, z = c.work.split_k, c.cluster[2]
    legal = split == 1 if z == 1 and split < 2 else 2 <= split <= MAX_SCRATCH_SLICES if z == 1 else split == z
    if not legal or (z > 1 and z not in CLUSTER_SLICES):
        found.append(
            Violation(
                "SPLIT_K_SHAPE",
                f"{split} slices of K with a cluster z of {z}: either z is 1 and the slices are 1 to "
                f"{MAX_SCRATCH_SLICES}, or both are {_either(CLUSTER_SLICES)}",
                {"split_k": split, "cluster_z": z},
            )
        )
    if split > 1 and c.schedule == "ticket":
        found.append(
            Violation(
                "SPLIT_K_SCHEDULE",
                "split-K is built for one_tile and static: its slices cost the same, there is no skew to even out",
                {"split_k": split, "schedule": c.schedule},
            )
        )
    ring, partials = c.stages * sum(stage_bytes(c)), partial_bytes(c)
    if slices_in_cluster(c) and partials > ring:
        found.append(
            Violation(
                "SPLIT_K_RING",
                f"{partials} bytes of partial sums are left in the ring's memory, which has {ring}: more stages or a "
                "smaller tile",
                {"partial_bytes": partials, "ring_bytes": ring},
            )
        )
    return found


def _operand_violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    found = list(tma.input_violations(p))
    for name, matrix in (("a", p.a), ("b", p.b)):
        if matrix.major != "k" and matrix.element_bytes != 2:
            found.append(
                Violation(
                    "WGMMA_MN_MAJOR",
                    f"operand {name.upper()} is {matrix.major}-major {matrix.dtype}: wgmma reads operands of other "
                    "than 16-bit types K-major only",
                    {"operand": name.upper(), "major": matrix.major, "dtype": matrix.dtype},
                )
            )
    return found


def _accumulator_violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    sums = 2 if promotes(p) else 1
    held = sums * c.tile[0] * c.tile[1] // (consumers(c) * WARPGROUP)
    limit = MAX_PROMOTED_ACCUMULATORS if promotes(p) else MAX_ACCUMULATORS
    if held <= limit:
        return []
    why = ", twice because the sums of a stage are promoted (accumulate: fast does not)" if sums == 2 else ""
    return [
        Violation(
            "SM90_ACCUMULATORS",
            f"a tile of {c.tile[0]} x {c.tile[1]} keeps {held} accumulators in each thread of {consumers(c)} "
            f"warpgroups{why}; {limit} fit",
            {"accumulators": held, "limit": limit},
        )
    ]


def _either(options: tuple[object, ...]) -> str:
    return ", ".join(map(str, options[:-1])) + f" or {options[-1]}"


# --- kernels -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sm90Context:
    """What the template is rendered over. Everything else about a kernel is a macro of its compilation."""

    tile_m: int
    tile_n: int
    tile_k: int
    consumers: int
    threads: int
    ctas_per_sm: int
    moves_registers: bool
    producer_registers: int
    consumer_registers: int
    swapped: bool
    a_type: str
    b_type: str
    c_type: str
    d_type: str
    a_k_major: bool
    b_k_major: bool
    c_n_major: bool
    d_n_major: bool
    promote: bool
    promoted_registers: int
    tma_store: bool
    use_c: bool
    bias: str
    activation: str
    scale_a: bool
    scale_b: bool
    pdl: bool


def context(p: GemmProblem, c: Candidate) -> Sm90Context:
    view, registers = mma_view(p, c), register_plan(c)
    return Sm90Context(
        tile_m=c.tile[0],
        tile_n=c.tile[1],
        tile_k=c.tile[2],
        consumers=consumers(c),
        threads=c.threads,
        ctas_per_sm=registers.ctas_per_sm,
        moves_registers=registers.consumer != registers.launch,
        producer_registers=registers.producer,
        consumer_registers=registers.consumer,
        swapped=c.work.swap_ab,
        a_type=ELEMENT[operand(p, view.a).dtype],
        b_type=ELEMENT[operand(p, view.b).dtype],
        c_type=ELEMENT[p.c.dtype],
        d_type=ELEMENT[p.d.dtype],
        a_k_major=view.a_k_major,
        b_k_major=view.b_k_major,
        c_n_major=view.c_n_major,
        d_n_major=view.d_n_major,
        promote=promotes(p),
        promoted_registers=MAX_PROMOTED_ACCUMULATORS,
        tma_store=stores_through_tma(p),
        use_c=p.uses_c,
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
        reduce = launches.reduce_kernel(p, c, f"{name}_reduce", SOURCE, REDUCE_ENTRY, [TARGET])
        specs.append(KernelSpec(kernel=reduce, template=TEMPLATE, context=rendered, role="reduce"))
    return specs


def conditions(p: GemmProblem, c: Candidate) -> list[str]:
    """What the run-time arguments must satisfy beside the device: of the operands that pass through tensor maps."""
    return launches.conditions(p, ["a", "b", *(["d"] if stores_through_tma(p) else [])])


def _main(p: GemmProblem, c: Candidate, name: str) -> Kernel:
    return Kernel(
        id=name,
        family="sm90",
        schedule=c.schedule,
        source=SOURCE,
        defines=_defines(p, c),
        entry=ENTRY,
        images={TARGET: f"build/{name}.{TARGET}.cubin"},
        block=(c.threads, 1, 1),
        cluster=c.cluster,
        nonportable=c.nonportable,
        dynamic_smem_bytes=resources(p, c).dynamic_smem_bytes,
        registers=resources(p, c).registers,
        grid_blocks=launches.grid_blocks(p, c),
        attributes=LaunchAttributes(programmatic_stream_serialization=p.launch.pdl),
        params=_main_params(p, c),
        tile=c.tile,
        split_k=c.work.split_k,
        swap_ab=c.work.swap_ab,
    )


def _defines(p: GemmProblem, c: Candidate) -> dict[str, int | str]:
    x, y, z = c.cluster
    offset, offsets = 0, {}
    for part, size in resources(p, c).smem_parts:
        offsets[f"ADVISOR_SMEM_{part.upper()}"] = offset
        offset += size
    return {
        "ADVISOR_SCHEDULE": f"ADVISOR_{c.schedule.upper()}",
        "ADVISOR_CLUSTER_X": x,
        "ADVISOR_CLUSTER_Y": y,
        "ADVISOR_CLUSTER_Z": z,
        "ADVISOR_SPLIT_K": c.work.split_k,
        "ADVISOR_RASTER_ALONG_M": int(c.work.raster.order == "along_m"),
        "ADVISOR_RASTER_GROUP": c.work.raster.group,
        "ADVISOR_STAGES": c.stages,
        "ADVISOR_PING_PONG": int(ping_pong(p, c)),
        **{f"ADVISOR_STREAM_{name}": int(each) for name, each in zip("AB", streamed(p, c), strict=True)},
        "ADVISOR_COLUMNS": chunk_columns(c),
        "ADVISOR_BUFFERS": store_buffers(c),
        **offsets,
    }


def _main_params(p: GemmProblem, c: Candidate) -> list[Param]:
    view = mma_view(p, c)
    params: list[Param] = [
        launches.operand_map(p, "map_a", view.a, view.m, c.tile[0], view.a_k_major, c.cluster[1]),
        launches.operand_map(p, "map_b", view.b, view.n, c.tile[1], view.b_k_major, c.cluster[0]),
    ]
    if slices_in_scratch(c):
        params.append(launches.partials_param(p, c))
    else:
        if stores_through_tma(p):
            params.append(launches.box_map(p, view, "d", ROWS_PER_WGMMA, chunk_columns(c)))
        params += launches.matrix_params("d")
        if p.uses_c:
            params += [*launches.matrix_params("c"), launches.beta_param()]
        params += launches.epilogue_params(p)
    if c.schedule == "ticket":
        params.append(ScratchParam(name="tickets", bytes="4", align=256, init="zeros"))
    return params + launches.extent_params(view)
