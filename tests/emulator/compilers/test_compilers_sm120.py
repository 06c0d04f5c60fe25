"""Kernels of Triton for the other Blackwell chips: unmodified, right, and nothing to report."""

from __future__ import annotations

import pytest

from tests.emulator.compilers.cases_sm120 import SM120
from tests.emulator.compilers.harness import POLICIES, check, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize("name", list(SM120.cases))
def test_one_policy(name):
    check(SM120.cases[name](), async_policy=POLICIES[list(SM120.cases).index(name) % len(POLICIES)], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", list(SM120.cases))
def test_every_policy(name, policy):
    check(SM120.cases[name](), async_policy=policy, seed=2)
