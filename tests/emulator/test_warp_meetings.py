"""Lanes that come to copies of one warp instruction at different places serve each other (PTX ISA, shfl.sync)."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault
from tests.emulator.kernels import execute, launch, results

SIDES = """
    and.b32 %r20, %r0, 31; setp.lt.u32 %p1, %r20, 16; mul.lo.u32 %r21, %r3, 3; add.u32 %r22, %r3, 100; mov.u32 %r9, 0;
    @%p1 bra LOW; HIGH bra.uni OUT; LOW: FIRST OUT: st.global.u32 [%d4], %r9; ret;
"""
LANES = np.arange(64)
LOW = LANES % 32 < 16


def sides(low: str, high: str | None = None, *, out: str = "") -> str:
    return (
        SIDES.replace("HIGH", (high or low).replace("%r21", "%r22"))
        .replace("FIRST", low)
        .replace("OUT: ", f"OUT: {out}")
    )


def brought() -> np.ndarray:
    """What a lane brings: of the lower half 3 i, of the upper half 100 + i."""
    return np.where(LOW, 3 * LANES, 100 + LANES)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ctas", [1, 3])
def test_a_shuffle_on_both_sides_of_a_branch(seed: int, ctas: int) -> None:
    found = results(sides("shfl.sync.bfly.b32 %r9, %r21, 16, 0x1f, -1;"), launch(64, ctas), seed=seed)
    i = np.arange(64 * ctas)
    values = np.where(i % 32 < 16, 3 * i, 100 + i)
    assert np.array_equal(found, values[i ^ 16])


def test_the_other_lanes_keep_their_values() -> None:
    """The register that is shuffled is used afterwards, on both sides."""
    found = results(
        sides("shfl.sync.idx.b32 %r9, %r21, 31, 0x1f, -1; add.u32 %r9, %r9, %r21;", out="add.u32 %r9, %r9, %r22;")
    )
    assert np.array_equal(found, 100 + LANES // 32 * 32 + 31 + brought() + 100 + LANES)


def test_votes_and_reductions_of_both_sides() -> None:
    ballot = "setp.gt.u32 %p2, %r21, 110; vote.sync.ballot.b32 %r9, %p2, -1;"
    bits = (brought() > 110).reshape(2, 32) @ (1 << np.arange(32))
    assert np.array_equal(results(sides(ballot)), np.repeat(bits, 32))
    total = results(sides("redux.sync.add.u32 %r9, %r21, -1;"))
    assert np.array_equal(total, np.repeat(brought().reshape(2, 32).sum(axis=1), 32))
    same = results(sides("shr.u32 %r23, %r21, 6; match.any.sync.b32 %r9, %r23, -1;"))
    groups = (brought() >> 6).reshape(2, 32)
    wanted = [((row == each) @ (1 << np.arange(32))) for row in groups for each in row]
    assert np.array_equal(same, np.array(wanted, np.uint32))


def test_one_lane_of_both_sides_is_elected() -> None:
    found = results(sides("elect.sync %r23|%p3, -1; selp.u32 %r9, 1, 0, %p3;"))
    assert found.sum() == 2
    assert found[[0, 32]].all()


def test_three_places() -> None:
    body = """
        setp.lt.u32 %p1, %r0, 8; setp.lt.u32 %p2, %r0, 20; @%p1 bra A; @%p2 bra B;
        shfl.sync.down.b32 %r9, %r3, 8, 0x1f, -1; bra OUT; A: shfl.sync.down.b32 %r9, %r3, 8, 0x1f, -1; bra OUT;
        B: shfl.sync.down.b32 %r9, %r3, 8, 0x1f, -1; OUT: st.global.u32 [%d4], %r9; ret;
    """
    i = np.arange(32)
    assert np.array_equal(results(body, launch(32)), np.where(i + 8 < 32, i + 8, i))


def test_lanes_that_have_exited_are_not_waited_for() -> None:
    body = """
        setp.ge.u32 %p3, %r0, 30; @%p3 ret; setp.lt.u32 %p1, %r0, 16; @%p1 bra LOW;
        shfl.sync.idx.b32 %r9, %r3, 2, 0x1f, -1; bra OUT; LOW: shfl.sync.idx.b32 %r9, %r3, 20, 0x1f, -1;
        OUT: st.global.u32 [%d4], %r9; ret;
    """
    found = results(body, launch(32))
    assert np.array_equal(found, np.where(np.arange(32) >= 30, 0, np.where(np.arange(32) < 16, 20, 2)))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("shfl.sync.bfly.b32 %r9, %r21, 16, 0x1f, -1;", "shfl.sync.idx.b32 %r9, %r21, 0, 0x1f, -1;"),
        ("shfl.sync.bfly.b32 %r9, %r21, 16, 0x1f, -1;", "shfl.sync.bfly.b32 %r9, %r21, 16, 0x1f, 0xfffffffe;"),
        ("redux.sync.add.u32 %r9, %r21, -1;", "redux.sync.max.u32 %r9, %r21, -1;"),
        ("shfl.sync.bfly.b32 %r9, %r21, 16, 0x1f, -1;", "mov.u32 %r9, 0;"),
    ],
)
def test_other_qualifiers_or_another_mask_do_not_serve(low: str, high: str) -> None:
    with pytest.raises(KernelFault) as caught:
        execute(sides(low, high))
    assert caught.value.code == "EMU_WARP_SYNC"
