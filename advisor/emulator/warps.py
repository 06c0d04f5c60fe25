"""What the lanes of a warp do together: shuffles, votes, matches, reductions. NumPy only.

Arrays are [rows, 32]. `active` says which lanes take part; None: all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LANE = np.arange(32, dtype=np.int64)
_BIT = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)


def shuffle(mode: str, value: Array, by: Array, control: Array) -> tuple[Array, Array]:
    """`shfl.sync`: the value of another lane, and whether that lane is inside the segment."""
    step = (by & np.uint32(31)).astype(np.int64)
    clamp = (control & np.uint32(31)).astype(np.int64)
    segment = ((control >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
    last = (LANE & segment) | (clamp & ~segment & 31)
    first = LANE & segment
    if mode == "up":
        source = LANE - step
        inside = source >= last
    elif mode == "down":
        source = LANE + step
        inside = source <= last
    elif mode == "bfly":
        source = LANE ^ step
        inside = source <= last
    else:
        source = first | (step & ~segment & 31)
        inside = source <= last
    source = np.where(inside, source, LANE)
    rows = np.arange(value.shape[0])[:, None]
    return value[rows, source], inside


def ballot(predicate: Array, active: Array | None) -> Array:
    """A bit for every lane whose predicate holds, in all lanes."""
    taken = predicate if active is None else predicate & active
    packed = np.packbits(taken, axis=1, bitorder="little").view(np.uint32)
    return np.repeat(packed, 32, axis=1)


def vote(mode: str, predicate: Array, active: Array | None) -> Array:
    """`vote.sync.all`, `.any`, `.uni`."""
    on = np.ones(predicate.shape, bool) if active is None else active
    every = (predicate | ~on).all(axis=1, keepdims=True)
    some = (predicate & on).any(axis=1, keepdims=True)
    result = every if mode == "all" else some if mode == "any" else every | ~some
    return np.repeat(result, 32, axis=1)


def match_any(value: Array, active: Array | None) -> Array:
    """For each lane the lanes with the same value."""
    same = value[:, :, None] == value[:, None, :]
    if active is not None:
        same &= active[:, None, :]
    return np.packbits(same, axis=2, bitorder="little").view(np.uint32)[:, :, 0]


def match_all(value: Array, active: Array | None) -> tuple[Array, Array]:
    """The mask of all lanes where every value is the same, else 0; and whether it is."""
    on = np.ones(value.shape, bool) if active is None else active
    first = value[np.arange(value.shape[0]), on.argmax(axis=1)][:, None]
    same = ((value == first) | ~on).all(axis=1, keepdims=True)
    mask = (on * _BIT).sum(axis=1, keepdims=True, dtype=np.uint32)
    both = np.broadcast_to(same, value.shape)
    return np.where(both, mask, np.uint32(0)), both


_REDUCE = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}


def reduce(operation: str, signed: bool, value: Array, active: Array | None) -> Array:
    """`redux.sync` over 32-bit integers; the result is in all lanes."""
    number = value.view(np.int32) if signed else value
    on: Any = True if active is None else active
    limits = np.iinfo(number.dtype)
    start = {"min": limits.max, "max": limits.min, "and": -1 if signed else limits.max}.get(operation, 0)
    result = _REDUCE[operation].reduce(number, axis=1, keepdims=True, where=on, initial=start, dtype=number.dtype)
    return np.repeat(result, 32, axis=1).view(np.uint32)


def reduce_float(operation: str, absolute: bool, nan: bool, value: Array, active: Array | None) -> Array:
    """`redux.sync{.abs}{.NaN}.f32`, of values as their bits. NaN is left out, unless `nan`; -0 is below +0."""
    bits = value & np.uint32(0x7FFFFFFF) if absolute else value
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    signed = bits.view(np.int32)
    ordered = signed ^ ((signed >> 31) & np.int32(0x7FFFFFFF))  # bits in the order of the numbers
    on = ~is_nan if active is None else active & ~is_nan
    limits = np.iinfo(np.int32)
    start = limits.max if operation == "min" else limits.min
    found = _REDUCE[operation].reduce(ordered, axis=1, keepdims=True, where=on, initial=start, dtype=np.int32)
    result = (found ^ ((found >> 31) & np.int32(0x7FFFFFFF))).view(np.uint32)
    some_nan = (is_nan if active is None else is_nan & active).any(axis=1, keepdims=True)
    result = np.where(some_nan & (nan | ~on.any(axis=1, keepdims=True)), np.uint32(0x7FFFFFFF), result)
    return np.repeat(result, 32, axis=1)


def elect(active: Array | None, rows: int) -> tuple[Array, Array]:
    """The lowest lane of each warp: its number, and true in it."""
    leader = np.zeros((rows, 1), np.int64) if active is None else active.argmax(axis=1)[:, None]
    return np.repeat(leader.astype(np.uint32), 32, axis=1), leader == LANE
