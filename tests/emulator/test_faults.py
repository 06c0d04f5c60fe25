"""Every seeded fault is named, every twin is silent, every code has a fault, and the committed table is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import AdvisorError, registry
from tests.emulator.faults import FAULTS, MISTAKES
from tests.emulator.faults.field import INCIDENTS
from tests.emulator.faults.model import WRONG_VALUES, Fault, Kernel, Mistake, codes_of
from tests.emulator.faults.table import table

ROOT = Path(__file__).parent.parent.parent
TWINS: dict[Kernel, str] = {}
for each in FAULTS:
    TWINS.setdefault(each.twin, each.name)


@pytest.mark.parametrize("fault", FAULTS, ids=[each.name for each in FAULTS])
def test_the_fault_is_named(fault: Fault) -> None:
    assert fault.code in fault.found()


@pytest.mark.parametrize("twin", TWINS, ids=TWINS.values())
def test_the_twin_is_silent_under_every_policy(twin: Kernel) -> None:
    for setting in twin.settings:
        assert codes_of(twin, setting) == [], setting


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each.name for each in MISTAKES])
def test_a_mistake_in_a_file_is_named(mistake: Mistake, tmp_path: Path) -> None:
    mistake.right(tmp_path)
    with pytest.raises(AdvisorError) as caught:
        mistake.wrong(tmp_path)
    assert caught.value.code == mistake.code


def test_every_code_of_the_emulator_has_a_fault() -> None:
    named = {each.code for each in FAULTS} | {each.code for each in MISTAKES}
    assert {each for each in registry() if each.startswith("EMU_")} == named - {WRONG_VALUES}


def test_every_incident_has_a_fault_and_the_reverse() -> None:
    assert {each.field_case for each in FAULTS} - {""} == set(INCIDENTS)


def test_names_are_unique() -> None:
    names = [each.name for each in (*FAULTS, *MISTAKES)]
    assert len(set(names)) == len(names)


def test_the_committed_table_is_what_the_command_prints() -> None:
    assert (ROOT / "docs" / "emulator_faults.md").read_text() == table()
