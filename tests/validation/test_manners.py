"""Policies and seeds dealt out over the cases of a kernel."""

from __future__ import annotations

from itertools import product

import pytest

from advisor.emulator.policy import CLC_POLICIES, CLUSTER_MIXES, POLICIES, RequestPolicy
from advisor.validation.manners import SEEDS, Manner, manners

CASES = range(19)


def kind(manner: Manner) -> str | None:
    """The policy of Cluster Launch Control without its number."""
    return manner.clc_policy and manner.clc_policy.partition(":")[0]


KINDS = {each.partition(":")[0] for each in CLC_POLICIES}


@pytest.mark.parametrize("clc", [False, True])
def test_each_case_meets_each_policy_of_either_kind(clc: bool) -> None:
    for number in CASES:
        made = manners(number, clc=clc)
        assert {each.async_policy for each in made} == set(POLICIES)
        assert {kind(each) for each in made} == (KINDS if clc else {None})
        assert len(made) == (len(CLC_POLICIES) if clc else len(POLICIES))


@pytest.mark.parametrize("clc", [False, True])
def test_over_the_cases_every_policy_meets_every_seed_and_every_policy_of_the_other_kind(clc: bool) -> None:
    made = [each for number in CASES for each in manners(number, clc=clc)]
    assert {(each.async_policy, each.seed) for each in made} == set(product(POLICIES, range(SEEDS)))
    assert {(each.async_policy, kind(each)) for each in made} == set(product(POLICIES, KINDS if clc else {None}))


def test_the_request_that_is_declined_is_another_one_from_case_to_case() -> None:
    made = {each.clc_policy for number in CASES for each in manners(number, clc=True) if kind(each) == "decline"}
    assert made == {"decline:1", "decline:2", "decline:3"}
    for each in made:
        RequestPolicy(str(each))  # the emulator knows it


def test_in_full_a_case_meets_the_product() -> None:
    made = manners(3, full=True, clc=True)
    assert len(made) == len(set(made)) == len(POLICIES) * len(CLC_POLICIES) * SEEDS
    assert len(manners(3, full=True)) == len(POLICIES) * SEEDS


def test_once_is_one_manner_and_the_policies_are_spread_over_the_cases() -> None:
    made = [manners(number, once=True) for number in CASES]
    assert {len(each) for each in made} == {1}
    assert {each[0].async_policy for each in made} == set(POLICIES)
    assert {each[0].seed for each in made} == set(range(SEEDS))


def test_a_mixed_launch_meets_every_mix_with_every_policy_and_seed() -> None:
    for number in CASES:
        made = manners(number, mixed=True)
        assert {each.cluster_mix for each in made} == set(CLUSTER_MIXES)
        assert {each.async_policy for each in made} == set(POLICIES)
        assert {each.clc_policy for each in made} == {None}
    made = [each for number in CASES for each in manners(number, mixed=True)]
    assert {(each.async_policy, each.cluster_mix) for each in made} == set(product(POLICIES, CLUSTER_MIXES))
    assert len(manners(3, full=True, mixed=True)) == len(POLICIES) * len(CLUSTER_MIXES) * SEEDS


def test_a_manner_says_what_it_is() -> None:
    assert str(Manner("lazy", None, 3)) == "lazy, seed 3"
    assert str(Manner("eager", "decline:1", 0)) == "eager, CLC decline:1, seed 0"
    assert str(Manner("eager", None, 0, "fill")) == "eager, clusters fill, seed 0"
