"""Random operands, and references in float64 with the bound that the arithmetic of a kernel leaves."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.emulator.compilers.harness import Near

Array = NDArray[np.generic]
Reals = NDArray[np.float64]

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tf32": 2.0**-10,  # operands are cut, not rounded
    "tf32x3": 2.0**-20,  # two parts of each operand, the product of the two smaller left out
    "bf16x3": 2.0**-16,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "int32": 0.0,
}
SMALLEST = {"float16": 2.0**-25, "bfloat16": 2.0**-134, "float8_e4m3fn": 2.0**-10, "float8_e5m2": 2.0**-17}
FP4_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def numpy_type(name: str) -> np.dtype:
    return np.dtype(name) if hasattr(np, name) else np.dtype(getattr(ml_dtypes, name))


def normal(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(numpy_type(dtype))


def integers(shape: tuple[int, ...], low: int, high: int, dtype: str = "int32", seed: int = 0) -> Array:
    """Uniform in [low, high)."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def real(array: Array) -> Reals:
    return array.astype(np.float64)


def rounded(value: Reals, dtype: str, bound: Reals | float = 0.0) -> Near:
    """A value computed within `bound` and then rounded to `dtype`."""
    half_step = UNIT_ROUNDOFF[dtype] * (np.abs(value) + bound) + SMALLEST.get(dtype, 0.0)
    return Near(value, bound + half_step)


def product(a: Reals, b: Reals, dtype: str = "float32", operand: str = "", start: Reals | float = 0.0) -> Near:
    """a @ b + start, summed in fp32 in any order over K terms, and rounded to `dtype`.

    `operand` names a type to which fp32 operands are cut first: its unit roundoff counts once for each of the two.
    """
    terms = a.shape[-1]
    magnitude = np.abs(a) @ np.abs(b) + np.abs(start)
    relative = (terms + 1) * UNIT_ROUNDOFF["float32"] + (2.1 * UNIT_ROUNDOFF[operand] if operand else 0.0)
    return rounded(a @ b + start, dtype, relative * magnitude)


def exact_product(a: Array, b: Array) -> Near:
    """Of integers."""
    return Near(a.astype(np.int64) @ b.astype(np.int64))


# --- block-scaled operands --------------------------------------------------------------------------------------------


def fp4_values(packed: Array) -> Reals:
    """[rows, K/2] bytes to [rows, K] values, the lower nibble first."""
    both = np.stack([packed & 15, packed >> 4], axis=-1)
    return FP4_VALUES[both.reshape(*packed.shape[:-1], -1)]


def e8m0_values(exponents: Array) -> Reals:
    return np.exp2(exponents.astype(np.float64) - 127)


def softmax(scores: Reals) -> Reals:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
