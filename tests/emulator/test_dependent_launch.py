"""A kernel that starts while the kernel before it still writes: what it may see, and when that one is over."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault, run
from advisor.emulator.policy import POLICIES
from advisor.errors import InputError
from tests.emulator.kernels import execute, launch, module

MOVE = "ld.global.u32 %r9, [%d3]; add.u32 %r9, %r9, 1; st.global.u32 [%d4], %r9; ret;"
WAIT = "griddepcontrol.wait;"
LATE = ("IN", "OUT")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_kernel_before_writes_is_there_after_the_wait(policy: str) -> None:
    outcome = execute(WAIT + MOVE, launch(64, 3), async_policy=policy, predecessor_writes=LATE)
    assert outcome.warnings == ()
    assert np.array_equal(outcome.typed("OUT"), outcome.typed("IN") + 1)


@pytest.mark.parametrize("policy", ["lazy", "adversarial"])
def test_it_is_not_there_before_the_wait(policy: str) -> None:
    """Without the checks of order the read itself finds bytes that nobody has written."""
    with pytest.raises(KernelFault) as caught:
        execute(MOVE, async_policy=policy, predecessor_writes=LATE, races=False)
    assert caught.value.code == "EMU_UNINITIALISED"


def test_a_read_before_the_wait_is_named_with_its_buffer_and_place() -> None:
    with pytest.raises(KernelFault) as caught:
        execute(MOVE, launch(64, 2), async_policy="eager", predecessor_writes=("IN",))
    assert caught.value.code == "EMU_GRID_WAIT"
    assert caught.value.finding.numbers == {"buffer": "IN", "offset": 0}
    assert caught.value.finding.place.instruction.startswith("ld.global.u32")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_prefetch_before_the_wait_reads_no_value(policy: str) -> None:
    ahead = "setp.eq.u32 %p1, %r0, 0; @%p1 cp.async.bulk.prefetch.L2.global [%d0], 256;"
    outcome = execute(ahead + WAIT + MOVE, async_policy=policy, predecessor_writes=LATE)
    assert outcome.warnings == ()
    assert np.array_equal(outcome.typed("OUT"), outcome.typed("IN") + 1)


def test_buffers_that_it_does_not_write_are_free() -> None:
    outcome = execute("st.global.u32 [%d4], %r3;" + WAIT + "ret;", predecessor_writes=("IN",))
    assert np.array_equal(outcome.typed("OUT"), np.arange(64))


def test_one_thread_waits_for_its_cta() -> None:
    body = f"setp.eq.u32 %p1, %r0, 33; @%p1 {WAIT} bar.sync 0; {MOVE}"
    outcome = execute(body, predecessor_writes=LATE)
    assert outcome.warnings == ()


def test_a_flag_in_memory_hands_the_wait_on_to_another_cta() -> None:
    """CTA 0 waits and releases a flag, CTA 1 acquires it."""
    flag = ".global .align 4 .u32 flag;"
    body = f"""
        mov.u64 %d9, flag; setp.ne.u32 %p1, %r1, 0; @%p1 bra SPIN;
        {WAIT} bar.sync 0; st.release.gpu.global.u32 [%d9], 1; bra GO;
        SPIN: ld.acquire.gpu.global.u32 %r9, [%d9]; setp.ne.u32 %p2, %r9, 1; @%p2 bra SPIN;
        GO: {MOVE}
    """
    outcome = execute(body, launch(32, 2), declarations=flag + "\n", predecessor_writes=LATE)
    assert np.array_equal(outcome.typed("OUT"), outcome.typed("IN") + 1)
    with pytest.raises(KernelFault) as caught:
        execute(body.replace("ld.acquire.gpu", "ld.relaxed.gpu"), launch(32, 2), declarations=flag,
                predecessor_writes=LATE)  # fmt: skip
    assert caught.value.code == "EMU_GRID_WAIT"


def test_a_warp_that_leaves_early_is_a_warning_with_its_place() -> None:
    body = f"setp.ge.u32 %p1, %r0, 32; @%p1 bra OUT; {WAIT} {MOVE} OUT: ret;"
    (warning,) = execute(body, predecessor_writes=LATE).warnings
    assert warning.code == "EMU_GRID_WAIT_SKIPPED"
    assert warning.place.warp == 1


def test_the_launch_file_says_it_too_and_the_option_replaces_it() -> None:
    named = launch().model_copy(update={"predecessor_writes": ["IN"]})
    with pytest.raises(KernelFault) as caught:
        run(module(MOVE), named)
    assert caught.value.code == "EMU_GRID_WAIT"
    assert run(module(MOVE), named, predecessor_writes=()).warnings == ()


def test_a_buffer_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        execute(MOVE, predecessor_writes=("IN", "X"))
    assert caught.value.code == "EMU_BUFFER"
    assert caught.value.numbers["unknown"] == ["X"]


def test_warps_that_poll_do_not_keep_the_kernel_before_from_ending() -> None:
    """Warp 1 spins on a flag that warp 0 sets after its wait."""
    shared = ".shared .align 4 .b32 flag;"
    body = f"""
        .reg .b32 %s<2>; mov.u32 %s1, flag; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%s1], 0; bar.sync 0;
        setp.ge.u32 %p2, %r0, 32; @%p2 bra SPIN;
        {WAIT} bar.warp.sync -1; @%p1 st.release.cta.shared.u32 [%s1], 1; ret;
        SPIN: ld.acquire.cta.shared.u32 %r9, [%s1]; setp.ne.u32 %p3, %r9, 1; @%p3 bra SPIN; ret;
    """
    outcome = execute(body, declarations=shared, async_policy="lazy", predecessor_writes=LATE)
    assert outcome.warnings == ()


def test_other_forms_are_refused() -> None:
    with pytest.raises(Exception, match="griddepcontrol"):
        execute("griddepcontrol.hold; ret;")
