"""Kernels of Triton and Gluon for Hopper and Ampere: unmodified, right, and nothing to report."""

from __future__ import annotations

import pytest

from advisor.emulator import KernelFault
from tests.emulator.compilers.cases_matmul import host_descriptors
from tests.emulator.compilers.cases_sm90 import SM90
from tests.emulator.compilers.harness import POLICIES, check, execute, needs_triton

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


def test_a_tile_that_two_warpgroups_store_is_named():
    """Triton 3.9.0 gives a tile of 64 rows to both consumer warpgroups on Hopper: each stores it, in no order."""
    case = host_descriptors(90, (128, 128, 256), (64, 64, 64), warps=True)
    with pytest.raises(KernelFault) as found:
        execute(case)
    assert found.value.code == "EMU_DATA_RACE"
    assert "kernels_matmul.py:" in str(found.value)
