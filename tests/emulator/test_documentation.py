"""docs/emulator.md is what it says: its first program runs, and its list of codes is the registry's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import registry
from tests.emulator.golden.cases import all_cases

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "emulator.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text of a section, without its title."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, flags=re.M | re.S)
    return found


def test_the_first_program_runs_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    program = re.search(r"```python\n(.*?)```", PAGE, flags=re.S)
    assert program is not None
    names: dict[str, object] = {}
    exec(compile(program[1], "docs/emulator.md", "exec"), names)
    y = names["y"]
    assert isinstance(y, np.ndarray)
    assert y.shape == (1000,)


def test_every_code_is_in_the_list_and_warnings_are_marked() -> None:
    rows = [line for line in section("What it reports").splitlines() if line.startswith("| ")]
    listed = re.findall(r"(EMU_\w+)( \(a warning\))?", "\n".join(rows))
    pages = {code: page.severity for code, page in registry().items() if code.startswith("EMU_")}
    assert {code for code, _ in listed} == set(pages)
    wrongly = {code for code, marked in listed if bool(marked) != (pages[code] == "warning")}
    assert wrongly == set()


def test_the_number_of_golden_cases_is_the_number_of_golden_cases() -> None:
    numbers = (ROOT / "docs" / "emulator_numbers.md").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"single-instruction kernels, {len(all_cases())} of them" in numbers
    assert f"agrees with {len(all_cases())} golden cases" in changes
