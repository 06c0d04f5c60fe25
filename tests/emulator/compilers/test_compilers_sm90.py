"""Kernels of Triton and Gluon for Hopper and Ampere: unmodified, right, and nothing to report."""

from __future__ import annotations

import pytest

from tests.emulator.compilers.cases_sm90 import SM90
from tests.emulator.compilers.harness import POLICIES, check, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize("name", list(SM90.cases))
def test_one_policy(name):
    """Each under one policy; which one is spread over the names."""
    policy = POLICIES[list(SM90.cases).index(name) % len(POLICIES)]
    check(SM90.cases[name](), async_policy=policy, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", list(SM90.cases))
def test_every_policy(name, policy):
    case = SM90.cases[name]()
    for seed in (2, 3):
        check(case, async_policy=policy, seed=seed)


def test_there_are_enough():
    assert len(SM90.cases) >= 25
