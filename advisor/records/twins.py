"""Which kernels a bundle holds beside the chosen one, so that its ladder has a next rung for every way to fail.

    static twin        where the chosen schedule is not static: a caller with an SM budget needs a grid that it can cap
    smaller clusters   16 -> 8 -> 4 -> 2: where the chosen cluster might not be resident (size above 2)
    one-tile twin      one CTA per tile and no cluster: nothing left that residency could refuse

All keep the chosen tile, operands and stages, so that they share its source. Step 9 of a plan lists them and `codegen`
renders them. Imports its own package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.records.candidate import SCHEDULES, Candidate, Schedule

Role = Literal["chosen", "static_twin", "one_tile_twin", "smaller_cluster", "portable", "reduce"]


@dataclass(frozen=True, slots=True)
class Twin:
    candidate: Candidate
    role: Role


def twins(chosen: Candidate) -> list[Twin]:
    """The chosen candidate and its twins, in the order of the ladder, without repetitions."""
    if chosen.family == "portable":
        return [Twin(chosen, "portable")]
    found = [Twin(chosen, "chosen"), Twin(chosen.with_schedule("static"), "static_twin")]
    found += [Twin(each, "smaller_cluster") for each in smaller_clusters(chosen)]
    found.append(Twin(single_cta(chosen).with_schedule("one_tile"), "one_tile_twin"))
    unique: dict[Candidate, Twin] = {}
    for twin in found:
        unique.setdefault(twin.candidate, twin)
    return list(unique.values())


def smaller_clusters(c: Candidate) -> list[Candidate]:
    """The candidate on ever smaller clusters, down to two CTAs; of a mix of two sizes, first on the smaller alone."""
    found = []
    if c.work.preferred_cluster is not None:
        c = c.in_smaller_clusters
        found.append(c)
    while c.cluster_size > 2:
        c = halved(c)
        found.append(c)
    return found


def halved(c: Candidate) -> Candidate:
    """The candidate on clusters of half the size. The longer side in the plane of the output gives way, y before x;
    slices of K that sit in one cluster (z) only when nothing else is left. A CTA pair keeps its two CTAs along x."""
    x, y, z = c.cluster
    least_x = c.work.least_x
    if y > 1 and (y >= x or x <= least_x):
        y //= 2
    elif x > least_x:
        x //= 2
    else:
        z //= 2
    return c.on_cluster(x, y, z)


def single_cta(c: Candidate) -> Candidate:
    """The candidate without clusters: no multicast, no pair, no slices of K in a cluster."""
    return c.on_cluster(1, 1, 1)


def other_schedules(chosen: Candidate) -> list[Candidate]:
    """The chosen candidate under every other schedule, simplest first; whether a family has it is the kind's to say."""
    schedules: list[Schedule] = [each for each in SCHEDULES if each != chosen.schedule]
    return [chosen.with_schedule(each) for each in schedules]
