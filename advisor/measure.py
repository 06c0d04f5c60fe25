"""The commands that measure: `bench` a suite, `tune` a problem, and the tables that documents quote.

Each function here is one command, like those of `workflow`, whose targeting, progress and results it uses. Results are
written whole or not at all; what every contestant gave goes into the store of measurements as well.
"""

from __future__ import annotations

import fnmatch
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import __version__
from advisor.bench import contest as contests
from advisor.bench.contest import PICK, Contest, Rival
from advisor.bench.results import BenchRun, Method, read_results, write_results
from advisor.bench.run import BACKEND, Children, Prepared, greet, measure_each
from advisor.bench.store import Store, default_path
from advisor.bench.suite import BASELINES, Baseline, Item, Suite, load_suite
from advisor.bench.tune import Tuned, tune
from advisor.errors import AdvisorError, InputError
from advisor.planner import plan as make_plan
from advisor.records.candidate import Candidate
from advisor.records.plan import Plan
from advisor.workflow import (
    Advanced,
    DeviceChoice,
    Noted,
    Planned,
    Progress,
    Targeting,
    at_hand,
    parse_device,
    plan_with,
    resolve_target,
    silent,
    write_text,
)

if TYPE_CHECKING:
    from advisor.bench.contest import Build
    from advisor.kinds.workload import Workload
    from advisor.runtime import Device

MIN_ROUNDS = 10
TUNE_ROUNDS = 15
TUNE_CANDIDATES = 24
_BLOCK = re.compile(
    r"^(<!-- advisor tables (?P<words>[^>]*?) -->\n)(?P<body>.*?)^(<!-- advisor tables end -->)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What `advisor bench` is asked for. `sweep`: rivals a problem, None for all that are legal, 0 for none."""

    rounds: int = MIN_ROUNDS
    sample_us: float = 4000.0
    sweep: int | None = 0
    only: str = "*"
    compare: tuple[Baseline, ...] | None = None  # default: the suite's own

    def check(self) -> None:
        if self.rounds < MIN_ROUNDS:
            raise InputError(
                "BENCH_ROUNDS",
                f"{self.rounds} rounds are too few to tell a difference from noise",
                fix=f"use {MIN_ROUNDS} or more",
                numbers={"rounds": self.rounds, "least": MIN_ROUNDS},
            )


@dataclass(frozen=True, slots=True)
class TunedFile:
    """What tuning came to, and the plan with what was measured over the predictions."""

    planned: Planned
    tuned: Tuned
    run: BenchRun
    stored: Path | None


# --- bench --------------------------------------------------------------------------------------------------------


def bench_suite(
    path: str | Path,
    *,
    device: str = "auto",
    options: BenchOptions = BenchOptions(),
    output: Path | None = None,
    store: Path | None = None,
    progress: Progress = silent,
    build: Build = contests.compile_units,
    backend: str = BACKEND,
) -> BenchRun:
    """Times the planner's pick of every problem of a suite against the library and, in a sweep, against its rivals.

    What was measured so far lies in `<output>.partial` until the last problem is done, and stays there where the run is
    cut short. Needs a GPU. Raises DeviceError, InputError, ProblemError, OutputError, ToolError."""
    options.check()
    suite = load_suite(path)
    items = {each.name: each for each in suite.items if fnmatch.fnmatch(each.name, options.only)}
    if not items:
        raise InputError(
            "SUITE_EMPTY",
            f"no problem of {suite.name} is called {options.only!r}",
            fix=f"it has {', '.join(each.name for each in suite.items[:3])}, ...",
        )
    choice = _gpu_of(device)
    partial = None if output is None else output.with_name(f"{output.name}.partial")
    with (
        at_hand(choice) as (gpu, _),
        tempfile.TemporaryDirectory(prefix="advisor-bench-") as folder,
        Children(choice.index, backend) as children,
    ):
        assert gpu is not None
        compare = suite.compare if options.compare is None else options.compare
        prepare = _preparer(gpu, options, compare, Path(folder), build)
        greeting = greet(children)
        run = _run(suite, options, greeting, [])
        for result in measure_each(
            list(items),
            lambda name: prepare(items[name]),
            children,
            lambda name, done, total: progress(Advanced("bench", name, done, total)),
        ):
            run = _run(suite, options, greeting, [*run.problems, result])
            if partial is not None:
                write_text(partial, write_results(run))
    _keep(run, output, store, progress)
    if partial is not None:
        partial.unlink(missing_ok=True)
    return run


def _gpu_of(device: str) -> DeviceChoice:
    """The GPU that `--device` names, the first for `auto`. Raises InputError."""
    choice = parse_device(device)
    if choice.kind == "emulator":
        raise InputError(
            "DEVICE_UNKNOWN",
            "the emulator runs kernels and has no clock: what it takes says nothing of a GPU",
            fix="use auto, cuda, or cuda:N with the number of a GPU, on a machine that has one",
            numbers={"device": device},
        )
    return DeviceChoice("cuda", choice.index)


def _preparer(
    gpu: Device, options: BenchOptions, compare: tuple[Baseline, ...], folder: Path, build: Build
) -> Callable[[Item], Prepared]:
    """Plans, renders and builds one problem for the GPU at hand."""
    profile = gpu.profile()
    targeting = Targeting("auto", profile, "device")

    def prepare(item: Item) -> Prepared:
        work = _workload(item)
        try:
            made = _default_plan(work, targeting)
            return Prepared(
                item.name, work.document, _contest(item, work, made, targeting, options, compare, folder, build)
            )
        except AdvisorError as error:
            return Prepared(item.name, work.document, None, str(error))

    return prepare


def _workload(item: Item) -> Workload:
    from advisor.kinds import workload

    return workload(item.problem)


def _default_plan(work: Workload, targeting: Targeting) -> Plan:
    """The plan that needs no measurement: what a user gets first, and what a benchmark is about."""
    return make_plan(
        work,
        targeting.profile,
        target_name=targeting.name,
        target_source=targeting.source,
        rung_profiles=targeting.rung_profiles,
    )


def _contest(
    item: Item,
    work: Workload,
    plan: Plan,
    targeting: Targeting,
    options: BenchOptions,
    compare: tuple[Baseline, ...],
    folder: Path,
    build: Build,
) -> Contest:
    if plan.choice is None:
        raise InputError("BENCH_NO_PLAN", f"{item.name}: {plan.conclusion}", fix="take the problem out of the suite")
    pick = Rival(plan.choice.candidate(), plan.choice.prediction.time_us)
    capability = targeting.profile.compute_capability
    rivals: Mapping[str, Rival] = {PICK: pick}
    if options.sweep != 0:
        families = contests.families_of(work, targeting.rung_profiles, targeting.profile)
        rivals = contests.rivals_of(work, families, pick, options.sweep, capability)
    return contests.assemble(
        item.name,
        item.text,
        work,
        rivals,
        build,
        folder,
        capability,
        baselines=compare,
        rounds=options.rounds,
        sample_us=options.sample_us,
    )


def _run(suite: Suite, options: BenchOptions, greeting: Any, results: list[Any]) -> BenchRun:
    words = [f"advisor bench {suite.name}", f"--rounds {options.rounds}"]
    words += ["--sweep all" if options.sweep is None else f"--sweep {options.sweep}"] if options.sweep != 0 else []
    words += [f"--only '{options.only}'"] if options.only != "*" else []
    return BenchRun(
        suite=suite.name,
        title=suite.title,
        suite_sha256=suite.sha256,
        command=" ".join(words),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        chip=greeting.chip,
        software={"advisor": __version__, **greeting.software},
        method=Method(
            rounds=options.rounds,
            sample_us=options.sample_us,
            l2_bytes=greeting.l2_bytes,
            rotation_of_l2=2,
            clocks=greeting.clocks,
        ),
        problems=results,
    )


def _keep(run: BenchRun, output: Path | None, store: Path | None, progress: Progress) -> Path | None:
    """Results to a file where one is asked for, and to the store. Returns the store's path."""
    if output is not None:
        write_text(output, write_results(run))
    place = store or default_path()
    if place is None:
        progress(Noted("no home folder: nothing went into a store; --store FILE names one"))
        return None
    count = Store(place).add(run)
    progress(Noted(f"{count} measurements into {place}"))
    return place


# --- tune ---------------------------------------------------------------------------------------------------------


def tune_file(
    path: str | Path,
    *,
    device: str = "auto",
    candidates: int | None = TUNE_CANDIDATES,
    rounds: int = TUNE_ROUNDS,
    store: Path | None = None,
    progress: Progress = silent,
    build: Build = contests.compile_units,
    backend: str = BACKEND,
) -> TunedFile:
    """Measures the planner's pick and its best rivals for one problem, and plans again with the times.

    The winner is the pick itself unless a rival beat it twice. Needs a GPU. Raises as `bench_suite` does, and
    BENCH_NO_PLAN for a plan that is refused."""
    options = BenchOptions(rounds=rounds, sweep=candidates)
    options.check()
    from advisor.problem import load_problem

    problem = load_problem(path)
    item = Item(problem.name, Path(path).read_text(encoding="utf-8"), problem)
    choice = _gpu_of(device)
    with (
        at_hand(choice) as (gpu, _),
        tempfile.TemporaryDirectory(prefix="advisor-tune-") as folder,
        Children(choice.index, backend) as children,
    ):
        assert gpu is not None
        work = _workload(item)
        targeting = resolve_target(problem, "auto", Path(path), gpu)
        progress(Advanced("tune", "building candidates", 0))
        plan = _default_plan(work, targeting)
        made = _contest(item, work, plan, targeting, options, ("library",), Path(folder), build)
        progress(Advanced("tune", f"measuring {len(made.job.entries)} candidates", 1))
        greeting = greet(children)
        tuned = tune(Prepared(item.name, work.document, made), children)
    suite = Suite(item.name, f"advisor tune {item.name}", "", ("library",), (item,))
    results = [tuned.result]
    if tuned.duel is not None:
        results.append(tuned.duel.model_copy(update={"name": f"{item.name} duel"}))
    run = _run(suite, options, greeting, results).model_copy(update={"command": f"advisor tune {item.name}"})
    stored = _keep(run, None, store, progress)
    return TunedFile(plan_with(problem, work, targeting, _times(tuned), progress), tuned, run, stored)


def _times(tuned: Tuned) -> dict[Candidate, float]:
    """What the plan is told: the default and the winner, from the last measurement that had both."""
    rows = [each for each in (tuned.default, tuned.winner) if each is not None]
    if tuned.changed and tuned.duel is not None:
        rows += [each for each in tuned.duel.contestants if each.role in ("pick", "candidate")]
    return {
        each.candidate.candidate(): each.median_us
        for each in rows
        if each.candidate is not None and each.median_us is not None
    }


# --- tables -------------------------------------------------------------------------------------------------------


def rewrite_tables(path: Path) -> bool:
    """Makes every marked block of a Markdown file again from the results that it names; True where the file changed.

    A block begins with `<!-- advisor tables NAME FILE -->`, FILE relative to the Markdown file, and ends with
    `<!-- advisor tables end -->`. Raises InputError TABLES_UNKNOWN, RESULTS_UNREADABLE.
    """
    from advisor.report.benchmarks import TABLES
    from advisor.report.markdown import to_markdown

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("TABLES_UNREADABLE", f"{path} cannot be read: {error}", fix="name a Markdown file") from error
    if unclosed := _unclosed(text):
        raise InputError(
            "TABLES_NONE",
            f"{path}, line {unclosed}: a block begins and does not end",
            fix="put <!-- advisor tables end --> on a line of its own behind the table",
            numbers={"line": unclosed},
        )
    if not _BLOCK.search(text):
        raise InputError(
            "TABLES_NONE",
            f"{path} has no block to fill",
            fix="put <!-- advisor tables summary FILE.json --> and <!-- advisor tables end --> around the place",
        )

    def fill(match: re.Match[str]) -> str:
        words = match["words"].split()
        if len(words) < 2 or words[0] not in TABLES:
            raise InputError(
                "TABLES_UNKNOWN",
                f"{path}: {match['words']!r} names no table",
                fix=f"write one of {', '.join(TABLES)} and the result files",
            )
        runs = [read_results(path.parent / each) for each in words[1:]]
        return match[1] + "\n" + to_markdown(TABLES[words[0]](runs)) + "\n" + match[4]

    new = _BLOCK.sub(fill, text)
    if new != text:
        write_text(path, new)
    return new != text


def _unclosed(text: str) -> int | None:
    """The line of the first block that has no end of its own."""
    begun: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("<!-- advisor tables end -->"):
            begun = None
        elif line.startswith("<!-- advisor tables "):
            if begun is not None:
                break
            begun = number
    return begun


def checked_baselines(names: list[str] | None) -> tuple[Baseline, ...] | None:
    """What --compare names. Raises InputError."""
    if names is None:
        return None
    unknown = [each for each in names if each not in BASELINES and each != "none"]
    if unknown:
        raise InputError(
            "BASELINE_UNKNOWN", f"{unknown[0]!r} is no baseline", fix=f"use {', '.join(BASELINES)} or none"
        )
    return tuple(each for each in BASELINES if each in names)


def sweep_of(text: str) -> int | None:
    """How many rivals `--sweep` or `--candidates` asks for; None is all of them. Raises InputError SWEEP_UNKNOWN."""
    if text == "all":
        return None
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise InputError("SWEEP_UNKNOWN", f"{text!r} is no number of rivals", fix="use all, or a number from 1")
    return int(text)
