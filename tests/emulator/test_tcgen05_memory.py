"""Loads, stores, copies and shifts of tensor memory on the machine."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault
from advisor.emulator.tcgen05_descriptors import SharedDescriptor
from advisor.emulator.tcgen05_layouts import COPIES, SHAPES, Fragment, fragment_places
from tests.emulator.tcgen05_kernels import TILE, execute, outcome

WAIT = "tcgen05.wait::ld.sync.aligned;"
NO_ISSUE = {"issue": "", "commit": "", "issued": "", "wait": "", "after": ""}


def words(ctas: int, columns: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, (ctas, 128, columns), dtype=np.uint32)


def load_text(fragment: Fragment, *, packing: str = "", lane: int = 0, split: int = 0) -> str:
    registers = ", ".join(f"%v{each}" for each in range(fragment.registers))
    tail = f", {split}" if fragment.shape == "16x32bx2" else ""
    lines = [
        f"add.u32 %lane0, %lane0, {lane << 16};",
        f"tcgen05.ld.sync.aligned.{fragment.shape}.x{fragment.repeats}{packing}.b32 {{{registers}}}, [%lane0]{tail};",
        WAIT,
        *(f"st.global.u32 [%d4 + {4 * each}], %v{each};" for each in range(fragment.registers)),
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("lane", [0, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_loads_its_fragment(shape: str, lane: int) -> None:
    if shape == "32x32b" and lane:
        return
    fragment = Fragment(shape, 2)
    filled = words(1, 16)
    split = 5 if shape == "16x32bx2" else 0
    out = execute(
        "", None, filled, used=fragment.registers,
        changed=NO_ISSUE | {"load": load_text(fragment, lane=lane, split=split)},
    )[0]  # fmt: skip
    lanes, columns = fragment_places(shape, 2)
    if split:
        columns = np.where(columns >= 2, columns - 2 + split, columns)
    for thread in range(128):
        row = filled[0, thread // 32 * 32 + lane + lanes[:, thread % 32]]
        np.testing.assert_array_equal(out[thread], row[np.arange(fragment.registers), columns[:, thread % 32]])


def test_packing_takes_the_lower_halves_of_two_columns() -> None:
    filled = words(1, 16)
    out = execute(
        "", None, filled, used=8,
        changed=NO_ISSUE | {"load": load_text(Fragment("32x32b", 8, True), packing=".pack::16b")},
    )[0]  # fmt: skip
    np.testing.assert_array_equal(out, (filled[0, :, 0::2] & 0xFFFF) | filled[0, :, 1::2] << 16)


def test_unpacking_puts_the_halves_into_two_columns() -> None:
    store = """
    mov.u32 %r40, 0x12340000; or.b32 %r40, %r40, %tid;
    tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32 [%lane0], {%r40, %tid, %r40, %r40};
    tcgen05.wait::st.sync.aligned;
"""
    out = execute("", used=8, changed=NO_ISSUE | {"fill": store})[0]
    thread = np.arange(128)
    expected = np.zeros((128, 8), np.uint32)
    expected[:, 0::2] = thread[:, None]
    expected[:, 1::2] = [0x1234, 0, 0x1234, 0x1234]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", [each for each in SHAPES if each != "16x32bx2"])
def test_what_a_shape_stores_it_loads(shape: str) -> None:
    fragment = Fragment(shape, 4)
    registers = ", ".join(f"%v{each}" for each in range(fragment.registers))
    values = [f"mad.lo.u32 %v{each}, %tid, 1000, {each};" for each in range(fragment.registers)]
    store = f"tcgen05.st.sync.aligned.{shape}.x4.b32 [%lane0], {{{registers}}}; tcgen05.wait::st.sync.aligned;"
    out = execute(
        "", used=fragment.registers,
        changed=NO_ISSUE | {"fill": "\n".join([*values, store]), "load": load_text(fragment)},
    )[0]  # fmt: skip
    np.testing.assert_array_equal(out, np.arange(128)[:, None] * 1000 + np.arange(fragment.registers))


def copy_rows(form: tuple[str, str], group: int, source: str = "") -> tuple[np.ndarray, np.ndarray]:
    """OUT, and the rows that lie in the shared memory of each CTA, [CTAs, rows, bytes]."""
    rows, chunks, _ = COPIES[form]
    height = max(8, rows)
    data = np.random.default_rng(2).integers(0, 256, (group, height, 16 * chunks), dtype=np.uint8)
    shared = data.reshape(group, height // 8, 8, chunks, 16).transpose(0, 3, 1, 2, 4).reshape(group, -1)
    descriptor = SharedDescriptor(TILE, height * 16, 128, 0, "none").encode()
    name = ".".join(each for each in (form[0], form[1], source and f"b8x16.{source}") if each)
    issue = f"mov.b64 %d20, {descriptor}; tcgen05.cp.cta_group::{group}.{name} [%tm], %d20;"
    filled = np.zeros((group, 128, 8), np.uint32)
    return execute(issue, shared, filled, group=group, used=8), data[:, :rows]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("form", list(COPIES))
def test_every_copy_brings_each_cta_its_own_rows(form: tuple[str, str], group: int) -> None:
    out, rows = copy_rows(form, group)
    rows = rows.copy().view(np.uint32)
    quarters = COPIES[form][2]
    for cta in range(group):
        for quarter, source in enumerate(quarters):
            if form[0] == "4x256b":
                np.testing.assert_array_equal(out[cta, 32 * quarter, : rows.shape[2]], rows[cta, source])
            else:
                wanted = rows[cta, 32 * source :][:32]
                np.testing.assert_array_equal(out[cta, 32 * quarter :][:32, : rows.shape[2]], wanted)


@pytest.mark.parametrize("source", ["b4x16_p64", "b6x16_p32"])
def test_copies_expand_small_floats(source: str) -> None:
    out, rows = copy_rows(("128x128b", ""), 1, source)
    got = out[0, :, :4].copy().view(np.uint8)  # 16 elements of a byte in each row
    for row, element in ((0, 0), (1, 1), (77, 15), (127, 6)):
        bits = 4 if source[1] == "4" else 6
        stream = int.from_bytes(rows[0, row].tobytes(), "little")
        code = stream >> bits * element & ((1 << bits) - 1)
        assert got[row, element] == (code << 2 if bits == 4 else code)


def test_a_shift_moves_every_lane_of_a_quarter_but_the_last() -> None:
    filled = words(1, 16)
    issue = "add.u32 %r40, %tm, 0x400004; tcgen05.shift.cta_group::1.down [%r40];"
    out = execute(issue, None, filled, used=16)[0]
    expected = filled[0].copy()
    expected[64:95, 4:12] = filled[0, 65:96, 4:12]
    np.testing.assert_array_equal(out, expected)


def test_copies_before_a_product_need_no_wait_and_the_bytes_are_counted() -> None:
    found = outcome("", None, words(1, 8), used=8, changed=NO_ISSUE)
    assert found.bytes_moved["tensor memory store"] == found.bytes_moved["tensor memory load"] == 128 * 8 * 4
    assert found.instructions["tcgen05.st"] == 4 * 8
    assert found.instructions_by_class["tensor memory"] > 32


def test_a_copy_to_a_lane_that_it_cannot_have_is_named() -> None:
    with pytest.raises(KernelFault) as caught:
        execute("mov.b64 %d20, 0; add.u32 %r40, %tm, 0x200000; tcgen05.cp.cta_group::1.128x128b [%r40], %d20;", used=8)
    assert caught.value.finding.code == "EMU_TMEM_LANES"


@pytest.mark.parametrize("operation", ["min.f32", "max.f32", "min.NaN.f32", "max.abs.f32", "min.s32", "max.u32"])
def test_a_load_reduces_the_registers_of_each_thread(operation: str) -> None:
    """On sm_103a: the smallest or largest of what a thread loads; without .NaN a NaN counts only among NaNs."""
    values = np.random.default_rng(4).standard_normal((1, 128, 8)).astype(np.float32)
    values[0, 5, 3] = np.nan
    load = f"""
    tcgen05.ld.red.sync.aligned.32x32b.x8.{operation} {{%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}}, %r40, [%lane0];
    {WAIT} st.global.u32 [%d4], %r40; st.global.u32 [%d4 + 4], %v7;
"""
    out = execute(
        "", None, values.view(np.uint32), used=8, changed=NO_ISSUE | {"load": load}, target="sm_103a"
    )[0]  # fmt: skip
    name, *words_ = operation.split(".")
    source = values[0] if words_[-1] == "f32" else values[0].view(np.int32 if words_[-1] == "s32" else np.uint32)
    function = {"min": np.min, "max": np.max} if "NaN" in words_ or words_[-1] != "f32" else {
        "min": np.nanmin, "max": np.nanmax
    }  # fmt: skip
    expected = function[name](np.abs(source) if "abs" in words_ else source, axis=1)
    np.testing.assert_array_equal(out[:, 0].view(expected.dtype), expected)
    np.testing.assert_array_equal(out[:, 1], values[0, :, 7].view(np.uint32))
