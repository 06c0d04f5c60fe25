"""What a benchmark leaves behind: every sample of every contestant, and what the numbers depend on. The ratios that
people quote are computed from it (`summary.py`), never stored beside it. Imports `records`.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from advisor.errors import InputError
from advisor.records.base import Record, round_six
from advisor.records.candidate import Candidate, Family, GemmWork, Raster, RowWork, Schedule
from advisor.records.evidence import CaseVerdict, Chip
from advisor.records.plan import RowWorkRecord

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
    split_k: int
    swap_ab: bool
    mma_ctas: int
    raster: tuple[str, int]
    preferred_cluster: tuple[int, int, int] | None = None
    row: RowWorkRecord | None = None  # of a row reduction

    @classmethod
    def of(cls, c: Candidate) -> CandidateRecord:
        w = c.work
        row = RowWorkRecord.of(w) if isinstance(w, RowWork) else None
        return cls(
            family=c.family,
            cluster=c.cluster,
            schedule=c.schedule,
            tile=c.tile,
            stages=c.stages,
            threads=c.threads,
            split_k=w.split_k,
            swap_ab=w.swap_ab,
            mma_ctas=w.mma_ctas,
            raster=("along_n", 8) if row else (w.raster.order, w.raster.group),
            preferred_cluster=w.preferred_cluster,
            row=row,
        )

    def candidate(self) -> Candidate:
        order: Any = self.raster[0]
        unit = self.preferred_cluster or self.cluster
        return Candidate(
            family=self.family,
            cluster=self.cluster,
            schedule=self.schedule,
            tile=self.tile,
            stages=self.stages,
            threads=self.threads,
            work=self.row.work()
            if self.row
            else GemmWork(
                mma_ctas=self.mma_ctas,
                multicast_a=unit[1],
                multicast_b=unit[0],
                split_k=self.split_k,
                swap_ab=self.swap_ab,
                raster=Raster(order, self.raster[1]),
                preferred_cluster=self.preferred_cluster,
            ),
        )

    @property
    def label(self) -> str:
        """`sm90 static 128x256 2x1 s4`: what tells candidates of one problem apart."""
        x, y, z = self.cluster
        words = [self.family, self.schedule, f"{self.tile[0]}x{self.tile[1]}"]
        words += [f"cluster {x}x{y}" + (f"x{z}" if z > 1 else "")] if x * y * z > 1 else []
        words += [f"or {'x'.join(map(str, self.preferred_cluster))}"] if self.preferred_cluster else []
        words += [f"{self.stages} stages"]
        words += [f"{self.threads} threads", *([] if self.row.vectors else ["streamed"])] if self.row else []
        words += [f"split {self.split_k}"] if self.split_k > 1 else []
        words += ["swapped"] if self.swap_ab else []
        words += [f"raster {self.raster[0]} {self.raster[1]}"] if self.raster != ("along_n", 8) else []
        return " ".join(words)


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
