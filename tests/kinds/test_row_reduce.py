"""The kind `row_reduce`: what is kept where, which cluster, what a plan says, what a bound allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.bundle import evaluate
from advisor.codegen import templates
from advisor.kinds import workload
from advisor.kinds.row_reduce import kernels, numerics, space, words
from advisor.machine import load_profile, profile_names
from advisor.machine.features import Feature, compute_capability, loadable, supports
from advisor.machine.profile import DeviceProfile
from advisor.planner import plan
from advisor.problem.row_reduce import RowReduceProblem
from advisor.records.candidate import Candidate
from advisor.records.plan import Plan
from advisor.records.twins import twins
from advisor.toolchain import Unit, broken_promises, compile_cuda
from tests.kinds import torch_rows

H200 = load_profile("h200")
B200 = load_profile("b200")


def problem(op: str = "softmax", rows: int = 2048, cols: int = 131072, **changes: Any) -> RowReduceProblem:
    return RowReduceProblem.model_validate(
        {"kind": "row_reduce", "name": "sample", "op": op, "rows": rows, "cols": cols} | changes
    )


def planned(p: RowReduceProblem, target: DeviceProfile = H200) -> Plan:
    profiles = {"sm100": B200, "sm90": H200, "portable": target}
    return plan(
        workload(p),
        target,
        target_name=target.name,
        target_source="profile",
        rung_profiles=profiles,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("cols", "dtype", "least"),
    [(8192, "bf16", 1), (65536, "bf16", 1), (131072, "bf16", 2), (524288, "bf16", 8), (1048576, "bf16", 16),
     (1048576, "fp32", None), (114688, "bf16", 1), (114696, "bf16", 2), (1835008, "bf16", 16),
     (1835016, "bf16", None)],
)  # fmt: skip
def test_the_smallest_cluster_that_keeps_a_row(cols: int, dtype: str, least: int | None) -> None:
    p = problem(cols=cols, dtype=dtype)
    assert words.least_cluster(p, H200) == least
    found = [c for c in space.candidates(p, "sm90") if kernels.work_of(c).vectors]
    legal = [c.cluster_size for c in found if space.evaluate(p, c, H200)[0].violation is None]
    assert min(legal, default=None) == least


def said(found: Plan, step: int) -> list[str]:
    return [each.text for part in found.steps[step - 1].decisions for each in part.because]


def test_what_keeps_a_row_is_the_shared_memory_of_the_target() -> None:
    """200 KB fit one CTA of an H200, and three or more of an RTX PRO 6000, of 99 KB each."""
    least = {"h200": "1 CTA, 195.3 KiB each", "rtx_pro_6000": "4 CTAs, 48.83 KiB each"}
    for name, words_of_it in least.items():
        assert any(words_of_it in each for each in said(planned(problem(cols=100_000), load_profile(name)), 2))


def test_what_eight_ctas_would_keep_is_said_where_sixteen_keep_it() -> None:
    """Of rows that are streamed it says nothing; and 2 KiB would not have filled an SM."""
    sixteen: dict[str, Any] = {"overrides": {"cluster": [16, 1, 1]}}
    streamed = planned(problem(cols=8192, **sixteen))
    assert streamed.choice is not None
    assert streamed.choice.candidate().work.vectors == 0
    assert not any("8 CTAs" in each for each in said(streamed, 2))
    kept = said(planned(problem(cols=524288, **sixteen)), 2)
    assert "8 CTAs would keep 128 KiB each, 1 CTA to an SM by shared memory" in kept


def test_what_a_cluster_gains_where_rows_are_few_is_the_sms_that_they_would_leave() -> None:
    gained = said(planned(problem("sum", 4, 1048576)), 1)
    assert any("4 single CTAs would leave 128 of 132 SMs without a row; 16 CTAs share" in each for each in gained)
    assert not any("fit on an SM" in each for each in gained)


@pytest.mark.parametrize("target", [H200, B200])
def test_one_cta_is_best_where_its_row_is_short(target: DeviceProfile) -> None:
    for op in ("softmax", "layernorm", "sum"):
        choice = planned(problem(op, 8192, 8192), target).choice
        assert choice is not None
        assert choice.cluster == (1, 1, 1)


@pytest.mark.parametrize("target", [H200, B200])
@pytest.mark.parametrize("op", ["softmax", "rmsnorm", "sum"])
def test_the_first_row_of_a_cta_waits_for_memory_under_every_schedule(op: str, target: DeviceProfile) -> None:
    """With one row to a CTA nothing comes in ahead: a persistent loop saves nothing, and reading twice saves less."""
    p = problem(op, 64, 4096)
    search = workload(p).explore(target, "sm90", forced=False)
    for number, row in enumerate(search.rows):  # type: ignore[attr-defined]
        if row.violation is None:
            assert search.time_us[number] > target.launch_us + space.START_US
    if p.elementwise:
        choice = planned(problem(op, 64, 4096), target).choice
        assert choice is not None
        assert choice.candidate().work.vectors > 0


@pytest.mark.parametrize("target", [H200, B200])
def test_a_row_that_one_cta_cannot_keep_takes_a_cluster(target: DeviceProfile) -> None:
    choice = planned(problem(), target).choice
    assert choice is not None
    assert choice.cluster[0] > 1
    assert choice.candidate().work.vectors > 0


def test_sixteen_keep_what_eight_cannot_and_the_plan_says_why() -> None:
    found = planned(problem(rows=256, cols=1048576))
    assert found.choice is not None
    assert (found.choice.cluster, found.choice.nonportable) == ((16, 1, 1), True)
    reasons = [reason.text for step in found.steps for each in step.decisions for reason in each.because]
    assert any("8 CTAs, the largest portable cluster, would have to keep 256 KiB each" in each for each in reasons)
    assert "NONPORTABLE_ATTR" in {each.code for each in found.findings}


def test_without_sixteen_the_row_is_streamed_and_the_plan_says_what_that_costs() -> None:
    found = planned(problem(rows=256, cols=1048576, constraints={"max_cluster_size": 8}))
    assert found.choice is not None
    assert found.choice.cluster[0] <= 8
    assert found.choice.candidate().work.vectors == 0
    step = next(each for each in found.steps if each.step == 2)
    assert "streamed twice" in step.decisions[0].choice
    assert any("from DRAM again" in each.text for each in step.decisions[0].because)


def test_float32_rows_of_a_million_columns_fit_no_cluster_and_are_streamed() -> None:
    choice = planned(problem(rows=64, cols=1048576, dtype="fp32")).choice
    assert choice is not None
    assert choice.candidate().work.vectors == 0


def test_a_plan_reads_back_to_its_candidate_and_its_kernels_have_its_names() -> None:
    for cols in (100, 8192, 131072, 1048576):
        p = problem(cols=cols, rows=256)
        for choice in planned(p, B200).choices:
            c = choice.candidate()
            assert Plan.model_validate_json(planned(p, B200).model_dump_json()).choices[0].candidate() is not None
            (spec,) = kernels.kernels(p, c)
            assert spec.kernel.id == choice.kernel_id == c.kernel_id


def test_a_misaligned_row_goes_down_the_ladder_with_the_pad_that_mends_it() -> None:
    found = planned(problem(cols=1001, row_stride=1001))
    assert found.verdict == "adjust"
    assert [each.family for each in found.choices] == ["portable"]
    finding = next(each for each in found.findings if each.code == "ROW_STRIDE_16B")
    assert finding.numbers["pad_to"] == 1008


def test_columns_that_misalign_the_packed_result_have_no_pad() -> None:
    found = planned(problem(cols=1001, row_stride=1008))
    finding = next(each for each in found.findings if each.code == "ROW_STRIDE_16B")
    assert "only more columns mend it: cols of 1008" in finding.message
    assert "pad it" not in finding.message


def test_what_is_forced_is_honoured_or_refused_with_the_clause() -> None:
    forced = planned(problem(overrides={"cluster": [8, 1, 1], "schedule": "static"})).choice
    assert forced is not None
    assert (forced.cluster, forced.schedule) == ((8, 1, 1), "static")
    refused = planned(problem(constraints={"max_cluster_size": 4}, overrides={"cluster": [8, 1, 1]}))
    assert refused.verdict == "refuse"
    assert "CLUSTER_OVER_CONSTRAINT" in {each.code for each in refused.findings}


@pytest.mark.parametrize("busy", [147, 148])
def test_a_cluster_that_fits_nowhere_beside_other_work_steps_down_to_one_cta(busy: int) -> None:
    """One SM is free: a cluster of 16 on it was priced as if it ran there."""
    shared = {"busy_sms": busy}
    picked = planned(problem(shared_gpu=shared), B200).choice
    assert picked is not None
    assert picked.cluster == (1, 1, 1)
    forced = planned(problem(shared_gpu=shared, overrides={"cluster": [16, 1, 1]}), B200)
    assert forced.verdict == "fallback"
    said = [each.message for each in forced.findings if each.code == "ZERO_ACTIVE_CLUSTERS"]
    assert sum(f"holds {busy} of 148 SMs" in each for each in said) == 4  # of 16, 8, 4 and 2


@pytest.mark.parametrize("stages", [9, 10, 12, 18])
def test_slots_that_are_forced_hold_what_is_read_early(stages: int) -> None:
    """A row of 9 vectors a thread with 9 slots has none for the next row: the kernel would not have compiled."""
    found = planned(
        problem("log_softmax", 3000, 70000, dtype="fp32", overrides={"cluster": [2, 1, 1], "stages": stages}), B200
    )
    assert found.choice is not None
    c = found.choice.candidate()
    assert (c.stages, kernels.violations(problem("log_softmax", 3000, 70000, dtype="fp32"), c)) == (stages, [])
    assert c.work.early <= max(0, stages - c.work.vectors)
    if c.work.vectors:
        early = replace(c, work=replace(c.work, early=stages - c.work.vectors + c.work.batch))
        assert "ROW_SLOTS" in {each.code for each in kernels.violations(problem(cols=70000), early)}


@pytest.mark.parametrize("budget", [1, 16, 131, 132, 200, None])
@pytest.mark.parametrize(("op", "cols"), [("softmax", 8192), ("softmax", 131072), ("sum", 1048576)])
def test_the_grid_of_a_plan_is_the_one_that_is_launched(op: str, cols: int, budget: int | None) -> None:
    """Within a budget of SMs it was that of the whole GPU."""
    p = problem(op, 4096, cols, constraints={"sm_budget": budget})
    choice = planned(p).choice
    assert choice is not None
    (spec,) = kernels.kernels(p, choice.candidate())
    names = {"rows": p.rows, "cols": cols, "num_sms": 132, "sm_budget": min(budget or 132, 132)}
    names["max_active_clusters"] = choice.residency.max_active_clusters
    assert choice.grid_blocks == evaluate(spec.kernel.grid_blocks[0], names)
    assert budget is None or budget >= 132 or choice.grid_blocks <= budget


def test_rows_of_uneven_cost_are_claimed_where_the_simulation_says_so() -> None:
    found = planned(problem(assume={"tile_cost_cv": 0.5}), B200)
    assert found.choice is not None
    assert (found.choice.family, found.choice.schedule, found.choice.cluster) == ("sm100", "clc", (8, 1, 1))
    schedule, claim = (next(each for each in found.steps if each.step == number) for number in (6, 7))
    total = schedule.artifact["simulated"]["columns"].index("total_us")
    times = {row[0]: row[total] for row in schedule.artifact["simulated"]["rows"]}
    assert times["clc"] < times["static"] / 1.015
    assert times["clc"] < times["one_tile"] / 1.015
    assert [row[0] for row in claim.artifact["arrivals"]["rows"]] == ["clc_full", "clc_empty"]
    assert claim.artifact["throttle_tiles"] == 3
    protocol = {row[0]: row for row in claim.artifact["protocol"]["rows"]}
    assert protocol.keys() == {"arm", "request", "wait", "read", "decode", "release", "stop"}
    assert "warp 0 of CTA 0" in protocol["request"][1]
    assert {each.code for each in found.findings} >= {"CLC_UNVALIDATED_ON_DEVICE"}
    even = planned(problem(), B200).choice
    assert even is not None
    assert even.schedule == "static"
    unused = next(each for each in planned(problem(), B200).steps if each.step == 7).artifact["unused_clc_protocol"]
    assert unused["rows"] == claim.artifact["protocol"]["rows"]


@pytest.mark.parametrize(
    ("target", "changes", "code", "words"),
    [
        (H200, {}, "NO_CLC", "one_tile and static run there"),
        (B200, {"constraints": {"sm_budget": 64}}, "SM_BUDGET_SCHEDULE", "schedule: static keeps to it"),
        (B200, {"overrides": {"schedule": "clc", "kernel": "portable"}}, "ROW_SCHEDULE", "only sm100"),
    ],
)
def test_claims_that_no_kernel_makes_are_refused_with_the_way_out(
    target: DeviceProfile, changes: dict[str, Any], code: str, words: str
) -> None:
    found = planned(problem(**{"overrides": {"schedule": "clc"}, **changes}), target)
    assert found.verdict == "refuse"
    assert found.findings[-1].code == code
    assert words in found.findings[-1].message


def test_a_forced_claim_is_launched_over_all_rows_with_a_static_twin_beside_it() -> None:
    p = problem(overrides={"schedule": "clc"})
    found = planned(p, B200)
    assert [each.schedule for each in found.choices if each.family == "sm100"] == ["clc"]
    (spec,) = kernels.kernels(p, found.choices[0].candidate())
    assert spec.kernel.grid_blocks == ("ceil_div(rows, 1) * 8 * min(cols, 1)", 1, 1)
    assert all(supports(Feature.CLC_MULTICAST, each) for each in spec.kernel.images)
    ladder = next(each for each in found.steps if each.step == 9).artifact["ladder"]
    assert [row[1] for row in ladder["rows"]][:3] == [
        "sm100_clc_8x1x1",
        "sm100_static_8x1x1",
        "sm100_clc_4x1x1_streamed",
    ]


@pytest.mark.parametrize(("out_dtype", "affine"), [("bf16", True), ("fp32", False)])
def test_what_streams_claimed_rows_has_the_registers_that_it_takes(out_dtype: str, affine: bool) -> None:
    """A layernorm of float32 takes the most: with 64 registers a thread these two spilled."""
    types = {"dtype": "fp32", "out_dtype": out_dtype, "weight": affine, "bias": affine}
    p = problem("layernorm", cols=65536, overrides={"schedule": "clc"}, **types)
    found = [each.candidate() for each in planned(p, B200).choices if each.family == "sm100"]
    found += [c for c in space.candidates(p, "sm100") if (c.schedule, c.cluster_size, c.threads) == ("clc", 2, 512)]
    streamed = [c for c in found if c.schedule == "clc" and not c.work.vectors]
    assert streamed
    for c in streamed:
        assert_promises_hold(p, c, "sm_100a")


def assert_promises_hold(p: RowReduceProblem, c: Candidate, target: str) -> None:
    (spec,) = kernels.kernels(p, c)
    source = templates.render(spec.template, **spec.context)
    unit = Unit(spec.kernel.source, source, templates.headers_for(source), target, spec.kernel.defines)
    assert broken_promises(compile_cuda(unit), spec.kernel) == [], c


@pytest.mark.parametrize(("dtype", "cols"), [("fp32", 1024), ("bf16", 32768)])
def test_a_norm_of_24_bits_with_weights_beside_it_does_not_spill(dtype: str, cols: int) -> None:
    """It is finished in float64 while weights that were fetched ahead wait in registers: on sm_100a these spilled."""
    p = problem("layernorm", 4096, cols, dtype=dtype, out_dtype="fp32", weight=True, bias=True)
    kept = [c for c in space.candidates(p, "sm100") if (c.schedule, c.cluster_size) == ("one_tile", 1)]
    assert any(c.work.vectors == 8 for c in kept)
    for c in kept:
        assert_promises_hold(p, c, "sm_100a")


PAIRS = [("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "fp32"), ("bf16", "fp32"), ("fp32", "bf16")]
SPILLED = [("softmax", "fp16", "fp16"), ("softmax", "bf16", "fp32"), ("log_softmax", "bf16", "fp32")]


def assert_pick_holds(op: str, dtype: str, out_dtype: str, cols: int) -> None:
    affine = {"weight": op in ("layernorm", "rmsnorm"), "bias": op == "layernorm"}
    p = problem(op, 128, cols, dtype=dtype, out_dtype=out_dtype, **affine)
    (pick,) = [each.candidate() for each in planned(p, H200).choices[:1]]
    assert pick.family == "sm90"
    assert_promises_hold(p, pick, "sm_90a")


@pytest.mark.parametrize(("op", "dtype", "out_dtype"), [*SPILLED, ("layernorm", "bf16", "fp32")])
def test_the_pick_for_few_long_rows_does_not_spill(op: str, dtype: str, out_dtype: str) -> None:
    """Of 128 rows other kernels are the fastest than of many: these spilled."""
    assert_pick_holds(op, dtype, out_dtype, 131072)


@pytest.mark.parametrize(
    ("op", "dtype", "rows", "cols", "target"),
    [
        ("softmax", "bf16", 128, 131072, H200),
        ("log_softmax", "bf16", 128, 131072, H200),
        ("softmax", "fp16", 64, 131072, H200),
        ("rmsnorm", "bf16", 128, 131072, B200),
        ("layernorm", "fp16", 1000, 32768, H200),
    ],
)
def test_twins_of_a_pick_for_one_row_do_not_spill_either(
    op: str, dtype: str, rows: int, cols: int, target: DeviceProfile
) -> None:
    """The loop of a twin takes more registers than one row: with 64 or 72 a thread these spilled."""
    affine = {"weight": op in ("layernorm", "rmsnorm"), "bias": op == "layernorm"}
    p = problem(op, rows, cols, dtype=dtype, out_dtype="fp32", **affine)
    found = [twin.candidate for each in planned(p, target).choices for twin in twins(each.candidate())]
    looped = [c for c in found if c.schedule in ("static", "clc") and c.work.vectors and c.family != "portable"]
    assert looped
    for c in looped:
        assert_promises_hold(p, c, {"sm90": "sm_90a", "sm100": "sm_100a"}[c.family])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_many_short_rows_side_by_side_do_not_spill(dtype: str) -> None:
    """A warp with 8 vectors of a row: these spilled with 32 registers a thread."""
    p = problem("logsumexp", 67108, 2000, dtype=dtype)
    pick = planned(p, H200).choices[0].candidate()
    assert (pick.work.row_threads, pick.work.vectors) == (32, 8)
    assert_promises_hold(p, pick, "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
@pytest.mark.parametrize("op", ["softmax", "log_softmax", "layernorm", "rmsnorm", "logsumexp"])
def test_no_pick_for_few_rows_spills(op: str, dtype: str, out_dtype: str) -> None:
    for cols in (3000, 20_000, 50_000, 250_000):
        assert_pick_holds(op, dtype, out_dtype, cols)


@pytest.mark.parametrize("name", profile_names())
def test_what_is_planned_for_a_gpu_has_an_image_that_loads_there(name: str) -> None:
    target = load_profile(name)
    choice = planned(problem(), target).choice
    assert choice is not None
    (spec,) = kernels.kernels(problem(), choice.candidate())
    assert any(loadable(each, compute_capability(target.arch)) for each in spec.kernel.images)


@pytest.mark.parametrize(("rows", "cols", "op"), [(0, 64, "sum"), (4, 0, "softmax")])
def test_nothing_to_write_is_no_launch(rows: int, cols: int, op: str) -> None:
    assert planned(problem(op, rows, cols)).verdict == "noop"


def test_rows_without_columns_still_have_a_sum() -> None:
    found = planned(problem("sum", 4, 0))
    assert found.choice is not None


def test_every_candidate_keeps_its_row_and_its_shared_memory() -> None:
    for op in ("softmax", "layernorm", "sum"):
        for cols in (8, 304, 1024, 5000, 32768, 131072, 1048576):
            p = problem(op, 64, cols)
            legal = workload(p).candidates(H200, "sm90")
            assert legal
            for c in legal:
                assert kernels.resources(c).dynamic_smem_bytes <= kernels.SMEM_BYTES["sm90"]
                assert not c.work.vectors or kernels.capacity(p, c) >= cols
                assert c.tile[1] * c.cluster_size >= cols


def test_barriers_lie_at_the_end_of_shared_memory_whatever_stays_before_them() -> None:
    found = space.candidates(problem("rmsnorm", 2048, 131072, weight=True), "sm100")
    for c in found:
        mbarriers = sorted(at for places in kernels.layout(c).mbarriers.values() for at in places)
        assert mbarriers[-1:] == ([kernels.smem_bytes(c) - 8] if mbarriers else []), c
    assert any(kernels.weight_bytes(c) and kernels.layout(c).mbarriers for c in found)


@pytest.mark.parametrize(("op", "said"), [("logsumexp", True), ("sum", True), ("max", True), ("softmax", False)])
def test_a_schedule_of_streamed_rows_that_is_not_weighed_is_said(op: str, said: bool) -> None:
    p = problem(op)
    streamed = {c.schedule for c in space.candidates(p, "sm90") if space.form(c) == "streamed"}
    found = planned(p)
    texts = [reason.text for step in found.steps for each in step.decisions for reason in each.because]
    assert streamed == {"static"}
    assert any("(one_tile) is not weighed" in text for text in texts) is said


def test_the_cost_is_no_less_than_the_bytes_over_the_bandwidth() -> None:
    p = problem()
    for c in workload(p).candidates(H200, "sm90"):
        row, _ = space.evaluate(p, c, H200)
        assert row.timing.time_us >= row.timing.dram_us
        assert (
            row.timing.dram_us >= (space.read_bytes(p) + space.written_bytes(p)) / H200.dram_bytes_per_s * 1e6 * 0.999
        )


@pytest.mark.parametrize("op", torch_rows.OPS)
def test_the_reference_is_torchs_and_the_bound_notices_a_wrong_element(op: str) -> None:
    p = torch_rows.reference_problem(op)
    case = numerics.own_case(p)
    inputs = numerics.inputs(p, case)
    wanted = torch_rows.recorded()[f"reference.{op}"]
    reference, bound = (each(p, case, inputs)["Y"] for each in (numerics.reference, numerics.bound))
    assert np.allclose(reference.reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-9)
    assert (bound >= 0).all()
    assert (bound < 1e-3 * (np.abs(reference) + 1)).all()


def test_an_element_at_the_mean_may_err_by_what_the_mean_errs_by() -> None:
    """Large elements that cancel leave a mean of few digits, whoever adds them in 24 bits."""
    p = problem("layernorm", 1, 8192, dtype="fp32")
    half = np.random.default_rng(7).standard_normal(4096).astype(np.float32)
    x = np.concatenate([half, -half])
    x[5] = 0.0
    reference, bound = (each(p, numerics.own_case(p), {"X": x})["Y"] for each in (numerics.reference, numerics.bound))
    mean = np.add.accumulate(x)[-1] / np.float32(8192)  # one element after another
    y = (x - mean) / np.sqrt(np.mean((x - mean) ** 2) + np.float32(p.eps))
    assert 2.0**-20 * 2 * abs(mean) < abs(y - reference)[5] <= bound[5] < 2.0**-19
    assert (abs(y - reference) <= bound).all()


def test_what_is_recorded_of_torch_is_what_torch_gives() -> None:
    torch = pytest.importorskip("torch")
    recorded = torch_rows.recorded()
    for name, found in torch_rows.of_torch(torch).items():
        assert np.allclose(
            found, recorded[name], rtol=0.1 if name.startswith(("error", "worst")) else 1e-6, equal_nan=True
        ), name


def test_padding_is_no_part_of_the_reference() -> None:
    p = problem("softmax", 3, 10)
    case = numerics.own_case(p)
    padded = type(case)(case.name, case.why, {**case.arguments, "row_stride": 16, "out_stride": 24})
    wanted = numerics.reference(p, padded, numerics.inputs(p, padded))["Y"].reshape(3, 24)
    assert np.isnan(wanted[:, 10:]).all()
    assert not np.isnan(wanted[:, :10]).any()


@pytest.mark.parametrize("target", [H200, B200])
def test_no_sm_is_called_idle_where_more_ctas_fit_than_the_query_counts(target: DeviceProfile) -> None:
    made = planned(problem("softmax", 8192, 40), target)
    assert made.choice is not None
    residency = made.choice.residency
    assert residency.derived["ctas_per_sm"] > 8
    assert made.choice.cluster == (1, 1, 1)
    assert residency.max_active_clusters == 8 * target.sms
    assert (residency.sms_used, residency.sms_idle) == (target.sms, 0)
    step = next(each for each in made.steps if each.name == "residency")
    assert any("of which the cluster query counts 8" in each.text for each in step.decisions[0].because)


def reasons(made: Plan, step: int) -> list[Any]:
    return [each for decision in made.steps[step - 1].decisions for each in decision.because]


@pytest.mark.parametrize(
    ("op", "rows", "cols", "changes"),
    [("logsumexp", 512, 1048576, {"dtype": "fp32"}), ("softmax", 1024, 131072, {}), ("layernorm", 5000, 40000, {}),
     ("sum", 8192, 8192, {})],
)  # fmt: skip
def test_the_times_of_memory_follow_from_the_numbers_that_the_plan_names(
    op: str, rows: int, cols: int, changes: dict[str, Any]
) -> None:
    made = planned(problem(op, rows, cols, **changes), B200)
    (said,) = [each for each in reasons(made, 2) if "sharpness" in each.numbers]
    n = said.numbers
    dram_us = n["dram_bytes"] / (n["dram_bytes_per_us"] * n["read_only"]) * (1.0 + n["idle_share"] * n["idle"])
    dram_us *= 1.0 + n["uneven_share"]
    l2_us = n["l2_bytes"] / n["l2_bytes_per_us"]
    joined_us = (dram_us ** n["sharpness"] + l2_us ** n["sharpness"]) ** (1.0 / n["sharpness"])
    bounds = made.steps[0].artifact["bounds_us"]
    of_choice = dict(zip(bounds["columns"], bounds["rows"][-1], strict=True))
    assert of_choice["dram"] == pytest.approx(dram_us)
    assert of_choice["l2"] == pytest.approx(l2_us)
    for each in reasons(made, 6):
        assert not each.text.startswith("DRAM alone takes")  # the L2 is joined to it
        if "dram_us" in each.numbers:
            assert each.numbers["dram_us"] == pytest.approx(joined_us)
            assert f"DRAM of {dram_us:.4g} us" in each.text


def test_weights_that_stay_on_the_sm_are_read_once_a_cta_and_others_for_every_row() -> None:
    p = problem("layernorm", 5000, 40000, weight=True, bias=True)
    w = workload(p)
    for c in space.candidates(p, "sm100"):
        if space.evaluate(p, c, B200)[0].violation is not None:
            continue
        rows = space.read_bytes(p) * kernels.passes(p, c)
        own, grid = kernels.work_of(c), space.evaluate(p, c, B200)[0].timing.planned
        weights = w.traffic(c, B200).l2_read_bytes - rows
        if c.schedule == "static" and own.vectors and own.held + own.weight_slots == 2 * own.vectors:
            assert weights == space.affine_bytes(p) * grid
        elif c.schedule == "one_tile" or not own.vectors:
            assert weights == space.affine_bytes(p) * p.rows
        else:
            assert space.affine_bytes(p) * min(grid, p.rows) <= weights <= space.affine_bytes(p) * p.rows
    choice = planned(p, B200)
    designs = choice.steps[0].artifact["designs"]
    (row,) = [dict(zip(designs["columns"], each, strict=True)) for each in designs["rows"]][-1:]
    assert row["l2_read_bytes"] < 1.1 * space.read_bytes(p)


@pytest.mark.parametrize(("out", "cols"), [("bf16", 8), ("fp32", 8)])
def test_where_row_and_result_are_misaligned_the_one_fix_that_mends_both_is_said(out: str, cols: int) -> None:
    found = planned(problem(rows=4096, cols=3, out_dtype=out), B200)
    (finding,) = [each for each in found.findings if each.code == "ROW_STRIDE_16B"]
    assert f"cols of {cols}, with row_stride" in finding.message
    assert "pad it to" not in finding.message
    assert planned(problem(rows=4096, cols=cols, out_dtype=out), B200).verdict == "plan"


def test_short_rows_on_the_portable_kernel_are_told_as_what_they_are() -> None:
    found = planned(problem(rows=4096, cols=3), B200)
    texts = [each.text for each in reasons(found, 2)]
    assert "a row is 6 bytes; the smallest cluster whose shared memory keeps it has 1 CTA, 16 bytes each" in texts
    assert any("asks the L2 for 24 KiB, of which 0 bytes come from DRAM again" in each for each in texts)
    assert any("the portable kernels keep no row" in each for each in texts)
    assert not any("cheaper than keeping it" in each for each in texts)


def test_a_choice_without_a_rival_is_not_measured_against_itself() -> None:
    found = planned(problem(rows=4096, cols=3), B200)
    assert found.alternatives == []
    assert found.experiment is None
    assert planned(problem(), B200).experiment is not None


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("odd", [0, 1])
def test_rows_far_apart_are_checked_with_rows_that_are_aligned_as_they_are(small: bool, odd: int) -> None:
    """Two rows 10^10 elements apart are 37 GiB with nothing in them."""
    p = problem(rows=2, cols=64, row_stride=10**10 + odd)
    choice = planned(p).choice
    assert choice is not None
    cases = numerics.cases(p, choice.candidate(), 4, small=small)
    assert max(each.arguments["rows"] * each.arguments["row_stride"] for each in cases) < 2**24
    assert cases[0].name == "own_shape_cut"
    assert cases[0].arguments["row_stride"] == 72 + odd
    near = problem(rows=2, cols=64, row_stride=1000 + odd)
    own = numerics.cases(near, choice.candidate(), 4, small=small)[0]
    assert (own.name, own.arguments["row_stride"]) == ("own_shape", 1000 + odd)
