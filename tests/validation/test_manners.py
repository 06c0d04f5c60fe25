"""Policies and seeds dealt out over the cases of a kernel."""

from __future__ import annotations

from itertools import product

import pytest

from advisor.emulator.policy import POLICIES
from advisor.validation.manners import SEEDS, Manner, manners

CLC = ("grant", "decline:1", "random", "preempt", "spurious")
CASES = range(19)


@pytest.mark.parametrize("clc", [(), CLC])
def test_each_case_meets_each_policy_of_either_kind(clc: tuple[str, ...]) -> None:
    for number in CASES:
        made = manners(number, clc_policies=clc)
        assert {each.async_policy for each in made} == set(POLICIES)
        assert {each.clc_policy for each in made} == (set(clc) or {None})
        assert len(made) == max(len(POLICIES), len(clc))


@pytest.mark.parametrize("clc", [(), CLC])
def test_over_the_cases_every_policy_meets_every_seed_and_every_policy_of_the_other_kind(clc: tuple[str, ...]) -> None:
    made = [each for number in CASES for each in manners(number, clc_policies=clc)]
    assert {(each.async_policy, each.seed) for each in made} == set(product(POLICIES, range(SEEDS)))
    assert {(each.async_policy, each.clc_policy) for each in made} == set(product(POLICIES, clc or (None,)))


def test_in_full_a_case_meets_the_product() -> None:
    made = manners(3, full=True, clc_policies=CLC)
    assert len(made) == len(set(made)) == len(POLICIES) * len(CLC) * SEEDS
    assert len(manners(3, full=True)) == len(POLICIES) * SEEDS


def test_once_is_one_manner_and_the_policies_are_spread_over_the_cases() -> None:
    made = [manners(number, once=True) for number in CASES]
    assert {len(each) for each in made} == {1}
    assert {each[0].async_policy for each in made} == set(POLICIES)


def test_a_manner_says_what_it_is() -> None:
    assert str(Manner("lazy", None, 3)) == "lazy, seed 3"
    assert str(Manner("eager", "decline:1", 0)) == "eager, CLC decline:1, seed 0"
