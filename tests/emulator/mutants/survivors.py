"""The committed list of mutants that nothing reports, and why. Imports its own package."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from tests.emulator.mutants.runner import Verdict

PATH = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why mutants of these names survive. `kernels` and `mutants` are patterns with `*`."""

    because: Literal["redundant", "gap"]  # the step is not needed there; or it is, and no check sees that
    kernels: tuple[str, ...]
    mutants: tuple[str, ...]
    why: str

    def explains(self, verdict: Verdict) -> bool:
        kernel, mutant = verdict.key
        return any(fnmatchcase(kernel, each) for each in self.kernels) and any(
            fnmatchcase(mutant, each) for each in self.mutants
        )


def reasons() -> list[Reason]:
    rows = tomllib.loads(PATH.read_text(encoding="utf-8"))["survivor"]
    return [
        Reason(each["because"], tuple(each["kernels"]), tuple(each["mutants"]), each["why"].strip()) for each in rows
    ]


def unexplained(verdicts: Iterable[Verdict]) -> list[Verdict]:
    known = reasons()
    return [each for each in verdicts if not each.report and not any(reason.explains(each) for reason in known)]


def out_of_use(verdicts: Iterable[Verdict]) -> list[Reason]:
    """Reasons that explain no survivor of a whole run: something reports those mutants by now."""
    left = [each for each in verdicts if not each.report]
    return [reason for reason in reasons() if not any(reason.explains(each) for each in left)]
