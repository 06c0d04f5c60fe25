"""Problems at the edges of what a file may say: a verdict that makes sense, and no absurd number in any plan."""

from __future__ import annotations

import itertools
import math

import pytest

from advisor.kinds import workload
from advisor.machine import load_profile
from advisor.problem.gemm import GemmProblem

LARGE = {"m": 4096, "n": 4096, "k": 4096}
INT_MAX = 2**31 - 1
ODD = {
    "one row": {"m": 1, "n": 4096, "k": 4096},
    "one column": {"m": 4096, "n": 1, "k": 4096},
    "one product": {"m": 4096, "n": 4096, "k": 1},
    "no product": {"m": 512, "n": 512, "k": 0},
    "one element": {"m": 1, "n": 1, "k": 1},
    "primes": {"m": 7919, "n": 6089, "k": 4999},
    "most rows": {"m": INT_MAX, "n": 8, "k": 8},
    "most columns": {"m": 8, "n": INT_MAX, "k": 8},
    "deepest": {"m": 8, "n": 8, "k": INT_MAX},
    "odd batch strides": {
        "m": 1000, "n": 1000, "k": 1000, "batch": 3, "a": {"batch_stride": 1000007}, "d": {"batch_stride": 1000003},
    },
    "many batches": {"m": 64, "n": 64, "k": 64, "batch": 100_000},
    "no cluster allowed": {**LARGE, "constraints": {"max_cluster_size": 1}},
    "one SM": {**LARGE, "constraints": {"sm_budget": 1}},
    "wild tiles": {**LARGE, "assume": {"tile_cost_cv": 3.0}},
    "one wild tile": {"m": 1, "n": 1, "k": 1, "assume": {"tile_cost_cv": 3.0}},
}  # fmt: skip
TARGETS = ("b200", "h200", "rtx_pro_6000")
SIGNED = ("margin", "gain", "cost", "numbers", "simulated")  # may be below zero


def numbers_of(value, path=""):
    """Every number of a document, with where it stands."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from numbers_of(each, f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from numbers_of(each, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def check(plan):
    document = plan.model_dump(mode="json")
    for part in ("choices", "steps", "findings", "alternatives"):
        for path, value in numbers_of(document[part], part):
            assert math.isfinite(value), path
            assert value >= 0 or any(word in path for word in SIGNED), (path, value)
    for choice in plan.choices:
        prediction, residency = choice.prediction, choice.residency
        assert 0 < prediction.low_us <= prediction.time_us <= prediction.high_us
        assert prediction.waves > 0
        assert 0 < prediction.last_wave_use <= 1
        assert residency.max_active_clusters > 0
        assert residency.sms_used + residency.sms_idle == load_profile(choice.profile).sms
        assert 0 < choice.grid_clusters * choice.cluster[0] <= INT_MAX
    for step in plan.steps:
        for decision in step.decisions:
            for each in decision.rejected:  # a mix of two cluster sizes, "2 or 4", has to win by 5 %
                least = 1 / 1.05 - 1 if " or " in each.option else -0.015
                assert each.margin is None or each.margin >= least, (decision.question, each.option)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ODD)
def test_an_odd_problem_has_a_plan_without_an_absurd_number(plan_for, name, target):
    plan = plan_for(target, **ODD[name])
    check(plan)
    assert plan.verdict in ("plan", "adjust")
    if name == "no cluster allowed":
        assert all(choice.cluster == (1, 1, 1) for choice in plan.choices)
    if name == "one SM" and plan.choice.family != "portable":
        assert plan.choice.grid_blocks == 1


@pytest.mark.parametrize("target", ["b200", "h200"])
@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_few_free_sms_take_no_cluster_that_does_not_fit(plan_for, codes, target, left):
    sms = load_profile(target).sms
    plan = plan_for(target, **LARGE, shared_gpu={"busy_sms": sms - left})
    check(plan)
    available = plan.steps[3].artifact["available_clusters"]
    assert 1 <= available * plan.choice.residency.derived["cluster_size"] <= max(1, left)
    assert plan.verdict == ("plan" if left else "adjust")
    if not left:
        assert "as if one were left" in codes(plan)["ZERO_ACTIVE_CLUSTERS"].message


def test_a_forced_cluster_that_other_work_leaves_no_room_for_steps_down(plan_for, codes):
    plan = plan_for("h200", **LARGE, shared_gpu={"busy_sms": 131}, overrides={"cluster": [4, 1, 1]})
    assert plan.verdict == "fallback"
    assert plan.choice.cluster == (1, 1, 1)
    assert "other work that holds 131" in codes(plan)["ZERO_ACTIVE_CLUSTERS"].message


OVERRIDES = {
    "kernel": ["sm100", "sm90", "portable"],
    "cluster": [[1, 1, 1], [3, 1, 1], [16, 1, 1], [1, 1, 4], [8, 4, 1]],
    "schedule": ["one_tile", "static", "ticket", "clc"],
    "tile": [[128, 256, 64], [64, 64, 64], [100, 100, 64]],
    "stages": [1, 4, 16],
    "mma_ctas": [1, 2],
    "split_k": [1, 4, 17],
    "swap_ab": [True, False],
}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("names", list(itertools.combinations(OVERRIDES, 2)), ids="-".join)
def test_every_pair_of_overrides_is_planned_or_refused_with_a_clause(plan_for, target, names):
    first, second = names
    for one, other in itertools.product(OVERRIDES[first], OVERRIDES[second]):
        overrides = {first: one, second: other}
        plan = plan_for(target, m=1000, n=3000, k=2000, overrides=overrides)
        check(plan)
        if plan.verdict == "refuse":
            assert plan.findings[-1].severity == "error"
            continue
        choice, profile = plan.choice, load_profile(plan.choice.profile)
        document = {"kind": "gemm", "m": 1000, "n": 3000, "k": 2000, "overrides": overrides}
        assert workload(GemmProblem.model_validate(document)).clauses(choice.candidate(), profile) == []
        if plan.verdict == "plan":
            held = {"split_k": choice.work.split_k, "stages": choice.stages, "schedule": choice.schedule}
            assert all(held[name] == value for name, value in overrides.items() if name in held), overrides


TYPES = {"bf16": ("bf16", "fp32"), "fp16": ("fp16", "fp32"), "tf32": ("fp32",), "e4m3": ("bf16", "fp32")}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_layout_of_every_type_has_a_plan(plan_for, target, dtype):
    for a, b, d, out in itertools.product("km", "kn", "nm", TYPES[dtype]):
        plan = plan_for(
            target,
            m=512,
            n=1000,
            k=1024,
            dtype=dtype,
            a={"major": a},
            b={"major": b},
            d={"major": d, "dtype": out},
            epilogue={"beta": 1.0, "bias": "row", "activation": "gelu"},
        )
        check(plan)
        assert plan.verdict in ("plan", "adjust")


@pytest.mark.parametrize(("kernel", "target"), [("sm100", "b200"), ("sm90", "b200"), ("sm90", "h200")])
@pytest.mark.parametrize("more", [{}, {"tile": [64, 64, 64]}])
def test_a_kernel_that_is_named_and_cannot_take_the_operands_is_refused_by_name(plan_for, kernel, target, more):
    unaligned = {"m": 512, "n": 500, "k": 1001, "dtype": "bf16"}
    plan = plan_for(target, **unaligned, overrides={"kernel": kernel, **more})
    assert plan.verdict == "refuse"
    assert f"kernel: {kernel} is forced and refused: operand A" in plan.conclusion
    assert plan.findings[-1].code == "TMA_STRIDE_16B"
    assert plan_for(target, **unaligned, overrides={"kernel": "portable"}).choice.family == "portable"
    assert plan_for(target, **unaligned).verdict == "adjust"


@pytest.mark.parametrize("tile", [[256, 128, 32], [256, 256, 64], [512, 512, 64], [8, 8, 32]])
@pytest.mark.parametrize("target", ["b200", "h200", "rtx_pro_6000"])
@pytest.mark.parametrize("more", [{"kernel": "portable"}, {}], ids=["named", "misaligned"])
def test_a_tile_whose_accumulators_fit_no_portable_kernel_is_refused(plan_for, target, tile, more):
    """256 x 256 floats are more shared memory than any number of stages takes: the deepest ring divided by 0."""
    plan = plan_for(target, m=1000, n=1000, k=1001, overrides={"tile": tile, **more})
    assert plan.verdict == "refuse"
    assert plan.findings[-1].severity == "error"


@pytest.mark.parametrize("mma_ctas", [None, 1, 2])
def test_a_tile_that_no_mma_has_is_refused_with_the_rule_of_both_forms(plan_for, mma_ctas):
    overrides = {"tile": [128, 250, 64]} | ({} if mma_ctas is None else {"mma_ctas": mma_ctas})
    plan = plan_for("b200", m=512, n=512, k=512, dtype="bf16", overrides=overrides)
    assert plan.verdict == "refuse"
    assert "in steps of 8 for one CTA, 16 to 256 in steps of 16 for a pair" in plan.conclusion
