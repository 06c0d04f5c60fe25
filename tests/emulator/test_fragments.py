"""Fragment layouts, element by element, against the formulas of the PTX documents; and both ways."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import fragments
from advisor.emulator.fragments import ELEMENT_BITS, per_register

A_SHAPES = [
    ("f16", 16, 8), ("f16", 16, 16), ("bf16", 16, 16), ("tf32", 16, 4), ("tf32", 16, 8), ("s8", 16, 16),
    ("e4m3", 16, 32), ("s4", 16, 64), ("u4", 16, 32), ("b1", 16, 256), ("b1", 16, 128), ("f64", 16, 16),
    ("f64", 16, 4), ("s8", 8, 16), ("u4", 8, 32), ("b1", 8, 128), ("f64", 8, 4),
]  # fmt: skip


def codes(shape: tuple[int, ...], kind: str, seed: int = 0) -> np.ndarray:
    bits = ELEMENT_BITS[kind]
    dtype = {64: np.uint64, 32: np.uint32, 16: np.uint16}.get(bits, np.uint8)
    return np.random.default_rng(seed).integers(0, 1 << bits, shape, dtype=dtype)


def element(register: int, index: int, kind: str) -> int:
    return register >> (index * ELEMENT_BITS[kind]) & ((1 << ELEMENT_BITS[kind]) - 1)


def documented_a(lane: int, index: int, kind: str, rows: int) -> tuple[int, int]:
    """Row and column of a_i, as the tables of `mma` say it for every shape."""
    group, thread, width = lane >> 2, lane % 4, per_register(kind)
    register = index // width
    row = group if rows == 8 or register % 2 == 0 else group + 8
    half = register if rows == 8 else register // 2
    return row, thread * width + index % width + half * 4 * width


@pytest.mark.parametrize(("kind", "rows", "depth"), A_SHAPES)
def test_operand_a(kind: str, rows: int, depth: int) -> None:
    matrix = codes((2, rows, depth), kind)
    stack = fragments.registers_a(matrix, kind)
    np.testing.assert_array_equal(fragments.matrix_a(stack, kind, rows), matrix)
    width = per_register(kind)
    for lane in range(32):
        for index in range(stack.shape[-2] * width):
            row, column = documented_a(lane, index, kind, rows)
            assert element(int(stack[1, index // width, lane]), index % width, kind) == int(matrix[1, row, column])


@pytest.mark.parametrize(("kind", "depth"), sorted({(kind, depth) for kind, _, depth in A_SHAPES}))
def test_operand_b(kind: str, depth: int) -> None:
    matrix = codes((2, depth, 8), kind)
    stack = fragments.registers_b(matrix, kind)
    np.testing.assert_array_equal(fragments.matrix_b(stack, kind), matrix)
    width = per_register(kind)
    for lane in range(32):
        for index in range(stack.shape[-2] * width):
            row = (lane % 4) * width + index % width + index // width * 4 * width
            assert element(int(stack[1, index // width, lane]), index % width, kind) == int(matrix[1, row, lane >> 2])


@pytest.mark.parametrize("columns", [8, 24, 256])
@pytest.mark.parametrize("rows", [8, 16])
@pytest.mark.parametrize("kind", ["f32", "s32", "f16", "f64"])
def test_accumulators(kind: str, rows: int, columns: int) -> None:
    matrix = codes((3, rows, columns), kind)
    stack = fragments.registers_c(matrix, kind)
    np.testing.assert_array_equal(fragments.matrix_c(stack, kind, rows), matrix)
    width = per_register(kind)
    per_block = rows * 8 // 32
    for lane in range(32):
        for index in range(columns // 8 * per_block):
            block, place = divmod(index, per_block)
            row = (lane >> 2) + 8 * (place >> 1)
            column = 8 * block + (lane % 4) * 2 + (index & 1)
            assert element(int(stack[2, index // width, lane]), index % width, kind) == int(matrix[2, row, column])


def test_a_layout_with_two_halves_exchanged_is_seen() -> None:
    matrix = codes((16, 16), "f16")
    stack = fragments.registers_a(matrix, "f16")
    assert (fragments.matrix_a(stack[[0, 2, 1, 3]], "f16") != matrix).any()


def test_ldmatrix_gives_each_lane_two_neighbours_of_a_row() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (2, 4, 8, 16), dtype=np.uint8)
    words = rows.view(np.uint16)
    plain, turned = (fragments.loaded(rows, "m8n8", transpose=each) for each in (False, True))
    assert plain.shape == turned.shape == (2, 4, 32)
    for lane in range(32):
        for j in range(2):
            row, column = lane >> 2, 2 * (lane % 4) + j
            assert element(int(plain[1, 3, lane]), j, "f16") == int(words[1, 3, row, column])
            assert element(int(turned[1, 3, lane]), j, "f16") == int(words[1, 3, column, row])
    for transpose, stack in ((False, plain), (True, turned)):
        np.testing.assert_array_equal(fragments.stored(stack, "m8n8", transpose=transpose), rows)
    np.testing.assert_array_equal(fragments.transposed(plain[:, 0]), turned[:, 0])


def test_four_matrices_are_an_a_operand() -> None:
    """The use that everyone makes of ldmatrix.x4: rows 0-7, rows 8-15, then the upper eight columns."""
    matrix = codes((16, 16), "f16")
    parts = [matrix[:8, :8], matrix[8:, :8], matrix[:8, 8:], matrix[8:, 8:]]
    rows = np.stack([np.ascontiguousarray(each).view(np.uint8) for each in parts])
    np.testing.assert_array_equal(fragments.matrix_a(fragments.loaded(rows, "m8n8", transpose=False), "f16"), matrix)


def test_a_transposed_load_is_a_b_operand_from_rows_of_n() -> None:
    matrix = codes((16, 8), "bf16")  # k x n, n contiguous
    rows = np.stack([np.ascontiguousarray(each).view(np.uint8) for each in (matrix[:8], matrix[8:])])
    np.testing.assert_array_equal(fragments.matrix_b(fragments.loaded(rows, "m8n8", transpose=True), "bf16"), matrix)


def test_byte_matrices_are_loaded_and_stored_by_columns() -> None:
    memory = np.random.default_rng(2).integers(0, 256, (1, 16, 16), dtype=np.uint8)  # memory row is a matrix column
    stack = fragments.loaded(memory, "m16n16", transpose=True)
    assert stack.shape == (2, 32)
    for lane in range(32):
        for register in range(2):
            for j in range(4):
                row, column = (lane >> 2) + 8 * (j >> 1), 4 * (lane % 4) + 2 * register + (j & 1)
                assert element(int(stack[register, lane]), j, "b8") == int(memory[0, column, row])
    registers = np.random.default_rng(3).integers(0, 1 << 32, (4, 32), dtype=np.uint32)
    out = fragments.stored(registers, "m16n8", transpose=True)
    assert out.shape == (4, 8, 16)
    for lane in range(32):
        for j in range(4):
            row, column = (lane >> 2) + 8 * (j >> 1), 2 * (lane % 4) + (j & 1)
            assert int(out[2, column, row]) == element(int(registers[2, lane]), j, "b8")


def test_packed_elements_are_spread_over_bytes() -> None:
    values = np.arange(16, dtype=np.uint8)
    four = np.zeros(16, np.uint8)
    four[:8] = values[0::2] | values[1::2] << 4
    assert fragments.decompressed(four, "b4x16_p64").tolist() == [each << 2 for each in range(16)]
    six = np.zeros(16, np.uint8)
    number = sum((each * 3 & 63) << 6 * at for at, each in enumerate(range(16)))
    six[:12] = list(number.to_bytes(12, "little"))
    assert fragments.decompressed(six, "b6x16_p32").tolist() == [each * 3 & 63 for each in range(16)]
    assert fragments.loaded(values.reshape(1, 1, 16).repeat(8, axis=1), "m8n16", transpose=False).shape == (1, 32)


def test_lanes_that_give_addresses() -> None:
    assert [fragments.row_lanes("m8n8", each) for each in (1, 2, 4)] == [8, 16, 32]
    assert [fragments.row_lanes("m16n16", each) for each in (1, 2)] == [16, 32]
