"""What most kinds answer alike, from the parts that every problem has. A kind inherits it and says the rest.

Imports `machine`, `problem`, `records`, `simulation` and `workload`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from advisor.kinds.words import Chosen
from advisor.kinds.workload import Search
from advisor.machine.features import Feature, supports
from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import Candidate, Family
from advisor.records.case import Case
from advisor.records.plan import Decision, Finding
from advisor.records.rows import KernelLayout

BOUNDS = {
    "l2": "bandwidth from the L2",
    "sm_fill": "what one SM takes in",
    "latency": "latency (launch, first loads, slots that come back late)",
    "dram": "DRAM bandwidth",
    "issue": "the instructions that the SMs issue",
}
RUNS_ON: Mapping[Family, str] = {
    "sm100": "compute capability 10.x (sm_100a, sm_100f, sm_103a)",
    "sm90": "compute capability 9.0 (sm_90a)",
    "portable": "compute capability 8.0 and later",
}


class BaseWorkload(ABC):
    """The common part of a `Workload`. `problem` is the kind's model; OVERRIDES names those of its overrides that
    narrow the search, as its model does."""

    OVERRIDES: ClassVar[tuple[str, ...]] = ("cluster", "schedule", "tile", "stages")
    operand_codes: Sequence[str] = ()
    bounds: Mapping[str, str] = BOUNDS
    problem: Any

    @property
    def kind(self) -> str:
        kind: str = self.problem.kind
        return kind

    @property
    def name(self) -> str:
        name: str = self.problem.name
        return name

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = self.problem.model_dump(mode="json")
        return document

    @property
    def summary(self) -> str:
        words: str = self.problem.words
        return words

    def empty(self) -> str | None:
        return None

    def uses(self, number: str) -> bool:
        return True

    def findings(self, profile: DeviceProfile) -> list[Finding]:
        """More busy SMs than there are."""
        busy = self.problem.shared_gpu.busy_sms
        if busy < profile.sms:
            return []
        return [
            Finding(
                code="ZERO_ACTIVE_CLUSTERS",
                severity="warning",
                message=f"shared_gpu.busy_sms is {busy}, {profile.title} has {profile.sms} SMs: planned as if one "
                "were left",
                numbers={"busy_sms": busy, "sms": profile.sms},
            )
        ]

    def families(self, profile: DeviceProfile) -> tuple[Family, ...]:
        """By exact features, newest first; a newer GPU's plan has a rung for the older ones."""
        if supports(Feature.TCGEN05, profile.arch):
            return ("sm100", "sm90", "portable")
        return ("sm90", "portable") if supports(Feature.WGMMA, profile.arch) else ("portable",)

    @abstractmethod
    def explore(self, profile: DeviceProfile, family: Family, *, forced: bool) -> Search:
        """Every candidate as columns, with its time or the clause that it breaks: the kind's to say."""

    def candidates(self, profile: DeviceProfile, family: Family) -> Sequence[Candidate]:
        """Every legal candidate, fastest first. (The planner works on `explore`, which holds the same as arrays.)"""
        search = self.explore(profile, family, forced=True)
        order = np.argsort(search.time_us, kind="stable")
        return [search.candidate(int(i)) for i in order[: int(np.isfinite(search.time_us).sum())]]

    def forces(self) -> Mapping[str, Any]:
        given = self.problem.overrides
        return {name: getattr(given, name) for name in self.OVERRIDES if getattr(given, name) is not None}

    def pins(self, c: Candidate) -> Mapping[str, Any]:
        return {name: getattr(c, name) for name in self.OVERRIDES}

    def limits(self) -> Mapping[str, Any]:
        p = self.problem
        return {
            "sm_budget": p.constraints.sm_budget,
            "max_cluster_size": p.constraints.max_cluster_size,
            "fallback": p.constraints.fallback,
            "kernel": p.overrides.kernel,
            "busy_sms": p.shared_gpu.busy_sms,
            "tile_cost_cv": p.assume.tile_cost_cv,
            "seed": p.assume.seed,
        }

    def fitted(self, c: Candidate) -> Candidate:
        return c

    def weaker(self, forced: Mapping[str, Any], profile: DeviceProfile) -> tuple[dict[str, Any], Finding] | None:
        return None

    def runs_on(self, family: Family) -> str:
        return RUNS_ON[family]

    def necessity(self, f: Chosen) -> list[Decision]:
        return []

    def signals(self, f: Chosen) -> list[Decision]:
        return []

    def claim(self, c: Candidate) -> Sequence[tuple[str, str, str, str]] | None:
        return None

    def remarks(self, f: Chosen) -> list[Finding]:
        return []

    def layout(self, c: Candidate) -> KernelLayout | None:
        return None

    def flops(self, case: Case) -> int:
        return 0

    def library(
        self, case: Case, tensors: Mapping[str, Any], *, whole: bool = False
    ) -> tuple[str, Callable[[], None]] | None:
        return None

    def triton_products(self, case: Case, tensors: Mapping[str, Any], sms: int) -> list[tuple[str, Callable[[], None]]]:
        return []
