"""Every schedule of the chosen kernel side by side, with the spans of its tiles: what `advisor simulate` shows.

Imports `search` and rooms below `planner`. The numbers are those of step 6; here they keep their trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.kinds.workload import Timing, Workload
from advisor.machine.profile import DeviceProfile
from advisor.planner.search import choose, run, same_shape, schedules_of
from advisor.records.candidate import Candidate, Family, Schedule
from advisor.simulation import Outcome

MAX_TRACED_TILES = 20_000


def _places(timing: Timing, outcome: Outcome) -> int:
    """Clusters at once: those that a grid of few clusters leaves idle count too."""
    workers = len(outcome.finish_us)
    return max(workers, timing.available) if timing.tiles <= workers else workers


@dataclass(frozen=True, slots=True)
class Simulated:
    """One schedule of one shape. `margin` is its total over the chosen schedule's, minus 1."""

    schedule: Schedule
    total_us: float  # launch, makespan joined with DRAM time, and what follows the last tile
    margin: float
    workers: int  # clusters at once
    tiles: int
    outcome: Outcome


def simulate_schedules(
    workload: Workload, target: DeviceProfile, rung_profiles: Mapping[Family, DeviceProfile]
) -> tuple[Candidate, list[Simulated]] | None:
    """The first rung's candidate and its simulation under every schedule of its family; None where nothing is legal."""
    for family in workload.families(target):
        rung = choose(workload, workload.explore(rung_profiles[family], family, forced=True))
        if rung is None:
            continue
        rows = []
        for schedule in schedules_of(rung):
            row = same_shape(rung, schedule)
            if row is None:
                continue
            timing = rung.search.timing(row)
            outcome = run(timing, schedule, workload.limits(), trace=timing.tiles <= MAX_TRACED_TILES)
            rows.append((schedule, timing, outcome, timing.total_us(outcome.makespan_us)))
        own = next(total for schedule, _, _, total in rows if schedule == rung.candidate.schedule)
        return rung.candidate, [
            Simulated(schedule, total, total / own - 1.0, _places(timing, outcome), timing.tiles, outcome)
            for schedule, timing, outcome, total in rows
        ]
    return None
