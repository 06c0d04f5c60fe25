"""wgmma: descriptors, operand addresses against the canonical layouts of the PTX documents, sums, tile checks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as every

import numpy as np
import pytest

from advisor.emulator import fragments
from advisor.emulator.formats import FORMATS, as_real, encode
from advisor.emulator.mma import multiply_add
from advisor.emulator.numbers import quiet
from advisor.emulator.shared_operand import TileBox, depth_of, elements_per_chunk, mismatch, read_operand, swizzled
from advisor.emulator.tensor_map import DataType, Swizzle, TensorMap
from advisor.emulator.wgmma import Descriptor, warpgroup_mma

WIDTH = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
SWIZZLES = list(WIDTH)
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def canonical(shape: tuple, stride: tuple, indices: tuple[int, int]) -> int:
    """The offset of a coordinate in a CuTe layout of two modes, each of nested extents; the last extent is open."""
    offset = 0
    for extents, strides, index in zip(shape, stride, indices, strict=True):
        for extent, step in zip(extents[:-1], strides[:-1], strict=True):
            offset += index % extent * step
            index //= extent
        offset += index * strides[-1]
    return offset


def cute_swizzle(address: int, bits: int) -> int:
    """Swizzle<bits, 4, 3>."""
    return address ^ ((address >> 7 & ((1 << bits) - 1)) << 4)


def layout(major: str, swizzle: str, size: int, lbo: int, sbo: int) -> tuple[tuple, tuple]:
    """The canonical layouts as PTX prints them, in elements; `lbo` and `sbo` in elements too."""
    t = 16 // size
    w = WIDTH[swizzle] // 16
    if major == "K":
        if swizzle == "none":
            return ((8, None), (t, None)), ((t, sbo), (1, lbo))
        return ((8, None), (t, None)), ((w * t, sbo), (1, t))
    if swizzle == "none":
        return ((t, 1, None), (8, None)), ((1, t, sbo), (t, lbo))
    return ((t, w, None), (8, None)), ((1, t, lbo), (w * t, sbo))


CASES = [("K", each, kind) for each, kind in every(SWIZZLES, ("f16", "tf32", "e4m3"))]
CASES += [("MN", each, "bf16") for each in SWIZZLES]


@pytest.mark.parametrize(("major", "swizzle", "kind"), CASES)
def test_an_operand_is_read_from_its_canonical_layout(major: str, swizzle: str, kind: str) -> None:
    size = fragments.ELEMENT_BITS[kind] // 8
    extent, depth = 128, depth_of(kind)
    dtype = UNSIGNED[8 * size]
    matrix = np.random.default_rng(1).integers(0, 1 << 8 * size, (extent, depth), dtype=dtype)
    leading, stride = (16384, 1024) if major == "MN" and swizzle != "none" else (2304, 8 * WIDTH[swizzle])
    if major == "MN" and swizzle == "none":
        leading, stride = 4096, 256
    start = 2048
    memory = np.zeros(1 << 17, np.uint8)
    shape, strides = layout(major, swizzle, size, leading // size, stride // size)
    used = set()
    for row, k in every(range(extent), range(depth)):
        plain = start + size * canonical(shape, strides, (row, k))
        address = cute_swizzle(plain, {"none": 0, "32B": 1, "64B": 2, "128B": 3}[swizzle])
        assert address not in used
        used.add(address)
        memory[address : address + size] = np.frombuffer(matrix[row, k].tobytes(), np.uint8)
    descriptor = Descriptor(start, leading, stride, 0, swizzle, 0)
    np.testing.assert_array_equal(read_operand(memory, descriptor, extent, major, kind), matrix)
    other = Descriptor(start, leading, stride, 0, "32B" if swizzle == "128B" else "128B", 0)
    assert (read_operand(memory, other, extent, major, kind) != matrix).any()


def test_the_examples_of_the_documents_encode_as_printed() -> None:
    """tf32 K-major without swizzle: LBO 64 and SBO 32 elements are 16 and 8 in the descriptor; bf16 64B: 32 and 64."""
    value = Descriptor(0, 64 * 4, 32 * 4, 0, "none", 0).encode()
    assert (value >> 16 & 0x3FFF, value >> 32 & 0x3FFF, value >> 62) == (16, 8, 0)
    value = Descriptor(0, 256 * 2, 512 * 2, 0, "64B", 0).encode()
    assert (value >> 16 & 0x3FFF, value >> 32 & 0x3FFF, value >> 62) == (32, 64, 2)


def test_descriptors_decode_what_they_encode() -> None:
    for swizzle in SWIZZLES:
        one = Descriptor(0x2400, 16, 1024, 3, swizzle, 0)
        assert Descriptor.decode(one.encode()) == one
    assert Descriptor.decode(1 << 14).reserved == 1 << 14
    assert Descriptor.decode(1 << 62).swizzle == "128B"


def test_stepping_along_k_inside_the_atom_is_an_addition_to_the_start() -> None:
    rows = np.random.default_rng(2).integers(0, 1 << 16, (64, 64), dtype=np.uint16)  # 128 bytes a row
    memory = np.zeros(1 << 14, np.uint8)
    offsets = swizzled(np.arange(1024, 1024 + 64 * 128), "128B")
    memory[offsets] = rows.view(np.uint8).ravel()
    for step in range(4):
        descriptor = Descriptor(1024 + 32 * step, 16, 1024, 0, "128B", 0)
        got = read_operand(memory, descriptor, 64, "K", "f16")
        np.testing.assert_array_equal(got, rows[:, 16 * step : 16 * step + 16])


def test_a_pattern_off_its_boundary_is_found_with_its_base_offset() -> None:
    rows = np.random.default_rng(3).integers(0, 256, (8, 128), dtype=np.uint8)
    memory = np.zeros(4096, np.uint8)
    start = 1024 + 256
    for row, column in every(range(8), range(128)):
        memory[start + row * 128 + (column ^ (row & 7) << 4)] = rows[row, column]
    descriptor = Descriptor(start, 16, 1024, 2, "128B", 0)
    np.testing.assert_array_equal(read_operand(memory, descriptor, 8, "K", "e4m3"), rows[:, :32])
    naive = Descriptor(start, 16, 1024, 0, "128B", 0)
    assert (read_operand(memory, naive, 8, "K", "e4m3") != rows[:, :32]).any()


@pytest.mark.parametrize("opcode", [
    "m64n256k16.f32.bf16.bf16", "m64n8k16.f16.f16.f16", "m64n96k8.f32.tf32.tf32", "m64n64k32.f32.e4m3.e5m2",
    "m64n24k32.s32.s8.u8", "m64n32k32.satfinite.s32.u8.u8", "m64n8k32.s32.s8.s8.satfinite",
    "m64n16k256.s32.b1.b1.and.popc",
])  # fmt: skip
def test_registers_go_to_matrices_and_back_and_the_sum_is_that_of_mma(opcode: str) -> None:
    form = warpgroup_mma(f"wgmma.mma_async.sync.aligned.{opcode}")
    assert form is not None
    kinds = form.product
    rng = np.random.default_rng(4)
    bits = fragments.ELEMENT_BITS[kinds.a]
    if kinds.a in FORMATS:
        a = encode(rng.standard_normal((64, form.k)), FORMATS[kinds.a])
        b = encode(rng.standard_normal((form.n, form.k)), FORMATS[kinds.b])
        if kinds.a == "tf32":
            a, b = a << np.uint32(13), b << np.uint32(13)
        d = encode(rng.standard_normal((64, form.n)), FORMATS[kinds.d])
    else:
        a, b = (rng.integers(0, 1 << bits, shape, dtype=np.uint8) for shape in ((64, form.k), (form.n, form.k)))
        d = rng.integers(0, 1 << 32, (64, form.n), dtype=np.uint32)
    registers = form.d_to_registers(d)
    assert len(registers) == form.d_registers
    assert all(each.shape == (4, 32) and each.flags.c_contiguous for each in registers)
    np.testing.assert_array_equal(form.d_from_registers(registers), d)
    of_a = fragments.unstack(fragments.registers_a(a.reshape(4, 16, form.k), kinds.a))
    assert len(of_a) == form.a_registers
    np.testing.assert_array_equal(form.a_from_registers(of_a), a)
    result = form(a, b, d)
    np.testing.assert_array_equal(result, multiply_add(a, np.ascontiguousarray(b.T), d, kinds))
    if kinds.d == "f32":
        truth = as_real(a, kinds.a) @ as_real(b, kinds.b).T + as_real(d, "f32")
        np.testing.assert_allclose(as_real(result, "f32"), truth, rtol=2.0**-23, atol=1e-12)
        model = form(a, b, d, numerics="model")
        np.testing.assert_allclose(as_real(model, "f32"), truth, rtol=0, atol=2.0**-8 if bits == 8 else 2.0**-18)


def test_documented_registers_of_the_accumulator() -> None:
    form = warpgroup_mma("wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16")
    assert form is not None
    matrix = np.arange(64 * 24, dtype=np.uint32).reshape(64, 24)
    registers = form.d_to_registers(matrix)
    for warp, lane, index in every(range(4), range(32), range(12)):
        row = 16 * warp + lane // 4 + 8 * (index // 2 % 2)
        column = 8 * (index // 4) + 2 * (lane % 4) + index % 2
        assert registers[index][warp, lane] == matrix[row, column]


def test_no_accumulator_and_negated_operands() -> None:
    form = warpgroup_mma("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16")
    assert form is not None
    assert form.may_transpose
    assert form.may_negate
    a, b = np.full((64, 16), 0x3F80, np.uint16), np.full((8, 16), 0x4000, np.uint16)
    assert (as_real(form(a, b, None), "f32") == 32).all()
    assert (as_real(form(a, b, None, scale_a=-1), "f32") == -32).all()
    assert (as_real(form(a, b, None, scale_a=-1, scale_b=-1), "f32") == 32).all()


@pytest.mark.parametrize("opcode", [
    "m64n12k16.f32.bf16.bf16", "m64n256k8.f32.bf16.bf16", "m64n40k32.s32.s8.s8", "m64n64k16.f16.bf16.bf16",
    "m64n64k16.f32.f16.bf16", "m64n64k32.satfinite.f32.e4m3.e4m3", "m64n16k256.s32.b1.b1.xor.popc",
    "m64n264k16.f32.f16.f16", "m128n64k16.f32.f16.f16", "m64n64.f32.f16.f16", "m64n64k32.f32.e2m1.e4m3",
])  # fmt: skip
def test_a_form_that_is_not_there_is_not_guessed(opcode: str) -> None:
    assert warpgroup_mma(f"wgmma.mma_async.sync.aligned.{opcode}") is None


def tile(major: str, swizzle: str) -> tuple[Descriptor, list[TileBox]]:
    """128 x 64 bf16 by tensor copies: rows of 128 bytes, or boxes of 64 columns for an MN-major operand."""
    width = WIDTH[swizzle]
    if major == "K":
        return Descriptor(4096, 16, 8 * width, 0, swizzle, 0), [TileBox(4096, 128, width, swizzle)]
    boxes = [TileBox(4096 + at * 64 * width, 64, width, swizzle) for at in range(256 // width)]
    return Descriptor(4096, 64 * width, 8 * width, 0, swizzle, 0), boxes


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
@pytest.mark.parametrize("major", ["K", "MN"])
def test_a_descriptor_of_the_tile_is_accepted_and_each_wrong_field_is_not(major: str, swizzle: str) -> None:
    good, boxes = tile(major, swizzle)
    assert mismatch(good, 128, major, "bf16", boxes) is None
    other = {"32B": "64B", "64B": "128B", "128B": "64B"}[swizzle]
    wrong_swizzle = Descriptor(good.start, good.leading_bytes, good.stride_bytes, 0, other, 0)
    wrong_stride = Descriptor(good.start, good.leading_bytes, good.stride_bytes * 2, 0, swizzle, 0)
    off = 256 if major == "K" else 16  # whole rows along K would be another part of the same tile
    wrong_start = Descriptor(good.start + off, good.leading_bytes, good.stride_bytes, 0, swizzle, 0)
    assert mismatch(wrong_swizzle, 128, major, "bf16", boxes) is not None
    assert mismatch(wrong_stride, 128, major, "bf16", boxes) is not None
    assert mismatch(wrong_start, 128, major, "bf16", boxes) is not None
    wrong_phase = Descriptor(good.start, good.leading_bytes, good.stride_bytes, 1, swizzle, 0)
    assert mismatch(wrong_phase, 128, major, "bf16", boxes) is not None
    if major == "K":  # rows of k read as a K-major operand are the geometry of another tile: only its values are wrong
        found = mismatch(good, 128, "MN", "bf16", boxes)
        assert found is not None
        assert "box" in found.text


def test_steps_along_k_are_accepted_and_memory_written_otherwise_is_not_judged() -> None:
    good, boxes = tile("K", "128B")
    for step in range(4):
        assert mismatch(Descriptor(good.start + 32 * step, 16, 1024, 0, "128B", 0), 128, "K", "bf16", boxes) is None
    assert mismatch(Descriptor(65536, 16, 512, 0, "64B", 0), 64, "K", "bf16", boxes) is None
    assert (
        mismatch(Descriptor(good.start + 1024, 16, 1024, 0, "128B", 0), 128, "K", "bf16", boxes) is not None
    )  # beyond


def test_chunks_hold_what_their_type_says() -> None:
    assert [elements_per_chunk(each) for each in ("f16", "tf32", "e4m3", "b1")] == [8, 4, 16, 128]
    assert [depth_of(each) for each in ("bf16", "tf32", "s8", "b1")] == [16, 8, 32, 256]


@pytest.mark.parametrize("kind", ["bf16", "tf32", "e4m3"])
@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
def test_a_box_of_a_tensor_copy_is_read_back_by_its_descriptor(swizzle: str, kind: str) -> None:
    """Two descriptions of one layout that were written apart: the tensor map's and the descriptor's."""
    size = fragments.ELEMENT_BITS[kind] // 8
    columns = WIDTH[swizzle] // size
    extent, depth = 64, depth_of(kind)
    dtype = UNSIGNED[8 * size]
    matrix = np.random.default_rng(5).integers(0, 1 << 8 * size, (extent, columns), dtype=dtype)
    tensor = TensorMap(
        dtype={"bf16": DataType.BFLOAT16, "tf32": DataType.FLOAT32, "e4m3": DataType.UINT8}[kind],
        address=1 << 20,
        dims=(columns, extent),
        strides=(columns * size,),
        box=(columns, extent),
        element_strides=(1, 1),
        swizzle={"32B": Swizzle.B32, "64B": Swizzle.B64, "128B": Swizzle.B128}[swizzle],
    )
    start = 4096
    moved = tensor.transfer((0, 0), start)
    memory = np.zeros(1 << 15, np.uint8)
    chunks = np.arange(moved.chunk)
    source = matrix.view(np.uint8).ravel()
    memory[moved.shared.ravel()[:, None] + chunks] = source[moved.globals_.ravel()[:, None] - (1 << 20) + chunks]
    boxes = [TileBox(start, extent, WIDTH[swizzle], swizzle)]
    for step in range(columns // depth):
        descriptor = Descriptor(start + 32 * step, 16, 8 * WIDTH[swizzle], 0, swizzle, 0)
        part = matrix[:, depth * step : depth * (step + 1)]
        np.testing.assert_array_equal(read_operand(memory, descriptor, extent, "K", kind), part)
        assert mismatch(descriptor, extent, "K", kind, boxes) is None
    if kind == "bf16":  # the same bytes as rows of k
        descriptor = Descriptor(start, 64 * WIDTH[swizzle], 8 * WIDTH[swizzle], 0, swizzle, 0)
        np.testing.assert_array_equal(read_operand(memory, descriptor, columns, "MN", kind), matrix[:depth].T)
        assert mismatch(descriptor, columns, "MN", kind, boxes) is None
