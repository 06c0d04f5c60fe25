"""What `advisor accept` found on one GPU: one file to send home. `advisor report --accepted` reads it.

A kernel is named by three hashes: of what was compiled (`kernel_hash`), of the machine code that ran (`cubin_sha256`)
and of how it was launched (`launch_sha256`). Only a kernel that has all three is the one that ran.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import Field

from advisor.records.base import Record, canonical_json
from advisor.records.evidence import CaseVerdict, Chip, ResidencyCheck, Timing, WorstElement
from advisor.records.launch import Kernel

StepVerdict = Literal["pass", "fail", "not_run", "not_applicable"]


class AcceptedRun(Record):
    """One case on one rung, or on a kernel that was built for the acceptance alone."""

    run: str
    case: str
    arguments: dict[str, int | float]
    verdict: CaseVerdict
    detail: str = ""
    checks: dict[str, bool] = Field(default_factory=dict)
    worst: WorstElement | None = None
    launches: int = 0
    held_sms: int = 0  # SMs that other work held meanwhile


class AcceptedStep(Record):
    """`not_applicable`: there is nothing of this kind on this GPU or in this bundle; it is no pass."""

    name: str
    title: str
    verdict: StepVerdict
    reason: str = ""
    seconds: float = 0.0
    runs: list[AcceptedRun] = Field(default_factory=list)
    facts: dict[str, Any] = Field(default_factory=dict)


class AcceptedKernel(Record):
    """What the steps showed of one image. `in_bundle`: the bundle ships it; else it was built for the acceptance."""

    kernel_id: str
    image: str
    kernel_hash: str
    cubin_sha256: str
    launch_sha256: str
    schedule: str
    cluster: tuple[int, int, int]
    in_bundle: bool
    result: Literal["pass", "fail", "not_run"]
    reason: str = ""
    cases: int = 0
    correct: int = 0
    launches: int = 0
    timing: Timing | None = None  # of the problem's own shape


class Acceptance(Record):
    """`profile` is the measured profile as TOML, `calibration` everything that it was made from. `content_sha256`
    covers the rest of the file, so that an edit shows."""

    schema_version: Literal[1] = 1
    generator: str
    bundle: str
    manifest_hash: str
    chip: Chip
    sms: int
    cuda: str  # the CUDA version that the driver supports
    libraries: dict[str, str] = Field(default_factory=dict)
    steps: list[AcceptedStep]
    kernels: list[AcceptedKernel]
    residency: list[ResidencyCheck] = Field(default_factory=list)
    switched_off: str | None = None  # why runtime.json of the bundle has Cluster Launch Control off since
    profile: str | None = None
    calibration: dict[str, Any] = Field(default_factory=dict)
    verdict: Literal["pass", "fail", "not_run"]
    content_sha256: str = ""

    def sealed(self) -> Acceptance:
        """The same as it is read back from a file, with the hash of its content."""
        return Acceptance.model_validate_json(canonical_json(self.model_copy(update={"content_sha256": self._hash()})))

    @property
    def is_intact(self) -> bool:
        """Whether the content is what it was when it was sealed."""
        return self.content_sha256 == self._hash()

    def _hash(self) -> str:
        return hashlib.sha256(canonical_json(self.model_copy(update={"content_sha256": ""})).encode()).hexdigest()


def launch_hash(kernel: Kernel) -> str:
    """sha256 of how a kernel is built and launched: its entry in launch.json."""
    return hashlib.sha256(canonical_json(kernel).encode()).hexdigest()
