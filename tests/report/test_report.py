"""The report says what the plan and the evidence say, in the order a reader needs, in three renderings."""

from __future__ import annotations

import io
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from advisor.records.evidence import Evidence, GateResult, WorstElement
from advisor.records.plan import PTXAS, Finding, Plan, Rejected
from advisor.report import blocks, reached, render_html, render_report, short_blocks, validation_blocks
from advisor.report.blocks import Table, cell_text
from advisor.report.terminal import print_blocks


def test_the_five_outputs_stand_in_order_with_the_conclusion_first(plan: Plan) -> None:
    headings = re.findall(r"^## (.*)$", render_report(plan), re.MULTILINE)
    assert headings == [
        "1. Conclusion",
        "2. Evidence",
        "3. The nine steps",
        "4. Minimal validation",
        "5. Risks and fallback",
        "Not verified",
    ]


def test_the_same_plan_gives_the_same_bytes(plan: Plan) -> None:
    again = Plan.model_validate_json(plan.model_dump_json())
    assert render_report(plan) == render_report(again)


def test_every_number_of_the_report_is_in_the_plan(plan: Plan) -> None:
    """The report adds no figure of its own: beside counts of rows it prints what the plan holds."""
    text = render_report(plan)
    numbers = re.findall(r"\d+(?:\.\d+)?", plan.model_dump_json())
    known = {cell_text(float(each) if "." in each else int(each)) for each in numbers}
    shown = set(re.findall(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?%?(?!\w)", text))
    headings = {str(n) for n in range(10)}
    same_in_percent_or_short = {"8.1%", "1,632"}
    assert shown - known - headings - same_in_percent_or_short == set()


def test_without_evidence_nothing_is_above_planned(plan: Plan) -> None:
    text = render_report(plan)
    assert "planned: arithmetic only" in text
    assert "| evidence reached | planned" in text
    assert "| compiled |" not in text
    assert reached("sm90_static_2x1x1", None) == "planned"


def test_evidence_names_the_chip_and_the_driver(plan: Plan, evidence: Evidence) -> None:
    assert "ran on NVIDIA H200, driver 580.1" in render_report(plan, evidence)


def test_a_traced_twin_never_raises_the_shipped_kernel(evidence: Evidence) -> None:
    assert reached("portable_one_tile", evidence) == "compiled"


def test_a_case_that_failed_is_named_with_its_detail(plan: Plan, evidence: Evidence) -> None:
    text = render_report(plan, evidence)
    assert "2 cases: 1 correct, 1 timeout." in text
    assert "k_short on sm90_static_2x1x1, a GPU: timeout. no answer after 20 s" in text


def test_validate_lists_the_cases_that_are_not_correct_and_the_report_all(plan: Plan, emulated: Evidence) -> None:
    first, *rest = [each.model_copy(update={"verdict": "correct", "timing": None}) for each in emulated.cases]
    bad = first.model_copy(update={"name": "the_bad_one", "verdict": "mismatch"})
    good = emulated.model_copy(update={"cases": [first, *rest]})
    tables = [each for each in validation_blocks(good) if isinstance(each, Table) and each.columns[0] == "case"]
    assert tables == []
    mixed = good.model_copy(update={"cases": [bad, first, *rest]})
    (table,) = [each for each in validation_blocks(mixed) if isinstance(each, Table) and each.columns[0] == "case"]
    assert [row[0] for row in table.rows] == ["the_bad_one"]
    assert render_report(plan, good).count(f"| {first.name} | {first.kernel_id} |") >= 1


def test_what_did_not_run_is_listed_as_not_verified(plan: Plan, evidence: Evidence) -> None:
    tail = render_report(plan, evidence).split("## Not verified")[1]
    assert "no kernel ran on any GPU" in tail
    assert "portable_one_tile for sm_100: not run, sm_100 does not load" in tail


def test_the_experiment_and_its_command_are_in_the_planned_report(plan: Plan) -> None:
    text = render_report(plan)
    assert "```sh\nadvisor validate generated/mlp_up --device cuda --experiment ab\n```" in text
    assert "refuted if the ratio is above 1" in text


def test_an_experiment_of_many_measurements_has_a_row_for_each(plan: Plan, evidence: Evidence) -> None:
    rows = [
        {"trial": "equal tiles, 44 SMs held", "schedule": each, "predicted_us": 1441.0, "measured_us": 1464.0}
        for each in ("static", "ticket")
    ]
    found = evidence.model_copy(update={"experiment": {"name": "schedule", "verdict": "confirms", "rows": rows}})
    text = render_report(plan, found)
    assert "| verdict | confirms |" in text
    assert "| equal tiles, 44 SMs held | ticket | 1441 | 1464 |" in text
    assert "--experiment schedule" in text


def test_residency_shows_idle_sms_by_cluster_size(plan: Plan) -> None:
    assert "| 16 | 6 | 96 | 36 | opt-in |" in render_report(plan)


def test_a_cell_with_a_pipe_does_not_break_its_table(plan: Plan) -> None:
    assert "L2 \\| bound" in render_report(plan)


def test_markup_in_text_stays_text(plan: Plan) -> None:
    hostile = plan.model_copy(update={"conclusion": "<script>alert(1)</script> **x** [red]y[/red]"})
    assert "<script>" not in render_html(hostile)
    assert "\\<script>" in render_report(hostile)
    stream = io.StringIO()
    print_blocks(blocks(hostile), Console(file=stream, width=100))
    assert "[red]y[/red]" in stream.getvalue()


def test_a_refusal_reads_as_one(plan: Plan) -> None:
    refused = plan.model_copy(
        update={"verdict": "refuse", "choices": [], "choice": None, "experiment": None, "alternatives": []}
    )
    text = render_report(refused)
    assert "refused: nothing was rendered" in text
    assert "predicted" not in text


def test_a_refusal_says_what_to_do_once(plan: Plan) -> None:
    finding = Finding(code="FALLBACK_REQUIRED", severity="error", message="no path off this GPU")
    refused = plan.model_copy(
        update={"verdict": "refuse", "choices": [], "choice": None, "findings": [finding], "alternatives": []}
    )
    text = render_report(refused)
    assert text.count("What to do: Lift the override") == 1
    assert text.count("no path off this GPU") == 1


def test_an_option_that_is_faster_is_not_called_slower(plan: Plan) -> None:
    margins = {"a": -0.0146, "b": 0.047, "c": 0.0001}
    rejected = [Rejected(option=name, reason="a tie", margin=margin) for name, margin in margins.items()]
    decision = plan.steps[0].decisions[0].model_copy(update={"rejected": rejected})
    step = plan.steps[0].model_copy(update={"decisions": [decision]})
    changed = plan.model_copy(update={"steps": [step]})
    text = render_report(changed)
    assert "| a | 1.5% faster | a tie |" in text
    assert "| b | 4.7% slower | a tie |" in text
    assert "| c | as fast | a tie |" in text
    table = next(each for each in short_blocks(changed) if isinstance(each, Table) and "decision" in each.columns)
    assert table.rows[0][-1] == "a (1.5% faster)"


def test_the_title_names_the_gpu_also_where_auto_was_asked_for(plan: Plan) -> None:
    auto = plan.model_copy(update={"target": plan.target.model_copy(update={"name": "auto"})})
    text = render_report(auto)
    assert text.startswith("# mlp_up on h200\n")
    assert "| target | h200 (sm_90a), read from a profile; asked for as auto |" in text


def test_the_conclusion_of_a_validated_report_says_what_was_reached(plan: Plan, evidence: Evidence) -> None:
    planned = plan.model_copy(update={"conclusion": "Use it. Evidence of the kernel: planned."})
    assert "**Use it. Evidence of the kernel: planned.**" in render_report(planned)
    text = render_report(planned, evidence)
    measured = "ran on NVIDIA H200, driver 580.1; measured: 1700 us on NVIDIA H200."
    assert f"**Use it. Evidence of the kernel: {measured}**" in text
    assert "| measured on NVIDIA H200 | 1700 us (1690 to 1720) |" in text
    assert "| predicted by the model | 1632 us" in text


def test_the_ladder_has_the_numbers_of_step_9(plan: Plan) -> None:
    """Section 5 has the best rung of each family, step 9 every rung that a bundle builds."""
    columns = ["rung", "kernel", "runs_on", "trigger"]
    rows = [
        [1, "sm90_static_2x1x1", "h200", "a"],
        [2, "sm90_one_tile", "h200", "b"],
        [3, "portable_one_tile", "any", "c"],
    ]
    step = plan.steps[0].model_copy(
        update={"step": 9, "name": "fallback", "artifact": {"ladder": {"columns": columns, "rows": rows}}}
    )
    text = render_report(plan.model_copy(update={"steps": [*plan.steps, step]})).partition("## 5.")[2]
    assert "| 1 | sm90_static_2x1x1 | h200 |" in text
    assert "| 3 | portable_one_tile | h200 |" in text
    assert "numbered as in step 9" in text


@pytest.fixture
def emulated(evidence: Evidence) -> Evidence:
    """The choice in the emulator alone."""
    facts = {"emulator": "0.1.0", "profile": "h200_cut", "sm_groups": [6, 2], "cases": 19, "correct": 19, "runs": 67}
    facts |= {"async_policies": ["eager", "lazy"], "clc_policies": [], "seeds": [0, 1, 7]}
    row = evidence.gates[0]
    gates = [
        row.gates[0],
        row.gates[1],
        GateResult(gate="emulated", result="pass", facts=facts),
        GateResult(gate="ran", result="not_run", reason="no GPU at hand"),
    ]
    shared = GateResult(gate="emulated", result="pass", facts={**facts, "ptx_of": "sm_90a"})
    rows = [
        row.model_copy(update={"gates": gates}),
        row.model_copy(update={"image": "sm_90b", "gates": [*gates[:2], shared, gates[3]]}),
    ]
    case = evidence.cases[0].model_copy(update={"device": "emulator", "image": "sm_90a", "timing": None, "launches": 4})
    changes = {"devices": ["emulator"], "chip": None, "not_run_reason": "no GPU at hand", "gates": rows}
    return evidence.model_copy(update={**changes, "cases": [case], "verdict": "pass", "residency": []})


def test_a_launch_of_two_cluster_sizes_says_which_ran_under_which_policy(plan: Plan, emulated: Evidence) -> None:
    row = emulated.gates[0]
    facts = row.facts("emulated") | {"cluster_mixes": ["fill", "smaller"]}
    facts |= {"cluster_sizes": {"fill": [2, 4], "smaller": [2]}}
    gates = [each.model_copy(update={"facts": facts}) if each.gate == "emulated" else each for each in row.gates]
    changed = emulated.model_copy(update={"gates": [row.model_copy(update={"gates": gates})]})
    text = render_report(plan, changed)
    assert "; clusters of two sizes: fill 2 and 4, smaller 2; seeds" in text
    assert "groups that hold the smaller of two cluster sizes alone" in text


def test_what_was_emulated_says_how_and_that_nothing_ran_on_a_gpu(plan: Plan, emulated: Evidence) -> None:
    planned = plan.model_copy(
        update={"conclusion": "Use it. Evidence of the kernel: planned.", "not_verified": [PTXAS]}
    )
    text = render_report(planned, emulated)
    assert "**Use it. Evidence of the kernel: emulated; no time was measured.**" in text
    assert "asynchronous work landing eager, lazy; seeds 0, 1, 7." in text
    assert "Cluster Launch Control" not in text.split("## 2.")[1].split("## 3.")[0]
    assert "No kernel ran on a GPU: no GPU at hand" in text
    assert "| sm90_static_2x1x1 | sm_90a | h200_cut, 6 + 2 SMs | 19 of 19 | 67 | - |" in text
    assert "| sm90_static_2x1x1 | sm_90b | h200_cut, 6 + 2 SMs | 19 of 19 | 67 | sm_90a |" in text
    assert "| problem | sm90_static_2x1x1 | sm_90a | correct | 4 | 0.001 / 0.004 |" in text
    assert f"- {PTXAS}: sm90_static_2x1x1" in text
    assert "sm90_static_2x1x1 for sm_90a, sm90_static_2x1x1 for sm_90b: not run, no GPU at hand" in text


def test_a_kernel_that_failed_in_the_emulator_is_not_said_to_have_never_run(plan: Plan, emulated: Evidence) -> None:
    facts = emulated.gates[0].facts("emulated") | {"correct": 18}
    failed = GateResult(gate="emulated", result="fail", reason="cols_zero: mismatch", facts=facts)
    rows = [row.model_copy(update={"gates": [*row.gates[:2], failed, row.gates[3]]}) for row in emulated.gates]
    planned = plan.model_copy(update={"conclusion": "Use it. Evidence of the kernel: planned."})
    text = render_report(planned, emulated.model_copy(update={"gates": rows, "verdict": "fail"}))
    found = "compiled; failed in the emulator for sm_90a and sm_90b (cols_zero: mismatch)"
    assert f"**Use it. Evidence of the kernel: {found}; no time was measured.**" in text
    assert f"| evidence reached | {found} |" in text
    assert f"| {found} |" in text.partition("## 5.")[2]
    assert "they have not run" not in text

    half = emulated.model_copy(update={"gates": [emulated.gates[0], rows[1]]})
    assert "emulated; failed in the emulator for sm_90b (cols_zero: mismatch)" in render_report(planned, half)


def test_a_worst_element_that_is_no_number_is_shown_as_it_is(plan: Plan, evidence: Evidence) -> None:
    worst = {"index": [0], "got": "-inf", "expected": "-inf", "error": 0.0, "bound": "inf"}
    case = evidence.cases[0].model_copy(update={"worst": WorstElement.model_validate(worst)})
    text = render_report(plan, evidence.model_copy(update={"cases": [case]}))
    assert "| 0 / inf |" in text


def test_ptxas_is_not_verified_until_the_kernel_ran(plan: Plan, evidence: Evidence) -> None:
    plan = plan.model_copy(update={"not_verified": [PTXAS]})
    assert f"- {PTXAS}\n" in render_report(plan)
    shown = render_report(plan, evidence).split("## Not verified")[1]
    ran = {each.kernel_id for each in plan.choices if reached(each.kernel_id, evidence) == "ran"}
    left = [each.kernel_id for each in plan.choices if each.kernel_id not in ran]
    assert "sm90_static_2x1x1" in ran
    assert (f"{PTXAS}: {', '.join(left)}" in shown) if left else (PTXAS not in shown)


def test_cases_of_a_gpu_and_of_the_emulator_have_tables_of_their_own(
    plan: Plan, evidence: Evidence, emulated: Evidence
) -> None:
    both = evidence.model_copy(update={"cases": [*evidence.cases, *emulated.cases]})
    text = render_report(plan, both)
    assert text.index("On a GPU") < text.index("In the emulator")
    assert "| measured (us) | of the library |" in text
    assert text.count("of the library |") == 1


def test_a_pair_is_not_said_to_multicast_what_each_of_its_ctas_loads(plan: Plan) -> None:
    assert plan.choice is not None
    work = plan.choice.work.model_copy(update={"mma_ctas": 2})
    pair = plan.model_copy(update={"choice": plan.choice.model_copy(update={"work": work})})
    row = next(line for line in render_report(pair).splitlines() if line.startswith("| schedule |"))
    assert "each CTA loads half of B" in row
    assert "multicast" not in row


def test_no_cluster_sizes_are_listed_for_a_kernel_without_clusters(plan: Plan) -> None:
    text = render_report(plan)
    assert "Residency of sm90_static_2x1x1 by cluster size" in text
    assert "Residency of portable_one_tile" not in text


def test_gates_that_nothing_met_have_no_column(plan: Plan, evidence: Evidence) -> None:
    assert "| kernel | image | kernel hash | rendered | compiled | ran |" in render_report(plan, evidence)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_terminal_rendering_fits_its_width_and_breaks_no_word(plan: Plan, evidence: Evidence, width: int) -> None:
    stream = io.StringIO()
    print_blocks(blocks(plan, evidence), Console(file=stream, width=width))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert max(len(line) for line in lines if "advisor validate" not in line) <= width
    shown = Counter(" ".join(lines).split())
    for block in blocks(plan, evidence):
        if isinstance(block, Table):
            expected = Counter(" ".join(cell_text(each) for row in block.rows for each in row).split())
            assert expected - shown == Counter(), "a word of a table is cut or lost"


@pytest.mark.parametrize(("words", "heads"), [(20, 1), (90, 2)])
def test_a_long_text_does_not_run_down_a_sliver(words: int, heads: int) -> None:
    """It takes the whole width, with the names of the columns beside each row."""
    rows = tuple(("a" * 30, "b" * 30, "word " * count) for count in (1, words))
    stream = io.StringIO()
    print_blocks([Table(("first", "second", "third"), rows)], Console(file=stream, width=80))
    lines = stream.getvalue().splitlines()
    assert sum("first" in line for line in lines) == heads
    assert len(lines) < 25


class _Balance(HTMLParser):
    VOID = frozenset(["meta"])

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_refers_to_nothing_outside(plan: Plan, evidence: Evidence) -> None:
    page = render_html(plan, evidence)
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
    assert "http" not in page
    assert page.count("<h2>") == 6


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (9999, "9999"),
        (1048576, "1,048,576"),
        (0.123456, "0.1235"),
        (3.0, "3"),
        (123456.78, "123,457"),  # six significant digits, as plan.json has them
        (8589934592.0, "8,589,930,000"),
        ([2, 1, 1], "2 x 1 x 1"),
        ({"a_b": 1}, "a b = 1"),
    ],
)
def test_cells_are_written_the_same_everywhere(value: object, text: str) -> None:
    assert cell_text(value) == text


def test_microseconds_read_as_a_unit() -> None:
    assert cell_text({"one_tile_us": 1.5, "status": 2}) == "one tile (us) = 1.5, status = 2"


def test_columns_of_numbers_align_right() -> None:
    assert Table(("a", "b", "c"), (("x", 1, None), ("y", None, None))).numeric == (False, True, False)


def test_what_the_user_said_is_listed_as_the_users_and_defaults_are_not(plan: Plan) -> None:
    problem = {
        **plan.problem,
        "overrides": {"swap_ab": False, "stages": None},
        "assume": {"tile_cost_cv": 0.5, "seed": 0},
        "constraints": {"max_cluster_size": 16, "fallback": "required", "deterministic": True, "sm_budget": None},
    }
    text = render_report(plan.model_copy(update={"problem": problem}))
    assert "| your data | overrides: swap ab = no |" in text
    assert "| your data | assume: tile cost cv = 0.5 |" in text
    assert "| your data | constraints: fallback = required |" in text
    assert "epilogue:" not in text


def test_numbers_of_the_profile_are_evidence_with_their_sources_and_listed_once(plan: Plan) -> None:
    rows = [
        ["clock_hz", 1.5e9, "assumed", "a guess"],
        ["sms", 132, "queried", "the driver"],
        ["compute_capability", [9, 0], "published", "the guide"],
    ]
    machine = {"columns": ["number", "value", "evidence", "source"], "rows": rows}
    step = plan.steps[0].model_copy(update={"artifact": {**plan.steps[0].artifact, "machine": machine}})
    text = render_report(plan.model_copy(update={"steps": [step, *plan.steps[1:]]}))
    assert text.count("the driver") == 1
    assert "| compute capability | 9.0 | published | the guide |" in text
    assert text.index("queried from a live GPU | the driver") < text.index("assumed | a guess") < text.index("## 3.")


def test_a_plan_of_rows_speaks_of_rows() -> None:
    """Every kind's plan counts tiles and stages; the words are the kind's own."""
    text = (Path(__file__).parents[2] / "generated" / "softmax_uneven" / "report.md").read_text(encoding="utf-8")
    assert "1024 rows on 33 clusters" in text
    assert "256 threads, 16 slots" in text
    steps = text[text.index("### Step 6") : text.index("### Step 9")]
    left = re.sub(r"one[_ ]tile|uneven tiles|clc_tail", "", steps)  # the schedule's name, and what others measured
    assert not re.search(r"\btiles?\b|\bstages?\b", left)
