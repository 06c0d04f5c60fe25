"""wgmma: the forms of the instruction and its shared memory descriptor. Imports only its own room.

Where an operand's bytes lie is the business of `shared_operand`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from advisor.emulator import fragments
from advisor.emulator.formats import Bits
from advisor.emulator.mma import BYTE_FLOATS, Numerics, Product, model_of, multiply_add
from advisor.emulator.shared_operand import Placement, depth_of

_SWIZZLES = ("none", "128B", "64B", "32B")  # by the code in bits 62 and 63


@dataclass(frozen=True, slots=True)
class Descriptor(Placement):
    """A decoded shared memory descriptor of wgmma."""

    reserved: int  # the bits that must be zero

    @classmethod
    def decode(cls, value: int) -> Descriptor:
        def field(low: int) -> int:
            return (value >> low & 0x3FFF) << 4

        reserved = value & (0b11 << 14 | 0b11 << 30 | 0b111 << 46 | 0x3FF << 52)
        return cls(field(0), field(16), field(32), value >> 49 & 7, _SWIZZLES[value >> 62 & 3], reserved)

    def encode(self) -> int:
        """The 64-bit value."""
        value = (self.start & 0x3FFFF) >> 4 | (self.leading_bytes & 0x3FFFF) >> 4 << 16
        value |= (self.stride_bytes & 0x3FFFF) >> 4 << 32 | self.base_offset << 49
        return value | _SWIZZLES.index(self.swizzle) << 62 | self.reserved


# --- the instruction --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WarpgroupMma:
    """One `wgmma.mma_async` form: D (64 x n) = A (64 x k) x B (k x n) + D."""

    opcode: str
    n: int
    k: int
    product: Product

    @property
    def d_registers(self) -> int:
        return self.n // 2 // fragments.per_register(self.product.d)

    @property
    def a_registers(self) -> int:
        """Registers of A, where it is not in shared memory."""
        return 4

    @property
    def may_transpose(self) -> bool:
        """Whether the form has operands imm-trans: MN-major is for 16-bit types."""
        return self.product.a in ("f16", "bf16")

    @property
    def may_negate(self) -> bool:
        """Whether the form has operands imm-scale."""
        return self.product.d != "s32"

    @property
    def multiply_adds(self) -> int:
        return 64 * self.n * self.k

    def a_from_registers(self, registers: Sequence[Bits]) -> Bits:
        """A [..., 64, k] from registers of shape [..., 4 warps, 32]."""
        matrix = fragments.matrix_a(fragments.stack(registers), self.product.a)
        return matrix.reshape((*matrix.shape[:-3], 64, self.k))

    def d_from_registers(self, registers: Sequence[Bits]) -> Bits:
        """D [..., 64, n] from registers of shape [..., 4 warps, 32]."""
        matrix = fragments.matrix_c(fragments.stack(registers), self.product.d)
        return matrix.reshape((*matrix.shape[:-3], 64, self.n))

    def d_to_registers(self, matrix: Bits) -> list[Bits]:
        """The inverse of `d_from_registers`."""
        warps = matrix.reshape((*matrix.shape[:-2], 4, 16, self.n))
        return fragments.unstack(fragments.registers_c(warps, self.product.d))

    def __call__(
        self,
        a: Bits,
        b: Bits,
        d: Bits | None,
        *,
        scale_a: int = 1,
        scale_b: int = 1,
        numerics: Numerics = "fp32",
    ) -> Bits:
        """D [..., 64, n] from A [..., 64, k], B as it is read, [..., n, k], and D (None: scale-d is false)."""
        if scale_a * scale_b < 0:
            bits = fragments.ELEMENT_BITS[self.product.a]
            a = a ^ a.dtype.type(1 << (bits - 1))
        return multiply_add(a, np.ascontiguousarray(np.swapaxes(b, -1, -2)), d, self.product, numerics)


_EIGHTS = frozenset(range(8, 257, 8))
_INTEGER_COLUMNS = frozenset({8, 16, 24, *range(32, 257, 16)})


@lru_cache(maxsize=512)
def warpgroup_mma(opcode: str) -> WarpgroupMma | None:
    """The form of a `wgmma.mma_async` opcode, or None where there is no such form. Sparse forms are not here."""
    words = opcode.split(".")
    if words[:4] != ["wgmma", "mma_async", "sync", "aligned"] or len(words) < 8:
        return None
    shape, *rest = words[4:]
    saturate = "satfinite" in rest
    kinds = [each for each in rest if each != "satfinite"]
    if not shape.startswith("m64n") or "k" not in shape or len(kinds) < 3:
        return None
    columns, depth = shape[4:].split("k")
    if not (columns.isdigit() and depth.isdigit()):
        return None
    d, a, b, *tail = kinds
    n, k = int(columns), int(depth)
    if not _legal(n, d, a, b, tail) or k != depth_of(a) or (saturate and a not in ("s8", "u8")):
        return None
    bits: Literal["", "and"] = "and" if a == "b1" else ""
    return WarpgroupMma(opcode, n, k, Product(a, b, d, saturate, bits, model_of(a, warpgroup=True)))


def _legal(n: int, d: str, a: str, b: str, tail: list[str]) -> bool:
    if a == "b1":
        return (b, d) == ("b1", "s32") and tail == ["and", "popc"] and n in _INTEGER_COLUMNS
    if tail:
        return False
    if a in ("s8", "u8"):
        return b in ("s8", "u8") and d == "s32" and n in _INTEGER_COLUMNS
    if n not in _EIGHTS:
        return False
    if a in ("e4m3", "e5m2"):
        return b in BYTE_FLOATS & {"e4m3", "e5m2"} and d in ("f16", "f32")
    return a == b and (d in ("f16", "f32") if a == "f16" else a in ("bf16", "tf32") and d == "f32")
