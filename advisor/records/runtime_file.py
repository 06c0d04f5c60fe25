"""runtime.json: what was switched off on one machine because it did not work there.

The C++ launcher and the Python binding of a bundle have readers of their own, so that a bundle is complete without this
tool: what they take and refuse is what this model takes and refuses.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from advisor.records.base import Record


class RuntimeFile(Record):
    """`clc`: whether rungs that use Cluster Launch Control are part of the ladder. A key that a reader does not know
    is refused: what it was meant to switch off must not run."""

    model_config = ConfigDict(strict=True)

    schema_version: Literal[1] = 1
    clc: Literal["on", "off"]
    reason: str = ""
