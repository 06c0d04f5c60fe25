"""Runs mutants under the policies until one is reported. Imports its own package and the emulator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context

from advisor.errors import AdvisorError
from tests.emulator.mutants.edits import Mutant
from tests.emulator.mutants.subjects import Setting, Subject, subjects

WRONG_VALUES = "wrong values"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`report` is the code of the emulator, WRONG_VALUES where only the expected values show it, or empty."""

    subject: str
    mutant: Mutant
    report: str
    under: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.subject, self.mutant.name


def judge(subject: Subject, mutant: Mutant) -> Verdict:
    """Runs one mutant until it is reported; wrong values count when no setting gets a report."""
    ptx = mutant.apply(subject.ptx)
    wrong = ""
    for setting in subject.settings:
        try:
            outcome = subject.run(ptx, setting)
        except AdvisorError as error:
            return Verdict(subject.name, mutant, error.code, spelled(setting))
        if outcome.warnings:
            return Verdict(subject.name, mutant, outcome.warnings[0].code, spelled(setting))
        if not wrong and not subject.right(outcome):
            wrong = spelled(setting)
    return Verdict(subject.name, mutant, WRONG_VALUES if wrong else "", wrong)


def spelled(setting: Setting) -> str:
    names = {"async_policy": "", "seed": "seed ", "clc": "CLC "}
    return ", ".join(f"{names.get(key, f'{key} ')}{value}" for key, value in setting.items())


def everything(names: Sequence[str] = ()) -> list[tuple[str, int]]:
    """All mutants of the named subjects, or of all, as (subject, number)."""
    chosen = names or list(subjects())
    return [(name, number) for name in chosen for number in range(len(subjects()[name].mutants))]


def sample(count: int, seed: int) -> list[tuple[str, int]]:
    """A seeded choice among the mutants of all subjects, sorted so that each subject is compiled once."""
    whole = everything()
    return sorted(random.Random(seed).sample(whole, min(count, len(whole))))


def run_all(tasks: Sequence[tuple[str, int]], processes: int = 2) -> Iterator[Verdict]:
    """Verdicts in the order of the tasks."""
    if processes == 1:
        yield from map(_task, tasks)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(_task, tasks, chunksize=4)


def _task(task: tuple[str, int]) -> Verdict:
    subject = subjects()[task[0]]
    return judge(subject, subject.mutants[task[1]])
