"""The correct kernels that are mutated: small launches that use every stage, every CTA, every path of the protocol."""

from __future__ import annotations

from functools import cache

from tests.emulator.mutants import subjects_gluon, subjects_opengemm, subjects_project, subjects_rows
from tests.emulator.mutants.subject import Subject


@cache
def subjects() -> dict[str, Subject]:
    """All of them, by name, in the order of the table."""
    modules = (subjects_project, subjects_rows, subjects_gluon, subjects_opengemm)
    found = [each for module in modules for each in module.subjects()]
    return {each.name: each for each in found}
