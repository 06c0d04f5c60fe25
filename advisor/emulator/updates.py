"""What an atomic operation, a reduction of a bulk copy or a `red.async` does to one location. NumPy and `numbers`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import numbers
from advisor.emulator.memory import Update
from advisor.emulator.ptx.ir import TYPE_BITS

Array = NDArray[Any]

OPERATIONS = ("and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max")
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")


def _compare_and_swap(old: Array, b: Array, c: Array | None) -> Array:
    assert c is not None
    result: Array = np.where(old == b, c, old)
    return result


def _exchange(old: Array, b: Array, c: Array | None) -> Array:
    return b


def _increment(old: Array, b: Array, c: Array | None) -> Array:
    result: Array = np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))
    return result


def _decrement(old: Array, b: Array, c: Array | None) -> Array:
    return np.where((old == 0) | (old > b), b, old - old.dtype.type(1))


_UPDATES: dict[str, Update] = {
    "cas": _compare_and_swap,
    "exch": _exchange,
    "inc": _increment,
    "dec": _decrement,
}


def update(operation: str, kind: str, *, flushed: bool = False) -> Update | None:
    """The function of old content, operand and second operand (of `cas`), all of them bits of `kind`; None where there
    is none. `flushed`: atom and red of f32 on global memory take subnormal numbers for zeros, and give none (PTX ISA,
    atom); those on shared memory and the reductions of bulk copies do not."""
    if operation in _UPDATES:
        return _UPDATES[operation]
    spelled = f"{operation}.{f'b{TYPE_BITS[kind]}' if operation in ('and', 'or', 'xor') else kind}"
    if operation == "add" and kind in _FLOATS:
        spelled = f"add.rn.ftz.{kind}" if flushed and kind == "f32" else f"add.rn.{kind}"
    found = numbers.operation(spelled, 1, 2)
    if found is None:
        return None
    function = found.function

    def updated(old: Array, b: Array, c: Array | None) -> Array:
        result: Array = function(old, b)
        return result

    return updated
