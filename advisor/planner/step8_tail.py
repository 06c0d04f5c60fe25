"""Step 8: fewer, as many and slightly more tiles than resident clusters; busy SMs; skew.

Imports `context` and `search`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from advisor.kinds.words import reason, table
from advisor.kinds.workload import Timing
from advisor.planner.context import Facts
from advisor.planner.search import run, same_shape, schedules_of
from advisor.records.candidate import Schedule, Unit
from advisor.records.plan import Decision, Step

SKEW = 0.5
SKEWED_TILES = 4096  # at most: planning is to stay quick, and the case says how many it has
Place = Literal["problem", "resident", "half"]


@dataclass(frozen=True, slots=True)
class _Case:
    """A number of tiles and where they run: on the places of this problem, or on all or half of an idle GPU's."""

    label: str
    tiles: int
    place: Place
    cv: float = 0.0

    def clusters(self, timing: Timing) -> int:
        """At once: schedules of one shape may be resident in different numbers."""
        if self.place == "problem":
            return max(1, timing.available)
        return max(1, timing.resident // (2 if self.place == "half" else 1))


def _cases(timing: Timing, unit: Unit, under: str) -> list[_Case]:
    """`under`: behind "resident", the schedule of which that is so; empty where all have as many."""
    resident, own = max(1, timing.resident), timing.tiles
    some = min(own, SKEWED_TILES)
    of = "this problem" if some == own else f"{some} of its {own} {unit.many}"
    return [
        _Case(f"one {unit.one}", 1, "resident"),
        _Case(f"one fewer than resident{under}", max(1, resident - 1), "resident"),
        _Case(f"as many as resident{under}", resident, "resident"),
        _Case(f"one more than resident{under}", resident + 1, "resident"),
        _Case("this problem", own, "problem"),
        _Case("this problem, half of the clusters", own, "half"),
        _Case(f"{of}, skewed by {SKEW}", some, "resident", SKEW),
    ]


def _total_us(timing: Timing, schedule: Schedule, limits: Mapping[str, Any], case: _Case) -> float:
    """Of this problem what step 6 says; of another number of tiles with their share of the traffic."""
    if case.place == "problem":
        return timing.total_us(run(timing, schedule, limits).makespan_us)
    cv = case.cv if case.cv or case.place == "resident" else limits["tile_cost_cv"]
    idle = {**limits, "busy_sms": 0, "sm_budget": None}
    clusters, planned = case.clusters(timing), max(1, timing.resident)
    outcome = run(timing, schedule, idle, tiles=case.tiles, available=clusters, planned=planned, cv=cv)
    share = case.tiles / max(1, timing.tiles)
    return replace(timing, dram_us=timing.dram_us * share).total_us(outcome.makespan_us)


def view(f: Facts) -> Step:
    top, limits = f.top, f.limits
    own, places = top.timing.tiles, max(1, top.timing.available)
    timings = {each: top.search.timing(row) for each in schedules_of(top) if (row := same_shape(top, each)) is not None}
    alike = len({(each.resident, each.available) for each in timings.values()}) == 1
    at_once = ["clusters_at_once"] if alike else [f"{each}_clusters" for each in timings]
    columns = ["case", "tiles", *at_once, *(f"{each}_us" for each in timings), "fastest"]
    rows: list[list[Any]] = []
    for case in _cases(top.timing, f.unit, "" if alike else f" under {top.candidate.schedule}"):
        clusters = {name: case.clusters(timing) for name, timing in timings.items()}
        made = {name: _total_us(timing, name, limits, case) for name, timing in timings.items()}
        shown = list(clusters.values())[: len(at_once)]
        rows.append([case.label, case.tiles, *shown, *made.values(), min(made, key=lambda each: made[each])])
    outcome = run(top.timing, top.candidate.schedule, limits)
    turn = top.timing.main_us + top.timing.epilogue_us
    return Step(
        step=8,
        name="tail",
        decisions=[
            Decision(
                question="What does the tail cost?",
                choice=f"{outcome.waves:.4g} waves, the last one {outcome.last_wave_use:.1%} full"
                if own > places
                else f"no tail: {own} {f.unit.wholes}, {places} clusters at once",
                because=[
                    reason(
                        f"{own} {f.unit.wholes} on {places} clusters: {outcome.idle_share:.1%} of the cluster time "
                        "is idle",
                        "derived",
                        tiles=own,
                        clusters=places,
                        waves=outcome.waves,
                        last_wave_use=outcome.last_wave_use,
                        idle_share=outcome.idle_share,
                    )
                ],
            )
        ],
        artifact={
            "cases": table(columns, rows),
            "times_of_cases": "totals as in step 6, launch and DRAM included; a "
            f"{f.unit.one} takes as long in every case as in this problem, and DRAM as much longer as there are more "
            f"{f.unit.many}",
            "fairness": f"no place runs more than {outcome.max_tiles} of {own} {f.unit.many}; an equal share is "
            f"{own / places:.4g}",
            "starvation_bound": f"every {f.unit.one} has started after at most {own} turns of {turn:.3g} us if one "
            f"cluster is resident, after {-(-own // places)} with {places}"
            + ("" if limits["tile_cost_cv"] == 0 else ", on average of the skewed costs"),
        },
    )
