"""Situations from the field, each handled as its kind and kept here with a value."""

from __future__ import annotations

import math

import pytest

SHAPE = {"m": 4096, "n": 4096, "k": 4096}


def test_every_kernel_with_a_cluster_ends_with_a_cluster_barrier(plan_for, codes):
    plan = plan_for("b300", m=8192, n=7168, k=7168)
    assert plan.choice.cluster != (1, 1, 1)
    assert "EXIT_CLUSTER_BARRIER" in codes(plan)
    meet = [each for each in plan.steps[4].decisions if each.question.startswith("When do CTAs")]
    assert "before every exit" in meet[0].choice


def test_zero_active_clusters_is_an_answer_and_steps_down(plan_for, codes):
    def oracle(key, profile):
        return (0, {"device": "made up"}) if key.cluster_size == 16 and profile.name == "h200" else None

    plan = plan_for("h200", **SHAPE, overrides={"cluster": [16, 1, 1]}, occupancy=oracle)
    assert plan.verdict == "fallback"
    assert plan.choice.cluster == (8, 1, 1)
    step = codes(plan)["ZERO_ACTIVE_CLUSTERS"]
    assert step.numbers["step"] == [16, 8]
    assert step.numbers["max_active_clusters"] == 0


def test_the_chain_of_cluster_sizes_goes_on_until_one_is_resident(plan_for):
    plan = plan_for(
        "h200",
        **SHAPE,
        overrides={"cluster": [16, 1, 1]},
        occupancy=lambda key, _: (0, {}) if key.cluster_size > 2 else None,
    )
    assert plan.choice.cluster == (2, 1, 1)
    steps = [each.numbers["step"] for each in plan.findings if each.code == "ZERO_ACTIVE_CLUSTERS"]
    assert steps == [[16, 8], [8, 4], [4, 2]]


def test_an_answer_of_the_oracle_stands_over_the_formula(plan_for):
    def oracle(key, profile):
        return (60, {"device": "made up"}) if key.cluster == (2, 1, 1) else None

    plan = plan_for("h200", **SHAPE, overrides={"cluster": [2, 1, 1], "schedule": "static"}, occupancy=oracle)
    assert plan.choice.residency.max_active_clusters == 60
    assert plan.choice.residency.derived["max_active_clusters"] == 66
    assert plan.choice.residency.queried == {"max_active_clusters": 60, "device": "made up"}
    assert plan.choice.grid_clusters == 60


@pytest.mark.parametrize(
    ("operand", "document", "stride", "pad"),
    [
        ("A", {"m": 128, "n": 128, "k": 129, "b": {"ld": 136}}, 258, 272),
        ("B", {"m": 512, "n": 512, "k": 16840, "dtype": "e4m3", "a": {"ld": 16848}}, 16840, 16848),
    ],
)
def test_a_misaligned_operand_goes_down_the_ladder_with_the_pad_that_mends_it(
    plan_for, codes, operand, document, stride, pad
):
    plan = plan_for("h200", **document)
    assert plan.verdict == "adjust"
    assert plan.choice.family == "portable"
    finding = codes(plan)["TMA_STRIDE_16B"]
    assert finding.numbers["operand"] == operand
    assert finding.numbers["stride_bytes"] == stride
    assert finding.numbers["pad_to_bytes"] == pad


def test_a_misaligned_base_is_named(plan_for, codes):
    plan = plan_for("b200", m=128, n=128, k=128, a={"align_bytes": 2})
    assert plan.choice.family == "portable"
    assert codes(plan)["TMA_BASE_16B"].numbers["align_bytes"] == 2


@pytest.mark.parametrize("target", ["b200", "h200"])
def test_a_misaligned_output_is_stored_directly_and_the_kernel_stays(plan_for, codes, target):
    plan = plan_for(target, m=1638, n=6144, k=3584, dtype="fp16", d={"major": "m"})
    assert plan.choice.family != "portable"
    assert plan.verdict == "adjust"
    finding = codes(plan)["TMA_STRIDE_16B"]
    assert finding.numbers["operand"] == "D"
    assert finding.numbers["stride_bytes"] == 3276
    assert "directly" in finding.message


def test_extents_need_no_alignment_where_the_strides_have_it(plan_for, codes):
    plan = plan_for("h200", m=1001, n=1001, k=1001, a={"ld": 1008}, b={"ld": 1008}, d={"ld": 1008})
    assert plan.verdict == "plan"
    assert "TMA_STRIDE_16B" not in codes(plan)


def test_sm120_is_mma_sync_within_99_kilobytes(plan_for, codes):
    plan = plan_for("rtx_pro_6000", **SHAPE, overrides={"mma_ctas": 2})
    assert plan.verdict == "fallback"
    assert "NO_TCGEN05" in codes(plan)
    assert [choice.family for choice in plan.choices] == ["portable"]
    assert plan.choice.work.mma_ctas == 1
    assert plan.choice.tmem_columns == 0
    assert plan.choice.smem_bytes <= 101376


def test_b300_is_planned_for_its_own_exact_target(plan_for):
    plan = plan_for("b300", **SHAPE)
    assert plan.target.arch == "sm_103a"
    assert [choice.family for choice in plan.choices] == ["sm100", "sm90", "portable"]


def test_clusters_of_eight_on_h100_use_120_ctas_and_leave_12_sms_idle(plan_for, codes):
    plan = plan_for("h100", **SHAPE, overrides={"cluster": [4, 2, 1], "schedule": "static", "tile": [128, 128, 64]})
    assert plan.verdict == "plan"
    assert plan.choice.grid_blocks == 120
    finding = codes(plan)["CLUSTER_OCCUPANCY"]
    assert finding.numbers["grid_ctas"] == 120
    assert finding.numbers["sms_idle"] == 12
    assert finding.numbers["idle_at_2"] == 0
    assert codes(plan)["OVERRIDE_COST"].numbers["free_cluster"] == [1, 1, 1]


@pytest.mark.parametrize("m", [128, 640, 2048, 5000])
def test_the_raster_permutes_whole_clusters(plan_for, m):
    plan = plan_for("b200", m=m, n=2048, k=2048, dtype="fp16")
    for choice in plan.choices:
        clusters_m = math.ceil(m / (choice.tile.cta[0] * choice.cluster[0]))
        assert choice.work.raster.group >= 1
        if choice.schedule == "one_tile" and not choice.work.swap_ab:
            assert choice.grid_clusters % clusters_m == 0
    assert "whole clusters" in plan.steps[1].artifact["raster"]


def test_a_pair_inside_a_larger_cluster_counts_two_ctas_of_bytes(plan_for):
    plan = plan_for("b200", **SHAPE, overrides={"cluster": [2, 2, 1], "mma_ctas": 2, "tile": [128, 256, 64]})
    rows = {row[0]: row for row in plan.steps[4].artifact["barriers"]["rows"]}
    assert rows["full"][5] == 2 * (128 * 128 + 128 * 128)
    texts = " ".join(reason.text for each in plan.steps[4].decisions for reason in each.because)
    assert "3 << (rank & ~1)" in texts


@pytest.mark.parametrize("cluster", [[1, 2, 1], [3, 1, 1]])
def test_a_pair_in_a_cluster_of_odd_x_is_refused(plan_for, cluster):
    plan = plan_for("b200", **SHAPE, overrides={"cluster": cluster, "mma_ctas": 2})
    assert plan.verdict == "refuse"
    assert plan.findings[-1].code == "PAIR_IN_CLUSTER"
    assert plan.findings[-1].numbers["cluster"] == cluster


def test_a_cluster_above_the_constraint_is_refused_though_the_machine_has_it(plan_for):
    plan = plan_for("b200", **SHAPE, constraints={"max_cluster_size": 8}, overrides={"cluster": [16, 1, 1]})
    assert plan.verdict == "refuse"
    assert plan.findings[-1].code == "CLUSTER_OVER_CONSTRAINT"


def test_a_device_whose_largest_cluster_is_eight_steps_down(plan_for, device, codes):
    thor_like = device("h200", max_cluster_size=8)
    plan = plan_for(thor_like, **SHAPE, overrides={"cluster": [16, 1, 1]})
    assert plan.verdict == "fallback"
    assert plan.choice.cluster == (8, 1, 1)
    assert codes(plan)["MAX_CLUSTER_8"].numbers["step"] == [16, 8]


def test_both_units_of_the_grid_are_always_there(plan_for):
    for choice in plan_for("b200", m=8192, n=8192, k=8192).choices:
        x, y, z = choice.cluster
        assert choice.grid_blocks == choice.grid_clusters * x * y * z
    artifact = plan_for("b200", m=8192, n=8192, k=8192).steps[1].artifact
    assert artifact["grid_blocks"] == artifact["grid_clusters"] * 2


def test_tensor_memory_is_a_power_of_two_within_512_columns(plan_for):
    for n in (8, 96, 200, 4096):
        columns = plan_for("b200", m=4096, n=n, k=1024).choice.tmem_columns
        assert 32 <= columns <= 512
        assert columns & (columns - 1) == 0


def test_a_tile_wider_than_a_tensor_map_box_or_an_mma_is_refused_with_its_clause(plan_for):
    plan = plan_for("h100", **SHAPE, overrides={"tile": [128, 512, 64]})
    assert plan.verdict == "refuse"
    assert "512" in plan.findings[-1].message


def test_operands_are_swapped_for_small_m_alone(plan_for):
    swapped = {
        m: plan_for("h200", m=m, n=34816, k=5120, dtype="bf16").choice.work.swap_ab for m in (1, 16, 129, 1023, 8190)
    }
    assert swapped[16]
    assert not any(swapped[m] for m in (1023, 8190))
    assert plan_for("b200", m=16, n=4096, k=4096).choice.work.swap_ab


@pytest.mark.parametrize("m", [96, 1023, 1026])
def test_alignment_alone_is_no_reason_to_swap(plan_for, m):
    plan = plan_for("h200", m=m, n=34816, k=5120)
    swap = next(each for each in plan.steps[1].decisions if each.question.startswith("Swap"))
    assert swap.choice == "no" or m <= 128


def test_schedule_of_uniform_work(plan_for):
    assert plan_for("b200", m=8192, n=8192, k=8192).choice.schedule in ("static", "clc")
    assert plan_for("b200", m=256, n=256, k=256).choice.schedule == "one_tile"
    assert plan_for("h200", m=4096, n=4096, k=4096).choice.schedule == "static"


def test_a_large_number_of_clusters_lies_along_grid_x(plan_for):
    plan = plan_for("b300", m=8_400_000, n=128, k=128)
    x, y, z = plan.steps[1].artifact["grid_launch"]
    assert y * z <= 65535
    assert x < 2**31


def test_planning_needs_no_gpu_and_marks_its_estimates(plan_for, codes):
    plan = plan_for("h200", **SHAPE)
    assert plan.verdict == "plan"
    assert plan.target.source == "profile"
    assert plan.choice.residency.queried is None
    assert codes(plan)["NO_DEVICE"].severity == "info"
    assert any("formula" in each for each in plan.not_verified)


def test_clc_forced_on_hopper_is_refused(plan_for):
    plan = plan_for("h200", **SHAPE, overrides={"schedule": "clc"})
    assert plan.verdict == "refuse"
    assert plan.findings[-1].code == "NO_CLC"


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("dtype", ["tf32", "e4m3"])
def test_mn_major_operands_that_wgmma_cannot_read_go_to_portable(plan_for, codes, operand, dtype):
    major = "m" if operand == "a" else "n"
    plan = plan_for("h200", m=1024, n=1024, k=1024, dtype=dtype, **{operand: {"major": major}})
    assert plan.verdict == "adjust"
    assert plan.choice.family == "portable"
    assert codes(plan)["WGMMA_MN_MAJOR"].numbers["operand"] == operand.upper()


def test_more_stages_than_shared_memory_holds_is_refused_with_numbers(plan_for):
    plan = plan_for("h200", **SHAPE, overrides={"stages": 8, "tile": [128, 256, 64]})
    assert plan.verdict == "refuse"
    finding = plan.findings[-1]
    assert finding.code == "SMEM_OVER_LIMIT"
    assert finding.numbers["smem_bytes"] > finding.numbers["limit_bytes"] == 232448


def test_an_override_goes_down_with_the_operands_where_the_next_family_honours_it(plan_for):
    misaligned = {"m": 512, "n": 512, "k": 513}
    served = plan_for("h200", **misaligned, overrides={"tile": [64, 64, 64]})
    assert (served.verdict, served.choice.family, served.choice.tile.cta) == ("adjust", "portable", (64, 64, 64))
    refused = plan_for("h200", **misaligned, overrides={"cluster": [2, 1, 1]})
    assert (refused.verdict, refused.findings[-1].code) == ("refuse", "TMA_STRIDE_16B")
