"""Lanes of one warp that store to one place in one instruction."""

from __future__ import annotations

import pytest

from tests.emulator.kernels import execute, launch


def collisions(body: str) -> list[str]:
    warnings = execute(body, launch(32, count=64)).warnings
    assert {each.code for each in warnings} <= {"EMU_STORE_COLLISION"}
    return [each.message for each in warnings]


def test_lanes_that_store_different_values_to_one_place_are_a_warning_with_both() -> None:
    body = "and.b32 %r9, %r0, 15; mul.wide.u32 %d5, %r9, 4; add.s64 %d5, %d1, %d5; st.global.u32 [%d5], %r0; ret;"
    (message,) = collisions(body)
    assert message.startswith("lanes 0 and 16 store different values to global memory at")


def test_vectors_are_compared_word_by_word() -> None:
    """Two lanes store two words each to one place: the first words are the same."""
    pair = "shr.u32 %r11, %r0, 1; mul.wide.u32 %d5, %r11, 8; add.s64 %d5, %d1, %d5; mov.u32 %r9, %r11;"
    store = "st.global.v2.u32 [%d5], {%r9, %r10}; ret;"
    assert collisions(f"{pair} mov.u32 %r10, 5; {store}") == []
    assert len(collisions(f"{pair} mov.u32 %r10, %r0; {store}")) == 1


@pytest.mark.parametrize(
    "body",
    [
        "mov.u32 %r9, 9; st.global.u32 [%d1], %r9; ret;",
        "st.global.u32 [%d4], %r0; ret;",
        "setp.eq.u32 %p1, %r0, 3; @%p1 st.global.u32 [%d1], %r0; ret;",
        "st.relaxed.gpu.global.u32 [%d1], %r0; ret;",
        "red.global.add.u32 [%d1], %r0; ret;",
    ],
)
def test_one_value_one_lane_strong_stores_and_atomics_are_none(body: str) -> None:
    assert collisions(body) == []
