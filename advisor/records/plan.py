"""plan.json: the whole ladder of choices, the nine steps with their reasons, and what was not verified.

The report is a rendering of this record; there is no second truth. Floats are written with six significant digits.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializeAsAny, model_validator

from advisor.machine.profile import EvidenceKind
from advisor.records.base import Record
from advisor.records.candidate import Candidate, Family, Schedule
from advisor.records.counts import CountTable
from advisor.records.work import WorkRecord, with_work

SCHEMA_VERSION = 1
Verdict = Literal["plan", "adjust", "fallback", "refuse", "noop"]
Severity = Literal["info", "warning", "error"]
Numbers = dict[str, Any]
Triple = tuple[int, int, int]
PTXAS = "ptxas: what ships is its SASS, shown only by a run on the chip"
"""What `not_verified` says of a kernel until it ran."""


class Target(Record):
    name: str  # as asked for: b200, auto, my_gpu.toml
    arch: str  # sm_100a
    profile: str  # the profile's name
    source: Literal["profile", "device"]


class Tile(Record):
    cta: Triple  # (M, N, K) of one CTA, MMA coordinates
    cluster: Triple  # (M, N, K) of one cluster, MMA coordinates
    problem: Triple  # one CTA's tile in the problem's (m, n, k): swapped where `swap_ab`


class ClusterResidency(Record):
    cluster_size: int
    max_active_clusters: int
    sms_used: int
    sms_idle: int
    nonportable: bool


class Residency(Record):
    derived: Numbers  # the formula's answer and its inputs
    queried: Numbers | None = None  # the live answer for the built kernel, with device and driver
    max_active_clusters: int
    sms_used: int
    sms_idle: int
    by_cluster_size: list[ClusterResidency]  # 1, 2, 4, 8, 16 at this kernel's resources


class Prediction(Record):
    time_us: float
    low_us: float
    high_us: float
    bound: str  # what limits it: tensor, l2, dram, smem, latency, epilogue
    waves: float
    last_wave_use: float  # useful share of the last wave, 0 to 1
    evidence: EvidenceKind = "derived"  # measured, where a measured time stands over the model's


class Choice(Record):
    """One rung of the ladder, planned in its own right."""

    kernel_id: str
    family: Family
    profile: str  # the profile that it was planned for
    cluster: Triple
    nonportable: bool
    schedule: Schedule
    stages: int
    threads: int
    smem_bytes: int  # dynamic
    tmem_columns: int
    registers_budget: int
    tile: Tile
    grid_blocks: int
    grid_clusters: int
    work: SerializeAsAny[WorkRecord]  # of the problem's kind
    residency: Residency
    prediction: Prediction
    trigger: str  # when this rung runs, in words

    def candidate(self) -> Candidate:
        """The candidate that this choice was made from."""
        return Candidate(
            family=self.family,
            cluster=self.cluster,
            schedule=self.schedule,
            tile=self.tile.cta,
            stages=self.stages,
            threads=self.threads,
            work=self.work.work(),
        )


class Reason(Record):
    """One reason of a decision, with the numbers that let a reader check it."""

    text: str
    evidence: EvidenceKind
    numbers: Numbers = Field(default_factory=dict)


class Rejected(Record):
    """An option that was not taken. A legal option that lost has a margin; an illegal one has a code."""

    option: str
    reason: str
    margin: float | None = None  # predicted time / the winner's time - 1
    code: str | None = None
    numbers: Numbers = Field(default_factory=dict)


class Decision(Record):
    question: str
    choice: str
    because: list[Reason]
    rejected: list[Rejected] = Field(default_factory=list)


class Step(Record):
    step: int
    name: str
    decisions: list[Decision]
    artifact: Numbers  # the step's table: {"columns": [...], "rows": [[...], ...]} entries by name, plus plain facts


class Finding(Record):
    code: str
    severity: Severity
    message: str
    numbers: Numbers = Field(default_factory=dict)


class Alternative(Record):
    """A runner-up, complete enough to be built and measured against the choice."""

    label: str
    margin: float
    choice: Choice


class Experiment(Record):
    """The one measurement that could prove the choice wrong."""

    question: str
    hypothesis: str
    command: str
    confirms_if: str
    refutes_if: str


class Plan(Record):
    schema_version: Literal[1] = 1
    problem: dict[str, Any]
    target: Target
    verdict: Verdict
    conclusion: str
    choices: list[Choice]
    choice: Choice | None  # choices[0]; null for refuse and noop
    steps: list[Step]
    findings: list[Finding] = Field(default_factory=list)
    alternatives: list[Alternative] = Field(default_factory=list)
    experiment: Experiment | None = None
    not_verified: list[str] = Field(default_factory=list)
    counts: CountTable | None = None  # what can be counted of the choice without the chip

    @model_validator(mode="before")
    @classmethod
    def _of_its_kind(cls, data: Any) -> Any:
        """A plan that is read says its kind once, in the problem: the choices' own parts are read by it."""
        if not isinstance(data, dict) or not isinstance(data.get("problem"), dict):
            return data
        kind, found = data["problem"].get("kind"), dict(data)
        for name in ("choices", "choice", "alternatives"):
            if name in found:
                found[name] = with_work(kind, found[name])
        return found
