"""What is true of the row reduction kernels: footprint, barriers, limits, launches. Imports `problem` and `records`.

One source for every family: sm90 and sm100 differ in their image and in Cluster Launch Control, which sm100 alone has;
portable in what it assumes of addresses and in having no clusters. Everything that the planner charges, the launch file
asks for and the kernel lays out comes from here; the template is `kernels/row_reduce.cu.j2`.

    shared memory   slots of 16 bytes, `stages` for each thread; weights and biases that stay, in slots alike; partials
                    of warps, twice; with a cluster the partials that its CTAs push, twice, 32 bytes each, and two
                    mbarriers; and, where rows are claimed, two responses and two mbarriers for each
    registers       `work.held` vectors of a thread: packed weights and biases, or exponentials in fp32
    threads         `work.row_threads` of a CTA share a row: a part of a warp, a warp, or all of them
    images          sm90 and sm100 use clusters; portable runs from sm_80 on
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from advisor.kinds.row_reduce.work import REGISTERS_PER_SM, RowWork
from advisor.problem.row_reduce import NORMS, RowReduceProblem
from advisor.records.candidate import Candidate, Family, Resources
from advisor.records.launch import Kernel, KernelSpec, Param, PtrParam, ScalarParam
from advisor.records.rows import BarrierRow, KernelLayout, SharingRow, Violation

TEMPLATE = "kernels/row_reduce.cu.j2"
ENTRY = "row_reduce"
VECTOR_BYTES = 16
PARTIAL_BYTES = 16
PUSH_BYTES = 32
PUSHED = "pushed partials"
FETCH_AHEAD = 3  # vectors that a fetch of weights from the L2 is begun before their use
SMEM_PER_SM_BYTES = 233_472  # of Hopper and Blackwell: what CTAs that share an SM divide
SMEM_RESERVED_BYTES = 1024  # of it, for each CTA
MAX_REGISTERS = 255
MAX_GRID_X = 2**31 - 1
SMEM_BYTES: dict[Family, int] = {"sm100": 232_448, "sm90": 232_448, "portable": 101_376}
IMAGES: dict[Family, tuple[str, ...]] = {
    "sm100": ("sm_100a", "sm_103a", "sm_100f"),  # 10.0, 10.3, and one image that loads on both
    "sm90": ("sm_90a",),
    "portable": ("sm_80", "sm_90", "sm_100", "sm_120"),
}
SCHEDULES: dict[str, int] = {"one_tile": 0, "static": 1, "clc": 3}  # as scheduler.cuh and clc_scheduler.cuh number them
CLC_SLOTS = 2
CLC_RESPONSE_BYTES = 16
DEVICE_TYPE = {"bf16": "bf16", "fp16": "fp16", "fp32": "float"}
EXCHANGED = {
    "softmax": "largest element and sum of exponentials",
    "log_softmax": "largest element and sum of exponentials",
    "logsumexp": "largest element and sum of exponentials",
    "layernorm": "mean, squared deviations and count",
    "rmsnorm": "sum of squares",
    "sum": "sum",
    "max": "largest element",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What the template sees: the operation, types, and what a family assumes. Equal for every variant of a bundle."""

    op: str
    in_type: str
    out_type: str
    exact: bool  # results that keep more than 16 bits
    weight: bool
    bias: bool
    any_alignment: bool
    claims: bool  # the family has Cluster Launch Control
    entry: str = ENTRY


def context(p: RowReduceProblem, family: Family) -> Context:
    return Context(
        op=p.op,
        in_type=DEVICE_TYPE[p.dtype],
        out_type=DEVICE_TYPE[p.out_dtype],
        exact=p.out_dtype == "fp32",
        weight=p.weight,
        bias=p.bias,
        any_alignment=family == "portable",
        claims=family == "sm100",
    )


def work_of(c: Candidate) -> RowWork:
    work: RowWork = c.work
    return work


def vector_elements(p: RowReduceProblem) -> int:
    return VECTOR_BYTES // p.in_bytes


def rows_per_cta(c: Candidate) -> int:
    return c.threads // work_of(c).row_threads


def capacity(p: RowReduceProblem, c: Candidate) -> int:
    """Columns that a cluster keeps on chip; 0 where it streams."""
    return work_of(c).kept_columns(c)


def passes(p: RowReduceProblem, c: Candidate) -> int:
    """Times that a row is read from memory."""
    return 2 if p.elementwise and not work_of(c).vectors else 1


def exchange_bytes(c: Candidate) -> int:
    """Shared memory of partials, pushes and barriers."""
    size = c.cluster_size
    return 2 * (c.threads // 32) * PARTIAL_BYTES + (2 * size * PUSH_BYTES + 16 if size > 1 else 0)


def claim_bytes(c: Candidate) -> int:
    """Shared memory of responses and of their barriers, full and empty."""
    return CLC_SLOTS * (CLC_RESPONSE_BYTES + 16) if c.schedule == "clc" else 0


def weight_bytes(c: Candidate) -> int:
    """Shared memory of weights and biases that stay."""
    return work_of(c).weight_slots * c.threads * VECTOR_BYTES


def smem_bytes(c: Candidate) -> int:
    return c.stages * c.threads * VECTOR_BYTES + weight_bytes(c) + exchange_bytes(c) + claim_bytes(c)


def resources(c: Candidate) -> Resources:
    """What one CTA occupies. Registers are the cap that the launch bounds set; they are handed out in eights."""
    size = c.cluster_size
    slots = c.stages * c.threads * VECTOR_BYTES
    parts = [("slots", slots), ("partials of warps", 2 * (c.threads // 32) * PARTIAL_BYTES)]
    if weight_bytes(c):
        parts.insert(1, ("weights and biases that stay", weight_bytes(c)))
    if size > 1:
        parts += [("partials pushed by CTAs", 2 * size * PUSH_BYTES), ("barriers of pushes", 16)]
    if c.schedule == "clc":
        parts += [("responses", CLC_SLOTS * CLC_RESPONSE_BYTES), ("barriers of responses", CLC_SLOTS * 16)]
    registers = min(MAX_REGISTERS, REGISTERS_PER_SM // (c.threads * work_of(c).ctas_per_sm) // 8 * 8)
    return Resources(
        threads=c.threads,
        registers=registers,
        static_smem_bytes=0,
        dynamic_smem_bytes=smem_bytes(c),
        tmem_columns=0,
        smem_parts=tuple(parts),
    )


def violations(p: RowReduceProblem, c: Candidate) -> list[Violation]:
    """Every clause of the kernels that the candidate breaks."""
    w, found = work_of(c), []
    x, y, z = c.cluster
    if (y, z) != (1, 1) or x not in (1, 2, 4, 8, 16) or (x > 1 and c.family == "portable"):
        message = f"a cluster of {x} x {y} x {z}: the CTAs of a row lie along x, 1 to 16 of them, and portable has none"
        found.append(Violation("ROW_CLUSTER", message, {"cluster": list(c.cluster)}))
    if c.schedule not in SCHEDULES or (c.schedule == "clc" and c.family != "sm100"):
        message = f"there is no {c.schedule} kernel of the {c.family} family: " + (
            "only sm100, compute capability 10.0 and 10.3, claims rows; one_tile and static run on every family"
            if c.schedule == "clc"
            else "what claims rows at run time does so by Cluster Launch Control"
        )
        found.append(Violation("ROW_SCHEDULE", message, {"schedule": c.schedule, "family": c.family}))
    if w.vectors and not w.vectors <= c.stages <= 2 * w.vectors:
        vectors = f"{w.vectors} vector{'s' * (w.vectors != 1)}"
        message = f"{c.stages} slots for {vectors} of a thread: they hold a row, and at most another"
        found.append(Violation("ROW_SLOTS", message, {"stages": c.stages, "vectors": w.vectors}))
    if w.early > max(0, c.stages - w.vectors):
        message = f"{w.early} vectors of the next row are read early, and {c.stages - w.vectors} slots hold some of it"
        found.append(Violation("ROW_SLOTS", message, {"stages": c.stages, "early": w.early}))
    if found_held := _held(p, c):
        found.append(found_held)
    if not w.vectors and c.stages % w.batch:
        message = f"{c.stages} slots are no whole batches of {w.batch} vectors"
        found.append(Violation("ROW_SLOTS", message, {"stages": c.stages, "batch": w.batch}))
    if w.vectors and capacity(p, c) < p.cols:
        message = (
            f"{p.cols} columns, and {c.cluster_size} CTAs of {w.row_threads} threads with {w.vectors} vectors keep "
            f"{capacity(p, c)}"
        )
        found.append(Violation("ROW_TOO_LONG", message, {"cols": p.cols, "capacity": capacity(p, c)}))
    if smem_bytes(c) > SMEM_BYTES[c.family]:
        message = (
            f"{c.stages} slots of {c.threads} threads and the exchange take {smem_bytes(c)} bytes of shared memory"
        )
        found.append(Violation("ROW_SMEM", message, {"smem_bytes": smem_bytes(c), "limit": SMEM_BYTES[c.family]}))
    if c.schedule in ("one_tile", "clc") and -(-p.rows // rows_per_cta(c)) * c.cluster_size > MAX_GRID_X:
        found.append(Violation("ROW_GRID", f"{p.rows} rows are more blocks than one launch has", {"rows": p.rows}))
    return found


def held_kind(p: RowReduceProblem) -> str:
    """What `work.held` vectors are of: weights stay through all rows, exponentials from one pass to the next."""
    if p.op in NORMS and (p.weight or p.bias):
        return "weights"
    return "exponentials" if p.op == "softmax" and p.out_dtype != "fp32" else ""


def _held(p: RowReduceProblem, c: Candidate) -> Violation | None:
    w, kind = work_of(c), held_kind(p)
    most = w.vectors * (int(p.weight) + int(p.bias) if kind == "weights" else 1)
    wrong = w.held + w.weight_slots > most or (w.held > 0 and not kind) or (w.weight_slots > 0 and kind != "weights")
    if not wrong and (kind != "exponentials" or w.held % w.batch == 0):
        return None
    message = (
        f"{w.held} vectors of a thread held in registers and {w.weight_slots} of weights in shared memory: of "
        f"{kind or 'nothing'} here, {most} at most, exponentials in whole batches of {w.batch}"
    )
    return Violation("ROW_HELD", message, {"held": w.held, "weight_slots": w.weight_slots, "vectors": w.vectors})


def misaligned(p: RowReduceProblem) -> list[Violation]:
    """Rows that do not start at multiples of 16 bytes: the cluster kernels copy and store nothing narrower."""
    found = []
    for name, stride, size in (("row_stride", p.row_stride, p.in_bytes), ("cols", p.cols, p.out_bytes)):
        if name == "cols" and not p.elementwise:
            continue
        step = VECTOR_BYTES // size
        if p.rows > 1 and stride % step:
            own = name == "row_stride"
            packed = own and p.elementwise and p.cols * p.out_bytes % VECTOR_BYTES
            what = "row_stride" if own else "the stride of the packed result, cols,"
            mend = "pad it to" if own and not packed else "the result is packed, so only more columns mend it: cols of"
            if packed:  # a padded row_stride alone would still decline
                need = max(step, VECTOR_BYTES // p.out_bytes)
                mend = f"{mend} {-(-p.cols // need) * need}, with row_stride"
            found.append(
                Violation(
                    "ROW_STRIDE_16B",
                    f"{what} is {stride} element{'s' * (stride != 1)} = {stride * size} bytes, no multiple of 16; "
                    f"{mend} {-(-stride // step) * step}",
                    {
                        "operand": name,
                        "stride": stride,
                        "stride_bytes": stride * size,
                        "pad_to": -(-stride // step) * step,
                    },
                )
            )
    return found


def sharing(p: RowReduceProblem, c: Candidate) -> list[SharingRow]:
    return [
        SharingRow(
            operand="X",
            shared_along="none",
            receivers=1,
            mask="none",
            bytes_per_load=VECTOR_BYTES,
            loads_per_stage=c.threads,
        )
    ]


def barriers(p: RowReduceProblem, c: Candidate) -> list[BarrierRow]:
    """The exchange of a row, which a row of one warp needs not; and the claims, where there are any."""
    return _exchange_rows(p, c) + (_claim_rows(c) if c.schedule == "clc" else [])


def _exchange_rows(p: RowReduceProblem, c: Candidate) -> list[BarrierRow]:
    w, size = work_of(c), c.cluster_size
    again = ", and again for one whose squares overflow" if p.op in NORMS and p.dtype != "fp16" else ""
    if w.row_threads <= 32:
        return []
    found = [
        BarrierRow(
            name="partials of warps",
            scope="cta",
            count=1,
            arrivals=c.threads,
            arrivals_from=f"{c.threads} threads of the CTA, after each warp has written its partial",
            tx_bytes=0,
            phases=f"once for each row{again}",
            failure="a partial would be read before it is there; the other half of the buffer is the next row's",
        )
    ]
    if size > 1:
        found += [
            BarrierRow(
                name="pushes",
                scope="cluster",
                count=2,
                arrivals=1 + size,
                arrivals_from=f"thread 0 of the CTA, with the bytes that it expects, and a lane of each of {size} "
                "CTAs, with its push",
                tx_bytes=size * PARTIAL_BYTES,
                phases=f"once for each second exchange: {size} CTAs push {PARTIAL_BYTES} bytes each, itself included",
                failure="too many bytes, and the row waits for ever; too few, and a partial is read before it lands",
            ),
            BarrierRow(
                name="cluster",
                scope="cluster",
                count=2,
                arrivals=c.threads * size,
                arrivals_from=f"{c.threads} threads of {size} CTAs",
                tx_bytes=0,
                phases="before the first push, so that every peer has started; and before the exit",
                failure="a push would land in the shared memory of a CTA that has not started, or has gone",
            ),
        ]
    return found


def _claim_rows(c: Candidate) -> list[BarrierRow]:
    size, warps = c.cluster_size, c.threads // 32
    scope = "cluster" if size > 1 else "cta"
    return [
        BarrierRow(
            name="clc_full",
            scope=scope,
            count=CLC_SLOTS,
            arrivals=1,
            arrivals_from="each CTA's own warp 0, with expect_tx",
            tx_bytes=CLC_RESPONSE_BYTES,
            phases="once a request: its response has landed, in every CTA",
            failure="a CTA that is not armed loses the response and waits for ever",
        ),
        BarrierRow(
            name="clc_empty",
            scope=scope,
            count=CLC_SLOTS,
            arrivals=warps * size,
            arrivals_from=f"{warps} warps x {size} CTA, at CTA 0",
            tx_bytes=0,
            phases="once a response: every warp of every CTA has read it and passed the proxy fence",
            failure="a slow warp reads the next response: warps disagree on the row",
        ),
    ]


def layout(c: Candidate) -> KernelLayout:
    """Where the rows of `barriers` lie in the built kernel."""
    size = c.cluster_size
    claims = smem_bytes(c) - claim_bytes(c)  # they come last, and the barriers of pushes last before them
    pushes = claims - 16
    items = f"ceil_div(rows, {rows_per_cta(c)})"
    mbarriers: dict[str, tuple[int, ...]] = {"pushes": (pushes, pushes + 8)} if size > 1 else {}
    if c.schedule == "clc":
        full = claims + CLC_SLOTS * CLC_RESPONSE_BYTES
        empty = full + CLC_SLOTS * 8
        mbarriers |= {"clc_full": (full, full + 8), "clc_empty": (empty, empty + 8)}
    return KernelLayout(
        mbarriers=mbarriers,
        named={},
        meetings={"cluster": "cluster"} if size > 1 else {},
        loads=(),
        remote_rows=(PUSHED,) if size > 1 else (),
        remote_slots={},
        cluster_tiles=items,
        remote_bytes={PUSHED: PARTIAL_BYTES * (size - 1)} if size > 1 else {},
    )


def kernels(p: RowReduceProblem, c: Candidate) -> list[KernelSpec]:
    """The one kernel of a candidate."""
    w, need, size = work_of(c), resources(c), c.cluster_size
    items = f"ceil_div(rows, {rows_per_cta(c)})"
    clusters = items
    if c.schedule == "static":
        budget = f"max(sm_budget // {size}, 1) + sm_budget // num_sms * max_active_clusters"
        clusters = f"min(max_active_clusters, {budget}, {items})"
    grid = f"{clusters} * {size}" if size > 1 else clusters
    if p.elementwise:  # without columns there is nothing to write
        grid = f"{grid} * min(cols, 1)"
    kernel_id = c.kernel_id
    kernel = Kernel(
        id=kernel_id,
        family=c.family,
        schedule=c.schedule,
        source=f"kernel_{c.family}.cu",
        defines={
            "ADVISOR_THREADS": c.threads,
            "ADVISOR_ROW_THREADS": w.row_threads,
            "ADVISOR_VECTORS": w.vectors,
            "ADVISOR_SLOTS": c.stages,
            "ADVISOR_BATCH": w.batch,
            "ADVISOR_HELD": w.held,
            "ADVISOR_WEIGHT_SLOTS": w.weight_slots,
            "ADVISOR_EARLY": w.early,
            "ADVISOR_PREFETCH": w.prefetch,
            "ADVISOR_FETCH_AHEAD": FETCH_AHEAD,
            "ADVISOR_CLUSTER": size,
            "ADVISOR_SCHEDULE": SCHEDULES[c.schedule],
            "ADVISOR_MIN_CTAS": w.ctas_per_sm,
        },
        entry=ENTRY,
        images={target: f"build/{kernel_id}.{target}.cubin" for target in IMAGES[c.family]},
        block=(c.threads, 1, 1),
        cluster=c.cluster,
        nonportable=c.nonportable,
        dynamic_smem_bytes=need.dynamic_smem_bytes,
        registers=need.registers,
        grid_blocks=(grid, 1, 1),
        params=_params(p),
        tile=c.tile,
    )
    conditions = []
    if c.family != "portable":
        conditions += [f"aligned('{name}', {VECTOR_BYTES})" for name in _buffers(p)]
        conditions += [f"(rows <= 1 or row_stride * {p.in_bytes} % {VECTOR_BYTES} == 0)"]
        if p.elementwise:
            conditions += [f"(rows <= 1 or out_stride * {p.out_bytes} % {VECTOR_BYTES} == 0)"]
        if w.vectors:
            conditions.append(f"cols <= {capacity(p, c)}")
    return [
        KernelSpec(
            kernel=kernel,
            template=TEMPLATE,
            context=asdict(context(p, c.family)),
            role="portable" if c.family == "portable" else "chosen",
            conditions=conditions,
            traced=kernel.model_copy(
                update={
                    "id": f"{kernel_id}_traced",
                    "defines": {**kernel.defines, "ADVISOR_TRACE": 1},
                    "params": [*kernel.params, PtrParam(name="trace", buffer="trace")],
                }
            ),
            trace_shape=[items, size],
        )
    ]


def _buffers(p: RowReduceProblem) -> list[str]:
    return ["X", *(["Y"] if p.elementwise else []), *(["weight"] if p.weight else []), *(["bias"] if p.bias else [])]


def _params(p: RowReduceProblem) -> list[Param]:
    """The entry's parameters in order. What the problem does not have is a null pointer."""
    pointers: dict[str, str | None] = {
        "x": "X",
        "y": "Y",
        "weight": "weight" if p.weight else None,
        "bias": "bias" if p.bias else None,
    }
    params: list[Param] = [PtrParam(name=name, buffer=buffer) for name, buffer in pointers.items()]
    params += [ScalarParam(kind="u32", name=name, value=name) for name in ("rows", "cols")]
    params += [ScalarParam(kind="i64", name=name, value=name) for name in ("row_stride", "out_stride")]
    return [*params, ScalarParam(kind="f32", name="eps", value="eps")]
