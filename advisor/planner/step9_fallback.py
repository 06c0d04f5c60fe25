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
        words.append(f"{operands} start and step in multiples of 16 bytes")
    return "; ".join([*words, *c.work.conditions(c)])


def view(f: Facts) -> Step:
    rows: list[list[object]] = []
    for rung in f.rungs:
        operands = f.tma_operands(rung)
        for number, c in enumerate(rung_kernels(rung.candidate)):
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


def rung_kernels(chosen: Candidate) -> list[Candidate]:
    """The choice and the twins that a bundle builds with it, in the order of the ladder."""
    if chosen.family == "portable":
        return [chosen]
    found = [chosen, chosen.with_schedule("static")]
    smaller = chosen.in_smaller_clusters if chosen.work.preferred_cluster is not None else chosen
    found.append(smaller)
    while smaller.cluster_size > 2:
        smaller = _halved(smaller)
        found.append(smaller)
    found.append(chosen.on_cluster(1, 1, 1).with_schedule("one_tile"))
    return list(dict.fromkeys(found))


def _halved(c: Candidate) -> Candidate:
    """On clusters of half the size: y before x where it is as long, a pair keeps its two CTAs, slices of K last."""
    x, y, z = c.cluster
    least = c.work.least_x
    if y > 1 and (y >= x or x <= least):
        return c.on_cluster(x, y // 2, z)
    return c.on_cluster(x // 2, y, z) if x > least else c.on_cluster(x, y, z // 2)
