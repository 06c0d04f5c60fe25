"""What a candidate costs: the equations of docs/planner.md over the columns of a table. Imports `machine`, `problem`.

Times inside are cycles of the boost clock, so that a byte rate per clock means the same everywhere; what leaves is
microseconds. Rates that a profile holds come from the profile. The constants of `Tuning` do not: they describe how the
kernels of a family use the hardware, and stand with where they come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.gemm.space import LEGAL, SCHEDULE_RANK, Bools, Ints, Table
from advisor.kinds.gemm.tma import store_through_tma
from advisor.kinds.gemm.work import Raster
from advisor.kinds.workload import DRAM_SHARPNESS
from advisor.machine.occupancy import free_clusters
from advisor.machine.profile import DeviceProfile
from advisor.problem.gemm import GemmProblem, Matrix
from advisor.records.candidate import Family
from advisor.records.rows import Violation

Floats = NDArray[np.float64]

ONE_TILE, STATIC, TICKET, CLC = (SCHEDULE_RANK[each] for each in ("one_tile", "static", "ticket", "clc"))
RASTER_GROUPS = (1, 2, 4, 8, 16, 32)
USUAL_RASTER = Raster("along_n", 8)  # measured best or equal on an H200; another one has to save bytes for sure
CLEAR_GAIN = 0.95
HARMLESS = 0.5  # of the time in which the launch could have read the bytes: the norm then adds 1.5 %
SWAP_MAX_M = 256  # the widest N of an MMA: one tile then has all of m, without a row to spare
ADDITION_SHARE = 0.88  # of the additions that one set of sums leaves between the products: fp8 precise, fitted
SECTOR_BYTES = 32  # of a line of the L2; what is written in part costs more
STORE_UNIT_BYTES = 16  # of the contiguous extent of D: what ends within one is stored from registers
LINE_BYTES = 128  # of the L2; rows that begin between two lines ask for both
L2_USABLE = 0.6  # of the L2: the rest holds what streams through and D on its way out
BOUNDS = ("tensor", "smem", "l2", "sm_fill", "latency")
LANES = 128  # of one SM: elements that one instruction of the epilogue treats in a cycle
ISSUE_SLOTS = {"none": 0.0, "relu": 2.0, "silu": 20.0, "gelu": 19.0}  # instructions a value; SASS of the kernels
C_SLOTS, BIAS_SLOTS = 13.5, 2.0  # the same for an operand of the epilogue: addresses, conversion, the sum
BATCH = 16  # values a thread loads of C or a bias before it uses the first
_KEPT = 4  # tables that a plan goes back to: its families', and one narrowed by an override
CHUNK_ROWS = 64  # that a warpgroup of sm90 stores together


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the kernels of a family use an SM. Cycles are those of the boost clock."""

    issue: float  # share of the tensor rate that a steady main loop reaches
    bubble: float  # tensor cycles lost at each K step: fences, the wait for the oldest group
    sharpness: int  # exponent of the norm that joins bounds: 1 adds them, infinity takes the largest
    smem: float  # bandwidth of shared memory over the profile's; above 1: of the reads that are counted some are one
    fill_weight: float  # share of a TMA write that competes with the MMA's reads for shared memory cycles
    fill_bytes_per_clk: float  # most that one SM takes in
    merged: float  # of the bytes asked for, what reaches the L2: SMs that ask for a line together are served once
    lockstep: float  # extra L2 cycles of a byte of the first wave: who shares a line asks while it is on its way
    cold: float  # extra L2 cycles of a byte's first read: written into the L2 of each die before it is read
    straddle: float  # of loading a row of 128 bytes that begins between two lines of the L2, whoever receives it
    burst: float  # extra L2 cycles of a tile of one K step, over the number of steps: SMs ask for all of them at once
    hot: float  # cycles for a load more at one slice of the L2 than at the others, as lines fall at random
    outside: float  # cycles of the copies' time for a row of a box outside the matrix, beside what bounds the SM
    outside_l2: float  # the same, beside what bounds the L2: M 8 to 64 on an H200
    edge: float  # of that at a ragged edge: a box at it reads so many rows fewer than those that decide without it
    latency: float  # from a load's issue to its barrier, out of the L2
    miss: float  # what DRAM adds to that at a byte's first read
    first_wave: float  # share of a first wave's re-read bytes that come as late: CTAs that share them ask together
    held: float  # K steps that a slot is in use for beyond the load: multiplied from, and one more in flight
    coupling: float  # what multicast adds to it: a slot is free when every receiver has freed it
    multicast: float  # what multicast adds to each K step: more and smaller copies, remote arrivals
    dram: float  # share of a copy's bandwidth that reads reach in boxes of 128-byte lines, a leading dimension apart
    apart: float  # DRAM time of a byte read again by a CTA that is no neighbour, over that of its first read
    dram_writes: float  # share of a copy's bandwidth at which D leaves
    split_bytes: float  # of DRAM traffic for a row of a box of D that begins or ends within a sector
    start: float  # once a launch: instructions, tensor maps and translations come from memory, the last D reaches it
    reset: float  # once a launch: the counter of tickets is cleared before it
    setup: float  # from a cluster's start to its first load
    second_warpgroup: float  # what a CTA with two consumer warpgroups adds to that
    reduction: float  # once a launch of the kernel that adds up slices, beyond the launch itself
    opening: float  # what a CTA's first loads and last stores take beyond later ones: nothing else is in flight
    barriers: float  # cluster barriers of a launch: before the first remote access and before the exit
    exchange_barriers: float  # rings idle, partial sums there, partial sums read
    exchange_growth: float  # exponent of the exchange's time in slices of a cluster: more senders to each receiver
    store_bytes_per_clk: float  # accumulator to D through shared memory and TMA, one SM
    split_sector: float  # cycles of such a row while every SM stores
    ragged: float  # cycles of a value that a warpgroup stores from registers at the ragged edge of D
    store_latency: float
    hides: float  # share of that store that runs under the worker's next main loop
    value_slots: float  # instructions of the epilogue a value, before C, bias and activation
    drain: float  # from the last MMA's issue to the first value, and what else comes once a tile
    chunk_latency: float  # of one chunk of the epilogue: the other buffer drains, the warps meet
    batch_latency: float  # of one batch of C; a bias comes from the L2 or the L1, in 0.6 of that
    direct_values_per_clk: float  # stores from registers, value by value
    partial_values_per_clk: float  # the same of partial sums into scratch memory, pairs of floats
    gemm_clock: float  # clock of a GEMM over the profile's, which MMAs alone were measured at
    transfer_power: float  # share of the power that goes with bytes from the L2, at 32 of them a clock and SM
    tf32_power: float  # power of tf32 MMAs over that of bf16 ones, a cycle


TUNING: dict[Family, Tuning] = {
    "sm100": Tuning(
        issue=1.0, bubble=0.0, sharpness=8, smem=1.0, fill_weight=0.55, fill_bytes_per_clk=160.0, merged=0.5,
        lockstep=0.5, cold=0.5, straddle=0.0, burst=0.0, hot=0.0, outside=4.5, outside_l2=0.0, edge=1.0, latency=1100.0,
        miss=900.0, first_wave=0.0, held=0.0, coupling=300.0, multicast=60.0, dram=0.75, apart=0.0, dram_writes=1.0,
        split_bytes=0.0, start=5200.0, reset=0.0, setup=300.0, second_warpgroup=0.0, reduction=2600.0, opening=0.0,
        barriers=2.0, exchange_barriers=3.0, exchange_growth=0.0, store_bytes_per_clk=75.0, split_sector=0.0,
        ragged=0.0, store_latency=125.0, hides=1.0, value_slots=0.0, drain=0.0, chunk_latency=0.0,
        batch_latency=0.0, direct_values_per_clk=4.0, partial_values_per_clk=4.0, gemm_clock=1.0, transfer_power=0.12,
        tf32_power=1.0,
    ),
    "sm90": Tuning(
        issue=1.0, bubble=104.0, sharpness=8, smem=0.8, fill_weight=0.684, fill_bytes_per_clk=10000.0, merged=0.574,
        lockstep=0.0, cold=0.0525, straddle=1.16, burst=0.401, hot=0.144, outside=0.0, outside_l2=6.98, edge=0.235,
        latency=1177.0, miss=503.0, first_wave=0.366, held=2.74, coupling=144.0, multicast=0.05, dram=1.01,
        apart=0.535, dram_writes=0.783, split_bytes=95.5, start=1351.0, reset=5776.0, setup=50.4,
        second_warpgroup=1.71, reduction=2085.0, opening=1089.0, barriers=4.7, exchange_barriers=5.94,
        exchange_growth=0.821, store_bytes_per_clk=52.6, split_sector=1.89, ragged=0.351, store_latency=70.5,
        hides=1.0, value_slots=7.03, drain=488.0, chunk_latency=99.2, batch_latency=700.0, direct_values_per_clk=5.0,
        partial_values_per_clk=3.34, gemm_clock=0.96, transfer_power=0.0012, tf32_power=0.68,
    ),
    "portable": Tuning(
        issue=0.68, bubble=0.0, sharpness=3, smem=1.0, fill_weight=1.0, fill_bytes_per_clk=40.0, merged=0.5,
        lockstep=0.0, cold=0.3, straddle=0.0, burst=0.0, hot=0.0, outside=0.0, outside_l2=0.0, edge=1.0, latency=1100.0,
        miss=900.0, first_wave=0.0, held=0.0, coupling=0.0, multicast=0.0, dram=0.75, apart=0.0, dram_writes=1.0,
        split_bytes=0.0, start=5200.0, reset=0.0, setup=200.0, second_warpgroup=0.0, reduction=2600.0, opening=0.0,
        barriers=0.0, exchange_barriers=0.0, exchange_growth=0.0, store_bytes_per_clk=24.0, split_sector=0.0,
        ragged=0.0, store_latency=500.0, hides=0.0, value_slots=6.0, drain=0.0, chunk_latency=0.0,
        batch_latency=600.0, direct_values_per_clk=4.0, partial_values_per_clk=4.0, gemm_clock=0.875,
        transfer_power=0.12, tf32_power=0.8,
    ),
}  # fmt: skip
EPILOGUE_POWER = 1.4  # of an SM in an epilogue, over one that multiplies
POWER_EXPONENT = 0.5  # clock under a power cap ~ activity^-0.5: power ~ activity x clock^2
_EXPECTED_MAX = np.interp(np.arange(17), (1, 2, 4, 8, 16), (0.0, 0.564, 1.029, 1.424, 1.766))
# of n standard normal costs: what the slowest of n CTAs is above the mean, in standard deviations
PAIR_BARRIERS = 3.5  # of a CTA pair: its start together, around the TMEM allocation, before its release, the exit


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
    start_us: float  # the launch and what comes once with it
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


def rate_key(dtype: str) -> str:
    """How a profile's tables of tensor rates call an operand type."""
    return "fp8" if dtype in ("e4m3", "e5m2") else dtype


def tensor_rate(profile: DeviceProfile, family: Family, dtype: str) -> float:
    """Dense FLOP per clock of one SM for an operand type."""
    key = rate_key(dtype)
    rates = profile.mma_sync_flop_per_clk_per_sm if family == "portable" else profile.tensor_flop_per_clk_per_sm
    return rates.get(key) or rates.get("fp16") or min(rates.values())


def loads_c_through_tma(p: GemmProblem, family: Family) -> bool:
    """Whether a family's kernels load C through a tensor map, by a warp of its own."""
    if family != "sm100":
        return False
    from advisor.kinds.gemm import sm100

    return sm100.loads_c_through_tma(p)


def stores_through_tma(p: GemmProblem, family: Family) -> bool:
    """Whether a family's kernels store D through a tensor map (a split over scratch memory never does)."""
    if family == "sm90":
        from advisor.kinds.gemm import sm90

        return sm90.stores_through_tma(p)
    return family == "sm100" and store_through_tma(p)


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
    across_m, across_n = ceil_div(tiles_m, t.unit_x), ceil_div(tiles_n, t.unit_y)
    scratch = np.where(t.cluster_z > 1, 1, t.split)
    # Clusters of the smaller size: a launch of two sizes is counted in those. A preferred size that is smaller is
    # refused by a clause, not by arithmetic.
    per_unit = np.maximum(1, t.unit_size // t.size)
    clusters = across_m * across_n * p.batch * scratch * per_unit
    all_steps = np.maximum(1, ceil_div(p.k, t.tile_k))
    k_steps = ceil_div(all_steps, t.split)

    budget = p.constraints.sm_budget
    pool = resident if budget is None else np.minimum(resident, budget // t.size)
    busy_sms = min(p.shared_gpu.busy_sms, profile.sms - 1)  # were none left, there would be nothing to plan
    available = _available(t, pool, resident, busy_sms)
    persistent = t.schedule != ONE_TILE
    grid = np.maximum(pool // per_unit, t.mixed) * per_unit  # of whole units
    planned = np.where(persistent & (t.schedule != CLC), np.minimum(clusters, grid), clusters)
    working = np.minimum(clusters, np.maximum(1, available)) * t.size
    # The SM with the most CTAs decides: one CTA more than there are SMs, and somewhere two share one.
    reach = np.maximum(1, t.reach - busy_sms)
    per_sm = np.clip(ceil_div(working, reach), 1, np.maximum(1, t.ctas_per_sm)).astype(np.float64)

    shape = (extent_m / tiles_m, extent_n / tiles_n)
    all_tiles = tiles_m * tiles_n * p.batch
    waves = clusters / np.maximum(1, available)
    outside = _outside(t, tune, (extent_m, extent_n), (tiles_m, tiles_n), waves)
    first_wave = np.minimum(1.0, np.maximum(1, available) / clusters)
    rounds = ceil_div(clusters, np.maximum(1, available))
    # Static clusters stay. One tile each: after the first wave, room for a small one is found before room for a large.
    whole = np.where(t.mixed & (t.schedule == ONE_TILE), t.whole / np.maximum(1, rounds), t.whole)
    shares = (first_wave, whole)
    together = _together(p, t, working, (tiles_m, tiles_n))
    steps, l2_bytes, fresh = _step_bounds(
        p, t, tune, shape, outside, working, per_sm, k_steps, all_tiles, shares, together
    )
    sliced = scratch > 1
    store, arithmetic, waits = _epilogue(p, t, tune, shape, sliced, per_sm, working / profile.sms, waves)
    second = np.where(t.tile_m > 64, tune.second_warpgroup, 0.0)
    barriers = np.where(t.mma_ctas == 2, PAIR_BARRIERS, np.where(t.size > 1, tune.barriers, 0.0))
    prologue = tune.setup + second + tune.opening + tune.latency + tune.miss * fresh
    prologue = prologue + barriers * profile.cluster_barrier_cycles
    slowest = np.maximum.reduce([steps[name] for name in BOUNDS])
    busy = prologue + rounds * (k_steps * slowest + arithmetic + waits)
    cycles_per_byte = clk * 1e6 / profile.dram_bytes_per_s
    dram_bytes, out_bytes, group, along_m = _dram(p, t, resident, busy * tune.dram / cycles_per_byte)
    again = tune.apart * _read_apart(p, t, together, tiles_n) if tune.apart > 0.0 else 0.0
    split = tune.split_bytes * _split_rows(p, t, sliced) if tune.split_bytes > 0.0 else 0.0
    dram = (dram_bytes / tune.dram + out_bytes / tune.dram_writes + again + split) * cycles_per_byte
    start = profile.launch_us * clk + tune.start
    unthrottled = start + np.maximum(busy, dram)
    throttle = _throttle(p, t, tune, clusters * t.size, k_steps, arithmetic + waits, l2_bytes, unthrottled)
    for name in ("tensor", "smem"):  # at the SM's clock; the L2 and what is behind it have their own
        steps[name] = steps[name] * throttle
    main = k_steps * _norm(tune.sharpness, *(steps[name] for name in BOUNDS))
    if p.assume.tile_cost_cv > 0.0:  # CTAs that share loads wait for the slowest of them
        main = main * (1.0 + p.assume.tile_cost_cv * _EXPECTED_MAX[np.minimum(t.unit_size // t.mma_ctas, 16)])
    epilogue = store + arithmetic * throttle + waits
    # A ticket is claimed when every warp has read the one before: nobody is ahead by more than the tile it finishes.
    overlap = np.where(persistent & (t.schedule != TICKET), _hidden(p, t, tune, main, store, epilogue), 0.0)
    claim = np.where(
        t.schedule == CLC,
        profile.clc_round_trip_cycles,
        np.where(t.schedule == TICKET, profile.atomic_round_trip_cycles, 0.0),
    )
    makespan = _makespan(
        t, clusters, planned, available, main, prologue, epilogue, overlap, claim, p.assume.tile_cost_cv
    )
    reduce = np.where(sliced, _reduction(p, profile, tune, scratch, clk), 0.0)
    clearing = np.where(t.schedule == TICKET, tune.reset, 0.0)
    total = start + clearing + _norm(DRAM_SHARPNESS, makespan, dram) + reduce
    reason, reasons = _extent_reasons(p, t, resident, available, tiles_m, tiles_n, all_steps, planned)
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
        start_us=start / clk,
        reduce_us=reduce / clk,
        dram_us=dram / clk,
        dram_bytes=dram_bytes + out_bytes,
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


def _norm(power: int, *parts: Floats) -> Floats:
    """The `power` norm of what competes: close to the largest, above it where two are near each other."""
    largest = np.maximum(np.maximum.reduce(parts), 1e-9)
    total = np.zeros_like(largest)
    for part in parts:
        total += _to(part / largest, power)
    return np.asarray(largest * total ** (1.0 / power))


def _to(value: Floats, power: int) -> Floats:
    """A whole power by squaring: many times faster than the general one on arrays."""
    result = None
    while power:
        if power & 1:
            result = value if result is None else result * value
        power >>= 1
        if power:
            value = value * value
    return value if result is None else result


def _outside(t: Table, tune: Tuning, extents: tuple[Ints, Ints], tiles: tuple[Ints, Ints], waves: Floats) -> Floats:
    """Rows of the boxes of one K step that lie outside the matrices, of the CTA that counts: with one wave the one at
    the ragged edge decides, with many the average does."""
    if t.family == "portable":
        return np.zeros(t.rows)
    total = np.zeros(t.rows)
    for extent, count, tile, boxes in zip(extents, tiles, (t.tile_m, t.tile_n), (t.unit_y, t.unit_x), strict=True):
        spare = count * tile - extent
        share = np.maximum(1.0 / count, 1.0 / np.maximum(1.0, waves))
        total = total + spare / boxes * share * np.where(count > 1, tune.edge, 1.0)
    return total


def _additions(p: GemmProblem, t: Table) -> Floats | float:
    """Cycles of a K step that the additions of precise fp8 sums keep the tensor cores waiting: none where registers
    hold two sets of a stage's sums, so that the next stage is multiplied meanwhile."""
    if t.family != "sm90" or not p.is_fp8 or p.accumulate != "precise":
        return 0.0
    from advisor.kinds.gemm.sm90 import MAX_PROMOTED_ACCUMULATORS

    held = t.tile_m * t.tile_n / np.where(t.tile_m <= 64, LANES, 2 * LANES)
    return np.where(3 * held <= MAX_PROMOTED_ACCUMULATORS, 0.0, ADDITION_SHARE) * t.tile_m * t.tile_n / LANES


def _straddling(matrix: Matrix) -> float:
    """Share of the rows of a box that begin between two lines of the L2, and ask for both."""
    return 1.0 - math.gcd(matrix.ld * matrix.element_bytes, LINE_BYTES) / LINE_BYTES


def _step_bounds(
    p: GemmProblem,
    t: Table,
    tune: Tuning,
    shape: tuple[Floats, Floats],
    outside: Floats,
    working: Ints,
    per_sm: Floats,
    k_steps: Ints,
    tiles: Ints,
    shares: tuple[Floats, Floats],
    together: tuple[Floats, Floats],
) -> tuple[dict[str, Floats], Floats, Floats]:
    """Cycles of one K step of one CTA under each bound at the boost clock, the L2 bytes of the launch, and the share
    of them that is read for the first time.

    Bytes that a box reads outside the matrix are zeros made by the TMA unit: they fill shared memory and cost no L2.
    `shares`: of the launch that the first wave is; of the CTAs that preferred clusters hold where two sizes mix.
    `together`: see `_together`.
    """
    profile, (rows, columns), (first_wave, whole) = t.profile, shape, shares
    k_bytes = t.tile_k * p.a.element_bytes
    rate = tensor_rate(profile, t.family, p.a.dtype)
    half = np.where(t.tile_m == 64, 2.0, 1.0) if t.family == "sm100" else 1.0  # M 64 uses half of the lanes
    work = 2.0 * t.tile_m * t.tile_n * t.tile_k / (rate * tune.issue) * half
    tensor = (work + tune.bubble + _additions(p, t)) * per_sm

    a_box, b_box = t.tile_m * k_bytes, t.tile_n // t.mma_ctas * k_bytes
    readers = t.tile_m // 64 if t.family == "sm90" else 1  # every wgmma of 64 rows reads B again
    reuse = 2.0 if t.family == "portable" else 1.0  # warps of a CTA read the same fragments again
    smem = reuse * (a_box + b_box * readers) + tune.fill_weight * (a_box + b_box)
    smem = smem / (profile.smem_bytes_per_clk * tune.smem) * per_sm

    a_use, b_use = rows * k_bytes, columns / t.mma_ctas * k_bytes
    spread_a, spread_b = _sharers(p, t, t.unit_x, t.unit_y)
    shared = (t.unit_y > 1) | (t.unit_x > t.mma_ctas)
    issued = a_use / spread_a + b_use / spread_b
    if t.mixed.any():  # the L2 is everybody's: both sizes ask it for their share
        fewer_a, fewer_b = _sharers(p, t, t.cluster_x, t.cluster_y)
        issued = whole * issued + (1.0 - whole) * (a_use / fewer_a + b_use / fewer_b)
    l2_bytes = issued * k_steps * t.split * tiles
    first = float((p.m * p.k + p.n * p.k) * p.batch * p.a.element_bytes)
    fresh = np.minimum(1.0, first / np.maximum(l2_bytes, 1.0))
    # Bytes that no other SM asks for come at the rate that was measured for such.
    intake = fresh / profile.l2_bytes_per_clk_per_sm + (1.0 - fresh) / tune.fill_bytes_per_clk
    zeros = tune.outside * outside
    fill = (a_use + b_use) * intake
    mma_a, mma_b = (np.where(t.swap, _straddling(y), _straddling(x)) for x, y in ((p.a, p.b), (p.b, p.a)))
    lines = (a_use / spread_a * mma_a + b_use / spread_b * mma_b) / LINE_BYTES
    fill = np.maximum(fill, tune.straddle * lines)
    fill = (fill + tune.multicast * shared + zeros) * per_sm
    asked = issued + lines * LINE_BYTES * (tune.straddle > 0.0)
    asked = asked * (tune.merged + tune.cold * fresh + tune.lockstep * first_wave)
    l2 = asked * working / (profile.l2_bytes_per_clk_per_sm * profile.sms) * (1.0 + tune.burst / k_steps)
    l2 = l2 + tune.outside_l2 * outside
    if tune.hot > 0.0:  # lines fall on slices at random: the fullest one is some standard deviations above the mean
        rows_asked = (rows * (1.0 + mma_a) / spread_a, columns * (1.0 + mma_b) / spread_b)
        variance = working * (together[0] * rows_asked[0] + together[1] * rows_asked[1])
        l2 = l2 + tune.hot * np.sqrt(variance / np.minimum(t.stages, k_steps))
    # Little's law: a slot is free again one latency after its load was asked for, and when its bytes are used up.
    late = fresh + tune.first_wave * first_wave * (1.0 - fresh)
    flight = (tune.latency + tune.miss * late + tune.coupling * shared + tune.held * tensor) / t.stages + zeros
    return {"tensor": tensor, "smem": smem, "l2": l2, "sm_fill": fill, "latency": flight}, l2_bytes, fresh


def _together(p: GemmProblem, t: Table, working: Ints, tiles: tuple[Ints, Ints]) -> tuple[Floats, Floats]:
    """Loads of one row of A, and of B, that are under way at the same time, under the usual raster."""
    if TUNING[t.family].hot == TUNING[t.family].apart == 0.0:
        return np.ones(1), np.ones(1)  # nobody asks
    tiles_m, tiles_n = tiles
    spread_a, spread_b = _sharers(p, t, t.unit_x, t.unit_y)
    places = np.maximum(1, working // np.where(t.cluster_z > 1, t.cluster_z, t.split))
    alone = tiles_m * tiles_n <= places
    band = np.minimum(tiles_n, USUAL_RASTER.group * t.unit_y)
    of_a = np.where(alone, tiles_n, np.minimum(band, places)) / spread_a
    of_b = np.where(alone, tiles_m, np.minimum(tiles_m, np.maximum(1, places // band))) / spread_b
    return np.maximum(1.0, of_a), np.maximum(1.0, of_b)


def _read_apart(p: GemmProblem, t: Table, together: tuple[Floats, Floats], tiles_n: Ints) -> Floats:
    """Bytes of the operands that CTAs read at the same time which are no neighbours in the usual raster: up to once
    each. Neighbours share rows of A, and rows of B where there is one tile along n."""
    of_a, of_b = together
    near_b = np.where(tiles_n <= t.unit_y, of_b, 1.0)
    bytes_m, bytes_n = p.m * p.k * p.a.element_bytes, p.n * p.k * p.b.element_bytes
    bytes_a, bytes_b = np.where(t.swap, bytes_n, bytes_m), np.where(t.swap, bytes_m, bytes_n)
    far_a = np.minimum(of_a / np.minimum(of_a, USUAL_RASTER.group) - 1.0, 1.0)
    far_b = np.minimum(of_b / near_b - 1.0, 1.0)
    return np.asarray((bytes_a * far_a + bytes_b * far_b) * p.batch)


def _sharers(p: GemmProblem, t: Table, across: Ints, along: Ints) -> tuple[Ints, Ints]:
    """CTAs that one load of A, and of B, reaches in clusters of `across` by `along`: `launches.sharers` of every row.
    (In a group of the wgmma family the loads of those that have a slice serve the others too, so each byte is loaded
    once for all of it.)"""
    if t.family != "sm100":  # one CTA to an MMA
        return along, across
    x, y = np.maximum(1, across // t.mma_ctas), along
    of_a, of_b = p.a.major == "k", p.b.major == "k"
    a_k_major, b_k_major = np.where(t.swap, of_b, of_a), np.where(t.swap, of_a, of_b)
    a_lines = np.where(a_k_major, t.tile_m, t.tile_k)
    b_lines = np.where(b_k_major, t.tile_n // t.mma_ctas, t.tile_k)
    return np.gcd(np.maximum(1, a_lines // 8), y), np.gcd(np.maximum(1, b_lines // 8), x)


def _throttle(
    p: GemmProblem,
    t: Table,
    tune: Tuning,
    tiles: Ints,
    k_steps: Ints,
    epilogue: Floats,
    l2_bytes: Floats,
    cycles: Floats,
) -> Floats:
    """How many times longer an SM's cycle is than at boost: power holds the clock down as more SMs work more of the
    time. A launch of `tiles` CTA tiles takes `cycles` at boost. Launches are taken to come back to back, because the
    clock follows the power of milliseconds."""
    profile = t.profile
    sm_cycles = profile.sms * np.maximum(cycles, 1.0)
    flops = 2.0 * t.tile_m * t.tile_n * t.tile_k * k_steps * tiles
    power = tune.tf32_power if p.a.dtype == "tf32" else 1.0
    multiplying = power * flops / tensor_rate(profile, "sm90", p.a.dtype)
    transfers = l2_bytes / 32.0
    work = multiplying * (1.0 - tune.transfer_power) + transfers * tune.transfer_power
    activity = (work + EPILOGUE_POWER * tiles * epilogue) / sm_cycles
    sustained = min(profile.max_clock_hz, profile.clock_hz * tune.gemm_clock)
    return np.asarray(np.maximum(1.0, activity**POWER_EXPONENT * (profile.max_clock_hz / sustained)))


def _epilogue(
    p: GemmProblem,
    t: Table,
    tune: Tuning,
    shape: tuple[Floats, Floats],
    sliced: Bools,
    per_sm: Floats,
    busy: Floats,
    waves: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Cycles of one tile's epilogue: the store that TMA does, instructions at the SM's clock, everything else.
    `busy`: of the SMs; `waves` of clusters."""
    useful = np.minimum(shape[0], t.tile_m) * np.minimum(shape[1], t.tile_n)
    columns = _chunk_columns(t)
    own = useful * _own_share(t)
    by_tma = ~sliced & stores_through_tma(p, t.family)
    pairs = np.where(sliced | (p.d.major == "n"), 1.0, 2.0)  # along m no two values of a thread are neighbours
    stored = own * p.d.element_bytes * _spread(p, t, columns)
    store = stored / tune.store_bytes_per_clk * per_sm
    if tune.split_sector > 0.0:
        store = store + own * p.d.element_bytes * _splits(p, t) * tune.split_sector * busy
    store = tune.store_latency + np.where(by_tma, store, 0.0)
    rate = np.where(sliced, tune.partial_values_per_clk, tune.direct_values_per_clk)
    direct = np.where(by_tma, 0.0, own * pairs / rate * per_sm)

    bias = p.epilogue.bias != "none"
    operands = ISSUE_SLOTS[p.epilogue.activation] + (C_SLOTS if p.uses_c else 0.0) + (BIAS_SLOTS if bias else 0.0)
    reads = (1.0 if p.uses_c else 0.0) + (0.6 if bias else 0.0)
    workers = t.threads if t.family == "portable" else np.maximum(LANES, t.threads - LANES)
    batches = own / workers / BATCH
    arithmetic = own / LANES * (tune.value_slots + np.where(sliced, 0.0, operands)) * per_sm
    chunks = own / workers * LANES / CHUNK_ROWS / columns
    waits = np.where(by_tma, chunks * tune.chunk_latency, 0.0) + np.where(
        sliced, 0.0, batches * reads * tune.batch_latency
    )
    waits = waits + tune.drain + direct
    if tune.ragged > 0.0:
        waits = waits + tune.ragged * np.where(by_tma, _ragged(p, t, columns, waves), 0.0)
    sent = useful * 4 * (t.cluster_z - 1) / t.cluster_z / t.profile.dsmem_bytes_per_clk_per_sm
    growth = np.array([(slices / 2.0) ** tune.exchange_growth for slices in range(1, int(t.cluster_z.max()) + 1)])
    exchange = sent * growth[t.cluster_z - 1]
    exchange = exchange + tune.exchange_barriers * t.profile.cluster_barrier_cycles
    return store, arithmetic, waits + np.where(t.cluster_z > 1, exchange, 0.0)


@lru_cache(maxsize=_KEPT)  # nothing of it depends on a problem's extents
def _chunk_columns(t: Table) -> Floats:
    """Columns that one pass of a warpgroup's epilogue stores, with CHUNK_ROWS rows."""
    if t.family != "sm90":
        return np.full(t.rows, 2.0 * BATCH)
    from advisor.kinds.gemm.sm90 import columns_of_a_chunk

    key = (t.tile_m * 512 + t.tile_n) * 64 + t.cluster_z
    rows, inverse = np.unique(key, return_inverse=True)
    found = [columns_of_a_chunk(row >> 15, row >> 6 & 511, row & 63) for row in rows.tolist()]
    return np.array(found, dtype=np.float64)[inverse]


def _spread(p: GemmProblem, t: Table, columns: Floats) -> Floats:
    """Bytes of the lines that a box of D touches, over its own: its rows begin and end within lines of the L2."""
    if t.family != "sm90":
        return np.ones(t.rows)
    n_major = (p.d.major == "n") != t.swap
    row = np.where(n_major, columns, CHUNK_ROWS) * p.d.element_bytes
    step = np.gcd(row.astype(np.int64), math.gcd(p.d.ld * p.d.element_bytes, LINE_BYTES))
    return np.asarray((row + LINE_BYTES - step) / row)


def _splits(p: GemmProblem, t: Table) -> Floats:
    """Ends of a box's rows of D that lie within a sector of the L2, on average, over the bytes of a row."""
    if t.family != "sm90":
        return np.zeros(t.rows)
    lines = math.gcd(p.d.ld * p.d.element_bytes, SECTOR_BYTES)
    return _splits_of_rows(t, p.d.major == "n", p.d.element_bytes, lines)


@lru_cache(maxsize=_KEPT)
def _splits_of_rows(t: Table, n_major: bool, element_bytes: int, lines: int) -> Floats:
    row = np.where(n_major != t.swap, _chunk_columns(t), CHUNK_ROWS) * element_bytes
    step = np.gcd(row.astype(np.int64), lines)
    return np.asarray(2.0 * (1.0 - step / SECTOR_BYTES) / row)


def _split_rows(p: GemmProblem, t: Table, sliced: Bools) -> Floats:
    """The same of the whole launch: ends of rows of boxes that TMA stores within a sector."""
    if not stores_through_tma(p, t.family):
        return np.zeros(t.rows)
    ends = _splits(p, t) * float(p.m * p.n * p.batch * p.d.element_bytes)
    return np.where(sliced, 0.0, ends)


@lru_cache(maxsize=_KEPT)
def _own_share(t: Table) -> Floats:
    """Of a tile that one CTA finishes: the slices of a cluster take whole chunks in turn."""
    if t.family != "sm90":
        return np.asarray(1.0 / t.cluster_z)
    chunks = np.maximum(1, t.tile_m // (2 * CHUNK_ROWS)) * t.tile_n // _chunk_columns(t).astype(np.int64)
    return np.where(t.cluster_z > 1, ceil_div(chunks, t.cluster_z) / np.maximum(1, chunks), 1.0)


def _ragged(p: GemmProblem, t: Table, columns: Floats, waves: Floats) -> Floats:
    """Values that a warpgroup stores from registers where D's contiguous extent ends within 16 bytes, at the CTA that
    counts: the one at the edge where there is one wave, the average over many."""
    extent = p.n if p.d.major == "n" else p.m
    if t.family != "sm90" or extent * p.d.element_bytes % STORE_UNIT_BYTES == 0:
        return np.zeros(t.rows)
    n_major = (p.d.major == "n") != t.swap
    count = ceil_div(extent, np.where(n_major, t.tile_n, t.tile_m))
    share = np.maximum(1.0 / count, 1.0 / np.maximum(1.0, waves))
    high = np.where(ping_pong(p, t), 2, np.maximum(1, t.tile_m // (2 * CHUNK_ROWS)))  # chunks above each other
    # Two neighbours at a time where a row of the fragment lies along the contiguous extent; the last chunk alone there.
    return np.asarray(CHUNK_ROWS * share * np.where(n_major, columns * high / 2.0, t.tile_n))


def _reduction(p: GemmProblem, profile: DeviceProfile, tune: Tuning, slices: Ints, clk: float) -> Floats:
    """Cycles of the second kernel of a split over scratch memory, whose operands lie in the L2."""
    bytes_ = (slices * 4.0 + p.d.element_bytes) * p.m * p.n * p.batch
    rate = 0.5 * profile.l2_bytes_per_clk_per_sm * profile.sms
    return np.asarray(profile.launch_us * clk + tune.reduction + tune.latency + bytes_ / rate)


def ping_pong(p: GemmProblem, t: Table) -> Bools:
    """`sm90.ping_pong` of every row: one warpgroup multiplies while the other finishes its tile."""
    if t.family != "sm90":
        return np.zeros(t.rows, dtype=np.bool_)
    from advisor.kinds.gemm.sm90 import ROWS_PER_WGMMA, ping_pong_columns

    most = np.where(t.swap, ping_pong_columns(p, True), ping_pong_columns(p, False))
    fits = (t.tile_m == 2 * ROWS_PER_WGMMA) & (t.tile_n <= most)
    return np.asarray(fits & (t.schedule != ONE_TILE) & (t.cluster_z == 1))


def _hidden(p: GemmProblem, t: Table, tune: Tuning, main: Floats, store: Floats, epilogue: Floats) -> Floats:
    """Share of the epilogue that hides under the next main loop: all of it needs a second accumulator."""
    if t.family != "sm100":
        # A warpgroup that takes turns finishes its tile alone, in twice the time, under a main loop of the other.
        alone = np.minimum(1.0, main / 2 / np.maximum(epilogue, 1.0))
        return np.where(ping_pong(p, t), alone, tune.hides * store / np.maximum(epilogue, 1.0))
    columns = np.where((t.mma_ctas == 2) & (t.tile_m == 64), t.tile_n // 2, t.tile_n)
    return np.where((2 * columns <= 512) & (t.cluster_z == 1), tune.hides, 0.0)


def _available(t: Table, pool: Ints, resident: Ints, busy_sms: int) -> Ints:
    """Clusters that run at once while other work holds SMs."""
    if busy_sms <= 0:
        return pool
    rows, inverse = np.unique(t.ctas_per_sm * 64 + np.minimum(t.size, 63), return_inverse=True)
    free = np.array([free_clusters(t.profile, int(row) // 64, int(row) % 64, busy_sms) for row in rows])[inverse]
    return np.asarray(np.minimum(pool, np.minimum(free, resident)), dtype=np.int64)


def sharing(t: Table) -> Ints:
    """CTAs of one SM that begin and end under each other's main loops."""
    return np.clip(t.ctas_per_sm, 1, 2)


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
    # One tile: of two CTAs that share an SM one multiplies while the other begins or ends, about half of the time.
    lone = main + (prologue + epilogue) / sharing(t)
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


def _dram(p: GemmProblem, t: Table, resident: Ints, harmless: Floats) -> tuple[Floats, float, Ints, Bools]:
    """DRAM bytes read of A and B; those of C and D; and the raster.

    The usual raster stays where its bytes are a small part of what the launch could read meanwhile (`harmless`); else
    the one with the fewest bytes takes its place, if it saves enough to be sure of.

    A band of `group` cluster tiles is swept along the other axis. What a band reuses stays in the L2 if it fits beside
    what streams past; else it is read again, once a wave or once a band.
    """
    eb = p.a.element_bytes
    compulsory = (p.m * p.k + p.n * p.k) * p.batch * eb
    out = float(p.m * p.n * p.batch * (p.d.element_bytes + (p.c.element_bytes if p.uses_c else 0)))
    usable = L2_USABLE * t.profile.l2_bytes
    if compulsory / max(1, p.batch) <= usable:
        return (
            np.full(t.rows, float(compulsory)),
            out,
            np.full(t.rows, USUAL_RASTER.group, dtype=np.int64),
            np.full(t.rows, USUAL_RASTER.order == "along_m"),
        )
    cluster_m, cluster_n = t.tile_m * t.unit_x, t.tile_n * t.unit_y
    resident = np.maximum(1, resident * t.size // t.unit_size)
    key = ((cluster_m * 8192 + cluster_n) * 4096 + np.minimum(resident, 4095)) * 2 + t.swap
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    cm, cn, wave, swap = cluster_m[first], cluster_n[first], np.maximum(1, resident[first]), t.swap[first]
    extent_m, extent_n = np.where(swap, p.n, p.m), np.where(swap, p.m, p.n)
    found: list[tuple[Floats, bool, int]] = []
    usual = (USUAL_RASTER.order == "along_m", USUAL_RASTER.group)
    others = [(along_m, group) for along_m in (True, False) for group in RASTER_GROUPS if (along_m, group) != usual]
    for along_m, group in [usual, *others]:
        tall, wide = (cm, cn) if along_m else (cn, cm)
        across, along = (extent_m, extent_n) if along_m else (extent_n, extent_m)
        band = np.minimum(across, group * tall) * p.k * eb
        columns = np.maximum(1, wave // group)
        streamed = np.minimum(along, columns * wide) * p.k * eb
        bands = ceil_div(across, group * tall)
        waves = ceil_div(ceil_div(along, wide), columns)
        kept_band = np.where(band + streamed <= usable, 1, waves)
        kept_stream = np.where(along * p.k * eb + band <= usable, 1, bands)
        bytes_ = (across * p.k * eb * kept_band + along * p.k * eb * kept_stream) * float(p.batch)
        found.append((bytes_, along_m, group))
    table = np.stack([bytes_ for bytes_, _, _ in found])
    best = np.argmin(table, axis=0)
    spared = table[best, np.arange(table.shape[1])] < table[0] * CLEAR_GAIN
    pick = np.where(spared, best, 0)[inverse]
    pick = np.where(table[0][inverse] < HARMLESS * harmless, 0, pick)
    groups = np.array([group for _, _, group in found], dtype=np.int64)
    along = np.array([along_m for _, along_m, _ in found], dtype=np.bool_)
    return table[pick, inverse], out, groups[pick], along[pick]


def raster_of(costs: Costs, i: int) -> Raster:
    """The raster that the DRAM bytes of row `i` were counted for."""
    return Raster("along_m" if costs.raster_along_m[i] else "along_n", int(costs.raster_group[i]))


# ---- clauses that need the extents ---------------------------------------------------------------------------------


def _extent_reasons(
    p: GemmProblem,
    t: Table,
    resident: Ints,
    available: Ints,
    tiles_m: Ints,
    tiles_n: Ints,
    all_steps: Ints,
    planned: Ints,
) -> tuple[Ints, tuple[Violation, ...]]:
    """The static reasons, joined by those that need the problem's extents, the constraints or the residency."""
    reason = t.reason.copy()
    reasons = list(t.reasons)
    limit = p.constraints.max_cluster_size
    for violation, broken in _clauses(p, t, resident, available, tiles_m, tiles_n, all_steps, planned, limit):
        hit = broken & (reason == LEGAL)
        if hit.any():
            reason[hit] = len(reasons)
            reasons.append(violation)
    return reason, tuple(reasons)


def _clauses(
    p: GemmProblem,
    t: Table,
    resident: Ints,
    available: Ints,
    tiles_m: Ints,
    tiles_n: Ints,
    all_steps: Ints,
    planned: Ints,
    limit: int,
) -> list[tuple[Violation, Bools]]:
    profile, cluster = t.profile, t.forced[0]
    found: list[tuple[Violation, Bools]] = []
    largest = profile.max_cluster_size
    over = t.unit_size > largest
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
    found.append((Violation("CLUSTER_OVER_CONSTRAINT", text, {"max_cluster_size": limit}), t.unit_size > limit))
    budget = p.constraints.sm_budget
    if budget is not None:
        text = f"sm_budget {budget}: one-tile and CLC launch the whole grid on every SM; static and ticket keep to it"
        whole_grid = ((t.schedule == CLC) | (t.schedule == ONE_TILE)) & (t.family != "portable")
        found.append((Violation("SM_BUDGET_SCHEDULE", text, {"sm_budget": budget}), whole_grid))
        text = f"sm_budget {budget} holds no cluster of this size"
        found.append((Violation("SM_BUDGET_CLUSTER", text, {"sm_budget": budget}), t.unit_size > budget))
    text = f"no cluster of this size is resident on {profile.title} with this footprint"
    found.append((Violation("ZERO_ACTIVE_CLUSTERS", text, {"max_active_clusters": 0}), resident <= 0))
    if p.shared_gpu.busy_sms > 0:
        held = p.shared_gpu.busy_sms
        text = f"no cluster of this size fits beside other work that holds {held} of {profile.sms} SMs"
        found.append((Violation("ZERO_ACTIVE_CLUSTERS", text, {"busy_sms": held}), available <= 0))
    if cluster is None and t.forced[7] is None:
        pair_alone = (t.mma_ctas == 2) & (t.unit_x == 2)
        wide = ((t.unit_x > tiles_m) & ~(pair_alone & (t.forced[4] == 2))) | (t.unit_y > tiles_n)
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
    in_x = planned * t.size // (t.unit_y * t.cluster_z)
    text = "the grid's x dimension is above 2^31 - 1"
    found.append((Violation("GRID_DIM_LIMIT", text, {"limit": 2**31 - 1}), in_x > 2**31 - 1))
    return found
