"""Step 9: which path runs where, with the exact trigger of every rung. Imports `context`.

The rungs are those that a bundle builds: of each family the choice, its static twin, ever smaller clusters, and one
tile per single CTA.
"""

from __future__ import annotations

from advisor.kinds.words import reason, table
from advisor.planner.context import Facts, kernel_id
from advisor.planner.search import Rung
from advisor.records.candidate import Candidate
from advisor.records.plan import Decision, Step
from advisor.records.twins import twins

WHOLE_GRID = ("one_tile", "clc")


def trigger(rung: Rung, operands: str) -> str:
    """When a plan's rung runs, in words; launch.json has the expression."""
    return _when(rung.candidate, operands)


def _when(c: Candidate, operands: str) -> str:
    if c.family == "portable":
        return "no rung above runs: any GPU of its images, any alignment, any SM budget"
    words = [
        "its image loads",
        f"at least one cluster of {c.cluster_size} is resident"
        if c.cluster_size > 1
        else "at least one CTA is resident",
    ]
    if c.work.preferred_cluster is not None:
        words.append(f"each cluster is one of {c.unit_size} where that has room, else of {c.cluster_size}")
    if c.schedule in WHOLE_GRID:
        words.append("the SM budget is the whole device")
    if operands:
        verbs = "start and step" if " and " in operands else "starts and steps"
        words.append(f"{operands} {verbs} in multiples of 16 bytes")
    return "; ".join([*words, *c.work.conditions(c)])


def view(f: Facts) -> Step:
    rows: list[list[object]] = []
    for rung in f.rungs:
        operands = f.tma_operands(rung)
        for number, c in enumerate(twin.candidate for twin in twins(rung.candidate)):
            rows.append(
                [
                    len(rows) + 1,
                    kernel_id(c),
                    "the same GPU" if number else f.workload.runs_on(rung.family),
                    ("the rung above does not run; " if rows and c.family != "portable" else "") + _when(c, operands),
                ]
            )
    return Step(
        step=9,
        name="fallback",
        decisions=[
            Decision(
                question="What runs where the choice cannot?",
                choice=" -> ".join(each.family for each in f.rungs),
                because=[
                    reason(
                        f"{rung.family} is planned on its own for {rung.profile.name}: {kernel_id(rung.candidate)}, "
                        f"{rung.time_us:.4g} us there",
                        rung.evidence,
                        time_us=rung.time_us,
                        profile=rung.profile.name,
                    )
                    for rung in f.rungs
                ],
            )
        ],
        artifact={"ladder": table(["rung", "kernel", "runs_on", "trigger"], rows)},
    )
