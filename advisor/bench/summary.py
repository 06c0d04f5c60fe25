"""The ratios that a benchmark is quoted by, from its samples. Imports `results` and the interval of validation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.bench.results import BenchRun, Contestant, ProblemResult, Role
from advisor.validation.experiment import interval


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median over median, with the 95 % interval of a bootstrap over rounds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Line:
    """One problem in numbers. None: not measured in this run."""

    name: str
    pick: Contestant | None
    time_us: float | None
    tflops: float | None
    bytes_per_s: float | None
    library: Ratio | None  # the library's time over the pick's: above 1 the pick is faster
    library_whole: Ratio | None
    triton: Ratio | None
    copy: Ratio | None
    twin: Ratio | None  # the same kernel twice: how far from 1 noise goes
    best: Contestant | None  # the fastest kernel of ours
    regret: float | None  # the pick's time over the best one's, minus 1; None where nothing competed
    prediction: float | None  # predicted over measured time


def ratio(slower: Contestant | None, own: Contestant | None) -> Ratio | None:
    """How many times as long `slower` takes as `own`; None where either has no samples."""
    if slower is None or own is None or not slower.samples_us or not own.samples_us:
        return None
    value = statistics.median(slower.samples_us) / statistics.median(own.samples_us)
    return Ratio(value, *interval(own.samples_us, slower.samples_us))


def line(result: ProblemResult) -> Line:
    pick = result.first("pick")
    time_us = pick.median_us if pick else None
    ours = [each for each in result.contestants if each.role in ("pick", "candidate") and each.samples_us]
    best = min(ours, key=lambda each: each.median_us or math.inf, default=None)
    rivals = len(ours) > 1 and pick is not None
    predicted = pick.predicted_us if pick else None
    return Line(
        name=result.name,
        pick=pick,
        time_us=time_us,
        tflops=result.flops / time_us / 1e6 if time_us and result.flops else None,
        bytes_per_s=result.least_bytes / time_us * 1e6 if time_us else None,
        library=ratio(result.first("library"), pick),
        library_whole=ratio(result.first("library_whole"), pick),
        triton=ratio(result.first("triton"), pick),
        copy=ratio(result.first("copy"), pick),
        twin=ratio(result.first("twin"), pick),
        best=best,
        regret=time_us / best.median_us - 1.0 if rivals and time_us and best and best.median_us else None,
        prediction=predicted / time_us if predicted and time_us else None,
    )


def lines(run: BenchRun) -> list[Line]:
    return [line(each) for each in run.problems]


@dataclass(frozen=True, slots=True)
class Total:
    """A column over all problems."""

    count: int
    geomean: float
    worst: float
    best: float


def total(values: Iterable[float | None]) -> Total | None:
    """None where no problem has the number."""
    found = [each for each in values if each is not None and each > 0]
    if not found:
        return None
    return Total(len(found), geomean(found), min(found), max(found))


def geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(each) for each in values))


def totals(rows: Sequence[Line]) -> dict[Role, Total]:
    """Of every ratio that some problem has, by the role of the other side."""
    columns: dict[Role, list[float | None]] = {
        "library": [each.library.value if each.library else None for each in rows],
        "library_whole": [each.library_whole.value if each.library_whole else None for each in rows],
        "triton": [each.triton.value if each.triton else None for each in rows],
        "copy": [each.copy.value if each.copy else None for each in rows],
        "twin": [each.twin.value if each.twin else None for each in rows],
    }
    return {role: found for role, values in columns.items() if (found := total(values)) is not None}


def regrets(rows: Sequence[Line]) -> tuple[float, float] | None:
    """(median, worst) regret of the picks; None where no sweep was made."""
    found = [each.regret for each in rows if each.regret is not None]
    return (statistics.median(found), max(found)) if found else None


def predictions(rows: Sequence[Line]) -> tuple[float, float] | None:
    """(median, worst) factor between predicted and measured time, 1 or above."""
    found = [max(each.prediction, 1.0 / each.prediction) for each in rows if each.prediction]
    return (statistics.median(found), max(found)) if found else None
