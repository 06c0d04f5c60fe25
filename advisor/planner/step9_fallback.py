"""Step 9: which path runs where, with the exact trigger of every rung. Imports `context`."""

from __future__ import annotations

from advisor.planner.context import Facts, kernel_id, reason, table
from advisor.planner.search import Rung
from advisor.records.plan import Decision, Step

FAMILY_WORDS = {
    "sm100": "compute capability 10.x (sm_100a, sm_100f, sm_103a): tcgen05",
    "sm90": "compute capability 9.0 (sm_90a): wgmma",
    "portable": "compute capability 8.0 and later: mma.sync",
}


def trigger(rung: Rung, first: bool) -> str:
    """When this rung runs, in words; launch.json has the expression."""
    c = rung.candidate
    if rung.family == "portable":
        return "everything above declined: any GPU from compute capability 8.0 on, any alignment"
    words = [
        f"an image for {'this family' if first else rung.profile.arch} loads",
        f"at least one cluster of {c.cluster_size} is resident",
    ]
    words.append(
        "A and B have 16-byte bases and strides" + (", D as well for TMA stores" if rung.family == "sm90" else "")
    )
    return "; ".join(words)


def view(f: Facts) -> Step:
    rows: list[list[object]] = []
    for number, rung in enumerate(f.rungs):
        c = rung.candidate
        rows.append([len(rows) + 1, kernel_id(c), FAMILY_WORDS[rung.family], trigger(rung, number == 0)])
        if c.schedule == "clc":
            rows.append(
                [
                    len(rows) + 1,
                    f"{rung.family}_static",
                    "the same GPU",
                    "CLC is switched off or not validated on this compute capability",
                ]
            )
        if rung.family != "portable" and c.schedule != "one_tile":
            rows.append(
                [len(rows) + 1, f"{rung.family}_one_tile", "the same GPU", "the persistent kernels are switched off"]
            )
        size = c.cluster_size
        while size > 2:
            size //= 2
            rows.append(
                [
                    len(rows) + 1,
                    f"{rung.family}, cluster of {size}",
                    "the same GPU",
                    f"no cluster of {size * 2} is resident",
                ]
            )
    rungs = [each.family for each in f.rungs]
    return Step(
        step=9,
        name="fallback",
        decisions=[
            Decision(
                question="What runs where the choice cannot?",
                choice=" -> ".join(rungs),
                because=[
                    reason(
                        f"{rung.family} is planned on its own for {rung.profile.name}: {rung.time_us:.4g} us there",
                        "derived",
                        time_us=rung.time_us,
                    )
                    for rung in f.rungs
                ],
            )
        ],
        artifact={"ladder": table(["rung", "kernel", "runs_on", "trigger"], rows)},
    )
