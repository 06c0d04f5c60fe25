"""What of a GEMM kernel can be counted without the chip. Imports `cost`, `launches`, `sm100`, `records`, `machine`.

Every row is arithmetic over the plan, or names the count that a build or the emulator has to give and what the plan
says it must be. Cycles are those of one SM at the boost clock. Nothing here was measured on the chip.
"""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path

from advisor.kinds.gemm import cost, launches, sm100
from advisor.kinds.workload import Timing
from advisor.machine.profile import DeviceProfile
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.counts import CountRow, Published
from advisor.records.plan import Prediction
from advisor.records.rows import TileMap, Traffic

PUBLISHED = Path(__file__).parent.parent.parent / "data" / "published_gemm.csv"
NEAREST = 3
COMPARABLE = 4.0  # largest factor between a published extent and the problem's
TYPE_CLASS = {"bf16": "16-bit", "fp16": "16-bit", "e4m3": "fp8", "e5m2": "fp8", "tf32": "tf32"}

MMA_K_BYTES = 32  # of K in one tensor core instruction, whatever the type
# 16 TB/s is what arXiv 2512.02189 gives for reads of tensor memory. It says "per SM", which cannot be; taken for a
# whole B200 of 148 SMs at 1.965 GHz, it is the lowest rate that a reading of the source allows.
TMEM_READ_BYTES_PER_CLK = 16e12 / (148 * 1.965e9)
TMEM_LATENCY_CYCLES = 420.0  # the same source; once for each chunk, because a warp waits for one before the next
ISSUE_CYCLES = 6.0  # of one instruction of a warp that waits for each result: assumed

BYTES, SMEM, ISSUE, CLAIM, PEAK = (
    "bytes over TMA", "shared memory", "issue and epilogue", "claim of work", "share of peak",
)  # fmt: skip

GROUPS = (BYTES, SMEM, ISSUE, CLAIM, PEAK)


def rows(
    p: GemmProblem,
    c: Candidate,
    profile: DeviceProfile,
    *,
    tiles: TileMap,
    traffic: Traffic,
    timing: Timing,
    prediction: Prediction,
) -> list[CountRow]:
    """The rows of a candidate's main kernel."""
    found = _bytes(p, c, tiles, traffic) if c.family != "portable" else []
    found += [CountRow(group=BYTES, name="the launch asks the L2 for", unit="bytes", value=traffic.l2_read_bytes)]
    found += _shared_memory(p, c, profile, tiles) if c.family != "portable" else []
    if c.family == "sm100":
        found += [*_multiplication(p, c, profile), *_epilogue(p, c, profile, tiles, timing)]
    found += [*_machine_code(p, c), *_claims(c, timing), *_peak(p, profile, c, prediction)]
    return sorted(found, key=lambda row: GROUPS.index(row.group))


# --- bytes --------------------------------------------------------------------------------------------------------


def boxes(p: GemmProblem, c: Candidate) -> tuple[int, int]:
    """(A, B) bytes that one K step puts into the shared memory of one CTA."""
    k_bytes = c.tile[2] * p.a.element_bytes
    return c.tile[0] * k_bytes, c.tile[1] // c.work.mma_ctas * k_bytes


def _bytes(p: GemmProblem, c: Candidate, tiles: TileMap, traffic: Traffic) -> list[CountRow]:
    a, b = boxes(p, c)
    of_a, of_b = launches.sharers(p, c)
    steps = tiles.k_steps
    issued = traffic.tma_bytes_per_tile // steps
    found = [
        CountRow(
            group=BYTES,
            name="loaded by a CTA's own copies, a K step",
            unit="bytes",
            value=issued,
            how=f"A {a} / {of_a} + B {b} / {of_b}: a load serves that many CTAs",
        ),
        _issued_row(p, c, issued),
        CountRow(
            group=BYTES,
            name="arriving in a CTA's shared memory, a K step",
            unit="bytes",
            value=a + b,
            how=f"A {a} + B {b}, what peers send included",
        ),
        _counted("smem_bytes_per_step", "the same, announced to the barrier", "bytes", BYTES, a + b),
        CountRow(
            group=BYTES,
            name="over TMA for one tile of a CTA",
            unit="bytes",
            value=traffic.tma_bytes_per_tile,
            how=_k_steps(steps),
        ),
    ]
    if of_a * of_b > 1:
        share = 1.0 - issued / (a + b)
        found.append(
            CountRow(group=BYTES, name="of it by the multicast of a peer", unit="%", value=100.0 * share, how="derived")
        )
    return found


def _issued_row(p: GemmProblem, c: Candidate, issued: int) -> CountRow:
    """Where a launch mixes two sizes of clusters, the smaller ones share less: they bound the average."""
    row = _counted("tma_bytes_per_step", "the same, on average over the CTAs of a launch", "bytes", BYTES, issued)
    if c.work.preferred_cluster is None:
        return row
    a, b = boxes(p, c)
    of_a, of_b = launches.sharers(p, c.in_smaller_clusters)
    most = a // of_a + b // of_b
    return row.model_copy(
        update={"relation": "at_most", "limit": most, "limit_is": "the plan, were every cluster of the smaller size"}
    )


def _k_steps(count: int) -> str:
    return f"{count} K step{'s' * (count != 1)}"


# --- shared memory ------------------------------------------------------------------------------------------------


def step_cycles(p: GemmProblem, c: Candidate, profile: DeviceProfile) -> float:
    """Cycles that the tensor core of one SM takes for one K step of its tile."""
    half = 2.0 if c.family == "sm100" and c.tile[0] == 64 else 1.0  # 64 rows use half of the lanes
    m, n, k = c.tile
    return 2.0 * m * n * k / cost.tensor_rate(profile, c.family, p.a.dtype) * half


def _shared_memory(p: GemmProblem, c: Candidate, profile: DeviceProfile, tiles: TileMap) -> list[CountRow]:
    a, b = boxes(p, c)
    cycles = step_cycles(p, c, profile)
    rows_of_wgmma = c.tile[0] // 64 if c.family == "sm90" else 1
    reads, fills = a + b * rows_of_wgmma, a + b
    through = 2 * c.tile[0] * c.tile[1] * p.d.element_bytes if cost.stores_through_tma(p, c.family) else 0
    if cost.loads_c_through_tma(p, c.family):
        through += 2 * c.tile[0] * c.tile[1] * p.c.element_bytes
    if launches.slices_in_scratch(c):
        through = 0
    per_step = through / tiles.k_steps
    limit = profile.smem_bytes_per_clk
    weight = cost.TUNING[c.family].fill_weight
    charged = (reads + weight * fills) / cycles
    several = f" x {rows_of_wgmma} warpgroups' rows" if rows_of_wgmma > 1 else ""

    def rate(name: str, value: float, how: str, beyond: str = "does not fit") -> CountRow:
        return CountRow(
            group=SMEM,
            name=name,
            unit="B/clk",
            value=value,
            how=how,
            relation="at_most",
            limit=limit,
            limit_is="of one SM",
            beyond=beyond,
        )

    return [
        rate(
            "read by the MMA",
            reads / cycles,
            f"A {a} + B {b}{several}, {cycles:g} cycles a K step",
            "does not fit: the tensor core cannot run at its full rate for these reads",
        ),
        rate(
            "written by TMA",
            fills / cycles,
            f"A {a} + B {b}, {cycles:g} cycles a K step",
            "does not fit: the tensor core cannot run at its full rate for these copies",
        ),
        rate(
            "the epilogue's way through it",
            per_step / cycles,
            f"{through} bytes a tile, written and read, over {_k_steps(tiles.k_steps)}",
        ),
        rate(
            "all together, none of it overlapping",
            (reads + fills + per_step) / cycles,
            f"the cost model charges {weight:g} of what TMA writes (assumed), so that it sees {charged:.4g}",
            "does not fit if every byte that TMA writes keeps the MMA from reading one",
        ),
    ]


# --- the multiplication and the epilogue --------------------------------------------------------------------------


def _multiplication(p: GemmProblem, c: Candidate, profile: DeviceProfile) -> list[CountRow]:
    cycles = step_cycles(p, c, profile)
    products = c.tile[2] * p.a.element_bytes // MMA_K_BYTES
    adds = c.tile[0] * c.tile[1] * c.tile[2]
    return [
        CountRow(
            group=ISSUE,
            name="MMA instructions of a K step",
            value=products,
            how=f"{c.tile[2] * p.a.element_bytes} bytes of K, {MMA_K_BYTES} an instruction",
        ),
        _of("ptx", "tcgen05_mma", "the same in the PTX of the loop", products),
        _of("sass", "tcgen05_mma", "the same in the SASS of the loop", products),
        _counted("multiply_adds_per_step", "multiply-adds of a CTA, a K step", "", ISSUE, adds),
        CountRow(
            group=ISSUE,
            name="the tensor core's time for a K step",
            unit="cycles",
            value=cycles,
            how=f"{c.tile[0]} x {c.tile[1]} x {c.tile[2]} at the profile's rate",
        ),
        CountRow(
            group=ISSUE,
            name="instructions of the loop that issues them",
            source="sass",
            key="main_loop_instructions",
            how="one thread waits for a stage, issues its MMAs and commits",
            relation="at_most",
            limit=math.floor(cycles / ISSUE_CYCLES),
            limit_is=f"that time, {ISSUE_CYCLES:g} cycles an instruction (assumed)",
            beyond="issue takes longer than the products: the loop is bound by its one thread",
        ),
    ]


def _epilogue(p: GemmProblem, c: Candidate, profile: DeviceProfile, tiles: TileMap, timing: Timing) -> list[CountRow]:
    bytes_ = c.tile[0] * c.tile[1] * 4
    chunks = sm100.accumulator_columns(c) // sm100.chunk_columns(p, c)
    two = sm100.accumulators(c) == 2
    main = tiles.k_steps * step_cycles(p, c, profile)
    cycles = bytes_ / TMEM_READ_BYTES_PER_CLK + chunks * TMEM_LATENCY_CYCLES
    nothing = (
        "nothing: the tile has no next main loop to hide under"
        if c.schedule == "one_tile"
        else ("nothing: tensor memory holds one accumulator")
    )
    hidden = "hidden under the next tile's MMAs" if two else "hidden"
    return [
        CountRow(
            group=ISSUE,
            name="tensor memory read for one tile of a CTA",
            unit="bytes",
            value=bytes_,
            how=f"{c.tile[0]} x {c.tile[1]} sums of 4 bytes",
        ),
        _counted("tmem_bytes_per_tile", "the same", "bytes", ISSUE, bytes_),
        CountRow(
            group=ISSUE,
            name="time of those reads",
            unit="cycles",
            value=cycles,
            how=f"{TMEM_READ_BYTES_PER_CLK:.3g} B/clk, the lowest reading of arXiv 2512.02189, and "
            f"{TMEM_LATENCY_CYCLES:g} for each of {chunks} chunks",
            relation="at_most",
            limit=main if two else 0,
            limit_is=f"the tensor core's time for {_k_steps(tiles.k_steps)}" if two else nothing,
            within=hidden,
            beyond="not hidden at that rate" if two else "not hidden",
        ),
        CountRow(
            group=ISSUE,
            name="the whole epilogue of a tile",
            unit="us",
            value=timing.epilogue_us,
            how="the cost model's, stores included",
            relation="at_most",
            limit=timing.main_us if two else 0,
            limit_is="the main loop of a tile, the cost model's" if two else nothing,
            within=hidden,
            beyond="not hidden",
        ),
    ]


# --- machine code, claims -----------------------------------------------------------------------------------------


def _machine_code(p: GemmProblem, c: Candidate) -> list[CountRow]:
    found = [
        CountRow(
            group=ISSUE,
            name="instructions that touch local memory",
            source="sass",
            key="local_memory",
            how="spills, or an array indexed at run time",
            relation="at_most",
            limit=0,
            limit_is="none planned",
        )
    ]
    if p.launch.pdl and c.family != "portable":
        found.append(
            _at_least_one("dependency_waits", "waits for the kernel before this one", ISSUE, "ptx", "pdl is asked for")
        )
    if c.work.mma_ctas == 2:
        products = c.tile[2] * p.a.element_bytes // MMA_K_BYTES
        found.append(_of("sass", "tcgen05_pair_mma", "of the MMAs, those of a CTA pair", products))
    if c.family == "sm100" and max(launches.sharers(p, c)) > 1:
        found.append(_at_least_one("tma_multicast_loads", "multicast loads", BYTES))
    if c.schedule == "clc":
        key = "work_requests_multicast" if c.cluster_size > 1 else "work_requests"
        form = ", multicast to the cluster" if c.cluster_size > 1 else ""
        found.append(_of("sass", key, f"requests of work{form}", 1, CLAIM))
    return found


def _claims(c: Candidate, timing: Timing) -> list[CountRow]:
    if c.schedule not in ("clc", "ticket"):
        how = f"the schedule is {c.schedule.replace('_', ' ')}: no work is asked for"
        return [CountRow(group=CLAIM, name="round trip of a request", how=how)]
    what = "a try_cancel" if c.schedule == "clc" else "an atomic"
    found = [
        CountRow(
            group=CLAIM,
            name=f"round trip of {what}",
            unit="us",
            value=timing.claim_us,
            how="the profile's, with its source in the table above",
            relation="at_most",
            limit=timing.main_us,
            limit_is="the main loop of the tile before: a request is one tile ahead",
            within="hidden: one tile ahead is deep enough",
            beyond="not hidden: one tile ahead is not deep enough, each tile waits for the rest",
        )
    ]
    if c.schedule == "clc":
        found += [
            CountRow(
                group=CLAIM,
                name="tiles that a cluster may hold beyond the one it loads",
                value=1,
                how="a request waits for the throttle, which the load warp arrives on as it begins a tile",
                relation="at_most",
                limit=1,
                limit_is="further ahead cost up to 42 % on uneven tiles (sched-pass)",
                within="tight enough",
            ),
            _counted("requests_per_tile", "requests for each tile of a cluster", "", CLAIM, 1),
            _counted("throttled_per_request", "phases of the throttle for each request", "", CLAIM, 1),
        ]
    return found


# --- share of peak ------------------------------------------------------------------------------------------------


def peak_tflops(p: GemmProblem, profile: DeviceProfile, c: Candidate) -> float:
    """TFLOP/s of every tensor core of the GPU at the boost clock."""
    return cost.tensor_rate(profile, c.family, p.a.dtype) * profile.sms * profile.max_clock_hz / 1e12


def _peak(p: GemmProblem, profile: DeviceProfile, c: Candidate, prediction: Prediction) -> list[CountRow]:
    peak = peak_tflops(p, profile, c)

    def rate(time_us: float) -> float:
        return p.flops / time_us / 1e6

    times = (prediction.time_us, prediction.high_us, prediction.low_us)
    predicted, low, high = (rate(each) for each in times)
    kind = "measured" if prediction.evidence == "measured" else "predicted"
    return [
        CountRow(
            group=PEAK,
            name=f"throughput, {kind}",
            unit="TFLOP/s",
            value=predicted,
            low=low,
            high=high,
            how=f"{p.flops / 1e9:.4g} GFLOP in {prediction.time_us:.4g} us",
            relation="at_most",
            limit=peak,
            limit_is=f"{profile.sms} SMs at {profile.max_clock_hz / 1e9:g} GHz",
            within="below the peak",
            beyond="above the peak: it cannot be right",
        ),
        CountRow(
            group=PEAK,
            name=f"share of peak, {kind}",
            unit="%",
            value=100.0 * predicted / peak,
            low=100.0 * low / peak,
            high=100.0 * high / peak,
            how="of the line above",
        ),
    ]


@cache
def _published() -> tuple[dict[str, str], ...]:
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def published(p: GemmProblem, profile: DeviceProfile, c: Candidate) -> list[Published]:
    """The figures that others published for a problem like this, nearest first: one generation of chips, one class of
    types, each extent within a factor of 4."""
    if 0 in (p.m, p.n, p.k):
        return []
    peak = peak_tflops(p, profile, c)
    found: list[tuple[float, float, Published]] = []
    for each in _published():
        extents = tuple(int(each[name]) for name in "mnk")
        apart = [abs(math.log(own / theirs)) for own, theirs in zip((p.m * p.batch, p.n, p.k), extents, strict=True)]
        alike = TYPE_CLASS[each["dtype"]] == TYPE_CLASS.get(p.a.dtype)
        if int(each["cc_major"]) != profile.compute_capability[0] or not alike or max(apart) > math.log(COMPARABLE):
            continue
        tflops = float(each["tflops"])
        row = Published(
            chip=each["chip"],
            dtype=each["dtype"],
            m=extents[0],
            n=extents[1],
            k=extents[2],
            tflops=tflops,
            share_of_peak=tflops / peak,
            kernel=each["kernel"],
            source=each["source"],
        )
        found.append((sum(apart), -tflops, row))
    return [row for _, _, row in sorted(found, key=lambda each: each[:2])[:NEAREST]]


# --- rows that wait for evidence ----------------------------------------------------------------------------------


def _counted(key: str, name: str, unit: str, group: str, planned: float) -> CountRow:
    """A count of the emulator that must be what the plan says."""
    return CountRow(
        group=group,
        name=name,
        unit=unit,
        source="emulator",
        key=key,
        relation="equal",
        limit=planned,
        limit_is="the plan",
        within="as planned",
        beyond="not what the plan says",
    )


def _of(source: str, key: str, name: str, planned: float, group: str = ISSUE) -> CountRow:
    """A count of the PTX or the SASS that must be what the plan says."""
    return CountRow.model_validate({**_counted(key, name, "", group, planned).model_dump(), "source": source})


def _at_least_one(key: str, name: str, group: str, source: str = "sass", why: str = "multicast is planned") -> CountRow:
    planned = _of(source, key, name, 1, group)
    return planned.model_copy(update={"relation": "at_least", "limit_is": why})
