"""How values lie in memory, for every kind that checks its kernels: NumPy's types, roundoff, and poison.

Imports NumPy alone; ml_dtypes inside functions, torch is passed in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The bytes that fill what no kernel may read or write, by storage type. All are quiet NaNs, with payloads that
# arithmetic does not produce, so that a read shows in the result and a missed write shows in the bits.
INPUT_POISON = {
    "bfloat16": 0x7FE5,
    "float16": 0x7EE5,
    "float32": 0x7FE5E5E5,
    "float8_e4m3fn": 0x7F,
    "float8_e5m2": 0x7E,
}
OUTPUT_POISON = {"bfloat16": 0xFFE5, "float16": 0xFFA5, "float32": 0xFFE5A5A5}
UNIT_ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-24}

MAX_STORED_ELEMENTS = 2**31  # of a case's matrices with the problem's own strides, on a GPU
EMULATED_STORED_ELEMENTS = 2**24  # and in the emulator: beyond these the strides are cut

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_TORCH_BITS = {1: "uint8", 2: "int16", 4: "int32"}  # what torch fills


def cut_stride(own: int, least: int, element_bytes: int) -> int:
    """The smallest stride from 16 bytes above `least` that is as far from a multiple of 16 bytes as `own`; elements."""
    step = 16 // element_bytes
    return least + step + (own - least) % step


@lru_cache
def numpy_type(torch_name: str) -> np.dtype[Any]:
    """The NumPy type of a launch file's type."""
    if torch_name in ("float16", "float32", "float64"):
        return np.dtype(torch_name)
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, torch_name))
    return found


def poisoned(torch_name: str, elements: int, *, output: bool) -> NDArray[Any]:
    """A flat buffer of nothing but poison."""
    kind = numpy_type(torch_name)
    pattern = (OUTPUT_POISON if output else INPUT_POISON)[torch_name]
    return np.full(elements, pattern, _BITS[kind.itemsize]).view(kind)


def poisoned_on(device: str, torch_name: str, elements: int, torch: Any, *, output: bool) -> Any:
    """The same as a tensor that torch makes on a device."""
    kind = getattr(torch, torch_name)
    size = kind.itemsize
    pattern = (OUTPUT_POISON if output else INPUT_POISON)[torch_name]
    signed = pattern if size == 1 or pattern < 1 << (8 * size - 1) else pattern - (1 << 8 * size)
    return torch.full((elements,), signed, dtype=getattr(torch, _TORCH_BITS[size]), device=device).view(kind)
