"""validation.json: which rung of evidence each (kernel, image) reached, and the cases that took it there."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from advisor.records.base import Record
from advisor.records.launch import ResolvedLaunch

Gate = Literal["planned", "rendered", "compiled", "emulated", "ran"]
GATES: tuple[Gate, ...] = ("planned", "rendered", "compiled", "emulated", "ran")
CaseVerdict = Literal["correct", "mismatch", "race", "deadlock", "timeout", "launch_error", "protocol", "not_run"]
Runner = Literal["cuda", "emulator"]  # what runs a case


class GateResult(Record):
    """One gate of one (kernel hash, image). `facts` holds what the gate is about: compiler and hashes, registers,
    SASS facts, emulator seeds, chip and driver."""

    gate: Gate
    result: Literal["pass", "fail", "not_run"]
    reason: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)


class KernelEvidence(Record):
    kernel_id: str
    kernel_hash: str  # sha256 of translation unit, headers, defines and flags
    image: str  # the target of the cubin: sm_90a
    schedule: str
    cluster: tuple[int, int, int]
    twin_of: str | None = None  # a traced twin never raises the shipped kernel
    gates: list[GateResult]

    def facts(self, gate: Gate) -> dict[str, Any]:
        """What is recorded of a gate; empty where it is not."""
        return next((each.facts for each in self.gates if each.gate == gate), {})

    @property
    def reached(self) -> Gate:
        """The highest gate that passed with every lower recorded one passed too."""
        best: Gate = "planned"
        for gate in self.gates:
            if gate.result == "fail":
                break
            if gate.result == "pass":
                best = gate.gate
        return best


class WorstElement(Record):
    """What JSON has no number for is text: nan, inf, -inf."""

    index: list[int]
    got: float | str
    expected: float | str
    error: float | str
    bound: float | str


class Timing(Record):
    median_us: float
    low_us: float
    high_us: float
    samples: int
    tflops: float | None = None
    baseline: str | None = None  # cuBLAS through torch 2.11
    baseline_us: float | None = None
    ratio: float | None = None  # baseline time / this time: 1 is parity


class EmulatedRun(Record):
    """A case in one manner: when asynchronous work landed, what Cluster Launch Control answered, which of two cluster
    sizes started, in which order."""

    async_policy: str
    clc_policy: str | None = None  # None: the kernel asks for no clusters
    cluster_mix: str | None = None  # None: clusters of one size
    cluster_sizes: list[int] = Field(default_factory=list)  # CTAs of the clusters that ran, of a launch of two sizes
    seed: int
    verdict: CaseVerdict
    code: str = ""  # of the emulator's report


class CaseResult(Record):
    name: str
    kernel_id: str
    rung: str
    device: Runner = "cuda"
    image: str = ""  # the target of the image or the PTX that ran
    arguments: dict[str, int | float]
    launch: ResolvedLaunch | None
    verdict: CaseVerdict
    detail: str = ""
    worst: WorstElement | None = None
    checks: dict[str, bool] = Field(default_factory=dict)  # exact_integers, padding_untouched, same_bits, written_once
    launches: int = 0
    runs: list[EmulatedRun] = Field(default_factory=list)  # empty for a GPU; the verdict is the first that is not right
    timing: Timing | None = None


class ResidencyCheck(Record):
    kernel_id: str
    cluster_size: int
    predicted: int
    queried: int


class Chip(Record):
    name: str
    compute_capability: tuple[int, int]
    uuid_hash: str
    driver: str


class Evidence(Record):
    schema_version: Literal[1] = 1
    bundle: str  # the bundle's name
    manifest_hash: str
    devices: list[Runner] = Field(default_factory=list)  # what ran cases; evidence of one does not erase the other's
    chip: Chip | None = None
    not_run_reason: str | None = None  # why nothing ran on a GPU
    gates: list[KernelEvidence] = Field(default_factory=list)
    cases: list[CaseResult] = Field(default_factory=list)
    residency: list[ResidencyCheck] = Field(default_factory=list)
    experiment: dict[str, Any] | None = None
    verdict: Literal["pass", "fail", "not_run"]
