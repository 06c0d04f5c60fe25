"""`setmaxnreg`: who blocks, what the pool of a CTA holds, and what has no effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.emulator import KernelFault, Outcome, run
from advisor.emulator.world import cut_profile
from advisor.errors import RefusedError
from advisor.machine.profile_file import load_profile
from tests.emulator.kernels import launch, module

BOUNDS = ".maxntid 256, 1, 1\n.minnctapersm 2\n"  # 128 registers a thread
LATE = """
    .reg .b32 %s<2>; mov.u32 %s1, word; setp.ge.u32 %p1, %r0, 128; @%p1 bra TAKE;
    mov.u32 %r5, 0; L: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 200; @%p2 bra L;
    st.shared.u32 [%s1], %r5; setmaxnreg.dec.sync.aligned.u32 40; bar.sync 0; ret;
    TAKE: setmaxnreg.inc.sync.aligned.u32 216; bar.sync 0; ld.shared.u32 %r6, [%s1]; st.global.u32 [%d4], %r6; ret;
"""
WORD = ".shared .align 4 .b32 word;"
TWICE = """
    setmaxnreg.dec.sync.aligned.u32 64; bar.sync 0; setmaxnreg.inc.sync.aligned.u32 128; st.global.u32 [%d4], %r0; ret;
"""


def execute(body: str, directives: str = BOUNDS, *, ctas: int = 1, **options: Any) -> Outcome:
    text = module(body, declarations=WORD).replace("\n{\n", f"\n{directives}{{\n", 1)
    return run(text, launch(256, ctas), **options)


@pytest.mark.parametrize("seed", range(4))
def test_a_warpgroup_waits_until_another_has_given_its_registers_back(seed: int) -> None:
    outcome = execute(LATE, seed=seed)
    assert np.array_equal(outcome.typed("OUT"), np.repeat([0, 200], 128))
    assert outcome.warnings == ()


def test_each_cta_has_a_pool_of_its_own_and_a_new_one_when_another_takes_its_place() -> None:
    outcome = execute(LATE, ctas=50, profile=cut_profile(load_profile("h200")))
    assert np.array_equal(outcome.typed("OUT"), np.tile(np.repeat([0, 200], 128), 50))


def test_registers_come_and_go_with_a_barrier_between() -> None:
    assert np.array_equal(execute(TWICE).typed("OUT"), np.arange(256))


def test_a_warp_may_ask_for_what_it_has_without_a_barrier() -> None:
    again = TWICE.replace("st.global", "setmaxnreg.inc.sync.aligned.u32 128; st.global")
    assert np.array_equal(execute(again).typed("OUT"), np.arange(256))


def test_the_report_says_what_the_pool_holds() -> None:
    with pytest.raises(KernelFault) as caught:
        execute(LATE.replace("216", "224"))
    assert caught.value.code == "EMU_DEADLOCK"
    text = str(caught.value)
    assert "more registers than the 128 of each thread" in text
    assert "all warps together 30720 of 32768" in text  # three of four warps have got theirs
    assert "PTX does not say that theirs come back" not in text


@pytest.mark.parametrize("directives", [".maxnreg 128\n", ".reqntid 256, 1, 1\n.minnctapersm 2\n"])
def test_what_says_how_many_registers_a_thread_has_at_entry(directives: str) -> None:
    assert execute(LATE, directives).warnings == ()
    with pytest.raises(KernelFault):
        execute(LATE.replace("216", "224"), directives)


@pytest.mark.parametrize("directives", ["", ".maxntid 256, 1, 1\n", ".minnctapersm 2\n"])
def test_where_nothing_says_it_the_instruction_has_no_effect(directives: str) -> None:
    outcome = execute(LATE.replace("216", "224"), directives)
    assert {each.code for each in outcome.warnings} == {"EMU_REGISTERS_UNKNOWN"}
    assert np.array_equal(outcome.typed("OUT"), np.repeat([0, 200], 128))


def test_the_registers_of_the_cubin_count_where_they_are_given() -> None:
    assert execute(LATE, registers=128).warnings == ()
    with pytest.raises(KernelFault) as caught:
        execute(LATE, registers=120)
    assert caught.value.code == "EMU_DEADLOCK"


def test_a_part_of_a_warp_is_no_warp() -> None:
    with pytest.raises(KernelFault) as caught:
        execute("setp.ne.u32 %p1, %r0, 5; @%p1 setmaxnreg.dec.sync.aligned.u32 40; ret;")
    assert caught.value.code == "EMU_WARP_SYNC"


@pytest.mark.parametrize(
    "form",
    ["set.sync.aligned.u32 40", "sync.aligned.u32 40", "inc.dec.sync.aligned.u32 40", "dec.u32 40",
     "dec.sync.aligned.u32 %r0"],
)  # fmt: skip
def test_another_form_is_refused(form: str) -> None:
    with pytest.raises(RefusedError) as caught:
        execute(f"setmaxnreg.{form}; ret;")
    assert caught.value.code == "EMU_UNKNOWN_OPCODE"
