"""The correct kernels that are mutated: small launches that use every stage, every CTA, every path of the protocol."""

from __future__ import annotations

from functools import cache

from tests.emulator.mutants import subjects_gluon, subjects_opengemm, subjects_project
from tests.emulator.mutants.subject import Subject


@cache
def subjects() -> dict[str, Subject]:
    """All of them, by name, in the order of the table."""
    found = [*subjects_project.subjects(), *subjects_gluon.subjects(), *subjects_opengemm.subjects()]
    return {each.name: each for each in found}
