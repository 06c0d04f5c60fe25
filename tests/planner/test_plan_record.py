"""What every plan holds, whatever the problem."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from advisor.kinds import workload
from advisor.machine import DeviceProfile, load_profile
from advisor.planner import plan, step1_necessity
from advisor.problem.gemm import GemmProblem
from advisor.problem.row_reduce import RowReduceProblem
from advisor.records.base import canonical_json
from advisor.records.plan import Plan

NAMES = ["necessity", "mapping", "sharing", "residency", "barriers", "schedule", "clc", "tail", "fallback"]
TARGETS = {
    "b200": ["sm100", "sm90", "portable"],
    "gb200": ["sm100", "sm90", "portable"],
    "b300": ["sm100", "sm90", "portable"],
    "h100": ["sm90", "portable"],
    "h200": ["sm90", "portable"],
    "rtx_pro_6000": ["portable"],
}


@pytest.mark.parametrize("target", TARGETS)
def test_the_ladder_has_every_family_up_to_the_target(plan_for, target):
    plan = plan_for(target, m=4096, n=4096, k=4096)
    assert [choice.family for choice in plan.choices] == TARGETS[target]
    assert plan.choice == plan.choices[0]
    assert all(choice.trigger for choice in plan.choices)
    if "sm90" in TARGETS[target] and target[0] != "h":
        assert plan.choices[1].profile == "h200"
    assert plan.choices[-1].smem_bytes <= 101376


@pytest.mark.parametrize("target", ["b200", "h200", "rtx_pro_6000"])
def test_a_plan_has_nine_steps_with_reasons_and_artifacts(plan_for, target):
    plan = plan_for(target, m=4000, n=3000, k=1000)
    assert [step.name for step in plan.steps] == NAMES
    assert [step.step for step in plan.steps] == list(range(1, 10))
    for step in plan.steps:
        assert step.artifact
        assert step.decisions
        for decision in step.decisions:
            assert decision.because, decision.question
            assert all(each.margin is not None or each.code for each in decision.rejected), decision.question
        for value in step.artifact.values():
            if isinstance(value, dict) and "columns" in value:
                assert all(len(row) == len(value["columns"]) for row in value["rows"]), step.name


def test_a_plan_is_canonical_json_that_reads_back_to_the_same_text(plan_for):
    text = canonical_json(plan_for("b200", m=8192, n=8192, k=8192))
    assert canonical_json(Plan.model_validate(json.loads(text))) == text


def test_the_same_problem_gives_the_same_plan(plan_for):
    document = {"m": 5000, "n": 3000, "k": 700, "assume": {"tile_cost_cv": 0.3, "seed": 3}}
    assert canonical_json(plan_for("b200", **document)) == canonical_json(plan_for("b200", **document))


def test_a_b200_plan_names_its_own_kernel_and_claims_no_run(plan_for):
    plan = plan_for("b200", m=8192, n=8192, k=8192)
    assert plan.conclusion.startswith("Use sm100_static_2x1x1:")
    assert plan.conclusion.endswith("Evidence of the kernel: planned.")
    assert " ran" not in plan.conclusion
    assert any("only by a run on the chip" in each for each in plan.not_verified)


@pytest.mark.parametrize(
    "extents", [{"m": 0, "n": 8, "k": 8}, {"m": 8, "n": 0, "k": 8}, {"m": 8, "n": 8, "k": 8, "batch": 0}]
)
def test_no_output_is_nothing_to_launch(plan_for, extents):
    plan = plan_for("b200", **extents)
    assert plan.verdict == "noop"
    assert plan.choices == []


def test_an_empty_sum_still_writes_its_epilogue(plan_for):
    plan = plan_for("h200", m=512, n=512, k=0, b={"ld": 8}, a={"ld": 8}, epilogue={"beta": 1.0})
    assert plan.verdict == "plan"
    assert plan.choice.work.split_k == 1


def test_alternatives_can_be_built_and_lose_by_what_they_say(plan_for):
    plan = plan_for("h200", m=4096, n=4096, k=4096)
    assert plan.alternatives
    for each in plan.alternatives:
        assert each.choice.candidate() != plan.choice.candidate()
        assert each.choice.prediction.time_us == pytest.approx(
            plan.choice.prediction.time_us * (1 + each.margin), rel=1e-6
        )
    assert "--experiment ab" in plan.experiment.command


def test_every_illegal_candidate_is_counted_by_its_clause(plan_for, codes):
    numbers = codes(plan_for("b200", m=640, n=4096, k=4096))["REJECTED_CANDIDATES"].numbers
    assert numbers["counts"]["SWAP_AB_RANGE"] > 0
    assert numbers["counts"]["PAIR_IN_CLUSTER"] > 0
    assert set(numbers["examples"]) <= set(numbers["counts"])


def test_an_override_costs_what_the_free_choice_would_save(plan_for, codes):
    plan = plan_for("h200", m=8192, n=8192, k=8192, overrides={"tile": [64, 64, 64]})
    cost = codes(plan)["OVERRIDE_COST"].numbers
    assert cost["cost"] > 0.25
    assert cost["free_kernel"] == "sm90_static"


@pytest.mark.parametrize("target", ["b200", "h200", "rtx_pro_6000"])
def test_required_fallback_holds_where_portable_serves(plan_for, target):
    plan = plan_for(target, m=512, n=512, k=512, constraints={"fallback": "required"})
    assert plan.verdict == "plan"
    assert plan.choices[-1].family == "portable"


@pytest.mark.parametrize(
    "overrides", [{"schedule": "clc"}, {"mma_ctas": 2}, {"cluster": [2, 1, 1]}, {"kernel": "sm100"}, {"split_k": 4}]
)
def test_required_fallback_refuses_what_runs_on_blackwell_alone(plan_for, overrides):
    plan = plan_for("b200", m=512, n=512, k=4096, constraints={"fallback": "required"}, overrides=overrides)
    assert plan.verdict == "refuse"
    assert plan.findings[-1].code == "FALLBACK_REQUIRED"


def test_a_kernel_that_the_target_has_not_is_refused(plan_for):
    plan = plan_for("h200", m=512, n=512, k=512, overrides={"kernel": "sm100"})
    assert (plan.verdict, plan.findings[-1].code) == ("refuse", "NO_TCGEN05")


def test_a_named_kernel_starts_the_ladder(plan_for):
    plan = plan_for("b200", m=4096, n=4096, k=4096, overrides={"kernel": "portable"})
    assert [choice.family for choice in plan.choices] == ["portable"]


def test_planning_is_fast(plan_for):
    rng = random.Random(5)
    sizes = [64, 128, 500, 1000, 2048, 4096, 8192, 12000]
    spent = []
    for _ in range(200):
        document = {name: rng.choice(sizes) for name in ("m", "n", "k")}
        dtype = rng.choice(["bf16", "fp16", "e4m3"])
        begin = time.process_time()
        plan_for("b200", **document, dtype=dtype)
        spent.append(time.process_time() - begin)
    assert statistics.median(spent) <= 0.050, statistics.quantiles(spent, n=10)


ROWS = {"kind": "row_reduce", "op": "rmsnorm", "rows": 8192, "cols": 8192, "dtype": "bf16"}


class Watched(DeviceProfile):
    """A profile that notes which of its numbers are read: `field`, or `field.key` of a table."""

    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in DeviceProfile.__dataclass_fields__ and name != "sources":
            Watched.read.add(name)
            if isinstance(value, Mapping):
                return WatchedTable(name, value)
        return value


class WatchedTable(dict[str, float]):
    def __init__(self, field: str, table: Mapping[str, float]) -> None:
        super().__init__(table)
        self.field = field

    def get(self, key: str, default: Any = None) -> Any:
        Watched.read.add(f"{self.field}.{key}")
        return super().get(key, default)


@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem.model_validate({"kind": "gemm", "m": 4096, "n": 4096, "k": 4096}, strict=False),
        GemmProblem.model_validate({"kind": "gemm", "m": 64, "n": 4096, "k": 4096, "dtype": "e4m3"}, strict=False),
        RowReduceProblem.model_validate(ROWS, strict=False),
        RowReduceProblem.model_validate({**ROWS, "op": "softmax", "rows": 256, "cols": 1 << 20}, strict=False),
    ],
    ids=["bf16", "e4m3", "rmsnorm", "softmax"],
)
def test_the_report_lists_the_numbers_of_the_profile_that_the_plan_reads(problem, monkeypatch):
    """No rate of a tensor core stands in the plan of a row reduction, and none of another type in that of a GEMM."""
    shipped = load_profile("b200")
    watched = Watched(**{name: getattr(shipped, name) for name in DeviceProfile.__dataclass_fields__})
    work = workload(problem)

    def planned():
        rungs = {"sm100": watched, "sm90": load_profile("h200"), "portable": watched}
        return plan(work, watched, target_name="b200", target_source="profile", rung_profiles=rungs)

    listed = {row[0] for row in planned().steps[0].artifact["machine"]["rows"]}
    monkeypatch.setattr(step1_necessity, "machine_table", lambda *_: {"columns": [], "rows": []})
    Watched.read.clear()
    planned()
    assert listed == (Watched.read | {"compute_capability"}) & set(shipped.sources)


@pytest.mark.parametrize(
    ("target", "problem"), [("b200", {"m": 5000, "n": 3000, "k": 777}), ("h200", {"m": 3, "n": 9, "k": 5})]
)
def test_counts_of_bytes_and_operations_are_whole_numbers(plan_for, target, problem):
    """plan.json keeps six digits of a float: a count that was one would look exact and not be."""
    designs = plan_for(target, **problem).steps[0].artifact["designs"]
    counts = [each for each in designs["columns"] if each.endswith("bytes") or each == "flops"]
    assert len(counts) == 4
    for row in designs["rows"]:
        for name, value in zip(designs["columns"], row, strict=True):
            assert name not in counts or type(value) is int, name


def test_pdl_says_that_the_portable_kernel_ignores_it(plan_for, codes):
    extents = {"m": 512, "n": 512, "k": 512}
    assert "PDL_PORTABLE" not in codes(plan_for("b200", **extents))
    found = codes(plan_for("b200", **extents, launch={"pdl": True}))["PDL_PORTABLE"]
    assert found.severity == "info"
    alone = plan_for("rtx_pro_6000", **extents, launch={"pdl": True})
    assert codes(alone)["PDL_PORTABLE"].severity == "warning"
    assert "it is the only one here" in codes(alone)["PDL_PORTABLE"].message


def test_sms_that_have_nothing_to_run_are_counted_as_idle(plan_for):
    """112 tiles on 132 SMs: every CTA that fits is resident, and 20 SMs have none."""
    made = plan_for("h200", m=7168, n=16, k=7168, overrides={"tile": [64, 16, 64], "schedule": "one_tile"})
    assert made.choice.residency.sms_idle == 0
    rows = {row.name: row for row in made.counts.rows}
    assert made.choice.grid_blocks == 112
    assert (rows["SMs without a CTA"].value, rows["SMs without a CTA"].how.endswith(", and 112 to run")) == (20, True)
    assert rows["waves"].value == pytest.approx(112 / 132)
    full = plan_for("h200", m=8192, n=8192, k=8192)
    assert {row.name: row for row in full.counts.rows}["SMs without a CTA"].value == full.choice.residency.sms_idle


def test_a_schedule_decides_little_only_where_the_others_take_as_long():
    work = workload(
        RowReduceProblem.model_validate({**ROWS, "op": "softmax", "rows": 256, "cols": 1 << 20}, strict=False)
    )
    own = load_profile("h200")
    made = plan(
        work, own, target_name="h200", target_source="profile", rung_profiles=dict.fromkeys(("sm90", "portable"), own)
    )
    step = next(each for each in made.steps if each.name == "schedule")
    slower = max(row[-1] for row in step.artifact["simulated"]["rows"])
    texts = [each.text for each in step.decisions[0].because if each.text.startswith("memory alone")]
    assert texts
    assert ("decides little" in texts[0]) == (slower < 0.05)
    assert "under this schedule" in texts[0]


def test_an_expected_count_of_bytes_has_three_digits(plan_for):
    """How many clusters of each size run is the hardware's to say: more digits would look exact."""
    made = plan_for("b200", m=4096, n=4096, k=1024, overrides={"preferred_cluster": [4, 1, 1]})
    designs = made.steps[0].artifact["designs"]
    bytes_ = dict(zip(designs["columns"], designs["rows"][-1], strict=True))["l2_read_bytes"]
    assert bytes_ == int(float(f"{bytes_:.3g}")) > 0


@pytest.mark.parametrize("document", [{"k": 64}, {"k": 8192, "constraints": {"max_cluster_size": 2}}])
def test_a_rejected_option_has_the_reason_of_its_own_question(plan_for, document):
    """Most candidates with swapped operands are illegal here for their slices or clusters; so are those without."""
    made = plan_for("b200", m=8192, n=8192, **document)
    rejected = [each for step in made.steps for decision in step.decisions for each in decision.rejected]
    (swap,) = [each for each in rejected if each.option == "swap: yes"]
    assert swap.code == "SWAP_AB_RANGE"
