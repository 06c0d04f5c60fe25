"""Registers of 128 bits: moved, loaded, stored, kept over blocks and under guards; never computed with."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.errors import RefusedError
from tests.emulator.kernels import execute, launch, results

SHAPE = launch(32, count=128)
PLACES = ".reg .b128 %q<8>; mul.wide.u32 %d5, %r0, 16; add.s64 %d6, %d0, %d5; add.s64 %d7, %d1, %d5;"
WORDS = np.arange(128)


def test_a_load_and_a_store_of_128_bits():
    assert (results(f"{PLACES} ld.global.b128 %q1, [%d6]; st.global.b128 [%d7], %q1; ret;", SHAPE) == WORDS).all()


def test_halves_are_low_and_high():
    body = f"{PLACES} ld.global.b128 %q1, [%d6]; mov.b128 {{%d8, %d9}}, %q1; st.global.v2.u64 [%d7], {{%d9, %d8}}; ret;"
    assert (results(body, SHAPE).reshape(32, 4) == WORDS.reshape(32, 4)[:, [2, 3, 0, 1]]).all()


def test_a_pair_becomes_128_bits_and_outlives_its_block():
    body = f"""{PLACES} ld.global.v2.u64 {{%d8, %d9}}, [%d6]; mov.b128 %q1, {{%d8, %d9}}; mov.b128 %q2, %q1;
    mov.u64 %d8, 0; bar.sync 0; st.global.b128 [%d7], %q2; ret;"""
    assert (results(body, SHAPE) == WORDS).all()


def test_a_guard_keeps_what_the_other_lanes_hold():
    body = f"""{PLACES} ld.global.b128 %q1, [%d6]; mov.u64 %d8, 7; setp.lt.u32 %p1, %r0, 16;
    @%p1 mov.b128 %q1, {{%d8, %d8}}; st.global.b128 [%d7], %q1; ret;"""
    found = results(body, SHAPE).reshape(32, 4)
    assert (found[:16] == [7, 0, 7, 0]).all()
    assert (found[16:] == WORDS.reshape(32, 4)[16:]).all()


def test_one_half_may_be_thrown_away():
    body = f"{PLACES} ld.global.b128 %q1, [%d6]; mov.b128 {{_, %d9}}, %q1; st.global.u64 [%d7], %d9; ret;"
    assert (results(body, SHAPE).reshape(32, 4)[:, :2] == WORDS.reshape(32, 4)[:, 2:]).all()


@pytest.mark.parametrize("body", ["mov.b64 %d8, %q1;", "add.s64 %d8, %q1, %q1;", "mov.b128 {%r4, %r5, %r6, %r7}, %q1;"])
def test_what_is_no_move_is_refused(body):
    with pytest.raises(RefusedError, match=r"EMU_UNKNOWN_OPCODE|128"):
        execute(f"{PLACES} ld.global.b128 %q1, [%d6]; {body} st.global.b128 [%d7], %q1; ret;", SHAPE)
