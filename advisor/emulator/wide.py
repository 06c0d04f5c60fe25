"""128-bit values: one NumPy record of two 64-bit halves per lane. NumPy only.

PTX moves and loads `.b128` registers and hands them to a few instructions; it computes nothing with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

B128 = np.dtype([("low", np.uint64), ("high", np.uint64)])
ZERO = np.zeros((), B128)[()]


def joined(low: Array, high: Array) -> Array:
    """`{low, high}` as values of 128 bits; of the shape of `low`."""
    made = np.empty(low.shape, B128)
    made["low"] = low
    made["high"] = high
    return made
