"""Runs mutants under the policies until one is reported. Imports its own package and the emulator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context

from advisor.errors import AdvisorError
from tests.emulator.mutants.edits import Mutant
from tests.emulator.mutants.subject import Setting, Subject
from tests.emulator.mutants.subjects import subjects

WRONG_VALUES = "wrong values"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`report` is the code of the emulator, WRONG_VALUES where only the expected values show it, or empty."""

    group: str
    subject: str
    mutant: Mutant
    report: str
    under: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.subject, self.mutant.name


def judge(subject: Subject, mutant: Mutant) -> Verdict:
    """Runs one mutant until it is reported; wrong values count when no setting gets a report."""
    try:
        program = subject.load(mutant.apply(subject.kernel.ptx))
    except AdvisorError as error:
        return Verdict(subject.group, subject.name, mutant, error.code)
    wrong = ""
    for setting in subject.settings:
        try:
            outcome = subject.run(program, setting)
        except AdvisorError as error:
            return Verdict(subject.group, subject.name, mutant, error.code, spelled(setting))
        if outcome.warnings:
            return Verdict(subject.group, subject.name, mutant, outcome.warnings[0].code, spelled(setting))
        if not wrong and not subject.kernel.right(outcome):
            wrong = spelled(setting)
    return Verdict(subject.group, subject.name, mutant, WRONG_VALUES if wrong else "", wrong)


def spelled(setting: Setting) -> str:
    names = {"async_policy": "", "seed": "seed ", "clc": "CLC "}
    return ", ".join(f"{names.get(key, f'{key} ')}{value}" for key, value in setting.items())


def everything(groups: Sequence[str] = ()) -> list[tuple[str, int]]:
    """All mutants of the kernels of these groups, or of all, as (subject, number). Kernels of a compiler that is not
    installed are left out."""
    chosen = [each for each in subjects().values() if each.available and (not groups or each.group in groups)]
    return [(each.name, number) for each in chosen for number in range(len(each.mutants))]


def sample(count: int, seed: int, groups: Sequence[str] = ()) -> list[tuple[str, int]]:
    """A seeded choice among them, sorted so that each subject is compiled once."""
    whole = everything(groups)
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
