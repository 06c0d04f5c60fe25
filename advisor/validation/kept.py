"""Cases as files that run again: what `--keep DIR` writes. Imports `records` and NumPy.

DIR/<rung>/<case>.json           the resolved launch of one kernel; <case>.0.json, <case>.1.json of a sequence
DIR/<rung>/<case>.inputs.npz     the first bytes of every buffer
DIR/<rung>/<kernel>.<target>.ptx and <rung>.profile.toml    where the emulator ran it: what it ran, on which device
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advisor.records.base import canonical_json
from advisor.records.case import Case
from advisor.records.launch import ResolvedLaunch

KEPT_BYTES = 2**26  # of inputs that are written; larger ones follow from the case's seed


def keep_case(
    folder: Path, run: str, case: Case, resolved: Sequence[ResolvedLaunch], arrays: Mapping[str, Any]
) -> Path:
    """Writes one case; returns the folder of its rung."""
    place = folder / run
    place.mkdir(parents=True, exist_ok=True)
    for index, each in enumerate(resolved):
        suffix = f".{index}" if len(resolved) > 1 else ""
        (place / f"{case.name}{suffix}.json").write_text(canonical_json(each), encoding="utf-8")
    if sum(each.nbytes for each in arrays.values()) <= KEPT_BYTES:
        raw: dict[str, Any] = {name: np.asarray(each).view(np.uint8) for name, each in arrays.items()}
        np.savez(place / f"{case.name}.inputs.npz", **raw)
    return place
