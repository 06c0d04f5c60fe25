"""Tensor copies of CTA pairs: `.cta_group::2`, the leader's barrier, and copies that signal a wrong one."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault, run
from advisor.errors import RefusedError
from advisor.records.launch import BufferInit, PtrParam, ResolvedLaunch, TensorMapParam

POLICIES = ["eager", "lazy", "random", "adversarial"]
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
HEAD = """.version 8.8
.target {target}
.address_size 64
.shared .align 128 .b8 stage[256];
.shared .align 8 .b64 bar;
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out)
{{
    .reg .pred %p<16>; .reg .b32 %r<32>; .reg .b64 %d<16>; .reg .b16 %h<4>;
    mov.b64 %d0, map; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p0, %r0, 0; mov.u32 %r2, stage; mov.u32 %r3, bar; mov.u32 %r4, %cluster_ctarank;
    and.b32 %r5, %r3, 0xFEFFFFFF; and.b32 %r6, %r4, 1; setp.eq.u32 %p1, %r6, 0; and.pred %p2, %p0, %p1;
    shl.b32 %r7, %r0, 2; add.u32 %r8, %r2, %r7; shl.b32 %r9, %r1, 6; add.u32 %r10, %r9, %r0;
    mul.wide.u32 %d2, %r10, 4; add.s64 %d3, %d1, %d2;
    @%p0 mbarrier.init.shared::cta.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
    """
COPY = "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
ARM = "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;"
ALONE = f"@%p0 {COPY}.cta_group::2 [%r2], [%d0, {{%r9}}], [%r5];"
WAIT = "@!%p1 bra DONE; W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra W; DONE:"
READ = f"{MEET} ld.shared.u32 %r11, [%r8]; st.global.u32 [%d3], %r11; {MEET} ret; }}"
MULTICAST = f"""setp.eq.u32 %p4, %r4, LEADER; and.pred %p5, %p4, %p0; mov.b16 %h1, 15;
    @%p5 {COPY}.multicast::cluster.cta_group::2 [%r2], [%d0, {{%r9}}], [BARRIER], %h1;"""


def execute(body: str, target: str = "sm_100a", policy: str = "random") -> np.ndarray:
    shape = ResolvedLaunch(
        entry="kernel",
        target=target,
        grid_blocks=(8, 1, 1),
        block=(64, 1, 1),
        cluster=(4, 1, 1),
        dynamic_smem_bytes=0,
        params=[
            TensorMapParam(
                name="map", buffer="IN", dtype="int32", rank=1, global_dim=[512], global_stride_bytes=[], box_dim=[64],
                element_strides=[1], swizzle="none", interleave="none", l2_promotion="none", oob_fill="zero",
            ),
            PtrParam(name="out", buffer="OUT"),
        ],
        buffers={
            "IN": BufferInit(shape=[512], dtype="int32", init="arange"),
            "OUT": BufferInit(shape=[512], dtype="int32", init="poison"),
        },
    )  # fmt: skip
    outcome = run(HEAD.format(target=target) + body, shape, async_policy=policy)
    assert outcome.warnings == ()
    return outcome.typed("OUT")


@pytest.mark.parametrize("policy", POLICIES)
def test_both_ctas_of_a_pair_signal_the_leaders_barrier(policy):
    assert (execute(MEET + ARM + ALONE + WAIT + READ, policy=policy) == np.arange(512)).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("target", ["sm_100f", "sm_103a"])
def test_on_every_target_that_has_pairs(policy, target):
    assert (execute(MEET + ARM + ALONE + WAIT + READ, target, policy) == np.arange(512)).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("barrier", ["%r3", "%r5"])
@pytest.mark.parametrize("leader", [0, 2])
def test_a_multicast_signals_in_every_pair_the_cta_of_the_barriers_parity(policy, barrier, leader):
    found = execute(
        MEET + ARM + MULTICAST.replace("BARRIER", barrier).replace("LEADER", str(leader)) + WAIT + READ, policy=policy
    )
    first = np.arange(64) + 64 * leader
    assert (found == np.concatenate([np.tile(first, 4), np.tile(first + 256, 4)])).all()


def test_a_multicast_of_an_odd_cta_with_its_own_barrier_signals_odd_ones():
    body = MULTICAST.replace("BARRIER", "%r3").replace("LEADER", "1")
    arm = ARM.replace("@%p2", "and.pred %p6, %p0, %p7; @%p6")
    wait = WAIT.replace("@!%p1", "@!%p7")
    found = execute("not.pred %p7, %p1;" + MEET + arm + body + wait + READ)
    assert (found[:256] == np.tile(np.arange(64, 128), 4)).all()


FAULTS = {
    "the leader expects its own bytes alone": ("EMU_DATA_RACE", ARM.replace("512", "256"), ALONE, WAIT),
    "the leader expects too many": ("EMU_DEADLOCK", ARM.replace("512", "768"), ALONE, WAIT),
    "a barrier of the peer without a pair": ("EMU_BARRIER_OTHER_CTA", ARM, ALONE.replace(".cta_group::2", ""), WAIT),
    "a barrier of another pair": ("EMU_BARRIER_OTHER_CTA", ARM, ALONE.replace("[%r5]", "[%r12]"), WAIT),
    "a wait on the leader's barrier by the other CTA": (
        "EMU_BARRIER_OTHER_CTA", ARM, ALONE, "W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra W;"
    ),
    "nobody waits": ("EMU_DATA_RACE", ARM, ALONE, ""),
}  # fmt: skip


@pytest.mark.parametrize("policy", ["lazy", "adversarial"])
@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_is_named(name, policy):
    code, arm, copy, wait = FAULTS[name]
    other_pair = "xor.b32 %r12, %r5, 0x02000000;"
    with pytest.raises(KernelFault) as caught:
        execute(other_pair + MEET + arm + copy + wait + READ, policy=policy)
    assert caught.value.code == code


def test_the_peer_must_have_started():
    with pytest.raises(KernelFault, match="EMU_PEER_NOT_STARTED"):
        execute(ARM + ALONE + WAIT + READ)


def test_a_target_without_pairs_refuses_the_form():
    with pytest.raises(RefusedError, match=r"cta_group") as caught:
        execute(MEET + ARM + ALONE + WAIT + READ, "sm_120a")
    assert caught.value.code == "NO_TCGEN05"
