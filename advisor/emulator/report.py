"""What the emulator says of a kernel: findings with a code, a place and the history that matters. Imports `errors`.

A check that finds a fault raises `KernelFault` through `Reporter.fail`: after undefined behaviour there is nothing left
to run. What is only slow or suspicious goes through `Reporter.warn` and is printed with the summary.

The checks never format a place while all is well: they keep small integers (`Who`, an instruction index, a lane), and
the reporter asks the executor, a `Locator`, for the PTX line and the source line when there is something to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from advisor.errors import RefusedError


class Who(NamedTuple):
    """A warp: the serial number of its cluster, the rank of its CTA in the cluster, its number in the CTA."""

    cluster: int
    rank: int
    warp: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where something happened. Fields that are not known are None and are not printed."""

    ptx_line: int | None = None
    source: str | None = None  # "kernel.cu:17", where the PTX has line information
    instruction: str = ""
    cluster: int | None = None
    cta: tuple[int, int, int] | None = None  # %ctaid
    rank: int | None = None  # %cluster_ctarank
    warp: int | None = None
    lane: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.ptx_line is not None:
            parts.append(f"PTX line {self.ptx_line}")
        if self.source is not None:
            parts.append(self.source)
        if self.instruction:
            parts.append(f"`{self.instruction}`")
        who = []
        if self.cluster is not None:
            who.append(f"cluster {self.cluster}")
        if self.cta is not None:
            who.append("CTA (" + ", ".join(str(each) for each in self.cta) + ")")
        elif self.rank is not None:
            who.append(f"CTA rank {self.rank}")
        if self.warp is not None:
            who.append(f"warp {self.warp}")
        if self.lane is not None:
            who.append(f"lane {self.lane}")
        if who:
            parts.append(" ".join(who))
        return ", ".join(parts) if parts else "unknown place"

    def as_document(self) -> dict[str, Any]:
        return {
            "ptx_line": self.ptx_line,
            "source": self.source,
            "instruction": self.instruction,
            "cluster": self.cluster,
            "cta": list(self.cta) if self.cta is not None else None,
            "rank": self.rank,
            "warp": self.warp,
            "lane": self.lane,
        }


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history: what was done, and where."""

    what: str
    place: Place

    def __str__(self) -> str:
        return f"{self.what}: {self.place}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault or a warning. `numbers` holds the figures of the message; they are never only in the text."""

    code: str
    message: str
    place: Place
    history: tuple[Event, ...] = ()
    numbers: Mapping[str, object] = field(default_factory=dict)
    fix: str = ""

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.code}]", f"  at {self.place}"]
        lines += [f"  {each}" for each in self.history]
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def as_document(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "fix": self.fix,
            "place": self.place.as_document(),
            "history": [{"what": each.what, "place": each.place.as_document()} for each in self.history],
            "numbers": dict(self.numbers),
        }


class KernelFault(RefusedError):
    """The kernel does what the PTX ISA leaves undefined, or cannot go on. Carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.code, finding.message, fix=finding.fix, numbers=finding.numbers)
        self.finding = finding

    def __str__(self) -> str:
        return str(self.finding)


def shown_file(name: str) -> str:
    """A source file as a reader finds it: from the current folder where it lies below. NVRTC puts names that are no
    files of this machine at the root."""
    path = Path(name)
    if not path.exists():
        return name.lstrip("/")
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else name


class Locator(Protocol):
    """The executor's side: turns an instruction index into a line. `pc` is -1 where no instruction is meant."""

    def place(self, who: Who | None, pc: int, lane: int | None) -> Place: ...


class PlainLocator:
    """A locator that knows no PTX text: the instruction index stands for the line."""

    def place(self, who: Who | None, pc: int, lane: int | None) -> Place:
        line = pc if pc >= 0 else None
        if who is None:
            return Place(ptx_line=line, lane=lane)
        return Place(ptx_line=line, cluster=who.cluster, rank=who.rank, warp=who.warp, lane=lane)


class Reporter:
    """Raises faults and collects warnings; one warning per code and instruction, with a count."""

    def __init__(self, locator: Locator | None = None) -> None:
        self.locator: Locator = locator or PlainLocator()
        self.warnings: dict[tuple[str, int], Finding] = {}
        self.warning_counts: dict[tuple[str, int], int] = {}

    def place(self, who: Who | None, pc: int, lane: int | None = None) -> Place:
        return self.locator.place(who, pc, lane)

    def event(self, what: str, who: Who | None, pc: int, lane: int | None = None) -> Event:
        return Event(what, self.place(who, pc, lane))

    def fail(
        self,
        code: str,
        message: str,
        who: Who | None,
        pc: int,
        lane: int | None = None,
        *,
        history: tuple[Event, ...] = (),
        numbers: Mapping[str, object] | None = None,
        fix: str = "",
    ) -> NoReturn:
        """Raise KernelFault with this finding."""
        raise KernelFault(Finding(code, message, self.place(who, pc, lane), history, dict(numbers or {}), fix))

    def warn(
        self,
        code: str,
        message: str,
        who: Who | None,
        pc: int,
        lane: int | None = None,
        *,
        numbers: Mapping[str, object] | None = None,
        fix: str = "",
    ) -> None:
        """Keep the first warning of this code at this instruction, and count the rest."""
        key = (code, pc)
        self.warning_counts[key] = self.warning_counts.get(key, 0) + 1
        if key not in self.warnings:
            self.warnings[key] = Finding(code, message, self.place(who, pc, lane), (), dict(numbers or {}), fix)
