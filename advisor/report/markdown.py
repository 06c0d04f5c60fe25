"""Blocks to Markdown. Deterministic: the same blocks give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.report.blocks import Block, Bullets, Code, Heading, Paragraph, Table, cell_text, sentence


def to_markdown(blocks: Sequence[Block]) -> str:
    """CommonMark with pipe tables, one blank line between blocks, a final newline."""
    return "\n\n".join(_block(each) for each in blocks) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_inline(block.text)}"
        case Paragraph():
            return f"**{_inline(block.text)}**" if block.strong else _inline(block.text)
        case Bullets():
            return "\n".join(f"- {_inline(each)}" for each in block.items)
        case Code():
            return f"```{block.language}\n{block.text.strip()}\n```"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    rule = ["---:" if right else "---" for right in table.numeric]
    lines = [_row(table.columns), _row(rule), *(_row([cell_text(each) for each in row]) for row in table.rows)]
    caption = f"{sentence(table.caption)}:\n\n" if table.caption else ""
    return caption + "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_inline(each).replace("|", "\\|") for each in cells) + " |"


def _inline(text: str) -> str:
    """One line without tags or headings. Underscores inside words and spaced asterisks are plain in CommonMark."""
    flat = " ".join(text.split()).replace("<", "\\<").replace("**", "\\*\\*")
    return f"\\{flat}" if flat.startswith(("#", ">", "- ", "+ ")) else flat
