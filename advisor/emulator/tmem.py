"""Tensor memory: 128 lanes of 512 columns of 32 bits on each SM, and who has allocated which columns.

An address is `lane << 16 | column`. A CTA's lanes are in four quarters of 32; warp w of a warpgroup loads and stores in
quarter w alone. What an instruction touches is a `Region`: the same lanes of some quarters, and some columns. CTAs that
share an SM share its columns (PTX ISA 9.7.16.1). NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

QUARTERS, QUARTER_LANES, COLUMNS = 4, 32, 512
LANES = QUARTERS * QUARTER_LANES
SMALLEST, LARGEST = 32, COLUMNS  # columns of one allocation
SHAPE = (QUARTERS, QUARTER_LANES, COLUMNS)


def lane_of(address: int) -> int:
    """Of 128 lanes: opengemm's kernels count those of the odd CTA of a pair from 128 on, and CuTe's own assertion on
    addresses looks at no more."""
    return address >> 16 & (LANES - 1)


def column_of(address: int) -> int:
    return address & 0xFFFF


class Region(NamedTuple):
    """Lanes [lane, lane_end) of each quarter in [quarter, quarter_end), and columns [column, column_end)."""

    quarter: int
    quarter_end: int
    lane: int
    lane_end: int
    column: int
    column_end: int

    @property
    def index(self) -> Any:
        """Where it lies in an array of `SHAPE`."""
        return (
            slice(self.quarter, self.quarter_end),
            slice(self.lane, self.lane_end),
            slice(self.column, self.column_end),
        )

    def __str__(self) -> str:
        columns = f"columns {self.column} to {self.column_end - 1}"
        if self.lane_end - self.lane == QUARTER_LANES or self.quarter_end - self.quarter == 1:
            first, last = self.quarter * 32 + self.lane, (self.quarter_end - 1) * 32 + self.lane_end - 1
            return f"lanes {first} to {last}, {columns}"
        lanes = f"lanes {self.lane} to {self.lane_end - 1}"
        return f"{lanes} of quarters {self.quarter} to {self.quarter_end - 1}, {columns}"


def all_lanes(column: int, columns: int) -> Region:
    """Every lane of some columns."""
    return Region(0, QUARTERS, 0, QUARTER_LANES, column, column + columns)


@dataclass(slots=True)
class SmMemory:
    """The tensor memory of one SM. `owner` is 0 for a free column, else the number of the CTA that holds it."""

    data: Array = field(default_factory=lambda: np.zeros(SHAPE, np.uint32))
    owner: Array = field(default_factory=lambda: np.zeros(COLUMNS, np.int64))

    def free_at(self, columns: int) -> list[int]:
        """The first columns at which `columns` of them may be allocated: aligned to their number."""
        free = (self.owner == 0).reshape(-1, columns).all(axis=1)
        return [int(each) * columns for each in np.flatnonzero(free)]

    def holds(self, owner: int, region: Region) -> bool:
        """Whether every column of the region is the CTA's."""
        inside = region.column >= 0 and region.column_end <= COLUMNS
        return inside and bool((self.owner[region.column : region.column_end] == owner).all())


def column_violation(columns: int) -> str:
    """What is wrong with a number of columns to allocate or to free; empty where nothing is."""
    if not SMALLEST <= columns <= LARGEST or columns & (columns - 1):
        return f"{columns} columns: an allocation has a power of two of them, {SMALLEST} to {LARGEST}"
    return ""
