"""The candidates of a row reduction and what each costs. Imports `kinds.workload`, `machine`, `problem`, `records` and
this package's `kernels`.

For each cluster size: the CTA widths that keep a row with up to 16 vectors a thread, one row at a time or with the next
one coming in behind it, and a width that streams. What a launch costs follows from four bounds: issue and latency make
the time of the CTAs, which `Timing.total_us` joins with that of memory.

    dram      bytes that must move, over the copy bandwidth; a second reading of a row counts as far as the L2 cannot
              hold the rows that are in work; SMs without a cluster leave bandwidth unused
    l2        rows, and weights that are read for each of them
    issue     instructions of all resident CTAs of an SM: per element of a row, by operation and type
    latency   start, first load, vectors of a thread one after the other, the exchange of partials: what one CTA of an
              SM cannot hide from itself

Constants were fitted to launches of one H200 (bf16; docs/row_reduce.md has the error that is left).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.row_reduce import kernels
from advisor.kinds.row_reduce.work import REGISTERS_PER_SM, STREAM_SLOTS, RowWork
from advisor.kinds.workload import DRAM_SHARPNESS, Axes, Occupancy, Timing
from advisor.machine.features import Feature, supports
from advisor.machine.occupancy import clusters_that_fit, ctas_per_sm, free_clusters
from advisor.machine.profile import DeviceProfile
from advisor.problem.row_reduce import NORMS, RowReduceProblem
from advisor.records.candidate import Candidate, Family, OccupancyKey, Schedule
from advisor.records.rows import Violation

CLUSTERS = (1, 2, 4, 8, 16)
MAX_VECTORS = {"one_tile": 8, "static": 16}  # of a thread: more of them wait for each other
WIDTHS = (128, 256, 512, 1024)  # threads of a CTA that share a row
WHOLE_GRID = ("one_tile", "clc")  # a cluster for every item of work
SCHEDULE_RANK: dict[Schedule, int] = {"one_tile": 0, "static": 1, "ticket": 2, "clc": 3}
PERSISTENT = ((1024, 1), (512, 1), (512, 2), (256, 2), (256, 3), (256, 4), (128, 4), (128, 6))  # threads, CTAs of an SM

# Bytes of rows that are asked into the L2 ahead of their copies, for each SM: some 2 us of what it reads. With less,
# memory has nothing to do while CTAs start or exchange partials; with twice as much, lines are gone before their use.
# Measured on an H200; a B200 has the same, unmeasured. SMs are those of either: a candidate knows none.
PREFETCH_BYTES: dict[Family, int] = {"sm90": 32_768, "sm100": 32_768, "portable": 0}
SMS: dict[Family, int] = {"sm90": 132, "sm100": 148, "portable": 0}

# Registers of a thread that one row at a time takes without spilling: with up to 4 vectors, and with more.
REGISTERS = {
    "softmax": (32, 48),
    "log_softmax": (32, 48),
    "logsumexp": (32, 32),
    "layernorm": (40, 48),
    "rmsnorm": (32, 48),
    "sum": (32, 32),
    "max": (32, 32),
}
AFFINE_REGISTERS = {"layernorm": (64, 80), "rmsnorm": (48, 64)}  # with weight or bias
WIDE_REGISTERS = 64  # results of 24 bits
HELD_POWERS = {False: {128: 8, 80: 2}, True: {128: 4, 80: 2}}  # vectors, by registers; with over 8 vectors a thread
EXACT_REGISTERS = 24  # more of them, where results keep 24 bits
CLAIM_REGISTERS = 24  # more of them, where rows are claimed
WORKING_REGISTERS = {False: 52, True: 72}  # of a persistent CTA, beside the weights that it holds; with over 8 vectors

# Issue slots of a lane for an element that is read and written.
ISSUE = {
    "softmax": 14.9,
    "log_softmax": 14.3,
    "logsumexp": 5.5,
    "layernorm": 11.0,
    "rmsnorm": 11.4,
    "sum": 3.0,
    "max": 2.5,
}
WEIGHT_ISSUE = 2.0  # for each of weight and bias
POWER_ISSUE = 3.3  # that an exponential held in registers saves
EXACT_ISSUE = {"softmax": 16.0, "log_softmax": 12.0, "logsumexp": 7.0, "layernorm": 5.0}  # more for 24 bits
STREAM_ISSUE = 1.3  # each vector is copied, awaited and found twice
LANES_PER_CLK = 128.0
ISSUE_SHARE = 0.75  # of the slots that are used at best
SERIAL_SHARE = 0.01  # fewer of them for each vector of a thread, where one row at a time is in work

# What a row of a CTA waits for, which other CTAs of its SM may hide.
START_US = 1.12  # its launch and its first loads
FILL_BYTES_PER_US = 60_000.0  # of one SM from DRAM, alone
AHEAD_US = 0.69  # where the next row comes in behind it
SHALLOW_US = 1.10  # and where slots hold nothing of that: less as they hold more of it
STREAM_US = 0.96  # where it is streamed
LOGARITHM_US = 0.69  # where it is streamed for a logsumexp: rescaling, and the logarithm of one thread
VECTOR_US = {"one_tile": 0.15, "static": 0.08, "streamed": 0.11}  # each vector of a thread
NORM_VECTOR_US = {"one_tile": 0.08, "static": 0.075, "streamed": 0.11}  # the same of deviations
WEIGHT_US = {"one_tile": 0.19, "static": 0.145}  # each vector of a thread of weights that come from the L2 for each row
L1_BYTES = 51_000  # of weights that rows of one CTA after the other find in the first-level cache
EXCHANGE_US = {1: 0.0, 2: 0.04, 4: 0.07, 8: 0.11, 16: 0.15}  # partials: pushes, where nothing is read early
CLUSTER_US = 4.5  # where each row has a cluster of its own to launch
ALONE_SHARE = 0.3  # of a CTA's issue time, that its own warps do not hide

# What the launch as a whole waits for.
PERSISTENT_US = 3.0  # slots that fill before the first row is written,
LAST_ROWS = 1.0  # and rows, as many of a CTA, that are written when none is read
READ_ONLY = 1.045  # bandwidth where nothing is written, over the copy's
IDLE_SHARE = 0.22  # of the bandwidth that SMs without a cluster leave unused
SHALLOW_SHARE = 0.011  # more of the time of memory where the slots of a persistent CTA do not hold two rows,
SHARED_SHARE = 0.03  # where it shares its SM,
SINGLE_SHARE = 0.06  # and where it is no cluster: its rows are short
L2_BYTES_PER_US = 10.0e6  # rows and weights, where weights come from the L2
L2_SHARE = 0.25  # of the L2 that rows in work may fill and still be there for the second reading


def vectors_of(p: RowReduceProblem, cluster: int) -> int:
    """Vectors of a row in one CTA of a cluster."""
    total = -(-p.cols // kernels.vector_elements(p))
    return max(1, -(-total // cluster))


def holds(p: RowReduceProblem, cluster: int, limit: int) -> bool:
    """Whether `limit` bytes of shared memory a CTA take a cluster's row: every thread of a CTA has as many slots as any
    other."""
    run = vectors_of(p, cluster)
    for threads in WIDTHS:
        vectors = -(-run // threads)
        kept = _candidate(p, "sm90", cluster, "static", threads, vectors, RowWork(threads, vectors))
        if vectors <= MAX_VECTORS["static"] and kernels.smem_bytes(kept) <= limit:
            return True
    return False


def wide(p: RowReduceProblem) -> bool:
    """Whether elements or results have 24 bits."""
    return "fp32" in (p.dtype, p.out_dtype)


def registers_of(p: RowReduceProblem, vectors: int) -> int:
    if wide(p):
        return WIDE_REGISTERS + 8 * (vectors > 4 and p.elementwise)
    registers = (AFFINE_REGISTERS if weights_of(p) else REGISTERS)[p.op][vectors > 4]
    unpacked = p.dtype == "fp16" and vectors > 4 and p.op not in ("sum", "max")  # in a step more than bf16
    return registers + 8 * unpacked


def weights_of(p: RowReduceProblem) -> int:
    """Words of weights and biases for each element: 0, 1 or 2."""
    return int(p.weight) + int(p.bias) if p.op in NORMS else 0


def candidates(p: RowReduceProblem, family: Family) -> list[Candidate]:
    """Every candidate that is worth a look, legal or not."""
    found: list[Candidate] = []
    for cluster in CLUSTERS if family != "portable" else (1,):
        if family != "portable":
            found += _kept(p, family, cluster)
        found += _streamed(p, family, cluster)
    return list(dict.fromkeys(found))


def _candidate(
    p: RowReduceProblem, family: Family, cluster: int, schedule: Schedule, threads: int, slots: int, work: RowWork
) -> Candidate:
    rows = threads // work.row_threads
    per_cta = vectors_of(p, cluster) * kernels.vector_elements(p)
    return Candidate(
        family, (cluster, 1, 1), schedule, (rows, per_cta, kernels.vector_elements(p)), slots, threads, work
    )


def _batch(vectors: int, most: int) -> int:
    return next(each for each in (4, 2, 1) if each <= most and vectors % each == 0)


def _kept(p: RowReduceProblem, family: Family, cluster: int) -> list[Candidate]:
    run = vectors_of(p, cluster)
    most = 2 if p.elementwise else 4
    found = []
    if cluster == 1 and run <= 32 * 8:  # a warp, or a part of one, has a row to itself
        lanes = next(each for each in (4, 8, 16, 32) if each >= min(run, 32))
        found.append(_one_row(p, family, cluster, 128 if p.elementwise else 256, lanes, -(-run // lanes)))
    for threads in WIDTHS:
        vectors = -(-run // threads)
        tight = threads == 1024 and wide(p) and weights_of(p) == 2  # 64 registers
        if vectors <= MAX_VECTORS["one_tile"] and not _wasted(threads, vectors, run) and not tight:
            found.append(_one_row(p, family, cluster, threads, threads, vectors))
    for threads, share in PERSISTENT if p.elementwise else ():
        vectors = -(-run // threads)
        least = 4 if threads == 1024 else 2
        if not least <= vectors <= MAX_VECTORS["static"] or _wasted(threads, vectors, run):
            continue
        work = RowWork(threads, vectors, _batch(vectors, most), share)
        found += [each for kept in _ahead(p, family, cluster, work) for each in _persistent(p, kept)]
    return found


def _wasted(threads: int, vectors: int, run: int) -> bool:
    """A third of the slots or more would stay empty."""
    return threads > 128 and vectors * threads >= 1.5 * run


def _one_row(
    p: RowReduceProblem, family: Family, cluster: int, threads: int, row_threads: int, vectors: int
) -> Candidate:
    """A CTA or a cluster to each row, or to a few side by side: as many CTAs on an SM as registers allow."""
    registers = registers_of(p, vectors)
    if row_threads <= 32 and vectors > 4:  # rows side by side: more addresses
        registers = max(registers, 40)
    held = 0
    if weights_of(p) == 1 and p.op == "rmsnorm":  # asked for before the row is there, they are no wait behind it
        held = min(vectors, (registers - (32 if vectors <= 4 else 48)) // 4)
    elif weights_of(p) and row_threads <= 32 and vectors <= 4 and not wide(p):  # the same of a row that a warp has
        held = vectors * weights_of(p)
        registers = 48 + 4 * held
    share = max(1, REGISTERS_PER_SM // (threads * registers))
    work = RowWork(row_threads, vectors, _batch(vectors, 2 if p.elementwise else 4), share, held)
    found = _candidate(p, family, cluster, "one_tile", threads, vectors, work)
    if not p.elementwise:
        return found
    item = kernels.rows_per_cta(found) * vectors_of(p, cluster) * kernels.VECTOR_BYTES  # of one CTA
    ahead = SMS[family] * (PREFETCH_BYTES[family] + item) // (2 * item * cluster)
    return replace(found, work=replace(work, prefetch=ahead))


def _ahead(p: RowReduceProblem, family: Family, cluster: int, work: RowWork) -> list[Candidate]:
    """A persistent CTA: vectors of the next row come in behind the one at hand, and what is needed again stays where
    there is room: exponentials and weights in registers, further weights in shared memory beside two vectors of the
    next row or more. None where the inner loops would spill."""
    threads, vectors = work.row_threads, work.vectors
    cap = REGISTERS_PER_SM // (threads * work.ctas_per_sm) // 8 * 8
    fixed = kernels.exchange_bytes(_candidate(p, family, cluster, "static", threads, vectors, work))
    per_sm = kernels.SMEM_PER_SM_BYTES // work.ctas_per_sm - kernels.SMEM_RESERVED_BYTES
    room = (min(per_sm, kernels.SMEM_BYTES[family]) - fixed) // (threads * kernels.VECTOR_BYTES)
    weights, exact = weights_of(p) * vectors, wide(p)
    if room < vectors or (exact and cap <= WIDE_REGISTERS and threads < 1024):
        return []
    held = slots = 0
    if weights:
        slots = min(weights, max(0, room - vectors - 2 if threads <= 256 else room - 2 * vectors))
        working = WORKING_REGISTERS[vectors > 8] + (EXACT_REGISTERS if exact else 0)
        held = min(weights - slots, max(0, (cap - working) // 4))
        slots += min(weights - slots - held, max(0, room - vectors - slots - max(2, vectors // 2)))
        tight = cap <= WIDE_REGISTERS and weights_of(p) == 2 and (vectors > 4 or work.ctas_per_sm > 1)
        if tight or (vectors > 8 and threads < 512):
            return []
    elif kernels.held_kind(p) == "exponentials":
        held = HELD_POWERS[vectors > 8].get(cap, 2 if vectors <= 4 else 0)
        held = min(held, vectors // 2 if work.ctas_per_sm == 1 else vectors) // work.batch * work.batch
    if (
        vectors > 8
        and threads < 1024
        and (p.op == "log_softmax" or (p.op == "softmax" and (threads < 512 or not held)))
    ):
        return []
    early = 0  # what several CTAs of an SM wait for, they hide from each other; and weights take the registers
    if work.ctas_per_sm == 1 and not weights and not exact:
        early = min(vectors // 2, min(2 * vectors, room) - vectors, vectors - held)
    ahead = round(PREFETCH_BYTES[family] / (work.ctas_per_sm * threads * kernels.VECTOR_BYTES))
    work = replace(work, held=held, weight_slots=slots, prefetch=min(vectors, max(1, ahead)))
    work = replace(work, early=early // work.batch * work.batch)
    return [_candidate(p, family, cluster, "static", threads, min(2 * vectors, room - slots), work)]


def _streamed(p: RowReduceProblem, family: Family, cluster: int) -> list[Candidate]:
    found = []
    for threads in (256, 512) if family != "portable" else (256,):
        held = max(1, REGISTERS_PER_SM // (threads * WIDE_REGISTERS))
        work = RowWork(threads, 0, 2 if p.elementwise or registers_of(p, 0) == WIDE_REGISTERS else 4, held)
        schedule: Schedule = "one_tile" if family == "portable" else "static"
        found += _persistent(p, _candidate(p, family, cluster, schedule, threads, STREAM_SLOTS, work))
    return found


def _persistent(p: RowReduceProblem, c: Candidate) -> list[Candidate]:
    """The candidate, and one that claims its rows where the family can: with fewer weights in registers, or, where it
    streams, on fewer CTAs of an SM."""
    if c.family != "sm100":
        return [c]
    w = kernels.work_of(c)
    held = max(0, w.held - CLAIM_REGISTERS // 4) if weights_of(p) else w.held
    claims = c.with_schedule("clc")
    return [c, replace(claims, work=replace(w, held=held)) if w.vectors else claims]


# ---- cost ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate with its cost, or with the clause that it breaks."""

    candidate: Candidate
    timing: Timing
    violation: Violation | None


def issue_slots(p: RowReduceProblem, c: Candidate) -> float:
    """Of a lane, for one element."""
    w = kernels.work_of(c)
    slots = ISSUE[p.op] + WEIGHT_ISSUE * weights_of(p)
    if c.schedule == "one_tile":
        slots *= 1.0 + SERIAL_SHARE * w.vectors
    if kernels.held_kind(p) == "exponentials" and w.vectors:
        slots -= POWER_ISSUE * w.held / w.vectors
    if p.elementwise and not w.vectors:
        slots *= STREAM_ISSUE
    return slots + (EXACT_ISSUE.get(p.op, 0.0) if p.out_dtype == "fp32" else 0.0)


def fetched_vectors(p: RowReduceProblem, c: Candidate) -> int:
    """Vectors of a thread of weights and biases that come from the L2 for each row."""
    w = kernels.work_of(c)
    if not weights_of(p):
        return 0
    vectors = w.vectors or -(-vectors_of(p, c.cluster_size) // w.row_threads)
    return weights_of(p) * vectors - w.held - w.weight_slots


def read_bytes(p: RowReduceProblem) -> int:
    return p.rows * p.cols * p.in_bytes


def written_bytes(p: RowReduceProblem) -> int:
    return p.rows * (p.cols if p.elementwise else 1) * p.out_bytes


def affine_bytes(p: RowReduceProblem) -> int:
    return p.cols * p.in_bytes * (int(p.weight) + int(p.bias))


def dram_bytes(p: RowReduceProblem, c: Candidate, profile: DeviceProfile, resident: int) -> int:
    """Compulsory bytes, and the second reading of a streamed row as far as the L2 has lost it."""
    again = 0
    if kernels.passes(p, c) == 2:
        in_work = min(p.rows, resident * kernels.rows_per_cta(c)) * p.cols * p.in_bytes
        lost = 1.0 - min(1.0, L2_SHARE * profile.l2_bytes / max(1, in_work))
        again = int(read_bytes(p) * lost)
    return read_bytes(p) + written_bytes(p) + affine_bytes(p) + again


def row_us(p: RowReduceProblem, c: Candidate) -> tuple[float, float]:
    """What one CTA waits for on its own: (its launch and first load, what a row waits for)."""
    size, w = c.cluster_size, kernels.work_of(c)
    form = "streamed" if not w.vectors else "one_tile" if c.schedule == "one_tile" else "static"
    alone = c.schedule == "one_tile"
    exchange_us = 0.1 if w.row_threads <= 32 else 0.0 if w.early else EXCHANGE_US[size]
    vectors = w.vectors or -(-vectors_of(p, size) // (w.row_threads * w.batch)) * w.batch
    per_vector = (NORM_VECTOR_US if p.op == "layernorm" else VECTOR_US)[form] * (1.0 if p.elementwise else 0.5)
    elements = kernels.rows_per_cta(c) * min(p.cols, c.tile[1])
    start_us = START_US + min(elements * p.in_bytes, c.stages * c.threads * kernels.VECTOR_BYTES) / FILL_BYTES_PER_US
    waits_us = exchange_us + vectors * per_vector
    if alone:
        waits_us += start_us + (CLUSTER_US if size > 1 else 0.0)
    elif w.vectors:
        waits_us += AHEAD_US + SHALLOW_US * max(0.0, 2.0 - c.stages / w.vectors)
    else:
        waits_us += STREAM_US
    if p.op == "logsumexp" and not w.vectors:
        waits_us += LOGARITHM_US
    fetched = fetched_vectors(p, c)
    if fetched:
        own = weights_of(p) * min(p.cols, c.tile[1]) * p.in_bytes
        missed = 1.0 - min(1.0, L1_BYTES / own) if alone else 1.0
        waits_us += fetched * missed * WEIGHT_US["one_tile" if alone else "static"]
    return start_us, waits_us


def idle_share(c: Candidate, profile: DeviceProfile, available: int) -> float:
    """Of the places of a CTA on each SM, as many to an SM as there are, those that no cluster fills."""
    ctas = available * c.cluster_size
    return 1.0 - min(1.0, ctas / (-(-ctas // profile.sms) * profile.sms))


def uneven_share(c: Candidate) -> float:
    """Of its time, that DRAM waits longer where persistent CTAs that keep rows ask unevenly."""
    w = kernels.work_of(c)
    if c.schedule == "one_tile" or not w.vectors:
        return 0.0
    shallow, shared, single = c.stages < 2 * w.vectors, w.ctas_per_sm > 1, c.cluster_size == 1
    return SHALLOW_SHARE * shallow + SHARED_SHARE * shared + SINGLE_SHARE * single


def l2_bytes(p: RowReduceProblem, c: Candidate) -> int:
    """Rows, and the weights that a row waits for: the bytes whose time at the L2 counts."""
    weights = p.rows * c.cluster_size * fetched_vectors(p, c) * kernels.work_of(c).row_threads * kernels.VECTOR_BYTES
    return read_bytes(p) * kernels.passes(p, c) + weights


def weight_reads(p: RowReduceProblem, c: Candidate, grid: int) -> int:
    """Bytes of weights and biases that a launch of `grid` clusters asks the L2 for: what a persistent CTA keeps, once;
    the rest for every row."""
    w, total = kernels.work_of(c), affine_bytes(p) if p.elementwise else 0
    if not total:
        return 0
    if c.schedule == "one_tile" or not w.vectors:
        return total * p.rows
    kept = (w.held + w.weight_slots) / (weights_of(p) * w.vectors)
    return round(total * (kept * min(p.rows, grid) + (1.0 - kept) * p.rows))


def memory_us(
    p: RowReduceProblem, c: Candidate, profile: DeviceProfile, resident: int, available: int
) -> tuple[float, float]:
    """(DRAM, L2) of a launch."""
    bandwidth = profile.dram_bytes_per_s * (1.0 if p.elementwise else READ_ONLY)
    dram_us = dram_bytes(p, c, profile, resident) / bandwidth * 1e6
    dram_us *= 1.0 + IDLE_SHARE * idle_share(c, profile, available)
    dram_us *= 1.0 + uneven_share(c)
    return dram_us, l2_bytes(p, c) / L2_BYTES_PER_US


def timing(p: RowReduceProblem, c: Candidate, profile: DeviceProfile, resident: int, available: int) -> Timing:
    """The parts of a launch. `resident` clusters at once on an idle GPU, `available` of them here."""
    size = c.cluster_size
    rows = kernels.rows_per_cta(c)
    items = -(-p.rows // rows)
    clk = profile.max_clock_hz / 1e6 * 0.95  # what the SMs run at while memory is the limit
    at_once = max(1, min(available, items))
    sharing = max(1.0, at_once * size / profile.sms)  # CTAs of an SM
    elements = rows * min(p.cols, c.tile[1])
    issue_us = elements * issue_slots(p, c) / (LANES_PER_CLK * ISSUE_SHARE * clk)
    start_us, waits_us = row_us(p, c)
    alone_us = waits_us + ALONE_SHARE * issue_us
    main_us = max(alone_us, sharing * issue_us)
    claim_us = profile.clc_round_trip_cycles / clk if c.schedule == "clc" else 0.0
    planned = items if c.schedule in WHOLE_GRID else min(items, resident, _budgeted(p, c, profile) or resident)
    exact = items / at_once
    rounds = max(1.0, exact) if c.schedule == "one_tile" else float(-(-items // at_once))
    if c.schedule == "one_tile" or not items:  # a CTA's start is a part of each row
        start_us = 0.0
    makespan_us = start_us + (rounds if items else 0.0) * max(main_us, claim_us)
    extra_us = 0.0
    if p.elementwise and c.schedule != "one_tile":  # where a CTA has one row, the makespan has all of it
        extra_us = PERSISTENT_US + LAST_ROWS * main_us * min(1.0, max(0.0, exact - 1.0))
    dram_us, l2_us = memory_us(p, c, profile, resident, available)
    found = Timing(
        time_us=0.0,
        makespan_us=makespan_us,
        launch_us=profile.launch_us,
        main_us=main_us,
        prologue_us=start_us,  # of a cluster that runs several rows
        epilogue_us=0.0,
        overlap=0.0,
        claim_us=claim_us,
        extra_us=extra_us,
        dram_us=float(np.linalg.norm((dram_us, l2_us), DRAM_SHARPNESS)),
        tiles=items,
        planned=planned,
        resident=resident,
        available=available,
        bound="",
        bounds={
            "dram": dram_us,
            "l2": l2_us,
            "issue": rounds * sharing * issue_us,
            "latency": profile.launch_us + start_us + rounds * (alone_us - ALONE_SHARE * issue_us),
        },
        claims_ahead=claims_ahead(p, c),
    )
    total = found.total_us(makespan_us)
    bound = max(found.bounds, key=lambda name: found.bounds[name])
    return replace(found, time_us=total, bound=bound)


def claims_ahead(p: RowReduceProblem, c: Candidate) -> int:
    """Items that a cluster has claimed or asked for beyond the one that it computes: those whose copies have begun or
    begin with its second pass, and the next. Of streamed rows the copies are as many batches ahead as slots hold."""
    w = kernels.work_of(c)
    if w.vectors:
        return 3
    turns = -(-vectors_of(p, c.cluster_size) // (w.row_threads * w.batch))
    return 1 + -(-(c.stages // w.batch) // (turns * kernels.passes(p, c)))


@dataclass(frozen=True, eq=False)
class RowSearch:
    """One family's candidates with their costs: a `Search`."""

    roles = Axes()

    family: Family
    profile: DeviceProfile
    rows: Sequence[Row]
    answers: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    measured: Mapping[int, float] = field(default_factory=dict)
    moved: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def time_us(self) -> NDArray[np.float64]:
        times = np.array([np.inf if each.violation else each.timing.time_us for each in self.rows])
        times[list(self.measured)] = list(self.measured.values())
        return times

    @cached_property
    def reasons(self) -> Sequence[Violation]:
        return [each.violation for each in self.rows if each.violation is not None]

    @cached_property
    def reason(self) -> NDArray[np.int64]:
        numbers = np.cumsum([each.violation is not None for each in self.rows]) - 1
        return np.where([each.violation is not None for each in self.rows], numbers, -1).astype(np.int64)

    @cached_property
    def simplicity(self) -> NDArray[np.int64]:
        keys = [simpler(each.candidate) for each in self.rows]
        order = {key: place for place, key in enumerate(sorted(set(keys)))}
        return np.array([order[key] for key in keys], dtype=np.int64)

    @property
    def moved_bytes(self) -> NDArray[np.float64]:
        return self.moved

    @cached_property
    def axes(self) -> Mapping[str, tuple[Sequence[Any], NDArray[np.int64]]]:
        picked = [each.candidate for each in self.rows]
        values: dict[str, list[Any]] = {
            "schedule": [c.schedule for c in picked],
            "cluster_size": [c.cluster_size for c in picked],
            "cluster": [c.cluster for c in picked],
            "tile": [(c.tile[0], c.tile[1]) for c in picked],
            "stages": [c.stages for c in picked],
            "form": [form(c) for c in picked],
            "threads": [c.threads for c in picked],
        }
        return {name: _axis(each) for name, each in values.items()}

    def candidate(self, i: int) -> Candidate:
        return self.rows[i].candidate

    def timing(self, i: int) -> Timing:
        return self.rows[i].timing

    def queried(self, i: int) -> dict[str, Any] | None:
        return self.answers.get(i)


def form(c: Candidate) -> str:
    return "kept" if kernels.work_of(c).vectors else "streamed"


def _axis(values: list[Any]) -> tuple[Sequence[Any], NDArray[np.int64]]:
    labels = sorted(set(values))
    return labels, np.array([labels.index(each) for each in values], dtype=np.int64)


def simpler(c: Candidate) -> tuple[int, ...]:
    return (c.cluster_size, SCHEDULE_RANK[c.schedule], int(not kernels.work_of(c).vectors))


def chosen(p: RowReduceProblem, family: Family, given: Mapping[str, Any]) -> list[Candidate]:
    """The candidates that honour what is forced; where none does, what was asked for, so that a clause can name why."""
    everything = candidates(p, family)
    wanted = {name: value for name, value in given.items() if value is not None}
    fitting = [
        c
        for c in everything
        if c.cluster == wanted.get("cluster", c.cluster) and c.schedule == wanted.get("schedule", c.schedule)
    ]
    stages = wanted.get("stages")
    found = fitting or [forced(c, wanted) for c in everything]
    return list(dict.fromkeys(found if stages is None else [_with_stages(c, stages) for c in found]))


def _with_stages(c: Candidate, stages: int) -> Candidate:
    """The candidate with another number of slots: what it reads early of the next row is among those beyond the row."""
    w = kernels.work_of(c)
    early = min(w.early, max(0, stages - w.vectors)) // w.batch * w.batch
    return replace(c, stages=stages, work=replace(w, early=early))


def forced(c: Candidate, wanted: Mapping[str, Any]) -> Candidate:
    """The candidate with overrides put in, legal or not. A row of another cluster is streamed."""
    cluster = wanted.get("cluster", c.cluster)
    if cluster != c.cluster:
        c = c.on_cluster(*cluster)
    return _with_stages(replace(c, schedule=wanted.get("schedule", c.schedule)), wanted.get("stages", c.stages))


def evaluate(
    p: RowReduceProblem, c: Candidate, profile: DeviceProfile, occupancy: Occupancy | None = None
) -> tuple[Row, dict[str, Any] | None]:
    """A candidate with its cost or the first clause that it breaks, and an oracle's facts where it answered."""
    need, size = kernels.resources(c), c.cluster_size
    fit = ctas_per_sm(profile, need.threads, need.registers, need.dynamic_smem_bytes)
    resident = clusters_that_fit(profile, fit, size)
    facts = None
    if occupancy is not None and resident:
        answer = occupancy(
            OccupancyKey(need.threads, need.registers, need.dynamic_smem_bytes, "max", c.cluster), profile
        )
        if answer is not None:
            resident, facts = answer
    cost = timing(p, c, profile, max(1, resident), _available(p, c, profile, fit, max(1, resident)))
    return Row(c, cost, next(iter(clauses(p, c, profile, resident)), None)), facts


def _available(p: RowReduceProblem, c: Candidate, profile: DeviceProfile, fit: int, resident: int) -> int:
    """Clusters at once beside other work, and within the budget of SMs."""
    busy = p.shared_gpu.busy_sms
    found = min(resident, _budgeted(p, c, profile) or resident)
    if busy:
        found = min(found, _beside(busy, c, profile, fit))
    return max(1, found)


def _budgeted(p: RowReduceProblem, c: Candidate, profile: DeviceProfile) -> int | None:
    """Clusters that a launch within the budget of SMs has, as launch.json says it; None: a grid is as large as fits."""
    budget = p.constraints.sm_budget
    return None if budget is None or budget >= profile.sms else max(1, budget // c.cluster_size)


def _beside(busy_sms: int, c: Candidate, profile: DeviceProfile, fit: int) -> int:
    """Clusters at once beside other work: were no SM left to them, there would be nothing to plan."""
    return free_clusters(profile, fit, c.cluster_size, min(busy_sms, profile.sms - 1))


def no_clc(c: Candidate, profile: DeviceProfile) -> list[Violation]:
    """Responses are multicast to a cluster: the clause is that of the architecture-specific target."""
    if c.schedule != "clc" or supports(Feature.CLC_MULTICAST, profile.arch):
        return []
    text = (
        f"{profile.title} ({profile.arch}) has no Cluster Launch Control: it begins with compute capability 10.0; "
        "schedule: one_tile and static run there"
    )
    return [Violation("NO_CLC", text, {"target": profile.arch})]


def clauses(p: RowReduceProblem, c: Candidate, profile: DeviceProfile, resident: int) -> list[Violation]:
    """Every clause that the candidate breaks on a GPU that holds `resident` of its clusters at once."""
    found, size = [*no_clc(c, profile), *kernels.violations(p, c)], c.cluster_size
    if c.family != "portable":
        found += kernels.misaligned(p)
    largest, limit, budget = profile.max_cluster_size, p.constraints.max_cluster_size, p.constraints.sm_budget
    if size > largest:
        code = "NO_CLUSTERS" if largest == 1 else "MAX_CLUSTER_8" if largest == 8 else "CLUSTER_OVER_16"
        found.append(
            Violation(code, f"{profile.title} has clusters of at most {largest}", {"max_cluster_size": largest})
        )
    if size > limit:
        text = f"a cluster of {size}, and constraints.max_cluster_size is {limit}"
        found.append(Violation("CLUSTER_OVER_CONSTRAINT", text, {"max_cluster_size": limit}))
    if budget is not None and c.family != "portable":
        if c.schedule in WHOLE_GRID:
            how = "one row per cluster" if c.schedule == "one_tile" else "Cluster Launch Control"
            text = f"{how} launches the whole grid on every SM, whatever the budget; schedule: static keeps to it"
            found.append(Violation("SM_BUDGET_SCHEDULE", text, {"sm_budget": budget}))
        if size > budget:
            text = f"a cluster of {size} is more than the budget of {budget} SMs"
            found.append(Violation("SM_BUDGET_CLUSTER", text, {"sm_budget": budget}))
    if resident == 0 and size <= largest:
        text = f"no cluster of {size} with {kernels.smem_bytes(c)} bytes of shared memory a CTA fits on {profile.title}"
        found.append(Violation("ZERO_ACTIVE_CLUSTERS", text, {"cluster_size": size}))
    held, need = p.shared_gpu.busy_sms, kernels.resources(c)
    if held and resident > 0:
        fit = ctas_per_sm(profile, need.threads, need.registers, need.dynamic_smem_bytes)
        if not _beside(held, c, profile, fit):
            text = f"no cluster of {size} fits beside other work that holds {held} of {profile.sms} SMs"
            found.append(Violation("ZERO_ACTIVE_CLUSTERS", text, {"busy_sms": held}))
    return found
