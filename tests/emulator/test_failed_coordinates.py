"""The coordinates of a failed request, followed through registers: their use is named, arithmetic on them is silent."""

from __future__ import annotations

import pytest

from advisor.emulator import KernelFault, load_program, run
from tests.emulator.kernels import launch, module

DECLARATIONS = """
.shared .align 16 .b8 slot[16];
.shared .align 8 .b64 bar;
.shared .align 16 .b8 box[1024];
"""
REGISTERS = """
    .reg .pred %p<32>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %d<32>; .reg .f32 %f<16>; .reg .b128 %q<4>;
    .local .align 16 .b8 frame[64];
"""
ASK = """
    setp.eq.u32 %p30, %r0, 0; mov.u32 %r40, bar; mov.u32 %r41, slot; mov.u32 %r42, box; shl.b32 %r43, %r0, 2;
    add.u32 %r42, %r42, %r43; mov.u64 %d20, frame;
    @%p30 mbarrier.init.shared::cta.b64 [%r40], 1; bar.sync 0;
    @%p30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r40], 16;
    @%p30 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r41], [%r40];
    W: mbarrier.try_wait.parity.shared::cta.b64 %p29, [%r40], 0; @!%p29 bra W;
    ld.shared.b128 %q1, [%r41];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1;
    """
DECODE = "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r20, %r21, %r22, _}, %q1;"
OUT = "st.global.u32 [%d4], %r30; ret;"


def execute(body: str, target: str = "sm_100a", **options: object) -> None:
    text = module(ASK + body, declarations=DECLARATIONS, registers=REGISTERS, target=target)
    shape = launch(64).model_copy(update={"target": target})
    outcome = run(text, shape, **options)  # type: ignore[arg-type]
    assert outcome.warnings == ()


USES = {
    "an address": f"{DECODE} cvt.u64.u32 %d8, %r20; add.s64 %d9, %d0, %d8; ld.global.u32 %r30, [%d9]; {OUT}",
    "a value that is stored": f"{DECODE} st.global.u32 [%d4], %r21; ret;",
    "a value stored to shared memory": f"{DECODE} st.shared.u32 [%r42], %r22; ret;",
    "a branch": f"{DECODE} setp.lt.u32 %p2, %r20, 7; @%p2 bra E; mov.u32 %r30, 1; {OUT} E: ret;",
    "an exit": f"{DECODE} setp.lt.u32 %p2, %r20, 7; @%p2 exit; mov.u32 %r30, 1; {OUT}",
    "the guard of a store": f"{DECODE} setp.lt.u32 %p2, %r20, 7; @%p2 st.global.u32 [%d4], 1; ret;",
    "an atomic": f"{DECODE} atom.global.add.u32 %r30, [%d4], %r20; ret;",
    "a select that chooses it": f"{DECODE} selp.b32 %r30, 5, %r20, %p1; {OUT}",
    "a select by it": f"{DECODE} setp.lt.u32 %p2, %r20, 7; selp.b32 %r30, 5, 6, %p2; {OUT}",
    "after a block": f"{DECODE} bar.sync 0; add.u32 %r30, %r20, 1; bar.sync 0; {OUT}",
    "after a shuffle": f"{DECODE} shfl.sync.idx.b32 %r30, %r20, 0, 0x1f, 0xffffffff; {OUT}",
    "after a vote": f"{DECODE} setp.lt.u32 %p2, %r20, 7; vote.sync.ballot.b32 %r30, %p2, 0xffffffff; {OUT}",
    "after a conversion": (
        f"{DECODE} cvt.rn.f32.u32 %f1, %r20; mul.f32 %f1, %f1, 0f40000000; cvt.rzi.u32.f32 %r30, %f1; {OUT}"
    ),
    "after a product": f"{DECODE} mad.lo.u32 %r30, %r20, 3, %r0; {OUT}",
    "after a division": f"{DECODE} div.u32 %r30, %r20, 3; {OUT}",
    "in half of a wide register": f"{DECODE} mov.b64 %d8, {{%r20, %r0}}; st.global.u64 [%d1], %d8; ret;",
    "a guarded move": f"{DECODE} mov.u32 %r30, 1; setp.lt.u32 %p2, %r0, 40; @%p2 mov.u32 %r30, %r20; {OUT}",
    "spilled and loaded": f"{DECODE} st.local.u32 [%d20+8], %r20; bar.sync 0; ld.local.u32 %r30, [%d20+8]; {OUT}",
    "one coordinate alone": (
        f"clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r20, %q1; mov.u32 %r30, %r20; {OUT}"
    ),
    "the number of a barrier's bytes": f"{DECODE} @%p30 mbarrier.expect_tx.shared::cta.b64 [%r40], %r20; ret;",
    "a shuffle from a marked lane": f"""mov.u32 %r20, 4; setp.eq.u32 %p2, %r0, 3;
        @%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r20, %q1;
        shfl.sync.idx.b32 %r30, %r20, 3, 0x1f, 0xffffffff; {OUT}""",
    "a loop": f"""{DECODE} mov.u32 %r31, 0; L: add.u32 %r20, %r20, %r31; add.u32 %r31, %r31, 1;
        setp.lt.u32 %p2, %r31, 4; @%p2 bra L; mov.u32 %r30, %r20; {OUT}""",
}
SILENT = {
    "nothing is done with it": f"{DECODE} mov.u32 %r30, 1; {OUT}",
    "it is computed with and thrown away": (
        f"{DECODE} mul.lo.u32 %r20, %r20, 128; div.u32 %r21, %r20, 3; mov.u32 %r30, 1; {OUT}"
    ),
    "a select that chooses the other side": f"{DECODE} selp.b32 %r30, %r20, 5, %p1; {OUT}",
    "a guarded store that does not happen": f"{DECODE} @%p1 st.global.u32 [%d4], %r20; ret;",
    "a branch around its use": f"{DECODE} @!%p1 bra E; mov.u32 %r30, %r20; {OUT} E: ret;",
    "a predicate that says no beside it": (
        f"{DECODE} setp.lt.u32 %p2, %r20, 7; and.pred %p3, %p1, %p2; @%p3 bra E; mov.u32 %r30, 1; {OUT} E: ret;"
    ),
    "a comparison joined with one that says no": (
        f"{DECODE} setp.lt.and.u32 %p2, %r20, 7, %p1; @%p2 bra E; mov.u32 %r30, 1; {OUT} E: ret;"
    ),
    "masked to zero": f"{DECODE} selp.b32 %r31, -1, 0, %p1; and.b32 %r30, %r20, %r31; {OUT}",
    "times zero": f"{DECODE} selp.b32 %r31, 1, 0, %p1; mul.lo.u32 %r30, %r20, %r31; {OUT}",
    "written over": f"{DECODE} bar.sync 0; mov.u32 %r20, 3; bar.sync 0; mov.u32 %r30, %r20; {OUT}",
    "written over under a guard that holds": (
        f"{DECODE} not.pred %p2, %p1; @%p2 mov.u32 %r20, 3; bar.sync 0; mov.u32 %r30, %r20; {OUT}"
    ),
    "a shuffle from another lane": f"""mov.u32 %r20, 4; setp.eq.u32 %p2, %r0, 3;
        @%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r20, %q1;
        shfl.sync.idx.b32 %r30, %r20, 4, 0x1f, 0xffffffff; {OUT}""",
    "spilled and loaded from elsewhere": (
        f"{DECODE} st.local.u32 [%d20+8], %r20; st.local.u32 [%d20], 1; ld.local.u32 %r30, [%d20]; {OUT}"
    ),
    "spilled over": f"{DECODE} st.local.u32 [%d20+8], %r20; st.local.u32 [%d20+8], 1; bar.sync 0; "
    f"ld.local.u32 %r30, [%d20+8]; {OUT}",
    "a prefetch": f"{DECODE} cvt.u64.u32 %d8, %r20; add.s64 %d9, %d0, %d8; prefetch.global.L2 [%d9]; ret;",
}


@pytest.mark.parametrize("name", list(USES))
def test_a_use_is_named(name):
    with pytest.raises(KernelFault) as caught:
        execute(USES[name])
    assert caught.value.code == "EMU_CLC_FAILED_COORDINATE"
    assert "get_first_ctaid" in str(caught.value.finding.history[0])


@pytest.mark.parametrize("name", list(SILENT))
def test_what_is_thrown_away_is_silent(name):
    execute(SILENT[name])


def test_the_report_names_the_lane_that_uses_it():
    with pytest.raises(KernelFault) as caught:
        execute(f"{DECODE} mov.u32 %r30, 1; setp.eq.u32 %p2, %r0, 37; @%p2 mov.u32 %r30, %r20; bar.sync 0; {OUT}")
    place = caught.value.finding.place
    assert (place.warp, place.lane, place.instruction) == (1, 5, "st.global.u32")


def test_marks_do_not_outlive_their_cluster():
    body = f"{DECODE} bar.sync 0; mov.u32 %r30, %r23; bar.sync 0; mov.u32 %r23, %r20; {OUT}"
    text = module(ASK + body, declarations=DECLARATIONS, registers=REGISTERS, target="sm_100a")
    shape = launch(64, 400, dynamic=200_000).model_copy(update={"target": "sm_100a"})
    assert run(text, shape, clc="decline:1").clusters == 400


def test_a_kernel_without_queries_has_nothing_to_follow():
    text = module(OUT.replace("%r30", "%r3"))
    assert load_program(text).suspects == frozenset()
