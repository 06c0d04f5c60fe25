"""The command as its own process: how fast it starts, and what an interruption leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ADVISOR = [sys.executable, "-m", "advisor"]
ROOT = Path(__file__).parent.parent.parent


def test_plan_from_a_cold_shell_takes_at_most_0_8_seconds(workplace: Path) -> None:
    """CPU seconds of the process, best of three: on an idle core that is the wall clock, and beside other tests the
    wall clock measures them."""
    command = [*ADVISOR, "plan", "examples/gemm.yaml", "--target", "b200"]
    seconds = []
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        seconds.append(usage.ru_utime + usage.ru_stime)
    assert min(seconds) <= 0.8, seconds


def test_json_progress_and_result_do_not_mix(workplace: Path) -> None:
    command = [*ADVISOR, "plan", "examples/gemm.yaml", "--target", "h200", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0
    assert json.loads(result.stdout)["schema_version"] == 1
    assert result.stdout.endswith("}\n")


@pytest.mark.parametrize("arguments", ["explain", "plan examples/gemm_small.yaml"])
def test_a_closed_pipe_is_no_error(workplace: Path, arguments: str) -> None:
    line = f"{sys.executable} -m advisor {arguments} | head -1"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=60)
    assert result.stderr == ""
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("plan examples/gemm_small.yaml > /dev/full", 2, "[OUTPUT_NOT_WRITABLE]"),
        ("plan examples/gemm_small.yaml --json > /dev/full", 2, "[OUTPUT_NOT_WRITABLE]"),
        ("explain > /dev/full", 2, "[OUTPUT_NOT_WRITABLE]"),
        ("--help > /dev/full", 2, "No space left"),
        ("plan examples/gemm_small.yaml >&-", 0, ""),
        ("plan examples/gemm_small.yaml 2>&- > /dev/null", 0, ""),
        ("plan nothing.yaml 2> /dev/full", 2, ""),
        ("plan nothing.yaml 2>&-", 2, ""),
    ],
)
def test_streams_that_cannot_be_written_are_no_fault_of_the_tool(
    workplace: Path, line: str, status: int, words: str
) -> None:
    result = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m advisor {line}"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == status, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_nobody_reading_the_progress_does_not_end_the_work(workplace: Path) -> None:
    line = f"{sys.executable} -m advisor generate examples/gemm_small.yaml --output out 2>&1 | head -1"
    subprocess.run(["bash", "-c", line], capture_output=True, timeout=120, check=True)
    assert (workplace / "out" / "gemm_small" / "report.md").is_file()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_utf_8_whatever_the_locale(workplace: Path, encoding: str) -> None:
    name = "gemm_größe_\N{GRINNING FACE}.yaml"
    result = subprocess.run(
        [*ADVISOR, "plan", name, "--json"],
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert result.returncode == 2
    assert json.loads(result.stdout.decode("utf-8"))["error"]["file"] == name


def test_a_file_name_that_is_no_text_is_shown_and_is_valid_json(workplace: Path) -> None:
    for options in ([], ["--json"]):
        command = [*ADVISOR, "plan", b"g\xff.yaml", *options]
        result = subprocess.run(command, capture_output=True, timeout=60)
        assert result.returncode == 2
        assert b"PROBLEM_UNREADABLE" in result.stderr
        if options:
            assert json.loads(result.stdout)["error"]["code"] == "PROBLEM_UNREADABLE"


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.8, 1.3])
def test_a_request_to_end_leaves_no_staging_folder(workplace: Path, delay: float) -> None:
    environment = {**os.environ, "ADVISOR_CACHE_DIR": str(workplace / "cache")}
    command = [*ADVISOR, "generate", "examples/gemm_small.yaml", "--output", "out"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(delay)
    process.terminate()
    assert process.wait(timeout=120) in (0, 143, -signal.SIGTERM)
    left = [each.name for each in (workplace / "out").iterdir()] if (workplace / "out").exists() else []
    assert [name for name in left if name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.5, 1.0, 1.5, 2.5])
def test_ctrl_c_leaves_a_whole_bundle_or_none(workplace: Path, delay: float) -> None:
    environment = {**os.environ, "ADVISOR_CACHE_DIR": str(workplace / "cache")}
    command = [*ADVISOR, "generate", "examples/gemm_small.yaml", "--output", "out"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    # CPython ends by the signal itself, which a shell shows as 130 too, when it struck while a module was executed.
    assert process.returncode in (0, 130, -signal.SIGINT), stderr
    folder = workplace / "out"
    if process.returncode == 130:
        assert "interrupted" in stderr
    left = [each.name for each in folder.iterdir()] if folder.exists() else []
    assert [name for name in left if name.startswith(".")] == []
    if "gemm_small" in left:
        from advisor.bundle import read_bundle

        assert read_bundle(folder / "gemm_small").name == "gemm_small"


def test_the_terminal_report_has_no_colour_codes_in_a_pipe(workplace: Path) -> None:
    command = [*ADVISOR, "plan", "examples/gemm_small.yaml"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "\x1b[" not in result.stdout + result.stderr
