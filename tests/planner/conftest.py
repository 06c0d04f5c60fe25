"""Plans of small problem documents, on shipped profiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from advisor.kinds import workload
from advisor.machine import DeviceProfile, load_profile
from advisor.planner import plan
from advisor.problem.gemm import GemmProblem
from advisor.records.plan import Finding, Plan

MakePlan = Callable[..., Plan]


@lru_cache
def profile(name: str) -> DeviceProfile:
    return load_profile(name)


def problem(**document: Any) -> GemmProblem:
    return GemmProblem.model_validate({"kind": "gemm", **document}, strict=False)


def make(target: str | DeviceProfile, *, occupancy: Any = None, **document: Any) -> Plan:
    own = profile(target) if isinstance(target, str) else target
    hopper = own if own.compute_capability[0] == 9 else profile("h200")
    return plan(
        workload(problem(**document)),
        own,
        target_name=own.name,
        target_source="profile",
        rung_profiles={"sm100": own, "sm90": hopper, "portable": own},
        occupancy=occupancy,
    )


@pytest.fixture
def plan_for() -> MakePlan:
    """`plan_for(target, m=..., n=..., k=..., **problem)`; `target` is a profile's name or a profile."""
    return make


@pytest.fixture
def device() -> Callable[..., DeviceProfile]:
    """`device(name, **changes)`: a shipped profile with fields changed."""
    return lambda name, **changes: replace(profile(name), **changes)


@pytest.fixture
def codes() -> Callable[[Plan], dict[str, Finding]]:
    """Findings of a plan by code."""
    return lambda made: {each.code: each for each in made.findings}
