"""A bundle's evidence with what was accepted elsewhere. Imports `workflow` and the rooms below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.bundle import read_bundle
from advisor.records.acceptance import Acceptance
from advisor.records.evidence import Evidence
from advisor.records.plan import Plan
from advisor.validation.accepted import read_accepted, with_accepted
from advisor.workflow import built_rows, report_bundle


def report_accepted(
    folder: str | Path, accepted: Sequence[Path]
) -> tuple[Plan, Evidence | None, tuple[Acceptance, ...]]:
    """Plan and evidence of a bundle, and what the files hold, which is in the evidence too. Raises BundleError,
    InputError."""
    plan, evidence = report_bundle(folder)
    files = tuple(read_accepted(each) for each in accepted)
    bundle = read_bundle(folder)
    return plan, with_accepted(bundle, built_rows(bundle), evidence, files), files
