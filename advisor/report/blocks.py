"""What a report is made of: five kinds of blocks, rendered as Markdown, in a terminal, and as HTML.

One list of blocks serves the three, so that none of them can say something the others do not. Imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    strong: bool = False  # the sentence that the section is about


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """`columns` head the `rows`. Cells stay values until a renderer writes them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Per column, whether every cell that says something is a number: such columns align right."""
        cells = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.columns)
        return tuple(any(map(_is_number, column)) and all(map(_is_number_or_blank, column)) for column in cells)


@dataclass(frozen=True, slots=True)
class Code:
    text: str
    language: str = ""


Block = Heading | Paragraph | Bullets | Table | Code


def cell_text(value: object) -> str:
    """A value as every renderer writes it: six significant digits, thousands grouped, yes and no."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, (list, tuple)):
        return " x ".join(cell_text(each) for each in value) if value else "none"
    if isinstance(value, dict):
        return named_numbers(value)
    return str(value)


def named_numbers(numbers: dict[str, object], tiles: str = "tiles") -> str:
    """`{"a_bytes": 1, "b": 2}` as `a bytes = 1, b = 2`. `tiles` as in `words`."""
    return ", ".join(f"{words(name, tiles)} = {cell_text(value)}" for name, value in numbers.items())


def words(name: str, tiles: str = "tiles") -> str:
    """A key as words, microseconds as the unit that they are: `bounds_us` as `bounds (us)`. Every kind's plan counts
    `tiles`, its units of work; `tiles` is what the problem's own are called."""
    name = str(name)
    if name.endswith("_us"):
        name = f"{name.removesuffix('_us')} (us)"
    return " ".join(tiles if each == "tiles" else each for each in name.split("_"))


def sentence(text: str) -> str:
    """`text` with a capital at its beginning; names in it keep theirs."""
    return text[:1].upper() + text[1:]


def _float_text(value: float) -> str:
    value = float(f"{value:.6g}")  # what plan.json keeps: a plan that was read back reads the same
    if value.is_integer() and abs(value) < 1e15:
        return cell_text(int(value))
    return f"{value:,.1f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_number_or_blank(value: object) -> bool:
    return value is None or _is_number(value)
