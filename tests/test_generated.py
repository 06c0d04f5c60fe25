"""generated/ holds what the examples render to, byte for byte: a change of any output shows in a diff."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.codegen import render_bundle
from advisor.report import render_report
from advisor.workflow import plan_file

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
GENERATED = ROOT / "generated"
DERIVED = {"build", "__pycache__"}
DERIVED_NAMES = {"validation.json", "runtime.json", "report.validated.md", "report.html"}


def committed(folder: Path) -> dict[str, str]:
    """The files of a bundle that are under version control, by path."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not DERIVED & set(path.relative_to(folder).parts)
        and path.relative_to(folder).parts[0] not in DERIVED_NAMES
    }


def rendered(example: Path) -> dict[str, str] | None:
    """What an example renders to now, its planned report included; None for a refusal."""
    planned = plan_file(example)
    if not planned.plan.choices:
        return None
    bundle = render_bundle(planned.plan, planned.workload)
    return {**bundle.files, "report.md": render_report(planned.plan)}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_renders_to_its_committed_bundle(example: Path) -> None:
    now = rendered(example)
    folder = GENERATED / example.stem
    if now is None:
        assert not folder.exists(), "a refused problem has no bundle"
        return
    before = committed(folder)
    assert sorted(now) == sorted(before)
    assert [path for path in now if now[path] != before[path]] == [], "run `make generated` and read the difference"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_names_its_target_so_that_every_machine_renders_the_same(example: Path) -> None:
    from advisor.problem import load_problem

    assert load_problem(example).target != "auto"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_states_its_question_and_the_answer(example: Path) -> None:
    lines = example.read_text().splitlines()
    assert lines[0].startswith("# Question: ")
    assert any(line.startswith("# Answer:   ") for line in lines[1:4])


@pytest.mark.parametrize("folder", sorted(GENERATED.iterdir()), ids=lambda path: path.name)
def test_the_ladder_of_a_plan_is_the_ladder_of_its_bundle(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    launch = json.loads((folder / "launch.json").read_text(encoding="utf-8"))
    (fallback,) = [each for each in plan["steps"] if each["name"] == "fallback"]
    assert [row[1] for row in fallback["artifact"]["ladder"]["rows"]] == [each["run"] for each in launch["ladder"]]


def test_every_committed_bundle_comes_from_an_example() -> None:
    assert {path.name for path in GENERATED.iterdir() if path.is_dir()} <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_committed_report_claims_nothing_above_planned(example: Path) -> None:
    folder = GENERATED / example.stem
    if not folder.exists():
        assert rendered(example) is None
        return
    text = (folder / "report.md").read_text()
    assert "| evidence reached | planned" in text
    assert "ran on" not in text.replace("No kernel ran on", "").replace("no kernel ran on", "")
