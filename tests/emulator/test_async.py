"""mbarriers, bulk and tensor copies in small kernels, under every policy; faults beside their silent twins."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault
from advisor.records.launch import ScratchParam
from tests.emulator.kernels import REGISTERS, THREAD, execute, launch, results

POLICIES = ["eager", "lazy", "random", "adversarial"]
SHARED = """
.shared .align 128 .b8 stage[1024];
.shared .align 128 .b8 image[128];
.shared .align 8 .b64 bar;
"""
ADDRESSES = """
    .reg .b32 %s<16>; .reg .b64 %q<8>;
    mov.u32 %s0, stage; mov.u32 %s1, bar; shl.b32 %s2, %r0, 2; add.s32 %s3, %s0, %s2; setp.eq.u32 %p0, %r0, 0;
"""
INIT = "@%p0 mbarrier.init.shared::cta.b64 [%s1], 1; fence.proxy.async.shared::cta; bar.sync 0;"
LOAD = """
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;
    @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s0], [%d0], 256, [%s1];
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s1], 0; @!%p1 bra W;"
READ = "ld.shared.u32 %r9, [%s3]; st.global.u32 [%d4], %r9; ret;"
WRITE = "st.shared.u32 [%s3], %r3;"
STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d1], [%s0], 256; @%p0 cp.async.bulk.commit_group;"
INDEX = np.arange(64)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("wait", [WAIT, WAIT.replace("try_wait", "test_wait")])
def test_a_bulk_load_signals_its_mbarrier(policy, wait):
    found = results(ADDRESSES + INIT + LOAD + wait + READ, declarations=SHARED, async_policy=policy)
    assert (found == INDEX).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_lanes_of_one_warp_wait_for_those_that_wait_for_a_copy(policy):
    body = f"""{ADDRESSES} {INIT} {LOAD} and.b32 %s12, %r0, 1; setp.eq.u32 %p6, %s12, 1; @%p6 bra ODD;
        shfl.sync.bfly.b32 %r9, %r3, 2, 0x1f, 0xffffffff; st.global.u32 [%d4], %r9; ret;
        ODD: {WAIT} ret;"""
    assert (results(body, declarations=SHARED, async_policy=policy) == np.where(INDEX % 2 == 0, INDEX ^ 2, 0)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_wait_by_the_state_of_an_arrival(policy):
    body = f"""{ADDRESSES} @%p0 mbarrier.init.shared::cta.b64 [%s1], 64; bar.sync 0; {WRITE}
        mbarrier.arrive.shared::cta.b64 %q1, [%s1]; mbarrier.pending_count.b64 %s5, %q1;
        W: mbarrier.try_wait.shared::cta.b64 %p1, [%s1], %q1; @!%p1 bra W;
        xor.b32 %s4, %s3, 128; ld.shared.u32 %r9, [%s4]; st.global.u32 [%d4], %r9; ret;"""
    assert (results(body, declarations=SHARED, async_policy=policy) == INDEX ^ 32).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bulk_store_writes_what_was_there_when_it_was_issued(policy):
    body = f"""{ADDRESSES} {WRITE} fence.proxy.async.shared::cta; bar.sync 0; {STORE}
        @%p0 cp.async.bulk.wait_group.read 0; bar.sync 0; st.shared.u32 [%s3], 7;
        @%p0 cp.async.bulk.wait_group 0; ret;"""
    assert (results(body, declarations=SHARED, async_policy=policy) == INDEX).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_bulk_stores_of_two_ctas_to_one_place_race_and_reductions_do_not(policy):
    body = f"""{ADDRESSES} {WRITE} fence.proxy.async.shared::cta; bar.sync 0; {STORE}
        @%p0 cp.async.bulk.wait_group 0; ret;"""
    with pytest.raises(KernelFault) as fault:
        results(body, launch(64, 2), declarations=SHARED, async_policy=policy)
    assert fault.value.code == "EMU_DATA_RACE"
    added = body.replace("cp.async.bulk.global", "cp.reduce.async.bulk.global").replace(
        "bulk_group [", "bulk_group.add.u32 ["
    )
    found = results(added, launch(64, 2), declarations=SHARED, async_policy=policy)
    assert (found[:64] == 2 * INDEX + 64).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bulk_copy_to_every_cta_of_a_cluster(policy):
    body = f"""{ADDRESSES} {INIT} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        mov.u32 %s6, %cluster_ctarank; setp.eq.u32 %p3, %s6, 0; mov.b16 %h1, 3;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;
        and.pred %p4, %p3, %p0;
        @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [%s0], [%d0], 256, [%s1], %h1;
        {WAIT} ld.shared.u32 %r9, [%s3]; st.global.u32 [%d4], %r9;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""
    found = results(body, launch(64, 2, 2), declarations=SHARED, async_policy=policy)
    assert (found == np.tile(INDEX, 2)).all()


PREFETCH = "cp.async.bulk.prefetch.L2.global"
BYTES = 256  # of each buffer


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bulk_prefetch_changes_nothing(policy):
    """All of a buffer, its last 16 bytes, nothing at its end, and with a size in a register and a cache policy."""
    body = f"""{ADDRESSES} mov.u32 %s4, {BYTES}; createpolicy.fractional.L2::evict_first.b64 %q1;
        @%p0 {PREFETCH} [%d0], {BYTES}; @%p0 {PREFETCH} [%d0+{BYTES - 16}], 16; @%p0 {PREFETCH} [%d0+{BYTES}], 0;
        @%p0 {PREFETCH}.L2::cache_hint [%d0], %s4, %q1; ld.global.u32 %r9, [%d3]; st.global.u32 [%d4], %r9; ret;"""
    outcome = execute(body, declarations=SHARED, async_policy=policy)
    assert outcome.warnings == ()
    assert (outcome.typed("OUT") == INDEX).all()


WRONG_PREFETCHES = {
    "[%d0+8], 16": ("EMU_MISALIGNED", "both are multiples of 16"),
    "[%d0+8], 0": ("EMU_MISALIGNED", "both are multiples of 16"),
    "[%d0], 24": ("EMU_MISALIGNED", "a bulk prefetch of 24 bytes"),
    f"[%d0+{BYTES}], 16": ("EMU_OUT_OF_BOUNDS", "16 bytes past its end"),
    f"[%d0+16], {BYTES}": ("EMU_OUT_OF_BOUNDS", "16 bytes past its end"),
    "[%d0-16], 32": ("EMU_OUT_OF_BOUNDS", "no address of global memory"),  # it ends in the first buffer
    "[%d1-16], 32": ("EMU_OUT_OF_BOUNDS", "bytes past its end"),  # it begins in the gap before a buffer
    "[%d0], 8192": ("EMU_OUT_OF_BOUNDS", f"{8192 - BYTES} bytes past its end"),  # it ends in the next buffer
    "[%d9], 16": ("EMU_OUT_OF_BOUNDS", "null pointer"),
    "[%d9-16], 16": ("EMU_OUT_OF_BOUNDS", "a bulk prefetch of 16 bytes"),  # the last of all addresses
    "[%q0], 16": ("EMU_OUT_OF_BOUNDS", "no address of global memory"),
}


@pytest.mark.parametrize("operands", list(WRONG_PREFETCHES))
def test_a_wrong_bulk_prefetch_is_reported_for_lanes_that_make_it(operands):
    """One lane makes it. Where no lane does, under a guard or behind a branch, nobody looks at its operands."""
    code, words = WRONG_PREFETCHES[operands]
    line = f"{PREFETCH} {operands};"
    begin = f"{ADDRESSES} mov.u64 %d9, 0; cvt.u64.u32 %q0, %s0; cvta.shared.u64 %q0, %q0; setp.eq.u32 %p2, %r0, NEVER;"
    with pytest.raises(KernelFault) as caught:
        execute(begin.replace("NEVER", "37") + f"@%p2 {line} ret;", declarations=SHARED)
    assert caught.value.code == code
    assert words in str(caught.value)
    place = caught.value.finding.place
    assert (place.warp, place.lane, place.instruction) == (1, 5, PREFETCH)
    unmade = begin.replace("NEVER", "64")
    for body in (f"@%p2 {line} ret;", f"@!%p2 bra END; {line} END: ret;"):
        assert execute(unmade + body, declarations=SHARED).warnings == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bulk_prefetch_reads_no_value(policy):
    """It races with no write, and may name bytes that nobody has written yet; a bulk load at its place does neither."""
    body = f"{ADDRESSES} setp.eq.u32 %p2, %r0, 32; @%p2 {PREFETCH} [%d1], {BYTES}; st.global.u32 [%d4], %r3; ret;"
    found = results(body, launch(out="poison"), declarations=SHARED, async_policy=policy)
    assert (found == INDEX).all()
    load = LOAD.replace("%d0", "%d1").replace("%p0", "%p2")
    read = body.replace(f"@%p2 {PREFETCH} [%d1], {BYTES};", f"{INIT} {load}")
    with pytest.raises(KernelFault) as caught:
        results(read, declarations=SHARED, async_policy=policy)
    assert caught.value.code == "EMU_DATA_RACE"


def test_a_bulk_prefetch_leaves_bytes_unwritten():
    body = f"{ADDRESSES} @%p0 {PREFETCH} [%d1], {BYTES}; bar.sync 0; ld.global.u32 %r9, [%d4]; ret;"
    with pytest.raises(KernelFault) as caught:
        execute(body, launch(out="poison"), declarations=SHARED)
    assert caught.value.code == "EMU_UNINITIALISED"


REMOTE = f"""{ADDRESSES} {INIT} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %s6, %cluster_ctarank; xor.b32 %s6, %s6, 1; st.shared.u32 [%s3], 100; bar.sync 0;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mapa.shared::cluster.u32 %s7, %s3, %s6; mapa.shared::cluster.u32 %s8, %s1, %s6;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;
    SEND [%s7], %r3, [%s8];
    {WAIT} ld.shared.u32 %r9, [%s3]; st.global.u32 [%d4], %r9;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("send", "plus"),
    [
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32", 0),
        ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32", 100),
    ],
)
def test_stores_into_a_peer_that_its_mbarrier_counts(policy, send, plus):
    body = REMOTE.replace("SEND", send)
    found = results(body, launch(64, 4, 2), declarations=SHARED, async_policy=policy)
    assert (found == (np.arange(256) ^ 64) + plus).all()


MAKE_MAP = """
    mov.u32 %s7, image; setp.lt.u32 %p5, %r0, 32; shl.b32 %s8, %r0, 2; add.s32 %s9, %s7, %s8;
    @%p5 st.shared.b32 [%s9], 0; @!%p5 bra MADE; bar.warp.sync -1; cvt.u64.u32 %q2, %s7; ld.param.u64 %q3, [scratch];
    @!%p0 bra COPY;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%q2], %d0;
    tensormap.replace.tile.rank.shared::cta.b1024.b32 [%q2], 1;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%q2], 0, 8;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%q2], 1, 8;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%q2], 0, 16;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%q2], 1, 4;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%q2], 0, 64;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%q2], 0, 1;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%q2], 1, 1;
    tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%q2], 2;
    COPY: bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%q3], [%q2], 128;
    FENCE
    MADE: bar.sync 0; ld.param.u64 %q3, [scratch];
"""
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%q3], 128;"
TENSOR = """
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256; mov.u32 %s10, 8; mov.u32 %s11, 0;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%s0], [%q3, {%s10, %s11}], [%s1];
"""


def with_map(body: str, policy: str) -> np.ndarray:
    from advisor.emulator import run

    text = f""".version 8.6
.target sm_90a
.address_size 64
{SHARED}
.visible .entry kernel(.param .u64 in, .param .u64 out, .param .u64 scratch)
{{ {REGISTERS} {THREAD} {body} }}"""
    shape = launch()
    params = [*shape.params[:2], ScratchParam(name="scratch", bytes=128, align=128)]
    return run(text, shape.model_copy(update={"params": params}), async_policy=policy).typed("OUT")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_tensor_map_that_the_kernel_makes(policy):
    body = ADDRESSES + INIT + MAKE_MAP.replace("FENCE", ACQUIRE) + TENSOR + WAIT + READ
    found = with_map(body, policy).reshape(8, 8)
    wanted = np.zeros((8, 8), int)
    wanted[:4] = INDEX.reshape(4, 16)[:, 8:]  # rows below the tensor are filled with zeros
    assert (found == wanted).all()


PREPARED = ADDRESSES + INIT


def test_a_deadlock_tells_the_state_of_the_barrier():
    with pytest.raises(KernelFault) as caught:
        execute(PREPARED + LOAD.replace("256;", "272;") + WAIT + READ, declarations=SHARED)
    assert "tx-count 16" in str(caught.value)
