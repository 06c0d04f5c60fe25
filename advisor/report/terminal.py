"""Blocks to a terminal, through rich. rich is imported here and nowhere else in this room."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from advisor.report.blocks import Block, Bullets, Code, Heading, Paragraph, Table, cell_text

COLUMN_GAP = 2  # the padding and the divider of a column


def print_blocks(blocks: Sequence[Block], console: Console) -> None:
    """Writes the blocks at the console's width."""
    for block in blocks:
        console.print(_block(block, console.width))
        console.print()


def _block(block: Block, width: int) -> RenderableType:
    match block:
        case Heading():
            if block.level <= 2:
                return Rule(Text(block.text, "bold"), align="left", characters="=" if block.level == 1 else "-")
            return Text(block.text, "bold underline")
        case Paragraph():
            return Text(block.text, "bold" if block.strong else "")
        case Bullets():
            return Group(*(_bullet(each) for each in block.items))
        case Code():
            return Padding(Text(block.text.strip(), "cyan", no_wrap=True, overflow="ignore"), (0, 0, 0, 4))
        case Table():
            return _table(block, width)


def _bullet(text: str) -> RenderableType:
    grid = RichTable.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column()
    grid.add_row("-", Text(text))
    return grid


def _table(table: Table, width: int) -> RenderableType:
    """A table where every column keeps its longest word whole; one record per paragraph where that cannot fit."""
    texts = [[cell_text(each) for each in row] for row in table.rows]
    if _narrowest(table.columns, texts) > width:
        return _records(table, texts)
    rich_table = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=table.caption or None,
        title_justify="left",
        title_style="italic",
        header_style="bold",
    )
    for index, (name, right) in enumerate(zip(table.columns, table.numeric, strict=True)):
        words = " ".join([name, *(row[index] for row in texts)]).split()
        longest = max(map(len, words), default=1)
        rich_table.add_column(name, justify="right" if right else "left", min_width=longest, overflow="fold")
    for row in texts:
        rich_table.add_row(*(Text(each) for each in row))
    return rich_table


def _narrowest(columns: Sequence[str], texts: Sequence[Sequence[str]]) -> int:
    """The width at which no word of the table is broken."""
    total = 0
    for index, name in enumerate(columns):
        words = " ".join([name, *(row[index] for row in texts)]).split()
        total += max(map(len, words), default=1) + COLUMN_GAP
    return total


def _records(table: Table, texts: Sequence[Sequence[str]]) -> RenderableType:
    lines: list[RenderableType] = [Text(table.caption, "italic")] if table.caption else []
    for row in texts:
        grid = RichTable.grid(padding=(0, 1, 0, 0))
        grid.add_column(style="bold")
        grid.add_column(overflow="fold")
        for name, value in zip(table.columns, row, strict=True):
            grid.add_row(name, Text(value))
        lines += [grid, Text("")]
    return Group(*lines[:-1]) if lines else Text("")
