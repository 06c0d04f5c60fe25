"""Blocks to one self-contained HTML page: no script, no font, no link to anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from advisor.report.blocks import Block, Bullets, Code, Heading, Paragraph, Table, cell_text, sentence

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h2 { border-bottom: 1px solid #8886; margin-top: 2.5rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }
table { font-variant-numeric: tabular-nums; }
caption { text-align: left; font-style: italic; padding-bottom: .3rem; }
th, td { padding: .25rem .75rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8883; }
td.number, th.number { text-align: right; white-space: nowrap; }
pre { background: #8882; padding: .75rem; overflow-x: auto; }
""".strip()


def to_html(blocks: Sequence[Block], title: str) -> str:
    """A page. Every text is escaped."""
    body = "\n".join(_block(each) for each in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
        case Paragraph():
            text = escape(block.text)
            return f"<p><strong>{text}</strong></p>" if block.strong else f"<p>{text}</p>"
        case Bullets():
            return "<ul>\n" + "\n".join(f"<li>{escape(each)}</li>" for each in block.items) + "\n</ul>"
        case Code():
            return f"<pre><code>{escape(block.text.strip())}</code></pre>"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    classes = [' class="number"' if right else "" for right in table.numeric]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(classes, table.columns, strict=True))
    rows = [
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell_text(c))}</td>" for kind, c in zip(classes, row, strict=True))
        + "</tr>"
        for row in table.rows
    ]
    caption = f"<caption>{escape(sentence(table.caption))}</caption>\n" if table.caption else ""
    return f"<table>\n{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"
