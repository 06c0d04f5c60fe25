"""Plan and evidence to Markdown, HTML and a terminal. Imports `records`; the plan is the only truth.

`terminal` is not imported here: it needs rich, which only a terminal needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records.acceptance import Acceptance
from advisor.records.evidence import Evidence
from advisor.records.plan import Plan
from advisor.report.accepted import accepted_blocks
from advisor.report.content import blocks, reached, short_blocks, title, validation_blocks
from advisor.report.html import to_html
from advisor.report.markdown import to_markdown
from advisor.report.tables import agreement_blocks
from advisor.report.timeline import simulation_blocks

__all__ = [
    "accepted_blocks",
    "agreement_blocks",
    "blocks",
    "reached",
    "render_html",
    "render_report",
    "short_blocks",
    "simulation_blocks",
    "validation_blocks",
]


def render_report(plan: Plan, evidence: Evidence | None = None, accepted: Sequence[Acceptance] = ()) -> str:
    """The report as Markdown. Without evidence it is the planned-rung report: the same plan gives the same bytes."""
    return to_markdown(blocks(plan, evidence, accepted))


def render_html(plan: Plan, evidence: Evidence | None = None, accepted: Sequence[Acceptance] = ()) -> str:
    """The report as one self-contained HTML page."""
    return to_html(blocks(plan, evidence, accepted), title(plan))
