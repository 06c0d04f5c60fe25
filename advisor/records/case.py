"""A validation case: one set of run-time arguments for a bundle, and why it is worth running."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Case:
    """`arguments` holds a value for every argument of launch.json. `data` says what the inputs are filled with:
    `normal` (rounded random normals, checked against the per-element bound) or `integers` (small integers whose
    sums are exact in the accumulator, checked bit for bit). `scheduling` marks the cases whose point is who computes
    which tile: other schedules and traced twins run these alone."""

    name: str
    why: str
    arguments: dict[str, int | float] = field(default_factory=dict)
    data: Literal["normal", "integers"] = "normal"
    seed: int = 0
    tma: bool = True  # False: leading dimensions that only the portable kernel serves
    scheduling: bool = False
