"""Each command: what it prints where, its exit status, and what it leaves on disk."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from advisor import workflow
from advisor.cli import app
from advisor.errors import EXIT_DEVICE, EXIT_DONE, EXIT_INPUT, EXIT_NO
from advisor.machine import profile_names

SUITES = Path(__file__).parents[2] / "benchmarks" / "suites"
Advisor = Callable[..., Any]
COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
NEEDS_GPU = {"accept", "probe", "bench", "tune"}
NEEDS_RESULTS = {"tables"}


def test_all_commands_of_the_design_are_there() -> None:
    expected = (
        "plan generate validate report run probe simulate schema doctor explain agreement emulate bench tune tables"
    )
    assert set(COMMANDS) >= set(expected.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_and_shows_one_example(advisor: Advisor, name: str) -> None:
    result = advisor(name, "--help")
    assert result.status == EXIT_DONE
    assert result.stdout.count("Example:") == 1
    assert max(map(len, result.stdout.splitlines())) <= 110
    assert "--json" in result.stdout


def test_help_names_every_profile(advisor: Advisor) -> None:
    text = " ".join(advisor("plan", "--help").stdout.split())
    assert [name for name in profile_names() if f"{name}," not in text] == []


def example_of(advisor: Advisor, name: str) -> list[str]:
    text = advisor(name, "--help").stdout
    found = re.search(r"Example:\n +advisor (.+)", text)
    assert found, text
    return shlex.split(found.group(1))


@pytest.mark.slow
def test_the_examples_of_help_run_in_the_order_of_the_readme(advisor: Advisor) -> None:
    order = ["plan", "generate", "validate", "report", "run", "simulate", "emulate", "agreement", "schema", "explain"]
    order.append("doctor")
    assert set(COMMANDS) - set(order) == NEEDS_GPU | NEEDS_RESULTS
    for name in order:
        arguments = example_of(advisor, name)
        assert arguments[0] == name
        result = advisor(*arguments)
        assert result.status == EXIT_DONE, (arguments, result.stdout[-2000:], result.stderr[-2000:])


# --- usage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("plna",),
        ("plan",),
        ("plan", "--nonsense"),
        ("plan", "missing.yaml"),
        ("plan", "examples"),
        ("plan", "examples/gemm.yaml", "--target", "b20"),
        ("plan", "examples/gemm.yaml", "--target", "missing.toml"),
        ("run", "examples/gemm_small.yaml", "--device", "emulator:0"),
        ("probe", "--device", "emulator"),
        ("run", "examples/gemm_small.yaml", "--device", "cuda:x"),
        ("validate", "missing"),
        ("validate", "examples"),
        ("report", "examples"),
        ("report", "examples", "--format", "pdf"),
        ("schema", "nothing"),
        ("explain", "NOT_A_CODE"),
    ],
)
def test_a_wrong_argument_exits_2_with_one_clear_message(advisor: Advisor, arguments: tuple[str, ...]) -> None:
    result = advisor(*arguments)
    assert result.status == EXIT_INPUT
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr


def test_an_error_names_code_and_fix_on_stderr(advisor: Advisor, problem: Callable[..., str]) -> None:
    result = advisor("plan", problem("typ: bf16\n"))
    assert result.status == EXIT_INPUT
    assert "problem.yaml:6: typ:" in result.stderr
    assert "[PROBLEM_UNKNOWN_KEY]" in result.stderr
    assert "fix: did you mean dtype?" in result.stderr


def test_an_error_with_json_is_one_document_on_stdout(advisor: Advisor, problem: Callable[..., str]) -> None:
    result = advisor("plan", problem("batch: -2\n"), "--json")
    assert result.status == EXIT_INPUT
    assert result.document["error"]["code"] == "PROBLEM_RANGE"
    assert result.document["error"]["line"] == 6
    assert result.document["error"]["numbers"]["value"] == -2


def test_a_required_gpu_that_is_not_there_exits_3(advisor: Advisor, no_gpu: None, workplace: Path) -> None:
    result = advisor("run", "examples/gemm_small.yaml", "--device", "cuda")
    assert result.status == EXIT_DEVICE
    assert "[NO_DRIVER]" in result.stderr
    assert not (workplace / "generated").exists()


@pytest.mark.parametrize("words", [("bench", f"{SUITES}/decode.yaml"), ("tune", "examples/gemm_small.yaml")])
def test_what_measures_takes_no_emulator(advisor: Advisor, workplace: Path, words: tuple[str, str]) -> None:
    result = advisor(*words, "--device", "emulator")
    assert result.status == EXIT_INPUT
    assert "[DEVICE_UNKNOWN]" in result.stderr
    assert "emulator" not in advisor(words[0], "--help").stdout


def test_probe_without_a_gpu_exits_3(advisor: Advisor, no_gpu: None) -> None:
    result = advisor("probe", "--json")
    assert result.status == EXIT_DEVICE
    assert result.document["error"]["code"] == "NO_DRIVER"


# --- plan ----------------------------------------------------------------------------------------------------------


def test_plan_prints_the_conclusion_first_and_writes_nothing(advisor: Advisor, workplace: Path) -> None:
    before = sorted(workplace.rglob("*"))
    result = advisor("plan", "examples/gemm.yaml", "--target", "h200")
    assert result.status == EXIT_DONE
    assert result.stdout.index("1. Conclusion") < result.stdout.index("rung")
    assert sorted(workplace.rglob("*")) == before


def test_plan_json_is_plan_json(advisor: Advisor) -> None:
    from advisor.records.base import canonical_json
    from advisor.records.plan import Plan

    result = advisor("plan", "examples/gemm.yaml", "--target", "h200", "--json")
    plan = Plan.model_validate(result.document)
    assert canonical_json(plan) == result.stdout
    assert plan.target.profile == "h200"


def test_plan_full_prints_nine_steps(advisor: Advisor) -> None:
    result = advisor("plan", "examples/gemm.yaml", "--target", "h200", "--full")
    assert [n for n in range(1, 10) if f"Step {n}:" in result.stdout] == list(range(1, 10))


def test_an_empty_problem_is_done_and_launches_nothing(advisor: Advisor, workplace: Path) -> None:
    (workplace / "empty.yaml").write_text("kind: gemm\nm: 0\nn: 8\nk: 8\ntarget: h200\n")
    result = advisor("run", "empty.yaml")
    assert result.status == EXIT_DONE
    assert "nothing to launch" in result.stdout
    assert "nothing was rendered" in result.stdout
    assert not (workplace / "generated").exists()


def test_a_refusal_exits_1_with_its_reasons_and_writes_nothing(
    advisor: Advisor, problem: Callable[..., str], workplace: Path
) -> None:
    path = problem("overrides: {schedule: clc}\n")
    for arguments in (("plan", path), ("generate", path), ("run", path)):
        result = advisor(*arguments)
        assert result.status == EXIT_NO
        assert "refused" in result.stdout
        assert "CLC" in result.stdout
    assert advisor("plan", path, "--json").document["verdict"] == "refuse"
    assert not (workplace / "generated").exists()


@pytest.mark.parametrize(
    ("lines", "status", "code", "words"),
    [
        ("target: h200\na: {ld: 4099}", EXIT_DONE, "TMA_STRIDE_16B", ["operand A", "8198 bytes", "4104"]),
        ("target: b200\noverrides: {cluster: [3, 1, 1], mma_ctas: 2}", EXIT_NO, "PAIR_IN_CLUSTER", ["it is 3"]),
        (
            "target: b200\nconstraints: {max_cluster_size: 8}\noverrides: {cluster: [16, 1, 1]}",
            EXIT_NO,
            "CLUSTER_OVER_CONSTRAINT",
            ["max_cluster_size is 8"],
        ),
        (
            "target: h200\noverrides: {tile: [128, 256, 64], stages: 8}",
            EXIT_NO,
            "SMEM_OVER_LIMIT",
            ["232448"],
        ),
        ("target: h200\noverrides: {schedule: clc}", EXIT_NO, "NO_CLC", ["10.0"]),
        (
            "target: b200\nconstraints: {sm_budget: 64}\noverrides: {schedule: clc}",
            EXIT_NO,
            "SM_BUDGET_SCHEDULE",
            ["whole grid"],
        ),
        ("target: h200\noverrides: {kernel: sm100}", EXIT_NO, None, ["sm100"]),
        ("target: h200\ndtype: e4m3\na: {major: m}", EXIT_DONE, "WGMMA_MN_MAJOR", ["operand A"]),
    ],
)
def test_a_wish_that_no_kernel_grants_is_refused_or_adjusted_with_its_numbers(
    advisor: Advisor, workplace: Path, lines: str, status: int, code: str | None, words: list[str]
) -> None:
    (workplace / "wish.yaml").write_text(f"kind: gemm\nm: 4096\nn: 4096\nk: 4096\n{lines}\n")
    result = advisor("plan", "wish.yaml", "--json")
    assert result.status == status, result.document["conclusion"]
    findings = {each["code"]: each for each in result.document["findings"]}
    text = result.document["conclusion"] + " ".join(each["message"] for each in findings.values())
    assert code is None or code in findings
    assert [each for each in words if each not in text] == []
    if status == EXIT_DONE:
        assert result.document["verdict"] == "adjust"


def test_a_plan_claims_no_more_than_arithmetic(advisor: Advisor) -> None:
    for target in ("b200", "h200"):
        text = " ".join(advisor("plan", "examples/gemm.yaml", "--target", target, "--full").stdout.split())
        assert "evidence reached planned: arithmetic only" in text
        assert "planned only" not in text
        assert "no kernel yet" not in text


def test_target_auto_without_a_gpu_plans_for_b200_and_says_so(
    advisor: Advisor, problem: Callable[..., str], no_gpu: None
) -> None:
    result = advisor("plan", problem(), "--target", "auto", "--json")
    assert result.status == EXIT_DONE
    assert result.document["target"] == {
        "name": "auto",
        "arch": "sm_100a",
        "profile": "b200",
        "source": "profile",
    }
    assert "no GPU" in result.stderr


def test_a_profile_file_of_the_problem_is_relative_to_the_problem(advisor: Advisor, workplace: Path) -> None:
    from advisor.machine import load_profile
    from advisor.machine.profile_file import write_profile

    folder = workplace / "elsewhere"
    folder.mkdir()
    (folder / "mine.toml").write_text(write_profile(load_profile("h100")))
    (folder / "p.yaml").write_text("kind: gemm\nm: 512\nn: 512\nk: 512\ntarget: ./mine.toml\n")
    result = advisor("plan", "elsewhere/p.yaml", "--json")
    assert result.status == EXIT_DONE, result.stderr
    assert result.document["target"]["name"] == "mine.toml"
    assert str(workplace) not in result.stdout


# --- generate, validate, report, run --------------------------------------------------------------------------------


@pytest.fixture
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator runs two cases of each rung."""
    from advisor.validation.driver import Driver

    every = Driver.cases_of

    def few(self: Driver, *about: Any, **how: Any) -> list[Any]:
        return [each for each in every(self, *about, **how) if each.name in ("k_one", "tile_plus_one")]

    monkeypatch.setattr(Driver, "cases_of", few)


@pytest.fixture
def bundle(advisor: Advisor, problem: Callable[..., str]) -> str:
    result = advisor("generate", problem(name="tiny.yaml"), "--quiet")
    assert result.status == EXIT_DONE, result.stderr
    return "generated/tiny"


@pytest.mark.slow
def test_generate_writes_a_whole_bundle_with_its_planned_report(
    advisor: Advisor, problem: Callable[..., str], workplace: Path
) -> None:
    result = advisor("generate", problem(name="tiny.yaml"), "--output", "out", "--json")
    assert result.status == EXIT_DONE, result.stderr
    folder = workplace / "out" / "tiny"
    for name in ("problem.yaml", "plan.json", "launch.json", "manifest.json", "report.md", "build/build.json"):
        assert (folder / name).is_file(), name
    assert result.document["bundle"] == "out/tiny" or result.document["bundle"].endswith("/out/tiny")
    assert all(image["spill_bytes"] == 0 for image in result.document["images"])
    assert result.document["broken"] == []
    assert "build" in result.stderr
    assert "evidence reached | planned" in (folder / "report.md").read_text()
    assert [path.name for path in (workplace / "out").iterdir()] == ["tiny"]


@pytest.mark.slow
def test_the_same_problem_gives_the_same_bytes_twice(
    advisor: Advisor, problem: Callable[..., str], workplace: Path
) -> None:
    path = problem(name="tiny.yaml")
    for output in ("first", "second"):
        assert advisor("generate", path, "--output", output).status == EXIT_DONE
    names = [p.relative_to(workplace / "first") for p in (workplace / "first").rglob("*") if p.is_file()]
    different = [n for n in names if (workplace / "first" / n).read_bytes() != (workplace / "second" / n).read_bytes()]
    assert len(names) > 10
    assert different == []


@pytest.mark.slow
def test_run_without_a_gpu_is_done_and_says_what_did_not_run(
    advisor: Advisor, problem: Callable[..., str], no_gpu: None, few_runs: None, workplace: Path
) -> None:
    result = advisor("run", problem(name="tiny.yaml"))
    assert result.status == EXIT_DONE, result.stderr
    assert "No kernel ran on a GPU" in result.stdout
    assert "NO_DRIVER" in result.stdout
    text = (workplace / "generated/tiny/report.validated.md").read_text()
    assert "| evidence reached | emulated: the PTX ran on the CPU" in text
    assert "Evidence of the kernel: emulated; no time was measured." in text
    assert "sm90_one_tile for sm_90a" in text
    assert ": not run, no NVIDIA driver" in text
    assert "- ptxas: what ships is its SASS, shown only by a run on the chip: sm90_one_tile" in text
    assert "evidence reached | planned" in (workplace / "generated/tiny/report.md").read_text()


@pytest.mark.slow
def test_validate_without_a_gpu_emulates_and_says_what_did_not_run(
    advisor: Advisor, bundle: str, no_gpu: None, few_runs: None
) -> None:
    result = advisor("validate", bundle, "--json")
    assert result.status == EXIT_DONE
    assert (result.document["verdict"], result.document["devices"]) == ("pass", ["emulator"])
    assert "driver" in result.document["not_run_reason"]
    gates = {gate["gate"]: gate["result"] for row in result.document["gates"] for gate in row["gates"]}
    assert gates == {"rendered": "pass", "compiled": "pass", "emulated": "pass", "ran": "not_run"}
    assert advisor("validate", bundle, "--device", "cuda").status == EXIT_DEVICE


@pytest.mark.slow
def test_a_bundle_whose_ptx_is_wrong_exits_1_and_names_the_fault(
    advisor: Advisor, bundle: str, few_runs: None, workplace: Path
) -> None:
    build = workplace / bundle / "build"
    ptx = build / "sm90_one_tile.sm_90a.ptx"
    ptx.write_text(re.sub(r"cp\.async\.bulk\.wait_group 0;", "", ptx.read_text()))
    document = json.loads((build / "build.json").read_text())
    row = next(each for each in document["images"] if each["kernel_id"] == "sm90_one_tile")
    row["ptx_sha256"] = hashlib.sha256(ptx.read_bytes()).hexdigest()
    (build / "build.json").write_text(json.dumps(document))
    result = advisor("validate", bundle, "--device", "emulator")
    assert result.status == EXIT_NO, result.stderr
    assert "EMU_ASYNC_AT_EXIT" in result.stdout
    assert "sm90_one_tile for sm_90a failed at emulated" in " ".join(result.stdout.split())
    again = advisor("validate", bundle, "--device", "emulator", "--json")
    assert again.document["verdict"] == "fail"
    assert {each["verdict"] for each in again.document["cases"] if each["rung"] == "sm90_one_tile"} == {"protocol"}


@pytest.mark.slow
def test_full_emulates_the_product_of_policies_and_seeds(advisor: Advisor, bundle: str, few_runs: None) -> None:
    result = advisor("validate", bundle, "--device", "emulator", "--full", "--json")
    assert result.status == EXIT_DONE
    runs = [len(each["runs"]) for each in result.document["cases"] if each["launches"]]
    assert set(runs) == {4 * 8}


@pytest.mark.slow
def test_a_bundle_edited_by_hand_is_refused(advisor: Advisor, bundle: str, workplace: Path) -> None:
    source = next((workplace / bundle).glob("kernel_*.cu"))
    source.write_text(source.read_text() + "// mine\n")
    for command in ("validate", "report"):
        result = advisor(command, bundle)
        assert result.status == EXIT_INPUT
        assert "BUNDLE_EDITED" in result.stderr
    again = advisor("generate", "tiny.yaml")
    assert again.status == EXIT_INPUT
    assert source.read_text().endswith("// mine\n")


@pytest.mark.slow
def test_report_reads_a_bundle_in_three_formats(advisor: Advisor, bundle: str) -> None:
    terminal = advisor("report", bundle)
    markdown = advisor("report", bundle, "--format", "md")
    html = advisor("report", bundle, "--format", "html")
    document = advisor("report", bundle, "--json").document
    assert (terminal.status, markdown.status, html.status) == (EXIT_DONE, EXIT_DONE, EXIT_DONE)
    assert markdown.stdout.startswith("# tiny on h200")
    assert html.stdout.startswith("<!doctype html>")
    assert document["markdown"] == markdown.stdout
    assert document["evidence_rung"] == "planned"
    assert max(map(len, terminal.stdout.splitlines())) <= 100


@pytest.mark.parametrize("kind", ["file", "bundle is a file", "other files", "read-only"])
def test_an_output_that_cannot_be_written_exits_2_and_touches_nothing(
    advisor: Advisor, problem: Callable[..., str], workplace: Path, kind: str
) -> None:
    path = problem(name="tiny.yaml")
    target = Path("/proc/advisor") if kind == "read-only" else workplace / "out"
    if kind == "file":
        target.write_text("mine")
    elif kind != "read-only":
        target.mkdir()
        mine = target / "tiny" if kind == "bundle is a file" else target / "tiny" / "notes.txt"
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("mine")
    before = {each: each.read_bytes() for each in workplace.rglob("*") if each.is_file()}
    result = advisor("generate", path, "--output", str(target))
    assert result.status == EXIT_INPUT, result.stdout
    assert "[OUTPUT_" in result.stderr
    assert {each: each.read_bytes() for each in workplace.rglob("*") if each.is_file()} == before


# --- tools ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["problem", "plan", "launch", "resolved", "evidence"])
def test_schema_prints_a_json_schema(advisor: Advisor, name: str) -> None:
    import jsonschema

    result = advisor("schema", name)
    assert result.status == EXIT_DONE
    jsonschema.Draft202012Validator.check_schema(result.document)


def test_explain_prints_a_page_and_lists_all(advisor: Advisor) -> None:
    page = advisor("explain", "problem_syntax")
    assert page.status == EXIT_DONE
    assert page.stdout.startswith("PROBLEM_SYNTAX (error): ")
    assert "What to do:" in page.stdout
    everything = advisor("explain")
    assert len(everything.stdout.splitlines()) > 50
    assert advisor("explain", "--json").document[0]["code"]


@pytest.mark.parametrize("arguments", [("explain",), ("explain", "CLUSTER_OCCUPANCY"), ("doctor",)])
def test_what_is_printed_line_by_line_keeps_to_80_columns(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    narrow = advisor(*arguments).stdout
    monkeypatch.setenv("COLUMNS", "1000")
    wide = advisor(*arguments).stdout
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.split() == wide.split()


def test_doctor_without_a_gpu_is_healthy_and_gives_the_reason(advisor: Advisor, no_gpu: None) -> None:
    result = advisor("doctor", "--json")
    assert result.status == EXIT_DONE
    checks = {each["name"]: each for each in result.document["checks"]}
    assert checks["compiler"]["ok"]
    assert not checks["gpu"]["ok"]
    assert "NO_DRIVER" in checks["gpu"]["detail"]


def test_doctor_exits_3_when_nothing_can_be_compiled(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor import doctor

    missing = doctor.Check("compiler", False, "no NVRTC", "pip install nvidia-cuda-nvrtc")
    monkeypatch.setattr(doctor, "examine", lambda: [missing])
    result = advisor("doctor")
    assert result.status == EXIT_DEVICE
    assert "pip install nvidia-cuda-nvrtc" in result.stdout


def test_agreement_prints_a_share_per_type_and_the_rows_that_differ(advisor: Advisor) -> None:
    result = advisor("agreement", "--dtype", "bf16", "--differing")
    assert result.status == EXIT_DONE
    assert "bf16" in result.stdout
    assert "Rows that differ" in result.stdout
    document = advisor("agreement", "--dtype", "bf16", "--json").document
    assert [each["dtype"] for each in document] == ["bf16", "all"]
    assert 0.5 < document[0]["pair"] <= 1.0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("agreement", "missing.csv"), "TABLE_UNREADABLE"),
        (("agreement", "/dev/zero"), "TABLE_UNREADABLE"),
        (("agreement", "examples"), "TABLE_UNREADABLE"),
        (("agreement", "examples/gemm.yaml"), "AGREEMENT_COLUMNS"),
        (("agreement", "--dtype", "fp64"), "AGREEMENT_EMPTY"),
        (("agreement", "--target", "b20"), "UNKNOWN_TARGET"),
    ],
)
def test_a_table_that_cannot_be_compared_exits_2(advisor: Advisor, arguments: tuple[str, ...], code: str) -> None:
    result = advisor(*arguments)
    assert result.status == EXIT_INPUT
    assert f"[{code}]" in result.stderr


def test_simulate_compares_every_schedule_of_the_plans_shape(advisor: Advisor) -> None:
    result = advisor("simulate", "examples/gemm_tail.yaml", "--cost-cv", "0.8")
    assert result.status == EXIT_DONE
    assert "no kernel ran" in result.stdout
    pictures = [line for line in result.stdout.splitlines() if line.count("|") == 2]
    assert [line.split()[0] for line in pictures] == ["one_tile", "static", "ticket"]
    rows = advisor("simulate", "examples/gemm_tail.yaml", "--cost-cv", "0.8", "--json").document["schedules"]
    by_name = {row["schedule"]: row for row in rows}
    assert by_name["ticket"]["total_us"] < by_name["static"]["total_us"]


def test_simulate_of_a_refusal_says_why(advisor: Advisor, problem: Callable[..., str]) -> None:
    result = advisor("simulate", problem("overrides: {schedule: clc}\n"))
    assert result.status == EXIT_NO
    assert "refused" in result.stdout


# --- frame ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_exits_130(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(workflow, "plan_file", interrupted)
    result = advisor("plan", "examples/gemm.yaml")
    assert result.status == 130
    assert "interrupted" in result.stderr


def test_a_fault_of_the_tool_exits_3_with_its_trace(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(workflow, "plan_file", fault)
    result = advisor("plan", "examples/gemm.yaml", "--json")
    assert result.status == EXIT_DEVICE
    assert result.document["error"]["code"] == "INTERNAL_FAULT"
    assert "ZeroDivisionError: a bug" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("plan",), "advisor plan"),
        (("plan", "examples/gemm.yaml", "--bogus"), "advisor plan"),
        (("plan", "examples/gemm.yaml", "extra"), "advisor plan"),
        (("plan", "--target"), "advisor"),  # the parser says no more
        (("simulate", "examples/gemm.yaml", "--busy-sms", "-1"), "advisor simulate"),
        (("doctor", "now"), "advisor doctor"),
        (("deploy",), "advisor"),
    ],
)
def test_a_wrong_command_line_is_a_document_too(advisor: Advisor, arguments: tuple[str, ...], place: str) -> None:
    plain = advisor(*arguments)
    assert plain.status == EXIT_INPUT
    assert plain.stdout == ""
    assert "Error: " in plain.stderr
    result = advisor(arguments[0], "--json", *arguments[1:])
    assert result.status == EXIT_INPUT
    error = result.document["error"]
    assert error["code"] == "COMMAND_LINE"
    assert error["message"] in re.sub(r"\s+", " ", result.stderr)
    assert error["fix"] == f"see {place} --help"


def test_a_class_that_ctrl_c_struck_while_it_was_made_is_an_interruption(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python wraps what __set_name__ raises; a dataclass in a module that a command imports is such a place."""

    def struck(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as cause:
            raise RuntimeError("Error calling __set_name__ on 'Field' instance") from cause

    monkeypatch.setattr(workflow, "plan_file", struck)
    result = advisor("plan", "examples/gemm.yaml")
    assert result.status == 130
    assert "interrupted" in result.stderr
    assert "INTERNAL_FAULT" not in result.stderr


def test_a_target_that_the_file_names_wrongly_is_the_files_line(
    advisor: Advisor, problem: Callable[..., str], workplace: Path
) -> None:
    (workplace / "p.yaml").write_text("kind: gemm\nm: 8\nn: 8\nk: 8\ntarget: h2000\n")
    assert "p.yaml:5: target: unknown target 'h2000'" in advisor("plan", "p.yaml").stderr
    (workplace / "p.yaml").write_text("kind: gemm\nm: 8\nn: 8\nk: 8\ntarget: ./none.toml\n")
    result = advisor("plan", "p.yaml", "--json")
    assert (result.document["error"]["file"], result.document["error"]["line"]) == ("p.yaml", 5)
    assert "none.toml" in result.document["error"]["message"]
    assert advisor("plan", "p.yaml", "--target", "h2000").stderr.startswith("error: unknown target")


def test_names_of_files_stay_on_their_line_and_send_no_terminal_codes(advisor: Advisor, workplace: Path) -> None:
    from advisor.machine import load_profile
    from advisor.machine.profile_file import write_profile

    name = "a\n# b\x1b[31m\udcff.toml"
    (workplace / name).write_text(write_profile(load_profile("h200")))
    result = advisor("plan", "examples/gemm.yaml", "--target", f"./{name}", "--json")
    assert result.document["target"]["name"] == r"a\n# b\x1b[31m\udcff.toml"
    assert advisor("plan", "a\nb.yaml").stderr.startswith(r"error: a\nb.yaml: there is no such file")


@pytest.mark.slow
def test_the_command_that_is_shown_can_be_typed(advisor: Advisor, problem: Callable[..., str]) -> None:
    result = advisor("generate", problem(name="tiny.yaml"), "--output", "my folder")
    shown = re.search(r"read it: (advisor report .*)", result.stdout)
    assert shown is not None
    assert advisor(*shlex.split(shown[1])[1:]).status == EXIT_DONE


@pytest.mark.parametrize("place", ["x" * 300, "/dev/null/x", "file/x", "loop/x"])
def test_doctor_says_that_a_cache_cannot_be_written(
    advisor: Advisor, no_gpu: None, workplace: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (workplace / "file").write_text("")
    (workplace / "loop").symlink_to("loop")
    monkeypatch.setenv("ADVISOR_CACHE_DIR", place)
    result = advisor("doctor", "--json")
    assert result.status == EXIT_DONE
    cache = next(each for each in result.document["checks"] if each["name"] == "cache")
    assert not cache["ok"]
    assert "cannot be written" in cache["detail"]


# --- what a hostile caller does ---------------------------------------------------------------------------------------


def test_an_option_of_the_validation_is_refused_before_anything_is_written(
    advisor: Advisor, problem: Callable[..., str], no_gpu: None, workplace: Path
) -> None:
    path = problem(name="tiny.yaml")
    (workplace / "file").write_text("mine")
    for options, code in ((("--experiment", "cd"), "EXPERIMENT_UNKNOWN"), (("--keep", "file"), "OUTPUT_NOT_WRITABLE")):
        result = advisor("run", path, *options)
        assert result.status == EXIT_INPUT
        assert f"[{code}]" in result.stderr
    assert not (workplace / "generated").exists()


@pytest.mark.slow
def test_an_image_of_another_source_is_no_evidence(
    advisor: Advisor, bundle: str, no_gpu: None, few_runs: None, workplace: Path
) -> None:
    """build.json agrees with the files beside it, and says of a source that is not the bundle's."""
    place = workplace / bundle / "build" / "build.json"
    document = json.loads(place.read_text())
    document["images"][0]["kernel_hash"] = "0" * 64
    place.write_text(json.dumps(document))
    result = advisor("validate", bundle, "--json")
    assert result.status == EXIT_INPUT
    assert result.document["error"]["code"] == "BUILD_EDITED"
    shutil.rmtree(place.parent)
    assert advisor("validate", bundle).status == EXIT_DONE


@pytest.mark.slow
def test_a_bundle_that_another_process_replaced_gets_nothing_of_this_one(
    advisor: Advisor, problem: Callable[..., str], workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from advisor import bundle as room

    assert advisor("generate", problem("d: {dtype: fp32}\n", name="tiny.yaml"), "--output", "other").status == EXIT_DONE
    path = problem(name="tiny.yaml")
    write = room.write_bundle

    def overtaken(folder: Path, rendered: object) -> Path:
        written = write(folder, rendered)  # type: ignore[arg-type]
        shutil.rmtree(written)
        shutil.copytree(workplace / "other" / "tiny", written)
        return written

    monkeypatch.setattr(room, "write_bundle", overtaken)
    result = advisor("generate", path)
    assert result.status == EXIT_INPUT
    assert "[OUTPUT_CHANGED]" in result.stderr
    report = Path("generated/tiny/report.md")
    assert report.read_bytes() == (workplace / "other" / "tiny" / "report.md").read_bytes()
