"""What can be counted without the chip: rows with a limit to hold them against, and what others published.

A row is known by the plan's arithmetic, or waits for evidence that has it: the PTX, the SASS, or a run in the emulator.
Nothing of it is a measurement, and what is published is of other kernels. Imports its own room.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from advisor.records.base import Record

CountSource = Literal["plan", "ptx", "sass", "emulator"]
Relation = Literal["at_most", "at_least", "equal"]


class CountRow(Record):
    """One figure. `value` is what the plan's arithmetic gives; a row of another source has its value in the evidence,
    under `key`, and is held against `limit` there."""

    group: str
    name: str
    unit: str = ""
    source: CountSource = "plan"
    key: str = ""
    value: int | float | None = None
    low: int | float | None = None  # of a prediction
    high: int | float | None = None
    how: str = ""  # the arithmetic, or what is counted
    relation: Relation | None = None
    limit: int | float | None = None
    limit_is: str = ""
    within: str = "fits"
    beyond: str = "does not fit"


class Published(Record):
    """Throughput that somebody published for a kernel of their own, on a chip of theirs."""

    chip: str
    dtype: str
    m: int
    n: int
    k: int
    tflops: float
    share_of_peak: float  # of the peak that the table's own prediction is held against, 0 to 1
    kernel: str
    source: str


class CountTable(Record):
    """The rows of one kernel, and the published figures nearest to its problem."""

    kernel_id: str
    rows: list[CountRow]
    published: list[Published] = Field(default_factory=list)
