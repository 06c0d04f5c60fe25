"""The table of what can be counted without the chip: the plan's rows, joined by what a build and the emulator counted.

A row whose evidence is missing says which command gives it. What was counted and is not what the plan says, says so.
Imports `records` and the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from advisor.records.counts import CountRow, CountTable, Published, Relation
from advisor.records.evidence import Evidence, Gate, KernelEvidence
from advisor.records.plan import Plan
from advisor.report.blocks import Block, Cell, Heading, Paragraph, Table, cell_text

GATE_OF: dict[str, Gate] = {"ptx": "compiled", "sass": "compiled", "emulator": "emulated"}
NEEDS = {
    "ptx": "run advisor validate BUNDLE",
    "sass": "run advisor validate BUNDLE",
    "emulator": "run advisor validate BUNDLE --device emulator",
}
NAMES = {"plan": "plan", "ptx": "PTX", "sass": "SASS", "emulator": "emulator"}


def counted_blocks(plan: Plan, evidence: Evidence | None) -> Iterator[Block]:
    """Nothing where the plan has no table."""
    table = plan.counts
    if table is None:
        return
    yield Heading("Counted without the chip", 3)
    yield Paragraph(
        f"Of {table.kernel_id}: arithmetic over the plan, instructions of its PTX and SASS, and what runs of its PTX "
        "in the emulator counted. Cycles are of one SM at the boost clock. Nothing here is a measurement on the chip."
    )
    rows = []
    group = ""
    for row in table.rows:
        shown = row_cells(row, table, evidence, plan.target.arch)
        rows.append((row.group if row.group != group else "", *shown))
        group = row.group
    yield Table(("of", "figure", "value", "unit", "counted from", "limit", "verdict"), tuple(rows))
    yield from _published(table.published)


def row_cells(row: CountRow, table: CountTable, evidence: Evidence | None, arch: str) -> tuple[Cell, ...]:
    """Figure, value, unit, where it is counted, limit, verdict."""
    limit = "" if row.limit is None else f"{_SIGNS[row.relation or 'equal']} {cell_text(row.limit)}: {row.limit_is}"
    if row.source == "plan":
        value = cell_text(row.value)
        if row.low is not None and row.high is not None:
            value += f" ({cell_text(row.low)} to {cell_text(row.high)})"
        place = NAMES["plan"] + (f": {row.how}" if row.how else "")
        return (row.name, value if row.value is not None else "-", row.unit, place, limit, verdict(row, row.value))
    found, place = _found(row, table.kernel_id, evidence, arch)
    if found is None:
        return (row.name, "-", row.unit, NAMES[row.source], limit, f"not counted: {place}")
    low, high = found
    value = cell_text(low) if low == high else f"{cell_text(low)} to {cell_text(high)}"
    words = verdict(row, low)
    if verdict(row, high) != words:
        words = row.beyond
    return (row.name, value, row.unit, f"{NAMES[row.source]}: {place}", limit, words)


_SIGNS: dict[Relation, str] = {"at_most": "at most", "at_least": "at least", "equal": "exactly"}
_TOLERANCE = 1e-6  # of two floats that are the same figure: plan.json keeps six digits


def verdict(row: CountRow, value: float | None) -> str:
    """The row's words for a value within its limit or beyond; empty where it has none."""
    if value is None or row.limit is None or row.relation is None:
        return ""
    slack = _TOLERANCE * max(abs(value), abs(row.limit))
    holds = {
        "at_most": value <= row.limit + slack,
        "at_least": value >= row.limit - slack,
        "equal": abs(value - row.limit) <= slack,
    }[row.relation]
    return row.within if holds else row.beyond


def _found(
    row: CountRow, kernel_id: str, evidence: Evidence | None, arch: str
) -> tuple[tuple[float, float] | None, str]:
    """The figure's ends with where they were counted; or None with what is missing."""
    missing = NEEDS[row.source]
    if evidence is None:
        return None, missing
    own = [
        each for each in evidence.gates if each.twin_of is None and each.kernel_id in (kernel_id, f"{kernel_id}_main")
    ]
    for each in sorted(own, key=lambda one: one.image != arch):  # the target's own image first
        facts = each.facts(GATE_OF[row.source])
        figures: Mapping[str, Any] | None = facts.get("counted" if row.source == "emulator" else row.source)
        if not figures:
            continue
        if row.key not in figures and row.source == "emulator":
            return None, "no case of the run has it"
        value = figures.get(row.key, 0)
        ends = (value[0], value[1]) if isinstance(value, (list, tuple)) else (value, value)
        return ends, _place(row, each, facts)
    return None, missing


def _place(row: CountRow, kernel: KernelEvidence, facts: Mapping[str, Any]) -> str:
    if row.source != "emulator":
        return f"{kernel.kernel_id}, {kernel.image}"
    return (
        f"{facts.get('cases')} cases in {facts.get('runs')} runs of the PTX for {facts.get('ptx_of') or kernel.image}"
    )


def _published(rows: list[Published]) -> Iterator[Block]:
    if not rows:
        yield Paragraph(
            "No published figure of a comparable kernel is on file: same types, each extent within a factor of 4."
        )
        return
    yield Table(
        ("chip", "type", "m x n x k", "TFLOP/s", "share of the peak above (%)", "kernel", "published by"),
        tuple(
            (
                each.chip,
                each.dtype,
                f"{each.m} x {each.n} x {each.k}",
                each.tflops,
                100.0 * each.share_of_peak,
                each.kernel,
                each.source,
            )
            for each in rows
        ),
        "Published for other kernels, measured by their authors on chips of theirs",
    )
