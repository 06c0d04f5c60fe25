"""What a run hands on: writes per byte, bytes stored by each cluster, and memory for the kernel that comes after."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault, run
from advisor.records.launch import PtrParam, ResolvedLaunch, ScratchParam
from tests.emulator.gemms import Gemm, case_of, problem
from tests.emulator.kernels import execute, launch, module
from tests.emulator.test_sm90 import candidate

STORE = "st.global.u32 [%d4], %r3; ret;"


def writes(body: str, shape: ResolvedLaunch | None = None) -> np.ndarray:
    return execute(body, shape, count_writes=("OUT",)).writes["OUT"].reshape(-1, 4)


def test_every_byte_of_a_kernel_that_stores_once_is_counted_once() -> None:
    assert (writes(STORE) == 1).all()


def test_bytes_that_only_some_lanes_store_are_counted_there_alone() -> None:
    counts = writes("setp.lt.u32 %p1, %r3, 40; @!%p1 ret; st.global.u16 [%d4+2], %h1; ret;")
    assert (counts[:40] == [0, 0, 1, 1]).all()
    assert not counts[40:].any()


def test_lanes_of_one_store_to_one_place_count_one_by_one() -> None:
    counts = writes("mov.u32 %r9, 7; st.global.u32 [%d1], %r9; ret;")
    assert counts[0].tolist() == [64] * 4
    assert not counts[1:].any()


def test_atomics_and_vectors_count_as_writes() -> None:
    assert (writes("red.global.add.u32 [%d4], 1; st.global.u32 [%d4], 1; ret;") == 2).all()
    vector = "and.b32 %r8, %r3, 3; setp.eq.u32 %p1, %r8, 0; @!%p1 ret; mov.u32 %r9, 1;"
    assert (writes(vector + "st.global.v4.u32 [%d4], {%r9, %r9, %r9, %r9}; ret;") == 1).all()


def test_what_is_not_asked_for_is_not_counted() -> None:
    assert execute(STORE).writes == {}


@pytest.mark.parametrize("policy", ["eager", "adversarial"])
def test_tensor_stores_write_each_element_of_d_once_and_no_padding(policy: str) -> None:
    p = problem(200, 136, 64)
    gemm = Gemm(p, candidate(p), "sm_90a")
    case = case_of(p, ldd=144, batch_stride_d=200 * 144)
    outcome = gemm.check(case, async_policy=policy, count_writes=("D",))
    counts = outcome.writes["D"].reshape(200, 144, 2)
    assert (counts[:, :136] == 1).all()
    assert not counts[:, 136:].any()
    assert sum(outcome.stored_bytes) == 200 * 136 * 2
    assert len(outcome.stored_bytes) == outcome.clusters > 1


def test_stored_bytes_are_those_of_each_cluster() -> None:
    body = f"add.s32 %r7, %r1, 1; setp.ge.u32 %p1, %r1, 2; @%p1 ret; {STORE}"
    assert execute(body, launch(64, 3)).stored_bytes == (256, 256, 0)


# --- a kernel after another one ---------------------------------------------------------------------------------------

TWO = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry first(.param .u64 partial, .param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [partial]; cvta.to.global.u64 %d0, %d0;
    mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1;
    add.s32 %r1, %r0, 100; st.global.u32 [%d0], %r1; ret;
}
.visible .entry second(.param .u64 partial, .param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [partial]; ld.param.u64 %d2, [out]; cvta.to.global.u64 %d0, %d0; cvta.to.global.u64 %d2, %d2;
    mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; add.s64 %d2, %d2, %d1;
    ld.global.u32 %r1, [%d0]; st.global.u32 [%d2], %r1; ret;
}
"""


def step(entry: str, threads: int, init: str) -> ResolvedLaunch:
    made = launch(threads, count=64)
    scratch = ScratchParam.model_validate({"name": "partial", "bytes": 256, "init": init})
    return made.model_copy(update={"entry": entry, "params": [scratch, PtrParam(name="out", buffer="OUT")]})


def test_scratch_goes_on_into_the_kernel_that_comes_after() -> None:
    first = run(TWO, step("first", 64, "none"))
    second = run(TWO, step("second", 64, "none"), after=first)
    assert (second.typed("OUT") == np.arange(64) + 100).all()
    assert (second.typed("IN") == np.arange(64)).all()


def test_scratch_that_the_first_kernel_did_not_write_has_no_value_in_the_second() -> None:
    first = run(TWO, step("first", 32, "none"))
    with pytest.raises(KernelFault) as caught:
        run(TWO, step("second", 64, "none"), after=first)
    assert caught.value.code == "EMU_UNINITIALISED"


def test_scratch_that_each_launch_zeroes_is_zero_again() -> None:
    first = run(TWO, step("first", 64, "zeros"))
    assert (run(TWO, step("second", 64, "zeros"), after=first).typed("OUT") == 0).all()


def test_given_poison_is_still_without_a_value() -> None:
    body = "ld.global.u32 %r9, [%d4]; st.global.u32 [%d4], %r9; ret;"
    made = launch(out="poison")
    with pytest.raises(KernelFault) as caught:
        run(module(body), made, inputs={"OUT": np.arange(64, dtype=np.uint32)})
    assert caught.value.code == "EMU_UNINITIALISED"
    poison = np.full(64, 0xFFE5A5A5, np.uint32)
    skips = run(
        module("setp.lt.u32 %p1, %r3, 8; @%p1 ret; st.global.u32 [%d4], %r3; ret;"), made, inputs={"OUT": poison}
    )
    assert (skips.typed("OUT")[:8] == 0xFFE5A5A5).all()
