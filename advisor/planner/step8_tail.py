"""Step 8: fewer, as many and slightly more tiles than resident clusters; busy SMs; skew.

Imports `context` and `search`.
"""

from __future__ import annotations

from typing import Any

from advisor.kinds.words import reason, table
from advisor.planner.context import Facts
from advisor.planner.search import run, same_shape, schedules_of
from advisor.records.plan import Decision, Step

SKEW = 0.5
SKEWED_TILES = 4096  # at most, of the case that shows what skew does


def view(f: Facts) -> Step:
    top, limits = f.top, f.limits
    resident = max(1, top.timing.resident)
    own, places = top.timing.tiles, max(1, top.timing.available)
    half = max(1, resident // 2)
    cases: list[tuple[str, int, int, float]] = [
        ("one tile", 1, resident, 0.0),
        ("one fewer than resident", max(1, resident - 1), resident, 0.0),
        ("as many as resident", resident, resident, 0.0),
        ("one more than resident", resident + 1, resident, 0.0),
        ("this problem", own, places, limits["tile_cost_cv"]),
        ("this problem, half of the clusters", own, half, limits["tile_cost_cv"]),
        (f"this problem, skewed by {SKEW}", min(own, SKEWED_TILES), resident, SKEW),
    ]
    names = [each for each in schedules_of(top) if same_shape(top, each) is not None]
    timings = {each: top.search.timing(row) for each in names if (row := same_shape(top, each)) is not None}
    rows: list[list[Any]] = []
    for label, tiles, at_once, cv in cases:
        made = {
            each: run(
                timings[each],
                each,
                {**limits, "busy_sms": 0, "sm_budget": None},
                tiles=tiles,
                available=at_once,
                planned=resident,
                cv=cv,
            ).makespan_us
            for each in names
        }
        rows.append([label, tiles, at_once, *(made[each] for each in names), min(made, key=lambda each: made[each])])
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
                else f"no tail: {own} cluster tiles, {places} clusters at once",
                because=[
                    reason(
                        f"{own} cluster tiles on {places} clusters: {outcome.idle_share:.1%} of the cluster time "
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
            "cases": table(["case", "tiles", "clusters_at_once", *(f"{each}_us" for each in names), "fastest"], rows),
            "fairness": f"no place runs more than {outcome.max_tiles} of {own} tiles; an equal share is "
            f"{own / places:.4g}",
            "starvation_bound": f"every tile has started after at most {own} turns of {turn:.3g} us if one cluster is "
            f"resident, after {-(-own // places)} with {places}"
            + ("" if limits["tile_cost_cv"] == 0 else ", on average of the skewed costs"),
        },
    )
