"""Every check of the core: a kernel with the fault is named, its twin without it is silent."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault
from advisor.errors import AdvisorError, InputError, RefusedError
from advisor.records.launch import ResolvedLaunch, ScalarParam
from tests.emulator.kernels import execute, launch

BOX = ".shared .align 16 .b8 box[256];"
MINE = ".reg .b32 %s<6>; mov.u32 %s1, box; shl.b32 %s2, %r0, 2; add.s32 %s1, %s1, %s2;"
LOCAL = ".local .align 8 .b8 frame[16]; .reg .b64 %s<4>; mov.u64 %s1, frame;"
CLUSTER = f"{MINE} mapa.shared::cluster.u32 %s3, %s1, 1; st.shared.u32 [%s1], %r3;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
COPY = f"{MINE} cp.async.ca.shared.global [%s1], [%d3], 4; cp.async.commit_group;"

# name: (code, the fault, the same kernel without it, launch)
FAULTS: dict[str, tuple[str, str, str, ResolvedLaunch]] = {
    "past the end of a buffer": (
        "EMU_OUT_OF_BOUNDS",
        "st.global.u32 [%d4+4], %r0; ret;",
        "st.global.u32 [%d4], %r0; ret;",
        launch(),
    ),
    "a null pointer": (
        "EMU_OUT_OF_BOUNDS",
        "mov.u64 %d5, 0; ld.global.u32 %r9, [%d5]; ret;",
        "mov.u64 %d5, %d0; ld.global.u32 %r9, [%d5]; ret;",
        launch(),
    ),
    "past the end of shared memory": (
        "EMU_OUT_OF_BOUNDS",
        f"{MINE} st.shared.u32 [%s1+4], %r0; ret;",
        f"{MINE} st.shared.u32 [%s1], %r0; ret;",
        launch(),
    ),
    "past the end of local memory": (
        "EMU_OUT_OF_BOUNDS",
        f"{LOCAL} st.local.u32 [%s1+16], %r0; ret;",
        f"{LOCAL} st.local.u32 [%s1+12], %r0; ret;",
        launch(),
    ),
    "a store of a shared::cta address of a peer": (
        "EMU_OUT_OF_BOUNDS",
        f"{CLUSTER} {MEET} st.shared::cta.u32 [%s3], %r0; {MEET} ret;",
        f"{CLUSTER} {MEET} st.shared::cta.u32 [%s1], %r0; {MEET} ret;",
        launch(64, 2, 2),
    ),
    "a misaligned vector": (
        "EMU_MISALIGNED",
        "ld.global.v2.u32 {%r8, %r9}, [%d0+4]; ret;",
        "ld.global.v2.u32 {%r8, %r9}, [%d0+8]; ret;",
        launch(),
    ),
    "a misaligned shared access": (
        "EMU_MISALIGNED",
        f"{MINE} st.shared.u16 [%s1+1], %h1; ret;",
        f"{MINE} st.shared.u16 [%s1+2], %h1; ret;",
        launch(),
    ),
    "shared memory read before it is written": (
        "EMU_UNINITIALISED",
        f"{MINE} ld.shared.u32 %r9, [%s1]; ret;",
        f"{MINE} st.shared.u32 [%s1], %r0; ld.shared.u32 %r9, [%s1]; ret;",
        launch(),
    ),
    "an output read before it is written": (
        "EMU_UNINITIALISED",
        "ld.global.u32 %r9, [%d4]; ret;",
        "st.global.u32 [%d4], 1; ld.global.u32 %r9, [%d4]; ret;",
        launch(out="poison"),
    ),
    "half of a local vector never written": (
        "EMU_UNINITIALISED",
        f"{LOCAL} st.local.u32 [%s1], 1; ld.local.v2.u32 {{%r8, %r9}}, [%s1]; ret;",
        f"{LOCAL} st.local.u64 [%s1], 1; ld.local.v2.u32 {{%r8, %r9}}, [%s1]; ret;",
        launch(),
    ),
    "a barrier that half of the warps skip": (
        "EMU_DEADLOCK",
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 1; B: ret;",
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B: ret;",
        launch(),
    ),
    "a barrier that counts too many": (
        "EMU_DEADLOCK",
        "bar.sync 1, 96; ret;",
        "bar.sync 1, 64; ret;",
        launch(),
    ),
    "a cluster barrier that one CTA leaves out": (
        "EMU_DEADLOCK",
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra A; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"
        "A: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
        "barrier.cluster.arrive.aligned; bar.sync 1, 96; ret;",
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;",
        launch(64, 2, 2),
    ),
    "two thread counts at one barrier": (
        "EMU_BARRIER",
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 1, 64; ret; A: bar.sync 1, 96; ret;",
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 1, 64; ret; A: bar.sync 1, 64; ret;",
        launch(),
    ),
    "more threads at a barrier than it expects": (
        "EMU_BARRIER",
        "bar.arrive 1, 32; ret;",
        "bar.arrive 1, 64; ret;",
        launch(),
    ),
    "a cluster barrier waited for without an arrival": (
        "EMU_BARRIER",
        "barrier.cluster.wait.aligned; ret;",
        f"{MEET} ret;",
        launch(64, 2, 2),
    ),
    "shared memory handed on without a barrier": (
        "EMU_DATA_RACE",
        f"{MINE} xor.b32 %s3, %s1, 128; st.shared.u32 [%s3], %r0; st.shared.u32 [%s1], %r3; ret;",
        f"{MINE} xor.b32 %s3, %s1, 128; st.shared.u32 [%s3], %r0; bar.sync 0; st.shared.u32 [%s1], %r3; ret;",
        launch(),
    ),
    "global memory handed on without release and acquire": (
        "EMU_DATA_RACE",
        "setp.eq.u32 %p1, %r3, 0; @%p1 st.global.u32 [%d1], 7; setp.eq.u32 %p2, %r3, 64;"
        "@%p2 st.global.u32 [%d1], 8; ret;",
        "setp.eq.u32 %p1, %r3, 0; @%p1 st.relaxed.gpu.global.u32 [%d1], 7; setp.eq.u32 %p2, %r3, 64;"
        "@%p2 st.relaxed.gpu.global.u32 [%d1], 8; ret;",
        launch(64, 2),
    ),
    "a peer's memory before the cluster has met": (
        "EMU_PEER_NOT_STARTED",
        f"{CLUSTER} ld.shared::cluster.u32 %r9, [%s3]; {MEET} ret;",
        f"{CLUSTER} {MEET} ld.shared::cluster.u32 %r9, [%s3]; {MEET} ret;",
        launch(64, 2, 2),
    ),
    "a shuffle that some lanes do not reach": (
        "EMU_WARP_SYNC",
        "setp.lt.u32 %p1, %r0, 16; @!%p1 bra E; shfl.sync.idx.b32 %r9, %r0, 0, 0x1f, 0xffffffff; E: ret;",
        "setp.lt.u32 %p1, %r0, 16; @!%p1 bra E; shfl.sync.idx.b32 %r9, %r0, 0, 0x1f, 0x0000ffff; E: ret;",
        launch(32),
    ),
    "a copy that is read before its wait": (
        "EMU_UNINITIALISED",
        f"{COPY} ld.shared.u32 %r9, [%s1]; cp.async.wait_all; ret;",
        f"{COPY} cp.async.wait_all; ld.shared.u32 %r9, [%s1]; ret;",
        launch(),
    ),
    "an index that a branch table does not have": (
        "EMU_BRANCH_TABLE",
        "ts: .branchtargets A, A; brx.idx %r0, ts; A: ret;",
        "ts: .branchtargets A, A; and.b32 %r4, %r0, 1; brx.idx %r4, ts; A: ret;",
        launch(),
    ),
    "a loop without end": (
        "EMU_STEP_LIMIT",
        "L: setp.lt.u32 %p1, %r0, 64; @%p1 bra L; ret;",
        "L: setp.gt.u32 %p1, %r0, 64; @%p1 bra L; ret;",
        launch(),
    ),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_the_fault_is_named_and_its_twin_is_silent(name):
    code, broken, correct, shape = FAULTS[name]
    options = {"declarations": BOX, "async_policy": "lazy", "step_limit": 10_000}
    for seed in range(2):
        with pytest.raises(KernelFault) as caught:
            execute(broken, shape, seed=seed, **options)
        assert caught.value.code == code
        assert execute(correct, shape, seed=seed, **options).warnings == ()


def test_a_report_says_where():
    with pytest.raises(KernelFault) as caught:
        execute("setp.lt.u32 %p1, %r3, 101; @%p1 bra E;\nst.global.u32 [%d4+4096], %r0;\nE: ret;", launch(64, 2))
    place = caught.value.finding.place
    assert place.instruction == "st.global.u32"
    assert (place.cta, place.warp, place.lane) == ((1, 0, 0), 1, 5)
    assert place.ptx_line is not None
    assert "offset 4500 of the buffer OUT, which has 512" in str(caught.value)


def test_a_deadlock_says_who_waits_for_what():
    with pytest.raises(KernelFault) as caught:
        execute("setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 2; ret; A: bar.sync 1, 64; ret;")
    text = str(caught.value)
    assert "barrier 2: 32 of 64 threads have come" in text
    assert "barrier 1: 32 of 64 threads have come" in text


def test_a_copy_that_nobody_waits_for_is_a_warning():
    outcome = execute(f"{COPY} ret;", declarations=BOX, async_policy="lazy")
    assert [each.code for each in outcome.warnings] == ["EMU_COPY_IN_FLIGHT"]


@pytest.mark.parametrize(
    ("body", "near"),
    [
        ("frobnicate.u32 %r1, %r2;", "frobnicate.u32"),
        ("add.s32.frob %r1, %r2, %r3;", "add.s32.frob"),
        ("ld.global.frob.u32 %r1, [%d3];", "frob"),
        ("bar.sync.frob 0;", "frob"),
        ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%d1, {%r1}];", "tex.1d"),
    ],
)
def test_what_is_not_executed_stops_with_its_line(body, near):
    with pytest.raises(RefusedError, match=near) as caught:
        execute(f"{body} ret;")
    assert caught.value.code == "EMU_UNKNOWN_OPCODE"
    assert caught.value.numbers["line"] == 17


def changed(**changes) -> ResolvedLaunch:
    return launch().model_copy(update=changes)


@pytest.mark.parametrize(
    ("shape", "inputs", "code"),
    [
        (changed(entry="other"), None, "EMU_ENTRY"),
        (changed(params=launch().params[:2]), None, "EMU_PARAMETERS"),
        (changed(params=[*launch().params[:2], ScalarParam(kind="u64", name="n", value=1)]), None, "EMU_PARAMETERS"),
        (changed(params=[*launch().params[:2], ScalarParam(kind="u32", name="n", value=-1)]), None, "EMU_PARAMETERS"),
        (changed(buffers={"IN": launch().buffers["IN"]}), None, "EMU_BUFFER"),
        (launch(), {"IN": np.zeros(3, np.uint8)}, "EMU_BUFFER"),
        (launch(), {"ELSE": np.zeros(3, np.uint8)}, "EMU_BUFFER"),
        (launch(2048), None, "EMU_LAUNCH_REFUSED"),
        (launch(64, 3, 2), None, "EMU_LAUNCH_REFUSED"),
        (launch(dynamic=300_000), None, "EMU_LAUNCH_REFUSED"),
    ],
)
def test_a_launch_that_does_not_fit_is_an_input_error(shape, inputs, code):
    with pytest.raises(AdvisorError) as caught:
        execute("ret;", shape, inputs=inputs)
    assert isinstance(caught.value, InputError)
    assert caught.value.code == code
