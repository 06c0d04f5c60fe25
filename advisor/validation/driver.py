"""What every way of running a bundle shares: which cases a row has, their results, and equal bits across schedules.

Imports `bundle`, `kinds`, `problem`, `records`. `on_gpu.py` and `on_emulator.py` drive a backend with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from advisor.bundle import Bundle, evaluate
from advisor.kinds import workload as make_workload
from advisor.kinds.workload import Workload
from advisor.problem import parse_problem
from advisor.records.case import Case
from advisor.records.evidence import CaseResult, CaseVerdict, KernelEvidence, Runner
from advisor.records.launch import ResolvedLaunch
from advisor.validation.assemble import Build, Row

Progress = Callable[[str, int, int | None], None]
BuildRows = list[dict[str, Any]]

OWN_SHAPE = 0  # cases come with the problem's own shape first: it is the one that is timed
MAX_STOPS = 3  # of one rung: after so many hangs or crashes its other cases are not run


def silent(*_: object) -> None:
    """For a caller that wants no progress."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be validated. `built` are the rows of build.json, `folder` is for files that are dropped afterwards,
    `keep` for cases as files that run again; `cases` restricts the cases by name."""

    bundle: Bundle
    built: BuildRows
    folder: Path
    build: Build
    progress: Progress = silent
    keep: Path | None = None
    cases: Collection[str] | None = None


class Driver:
    """One run of `validate` on one kind of device."""

    runner: Runner

    def __init__(self, task: Task) -> None:
        self.bundle = task.bundle
        self.built = task.built
        self.folder = task.folder
        self.build = task.build
        self.progress = task.progress
        self.keep = task.keep
        self.wanted = task.cases
        self.workload: Workload = make_workload(parse_problem(task.bundle.problem_text, "problem.yaml"))
        self.results: list[CaseResult] = []
        self.bits = SameBits()
        self.done, self.total = 0, 0

    @property
    def sm_budget(self) -> int | None:
        """What the problem says of it."""
        found: int | None = (self.bundle.plan.problem.get("constraints") or {}).get("sm_budget")
        return found

    def cases_of(self, row: Row, resident_clusters: int, sms: int, *, small: bool = False) -> list[Case]:
        """The cases of a row that its condition admits; alignment decides, not the budget of SMs."""
        made = self.workload.cases(row.run.candidate, resident_clusters, small=small)
        if row.kind in ("variant", "twin"):
            made = [case for case in made if case.scheduling or case is made[OWN_SHAPE]]
        if self.wanted is not None:
            made = [case for case in made if case.name in self.wanted]
        return [case for case in made if _admits(row, case, sms)]

    def result(
        self,
        row: Row,
        case: Case,
        verdict: CaseVerdict,
        detail: str,
        *,
        launch: ResolvedLaunch | None = None,
        checks: Mapping[str, bool] | None = None,
        **more: Any,
    ) -> CaseResult:
        return CaseResult(
            name=case.name,
            kernel_id=row.main.id,
            rung=row.run.id,
            device=self.runner,
            arguments=case.arguments,
            launch=launch,
            verdict=verdict,
            detail=detail,
            checks=dict(checks or {}),
            **more,
        )

    def not_run_row(self, name: str, why: str) -> CaseResult:
        """Something that no case stands for and that did not run."""
        choice = self.bundle.launch.kernels[0].id
        return CaseResult(
            name=name,
            kernel_id=choice,
            rung=choice,
            device=self.runner,
            arguments={},
            launch=None,
            verdict="not_run",
            detail=why,
        )


def _admits(row: Row, case: Case, sms: int) -> bool:
    names = {name: int(value) for name, value in case.arguments.items() if isinstance(value, int)}
    names |= {"num_sms": sms, "sm_budget": sms}
    queries: dict[str, Callable[..., int]] = {
        "loadable": lambda _: True,
        "max_active_clusters": lambda _: 1,
        "aligned": lambda _, multiple: 256 % multiple == 0,
    }
    return bool(evaluate(row.when, names, queries))


def verdict_of(gates: Sequence[KernelEvidence], cases: Sequence[CaseResult]) -> Literal["pass", "fail", "not_run"]:
    """What gates and cases say together."""
    failed = any(gate.result == "fail" for row in gates for gate in row.gates)
    verdicts = Counter(each.verdict for each in cases)
    wrong = sum(count for verdict, count in verdicts.items() if verdict not in ("correct", "not_run"))
    return "fail" if failed or wrong else "pass" if verdicts["correct"] else "not_run"


class SameBits:
    """Runs that sum the same tiles in the same order must give the same bits, whatever the schedule and the cluster."""

    def __init__(self) -> None:
        self._first: dict[tuple[Any, ...], tuple[str, str]] = {}

    def check(self, row: Row, case: Case, digest: str, image: str = "") -> str | None:
        """None for the first run of its kind on this case, "" where the bits agree, else who had other bits.

        `image` keeps what different compilers made of one source apart.
        """
        c = row.run.candidate
        key = (c.work.order_of_sums(c), image, case.name, case.data, case.seed, tuple(sorted(case.arguments.items())))
        known = self._first.setdefault(key, (digest, row.run.id))
        if known[1] == row.run.id:
            return None
        return "" if known[0] == digest else known[1]
