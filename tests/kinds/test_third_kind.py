"""A kind that the house does not know, from this folder alone: its file, its templates, its cases. Nothing of
`advisor/` is changed or patched, and it goes from a problem file to a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from advisor import kinds, workflow
from advisor.bench.results import CandidateRecord
from advisor.bundle import read_bundle
from advisor.codegen import render_bundle, templates
from advisor.errors import InputError, ProblemError, ToolError, explain
from advisor.kinds.gemm import KIND as GEMM
from advisor.problem import parse_problem, problem_schema
from advisor.records.base import canonical_json
from advisor.records.evidence import Evidence
from advisor.records.plan import Plan
from advisor.report import render_report
from advisor.validation import Emulation, validate
from tests.kinds.third import scale

TEXT = "kind: scale\nn: 5000\nalpha: 2.5\n"
WRONG = f"{Path(__file__).parent / 'third' / 'wrong.py'}:WrongReference"


@pytest.fixture
def third() -> Iterator[kinds.Kind]:
    kinds.register(scale.KIND)
    yield scale.KIND
    kinds.forget("scale")


@pytest.fixture
def file(tmp_path: Path, third: kinds.Kind) -> Path:
    path = tmp_path / "scaled.yaml"
    path.write_text(TEXT)
    return path


def test_an_unknown_kind_is_refused_until_it_is_registered() -> None:
    with pytest.raises(ProblemError, match="it knows gemm, row_reduce"):
        parse_problem(TEXT, "scaled.yaml")
    kinds.register(scale.KIND)
    try:
        assert parse_problem(TEXT, "scaled.yaml").words == "scale n=5000 alpha=2.5"
    finally:
        kinds.forget("scale")


def test_what_cannot_be_registered_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="this is module"):
        kinds.register(scale)  # type: ignore[arg-type]
    for lacks in (replace(scale.KIND, codes=tmp_path / "codes.toml"), replace(scale.KIND, templates=tmp_path / "none")):
        with pytest.raises(FileNotFoundError, match=r"scale says that .* is there"):
            kinds.register(lacks)
        with pytest.raises(KeyError):
            kinds.kind_of("scale")


def test_a_name_is_registered_once(third: kinds.Kind) -> None:
    with pytest.raises(ValueError, match="scale is there already"):
        kinds.register(replace(third, problem=GEMM.problem))
    with pytest.raises(ValueError, match="gemm is there already"):
        kinds.register(replace(third, name="gemm"))


def test_its_files_have_a_schema_and_errors_with_the_fix(third: kinds.Kind) -> None:
    jsonschema.validate({"kind": "scale", "n": 5000}, problem_schema())
    with pytest.raises(ProblemError) as caught:
        parse_problem("kind: scale\nn: -1\n", "scaled.yaml")
    assert (caught.value.code, caught.value.where and caught.value.where.line) == ("PROBLEM_RANGE", 2)
    assert "0 is valid: nothing to launch" in caught.value.message


@pytest.mark.parametrize("target", ["b200", "h200", "rtx_pro_6000"])
def test_its_plan_has_nine_steps_and_reads_back(file: Path, target: str) -> None:
    plan = workflow.plan_file(file, target=target).plan
    assert [step.step for step in plan.steps] == list(range(1, 10))
    again = Plan.model_validate_json(canonical_json(plan))
    assert canonical_json(again) == canonical_json(plan)
    assert plan.choice is not None
    c = plan.choice.candidate()
    assert isinstance(c.work, scale.ScaleWork)
    record = CandidateRecord.of("scale", c)
    assert CandidateRecord.read("scale", record.model_dump(mode="json")).candidate() == c


def test_a_forced_schedule_and_an_empty_problem_are_planned(file: Path) -> None:
    file.write_text(TEXT + "overrides: {schedule: static}\n")
    plan = workflow.plan_file(file, target="h200").plan
    assert plan.choice is not None
    assert plan.choice.schedule == "static"
    assert "OVERRIDE_COST" in {each.code for each in plan.findings}
    file.write_text("kind: scale\nn: 0\n")
    assert workflow.plan_file(file, target="h200").plan.verdict == "noop"


def test_it_goes_from_a_problem_file_to_a_report(file: Path, tmp_path: Path) -> None:
    """Planned, rendered, compiled for sm_90a, emulated under every policy, reported."""
    made = workflow.generate(file, target="h200", output=tmp_path / "out")
    assert made.exit_status == 0
    assert made.bundle is not None
    bundle = read_bundle(made.bundle.folder)
    assert ("sm90_one_tile", "sm_90a") in made.images
    assert "y = scaled.run(x, y)" in bundle.files["README.md"]

    evidence = validate(bundle, device=None, emulation=Emulation(processes=1))
    wrong = [each for each in evidence.cases if each.verdict not in ("correct", "not_run")]
    assert wrong == []
    assert evidence.verdict == "pass"
    assert {each.name for each in evidence.cases if each.verdict == "correct"} >= {"own_shape", "one", "nothing"}
    assert {row.kernel_id for row in evidence.gates if row.reached == "emulated"} >= {"sm90_one_tile", "sm90_static"}

    report = render_report(bundle.plan, evidence)
    assert "scale n=5000 alpha=2.5" in report
    assert "Emulated: the PTX ran on the CPU" in report
    text = canonical_json(evidence)
    assert canonical_json(Evidence.model_validate(json.loads(text))) == text


def test_a_kernel_that_computes_something_else_is_found_out(file: Path, tmp_path: Path) -> None:
    """The child process has the kind from elsewhere with a reference that is not what the kernel computes."""
    made = workflow.generate(file, target="h200", output=tmp_path / "out")
    assert made.bundle is not None
    bundle = read_bundle(made.bundle.folder)
    evidence = validate(bundle, device=None, emulation=Emulation(processes=1, backend=WRONG), cases=["one"])
    assert evidence.verdict == "fail"
    assert "mismatch" in {each.verdict for each in evidence.cases}


def test_its_codes_have_pages_and_a_refusal_says_the_way_out(file: Path) -> None:
    assert explain("SCALE_SCHEDULE").fix == "Leave the schedule to the planner."
    file.write_text(TEXT + "overrides: {schedule: static, kernel: portable}\n")
    plan = workflow.plan_file(file, target="h200").plan
    assert plan.verdict == "refuse"
    assert plan.findings[-1].code == "SCALE_SCHEDULE"
    assert "What to do: Leave the schedule to the planner." in render_report(plan)
    kinds.forget("scale")
    with pytest.raises(InputError, match="not a code of this tool"):
        explain("SCALE_SCHEDULE")


def test_its_templates_are_found_beside_the_houses_and_forgotten_with_it(file: Path) -> None:
    planned = workflow.plan_file(file, target="h200")
    files = render_bundle(planned.plan, planned.workload).files
    assert "include/types.cuh" in files
    assert "alpha * x[i]" in files["kernel_sm90.cu"]
    kinds.forget("scale")
    with pytest.raises(ToolError, match=r"kernels/scale\.cu\.j2"):
        templates.load("kernels/scale.cu.j2")


def test_its_bound_holds_what_float32_gives(third: kinds.Kind) -> None:
    work = kinds.workload(parse_problem(TEXT, "scaled.yaml"))
    case = work.own_case()
    given = work.inputs(case)
    error = np.abs((np.float32(2.5) * given["X"]).astype(np.float64) - work.reference(case, given)["Y"])
    allowed = work.bound(case, given, "sm90")["Y"]
    assert (error <= allowed).all()
    assert error.max() > 0.25 * allowed.max()
