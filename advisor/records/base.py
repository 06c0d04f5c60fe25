"""What every record shares: frozen pydantic models without unknown keys, and canonical JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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
