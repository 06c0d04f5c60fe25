"""The answers that a GPU engineer would give, for shapes where there is one."""

from __future__ import annotations

import pytest

BIG = {"m": 8192, "n": 8192, "k": 8192}


def decision(plan, step, start):
    return next(each for each in plan.steps[step - 1].decisions if each.question.startswith(start))


def test_a_large_gemm_on_b200_is_a_pair_with_256_in_n(plan_for):
    plan = plan_for("b200", **BIG)
    assert plan.choice.family == "sm100"
    assert plan.choice.work.mma_ctas == 2
    assert plan.choice.cluster == (2, 1, 1)
    assert plan.choice.tile.cta[:2] == (128, 256)
    assert plan.choice.tile.cluster[0] == 256


@pytest.mark.parametrize("target", ["b200", "h200"])
def test_a_small_gemm_has_no_cluster_and_one_tile_per_cta(plan_for, target):
    plan = plan_for(target, m=256, n=256, k=256)
    assert plan.choice.cluster == (1, 1, 1)
    assert plan.choice.schedule == "one_tile"


def test_hopper_never_gets_clc_and_large_tiles_are_static(plan_for):
    plan = plan_for("h200", m=4096, n=4096, k=4096)
    assert plan.choice.schedule == "static"
    assert plan.choice.tile.cta == (128, 256, 64)
    assert plan.choice.cluster == (1, 1, 1)  # as fast as with a pair of loads, on two H200s
    rejected = {each.option: each for each in decision(plan, 6, "Which schedule").rejected}
    assert rejected["clc"].code == "NO_CLC"
    assert all(choice.schedule != "clc" for choice in plan.choices)


def test_hopper_at_8192_takes_the_same_kernel(plan_for):
    choice = plan_for("h200", **BIG).choice
    assert (choice.kernel_id, choice.tile.cta) == ("sm90_static", (128, 256, 64))


def test_a_forced_pair_on_an_odd_number_of_tiles_names_its_waste(plan_for, codes):
    plan = plan_for("b200", m=640, n=4096, k=4096, overrides={"mma_ctas": 2, "tile": [128, 256, 64]})
    waste = codes(plan)["PAIR_WASTE"]
    assert waste.numbers == {"tiles": 5, "launched": 6}
    assert "5 tiles" in waste.message
    texts = " ".join(reason.text for reason in decision(plan, 1, "Is a CTA pair").because)
    assert "launches 6" in texts


@pytest.mark.parametrize("target", ["b200", "h200"])
def test_decoding_takes_small_tiles_split_k_or_a_swap_and_no_cluster_beyond_its_tiles(plan_for, target):
    plan = plan_for(target, m=16, n=7168, k=7168)
    choice = plan.choice
    tiles_m = -(-7168 // choice.tile.cta[0]) if choice.work.swap_ab else 1
    assert choice.work.swap_ab or choice.work.split_k > 1 or choice.tile.cta[0] * choice.tile.cta[1] <= 64 * 64
    assert choice.cluster[0] <= tiles_m


@pytest.mark.parametrize(("target", "schedule"), [("b200", "clc"), ("h200", "ticket")])
def test_half_the_sms_busy_with_many_tiles_is_dynamic(plan_for, device, target, schedule):
    plan = plan_for(target, m=16384, n=16384, k=1024, shared_gpu={"busy_sms": device(target).sms // 2})
    assert plan.choice.schedule == schedule
    rejected = {each.option: each for each in decision(plan, 6, "Which schedule").rejected}
    assert rejected["static"].margin > 0.05


def test_a_budget_of_sms_refuses_a_forced_clc(plan_for):
    plan = plan_for("b200", **BIG, constraints={"sm_budget": 64}, overrides={"schedule": "clc"})
    assert plan.verdict == "refuse"
    assert plan.choices == []
    assert plan.findings[-1].code == "SM_BUDGET_SCHEDULE"
    assert plan.findings[-1].severity == "error"


@pytest.mark.parametrize("target", ["b200", "h200"])
def test_a_budget_of_sms_bounds_the_persistent_grid(plan_for, target):
    plan = plan_for(target, **BIG, constraints={"sm_budget": 64})
    assert plan.choice.schedule in ("static", "ticket")
    assert plan.choice.grid_blocks <= 64


def test_short_k_is_persistent_because_the_prologue_is_paid_once(plan_for):
    plan = plan_for("b200", m=8192, n=8192, k=256, batch=4)
    assert plan.choice.schedule in ("static", "clc")
    rows = {row[0]: row for row in plan.steps[5].artifact["simulated"]["rows"]}
    assert rows["one_tile"][-1] > 0.2  # the simulated margin
    texts = " ".join(reason.text for reason in decision(plan, 6, "Which schedule").because)
    assert "prologue" in texts


def test_a_cluster_of_16_is_weighed_against_8_by_its_idle_sms(plan_for, codes):
    plan = plan_for("b200", **BIG, overrides={"cluster": [16, 1, 1]})
    assert plan.choice.nonportable
    note = codes(plan)["NONPORTABLE_ATTR"]
    assert note.numbers["sms_idle"] == 36
    assert note.numbers["sms_idle_at_8"] == 28
    assert note.numbers["fallback_size"] == 8
    assert codes(plan)["OVERRIDE_COST"].numbers["cost"] > 0.05


def test_a_pair_is_worth_it_by_a_named_margin(plan_for):
    plan = plan_for("b200", m=4096, n=4096, k=4096, constraints={"max_cluster_size": 2})
    question = decision(plan, 1, "Is a CTA pair")
    assert question.choice.startswith("a CTA pair")
    assert next(each for each in question.rejected if each.option == "1 CTA per MMA").margin > 0.015


def test_skewed_tiles_of_short_k_are_stolen(plan_for):
    skewed = plan_for("b200", m=8192, n=8192, k=1024, assume={"tile_cost_cv": 0.5, "seed": 7})
    even = plan_for("b200", m=8192, n=8192, k=1024)
    assert skewed.choice.schedule == "clc"
    assert even.choice.schedule == "static"
    kinds = {reason.evidence for reason in decision(skewed, 6, "Which schedule").because}
    assert "user" in kinds


def test_a_long_k_of_few_tiles_is_summed_inside_the_cluster(plan_for):
    plan = plan_for("h200", m=64, n=4096, k=7168)
    choice = plan.choice
    assert choice.cluster[2] == choice.work.split_k > 1
    buffers = plan.steps[2].artifact["buffers"]["rows"]
    assert any(row[0] == "partial sums" for row in buffers)
    assert plan.steps[1].decisions[1].rejected  # the other slices, with their margins


def test_uniform_tiles_bound_by_the_output_have_no_cluster(plan_for):
    plan = plan_for("b200", m=8192, n=8192, k=64)
    assert plan.choice.cluster == (1, 1, 1)
    assert decision(plan, 1, "Does a cluster pay").choice.startswith("no cluster")
    assert plan.choice.prediction.bound == "dram"
