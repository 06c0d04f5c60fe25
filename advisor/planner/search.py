"""The search: pick the best legal candidate of each family, with the tie rule, and keep what lost and why.

Imports `kinds`, `simulation`, `records` and `machine`. One function evaluates a family (`explore` of the kind); here
it is read as arrays. Nothing is committed before residency and tail are known: both are in the cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.words import Option
from advisor.kinds.workload import Search, Timing, Workload
from advisor.machine.profile import DeviceProfile, EvidenceKind
from advisor.records.candidate import SCHEDULES, Candidate, Family, Resources, Schedule
from advisor.records.rows import TileMap, Violation
from advisor.simulation import Outcome, Setup, simulate, skewed_costs

TIE = 1.015  # within 1.5 % the simpler wins
MIX_GAIN = 1.05  # two cluster sizes in a launch: the hardware promises no share of the larger, so they win clearly
MAX_SIMULATED_TILES = 20_000
FINALISTS = 4  # shapes of each schedule that are simulated where tiles differ or SMs are busy
MAX_ATTEMPTS = 32


@dataclass(frozen=True, eq=False)
class Rung:
    """One family's pick, complete."""

    family: Family
    profile: DeviceProfile
    search: Search
    row: int
    candidate: Candidate
    timing: Timing
    resources: Resources
    tiles: TileMap
    dropped: tuple[Violation, ...] = ()  # clauses that candidates ahead of the pick broke when asked in full
    times: Mapping[int, float] = field(default_factory=dict)  # simulated or measured times by row

    @property
    def time_us(self) -> float:
        return self.times.get(self.row, self.timing.time_us)

    def label(self, axis: str) -> Any:
        """The pick's own option of an axis."""
        labels, codes = self.search.axes[axis]
        return labels[int(codes[self.row])]

    @cached_property
    def comparable(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Every candidate's time beside the pick's.

        Where tiles differ or SMs are busy only finalists are simulated; the closed form of the others is drawn out as
        the simulation drew out the pick's, and not below the pick, which won it. What was measured stays as it is.
        """
        times = self.search.time_us.copy()
        simulated = [row for row in self.times if row not in self.search.measured]
        if simulated:
            drawn_out = self.time_us / self.timing.time_us if self.row in simulated else 1.0
            times = np.maximum(times * drawn_out, self.time_us)
        times[list(self.times)] = list(self.times.values())
        return times

    @property
    def evidence(self) -> EvidenceKind:
        return "measured" if self.row in self.search.measured else "derived"


def choose(workload: Workload, search: Search) -> Rung | None:
    """The family's pick, or None where nothing is legal.

    The pick is asked in full (`clauses`) before it stands: the space asks its families in parts.
    """
    limits = workload.limits()
    uneven = limits["tile_cost_cv"] > 0 or limits["busy_sms"] > 0
    times = search.time_us.copy()
    known: dict[int, float] = {}
    if uneven:
        known = _simulated(search, times, limits)
        keep = np.zeros(len(times), dtype=np.bool_)
        keep[list(known)] = True
        times = np.where(keep, times, np.inf)
    known.update(search.measured)  # over the model and over the simulation
    times[list(known)] = list(known.values())
    times = _cautious(search, times)
    dropped: list[Violation] = []
    for _ in range(MAX_ATTEMPTS):
        found = _simplest(times, search)
        if found is None:
            return None
        row = found
        candidate = search.candidate(row)
        broken = workload.clauses(candidate, search.profile)
        if not broken:
            return _rung(workload, search, row, candidate, tuple(dropped), known)
        dropped.append(broken[0])
        times[row] = np.inf
    return None


def _cautious(search: Search, times: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Times to rank by: what was not measured and is the hardware's best effort has to be faster by MIX_GAIN, of which
    the tie rule asks its part of every candidate that is less simple."""
    if "mixed" not in search.axes:
        return times
    labels, codes = search.axes["mixed"]
    unsure = np.asarray(labels, dtype=np.bool_)[codes]
    unsure[list(search.measured)] = False
    return np.where(unsure, times * (MIX_GAIN / TIE), times)


def rung_at(workload: Workload, rung: Rung, row: int) -> Rung | None:
    """Another row of the rung's search as a rung of its own; None where a clause rules it out after all."""
    candidate = rung.search.candidate(row)
    if workload.clauses(candidate, rung.profile):
        return None
    return _rung(workload, rung.search, row, candidate, (), {**rung.times, row: float(rung.comparable[row])})


def _rung(
    workload: Workload,
    search: Search,
    row: int,
    candidate: Candidate,
    dropped: tuple[Violation, ...],
    times: Mapping[int, float],
) -> Rung:
    return Rung(
        family=search.family,
        profile=search.profile,
        search=search,
        row=row,
        candidate=candidate,
        timing=search.timing(row),
        resources=workload.resources(candidate),
        tiles=workload.coordinates(candidate),
        dropped=dropped,
        times=times,
    )


def _simplest(times: np.ndarray[Any, np.dtype[np.float64]], search: Search) -> int | None:
    """Row of the simplest candidate within the tie of the fastest; among equally simple ones, the one that moves the
    fewest bytes, since nothing else tells them apart and bytes cost power; then the fastest."""
    best = float(times.min()) if len(times) else np.inf
    if not np.isfinite(best):
        return None
    near = np.flatnonzero(times <= best * TIE)
    order = np.lexsort((times[near], search.moved_bytes[near], search.simplicity[near]))
    return int(near[order[0]])


def _simulated(
    search: Search, times: np.ndarray[Any, np.dtype[np.float64]], limits: Mapping[str, Any]
) -> dict[int, float]:
    """Simulated time of the best shapes of every schedule: the closed forms know equal tiles on an idle GPU only."""
    labels, codes = search.axes["schedule"]
    found: dict[int, float] = {}
    for code in range(len(labels)):
        rows = np.flatnonzero((codes == code) & np.isfinite(times))
        sizes_labels, sizes = search.axes["cluster_size"]
        for size in range(len(sizes_labels)):
            own = rows[sizes[rows] == size]
            for row in own[np.argsort(times[own], kind="stable")[: FINALISTS // 2]].tolist():
                timing = search.timing(row)
                outcome = run(timing, labels[code], limits)
                found[row] = timing.total_us(outcome.makespan_us)
    return found


def run(
    timing: Timing,
    schedule: Schedule,
    limits: Mapping[str, Any],
    *,
    tiles: int | None = None,
    available: int | None = None,
    planned: int | None = None,
    cv: float | None = None,
    trace: bool = False,
) -> Outcome:
    """One launch of a candidate in the simulation; the keywords replace what the plan has. `trace` keeps every span."""
    count = timing.tiles if tiles is None else tiles
    places = max(1, timing.available if available is None else available)
    cv = limits["tile_cost_cv"] if cv is None else cv
    grid = min(count, timing.resident if planned is None else planned) if schedule in ("static", "ticket") else None
    if schedule in ("static", "ticket") and planned is None and limits["sm_budget"] is not None:
        grid = min(count, places)
    if grid is not None and grid > places and available is None and limits["busy_sms"] > 0 and schedule == "static":
        places = max(1, places - 1)  # how many SMs are busy is a snapshot: a static grid is charged for one place more
    cost: Any = timing.main_us
    if cv > 0.0 and 0 < count <= MAX_SIMULATED_TILES:
        cost = skewed_costs(count, timing.main_us, cv, limits["seed"])
    # One tile: CTAs that share an SM begin and end under each other's main loops, the first and the last alone.
    share = timing.sharing if schedule == "one_tile" else 1
    setup = Setup(
        schedule=schedule,
        cost_us=cost,
        tiles=None if cost is not timing.main_us else count,
        resident=places,
        planned=None if grid is None else max(1, grid),
        prologue_us=timing.prologue_us / share,
        epilogue_us=timing.epilogue_us / share,
        overlap=timing.overlap if schedule != "one_tile" else 0.0,
        claim_us=timing.claim_us if schedule in ("ticket", "clc") else 0.0,
        prefetch=timing.claims_ahead,
        throttle=timing.claims_ahead,
        trace=trace,
    )
    outcome = _many(setup, count) if grid is not None and grid > places else simulate(setup)
    outcome = _over_places(outcome, count, places)
    if share == 1 or count == 0:
        return outcome
    alone = (timing.prologue_us + timing.epilogue_us) * (1.0 - 1.0 / share)
    return replace(outcome, makespan_us=outcome.makespan_us + alone)


def _over_places(outcome: Outcome, count: int, places: int) -> Outcome:
    """A grid of fewer clusters than there are places leaves the others idle, as a grid of one cluster a tile does."""
    workers = len(outcome.finish_us)
    if workers >= places or count == 0:
        return outcome
    share = workers / places
    return replace(
        outcome,
        waves=outcome.waves * share if count <= workers else outcome.waves,
        last_wave_use=outcome.last_wave_use * share,
        idle_share=1.0 - (1.0 - outcome.idle_share) * share,
    )


def _many(setup: Setup, count: int) -> Outcome:
    """A grid beyond residency, which has no closed form. Equal tiles add the same with every further round, so of very
    many the last rounds are enough."""
    grid = setup.planned or setup.resident
    unit = grid if setup.schedule == "static" else setup.resident
    rounds = max(0, count - MAX_SIMULATED_TILES) // unit
    if setup.tiles is None or rounds == 0 or count - rounds * unit < 2 * grid:
        return simulate(setup)
    few = simulate(replace(setup, tiles=count - rounds * unit))
    fewer = simulate(replace(setup, tiles=count - (rounds + 1) * unit))
    return replace(
        few,
        makespan_us=few.makespan_us + rounds * (few.makespan_us - fewer.makespan_us),
        waves=count / len(few.finish_us),
        max_tiles=few.max_tiles + rounds * (few.max_tiles - fewer.max_tiles),
        last_wave_use=((count - 1) % len(few.finish_us) + 1) / len(few.finish_us),
    )


def options(rung: Rung, axis: str) -> list[Option]:
    """Every value of an axis against the pick, best first; the impossible ones last, with the clause that the
    candidates nearest to the pick break: others may be illegal for what has nothing to do with the question."""
    labels, codes = rung.search.axes[axis]
    times, reason = rung.comparable, rung.search.reason
    if axis not in ("cluster", "cluster_size") and "mixed" in rung.search.axes and not rung.label("mixed"):
        kinds, mixed = rung.search.axes["mixed"]  # of no other question: they stand beside the cluster sizes
        times = np.where(np.asarray(kinds, dtype=np.bool_)[mixed], np.inf, times)
    found = []
    for code, label in enumerate(labels):
        mask = codes == code
        own = np.where(mask, times, np.inf)
        row = int(np.argmin(own))
        if np.isfinite(own[row]):
            time_us = float(own[row])
            evidence: EvidenceKind = "measured" if row in rung.search.measured else "derived"
            found.append(Option(label, row, time_us, time_us / rung.time_us - 1.0, evidence=evidence))
            continue
        broken = reason[_nearest(rung, axis, mask & (reason >= 0))]
        if len(broken):
            commonest = int(np.argmax(np.bincount(broken)))
            count = int(np.count_nonzero(reason[mask] == commonest))
            found.append(Option(label, None, np.inf, np.inf, rung.search.reasons[commonest], count))
    return sorted(found, key=lambda each: each.margin)


def _nearest(rung: Rung, axis: str, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of these candidates, the ones that agree with the pick on most of the other questions."""
    others = [codes for name, (_, codes) in rung.search.axes.items() if name != axis]
    alike: NDArray[np.int64] = np.add.reduce([codes == codes[rung.row] for codes in others], axis=0, dtype=np.int64)
    nearest: NDArray[np.bool_] = rows & (alike == np.max(alike, where=rows, initial=0))
    return nearest


def same_shape(rung: Rung, schedule: Schedule) -> int | None:
    """The row that differs from the pick in its schedule alone, where it is legal."""
    if schedule == rung.candidate.schedule:
        return rung.row
    search, mask = rung.search, np.isfinite(rung.search.time_us)
    for axis in search.roles.shape:
        _, codes = search.axes[axis]
        mask = mask & (codes == codes[rung.row])
    labels, codes = search.axes["schedule"]
    if schedule not in labels:
        return None
    rows = np.flatnonzero(mask & (codes == list(labels).index(schedule)))
    return int(rows[np.argmin(search.time_us[rows])]) if len(rows) else None


def rejected_counts(search: Search) -> list[tuple[str, int, str]]:
    """(code, candidates, an example's words) of everything that is illegal, the commonest first."""
    found: dict[str, tuple[int, str]] = {}
    counts = np.bincount(search.reason[search.reason >= 0])
    for value in np.flatnonzero(counts).tolist():
        count = int(counts[value])
        violation = search.reasons[value]
        before = found.get(violation.code, (0, violation.message))
        found[violation.code] = (before[0] + count, before[1])
    return sorted(((code, n, text) for code, (n, text) in found.items()), key=lambda each: -each[1])


def schedules_of(rung: Rung) -> tuple[Schedule, ...]:
    labels, _ = rung.search.axes["schedule"]
    return tuple(each for each in SCHEDULES if each in labels)
