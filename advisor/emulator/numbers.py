"""One door to the arithmetic of PTX: the function of an opcode over bit arrays. Imports only its own room.

`operation("fma.rn.ftz.f32")` is found once per instruction, when a kernel is prepared; its function then runs on whole
groups of warps. Callers hold `quiet()` around the run: the functions meet overflow and NaN as a matter of course.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from advisor.emulator import comparison, conversion, floating, integer
from advisor.emulator.operation import Mnemonic, Operation, read

__all__ = ["Operation", "operation", "quiet", "roots"]

_ROOMS: tuple[dict[str, Callable[[Mnemonic], Operation | None]], ...] = (
    integer.BUILDERS,
    floating.BUILDERS,
    comparison.BUILDERS,
    conversion.BUILDERS,
    {"div": floating.approximate_division},
)


@lru_cache(maxsize=4096)
def operation(opcode: str, destinations: int = 1, sources: int = 0) -> Operation | None:
    """What this opcode computes, or None where it is not an instruction on numbers, or has a qualifier not known here.

    `destinations` is 2 for `setp p|q`; `sources` is 3 for the forms of `min` and `max` with three operands. The carry
    flag is a source and a result of its own: `addc.cc.u32` has sources (u32, u32, pred) and results (u32, pred).
    """
    word = read(opcode, destinations, sources)
    for builders in _ROOMS:
        builder = builders.get(word.root)
        found = builder(word) if builder is not None else None
        if found is not None:
            return found
    return None


def roots() -> frozenset[str]:
    """The names of all instructions on numbers, for a message that says what is near."""
    return frozenset(name for builders in _ROOMS for name in builders)


def quiet() -> Any:
    """The context in which the functions run: NumPy does not report overflow, NaN or division by zero."""
    return np.errstate(all="ignore")
