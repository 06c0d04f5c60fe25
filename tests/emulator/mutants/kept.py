"""Verdicts kept in a file from run to run: a run that was cut goes on, and a change of one kernel costs one kernel.

A verdict is taken again where kernel, launch and settings are what they were. It also hangs on the emulator: after a
change of that begin with no file. Imports its own package.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from tests.emulator.mutants.runner import Verdict
from tests.emulator.mutants.subject import Subject
from tests.emulator.mutants.subjects import subjects


class Kept:
    """The verdicts of a file, which grows by what is added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        rows = [json.loads(line) for line in lines]
        self._found = {(each["kernel"], each["mutant"]): (each["report"], each["under"]) for each in rows}

    def verdict(self, task: tuple[str, int]) -> Verdict | None:
        subject = subjects()[task[0]]
        mutant = subject.mutants[task[1]]
        found = self._found.get((digest(subject), mutant.name))
        return None if found is None else Verdict(subject.group, subject.name, mutant, *found)

    def add(self, verdict: Verdict) -> None:
        row = {"kernel": digest(subjects()[verdict.subject]), "mutant": verdict.mutant.name}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {"report": verdict.report, "under": verdict.under}) + "\n")


@cache
def digest(subject: Subject) -> str:
    """Of what a mutant of the kernel is run as."""
    kernel = subject.kernel
    parts = (subject.name, kernel.ptx, kernel.launch.model_dump_json(), repr(subject.settings))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
