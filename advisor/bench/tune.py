"""Tuning: the planner's pick against its best rivals on the device, and whether one of them earned its place.

The pick stands unless a rival wins twice: in the contest of all, and in a duel with fresh samples. Imports this room
and the tie rule of validation.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from advisor.bench.contest import PICK, Contest
from advisor.bench.results import Contestant, ProblemResult
from advisor.bench.run import Children, Prepared, measure
from advisor.bench.summary import Ratio, ratio
from advisor.validation.experiment import TIE

DUEL_ROUNDS = 2  # times the rounds of the contest


@dataclass(frozen=True, slots=True)
class Tuned:
    """`winner` is the default itself where no rival won. `gain` is the default's time over the winner's, from the
    duel; None where there was none."""

    result: ProblemResult
    duel: ProblemResult | None
    default: Contestant | None
    winner: Contestant | None
    gain: Ratio | None
    why: str  # one sentence

    @property
    def changed(self) -> bool:
        return self.winner is not None and self.default is not None and self.winner.name != self.default.name


def tune(prepared: Prepared, children: Children) -> Tuned:
    """Measures the contest, then the best rival against the default alone."""
    result = measure(prepared, children)
    default = result.first("pick")
    rivals = [each for each in result.by_role("candidate") if each.samples_us]
    best = min(rivals, key=lambda each: statistics.median(each.samples_us), default=None)
    contest = prepared.contest
    if default is None:
        why = "the planner's pick was not right or did not come back: " + (_detail(result) or result.not_run)
        return Tuned(result, None, None, best, None, why)
    if best is None or contest is None:
        return Tuned(result, None, default, default, None, "no rival came through: the pick stands")
    first = ratio(default, best)
    if first is None or first.value <= 1.0 + TIE:
        margin = "" if first is None else f" (the nearest takes {1 / first.value:.3f} of its time)"
        return Tuned(result, None, default, default, None, f"no rival beats the pick by more than the tie{margin}")
    duel = measure(replace(prepared, contest=_duel(contest, best.name)), children)
    again = ratio(duel.first("pick"), duel.first("candidate"))
    if again is None or again.low <= 1.0 or again.value <= 1.0 + TIE:
        why = f"{best.label} won the contest by {first.value:.3f} and not the duel: the pick stands"
        return Tuned(result, duel, default, default, again, why)
    why = f"{best.label} takes {1 / again.value:.3f} of the pick's time, in the contest and in the duel"
    return Tuned(result, duel, default, best, again, why)


def _duel(contest: Contest, rival: str) -> Contest:
    entries = tuple(each for each in contest.job.entries if each.name in (PICK, rival))
    job = replace(contest.job, entries=entries, baselines=(), rounds=contest.job.rounds * DUEL_ROUNDS)
    return replace(contest, job=job, rejected={})


def _detail(result: ProblemResult) -> str:
    return next((each.detail for each in result.by_role("pick") if each.detail), "")
