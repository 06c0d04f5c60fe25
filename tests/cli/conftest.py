"""A folder with the examples in it, and a way to run the command there without a new process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.cli import app

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Result:
    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """stdout as the one JSON document that it has to be."""
        return json.loads(self.stdout)


Advisor = Callable[..., Result]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with examples/."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def advisor(workplace: Path) -> Advisor:
    """Runs `advisor ARGUMENTS` in the workplace."""

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(app, list(arguments), prog_name="advisor")
        return Result(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def problem(workplace: Path) -> Callable[[str], str]:
    """Writes `problem.yaml` with the given extra lines and returns its path."""

    def write(extra: str = "", name: str = "problem.yaml") -> str:
        (workplace / name).write_text("kind: gemm\nm: 256\nn: 256\nk: 128\ntarget: h200\n" + extra)
        return name

    return write


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine without a driver, whatever it has."""
    from advisor import runtime
    from advisor.errors import DeviceError

    def missing(index: int = 0, **_: object) -> None:
        raise DeviceError("NO_DRIVER", "no NVIDIA driver on this machine", fix="install the driver")

    monkeypatch.setattr(runtime, "open_device", missing)
