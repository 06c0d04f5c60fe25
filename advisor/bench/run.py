"""A suite from the first problem to the last: contests made ahead, children that measure, rows for what went wrong.

Imports the rooms below and this one. A kernel that faults or hangs takes its child along; it becomes a row, and the
problem is measured again without it in a fresh child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, cast

from advisor.bench.contest import PICK, Contest
from advisor.bench.gpu import Greeting, Measured, Outcome
from advisor.bench.results import CandidateRecord, Contestant, ProblemResult, Role
from advisor.errors import AdvisorError
from advisor.records.evidence import CaseVerdict
from advisor.validation.on_gpu import stopped_verdict
from advisor.validation.workers import Worker, WorkerStopped

BACKEND = "advisor.bench.gpu:BenchBackend"
MAX_LOST = 8  # contestants of one problem that may take a child along
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """One problem ready to be measured, or the reason why not."""

    name: str
    document: dict[str, Any]
    contest: Contest | None
    why_not: str = ""


class Children:
    """One child at a time, replaced when it has died."""

    def __init__(self, device_index: int, backend: str = BACKEND) -> None:
        self._index, self._backend = device_index, backend
        self._worker: Worker | None = None

    def current(self) -> Worker:
        """A child whose device is open. Raises what opening raises."""
        if self._worker is None or not self._worker.alive:
            self.drop()
            self._worker = Worker(self._backend)
            self._worker.call("open", self._index)
        return self._worker

    def drop(self) -> None:
        """Ends the child: what it holds of the device is lost with it."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.close()
            self._worker = None

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()


def greet(children: Children) -> Greeting:
    greeting: Greeting = children.current().call("greet")
    return greeting


def measure_each(
    names: Sequence[str],
    prepare: Callable[[str], Prepared],
    children: Children,
    progress: Progress,
) -> Iterator[ProblemResult]:
    """Every problem in turn. The next one is planned, rendered and built while the device works on this one."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare") as pool:
        ahead: Future[Prepared] | None = pool.submit(prepare, names[0]) if names else None
        for number, name in enumerate(names):
            assert ahead is not None
            prepared = ahead.result()
            ahead = pool.submit(prepare, names[number + 1]) if number + 1 < len(names) else None
            progress(name, number + 1, len(names))
            yield measure(prepared, children)


def measure(prepared: Prepared, children: Children) -> ProblemResult:
    """One problem: contestants that end their child are left out of the next try, with a verdict of their own."""
    contest = prepared.contest
    if contest is None:
        return _nothing(prepared, prepared.why_not)
    lost: dict[str, Measured] = {}
    while True:
        if not contest.job.entries:
            return _nothing(prepared, "no kernel of ours came back", contest, lost)
        try:
            outcome: Outcome = children.current().call("measure", contest.job)
        except WorkerStopped as stopped:
            name = stopped.stage.partition(":")[0]
            verdict, detail = stopped_verdict(stopped), stopped.detail
        except AdvisorError as error:
            children.drop()  # a fault has taken the context along
            name, verdict, detail = str(error.numbers.get("entry", "")), "launch_error", str(error)
        else:
            return _result(prepared, contest, outcome, lost)
        known = {each.name for each in contest.job.entries}
        if name in contest.job.baselines:
            contest = _without_baseline(contest, name)
            lost[name] = Measured(verdict, detail)
            continue
        if name not in known or len(lost) >= MAX_LOST:
            return _nothing(prepared, detail, contest, lost)
        lost[name] = Measured(verdict, detail)
        contest = contest.without(name)


def _without_baseline(contest: Contest, name: str) -> Contest:
    kept = tuple(each for each in contest.job.baselines if each != name)
    return replace(contest, job=replace(contest.job, baselines=kept))


def _nothing(
    prepared: Prepared, why: str, contest: Contest | None = None, lost: Mapping[str, Measured] | None = None
) -> ProblemResult:
    rows = [_contestant(name, each, contest, prepared) for name, each in (lost or {}).items()] if contest else []
    return ProblemResult(
        name=prepared.name,
        problem=prepared.document,
        arguments={},
        flops=0,
        least_bytes=0,
        contestants=rows,
        not_run=why or "nothing to run",
    )


def _result(prepared: Prepared, contest: Contest, outcome: Outcome, lost: Mapping[str, Measured]) -> ProblemResult:
    measured = {**outcome.contestants, **lost}
    order = [PICK, f"{PICK} twin", *(name for name in contest.rivals if name != PICK), *contest.job.baselines]
    names = [name for name in order if name in measured] + [name for name in measured if name not in order]
    rows = [_contestant(name, measured[name], contest, prepared) for name in names]
    for name, (_, why) in contest.rejected.items():
        rows.append(_contestant(name, Measured("not_run", why), contest, prepared))
    return ProblemResult(
        name=prepared.name,
        problem=prepared.document,
        arguments=outcome.arguments,
        flops=outcome.flops,
        least_bytes=outcome.least_bytes,
        copies=outcome.copies,
        rotated_bytes=outcome.rotated_bytes,
        contestants=rows,
    )


def _contestant(name: str, measured: Measured, contest: Contest, prepared: Prepared) -> Contestant:
    base = name.removesuffix(" twin")
    rival = contest.rivals.get(base)
    record = CandidateRecord.of(prepared.document["kind"], rival.candidate) if rival else None
    verdict: CaseVerdict = measured.verdict
    return Contestant(
        name=name,
        role=_role(name, base, contest),
        label=measured.label or (record.label if record else name),
        candidate=record,
        kernels_sha256=contest.hashes.get(base),
        predicted_us=rival.predicted_us if rival else None,
        verdict=verdict,
        detail=measured.detail,
        samples_us=measured.samples_us,
        launches=measured.launches,
        state=measured.state,
    )


def _role(name: str, base: str, contest: Contest) -> Role:
    if base in contest.rivals:
        return "twin" if name != base else "pick" if base == PICK else "candidate"
    return cast(Role, name)  # a baseline is called after its role
