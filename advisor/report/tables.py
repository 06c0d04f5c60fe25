"""Tables of commands that are not about one bundle. Imports `planner.agreement`."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.planner.agreement import Agreement
from advisor.report.blocks import Block, Heading, Paragraph, Table


def agreement_blocks(shares: Sequence[Agreement], target: str, with_rows: bool) -> list[Block]:
    """What `agreement` prints: the share per type, and on request every row that differs."""
    blocks: list[Block] = [
        Heading(f"Planner for {target} against tuned choices", 1),
        Paragraph(
            "Candidates are narrowed to what the tuner had: clusters of 1 and 2, 128 rows per CTA, its N tiles, "
            "persistent, D in fp32. CTA pair: the same number of CTAs per MMA. N tile: the same tile, over rows with M "
            "above 64 whose operands the tuner did not swap."
        ),
        Table(
            ("type", "rows", "CTA pair agrees", "rows for N", "N tile agrees", "within a factor of two"),
            tuple(
                (each.dtype, each.rows, f"{each.pair:.1%}", each.n_rows, f"{each.n_tile:.1%}", f"{each.n_near:.1%}")
                for each in shares
            ),
        ),
    ]
    if with_rows:
        rows = tuple(
            (
                row.dtype,
                f"{row.m} x {row.n} x {row.k}",
                f"{row.tuned[0]}, {row.tuned[1]}",
                f"{row.picked[0]}, {row.picked[1]}",
            )
            for each in shares
            if each.dtype != "all"
            for row in each.differing
        )
        blocks.append(Table(("type", "m x n x k", "tuned: CTAs, N", "picked: CTAs, N"), rows, "Rows that differ"))
    return blocks
