"""The arithmetic of tensor cores: D = A x B + C, for mma.sync and wgmma. Imports only its own room.

PTX leaves the order and the rounding of the sum open. Two answers:

`fp32` (the default): the products of one instruction and the accumulator are added in float64, which holds them almost
always exactly, and rounded once to the type of the accumulator. The result does not depend on an order.

`model`: the sum as the chip makes it. Products and accumulator of a block are aligned to the largest exponent among
them (the exponent of a product is the sum of its operands' exponents), cut towards zero `fraction_bits` below it, added
exactly, and cut to `result_bits` of mantissa; an f16 result is rounded to nearest even. Blocks follow each other along
K. The parameters for sm_90 are the published ones (Xie et al., "MMA-Sim", arXiv 2511.10909): 25 bits for 16-bit and
tf32 operands, 13 for fp8 in wgmma, whose result keeps 13 bits too. The outputs of an H200 that the tests keep agree in
every bit. mma.sync of fp8 has no unit of its own on sm_90: the compiler widens its operands to f16 for two instructions
that start from zero, and adds the accumulator afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import fragments
from advisor.emulator.floating import f32_bits, fma_f64, round_f32
from advisor.emulator.formats import F16, FORMATS, Bits, Reals, as_real, encode

Numerics = Literal["fp32", "model"]
FLOATS = frozenset({"f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"})
BYTE_FLOATS = frozenset({"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"})
INTEGERS = frozenset({"s8", "u8", "s4", "u4"})


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How a tensor core adds: `block` products at a time, `fraction_bits` kept, `result_bits` of mantissa.

    `widened`: byte operands that the compiler turns into f16, the first two of each four along K for one instruction
    and the other two for a second; they start from zero, and a rounded addition of the accumulator follows."""

    block: int
    fraction_bits: int
    result_bits: int = 23
    widened: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """One D = A x B + C. `a` and `b` are element kinds, `d` the kind of C and D.

    `bit_operation` is that of single-bit operands; `saturate` clamps s32 sums; `model` says how the chip adds."""

    a: str
    b: str
    d: str
    saturate: bool = False
    bit_operation: Literal["", "xor", "and"] = ""
    model: Accumulation = Accumulation(16, 25)


def model_of(kind: str, *, warpgroup: bool, depth: int = 32) -> Accumulation:
    """The accumulation of sm_90 for operands of `kind`; `depth` is the K of a `mma.sync`."""
    if kind in BYTE_FLOATS:
        return Accumulation(32, 13, 13) if warpgroup else Accumulation(depth // 2, 25, widened=True)
    return Accumulation(8 if kind == "tf32" else 16, 25)


def multiply_add(a: Bits, b: Bits, c: Bits | None, product: Product, numerics: Numerics = "fp32") -> Bits:
    """Codes of D [..., m, n] from codes of A [..., m, k], B [..., k, n] and C (None: zero)."""
    if product.a in FLOATS:
        return _float_product(a, b, c, product, numerics)
    if product.a == "f64":
        return _f64_product(a, b, c)
    return _integer_product(a, b, c, product)


def operand(codes: Bits, kind: str) -> Reals:
    """The values of an operand. A 4-bit float lies in the middle of its container."""
    if kind == "e2m1":
        codes = codes >> np.uint8(2)
    elif kind in ("s8", "u8"):
        return codes.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)
    elif kind in ("s4", "u4", "b1"):
        values = codes.astype(np.float64)
        return np.where(values > 7, values - 16, values) if kind == "s4" else values
    return as_real(codes, kind)


# --- floats -----------------------------------------------------------------------------------------------------------


def _accumulator(c: Bits | None, kind: str) -> Reals | None:
    return None if c is None else as_real(c, kind)


def finished(total: Reals, kind: str) -> Bits:
    """float64 sums as codes of the result."""
    if kind == "f32":
        return f32_bits(total.astype(np.float32))
    half: Bits = total.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(total), np.uint16(0x7FFF), half)


def _float_product(a: Bits, b: Bits, c: Bits | None, product: Product, numerics: Numerics) -> Bits:
    left, right = operand(a, product.a), operand(b, product.b)
    start = _accumulator(c, product.d)
    total = left @ right
    if start is not None:
        total = total + start
    if numerics == "fp32":
        return finished(total, product.d)
    summed = (_widened_sum if product.model.widened else _model_sum)(left, right, start, product)
    return np.where(np.isfinite(total), summed, finished(total, product.d))


def _exponents(values: Reals, smallest: int) -> NDArray[np.int64]:
    """Exponents as the format stores them: subnormals have the smallest, zeros none (far below every other)."""
    exponent = np.maximum(np.frexp(values)[1].astype(np.int64) - 1, smallest)
    return np.where(values == 0, np.int64(-100_000), exponent)


def _widened_sum(left: Reals, right: Reals, start: Reals | None, product: Product) -> Bits:
    depth = np.arange(left.shape[-1])
    order = np.argsort(depth % 4 // 2, kind="stable")
    codes = _model_sum(left[..., order], right[..., order, :], None, replace(product, a="f16", b="f16"))
    return codes if start is None else finished(as_real(codes, product.d) + start, product.d)


def _model_sum(left: Reals, right: Reals, start: Reals | None, product: Product) -> Bits:
    left = np.where(np.isfinite(left), left, 0.0)
    right = np.where(np.isfinite(right), right, 0.0)
    depth = left.shape[-1]
    shape = (*left.shape[:-1], right.shape[-1])
    running = np.zeros(shape) if start is None else np.where(np.isfinite(start), start, 0.0)
    left_exponents = _exponents(left, FORMATS[product.a].smallest_exponent)
    right_exponents = _exponents(right, FORMATS[product.b].smallest_exponent)
    model = product.model
    codes: Bits = np.zeros(shape, np.uint32)
    for at in range(0, depth, model.block):
        part = slice(at, at + model.block)
        terms = left[..., :, None, part] * np.swapaxes(right[..., part, :], -1, -2)[..., None, :, :]
        columns = np.swapaxes(right_exponents[..., part, :], -1, -2)[..., None, :, :]
        exponents = left_exponents[..., :, None, part] + columns
        codes = _block_sum(terms, exponents, running, product)
        running = as_real(codes, product.d)
    return codes


def _block_sum(terms: Reals, exponents: NDArray[np.int64], running: Reals, product: Product) -> Bits:
    """One aligned and truncated sum of products [..., k] and the accumulator."""
    smallest = -126 if product.d == "f32" else -14
    largest = np.maximum(exponents.max(axis=-1), _exponents(running, smallest))
    step = (product.model.fraction_bits - np.maximum(largest, -100_000 + 1)).astype(np.int64)
    step = np.clip(step, -1000, 1000)
    cut: Reals = np.trunc(np.ldexp(terms, step[..., None])).sum(axis=-1) + np.trunc(np.ldexp(running, step))
    total: Reals = np.ldexp(cut, -step)
    if product.d == "f16":
        return encode(total, F16)
    codes: Bits = f32_bits(round_f32(total, None, "rz"))
    lost = 23 - product.model.result_bits
    return codes & np.uint32(0xFFFFFFFF << lost & 0xFFFFFFFF)


def _f64_product(a: Bits, b: Bits, c: Bits | None) -> Bits:
    """A chain of fused multiply-adds along K."""
    running = np.zeros((*a.shape[:-1], b.shape[-1]), np.uint64) if c is None else c
    for at in range(a.shape[-1]):
        running = fma_f64(a[..., :, at, None], b[..., None, at, :], running)
    return running


# --- integers ---------------------------------------------------------------------------------------------------------


def _integer_product(a: Bits, b: Bits, c: Bits | None, product: Product) -> Bits:
    """Exact sums in float64 (they stay below 2^53), wrapped or clamped to s32."""
    left, right = operand(a, product.a), operand(b, product.b)
    total = left @ right
    if product.bit_operation == "xor":
        total = left.sum(axis=-1)[..., :, None] + right.sum(axis=-2)[..., None, :] - 2 * total
    whole = total.astype(np.int64)
    if c is not None:
        whole = whole + c.view(np.int32)
    if product.saturate:
        whole = np.clip(whole, -(1 << 31), (1 << 31) - 1)
    return whole.astype(np.uint32)


# --- mma.sync ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WarpMma:
    """One `mma.sync` form: how many registers each operand has, and what it computes."""

    opcode: str
    m: int
    n: int
    k: int
    product: Product

    @property
    def a_registers(self) -> int:
        return self.m * self.k // 32 // fragments.per_register(self.product.a)

    @property
    def b_registers(self) -> int:
        return self.n * self.k // 32 // fragments.per_register(self.product.b)

    @property
    def d_registers(self) -> int:
        """Registers of C, and of D."""
        return self.m * self.n // 32 // fragments.per_register(self.product.d)

    @property
    def multiply_adds(self) -> int:
        return self.m * self.n * self.k

    def __call__(
        self, a: Sequence[Bits], b: Sequence[Bits], c: Sequence[Bits], numerics: Numerics = "fp32"
    ) -> list[Bits]:
        """Registers of D from those of A, B and C; each of shape [..., 32]."""
        kinds = self.product
        first = fragments.matrix_a(fragments.stack(a), kinds.a, self.m)
        second = fragments.matrix_b(fragments.stack(b), kinds.b)
        start = fragments.matrix_c(fragments.stack(c), kinds.d, self.m)
        result = multiply_add(first, second, start, kinds, numerics)
        return fragments.unstack(fragments.registers_c(result, kinds.d))


_HALF = (("f16", "f16"),)
_BYTE_FLOATS = tuple((a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))
_BYTES = tuple((a, b) for a in ("s8", "u8") for b in ("s8", "u8"))
_NIBBLES = tuple((a, b) for a in ("s4", "u4") for b in ("s4", "u4"))
_ALL_SMALL = tuple((a, b) for a in sorted(BYTE_FLOATS) for b in sorted(BYTE_FLOATS))

# Accumulator kinds -> operand pairs -> shapes.
_FORMS: tuple[tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]], ...] = (
    (("f16", "f32"), _HALF, ("m16n8k8", "m16n8k16")),
    (("f32",), (("bf16", "bf16"),), ("m16n8k8", "m16n8k16")),
    (("f32",), (("tf32", "tf32"),), ("m16n8k4", "m16n8k8")),
    (("f16", "f32"), _BYTE_FLOATS, ("m16n8k16", "m16n8k32")),
    (("f64",), (("f64", "f64"),), ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
    (("s32",), _BYTES, ("m8n8k16", "m16n8k16", "m16n8k32")),
    (("s32",), _NIBBLES, ("m8n8k32", "m16n8k32", "m16n8k64")),
    (("s32",), (("b1", "b1"),), ("m8n8k128", "m16n8k128", "m16n8k256")),
)


def _legal(shape: str, a: str, b: str, d: str) -> bool:
    return any(d in results and (a, b) in pairs and shape in shapes for results, pairs, shapes in _FORMS)


@lru_cache(maxsize=512)
def warp_mma(opcode: str) -> WarpMma | None:
    """The form of a `mma.sync` opcode, or None where there is no such form here.

    Not here: m8n8k4 of f16, sparse and block-scaled forms, directed rounding of f64."""
    words = opcode.split(".")
    if words[:3] != ["mma", "sync", "aligned"] or len(words) < 10 or words[4:6] != ["row", "col"]:
        return None
    shape, rest = words[3], words[6:]
    mixed = rest[0] == "kind::f8f6f4"
    saturate = rest[0] == "satfinite"
    if mixed or saturate:
        rest = rest[1:]
    if len(rest) < 4:
        return None
    d, a, b, c, *tail = rest
    if d != c or (mixed and not (shape == "m16n8k32" and (a, b) in _ALL_SMALL and d in ("f16", "f32"))):
        return None
    if not mixed and not _legal(shape, a, b, d):
        return None
    bits = tail[0] if tail[1:] == ["popc"] and a == "b1" else ""
    if (tail and bits not in ("xor", "and")) or (a == "b1") != bool(bits) or (saturate and a not in INTEGERS):
        return None
    m, n, k = _numbers(shape)
    model = model_of(a, warpgroup=False, depth=k)
    operation: Literal["", "xor", "and"] = "xor" if bits == "xor" else "and" if bits else ""
    return WarpMma(opcode, m, n, k, Product(a, b, d, saturate, operation, model))


def _numbers(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)
