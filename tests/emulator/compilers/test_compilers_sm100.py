"""Kernels of Triton and Gluon for Blackwell: unmodified, right, and nothing to report, whatever Cluster Launch Control
answers."""

from __future__ import annotations

import pytest

from advisor.emulator import KernelFault
from tests.emulator.compilers.cases_sm100 import SM100, clc_matmul
from tests.emulator.compilers.harness import POLICIES, check, execute, needs_triton

pytestmark = needs_triton

NAMES = list(SM100.cases)
ASKING = [name for name in NAMES if "clc" in name]
CLC_POLICIES = ("grant", "decline:1", "decline:3", "random", "preempt", "spurious")


@pytest.mark.parametrize("name", SM100.quick)
def test_one_policy(name):
    """Each under one policy; which one is spread over the names."""
    check(SM100.cases[name](), async_policy=POLICIES[NAMES.index(name) % len(POLICIES)], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_every_policy(name, policy):
    check(SM100.cases[name](), async_policy=policy, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("clc", CLC_POLICIES)
@pytest.mark.parametrize("name", ASKING)
def test_every_answer(name, clc):
    """With many SMs and with few, so that requests are granted and declined."""
    case = SM100.cases[name]()
    for seed, policy in enumerate(POLICIES):
        check(case, async_policy=policy, clc=clc, seed=seed)
        check(case, async_policy=policy, clc=clc, seed=seed, busy_sms=142)


def test_requests_are_granted_and_declined():
    few = check(SM100.cases["gluon_clc"](), busy_sms=146)
    assert few.requests is not None
    assert few.requests.granted > 0
    assert few.requests.declined > 0


def test_there_are_enough():
    assert len([name for name in NAMES if name.startswith(("gluon", "tma", "tmem", "scaled", "clc"))]) >= 40


def test_a_reader_of_responses_that_is_not_counted_is_named():
    """In the second CTA of a pair the asking warp reads each response, and gives no slot back: the first CTA asks
    again while it may still read."""
    case = clc_matmul((256, 64, 64), (3, 3), ((1, 0),), slots=1, counted=False)
    with pytest.raises(KernelFault) as found:
        execute(case, async_policy="adversarial", busy_sms=146)
    assert found.value.code == "EMU_CLC_SLOT_IN_USE"
