"""What single steps say, against what the rest of the house does."""

from __future__ import annotations

import pytest

from advisor.kinds.gemm import words
from advisor.kinds.gemm.work import GemmWork, Raster
from advisor.records.candidate import Candidate, Resources
from advisor.records.rows import TileMap


class _Facts:
    """As much of a plan's facts as the offsets need."""

    def __init__(self, raster: Raster, clusters: tuple[int, int, int], split: int) -> None:
        candidate = Candidate(
            "sm90", (2, 1, 1), "static", (128, 256, 64), 4, 384, GemmWork(multicast_b=2, split_k=split, raster=raster)
        )
        self.candidate = candidate
        self.tiles = TileMap((1, 1, 1), (1, 1, 1), clusters, 8, 1.0)
        self.resources = Resources(384, 168, 0, 0, 0)


@pytest.mark.parametrize("order", ["along_m", "along_n"])
@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize(("clusters", "split"), [((5, 7, 2), 1), ((9, 4, 6), 3), ((1, 1, 1), 1)])
def test_offsets_visit_every_cluster_tile_once_in_bands(order, group, clusters, split):
    facts = _Facts(Raster(order, group), clusters, split)
    across, along, layers = clusters
    rows = [words._offsets(facts, index) for index in range(across * along * layers)]
    assert len({tuple(row[1:5]) for row in rows}) == len(rows)
    for _, m, n, batch, slice_, row, column in rows:
        assert (row, column) == (m * 256, n * 256)
        assert m < across
        assert n < along
        assert (batch, slice_) < (layers // split, split)
    fast = 1 if order == "along_m" else 2
    first_band = rows[: min(group, clusters[fast - 1])]
    assert [row[fast] for row in first_band] == list(range(len(first_band)))


def step(plan, number):
    return plan.steps[number - 1]


def test_a_pair_shares_b_and_multicasts_nothing(plan_for):
    plan = plan_for("b200", m=8192, n=8192, k=8192)
    assert plan.choice.work.mma_ctas == 2
    assert (plan.choice.work.multicast.a, plan.choice.work.multicast.b) == (1, 2)
    sharing = step(plan, 3)
    assert "each CTA loads half" in sharing.decisions[0].choice
    assert "multicast" not in sharing.decisions[0].choice
    rows = {row[0]: row for row in sharing.artifact["buffers"]["rows"]}
    assert rows["B"][4] == "none"
    assert "peer" in rows["B"][2]
    assert rows["D"][3] == 128 * 256 * 2


def test_clusters_that_multicast_name_their_masks(plan_for):
    plan = plan_for("h200", m=4096, n=4096, k=4096, overrides={"cluster": [2, 4, 1]})
    rows = {row[0]: row for row in step(plan, 3).artifact["buffers"]["rows"]}
    assert "0x0055 for rank 0" in rows["A"][4]  # along y: ranks 0, 2, 4, 6
    assert "0x0003 for rank 0" in rows["B"][4]


@pytest.mark.parametrize(("dtype", "stored"), [("bf16", "TMA store"), ("fp32", "ordinary stores")])
def test_the_way_of_d_out_is_the_kernels_own(plan_for, dtype, stored):
    plan = plan_for("h200", m=4096, n=4096, k=4096, d={"dtype": dtype})
    row = next(each for each in step(plan, 3).artifact["buffers"]["rows"] if each[0] == "D")
    assert stored in row[2]
    assert row[3] == plan.choice.tile.cta[0] * plan.choice.tile.cta[1] * (2 if dtype == "bf16" else 4)
    operands = "A, B and D" if dtype == "bf16" else "A and B"
    assert operands in plan.choice.trigger


def test_sms_that_a_cluster_size_cannot_reach_are_named_with_what_is_not_planned(plan_for):
    plan = plan_for("b200", m=8192, n=8192, k=8192, overrides={"cluster": [4, 2, 1]})
    artifact = step(plan, 4).artifact
    assert artifact["sms_left_over"] == 28
    assert "28 SMs are out of reach of clusters of 8; the problem forces" in artifact["preferred_cluster"]
    assert plan.choice.work.preferred_cluster is None
    two = step(plan_for("b200", m=8192, n=8192, k=8192), 4).artifact
    assert two["sms_left_over"] == 0
    assert two["preferred_cluster"].startswith("none: ")


def mix_decision(plan):
    return next(each for each in step(plan, 4).decisions if each.question == "Mix two cluster sizes?")


def test_two_cluster_sizes_are_weighed_and_lose_unless_they_win_clearly(plan_for):
    plan = plan_for("b200", m=8192, n=8192, k=8192)
    assert plan.choice.work.preferred_cluster is None
    decision = mix_decision(plan)
    assert decision.choice == "no: one size"
    (rejected,) = decision.rejected
    assert rejected.option == "clusters of 2 or 4"
    assert 1 / 1.05 - 1 < rejected.margin < 0
    assert "promises no share" in rejected.reason


def test_two_cluster_sizes_are_chosen_where_the_sms_left_over_pay(plan_for, device):
    """An L2 of 0.6 the rate: pairs alone ask it for too much, and clusters of 4 alone leave 16 SMs idle."""
    slow = device("b200", l2_bytes_per_clk_per_sm=0.6 * device("b200").l2_bytes_per_clk_per_sm)
    plan = plan_for(slow, m=8192, n=8192, k=8192)
    c = plan.choice
    assert (c.cluster, c.work.preferred_cluster, c.schedule) == ((2, 1, 1), (4, 1, 1), "static")
    assert c.kernel_id == "sm100_static_2x1x1_or_4x1x1"
    assert c.tile.cluster == (512, 256, 64)
    assert (c.residency.max_active_clusters, c.residency.sms_idle) == (74, 0)
    assert (c.grid_blocks, c.grid_clusters) == (148, 74)
    decision = mix_decision(plan)
    assert decision.choice.startswith("yes: 4 x 1 x 1 preferred")
    (rejected,) = decision.rejected
    assert rejected.margin >= 0.05
    sharing = step(plan, 3).artifact
    masks = {row[0]: row[4] for row in sharing["buffers"]["rows"]}
    fewer = {row[0]: row[4] for row in sharing["buffers_of_smaller_clusters"]["rows"]}
    assert masks["A"] == "none"
    assert "0x0005 for rank 0" in masks["B"]
    assert (fewer["A"], fewer["B"]) == ("none", "none")
    barriers = step(plan, 5).artifact
    arrivals, few = (
        {row[0]: row[3] for row in barriers[name]["rows"]} for name in ("barriers", "barriers_of_smaller_clusters")
    )
    assert (arrivals["empty"], few["empty"]) == (2, 1)
    assert (arrivals["exit"], few["exit"]) == (4 * 256, 2 * 256)
    assert step(plan, 2).artifact["grid_launch"] == [148, 1, 1]
    assert [row[1] for row in step(plan, 9).artifact["ladder"]["rows"]][:3] == [
        "sm100_static_2x1x1_or_4x1x1",
        "sm100_static_2x1x1",
        "sm100_one_tile",
    ]


def test_a_preferred_cluster_can_be_forced(plan_for):
    plan = plan_for("b200", m=8192, n=8192, k=8192, overrides={"preferred_cluster": [4, 1, 1]})
    assert plan.choice.work.preferred_cluster == (4, 1, 1)
    assert plan.choice.cluster == (2, 1, 1)
    assert plan.choice.schedule in ("static", "one_tile")
    assert any("forces the preferred cluster" in each.text for each in mix_decision(plan).because)
    both = plan_for(
        "b200", m=8192, n=8192, k=8192, overrides={"cluster": [4, 1, 1], "preferred_cluster": [4, 4, 1], "mma_ctas": 2}
    )
    assert (both.choice.cluster, both.choice.work.preferred_cluster) == ((4, 1, 1), (4, 4, 1))
    assert both.choice.nonportable


@pytest.mark.parametrize(
    ("target", "overrides", "code"),
    [
        ("b200", {"preferred_cluster": [4, 1, 1], "schedule": "clc"}, "PREFERRED_CLUSTER_CLC"),
        ("b200", {"preferred_cluster": [2, 1, 1]}, "PREFERRED_CLUSTER_SHAPE"),
        ("b200", {"preferred_cluster": [4, 1, 2], "cluster": [2, 1, 2]}, "PREFERRED_CLUSTER_SLICES"),
        ("h200", {"preferred_cluster": [4, 1, 1]}, "PREFERRED_CLUSTER_UNSUPPORTED"),
    ],
)
def test_a_mix_that_no_kernel_has_is_refused_by_name(plan_for, target, overrides, code):
    plan = plan_for(target, m=4096, n=4096, k=4096, overrides=overrides)
    assert plan.verdict == "refuse"
    assert plan.findings[-1].code == code, plan.findings[-1]


@pytest.mark.parametrize(
    ("target", "schedule", "rows"),
    [("b200", "static", 3), ("b200", "one_tile", 2), ("b200", "clc", 8), ("h200", "ticket", 6), ("h200", "static", 3)],
)
def test_every_schedule_says_how_the_next_tile_is_found(plan_for, target, schedule, rows):
    plan = plan_for(target, m=4096, n=4096, k=4096, overrides={"schedule": schedule})
    clc = step(plan, 7)
    assert len(clc.artifact["protocol"]["rows"]) == rows
    assert ("arrivals" in clc.artifact) == (schedule in ("clc", "ticket"))
    assert ("unused_clc_protocol" in clc.artifact) == (target == "b200" and schedule != "clc")
    without = [each for each in step(plan, 6).decisions[0].rejected if each.code == "NO_CLC"]
    assert len(without) == (target == "h200"), "a forced schedule says nothing of what the family has"
    if schedule == "clc":
        arrivals = {row[0]: row for row in clc.artifact["arrivals"]["rows"]}
        assert arrivals["clc_full"][4] == 16
    if target == "h200":
        words = " ".join(each.text for each in clc.decisions[0].because)
        assert ("no Cluster Launch Control" in words) == (schedule != "ticket")


def test_stages_are_a_decision_with_the_other_count_beside_it(plan_for):
    plan = plan_for("h200", m=4096, n=4096, k=4096, overrides={"tile": [64, 64, 64]})
    question = next(each for each in step(plan, 2).decisions if each.question == "How many stages?")
    assert question.choice == str(plan.choice.stages)
    assert question.rejected[0].margin is not None
    large = plan_for("b200", m=4096, n=4096, k=4096)
    refused = next(each for each in step(large, 2).decisions if each.question == "How many stages?").rejected[0]
    assert refused.code == "TMEM_OVER_512"
    assert refused.numbers == {"tensor_memory_columns": 1024, "registers": 2 * 256 * 255}
    assert "1024 of 512 tensor memory columns and 130560 of 65536 registers" in refused.reason


def test_a_choice_of_one_cta_gains_nothing_over_itself(plan_for):
    assert plan_for("h200", m=256, n=256, k=256).steps[0].artifact["gain_over_one_cta"] is None
    assert plan_for("b200", m=8192, n=8192, k=8192).steps[0].artifact["gain_over_one_cta"] > 0


def test_margins_of_skewed_problems_compare_like_with_like(plan_for):
    plan = plan_for("h200", m=8192, n=8192, k=1024, assume={"tile_cost_cv": 0.5, "seed": 7})
    margins = [
        each.margin
        for one in plan.steps
        for decision in one.decisions
        for each in decision.rejected
        if each.margin is not None
    ]
    assert margins
    assert min(margins) >= -0.015
    assert all(each.margin >= -0.015 for each in plan.alternatives)


def test_step_3_says_how_c_comes_in_and_the_ladder_what_it_asks_of_c(plan_for):
    def row(**fields):
        plan = plan_for("b200", m=4096, n=4096, k=4096, epilogue={"beta": 1.0}, **fields)
        table = step(plan, 3).artifact["buffers"]
        found = [dict(zip(table["columns"], each, strict=True)) for each in table["rows"]]
        return next(each for each in found if each["buffer"] == "C"), plan.choice.trigger

    loaded, trigger = row()
    assert loaded["producer"].startswith("TMA")
    assert "c_full" in loaded["fences"]
    assert "A, B, C and D start and step in multiples of 16 bytes" in trigger
    read, trigger = row(c={"align_bytes": 2})
    assert read["consumer"] == "epilogue warps, ordinary loads"
    assert "A, B and D start" in trigger


def test_step_7_counts_the_throttle(plan_for):
    plan = plan_for("b200", m=8192, n=8192, k=1024, overrides={"schedule": "clc"})
    artifact = step(plan, 7).artifact
    assert artifact["protocol"]["rows"][0][0] == "throttle"
    assert {each[0] for each in artifact["arrivals"]["rows"]} == {"clc_full", "clc_empty", "clc_throttle"}
