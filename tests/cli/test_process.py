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
    if process.returncode:
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
