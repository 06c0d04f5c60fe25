"""Every committed bundle in the emulator: all its kernels and images, all cases, every policy."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from advisor.bundle import read_bundle, write_build
from advisor.validation import Emulation, validate
from advisor.workflow import build

GENERATED = Path(__file__).parent.parent.parent / "generated"
NAMES = sorted(each.parent.name for each in GENERATED.glob("*/manifest.json"))
CPU_LIMIT_S = 120.0  # 60 s on two cores


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_right_in_the_emulator_in_time(name: str, tmp_path: Path) -> None:
    bundle = read_bundle(shutil.copytree(GENERATED / name, tmp_path / name))
    write_build(bundle, build(bundle))
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    evidence = validate(bundle, device=None, emulation=Emulation(processes=1))  # pytest has two processes itself
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    wrong = [(each.rung, each.name, each.verdict, each.detail) for each in evidence.cases if each.verdict != "correct"]
    assert wrong == []
    assert evidence.verdict == "pass"
    for row in evidence.gates:
        assert row.reached == "emulated", (row.kernel_id, row.image)
    assert ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime < CPU_LIMIT_S
