"""Tables of benchmarks: what `bench` and `tune` print, and the blocks that documents quote. Imports `bench`.

Every number is computed from the samples of the results; a table names chip, driver, date and the A/A ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from advisor.bench.results import BenchRun
from advisor.bench.summary import Line, Ratio, lines, predictions, regrets, totals
from advisor.bench.tune import Tuned
from advisor.report.blocks import Block, Bullets, Cell, Heading, Paragraph, Table

_SIDES = {
    "library": "over the library",
    "library_whole": "over library and pointwise kernel",
    "triton": "over Triton",
    "copy": "over a copy of the same bytes",
    "twin": "A/A",
}


def bench_blocks(run: BenchRun) -> list[Block]:
    """A run as `bench` prints it: each problem, what went wrong, and the totals."""
    return [
        Heading(f"{run.title}", 1),
        _origin(run),
        *problem_table([run]),
        *_sweeps(run),
        *_failures(run),
        *_totals(run),
    ]


def summary_table(runs: Sequence[BenchRun]) -> list[Block]:
    """A row for each suite."""
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        found = lines(run)
        for role, each in totals(found).items():
            if role != "twin":
                aa = totals(found).get("twin")
                noise = f"{aa.worst:.3f} to {aa.best:.3f}" if aa else None
                rows.append(
                    (
                        run.title,
                        _SIDES[role],
                        each.count,
                        _times(each.geomean),
                        _times(each.worst),
                        _times(each.best),
                        noise,
                    )
                )
    columns = ("suite", "time", "problems", "geometric mean", "lowest", "highest", "A/A")
    return [Table(columns, tuple(rows)), *(_origin(run) for run in runs[:1])]


def problem_table(runs: Sequence[BenchRun]) -> list[Block]:
    """A row for each problem; columns that no problem fills are left out."""
    found = [each for run in runs for each in lines(run)]
    makers: Mapping[str, Callable[[Line], Cell]] = {
        "problem": lambda each: each.name,
        "kernel": lambda each: each.pick.label if each.pick else None,
        "us": lambda each: each.time_us,
        "spread": lambda each: _percent(each.pick.spread if each.pick else None),
        "TFLOP/s": lambda each: each.tflops,
        "GB/s": lambda each: each.bytes_per_s / 1e9 if each.bytes_per_s else None,
        "library / pick": lambda each: _ratio(each.library),
        "with pointwise / pick": lambda each: _ratio(each.library_whole),
        "Triton / pick": lambda each: _ratio(each.triton),
        "copy / pick": lambda each: _ratio(each.copy),
        "A/A": lambda each: _ratio(each.twin),
        "regret": lambda each: _percent(each.regret),
        "predicted / measured": lambda each: round(each.prediction, 3) if each.prediction else None,
        "MHz": lambda each: each.pick.state.sm_mhz if each.pick else None,
        "W": lambda each: each.pick.state.watts if each.pick else None,
    }
    columns = {name: [make(each) for each in found] for name, make in makers.items()}
    kept = [name for name, cells in columns.items() if any(cell is not None for cell in cells)]
    rows = tuple(tuple(columns[name][index] for name in kept) for index in range(len(found)))
    return [Table(tuple(kept), rows)]


def tuned_blocks(tuned: Tuned) -> list[Block]:
    """What `tune` found: the sentence, every candidate, the duel."""
    ranked = sorted(
        (each for each in tuned.result.contestants if each.role != "twin"),
        key=lambda each: each.median_us if each.median_us is not None else float("inf"),
    )
    rows = tuple(
        (
            each.label,
            each.role,
            each.median_us,
            _percent(each.spread),
            each.predicted_us,
            each.verdict,
            each.detail[:60],
        )
        for each in ranked
    )
    columns = ("kernel", "role", "us", "spread", "predicted us", "verdict", "detail")
    blocks: list[Block] = [
        Heading(f"Tuning {tuned.result.name}", 1),
        Paragraph(tuned.why, strong=True),
        Table(columns, rows),
    ]
    if tuned.gain is not None:
        text = f"pick over rival in the duel: {tuned.gain.value:.3f} ({tuned.gain.low:.3f} to {tuned.gain.high:.3f})"
        blocks.append(Paragraph(text))
    return blocks


TABLES: dict[str, Callable[[Sequence[BenchRun]], list[Block]]] = {
    "summary": summary_table,
    "problems": problem_table,
}


# ---- pieces --------------------------------------------------------------------------------------------------------


def _origin(run: BenchRun) -> Paragraph:
    software = ", ".join(f"{name} {version}" for name, version in run.software.items() if name != "numpy")
    return Paragraph(
        f"{run.chip.name}, driver {run.chip.driver}, {run.date[:10]}, {software}. Medians of {run.method.rounds} "
        f"interleaved rounds, buffers rotated past {run.method.rotation_of_l2} x L2. Ratios are of times: above 1 the "
        f"pick is faster. Clocks: {run.method.clocks}."
    )


def _sweeps(run: BenchRun) -> list[Block]:
    rows = [
        (
            each.name,
            each.best.label,
            each.best.median_us,
            each.pick.label if each.pick else None,
            each.time_us,
            _percent(each.regret),
        )
        for each in lines(run)
        if each.best is not None and each.regret is not None and each.regret > 0
    ]
    if not rows:
        return []
    return [
        Table(
            ("problem", "fastest", "us", "pick", "us of the pick", "regret"),
            tuple(rows),
            "Where another kernel was faster",
        )
    ]


def _failures(run: BenchRun) -> list[Block]:
    wrong = [
        f"{result.name}: {each.label}: {each.verdict}: {each.detail}"
        for result in run.problems
        for each in result.contestants
        if each.verdict not in ("correct", "not_run") or (each.verdict == "not_run" and not each.samples_us)
    ]
    wrong += [f"{result.name}: not run: {result.not_run}" for result in run.problems if result.not_run]
    return [Heading("Not timed"), Bullets(tuple(wrong))] if wrong else []


def _totals(run: BenchRun) -> list[Block]:
    found = lines(run)
    items = [
        f"{_SIDES[role]}: geometric mean {each.geomean:.3f} of {each.count}, {each.worst:.3f} to {each.best:.3f}"
        for role, each in totals(found).items()
    ]
    if (regret := regrets(found)) is not None:
        items.append(f"regret of the pick: median {regret[0]:.1%}, worst {regret[1]:.1%}")
    if (factor := predictions(found)) is not None:
        items.append(f"predicted against measured time: median factor {factor[0]:.3f}, worst {factor[1]:.3f}")
    return [Heading("Totals"), Bullets(tuple(items))] if items else []


def _ratio(ratio: Ratio | None) -> Cell:
    return round(ratio.value, 3) if ratio else None


def _times(value: float) -> str:
    return f"{value:.3f}"


def _percent(value: float | None) -> Cell:
    return None if value is None else f"{value:.1%}"
