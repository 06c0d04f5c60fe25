"""Layouts of tcgen05 against other formulas: CuTe's layouts of the same instructions, and the figures in words."""

from __future__ import annotations

from itertools import product as every

import numpy as np
import pytest

from advisor.emulator.tcgen05_descriptors import SharedDescriptor, instruction_descriptor, zero_columns
from advisor.emulator.tcgen05_layouts import (
    COPIES,
    SHAPES,
    CopyShape,
    DataPath,
    Fragment,
    data_path,
    from_registers,
    scale_bytes,
    to_registers,
)
from advisor.emulator.tmem import Region, SmMemory, all_lanes

Layout = tuple[tuple[int, ...], tuple[int, ...]]


def offset(layout: Layout, index: int) -> int:
    """A CuTe layout of one mode, its first extent the fastest."""
    found = 0
    for extent, stride in zip(*layout, strict=True):
        found += index % extent * stride
        index //= extent
    return found


def cute_layouts(shape: str, repeats: int) -> tuple[Layout, Layout, int]:
    """Thread and value layouts in bits of [lane, bit in the lane], and the bits of a lane, as CuTe has them."""
    if shape == "32x32b":
        bits = 32 * repeats
        return ((32,), (bits,)), ((bits,), (1,)), bits
    if shape == "16x32bx2":
        bits = 64 * repeats
        return ((16, 2), (bits, bits // 2)), ((bits // 2,), (1,)), bits
    if shape == "16x64b":
        bits = 64 * repeats
        return ((2, 2, 8), (8 * bits, 32, bits)), ((32, repeats), (1, 64)), bits
    if shape == "16x128b":
        bits = 128 * repeats
        return ((4, 8), (32, bits)), ((32, 2, repeats), (1, 8 * bits, 128)), bits
    bits = 256 * repeats
    return ((4, 8), (64, bits)), ((64, 2, repeats), (1, 8 * bits, 256)), bits


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("repeats", [1, 2, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_registers_hold_what_cute_says(shape: str, repeats: int, packed: bool) -> None:
    fragment = Fragment(shape, repeats, packed)
    threads, registers, bits = cute_layouts(shape, repeats)
    columns = bits // 32
    words = np.random.default_rng(1).integers(0, 1 << 32, (fragment.lanes, columns), dtype=np.uint32)
    memory = words
    if packed:  # a register has the lower halves of two columns
        memory = np.stack([words & 0xFFFF, words >> 16], axis=-1).reshape(fragment.lanes, -1)
        memory |= np.uint32(0xABCD0000)
    got = to_registers(fragment, memory)
    assert got.shape == (fragment.registers, 32)
    for register, thread in every(range(fragment.registers), range(32)):
        at = offset(threads, thread) + offset(registers, 32 * register)
        assert got[register, thread] == words[at // bits, at % bits // 32]
    back = from_registers(fragment, got)
    np.testing.assert_array_equal(back, memory & 0xFFFF if packed else memory)


def test_counts_of_registers_are_those_of_the_table() -> None:
    """PTX ISA 9.7.16.8.3, table 49."""
    assert [Fragment(each, 8).registers for each in SHAPES] == [8, 8, 16, 32, 8]
    assert Fragment("16x256b", 32).registers == Fragment("32x32b", 128).registers == 128


PATHS = {"A": (256, 2, False), "B": (128, 2, False), "D": (128, 1, False), "E": (64, 1, True), "F": (64, 1, False),
         "G": (32, 1, True)}  # fmt: skip


def lane_and_column(layout: str, m: int, n: int, columns: int) -> tuple[int, int]:
    """Where D[m, n] of one CTA lies: `columns` is N. Parts of the columns lie under each other in B, E and G."""
    if layout == "F":
        return m // 16 * 32 + m % 16, n
    parts = {"A": 1, "D": 1, "B": 2, "E": 2, "G": 4}[layout]
    share = columns // parts
    return m + n // share * (128 // parts), n % share


@pytest.mark.parametrize("layout", list(PATHS))
def test_accumulators_lie_as_their_figures_show(layout: str) -> None:
    path = data_path(*PATHS[layout], 0)
    assert isinstance(path, DataPath)
    assert path.layout == layout
    columns = 64
    matrix = np.random.default_rng(2).integers(0, 1 << 32, (path.rows, columns), dtype=np.uint32)
    memory = SmMemory()
    region = path.region(32, columns)
    memory.data[region.index] = path.scatter(matrix)
    flat = memory.data.reshape(128, 512)
    for m, n in every(range(path.rows), range(columns)):
        lane, column = lane_and_column(layout, m, n, columns)
        assert flat[lane, 32 + column] == matrix[m, n]
    np.testing.assert_array_equal(path.gather(memory.data[region.index]), matrix)


def test_half_of_the_lanes_may_be_the_upper_one() -> None:
    path = data_path(64, 1, False, 16 << 16)
    assert isinstance(path, DataPath)
    assert path.region(0, 8) == Region(0, 4, 16, 32, 0, 8)
    assert isinstance(data_path(64, 1, False, 32 << 16), str)
    assert isinstance(data_path(128, 1, False, 16 << 16), str)


def test_a_mask_leaves_runs_of_lanes() -> None:
    path = data_path(128, 1, False, 0)
    assert isinstance(path, DataPath)
    region = all_lanes(8, 16)
    mask = np.array([0xFFFFFFFF, 0x0000000F, 0x80000001, 0], np.uint32)
    lanes = {
        each.quarter * 32 + lane for each in path.enabled(region, mask) for lane in range(each.lane, each.lane_end)
    }
    assert lanes == {lane for lane in range(128) if not int(mask[lane // 32]) >> lane % 32 & 1}


def test_scales_of_row_r_are_in_lane_r_mod_32_of_column_r_div_32() -> None:
    words = np.random.default_rng(3).integers(0, 1 << 32, (32, 4), dtype=np.uint32)
    for count, identifier in ((1, 0), (1, 3), (2, 0), (2, 2), (4, 0)):
        got = scale_bytes(words, 100, count, identifier)
        for row, block in every(range(100), range(count)):
            assert got[row, block] == int(words[row % 32, row // 32]) >> 8 * (identifier + block) & 0xFF


@pytest.mark.parametrize(("shape", "multicast"), list(COPIES))
def test_copies_go_to_the_quarters_that_their_names_say(shape: str, multicast: str) -> None:
    form = CopyShape(shape, multicast)
    address = (5 << 16 if shape == "4x256b" else 0) | 40
    region = form.region(address)
    assert isinstance(region, Region)
    rows = np.arange(form.rows * form.chunks * 4, dtype=np.uint32).reshape(form.rows, -1)
    memory = SmMemory()
    memory.data[region.index] = form.scatter(rows)
    flat = memory.data.reshape(128, 512)[:, 40 : 40 + 4 * form.chunks]
    if shape == "4x256b":
        np.testing.assert_array_equal(flat[[5, 37, 69, 101]], rows)
        assert np.count_nonzero(memory.data.any(axis=2)) == 4
        return
    quarters = {
        "": [0, 1, 2, 3],
        "warpx4": [0, 0, 0, 0],
        "warpx2::02_13": [0, 1, 0, 1],  # warps 0 and 2 get the same half, and 1 and 3
        "warpx2::01_23": [0, 0, 1, 1],
    }[multicast]
    for quarter, source in enumerate(quarters):
        np.testing.assert_array_equal(flat[32 * quarter :][:32], rows[32 * source :][:32])


def test_shared_descriptors_decode_what_they_encode() -> None:
    for swizzle in ("none", "128B_32B", "128B", "64B", "32B"):
        one = SharedDescriptor(0x2400, 16, 1024, 3, swizzle)
        again = SharedDescriptor.decode(one.encode())
        assert (again.start, again.leading_bytes, again.stride_bytes, again.base_offset) == (0x2400, 16, 1024, 3)
        assert again.swizzle == swizzle
        assert again.violations("tf32", "MN" if swizzle == "128B_32B" else "K") == ()
    value = SharedDescriptor(0, 16, 1024, 0, "128B").encode()
    assert value >> 61 == 2
    assert value >> 46 & 7 == 1
    assert SharedDescriptor.decode(value & ~(7 << 46)).violations("f16", "K")
    assert SharedDescriptor.decode(value | 1 << 61).violations("f16", "K")
    assert SharedDescriptor.decode(value | 1 << 53).violations("f16", "K")
    assert SharedDescriptor(0, 16, 512, 0, "128B_32B").violations("f16", "MN")
    assert SharedDescriptor(0, 16, 1024, 0, "128B").violations("tf32", "MN")


def test_instruction_descriptors_of_block_scaled_kinds_have_their_own_fields() -> None:
    """PTX ISA 9.7.16.4.2, tables 43 and 44."""
    value = 2 << 4 | 1 << 7 | 1 << 10 | 48 >> 3 << 17 | 1 << 23 | 256 >> 7 << 27 | 2 << 29
    what = instruction_descriptor("mxf4nvf4", value)
    assert not isinstance(what, str)
    assert (what.m, what.n, what.k, what.a, what.b, what.scale_type) == (256, 48, 64, "e2m1", "e2m1", "ue8m0")
    assert (what.scale_a_id, what.scale_b_id) == (2, 2)
    assert what.violations(2, ws=False) == ()
    assert what.violations(1, ws=False)
    what = instruction_descriptor("mxf8f6f4", 3 << 4 | 4 << 7 | 5 << 10 | 1 << 17 | 1 << 23 | 1 << 27 | 1 << 29)
    assert not isinstance(what, str)
    assert (what.a, what.b, what.scale_a_id, what.scale_b_id, what.m) == ("e3m2", "e2m1", 1, 3, 128)


def mask_text(value: int, m: int, n: int) -> list[str]:
    """The parts of a zero-column mask as the documents print them, the lowest column on the right."""
    mask, _ = zero_columns(value, m, n)
    parts = np.split(mask.astype(int), {128: 1, 64: 2, 32: 4}[m])
    return ["".join(str(each) for each in part[::-1]) for part in parts]


def mask_value(starts: list[int], firsts: list[int], skip: int, use: int, shift: int = 0, on: int = 1) -> int:
    value = sum(each << 8 * index for index, each in enumerate(starts))
    value |= sum(each << 32 + index for index, each in enumerate(firsts))
    return value | on << 39 | skip << 40 | use << 48 | shift << 56


def test_zero_column_masks_are_those_of_the_examples() -> None:
    """PTX ISA 9.7.16.4.3, examples 1 to 4."""
    assert not zero_columns(mask_value([0], [0], 4, 3, on=0), 128, 64)[0].any()
    assert mask_text(mask_value([0], [0], 2, 3), 128, 64)[0].endswith("11100001110000")
    first, second = mask_text(mask_value([0, 0], [1, 0], 2, 3), 64, 128)
    assert first.endswith("11100001110000111")
    assert second.endswith("00001110000" + "1110000")
    value = mask_value([0, 1, 2, 1], [1, 1, 0, 0], 2, 3, shift=2)
    endings = ["00001110000111", "0000111000011", "11100001110" + "0", "1110000111000"]
    for got, ending in zip(mask_text(value, 32, 128), endings, strict=True):
        assert got.endswith(ending)
    assert zero_columns(value, 32, 128)[1] == 2
