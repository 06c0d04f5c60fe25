"""mma.sync with block scales: every form against float64, the lanes that hold scales, forms that do not exist."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import fragments
from advisor.emulator.formats import FORMATS, as_real, encode
from advisor.emulator.mma import operand
from advisor.emulator.scaled_mma import scaled_mma
from advisor.errors import RefusedError
from tests.emulator.kernels import launch, module

FORMS = [
    "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0",
    "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e2m1.e3m2.f32.ue8m0",
    "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
    "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
    "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
]


def codes(kind: str, shape: tuple[int, ...], *, packed: bool, seed: int) -> np.ndarray:
    made = encode(np.random.default_rng(seed).standard_normal(shape), FORMATS[kind], finite=True)
    return made << np.uint8(2) if kind == "e2m1" and not packed else made


@pytest.mark.parametrize("selectors", [((0, 0), (0, 0)), ((0, 0), (1, 3)), ((0, 0), (1, 2)), ("last", (0, 1))])
@pytest.mark.parametrize("form", FORMS)
def test_each_row_and_column_is_scaled_by_the_bytes_of_its_lane(form, selectors):
    mma = scaled_mma(f"mma.sync.aligned.{form}")
    assert mma is not None
    bytes_, threads = selectors
    if bytes_ == "last":
        bytes_ = (4 - mma.blocks, 4 - mma.blocks)
    packed = mma.k == 64
    containers = ("b4", "b4") if packed else (mma.a, mma.b)
    a, b = codes(mma.a, (16, mma.k), packed=packed, seed=1), codes(mma.b, (mma.k, 8), packed=packed, seed=2)
    c = np.random.default_rng(3).standard_normal((16, 8)).astype(np.float32)
    rng = np.random.default_rng(4)
    low, high = (120, 134) if mma.scale == "ue8m0" else (0x20, 0x60)
    scales = [rng.integers(low, high, (32, 4)).astype(np.uint8) for _ in range(2)]
    factor = "ue8m0" if mma.scale == "ue8m0" else "e4m3"
    size = mma.k // mma.blocks
    left, right = (as_real(x, kind) if packed else operand(x, kind) for x, kind in ((a, mma.a), (b, mma.b)))
    wanted = c.astype(np.float64)
    for row, column, k in np.ndindex(16, 8, mma.k):
        lane_a = 4 * (row % 8) + 2 * threads[0] + row // 8
        lane_b = 4 * column + threads[1]
        scale_a = as_real(scales[0][lane_a, bytes_[0] + k // size], factor)
        scale_b = as_real(scales[1][lane_b, bytes_[1] + k // size], factor)
        wanted[row, column] += left[row, k] * scale_a * right[k, column] * scale_b
    stacks = (
        fragments.registers_a(a, containers[0]),
        fragments.registers_b(b, containers[1]),
        fragments.registers_c(c.view(np.uint32), "f32"),
    )
    registers = [fragments.unstack(each[None]) for each in stacks]
    words = tuple(each.view(np.uint32).reshape(1, 32) for each in scales)
    found = mma(*registers, words, bytes_, threads)
    result = fragments.matrix_c(fragments.stack(found), "f32").view(np.float32)[0]
    assert (result == wanted.astype(np.float32)).all()


@pytest.mark.parametrize(
    "form",
    [
        "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::2X.f32.e4m3.e4m3.f32.ue8m0",
        "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue4m3",
        "m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue4m3",
        "m16n8k64.row.col.kind::mxf4.block_scale.f32.e4m3.e2m1.f32.ue8m0",
        "m16n8k64.row.col.kind::mxf4.block_scale.f16.e2m1.e2m1.f16.ue8m0",
    ],
)
def test_forms_that_do_not_exist(form):
    assert scaled_mma(f"mma.sync.aligned.{form}") is None


LINE = f"mma.sync.aligned.{FORMS[0]} {{%r4, %r5, %r6, %r7}}, {{%r8, %r9, %r10, %r11}}, {{%r12, %r13}}, "
LINE += "{%r4, %r5, %r6, %r7}, %r14, {BYTE, THREAD}, %r15, {0, 0};"


@pytest.mark.parametrize(
    ("byte", "thread", "target", "message"),
    [
        ("4", "0", "sm_120a", "byte-id-a is 4"),
        ("0", "2", "sm_120a", "thread-id-a is 2"),
        ("%r4", "0", "sm_120a", "two immediates"),
        ("0", "0", "sm_100a", "mma.sync.block_scale"),
    ],
)
def test_selectors_and_targets_that_are_refused(byte, thread, target, message):
    from advisor.emulator import run

    body = LINE.replace("BYTE", byte).replace("THREAD", thread) + " ret;"
    shape = launch(32).model_copy(update={"target": target})
    with pytest.raises(RefusedError, match=message):
        run(module(body, target=target), shape)
