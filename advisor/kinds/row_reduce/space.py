"""The candidates of a row reduction and what each costs. Imports `kinds.workload`, `machine`, `problem`, `records` and
this package's `kernels`.

For each cluster size: the CTA widths that keep a row with up to 16 vectors a thread, one row at a time or with the next
one coming in behind it, and a width that streams. What a launch costs follows from three bounds: issue and latency make
the time of the CTAs, which `Timing.total_us` joins with that of DRAM.

    dram      bytes that must move, over the copy bandwidth; a second reading of a row counts as far as the L2 cannot
              hold the rows that are in work
    issue     instructions of all resident CTAs of an SM: per element of a row, by operation and type
    latency   start, first load, the exchange of partials: what one CTA of an SM cannot hide from itself

Constants were fitted to one H200 (bf16; docs/row_reduce.md): the instructions of an element are those of the built
kernels' inner loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.row_reduce import kernels
from advisor.kinds.row_reduce.work import STREAM_SLOTS, RowWork
from advisor.kinds.workload import Axes, Occupancy, Timing
from advisor.machine.features import Feature, supports
from advisor.machine.occupancy import clusters_that_fit, ctas_per_sm, free_clusters
from advisor.machine.profile import DeviceProfile
from advisor.problem.row_reduce import NORMS, RowReduceProblem
from advisor.records.candidate import Candidate, Family, OccupancyKey, Schedule
from advisor.records.rows import Violation

CLUSTERS = (1, 2, 4, 8, 16)
MAX_VECTORS = {"one_tile": 8, "static": 16}  # of a thread: more of them wait for each other
L1_BYTES = 16_384  # that a static kernel leaves to weights
WIDTHS = (128, 256, 512, 1024)  # threads of a CTA that share a row
WHOLE_GRID = ("one_tile", "clc")  # a cluster for every item of work
SCHEDULE_RANK: dict[Schedule, int] = {"one_tile": 0, "static": 1, "ticket": 2, "clc": 3}

# Registers of a thread that the inner loops take without spilling, where many CTAs share an SM.
REGISTERS = {"softmax": 32, "log_softmax": 32, "logsumexp": 32, "layernorm": 40, "rmsnorm": 32, "sum": 32, "max": 32}
AFFINE_REGISTERS = {"layernorm": 56, "rmsnorm": 48}  # with weight or bias
WIDE_REGISTERS = 64  # results of 24 bits

# Issue slots of a lane for an element that is read and written.
ISSUE = {
    "softmax": 13.0,
    "log_softmax": 11.0,
    "logsumexp": 6.5,
    "layernorm": 11.0,
    "rmsnorm": 7.5,
    "sum": 3.5,
    "max": 2.5,
}
AFFINE_ISSUE = 4.0  # for each of weight and bias
EXACT_ISSUE = {"softmax": 14.0, "log_softmax": 7.0, "logsumexp": 7.0}
BATCH_ISSUE = {1: 1.06, 2: 1.0, 4: 0.94}  # sums of exponentials are rescaled once a batch
STREAM_ISSUE = 1.3  # each vector is copied, awaited and found twice
LANES_PER_CLK = 128.0
ISSUE_SHARE = 0.7  # of the slots that are used at best
START_US = 1.6  # of a CTA: its launch and its first loads
AHEAD_US = 0.9  # of a row where the next one comes in behind it: what the SM waits for all the same
STREAM_US = 0.5  # of a streamed row
VECTOR_US = 0.08  # of a row, one to a CTA, for each vector of a thread: they are read one after the other
NORM_VECTOR_US = 0.3  # the same where deviations are taken, and weights fetched
AHEAD_VECTOR_US = 0.02  # and where the next row comes in behind
AFFINE_US = 4.5  # of a row of a cluster, one to a CTA: weights come from the L2 in a second pass that waits for them
EXCHANGE_US = {1: 0.2, 2: 1.0, 4: 1.1, 8: 1.2, 16: 1.3}  # of partials: shuffles, a barrier, pushes
FILL_BYTES_PER_US = 60_000.0  # of one SM from DRAM, alone
READ_ONLY = 1.05  # bandwidth where nothing is written, over the copy's
L2_SHARE = 0.3  # of the L2 that rows in work may fill and still be there for the second reading


def vectors_of(p: RowReduceProblem, cluster: int) -> int:
    """Vectors of a row in one CTA of a cluster."""
    total = -(-p.cols // kernels.vector_elements(p))
    return max(1, -(-total // cluster))


def holds(p: RowReduceProblem, cluster: int) -> bool:
    """Whether the shared memory of a cluster takes a row: every thread of a CTA has as many slots as any other."""
    run, limit = vectors_of(p, cluster), kernels.SMEM_BYTES["sm90"]
    for threads in WIDTHS:
        vectors = -(-run // threads)
        kept = _candidate(p, "sm90", cluster, "static", threads, vectors, RowWork(threads, vectors))
        if vectors <= MAX_VECTORS["static"] and kernels.smem_bytes(kept) <= limit:
            return True
    return False


def registers_of(p: RowReduceProblem) -> int:
    if p.out_dtype == "fp32" or p.dtype == "fp32":
        return WIDE_REGISTERS
    return AFFINE_REGISTERS[p.op] if p.op in NORMS and (p.weight or p.bias) else REGISTERS[p.op]


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
    regs = registers_of(p)
    found = []
    if cluster == 1 and run <= 32 * 8:  # a warp, or a part of one, has a row to itself
        lanes = next(each for each in (4, 8, 16, 32) if each >= min(run, 32))
        vectors = -(-run // lanes)
        threads = 128 if p.elementwise else 256
        work = RowWork(lanes, vectors, _batch(vectors, most), max(1, kernels.REGISTERS_PER_SM // (threads * regs)))
        found.append(_candidate(p, family, 1, "one_tile", threads, vectors, work))
    for threads in WIDTHS:
        vectors = -(-run // threads)
        if vectors > MAX_VECTORS["static"] or (threads > 128 and vectors * threads >= 1.5 * run):
            continue
        held = max(1, kernels.REGISTERS_PER_SM // (threads * regs))
        work = RowWork(threads, vectors, _batch(vectors, most), held)
        if vectors <= MAX_VECTORS["one_tile"]:
            found.append(_candidate(p, family, cluster, "one_tile", threads, vectors, work))
        if p.elementwise and threads >= 512:
            affine = p.op == "layernorm" and (p.weight or p.bias)  # takes more registers than the others
            if affine and (threads == 1024 or vectors > MAX_VECTORS["one_tile"]):
                continue
            batch = _batch(vectors, 4 if threads == 512 and not affine else 2)
            work = RowWork(threads, vectors, batch, 1)
            fixed = kernels.exchange_bytes(_candidate(p, family, cluster, "static", threads, vectors, work))
            slots = (kernels.SMEM_BYTES[family] - fixed - L1_BYTES) // (threads * kernels.VECTOR_BYTES)
            slots = max(vectors, min(slots, 2 * vectors))
            found += _persistent(_candidate(p, family, cluster, "static", threads, slots, work))
    return found


def _streamed(p: RowReduceProblem, family: Family, cluster: int) -> list[Candidate]:
    found = []
    for threads in (256, 512) if family != "portable" else (256,):
        held = max(1, kernels.REGISTERS_PER_SM // (threads * WIDE_REGISTERS))
        work = RowWork(threads, 0, 2 if p.elementwise or registers_of(p) == WIDE_REGISTERS else 4, held)
        schedule: Schedule = "one_tile" if family == "portable" else "static"
        found += _persistent(_candidate(p, family, cluster, schedule, threads, STREAM_SLOTS, work))
    return found


def _persistent(c: Candidate) -> list[Candidate]:
    """The candidate, and one that claims its rows where the family has Cluster Launch Control."""
    return [c, c.with_schedule("clc")] if c.family == "sm100" else [c]


# ---- cost ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate with its cost, or with the clause that it breaks."""

    candidate: Candidate
    timing: Timing
    violation: Violation | None


def issue_slots(p: RowReduceProblem) -> float:
    """Of a lane, for one element."""
    slots = ISSUE[p.op] + AFFINE_ISSUE * (int(p.weight) + int(p.bias))
    return slots + (EXACT_ISSUE.get(p.op, 0.0) if p.out_dtype == "fp32" else 0.0)


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


def timing(p: RowReduceProblem, c: Candidate, profile: DeviceProfile, resident: int, available: int) -> Timing:
    """The parts of a launch. `resident` clusters at once on an idle GPU, `available` of them here."""
    size, w = c.cluster_size, kernels.work_of(c)
    rows = kernels.rows_per_cta(c)
    items = -(-p.rows // rows)
    clk = profile.max_clock_hz / 1e6 * 0.9  # what the SMs run at while memory is the limit
    sharing = max(1.0, available * size / profile.sms)  # CTAs of an SM
    if items:
        sharing = max(1.0, min(sharing, items * size / profile.sms))
    elements = rows * min(p.cols, c.tile[1])
    slots = issue_slots(p) * (BATCH_ISSUE[w.batch] if p.op in EXACT_ISSUE else 1.0)
    slots *= STREAM_ISSUE if kernels.passes(p, c) == 2 else 1.0
    issue_us = elements * slots / (LANES_PER_CLK * ISSUE_SHARE * clk)
    fetched = elements * p.in_bytes * kernels.passes(p, c)
    exchange_us = EXCHANGE_US[size] if w.row_threads > 32 else 0.1
    first_us = waits_us = START_US + fetched / FILL_BYTES_PER_US + exchange_us
    if c.schedule != "one_tile":  # nothing came in ahead of a CTA's first row
        waits_us = AHEAD_US if w.vectors else STREAM_US + exchange_us
        exchange_us = min(exchange_us, waits_us)
    start_us = max(0.0, first_us - waits_us) if items else 0.0
    alone_us = waits_us + issue_us
    main_us = max(alone_us, sharing * issue_us + exchange_us)
    per_vector = NORM_VECTOR_US if p.op in NORMS else VECTOR_US
    main_us += w.vectors * (per_vector if c.schedule == "one_tile" and w.row_threads > 32 else AHEAD_VECTOR_US)
    if size > 1 and c.schedule == "one_tile" and (p.weight or p.bias):
        main_us += AFFINE_US
    claim_us = profile.clc_round_trip_cycles / clk if c.schedule == "clc" else 0.0
    planned = items if c.schedule in WHOLE_GRID else min(items, resident)
    rounds = -(-items // max(1, min(available, planned))) if items else 0
    makespan_us = start_us + rounds * max(main_us, claim_us)
    moved = dram_bytes(p, c, profile, resident)
    bandwidth = profile.dram_bytes_per_s * (READ_ONLY if not p.elementwise else 1.0)
    dram_us = moved / bandwidth * 1e6
    found = Timing(
        time_us=0.0,
        makespan_us=makespan_us,
        launch_us=profile.launch_us,
        main_us=main_us,
        prologue_us=start_us,  # of a cluster that runs several rows; else a part of each
        epilogue_us=0.0,
        overlap=0.0,
        claim_us=claim_us,
        extra_us=0.0,
        dram_us=dram_us,
        tiles=items,
        planned=planned,
        resident=resident,
        available=available,
        bound="",
        bounds={
            "dram": dram_us,
            "issue": rounds * sharing * issue_us,
            "latency": profile.launch_us + start_us + rounds * (alone_us - issue_us),
        },
        claims_ahead=claims_ahead(p, c),
    )
    total = found.total_us(makespan_us)
    bound = max(found.bounds, key=lambda name: found.bounds[name])
    return replace(found, time_us=total, bound=bound)


def claims_ahead(p: RowReduceProblem, c: Candidate) -> int:
    """Items that a cluster has claimed or asked for beyond the one that it computes: those whose copies have begun, and
    the next. Of streamed rows the copies are as many batches ahead as slots hold."""
    w = kernels.work_of(c)
    if w.vectors:
        return 2
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
    return list(dict.fromkeys(found if stages is None else [replace(c, stages=stages) for c in found]))


def forced(c: Candidate, wanted: Mapping[str, Any]) -> Candidate:
    """The candidate with overrides put in, legal or not. A row of another cluster is streamed."""
    cluster = wanted.get("cluster", c.cluster)
    if cluster != c.cluster:
        c = c.on_cluster(*cluster)
    return replace(c, schedule=wanted.get("schedule", c.schedule), stages=wanted.get("stages", c.stages))


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
    busy, budget = p.shared_gpu.busy_sms, p.constraints.sm_budget
    found = resident
    if busy:
        found = min(found, free_clusters(profile, fit, c.cluster_size, min(busy, profile.sms - 1)))
    if budget is not None and budget < profile.sms:
        found = min(found, budget // c.cluster_size)
    return max(1, found)


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
    return found
