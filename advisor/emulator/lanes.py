"""Which lane of a warp wrote and read each granule of shadow memory: races between lanes of one warp. NumPy only.

Lanes of a warp share a clock, since nearly everything that orders one of them orders all. What does not is an access by
one lane and another by its neighbour with nothing between at which the lanes meet. So each granule also remembers the
lane of its last write and of its reads; they count while the warp's lanes have not met since (`Clocks.lanes_met`).

Lanes meet at bar.warp.sync, at barriers of the CTA and the cluster, at every instruction that waits for other lanes
(shuffles, votes, `.aligned` ones), and where the warp acquires something. PTX gives only the barriers the order of
memory; the others are taken as well, since compilers and authors rely on them, and a check must not fire on those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Lanes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

UNKNOWN = 254  # no lane, or one that does not matter
SEVERAL = 255  # more than one lane has read


class LaneMarks:
    """Lanes of the last write and of the reads since, of each granule."""

    __slots__ = ("reads", "writes")

    def __init__(self, cells: int) -> None:
        self.writes: Lanes = np.full(cells, UNKNOWN, np.uint8)
        self.reads: Lanes = np.full(cells, UNKNOWN, np.uint8)

    def refine(self, factor: int) -> None:
        self.writes = np.repeat(self.writes, factor)
        self.reads = np.repeat(self.reads, factor)

    def wrote(self, cells: Longs, lanes: Lanes) -> Longs:
        """Of lanes that write one granule together none is remembered. Returns the positions of those that were not the
        last to write."""
        self.writes[cells] = lanes
        lost: Longs = np.flatnonzero(self.writes[cells] != lanes)
        if lost.size:
            self.writes[cells[lost]] = UNKNOWN
        return lost

    def read(self, cells: Longs, lanes: Lanes) -> None:
        self.reads[cells] = lanes
        lost = self.reads[cells] != lanes
        if lost.any():
            self.reads[cells[lost]] = SEVERAL

    def written_by_others(self, cells: Longs, lanes: Lanes) -> Longs:
        """Positions in `cells` of which another lane, of whatever warp, was the last to write."""
        theirs = self.writes[cells]
        found: Longs = np.flatnonzero((theirs != lanes) & (theirs < UNKNOWN))
        return found

    def read_by_others(self, cells: Longs, lanes: Lanes) -> Longs:
        theirs = self.reads[cells]
        found: Longs = np.flatnonzero((theirs != lanes) & (theirs != UNKNOWN))
        return found


def lanes_of(mask: Any, rows: int, lanes: int, per_lane: int) -> Lanes:
    """The lane of each granule of a batch; unknown where the caller gives no warps of 32 lanes."""
    if lanes != 32:
        count = rows * lanes if mask is None else int(np.count_nonzero(mask))
        return np.full(count * per_lane, UNKNOWN, np.uint8)
    found: Lanes = np.tile(_LANES, rows) if mask is None else np.nonzero(mask)[1].astype(np.uint8)
    return np.repeat(found, per_lane) if per_lane > 1 else found


_LANES = np.arange(32, dtype=np.uint8)
