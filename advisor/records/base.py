"""What every record shares: frozen pydantic models without unknown keys, and canonical JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen model that refuses unknown keys. Its validator is built when it is first used: a command needs few of
    them, and building all takes longer than reading a problem."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def converted(given: Any, taken: Any, place: str = "") -> tuple[str, object, str] | None:
    """The first value of a document that a record holds as another type: its place, the value, and what belongs there.

    pydantic reads `true` as 1, `"4"` as 4 and 4.0 as 4. A file that a person writes is refused where it means that by
    mistake. `taken` is the record as `model_dump` gives it; a whole number for a float is no conversion.
    """
    if isinstance(given, dict) and isinstance(taken, dict):
        pairs = [(f"{place}.{key}".lstrip("."), value, taken[key]) for key, value in given.items() if key in taken]
    elif isinstance(given, (list, tuple)) and isinstance(taken, (list, tuple)):
        pairs = [(f"{place}.{index}", *pair) for index, pair in enumerate(zip(given, taken, strict=True))]
    else:
        same = type(given) is type(taken) or (type(given), type(taken)) == (int, float)
        return None if same else (place, given, _MEANT.get(type(taken), type(taken).__name__))
    return next(filter(None, (converted(value, held, where) for where, value, held in pairs)), None)


_MEANT: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def round_six(value: Any) -> Any:
    """`value` with every float rounded to six significant digits, at any depth; a whole float stays a float."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} has no place in canonical JSON")
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {str(key): round_six(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_six(item) for item in value]
    return value


def canonical_json(document: Any) -> str:
    """The one text of a document: keys in the model's order, two spaces, six significant digits, final newline."""
    if isinstance(document, BaseModel):
        document = document.model_dump(mode="json", by_alias=True)
    return json.dumps(round_six(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
