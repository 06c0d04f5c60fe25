"""What kinds and the planner say a plan with: its words, and what a kind may look at while it writes them.

Imports `machine` and `records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from advisor.kinds.workload import Timing
from advisor.machine.profile import DeviceProfile, EvidenceKind
from advisor.records.candidate import Candidate, Resources
from advisor.records.plan import Decision, Reason, Rejected
from advisor.records.rows import TileMap, Violation


@dataclass(frozen=True, slots=True)
class Option:
    """One value of an axis: its best legal candidate and what it loses, or the clause that rules it out."""

    label: Any
    row: int | None
    time_us: float
    margin: float  # time / the pick's time - 1
    violation: Violation | None = None
    count: int = 0  # candidates with this value that the clause rules out
    evidence: EvidenceKind = "derived"  # of the time


@dataclass(frozen=True, slots=True)
class View:
    """A step of the plan in the kind's words: its decisions, and its artifact, tables and plain facts by name."""

    decisions: Sequence[Decision]
    artifact: Mapping[str, Any]


class Chosen(Protocol):
    """The choice and what lost against it. Everything is decided: a kind only reads."""

    @property
    def candidate(self) -> Candidate: ...
    @property
    def profile(self) -> DeviceProfile: ...
    @property
    def timing(self) -> Timing: ...
    @property
    def time_us(self) -> float:
        """The time that the choice stands on: measured or simulated where it was, else the model's."""

    @property
    def resources(self) -> Resources: ...
    @property
    def tiles(self) -> TileMap: ...
    @property
    def ctas_per_sm(self) -> int: ...
    @property
    def forced(self) -> Mapping[str, Any]:
        """The overrides that the problem gives, by name."""

    def label(self, axis: str) -> Any:
        """The choice's own option of a question."""

    def axis(self, name: str) -> list[Option]:
        """Every option of a question, best first; the impossible ones last."""

    def candidate_at(self, row: int) -> Candidate:
        """The best candidate of an option."""

    def rejections(self, axis: str, chosen: Any, words: str = "{}") -> list[Rejected]:
        """What lost, with its margin or its clause; `words` is how an option is called."""


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    return {"columns": list(columns), "rows": [list(row) for row in rows]}


def reason(text: str, evidence: EvidenceKind, **numbers: Any) -> Reason:
    return Reason(text=text, evidence=evidence, numbers=numbers)


def show(value: Any) -> str:
    """An option in words: True, (128, 256) or (2, "in the cluster") as "yes", "128 x 256", "2 in the cluster"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return (
            " x ".join(str(each) for each in value)
            if all(isinstance(each, int) for each in value)
            else " ".join(map(str, value))
        )
    return str(value)


def cluster_words(c: Candidate) -> str:
    """The cluster, or both of a launch that mixes two sizes."""
    return show(c.cluster) + (f" or {show(c.unit)}" if c.work.preferred_cluster is not None else "")


def mib(count: float) -> str:
    """Four digits, or whole MiB where there are more."""
    size = count / 2**20
    return f"{size:,.0f} MiB" if size >= 10_000 else f"{size:.4g} MiB"
