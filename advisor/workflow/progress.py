"""What a command tells while it works: frozen events to a callback. Imports nothing of this project."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Stage = Literal[
    "read", "plan", "render", "build", "query", "validate", "report", "probe", "emulate", "bench", "tune", "accept"
]


@dataclass(frozen=True, slots=True)
class Started:
    stage: Stage
    detail: str


@dataclass(frozen=True, slots=True)
class Advanced:
    """`done` of `total` units of a stage; `total` is None where it is not known."""

    stage: Stage
    detail: str
    done: int
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    stage: Stage
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Noted:
    """Something the user should know that is no failure: no GPU, a profile that stands in."""

    message: str


Event = Started | Advanced | Finished | Noted
Progress = Callable[[Event], None]


def silent(_: Event) -> None:
    """The progress callback of a caller that wants none."""


@contextmanager
def stage(progress: Progress, stage: Stage, detail: str) -> Iterator[list[str]]:
    """Announces a stage; the body puts its one-line result into the list."""
    began = time.monotonic()
    progress(Started(stage, detail))
    result: list[str] = []
    yield result
    progress(Finished(stage, result[0] if result else detail, time.monotonic() - began))
