"""What a candidate costs: the equations of docs/planner.md over the columns of a table. Imports `machine`, `problem`.

Times inside are cycles of the boost clock, so that a byte rate per clock means the same everywhere; what leaves is
microseconds. Rates that a profile holds come from the profile. The constants of `Tuning` do not: they describe how the
kernels of a family use the hardware, and stand with where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.gemm.space import LEGAL, SCHEDULE_RANK, Bools, Ints, Table, free_clusters
from advisor.machine.profile import DeviceProfile
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Family, Raster
from advisor.records.rows import Violation

Floats = NDArray[np.float64]

ONE_TILE, STATIC, TICKET, CLC = (SCHEDULE_RANK[each] for each in ("one_tile", "static", "ticket", "clc"))
RASTER_GROUPS = (1, 2, 4, 8, 16, 32)
SWAP_MAX_M = 128  # one MMA tile of M: a swap pays where m would leave most of it empty
L2_USABLE = 0.6  # of the L2: the rest holds what streams through and D on its way out
POWER_EXPONENT = 0.5  # clock under a power cap ~ (SMs at work)^-0.5: power ~ SMs x clock^2
BOUNDS = ("tensor", "smem", "l2", "sm_fill", "latency")


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the kernels of a family use an SM."""

    issue: float  # share of the tensor rate that a steady main loop reaches
    bubble: float  # tensor cycles lost at each K step: fences, the wait for the oldest group
    sharpness: (
        float  # exponent of the norm that joins the bounds of one K step: 1 adds them, infinity takes the largest
    )
    fill_weight: float  # share of a TMA write that competes with the MMA's reads for shared memory cycles
    fill_bytes_per_clk: float  # most that one SM takes in
    latency: float  # cycles from a load's issue to its barrier, from memory
    cold: float  # extra L2 cycles of a byte's first read: written into the L2 of each die before it is read
    setup: float  # cycles from a cluster's start to its first load
    barriers: (
        float  # cluster barriers of a launch: before the first remote access and before the exit; two more for TMEM
    )
    store_bytes_per_clk: float  # accumulator to D, one SM
    store_latency: float
    hides: float  # share of the epilogue that runs under the worker's next main loop


TUNING: dict[Family, Tuning] = {
    "sm100": Tuning(1.0, 0.0, 5.0, 0.33, 128.0, 1300.0, 2.1, 100.0, 2.0, 75.0, 240.0, 1.0),
    "sm90": Tuning(1.0, 30.0, 5.0, 0.33, 64.0, 1100.0, 1.0, 300.0, 2.0, 40.0, 500.0, 0.4),
    "portable": Tuning(0.62, 0.0, 3.0, 1.0, 40.0, 1100.0, 1.0, 200.0, 0.0, 24.0, 500.0, 0.0),
}
_EXPECTED_MAX = np.interp(np.arange(17), (1, 2, 4, 8, 16), (0.0, 0.564, 1.029, 1.424, 1.766))
# of n standard normal costs: what the slowest of n CTAs is above the mean, in standard deviations
PAIR_BARRIERS = 2.5  # of a CTA pair: around the TMEM allocation, before its release, and the exit


@dataclass(frozen=True, eq=False)
class Costs:
    """One entry per candidate; microseconds unless the name says otherwise."""

    time_us: Floats  # infinite where illegal
    makespan_us: Floats
    main_us: Floats  # main loop of one cluster tile
    prologue_us: Floats
    epilogue_us: Floats
    overlap: Floats
    claim_us: Floats
    reduce_us: Floats  # what split-K adds
    dram_us: Floats
    dram_bytes: Floats
    l2_bytes: Floats
    steps: dict[str, Floats]  # cycles of one K step under each bound
    k_steps: Ints
    tiles_m: Ints  # useful CTA tiles
    tiles_n: Ints
    clusters: Ints  # cluster tiles of the launch
    planned: Ints  # clusters of the grid
    resident: Ints
    available: Ints  # clusters that run while other work holds its SMs
    raster_group: Ints
    raster_along_m: Bools
    reason: Ints
    reasons: tuple[Violation, ...]


def tensor_rate(profile: DeviceProfile, family: Family, dtype: str) -> float:
    """Dense FLOP per clock of one SM for an operand type."""
    key = "fp8" if dtype in ("e4m3", "e5m2") else dtype
    rates = profile.mma_sync_flop_per_clk_per_sm if family == "portable" else profile.tensor_flop_per_clk_per_sm
    return rates.get(key) or rates.get("fp16") or min(rates.values())


def ceil_div(a: Ints | int, b: Ints | int) -> Ints:
    return np.asarray(-(-np.asarray(a) // b), dtype=np.int64)


def evaluate(
    p: GemmProblem,
    t: Table,
    *,
    resident: Ints | None = None,
    restrict: Bools | None = None,
) -> Costs:
    """Cost and extent-dependent legality of every row. `resident` overrides the formula where a GPU answered;
    `restrict` marks the rows of a narrower space."""
    profile, tune = t.profile, TUNING[t.family]
    resident = t.resident if resident is None else resident
    clk = profile.max_clock_hz / 1e6  # cycles per microsecond
    extent_m = np.where(t.swap, p.n, p.m)
    extent_n = np.where(t.swap, p.m, p.n)
    tiles_m, tiles_n = ceil_div(extent_m, t.tile_m), ceil_div(extent_n, t.tile_n)
    across_m, across_n = ceil_div(tiles_m, t.cluster_x), ceil_div(tiles_n, t.cluster_y)
    scratch = np.where(t.cluster_z > 1, 1, t.split)
    clusters = across_m * across_n * p.batch * scratch
    all_steps = np.maximum(1, ceil_div(p.k, t.tile_k))
    k_steps = ceil_div(all_steps, t.split)

    budget = p.constraints.sm_budget
    pool = resident if budget is None else np.minimum(resident, budget // t.size)
    available = _available(t, pool, resident, p.shared_gpu.busy_sms)
    persistent = t.schedule != ONE_TILE
    planned = np.where(persistent & (t.schedule != CLC), np.minimum(clusters, pool), clusters)
    working = np.minimum(clusters, np.maximum(1, available)) * t.size
    per_sm = np.maximum(1.0, np.minimum(t.ctas_per_sm, working / profile.sms))
    active_share = np.minimum(1.0, working / profile.sms)

    shape = (extent_m / tiles_m, extent_n / tiles_n)
    all_tiles = tiles_m * tiles_n * p.batch
    steps, l2_bytes = _step_bounds(p, t, tune, shape, working, per_sm, active_share, k_steps, all_tiles)
    main = k_steps * _norm(tune.sharpness, *(steps[name] for name in BOUNDS))

    if p.assume.tile_cost_cv > 0.0:  # CTAs that share loads wait for the slowest of them
        main = main * (1.0 + p.assume.tile_cost_cv * _EXPECTED_MAX[np.minimum(t.size // t.mma_ctas, 16)])

    useful = np.minimum(extent_m / tiles_m, t.tile_m) * np.minimum(extent_n / tiles_n, t.tile_n)
    d_bytes = p.d.element_bytes + (p.c.element_bytes if p.uses_c else 0)
    sliced = scratch > 1
    out_bytes = useful * np.where(sliced, 4, d_bytes)
    exchange = np.where(
        t.cluster_z > 1,
        useful * 4 * (t.cluster_z - 1) / t.cluster_z / profile.dsmem_bytes_per_clk_per_sm
        + profile.cluster_barrier_cycles,
        0.0,
    )
    own_store = np.where(t.cluster_z > 1, out_bytes / t.cluster_z, out_bytes)
    epilogue = tune.store_latency + own_store / tune.store_bytes_per_clk * per_sm + exchange
    barriers = np.where(t.mma_ctas == 2, PAIR_BARRIERS, np.where(t.size > 1, tune.barriers, 0.0))
    prologue = tune.setup + tune.latency + barriers * profile.cluster_barrier_cycles
    overlap = np.where(persistent, _hidden(t, tune), 0.0)
    claim = np.where(
        t.schedule == CLC,
        profile.clc_round_trip_cycles,
        np.where(t.schedule == TICKET, profile.atomic_round_trip_cycles, 0.0),
    )
    makespan = _makespan(
        t, clusters, planned, available, main, prologue, epilogue, overlap, claim, p.assume.tile_cost_cv
    )

    dram_bytes, group, along_m = _dram(p, t, resident)
    dram = dram_bytes / profile.dram_bytes_per_s * 1e6 * clk
    reduce = np.where(
        sliced,
        clk * profile.launch_us
        + tune.latency
        + (scratch * 4.0 + p.d.element_bytes)
        * p.m
        * p.n
        * p.batch
        / (0.5 * profile.l2_bytes_per_clk_per_sm * profile.sms),
        0.0,
    )
    total = profile.launch_us * clk + _norm(tune.sharpness, makespan, dram) + reduce
    reason, reasons = _extent_reasons(p, t, resident, tiles_m, tiles_n, all_steps, clusters)
    if restrict is not None:
        reason = np.where((reason == LEGAL) & ~restrict, len(reasons), reason)
        reasons = (*reasons, Violation("OUT_OF_SPACE", "outside the space that was asked for"))
    time = np.where(reason == LEGAL, total / clk, np.inf)
    return Costs(
        time_us=time,
        makespan_us=makespan / clk,
        main_us=main / clk,
        prologue_us=prologue / clk,
        epilogue_us=epilogue / clk,
        overlap=overlap,
        claim_us=claim / clk,
        reduce_us=reduce / clk,
        dram_us=dram / clk,
        dram_bytes=dram_bytes,
        l2_bytes=l2_bytes,
        steps=steps,
        k_steps=k_steps,
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        clusters=clusters,
        planned=planned,
        resident=resident,
        available=available,
        raster_group=group,
        raster_along_m=along_m,
        reason=reason,
        reasons=reasons,
    )


def _norm(power: float, *parts: Floats) -> Floats:
    """The `power` norm of what competes: close to the largest, above it where two are near each other."""
    largest = parts[0]
    for part in parts[1:]:
        largest = np.maximum(largest, part)
    safe = np.maximum(largest, 1e-9)
    total = np.zeros_like(safe)
    for part in parts:
        total += (part / safe) ** power
    return np.asarray(safe * total ** (1.0 / power))


def _step_bounds(
    p: GemmProblem,
    t: Table,
    tune: Tuning,
    shape: tuple[Floats, Floats],
    working: Ints,
    per_sm: Floats,
    active_share: Floats,
    k_steps: Ints,
    tiles: Ints,
) -> tuple[dict[str, Floats], Floats]:
    """Cycles of one K step of one CTA under each bound, and the L2 bytes of the launch.

    Bytes that a box reads outside the matrix are zeros made by the TMA unit: they fill shared memory and cost no L2.
    """
    profile, (rows, columns) = t.profile, shape
    k_bytes = t.tile_k * p.a.element_bytes
    rate = tensor_rate(profile, t.family, p.a.dtype)
    half = np.where(t.tile_m == 64, 2.0, 1.0) if t.family == "sm100" else 1.0  # M 64 uses half of the lanes
    work = 2.0 * t.tile_m * t.tile_n * t.tile_k / (rate * tune.issue) * half
    # Power holds the clock down as more SMs multiply. It grows with about the square of the clock.
    throttle = np.maximum(1.0, active_share**POWER_EXPONENT * (profile.max_clock_hz / profile.clock_hz))
    tensor = (work + tune.bubble) * per_sm * throttle

    a_box, b_box = t.tile_m * k_bytes, t.tile_n // t.mma_ctas * k_bytes
    readers = t.tile_m // 64 if t.family == "sm90" else 1  # every wgmma of 64 rows reads B again
    reuse = 2.0 if t.family == "portable" else 1.0  # warps of a CTA read the same fragments again
    smem = (
        (reuse * (a_box + b_box * readers) + tune.fill_weight * (a_box + b_box)) / profile.smem_bytes_per_clk * per_sm
    )

    a_use, b_use = rows * k_bytes, columns / t.mma_ctas * k_bytes
    fill = (a_use + b_use) / tune.fill_bytes_per_clk * per_sm
    spread_b = np.maximum(1, t.cluster_x // t.mma_ctas)
    issued = a_use / t.cluster_y + b_use / spread_b
    l2_bytes = issued * k_steps * t.split * tiles
    first = float((p.m * p.k + p.n * p.k) * p.batch * p.a.element_bytes)
    cold = 1.0 + tune.cold * np.minimum(1.0, first / np.maximum(l2_bytes, 1.0))
    l2 = issued * working / (profile.l2_bytes_per_clk_per_sm * profile.sms) * cold
    flight = (
        tune.latency / t.stages * np.ones_like(l2)
    )  # Little's law: a stage comes back one latency after it was asked
    return {"tensor": tensor, "smem": smem, "l2": l2, "sm_fill": fill, "latency": flight}, l2_bytes


def _hidden(t: Table, tune: Tuning) -> Floats:
    """Share of the epilogue that hides: all of it needs a second accumulator."""
    if t.family != "sm100":
        return np.full(t.rows, tune.hides)
    columns = np.where((t.mma_ctas == 2) & (t.tile_m == 64), t.tile_n // 2, t.tile_n)
    return np.where((2 * columns <= 512) & (t.cluster_z == 1), tune.hides, 0.0)


def _available(t: Table, pool: Ints, resident: Ints, busy_sms: int) -> Ints:
    """Clusters that run at once while other work holds SMs."""
    if busy_sms <= 0:
        return pool
    rows, inverse = np.unique(t.ctas_per_sm * 64 + np.minimum(t.size, 63), return_inverse=True)
    free = np.array([free_clusters(t.profile, int(row) // 64, int(row) % 64, busy_sms) for row in rows])[inverse]
    return np.asarray(np.minimum(pool, np.minimum(free, resident)), dtype=np.int64)


def _makespan(
    t: Table,
    clusters: Ints,
    planned: Ints,
    available: Ints,
    main: Floats,
    prologue: Floats,
    epilogue: Floats,
    overlap: Floats,
    claim: Floats,
    cv: float,
) -> Floats:
    """Cycles from the first cluster's start to the last one's end; the closed forms of `simulation` for equal tiles.

    With skewed tiles a term for the unluckiest worker stands in; the plan's finalists are simulated.
    """
    places = np.maximum(1, available)
    hidden = np.minimum(epilogue * overlap, main)
    step = main + epilogue - hidden
    # One tile: CTAs that share an SM run each other's prologue and epilogue under their main loops.
    shared = np.clip(t.ctas_per_sm, 1, 2)
    lone = np.where(shared > 1, np.maximum(main, (main + prologue + epilogue) / shared), main + prologue + epilogue)
    waves = ceil_div(clusters, places)
    one_tile = (waves - 1) * lone + prologue + main + epilogue
    # How many SMs other work holds is a snapshot: a static grid is charged for one place fewer than it says.
    turns = ceil_div(np.maximum(1, planned), np.where(available < t.resident, np.maximum(1, places - 1), places))
    quota = ceil_div(clusters, np.maximum(1, planned))
    static = turns * (prologue + quota * step + hidden)
    dynamic = prologue + waves * step + hidden + np.maximum(0.0, claim - main) * (waves - 1)
    if cv > 0.0:
        spread = main * cv
        rounds = clusters / places
        one_tile = prologue + rounds * lone + spread * 1.5 + main
        static = static + spread * np.sqrt(2.0 * quota * np.log(np.maximum(2, planned)))
        dynamic = prologue + rounds * step + hidden + spread * 1.5 + main * 0.5
    return np.where(t.schedule == ONE_TILE, one_tile, np.where(t.schedule == STATIC, static, dynamic))


def _dram(p: GemmProblem, t: Table, resident: Ints) -> tuple[Floats, Ints, Bools]:
    """DRAM bytes of the launch with the best raster, and that raster.

    A band of `group` cluster rows is swept along the other axis. What a band reuses stays in the L2 if it fits beside
    what streams past; else it is read again, once a wave or once a band.
    """
    eb = p.a.element_bytes
    compulsory = (p.m * p.k + p.n * p.k) * p.batch * eb
    out = p.m * p.n * p.batch * (p.d.element_bytes + (p.c.element_bytes if p.uses_c else 0))
    usable = L2_USABLE * t.profile.l2_bytes
    if compulsory / max(1, p.batch) <= usable:
        return (
            np.full(t.rows, float(compulsory + out)),
            np.full(t.rows, 8, dtype=np.int64),
            np.ones(t.rows, dtype=np.bool_),
        )
    cluster_m, cluster_n = t.tile_m * t.cluster_x, t.tile_n * t.cluster_y
    key = ((cluster_m * 8192 + cluster_n) * 4096 + np.minimum(resident, 4095)) * 2 + t.swap
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    cm, cn, wave, swap = cluster_m[first], cluster_n[first], np.maximum(1, resident[first]), t.swap[first]
    extent_m, extent_n = np.where(swap, p.n, p.m), np.where(swap, p.m, p.n)
    best = np.full(len(first), np.inf)
    group_of = np.full(len(first), 8, dtype=np.int64)
    along_m_of = np.ones(len(first), dtype=np.bool_)
    for along_m in (True, False):
        tall, wide = (cm, cn) if along_m else (cn, cm)
        across, along = (extent_m, extent_n) if along_m else (extent_n, extent_m)
        for group in RASTER_GROUPS:
            band = np.minimum(across, group * tall) * p.k * eb
            columns = np.maximum(1, wave // group)
            streamed = np.minimum(along, columns * wide) * p.k * eb
            bands = ceil_div(across, group * tall)
            waves = ceil_div(ceil_div(along, wide), columns)
            kept_band = np.where(band + streamed <= usable, 1, waves)
            kept_stream = np.where(along * p.k * eb + band <= usable, 1, bands)
            bytes_ = (across * p.k * eb * kept_band + along * p.k * eb * kept_stream) * float(p.batch)
            better = bytes_ < best * 0.999
            best = np.where(better, bytes_, best)
            group_of = np.where(better, group, group_of)
            along_m_of = np.where(better, along_m, along_m_of)
    return (best + out)[inverse], group_of[inverse], along_m_of[inverse]


def raster_of(costs: Costs, i: int) -> Raster:
    """The raster that the DRAM bytes of row `i` were counted for."""
    return Raster("along_m" if costs.raster_along_m[i] else "along_n", int(costs.raster_group[i]))


# ---- clauses that need the extents ---------------------------------------------------------------------------------


def _extent_reasons(
    p: GemmProblem,
    t: Table,
    resident: Ints,
    tiles_m: Ints,
    tiles_n: Ints,
    all_steps: Ints,
    clusters: Ints,
) -> tuple[Ints, tuple[Violation, ...]]:
    """The static reasons, joined by those that need the problem's extents, the constraints or the residency."""
    reason = t.reason.copy()
    reasons = list(t.reasons)
    limit = p.constraints.max_cluster_size
    for violation, broken in _clauses(p, t, resident, tiles_m, tiles_n, all_steps, clusters, limit):
        hit = broken & (reason == LEGAL)
        if hit.any():
            reason[hit] = len(reasons)
            reasons.append(violation)
    return reason, tuple(reasons)


def _clauses(
    p: GemmProblem,
    t: Table,
    resident: Ints,
    tiles_m: Ints,
    tiles_n: Ints,
    all_steps: Ints,
    clusters: Ints,
    limit: int,
) -> list[tuple[Violation, Bools]]:
    profile, cluster = t.profile, t.forced[0]
    found: list[tuple[Violation, Bools]] = []
    largest = profile.max_cluster_size
    over = t.size > largest
    if largest < 2:
        found.append(
            (Violation("NO_CLUSTERS", f"{profile.title} has no clusters", {"max_cluster_size": largest}), over)
        )
    elif largest <= 8:
        text = f"{profile.title} runs clusters of at most {largest}"
        found.append((Violation("MAX_CLUSTER_8", text, {"max_cluster_size": largest}), over))
    else:
        text = f"a cluster holds at most {largest} CTAs on {profile.title}, with the opt-in above 8"
        found.append((Violation("CLUSTER_OVER_16", text, {"max_cluster_size": largest}), over))
    text = f"constraints.max_cluster_size is {limit}"
    found.append((Violation("CLUSTER_OVER_CONSTRAINT", text, {"max_cluster_size": limit}), t.size > limit))
    budget = p.constraints.sm_budget
    if budget is not None:
        text = f"sm_budget {budget}: one-tile and CLC launch the whole grid on every SM; static and ticket keep to it"
        whole_grid = ((t.schedule == CLC) | (t.schedule == ONE_TILE)) & (t.family != "portable")
        found.append((Violation("SM_BUDGET_SCHEDULE", text, {"sm_budget": budget}), whole_grid))
        text = f"sm_budget {budget} holds no cluster of this size"
        found.append((Violation("SM_BUDGET_CLUSTER", text, {"sm_budget": budget}), t.size > budget))
    text = f"no cluster of this size is resident on {profile.title} with this footprint"
    found.append((Violation("ZERO_ACTIVE_CLUSTERS", text, {"max_active_clusters": 0}), resident <= 0))
    if cluster is None:
        pair_alone = (t.mma_ctas == 2) & (t.cluster_x == 2)
        wide = ((t.cluster_x > tiles_m) & ~(pair_alone & (t.forced[4] == 2))) | (t.cluster_y > tiles_n)
        found.append(
            (
                Violation("CLUSTER_EXCEEDS_TILES", "the cluster is wider than the tiles along that axis"),
                np.asarray(wide),
            )
        )
    fewest = int(all_steps.min())
    text = f"{fewest} K steps are fewer than the slices"
    deep = (t.split > 1) & (t.split > all_steps)
    found.append((Violation("SPLIT_K_TOO_DEEP", text, {"k_steps": fewest}), np.asarray(deep)))
    if p.k == 0:
        found.append((Violation("SPLIT_K_TOO_DEEP", "k is 0: there is nothing to split", {"k_steps": 0}), t.split > 1))
    if t.forced[6] is None:
        text = f"m is {p.m}: above {SWAP_MAX_M} it fills the MMA's M by itself, and a swap gains nothing"
        found.append((Violation("SWAP_AB_RANGE", text, {"m": p.m, "limit": SWAP_MAX_M}), t.swap & (p.m > SWAP_MAX_M)))
    text = "split-K is for one-tile and static schedules"
    dynamic = (t.split > 1) & ((t.schedule == TICKET) | (t.schedule == CLC))
    found.append((Violation("SPLIT_K_SCHEDULE", text), dynamic))
    in_x = clusters * t.cluster_x
    text = "the grid's x dimension is above 2^31 - 1"
    found.append((Violation("GRID_DIM_LIMIT", text, {"limit": 2**31 - 1}), in_x > 2**31 - 1))
    return found
