"""The experiment that could prove a choice wrong: two rungs timed in turn, and what their samples say.

Imports `errors`.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any, Literal

from advisor.errors import InputError

TIE = 0.015  # a smaller difference is none: the planner's own tie rule
_RESAMPLES = 2000
_CONFIDENCE = 0.95


def check_experiment(name: str | None) -> None:
    """Raises InputError EXPERIMENT_UNKNOWN for an experiment that is not None, `ab` or `schedule`."""
    if name not in (None, "ab", "schedule"):
        raise InputError(
            "EXPERIMENT_UNKNOWN",
            f"unknown experiment {name!r}",
            fix="use ab (the choice against its best rival) or schedule (all schedules while other work holds SMs)",
            numbers={"experiment": name},
        )


def judge(choice_us: Sequence[float], alternative_us: Sequence[float]) -> dict[str, Any]:
    """What interleaved times say of the claim that the choice is at least as fast as its alternative.

    `ratio` is alternative / choice, median over median, with the 95 % interval of a bootstrap over the pairs. The claim
    is refuted when even the upper end of the interval leaves the choice slower by more than the tie rule's 1.5 %,
    confirmed when the median ratio does not, and open in between.
    """
    ratio = statistics.median(alternative_us) / statistics.median(choice_us)
    low, high = interval(choice_us, alternative_us)
    verdict: Literal["confirms", "refutes", "open"] = "open"
    if high < 1.0 - TIE:
        verdict = "refutes"
    elif ratio >= 1.0 - TIE:
        verdict = "confirms"
    return {
        "verdict": verdict,
        "choice_us": _summary(choice_us),
        "alternative_us": _summary(alternative_us),
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "measured_margin": ratio - 1.0,
        "tie": TIE,
    }


def interval(choice_us: Sequence[float], alternative_us: Sequence[float]) -> tuple[float, float]:
    """A bootstrap interval of the ratio of medians; samples taken in turn stay paired. Seeded, so it repeats."""
    pairs = list(zip(choice_us, alternative_us, strict=True))
    source = random.Random(0)
    ratios = []
    for _ in range(_RESAMPLES):
        drawn = source.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(b for _, b in drawn) / statistics.median(a for a, _ in drawn))
    ratios.sort()
    tail = int(_RESAMPLES * (1 - _CONFIDENCE) / 2)
    return ratios[tail], ratios[-1 - tail]


def _summary(samples: Sequence[float]) -> dict[str, Any]:
    return {
        "median": statistics.median(samples),
        "low": min(samples),
        "high": max(samples),
        "samples": len(samples),
    }
