"""Steps 6 and 8 and `simulate` speak of one set of launches, whatever shape each schedule has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.records.plan import Plan
from advisor.workflow import plan_file, simulate_file

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("rmsnorm", "softmax_long", "softmax_uneven", "gemm_tail", "clc_tail_stealing", "gemm_small")


def table(plan: Plan, step: int, name: str) -> list[dict[str, Any]]:
    found = plan.steps[step - 1].artifact[name]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


@pytest.mark.parametrize("name", NAMES)
def test_this_problem_in_step_8_is_what_step_6_simulated(name: str) -> None:
    made = plan_file(EXAMPLES / f"{name}.yaml").plan
    simulated = {row["schedule"]: row for row in table(made, 6, "simulated")}
    case = next(row for row in table(made, 8, "cases") if row["case"] == "this problem")
    for schedule, row in simulated.items():
        assert case[f"{schedule}_us"] == row["total_us"]
        assert case.get("clusters_at_once", case.get(f"{schedule}_clusters")) == row["clusters_at_once"]
    assert case["fastest"] == min(simulated, key=lambda each: simulated[each]["total_us"])


@pytest.mark.parametrize(
    ("rows", "label"),
    [(4096, "this problem, skewed by 0.5"), (4097, "4096 of its 4097 rows, skewed by 0.5")],
)
def test_the_skewed_case_says_where_it_has_not_all_tiles(tmp_path: Path, rows: int, label: str) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(f"kind: row_reduce\nname: rows\nop: sum\nrows: {rows}\ncols: 8192\ndtype: bf16\ntarget: b200\n")
    cases = {row["case"]: row["tiles"] for row in table(plan_file(path).plan, 8, "cases")}
    assert cases["this problem"] == rows
    assert cases[label] == 4096


def test_schedules_of_different_ctas_are_each_said_with_their_own() -> None:
    made = plan_file(EXAMPLES / "rmsnorm.yaml").plan
    text = made.steps[5].decisions[0].because[0].text
    for row in table(made, 6, "simulated"):
        assert f"with {row['clusters_at_once']} clusters at once, CTAs of {row['cta']}" in text
    assert len({row["clusters_at_once"] for row in table(made, 6, "simulated")}) == 2


def test_a_grid_of_one_wave_leaves_the_same_places_idle_under_every_schedule() -> None:
    rows = {row["schedule"]: row for row in table(plan_file(EXAMPLES / "gemm_small.yaml").plan, 6, "simulated")}
    for name in ("static", "ticket"):
        for figure in ("waves", "last_wave_use", "idle_share"):
            assert rows[name][figure] == pytest.approx(rows["one_tile"][figure]), (name, figure)
    assert rows["static"]["waves"] < 1


def test_a_persistent_plan_of_one_wave_says_that_it_fills_a_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    path.write_text(
        "kind: row_reduce\nname: few\nop: softmax\nrows: 20\ncols: 131072\ndtype: bf16\ntarget: b200\n"
        "overrides: {cluster: [8, 1, 1], schedule: static}\n"
    )
    choice = plan_file(path).plan.choice
    assert choice is not None
    assert choice.prediction.waves == pytest.approx(20 / choice.residency.max_active_clusters)
    assert choice.prediction.last_wave_use == pytest.approx(choice.prediction.waves)


def test_simulate_names_the_places_of_the_pick() -> None:
    found = simulate_file(EXAMPLES / "softmax_uneven.yaml")
    choice = found.planned.plan.choice
    assert choice is not None
    row = next(each for each in found.rows if each.schedule == choice.schedule)
    assert row.workers == choice.residency.max_active_clusters
    assert len({each.workers for each in found.rows}) == 2


@pytest.mark.parametrize("name", NAMES)
def test_where_simulation_and_model_of_the_choice_differ_both_are_said(name: str) -> None:
    made = plan_file(EXAMPLES / f"{name}.yaml").plan
    assert made.choice is not None
    own = next(row for row in table(made, 6, "simulated") if row["schedule"] == made.choice.schedule)["total_us"]
    texts = [each.text for each in made.steps[5].decisions[0].because if "turn together" in each.text]
    if abs(own / made.choice.prediction.time_us - 1.0) > 0.005:
        (text,) = texts
        assert f"{own:.4g} us" in text
        assert f"{made.choice.prediction.time_us:.4g} us" in text
    else:
        assert texts == []
