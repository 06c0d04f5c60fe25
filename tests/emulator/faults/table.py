"""The table of seeded faults, as the documentation has it. Imports its own package."""

from __future__ import annotations

from tests.emulator.faults import AREAS, MISTAKES
from tests.emulator.faults.field import INCIDENTS
from tests.emulator.faults.model import Fault, Setting

_HEAD = """# Seeded faults

Each row is one edit of a correct kernel. The emulator must name the edited kernel with the code, under the setting of
the last column at least; the kernel without the edit must be silent under every policy. `tests/emulator/faults/` has
the kernels and the edits, and `tests/emulator/test_faults.py` runs them all. `python -m tests.emulator.faults` prints
this page.

*Wrong values* stands for a code where no rule of PTX is broken: the result does not meet the formula of the launch.

*Field* names the incident in shipped kernels that the fault repeats; they are listed at the end.
"""


def table() -> str:
    lines = [_HEAD]
    for area, rows in AREAS.items():
        lines += [f"## {area}", ""]
        lines += _rows(["fault", "code", "field", "named under"], [_row(each) for each in rows])
        lines.append("")
    lines += ["## Files around a kernel", ""]
    lines += _rows(["fault", "code"], [[each.name, each.code] for each in MISTAKES])
    lines += ["", "## The incidents", ""]
    lines += _rows(["field", "what happened", "reported in"], [[key, *value] for key, value in INCIDENTS.items()])
    return "\n".join(lines) + "\n"


def _row(fault: Fault) -> list[str]:
    return [fault.name, fault.code, fault.field_case, _under(fault.setting)]


def _under(setting: Setting) -> str:
    names = {"async_policy": "", "seed": "seed "}
    return ", ".join(f"{names.get(key, f'{key} ')}{value}" for key, value in setting.items())


def _rows(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(each)} |" for each in (head, ["---"] * len(head), *rows)]
