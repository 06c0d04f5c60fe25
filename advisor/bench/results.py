"""What a benchmark leaves behind: every sample of every contestant, and what the numbers depend on. The ratios that
people quote are computed from it (`summary.py`), never stored beside it. Imports `kinds` and `records`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, ValidationError, model_validator

import advisor.kinds  # noqa: F401  # what the record of a candidate is read with
from advisor.errors import InputError
from advisor.records.base import Record, round_six
from advisor.records.candidate import Candidate, Family, Schedule
from advisor.records.evidence import CaseVerdict, Chip
from advisor.records.work import WorkRecord, record_type, with_work

SCHEMA_VERSION = 1
Role = Literal["pick", "twin", "candidate", "library", "library_whole", "triton", "copy"]
OWN_ROLES: tuple[Role, ...] = ("pick", "twin", "candidate")


class CandidateRecord(Record):
    """A candidate as data."""

    family: Family
    cluster: tuple[int, int, int]
    schedule: Schedule
    tile: tuple[int, int, int]
    stages: int
    threads: int
    work: SerializeAsAny[WorkRecord]  # of the problem's kind

    @classmethod
    def of(cls, kind: str, c: Candidate) -> CandidateRecord:
        return cls(
            family=c.family,
            cluster=c.cluster,
            schedule=c.schedule,
            tile=c.tile,
            stages=c.stages,
            threads=c.threads,
            work=record_type(kind).of(c.work),
        )

    @classmethod
    def read(cls, kind: object, data: Mapping[str, Any]) -> CandidateRecord:
        """The candidate of a problem of that kind. Raises ValueError."""
        own = {name: data[name] for name in cls.model_fields if name in data}
        if "work" not in data:
            own["work"] = record_type(kind).earlier(data)
        return cls.model_validate(with_work(kind, own))

    def candidate(self) -> Candidate:
        return Candidate(
            family=self.family,
            cluster=self.cluster,
            schedule=self.schedule,
            tile=self.tile,
            stages=self.stages,
            threads=self.threads,
            work=self.work.work(),
        )

    @property
    def label(self) -> str:
        """`sm90 static 128x256 2x1 s4`: what tells candidates of one problem apart."""
        x, y, z = self.cluster
        words = [self.family, self.schedule, f"{self.tile[0]}x{self.tile[1]}"]
        words += [f"cluster {x}x{y}" + (f"x{z}" if z > 1 else "")] if x * y * z > 1 else []
        c = self.candidate()
        words += [f"or {'x'.join(map(str, c.unit))}"] if c.work.preferred_cluster else []
        return " ".join([*words, f"{self.stages} stages", *self.work.label(c)])


class State(Record):
    """The GPU while a contestant ran: medians of what was read during its samples. None: not given by this machine."""

    sm_mhz: float | None = None
    watts: float | None = None
    celsius: float | None = None
    held_by: list[str] = Field(default_factory=list)  # what held the clock down at any reading


class Contestant(Record):
    """One kernel of ours, or a baseline, on one problem. `verdict` is that of the validation of this very run: what is
    not `correct` has no samples. A baseline is not checked: its verdict is `not_run`."""

    name: str
    role: Role
    label: str
    candidate: CandidateRecord | None = None
    kernels_sha256: str | None = None  # over the kernel hashes of what a launch runs
    predicted_us: float | None = None
    verdict: CaseVerdict
    detail: str = ""
    samples_us: list[float] = Field(default_factory=list)  # microseconds of one launch, one number a round
    launches: int = 0  # of one sample
    state: State = Field(default_factory=State)

    @property
    def median_us(self) -> float | None:
        return statistics.median(self.samples_us) if self.samples_us else None

    @property
    def spread(self) -> float | None:
        """(highest - lowest) / median of the samples."""
        if not self.samples_us:
            return None
        return (max(self.samples_us) - min(self.samples_us)) / statistics.median(self.samples_us)


class ProblemResult(Record):
    """All contestants of one problem, in the order of their first round."""

    name: str
    problem: dict[str, Any]
    arguments: dict[str, int | float]
    flops: int
    least_bytes: int
    copies: int = 0  # of the buffers, in rotation
    rotated_bytes: int = 0  # together; below twice the L2 where MAX_COPIES cut them off
    contestants: list[Contestant] = Field(default_factory=list)
    not_run: str = ""  # why nothing was measured

    @model_validator(mode="before")
    @classmethod
    def _of_its_kind(cls, data: Any) -> Any:
        """What is read says its kind once, in the problem: the contestants' candidates are read by it."""
        if not isinstance(data, dict) or not isinstance(data.get("problem"), dict):
            return data
        kind = data["problem"].get("kind")
        found = [
            {**each, "candidate": CandidateRecord.read(kind, each["candidate"])}
            if isinstance(each, dict) and isinstance(each.get("candidate"), dict)
            else each
            for each in data.get("contestants", [])
        ]
        return {**data, "contestants": found}

    def by_role(self, role: Role) -> list[Contestant]:
        return [each for each in self.contestants if each.role == role]

    def first(self, role: Role) -> Contestant | None:
        """The first of a role that was timed."""
        return next((each for each in self.by_role(role) if each.samples_us), None)


class Method(Record):
    rounds: int
    sample_us: float  # a sample is at least as long, in whole rotations
    l2_bytes: int
    rotation_of_l2: int  # buffers rotate past so many times the L2
    clocks: str  # where clocks and power come from, or why there are none


class BenchRun(Record):
    """One run of a suite on one GPU."""

    schema_version: Literal[1] = 1
    suite: str
    title: str
    suite_sha256: str
    command: str
    date: str  # ISO 8601, UTC
    chip: Chip
    software: dict[str, str]
    method: Method
    problems: list[ProblemResult]


def write_results(run: BenchRun) -> str:
    """The run as JSON, a problem on a line, so that two files can be compared line by line."""
    document = round_six(run.model_dump(mode="json"))
    problems = document.pop("problems")
    head = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).removesuffix("\n}")
    rows = ",\n".join("  " + json.dumps(each, ensure_ascii=False, allow_nan=False) for each in problems)
    return f'{head},\n "problems": [\n{rows}\n ]\n}}\n'


def read_results(path: Path) -> BenchRun:
    """Raises InputError RESULTS_UNREADABLE."""
    try:
        return BenchRun.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            "RESULTS_UNREADABLE",
            f"{path} cannot be read: {error.strerror or error}",
            fix="name a file that `advisor bench --output` wrote",
            numbers={"path": str(path)},
        ) from error
    except ValidationError as error:
        raise InputError(
            "RESULTS_UNREADABLE",
            f"{path} is no result of `advisor bench` of this version: {str(error).splitlines()[0]}",
            fix="name a file that `advisor bench --output` wrote",
            numbers={"path": str(path)},
        ) from error
