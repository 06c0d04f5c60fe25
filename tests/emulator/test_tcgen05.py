"""tcgen05.mma on the machine: every kind, M and N against float64, both groups, majors and swizzles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as every

import numpy as np
import pytest

from advisor.emulator.formats import FORMATS, as_real, encode
from advisor.emulator.numbers import quiet
from advisor.emulator.tcgen05_descriptors import SharedDescriptor
from tests.emulator.tcgen05_kernels import TILE, execute

FORMAT_CODES = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "i8": {"u8": 0, "s8": 1},
}
RESULT_CODES = {"f16": 0, "f32": 1, "s32": 2}
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def idesc(kind: str, a: str, b: str, d: str, m: int, n: int, **bits: int) -> int:
    """The instruction descriptor as the table of PTX ISA 9.7.16.4.2 lays it out."""
    value = (
        RESULT_CODES[d] << 4 | FORMAT_CODES[kind][a] << 7 | FORMAT_CODES[kind][b] << 10 | n >> 3 << 17 | m >> 4 << 24
    )
    places = {"saturate": 3, "negate_a": 13, "negate_b": 14, "transpose_a": 15, "transpose_b": 16}
    for name, bit in bits.items():
        value |= bit << places[name]
    return value


def core_matrices(codes: np.ndarray) -> np.ndarray:
    """A K-major operand without swizzle, [rows, bytes of K]: 8 rows of 16 bytes follow each other, then the next 8 rows
    of the same 16 bytes of K."""
    rows = np.ascontiguousarray(codes).view(np.uint8)
    return rows.reshape(len(rows) // 8, 8, -1, 16).transpose(2, 0, 1, 3).ravel()


def plain(offset: int, rows: int) -> int:
    """The descriptor of `core_matrices` at this offset of the tile."""
    return SharedDescriptor(TILE + offset, rows * 16, 128, 0, "none").encode()


def place_of_d(m: int, n: int, rows: int, columns: int, group: int) -> tuple[int, int, int]:
    """CTA, lane and column of D[m, n], as the figures of layouts A, B, D and F show them."""
    if group == 1:
        return (0, m, n) if rows == 128 else (0, m // 16 * 32 + m % 16, n)
    if rows == 256:
        return m // 128, m % 128, n
    return m // 64, m % 64 + 64 * (2 * n >= columns), n % (columns // 2)


def taken(out: np.ndarray, rows: int, columns: int, group: int) -> np.ndarray:
    result = np.zeros((rows, columns), np.uint32)
    for m, n in every(range(rows), range(columns)):
        result[m, n] = out[place_of_d(m, n, rows, columns, group)]
    return result


def random_codes(kind: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if kind in ("s8", "u8"):
        return random.integers(0, 256, shape, dtype=np.uint8)
    if kind == "tf32":
        return random.standard_normal(shape).astype(np.float32).view(np.uint32)
    layout = FORMATS[kind]
    return encode(random.standard_normal(shape), layout, finite=True)


def values(codes: np.ndarray, kind: str) -> np.ndarray:
    if kind in ("s8", "u8"):
        return codes.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)
    return as_real(codes, kind)


def results(words: np.ndarray, kind: str) -> np.ndarray:
    if kind == "f16":
        assert not (words >> 16).any()
        return words.astype(np.uint16).view(np.float16)
    return words.view(np.float32 if kind == "f32" else np.int32)


def issue(kind: str, group: int, a: int, b: int, descriptor: int, use_d: int = 0) -> str:
    return f"""
    mov.b64 %d20, {a}; mov.b64 %d21, {b}; mov.b32 %r30, {descriptor}; setp.ne.b32 %p8, {use_d}, 0;
    tcgen05.mma.cta_group::{group}.kind::{kind} [%tm], %d20, %d21, %r30, %p8;
"""


def multiply(
    kind: str, a_kind: str, b_kind: str, d_kind: str, m: int, n: int, group: int, **bits: int
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """D as the machine makes it, and A x B in float64."""
    depth = 32 // BYTES[a_kind]
    a, b = random_codes(a_kind, (m, depth), 1), random_codes(b_kind, (n, depth), 2)
    rows, columns = m // group, n // group
    shared = np.stack(
        [
            np.concatenate([core_matrices(a[each * rows :][:rows]), core_matrices(b[each * columns :][:columns])])
            for each in range(group)
        ]
    )
    used = max(8, n // 2 if (m, group) == (128, 2) else n)
    filled = np.zeros((group, 128, used), np.uint32) if m == 64 else None
    text = issue(
        kind, group, plain(0, rows), plain(rows * 32, columns), idesc(kind, a_kind, b_kind, d_kind, m, n, **bits)
    )
    out = execute(text, shared, filled, group=group, used=used)
    return results(taken(out, m, n, group), d_kind), values(a, a_kind) @ values(b, b_kind).T


SHAPES = [(128, 16, 1), (64, 8, 1), (256, 32, 2), (128, 32, 2)]
KINDS = [
    ("f16", "f16", "f16", "f32"),
    ("f16", "bf16", "f16", "f32"),
    ("f16", "f16", "f16", "f16"),
    ("tf32", "tf32", "tf32", "f32"),
    ("f8f6f4", "e4m3", "e5m2", "f32"),
    ("f8f6f4", "e5m2", "e4m3", "f16"),
    ("i8", "s8", "u8", "s32"),
]


@pytest.mark.parametrize(("m", "n", "group"), SHAPES)
@pytest.mark.parametrize(("kind", "a", "b", "d"), KINDS)
def test_a_product_is_exact_and_rounded_once(kind: str, a: str, b: str, d: str, m: int, n: int, group: int) -> None:
    got, exact = multiply(kind, a, b, d, m, n, group)
    np.testing.assert_array_equal(got, exact.astype(got.dtype))


@pytest.mark.parametrize("n", [8, 24, 136, 256])
def test_every_width_has_its_columns(n: int) -> None:
    got, exact = multiply("f16", "f16", "f16", "f32", 128, n, 1)
    np.testing.assert_array_equal(got, exact.astype(np.float32))


def test_operands_are_negated_and_integers_saturate() -> None:
    got, exact = multiply("f16", "f16", "f16", "f32", 128, 16, 1, negate_a=1)
    np.testing.assert_array_equal(got, (-exact).astype(np.float32))
    got, exact = multiply("f16", "f16", "f16", "f32", 128, 16, 1, negate_a=1, negate_b=1)
    np.testing.assert_array_equal(got, exact.astype(np.float32))


def test_the_accumulator_goes_in() -> None:
    a, b = random_codes("f16", (128, 16), 1), random_codes("f16", (16, 16), 2)
    start = np.random.default_rng(3).standard_normal((1, 128, 16)).astype(np.float32)
    shared = np.concatenate([core_matrices(a), core_matrices(b)])[None]
    text = issue("f16", 1, plain(0, 128), plain(4096, 16), idesc("f16", "f16", "f16", "f32", 128, 16), use_d=1)
    out = execute(text, shared, start.view(np.uint32), used=16).view(np.float32)
    exact = values(a, "f16") @ values(b, "f16").T
    np.testing.assert_array_equal(out[0], (exact + start[0]).astype(np.float32))
