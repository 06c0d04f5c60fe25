"""Step 8: fewer, as many and slightly more tiles than resident clusters; busy SMs; skew.

Imports `context` and `search`.
"""

from __future__ import annotations

from typing import Any

from advisor.planner.context import Facts, reason, table
from advisor.planner.search import run, same_shape, schedules_of
from advisor.records.plan import Decision, Step

SKEW = 0.5


def view(f: Facts) -> Step:
    top, limits = f.top, f.limits
    resident = max(1, top.timing.resident)
    own = top.timing.tiles
    half = max(1, resident // 2)
    cases: list[tuple[str, int, int, float]] = [
        ("one tile", 1, resident, 0.0),
        ("one fewer than resident", max(1, resident - 1), resident, 0.0),
        ("as many as resident", resident, resident, 0.0),
        ("one more than resident", resident + 1, resident, 0.0),
        ("this problem", own, top.timing.available, limits["tile_cost_cv"]),
        ("this problem, half of the clusters", own, half, limits["tile_cost_cv"]),
        (f"this problem, skewed by {SKEW}", min(own, 4096), resident, SKEW),
    ]
    names = [each for each in schedules_of(top) if same_shape(top, each) is not None]
    timings = {each: top.search.timing(row) for each in names if (row := same_shape(top, each)) is not None}
    rows: list[list[Any]] = []
    for label, tiles, places, cv in cases:
        made = {
            each: run(
                timings[each],
                each,
                {**limits, "busy_sms": 0, "sm_budget": None},
                tiles=tiles,
                available=places,
                planned=resident,
                cv=cv,
            ).makespan_us
            for each in names
        }
        rows.append([label, tiles, places, *(made[each] for each in names), min(made, key=lambda each: made[each])])
    most = -(-own // resident)
    outcome = run(top.timing, top.candidate.schedule, limits)
    return Step(
        step=8,
        name="tail",
        decisions=[
            Decision(
                question="What does the tail cost?",
                choice=f"{outcome.waves:.4g} waves, the last one {outcome.last_wave_use:.1%} full",
                because=[
                    reason(
                        f"{own} cluster tiles on {top.timing.available} clusters: {outcome.idle_share:.1%} of "
                        f"the cluster time is idle",
                        "derived",
                        waves=outcome.waves,
                        last_wave_use=outcome.last_wave_use,
                        idle_share=outcome.idle_share,
                    )
                ],
            )
        ],
        artifact={
            "cases": table(["case", "tiles", "clusters_at_once", *(f"{each}_us" for each in names), "fastest"], rows),
            "fairness": f"no worker runs more than {outcome.max_tiles} of {own} tiles; an equal share is "
            f"{own / resident:.4g}",
            "starvation_bound": f"a tile waits for at most {most} turns of its worker; with one resident "
            f"cluster for {own}",
        },
    )
