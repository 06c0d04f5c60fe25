"""tcgen05.mma on the machine: every kind, M and N against float64, both groups, majors and swizzles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as every
from typing import Any

import numpy as np
import pytest

from advisor.emulator import KernelFault
from advisor.emulator.formats import FORMATS, as_real, encode
from advisor.emulator.numbers import quiet
from advisor.emulator.tcgen05_descriptors import SharedDescriptor
from tests.emulator.tcgen05_kernels import TILE, execute

FORMAT_CODES = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "i8": {"u8": 0, "s8": 1},
    "mxf8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
RESULT_CODES = {"f16": 0, "f32": 1, "s32": 2}
BYTES = {"f16": 2, "bf16": 2, "tf32": 4}  # of the others: 1


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


def packed(codes: np.ndarray, kind: str, container: int = 8) -> np.ndarray:
    """Codes [rows, k] as bytes: 16 small elements in 16 bytes with padding, or two of 4 bits in a byte."""
    if kind not in ("e2m1", "e2m3", "e3m2"):
        return np.ascontiguousarray(codes).view(np.uint8)
    if container == 4:
        return codes[:, 0::2] | codes[:, 1::2] << 4
    bits = FORMATS[kind].bits
    rows = []
    for row in codes:
        line = b""
        for first in range(0, len(row), 16):
            value = sum(int(each) << bits * at for at, each in enumerate(row[first : first + 16]))
            line += value.to_bytes(16, "little")
        rows.append(np.frombuffer(line, np.uint8))
    return np.stack(rows)


def core_matrices(codes: np.ndarray, kind: str = "", container: int = 8) -> np.ndarray:
    """A K-major operand without swizzle, [rows, bytes of K]: 8 rows of 16 bytes follow each other, then the next 8 rows
    of the same 16 bytes of K."""
    rows = packed(codes, kind, container)
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


def issue(
    kind: str, group: int, a: int, b: int, descriptor: int, use_d: int = 0, tail: str = "", mask: str = ""
) -> str:  # fmt: skip
    """One product into the first columns. `mask` sets four words of disabled lanes, `tail` are more operands."""
    words = "{%r31, %r32, %r33, %r34}, " if mask else ""
    return f"""
    mov.b64 %d20, {a}; mov.b64 %d21, {b}; mov.b32 %r30, {descriptor}; setp.ne.b32 %p8, {use_d}, 0; {mask}
    tcgen05.mma.cta_group::{group}.kind::{kind} [%tm], %d20, %d21, %r30, {words}%p8{tail};
"""


def multiply(
    kind: str, a_kind: str, b_kind: str, d_kind: str, m: int, n: int, group: int, **bits: int
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """D as the machine makes it, and A x B in float64."""
    depth = 32 // BYTES.get(a_kind, 1)
    a, b = random_codes(a_kind, (m, depth), 1), random_codes(b_kind, (n, depth), 2)
    rows, columns = m // group, n // group
    shared = np.stack(
        [
            np.concatenate(
                [core_matrices(a[each * rows :][:rows], a_kind), core_matrices(b[each * columns :][:columns], b_kind)]
            )
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
    ("f8f6f4", "e2m1", "e3m2", "f32"),
    ("f8f6f4", "e2m3", "e4m3", "f32"),
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


def test_operands_are_negated() -> None:
    got, exact = multiply("f16", "f16", "f16", "f32", 128, 16, 1, negate_a=1)
    np.testing.assert_array_equal(got, (-exact).astype(np.float32))
    got, exact = multiply("f16", "f16", "f16", "f32", 128, 16, 1, negate_a=1, negate_b=1)
    np.testing.assert_array_equal(got, exact.astype(np.float32))


def accumulated(
    kind: str, a_kind: str, d_kind: str, start: np.ndarray, tail: str = "", mask: str = "", **bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """D [128, 16] where it goes in with the values `start`, and A x B in float64."""
    depth = 32 // BYTES.get(a_kind, 1)
    a, b = random_codes(a_kind, (128, depth), 1), random_codes(a_kind, (16, depth), 2)
    shared = np.concatenate([core_matrices(a), core_matrices(b)])[None]
    text = issue(
        kind, 1, plain(0, 128), plain(4096, 16), idesc(kind, a_kind, a_kind, d_kind, 128, 16, **bits), 1, tail, mask
    )
    filled = start.view(np.uint16).astype(np.uint32) if d_kind == "f16" else start.view(np.uint32)
    out = execute(text, shared, filled[None], used=16)[0]
    return results(out, d_kind), values(a, a_kind) @ values(b, a_kind).T


def test_the_accumulator_goes_in() -> None:
    start = np.random.default_rng(3).standard_normal((128, 16)).astype(np.float32)
    got, exact = accumulated("f16", "f16", "f32", start)
    np.testing.assert_array_equal(got, (exact + start).astype(np.float32))
    halves = start.astype(np.float16)
    got, exact = accumulated("f16", "f16", "f16", halves)
    np.testing.assert_array_equal(got, (exact + halves).astype(np.float16))


def test_the_accumulator_goes_in_halved() -> None:
    start = np.random.default_rng(3).standard_normal((128, 16)).astype(np.float32)
    got, exact = accumulated("f16", "bf16", "f32", start, tail=", 3")
    np.testing.assert_array_equal(got, (exact + start / 8).astype(np.float32))


def test_integers_wrap_or_saturate() -> None:
    start = np.full((128, 16), 2**31 - 100, np.int32)
    got, exact = accumulated("i8", "u8", "s32", start)
    np.testing.assert_array_equal(got, (exact + start).astype(np.int64).astype(np.uint32).view(np.int32))
    got, exact = accumulated("i8", "u8", "s32", start, saturate=1)
    np.testing.assert_array_equal(got, np.full((128, 16), 2**31 - 1))
    assert exact.min() > 100


def test_disabled_lanes_keep_what_they_have() -> None:
    start = np.random.default_rng(3).standard_normal((128, 16)).astype(np.float32)
    mask = "mov.b32 %r31, 0x0000FF01; mov.b32 %r32, 0; mov.b32 %r33, 0xFFFFFFFF; mov.b32 %r34, 0x80000000;"
    got, exact = accumulated("f16", "f16", "f32", start, mask=mask)
    off = np.zeros(128, bool)
    off[[0, *range(8, 16), *range(64, 96), 127]] = True
    np.testing.assert_array_equal(got[off], start[off])
    np.testing.assert_array_equal(got[~off], (exact + start).astype(np.float32)[~off])


# --- A in tensor memory, .ws ------------------------------------------------------------------------------------------


def from_tensor_memory(
    m: int, n: int, *, ws: bool = False, kind: str = "bf16", zeros: int | None = None, extra: int = 0
) -> tuple[Any, ...]:
    """D [m, n] with A in tensor memory beside it, one copy of its rows for each part of D; A x B; A; and B, which may
    have extra columns."""
    depth = 32 // BYTES.get(kind, 1)
    opcode = "tf32" if kind == "tf32" else "f16" if kind in BYTES else "f8f6f4"
    a, b = random_codes(kind, (m, depth), 1), random_codes(kind, (n + extra, depth), 2)
    containers = a << 2 if kind == "e2m1" else a  # a 4-bit element is in the middle of its byte
    words = np.ascontiguousarray(containers).view(np.uint32)
    used = n + 8
    filled = np.zeros((1, 128, used), np.uint32)
    rows = place_of_rows(m, ws)
    for lanes in rows:
        filled[0, lanes, n:] = words
    what = idesc(opcode, kind, kind, "f32", m, n)
    tail = "" if zeros is None else ", %d22"
    text = f"""
    mov.b64 %d21, {plain(0, n + extra)}; mov.b32 %r30, {what}; setp.ne.b32 %p8, 0, 0; add.u32 %r40, %tm, {n};
    mov.b64 %d22, {zeros or 0};
    tcgen05.mma{".ws" if ws else ""}.cta_group::1.kind::{opcode} [%tm], [%r40], %d21, %r30, %p8{tail};
"""
    out = execute(text, core_matrices(b, kind)[None], filled, used=used)[0]
    share = n // len(rows)
    got = np.concatenate([out[lanes, :share] for lanes in rows], axis=1).view(np.float32)
    return got, values(a, kind) @ values(b, kind).T, values(a, kind), values(b, kind)


def place_of_rows(m: int, ws: bool) -> list[np.ndarray]:
    """The lanes of the rows of each part of D: layouts D, F, E and G."""
    if m == 128:
        return [np.arange(128)]
    if not ws:
        return [np.arange(64) // 16 * 32 + np.arange(64) % 16]
    return [np.arange(m) + first for first in range(0, 128, m)]


@pytest.mark.parametrize(("m", "n", "ws"), [(128, 16, False), (64, 16, False), (128, 64, True), (64, 64, True),
                                            (32, 64, True)])  # fmt: skip
@pytest.mark.parametrize("kind", ["bf16", "tf32", "e5m2", "e2m1"])
def test_a_comes_from_tensor_memory(m: int, n: int, ws: bool, kind: str) -> None:
    got, exact, _, _ = from_tensor_memory(m, n, ws=ws, kind=kind)
    np.testing.assert_array_equal(got, exact.astype(np.float32))


def test_a_zero_column_mask_drops_columns_of_b() -> None:
    """Spans of 4 used and 3 dropped columns, in each half of N for M 64."""
    mask = 1 << 39 | 2 << 40 | 3 << 48
    got, exact, _, _ = from_tensor_memory(64, 64, ws=True, zeros=mask)
    dropped = np.arange(64) % 32 % 7 >= 4
    np.testing.assert_array_equal(got, np.where(dropped, 0.0, exact).astype(np.float32))


def test_a_zero_column_mask_shifts_b() -> None:
    got, exact, a, b = from_tensor_memory(128, 64, ws=True, zeros=2 << 56, extra=8)
    np.testing.assert_array_equal(got, (a @ b[2:66].T).astype(np.float32))
    assert exact.shape == (128, 72)


# --- majors and swizzles ----------------------------------------------------------------------------------------------

WIDTHS = {"none": 16, "32B": 32, "64B": 64, "128B": 128, "128B_32B": 128}


def turned(address: int, swizzle: str) -> int:
    """CuTe's Swizzle<bits, base, shift> of each mode."""
    bits, base, shift = {
        "none": (0, 4, 3),
        "32B": (1, 4, 3),
        "64B": (2, 4, 3),
        "128B": (3, 4, 3),
        "128B_32B": (2, 5, 2),
    }[swizzle]
    return address ^ ((address >> base + shift & (1 << bits) - 1) << base)


def in_shared(codes: np.ndarray, major: str, swizzle: str, leading: int, stride: int) -> np.ndarray:
    """32 KiB that begin with the operand [rows, k], by the canonical layouts of PTX ISA 9.7.16.3.3, by element."""
    size = codes.dtype.itemsize
    t, width = 16 // size, WIDTHS[swizzle] // 16
    memory = np.zeros(1 << 15, np.uint8)
    for (row, k), code in np.ndenumerate(codes):
        if major == "K":
            inner = (row % 8) * width * 16 + k % t * size
            along = leading if swizzle == "none" else 16
            plain_at = inner + row // 8 * stride + k // t * along
        else:
            lines = 4 if swizzle == "128B_32B" else 8
            block, group = (stride, leading) if swizzle == "none" else (leading, stride)
            plain_at = row % t * size + row // t % width * 16 + row // (t * width) * block
            plain_at += k % lines * width * 16 + k // lines * group
        at = turned(plain_at, swizzle)
        memory[at : at + size] = np.frombuffer(code.tobytes(), np.uint8)
    return memory


MAJORS = [("K", swizzle, kind) for swizzle, kind in every(("none", "32B", "64B", "128B"), ("f16", "tf32", "e4m3"))]
MAJORS += [("MN", swizzle, kind) for swizzle, kind in every(("none", "32B", "64B", "128B"), ("bf16", "e4m3"))]
MAJORS += [("MN", "128B_32B", "tf32")]


@pytest.mark.parametrize(("major", "swizzle", "kind"), MAJORS)
def test_operands_of_every_major_and_swizzle(major: str, swizzle: str, kind: str) -> None:
    depth = 32 // BYTES.get(kind, 1)
    a, b = random_codes(kind, (128, depth), 1), random_codes(kind, (64, depth), 2)
    opcode = "tf32" if kind == "tf32" else "f16" if kind in BYTES else "f8f6f4"
    if major == "K":
        leading, stride = (2048 if swizzle == "none" else 16), 8 * WIDTHS[swizzle]
    elif swizzle == "none":
        leading, stride = 4096, 256
    else:
        lines = 4 if swizzle == "128B_32B" else 8
        stride = lines * WIDTHS[swizzle] + 1024
        leading = stride * (depth // lines)
    placed = [in_shared(codes, major, swizzle, leading, stride) for codes in (a, b)]
    a_place, b_place = (SharedDescriptor(TILE + at, leading, stride, 0, swizzle).encode() for at in (0, 1 << 15))
    transposed = int(major == "MN")
    what = idesc(opcode, kind, kind, "f32", 128, 64, transpose_a=transposed, transpose_b=transposed)
    out = execute(issue(opcode, 1, a_place, b_place, what), np.concatenate(placed)[None], used=64)[0]
    exact = values(a, kind) @ values(b, kind).T
    np.testing.assert_array_equal(out.view(np.float32), exact.astype(np.float32))


# --- block scales -----------------------------------------------------------------------------------------------------


def scale_words(codes: np.ndarray, identifier: int, parts: int = 1) -> np.ndarray:
    """[128, columns] words with the scales [rows, blocks], a copy in every quarter; in parts: halves of the rows in
    the halves of the quarters."""
    rows = len(codes) // parts
    words = np.zeros((128, -(-rows // 32)), np.uint32)
    for quarter in range(4):
        part = quarter * parts // 4
        for row in range(rows):
            for block, code in enumerate(codes[part * rows + row]):
                words[32 * quarter + row % 32, row // 32] |= int(code) << 8 * (identifier + block)
    return words


def scaled(
    kind: str, a_kind: str, b_kind: str, blocks: int, scale: str, m: int, n: int, group: int, ids: tuple[int, int],
    *, spoiled: bool = False, **options: Any,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """D as the machine makes it, and the product of the dequantised operands in float64."""
    random = np.random.default_rng(5)
    container = 8 if kind == "mxf8f6f4" else 4
    depth = 256 // container
    a = random.integers(0, 1 << FORMATS[a_kind].bits, (m, depth), dtype=np.uint8)
    b = random.integers(0, 1 << FORMATS[b_kind].bits, (n, depth), dtype=np.uint8)
    for codes, each in ((a, a_kind), (b, b_kind)):
        codes[~np.isfinite(as_real(codes, each))] = 0
    low, high = (120, 134) if scale == "ue8m0" else (0, 127)
    scale_a = random.integers(low, high, (m, blocks), dtype=np.uint8)
    scale_b = random.integers(low, high, (n, blocks), dtype=np.uint8)
    rows, share = m // group, n // group
    parts = 2 if (m, group) == (128, 2) else 1
    shared, filled = [], []
    columns = n // parts
    for cta in range(group):
        pieces = (a[cta * rows :][:rows], a_kind), (b[cta * share :][:share], b_kind)
        shared.append(np.concatenate([core_matrices(codes, each, container) for codes, each in pieces]))
        words = [scale_words(scale_a[cta * rows :][:rows], ids[0]), scale_words(scale_b, ids[1], parts)]
        filled.append(np.concatenate([np.zeros((128, columns), np.uint32), *words], axis=1))
    tensor = np.stack(filled)
    if spoiled:
        tensor[0, 96, columns] ^= 1
    width = tensor.shape[2]
    tensor = np.concatenate([tensor, np.zeros((group, 128, -width % 8), np.uint32)], axis=2)
    value = ids[1] << 4 | FORMAT_CODES[kind][a_kind] << 7 | FORMAT_CODES[kind][b_kind] << 10 | n >> 3 << 17
    value |= int(scale == "ue8m0") << 23 | m >> 7 << 27 | ids[0] << 29
    vector = {1: "scale_vec::1X", 2: "scale_vec::2X", 4: "scale_vec::4X"}[blocks]
    text = f"""
    mov.b64 %d20, {plain(0, rows)}; mov.b64 %d21, {plain(rows * 32, share)}; mov.b32 %r30, {value};
    add.u32 %r40, %tm, {columns}; add.u32 %r41, %tm, {columns + rows // 32}; setp.ne.b32 %p8, 0, 0;
    tcgen05.mma.cta_group::{group}.kind::{kind}.block_scale.{vector} [%tm], %d20, %d21, %r30, [%r40], [%r41], %p8;
"""
    out = execute(text, np.stack(shared), tensor, group=group, used=tensor.shape[2], **options)
    factors = (as_real(each & 127 if scale == "ue4m3" else each, "e4m3" if scale == "ue4m3" else scale)
               for each in (scale_a, scale_b))  # fmt: skip
    left, right = (
        as_real(codes, each) * np.repeat(factor, depth // blocks, axis=1)
        for codes, each, factor in zip((a, b), (a_kind, b_kind), factors, strict=True)
    )
    return taken(out, m, n, group).view(np.float32), left @ right.T


SCALED = [
    ("mxf8f6f4", "e4m3", "e5m2", 1, "ue8m0", (1, 3)),
    ("mxf8f6f4", "e2m1", "e3m2", 1, "ue8m0", (0, 2)),
    ("mxf4", "e2m1", "e2m1", 2, "ue8m0", (2, 0)),
    ("mxf4nvf4", "e2m1", "e2m1", 2, "ue8m0", (0, 2)),
    ("mxf4nvf4", "e2m1", "e2m1", 4, "ue8m0", (0, 0)),
    ("mxf4nvf4", "e2m1", "e2m1", 4, "ue4m3", (0, 0)),
]


@pytest.mark.parametrize(("m", "n", "group"), [(128, 40, 1), (256, 64, 2), (128, 64, 2)])
@pytest.mark.parametrize(("kind", "a", "b", "blocks", "scale", "ids"), SCALED)
def test_a_scaled_product_is_that_of_the_dequantised_operands(
    kind: str, a: str, b: str, blocks: int, scale: str, ids: tuple[int, int], m: int, n: int, group: int
) -> None:
    got, exact = scaled(kind, a, b, blocks, scale, m, n, group, ids)
    np.testing.assert_array_equal(got, exact.astype(np.float32))


def test_scales_that_differ_between_the_quarters_are_named() -> None:
    with pytest.raises(KernelFault) as caught:
        scaled("mxf8f6f4", "e4m3", "e4m3", 1, "ue8m0", 128, 16, 1, (0, 0), spoiled=True)
    assert caught.value.finding.code == "EMU_TCGEN05_SCALES"


def test_scales_that_the_kind_lacks_are_named() -> None:
    for arguments in (("mxf4nvf4", 2, "ue4m3", (0, 0)), ("mxf4", 2, "ue8m0", (1, 0)), ("mxf4", 2, "ue4m3", (0, 0))):
        kind, blocks, scale, ids = arguments
        with pytest.raises(KernelFault) as caught:
            scaled(kind, "e2m1", "e2m1", blocks, scale, 128, 16, 1, ids)
        assert caught.value.finding.code == "EMU_TCGEN05_DESCRIPTOR"


# --- K 96 of sm_103a --------------------------------------------------------------------------------------------------


def rows_of_128(codes: np.ndarray, offset: int) -> np.ndarray:
    """Two buffers of rows of 128 bytes under 128-byte swizzling, one after the other: 96 codes of each row from byte
    `offset` on; what does not fit goes on at the beginning of the same row of the second buffer."""
    rows = len(codes)
    line = np.zeros((rows, 256), np.uint8)
    line[:, offset : offset + 48] = packed(codes, "e2m1", 4)
    buffers = np.zeros((2, rows * 128), np.uint8)
    for row, byte in every(range(rows), range(256)):
        buffers[byte // 128, turned(row * 128 + byte % 128, "128B")] = line[row, byte]
    return buffers.ravel()


def scale_stream(codes: np.ndarray, identifier: int) -> np.ndarray:
    """[128, columns] words: scale j of row r is byte (identifier + j) % 4 of column r // 32 of its group of four, and
    groups are as far apart as the columns that whole blocks of 128 rows take."""
    rows, blocks = codes.shape
    step = 4 if rows <= 128 else 8
    words = np.zeros((128, -(-(identifier + blocks) // 4) * step), np.uint32)
    for row, block in every(range(rows), range(blocks)):
        group, byte = divmod(identifier + block, 4)
        words[row % 32 :: 32, group * step + row // 32] |= np.uint32(int(codes[row, block]) << 8 * byte)
    return words


@pytest.mark.parametrize(
    ("block", "ids", "offset", "n", "group"),
    [("block16", (0, 2), 0, 64, 1), ("block16", (2, 0), 96, 160, 2), ("block32", (3, 1), 48, 64, 2),
     ("block32", (2, 3), 96, 144, 1)],
)  # fmt: skip
def test_k_96(block: str, ids: tuple[int, int], offset: int, n: int, group: int) -> None:
    random = np.random.default_rng(6)
    m = 128 * group
    blocks = 96 // int(block[5:])
    a, b = (random.integers(0, 16, (rows, 96), dtype=np.uint8) for rows in (m, n))
    scale_a, scale_b = (random.integers(120, 134, (rows, blocks), dtype=np.uint8) for rows in (m, n))
    share = n // group
    shared, filled = [], []
    for cta in range(group):
        left, right = (rows_of_128(each, offset) for each in (a[cta * 128 :][:128], b[cta * share :][:share]))
        shared.append(np.concatenate([left, right]))
        words = [scale_stream(scale_a[cta * 128 :][:128], ids[0]), scale_stream(scale_b, ids[1])]
        filled.append(np.concatenate([np.zeros((128, n), np.uint32), *words], axis=1))
    tensor = np.stack(filled)
    column_b = n + scale_stream(scale_a[:128], ids[0]).shape[1]
    tensor = np.concatenate([tensor, np.zeros((group, 128, -tensor.shape[2] % 8), np.uint32)], axis=2)
    crossing = offset + 48 > 128
    descriptors = []
    for first, rows in ((0, 128), (2 * 128 * 128, share)):
        start = TILE + first
        following = start + rows * 128 if crossing else 16
        descriptors.append(SharedDescriptor(start + offset, following, 1024, 0, "128B", absolute=crossing).encode())
    value = ids[1] << 4 | 1 << 7 | 1 << 10 | n >> 3 << 17 | 1 << 23 | m >> 7 << 27 | ids[0] << 29 | 1 << 31
    text = f"""
    mov.b64 %d20, {descriptors[0]}; mov.b64 %d21, {descriptors[1]}; mov.b32 %r30, {value};
    add.u32 %r40, %tm, {n}; add.u32 %r41, %tm, {column_b}; setp.ne.b32 %p8, 0, 0;
    tcgen05.mma.cta_group::{group}.kind::mxf4nvf4.block_scale.{block} [%tm], %d20, %d21, %r30, [%r40], [%r41], %p8;
"""
    used = tensor.shape[2]
    out = execute(text, np.stack(shared), tensor, group=group, used=used, target="sm_103a")
    left, right = (
        as_real(codes, "e2m1") * np.repeat(as_real(scale, "ue8m0"), 96 // blocks, axis=1)
        for codes, scale in ((a, scale_a), (b, scale_b))
    )
    got = taken(out, m, n, group).view(np.float32)
    np.testing.assert_array_equal(got, (left @ right.T).astype(np.float32))


def test_k_96_is_not_for_sm_100a() -> None:
    value = 1 << 7 | 1 << 10 | 16 >> 3 << 17 | 1 << 23 | 1 << 27 | 1 << 31
    text = f"""
    mov.b64 %d20, 0; mov.b32 %r30, {value}; setp.ne.b32 %p8, 0, 0;
    tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%tm], %d20, %d20, %r30, [%tm], [%tm], %p8;
"""
    with pytest.raises(KernelFault, match="sm_103a") as caught:
        execute(text, used=8)
    assert caught.value.finding.code == "EMU_TCGEN05_DESCRIPTOR"
