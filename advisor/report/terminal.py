"""Blocks to a terminal, through rich. rich is imported here and nowhere else in this room."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from advisor.report.blocks import Block, Bullets, Code, Heading, Paragraph, Table, cell_text, sentence

COLUMN_GAP = 2  # the padding and the divider of a column
SLIVER = 24  # characters; a long text in a column that is narrower cannot be read
MOST_LINES = 8  # of a cell in one


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
    """A table in which no word is broken and no text runs down a sliver; one record per row where the width is too
    small for that."""
    texts = [[cell_text(each) for each in row] for row in table.rows]
    widths = _widths(table.columns, texts, width)
    if widths is None or any(_runs_down(text, own) for row in texts for text, own in zip(row, widths, strict=True)):
        short = all(len(each) <= SLIVER for row in texts for each in row[1:])
        return _packed(table, texts, width) if short else _records(table, texts)
    rich_table = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, COLUMN_GAP - 1, 0, 0),  # the divider is the other blank
        title=sentence(table.caption) or None,
        title_justify="left",
        title_style="italic",
        header_style="bold",
    )
    for name, right, own in zip(table.columns, table.numeric, widths, strict=True):
        rich_table.add_column(name, justify="right" if right else "left", width=own, overflow="fold")
    for row in texts:
        rich_table.add_row(*(Text(each) for each in row))
    return rich_table


def _runs_down(text: str, width: int) -> bool:
    return width < SLIVER and len(text) > MOST_LINES * width


def _widths(columns: Sequence[str], texts: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """A width for each column: what it would like, or no less than its longest word. None where that does not fit.

    rich shrinks the widest columns first and breaks the names in them. Here all columns rise to one level, as water
    does, so that short ones stay on one line and the long ones share the rest.
    """
    cells = [[name, *(row[index] for row in texts)] for index, name in enumerate(columns)]
    wanted = [max(map(len, column)) for column in cells]
    least = [max((len(word) for cell in column for word in cell.split()), default=1) for column in cells]
    room = width - COLUMN_GAP * (len(columns) - 1)
    if sum(wanted) <= room:
        return wanted
    if sum(least) > room:
        return None

    def at(level: int) -> list[int]:
        return [min(high, max(low, level)) for low, high in zip(least, wanted, strict=True)]

    return at(max(level for level in range(room + 1) if sum(at(level)) <= room))


def _packed(table: Table, texts: Sequence[Sequence[str]], width: int) -> RenderableType:
    """A line for the first cell of each row, and under it the others with their names, as many to a line as fit."""
    lines: list[RenderableType] = [Text(sentence(table.caption), "italic")] if table.caption else []
    for first, *others in texts:
        lines.append(Text.assemble((f"{table.columns[0]} ", ""), (first, "bold")))
        line = ""
        for name, value in zip(table.columns[1:], others, strict=True):
            item = f"{name}: {value}"
            if line and len(line) + COLUMN_GAP + len(item) > width:
                lines.append(Text(line))
                line = ""
            line += ("  " if line else "    ") + item
        lines.append(Text(line))
    return Group(*lines)


def _records(table: Table, texts: Sequence[Sequence[str]]) -> RenderableType:
    lines: list[RenderableType] = [Text(sentence(table.caption), "italic")] if table.caption else []
    for row in texts:
        grid = RichTable.grid(padding=(0, 1, 0, 0))
        grid.add_column(style="bold")
        grid.add_column(overflow="fold")
        for name, value in zip(table.columns, row, strict=True):
            grid.add_row(name, Text(value))
        lines += [grid, Text("")]
    return Group(*lines[:-1]) if lines else Text("")
