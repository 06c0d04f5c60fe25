"""The walks in docs/emulator.md, command by command as they are written there, with the output that stands below each.

A listing may break lines anywhere; `...` stands for what it leaves out.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.compilers.harness import needs_triton
from tests.emulator.test_documentation import section

ROOT = Path(__file__).parents[3]
COMMANDS = ("python ", "advisor ", "sed ")

pytestmark = needs_triton


def steps(title: str) -> Iterator[tuple[str, str]]:
    """Each command of a section, and the listing under it."""
    lines = [line[4:] for line in section(title).splitlines() if line.startswith("    ")]
    command, listing = "", ""
    for line in lines:
        if line.startswith(COMMANDS):
            if command:
                yield command, listing
            command, listing = line, ""
        elif not line.startswith("pip "):  # the development environment has it
            listing += line + "\n"
    yield command, listing


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("title", ["A Triton kernel, with no GPU", "A Gluon kernel that claims its work"])
def test_the_documented_walk(title: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "emulate", tmp_path / "examples" / "emulate")
    programs = {"python": [sys.executable], "advisor": [sys.executable, "-m", "advisor"], "sed": ["sed"]}
    faults = 0
    for command, listing in steps(title):
        program, *arguments = shlex.split(command)
        before = (tmp_path / "matmul.ptx").read_text() if program == "sed" else ""
        done = subprocess.run(
            [*programs[program], *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        wrong = " failed: " in listing
        faults += wrong
        assert done.returncode == int(wrong), done.stderr
        if program == "sed":
            assert len(before) - len((tmp_path / "matmul.ptx").read_text()) == len("fence.proxy.async.shared::cta;")
        found = words(done.stdout)
        pieces = [words(each) for each in re.split(r"^\s*\.\.\.$", listing, flags=re.M)]
        assert found.startswith(pieces[0]), (command, found)
        for piece in pieces:
            assert piece in found, (command, piece, found)
            found = found[found.index(piece) + len(piece) :]
        assert not listing.strip() or not found or not pieces[-1], f"{command}: the listing ends before {found!r}"
    assert faults == 1
