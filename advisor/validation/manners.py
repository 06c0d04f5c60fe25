"""How often, and in which manners, the emulator runs a case. Imports the emulator's policies.

Asynchronous work may land eagerly, lazily, at random or adversarially; Cluster Launch Control may grant or decline; a
launch that mixes two cluster sizes starts one, the other, or both; a seed decides who runs next. By default each case
meets each policy once, with the seeds spread over them, so that over the cases of a kernel every policy meets every
seed; in full it meets the product. What another compiler made of the same source meets each case once, with the
policies spread over them: its order of waits and arrivals is the source's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from advisor.emulator.policy import CLC_POLICIES, CLUSTER_MIXES, POLICIES

SEEDS = 8
DECLINED = 3  # `decline:N` fails the first, the second or the third request of each cluster, by the case's number


@dataclass(frozen=True, slots=True)
class Manner:
    """One way to run a case. `clc_policy` is None for a kernel that asks for no clusters, `cluster_mix` for one whose
    launch has clusters of one size; no kernel has both."""

    async_policy: str
    clc_policy: str | None
    seed: int
    cluster_mix: str | None = None

    def __str__(self) -> str:
        clc = f", CLC {self.clc_policy}" if self.clc_policy else ""
        mix = f", clusters {self.cluster_mix}" if self.cluster_mix else ""
        return f"{self.async_policy}{clc}{mix}, seed {self.seed}"


def manners(
    number: int,
    *,
    full: bool = False,
    once: bool = False,
    clc: bool = False,
    mixed: bool = False,
    async_policies: Sequence[str] = POLICIES,
) -> list[Manner]:
    """The manners of the case with this number among those of its kernel. Each policy of either kind occurs; with
    `once` over several cases. `clc`: the kernel asks for clusters; `mixed`: its launch
    mixes two sizes of them."""
    if mixed:
        return [
            replace(each, clc_policy=None, cluster_mix=each.clc_policy)
            for each in _dealt(number, CLUSTER_MIXES, full, once, async_policies)
        ]
    nth = str(1 + number % DECLINED)
    answers: Sequence[str | None] = [each.replace("N", nth) for each in CLC_POLICIES] if clc else [None]
    return _dealt(number, answers, full, once, async_policies)


def _dealt(
    number: int, answers: Sequence[str | None], full: bool, once: bool, async_policies: Sequence[str]
) -> list[Manner]:
    """`answers` are the policies of the other kind."""
    if full:
        return [Manner(*each) for each in product(async_policies, answers, range(SEEDS))]
    count = max(len(async_policies), len(answers))
    made = [
        Manner(
            async_policies[each % len(async_policies)],
            answers[(number + each) % len(answers)],
            (3 * number + each) % SEEDS,  # 3 and 8 have no common factor: every policy comes to every seed
        )
        for each in range(count)
    ]
    if once:
        return [replace(made[number % count], seed=(number + number // count) % SEEDS)]
    return made
