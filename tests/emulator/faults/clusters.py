"""Faults of clusters: peers that have not started or are gone, remote memory and remote barriers."""

from __future__ import annotations

from tests.emulator.faults.accesses import BOX, MEET, PEER
from tests.emulator.faults.mbarriers import ADDRESSES, INIT, SHARED, WAIT
from tests.emulator.faults.model import Fault, Kernel, Text, kernel
from tests.emulator.kernels import launch

PAIR = launch(64, 2, 2)
# Each CTA sends its words into the other's stage, whose barrier counts the bytes.
SEND = f"""{ADDRESSES} {INIT} {MEET} mov.u32 %s6, %cluster_ctarank; xor.b32 %s6, %s6, 1;
    mapa.shared::cluster.u32 %s7, %s3, %s6; mapa.shared::cluster.u32 %s8, %s1, %s6;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%s7], %r3, [%s8];
    {WAIT} ld.shared.u32 %r9, [%s3]; st.global.u32 [%d4], %r9; ret;"""
# Each CTA writes into the other's stage and arrives on its barrier.
PUSH = f"""{ADDRESSES} @%p0 mbarrier.init.shared::cta.b64 [%s1], 64; fence.mbarrier_init.release.cluster; bar.sync 0;
    {MEET} mov.u32 %s6, %cluster_ctarank; xor.b32 %s6, %s6, 1;
    mapa.shared::cluster.u32 %s7, %s3, %s6; mapa.shared::cluster.u32 %s8, %s1, %s6;
    st.shared::cluster.u32 [%s7], %r3; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%s8];
    W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%s1], 0; @!%p1 bra W;
    ld.shared.u32 %r9, [%s3]; st.global.u32 [%d4], %r9; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    ret;"""
# The first CTA loads in bulk for both.
MULTICAST = f"""{ADDRESSES} {INIT} {MEET} mov.u32 %s6, %cluster_ctarank; setp.eq.u32 %p3, %s6, 0; mov.b16 %h1, 3;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256; and.pred %p4, %p3, %p0;
    @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%s0], [%d0], 256, [%s1], %h1;
    {WAIT} ld.shared.u32 %r9, [%s3]; st.global.u32 [%d4], %r9; ret;"""


def send() -> Kernel:
    return kernel(SEND, PAIR, declarations=SHARED)


def push() -> Kernel:
    return kernel(PUSH, PAIR, declarations=SHARED)


def multicast() -> Kernel:
    return kernel(MULTICAST, PAIR, declarations=SHARED)


FAULTS = [
    Fault(
        "a peer's memory read before the cluster has met",
        "EMU_PEER_NOT_STARTED",
        kernel(
            f"{PEER} {MEET} ld.shared::cluster.u32 %r9, [%s3]; barrier.cluster.arrive; barrier.cluster.wait; ret;",
            PAIR,
            declarations=BOX,
        ),
        Text(MEET, ""),
    ),
    Fault(
        "a peer's memory read while the peer may exit",
        "EMU_PEER_EXITED",
        kernel(
            f"{PEER} {MEET} ld.shared::cluster.u32 %r9, [%s3]; barrier.cluster.arrive; barrier.cluster.wait; ret;",
            PAIR,
            declarations=BOX,
        ),
        Text("barrier.cluster.arrive; barrier.cluster.wait;", ""),
    ),
    Fault(
        "the rank of a peer that the cluster does not have",
        "EMU_NO_SUCH_PEER",
        push(),
        Text("xor.b32 %s6, %s6, 1;", "xor.b32 %s6, %s6, 2;"),
    ),
    Fault(
        "a cluster barrier that one CTA leaves out",
        "EMU_DEADLOCK",
        kernel(f"{MEET} setp.eq.u32 %p1, %r1, 1; @%p1 bra E; {MEET} bra F; E: {MEET} F: ret;", PAIR),
        Text(f"E: {MEET}", "E: bar.sync 1, 96;"),
    ),
    Fault(
        "a cluster barrier waited for without an arrival",
        "EMU_BARRIER",
        kernel(f"{MEET} ret;", PAIR),
        Text("barrier.cluster.arrive.aligned;", ""),
    ),
    Fault(
        "a cluster barrier arrived at twice",
        "EMU_BARRIER",
        kernel(f"{MEET} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;", PAIR),
        Text("barrier.cluster.wait.aligned; barrier", "barrier"),
    ),
    Fault(
        "a relaxed cluster barrier between a write and a peer's read",
        "EMU_DATA_RACE",
        kernel(
            f"{PEER} {MEET} ld.shared::cluster.u32 %r9, [%s3]; barrier.cluster.arrive; barrier.cluster.wait; ret;",
            PAIR,
            declarations=BOX,
        ),
        Text("barrier.cluster.arrive.aligned;", "barrier.cluster.arrive.relaxed.aligned;"),
    ),
    Fault(
        "bytes sent to a peer that expects fewer",
        "EMU_DATA_RACE",
        send(),
        Text("_, [%s1], 256;", "_, [%s1], 252;"),
    ),
    Fault(
        "bytes sent to a peer and counted by a barrier of the sender",
        "EMU_BARRIER_OTHER_CTA",
        send(),
        Text("[%s7], %r3, [%s8];", "[%s7], %r3, [%s1];"),
    ),
    Fault(
        "a wait on the barrier of a peer",
        "EMU_BARRIER_OTHER_CTA",
        push(),
        Text("shared::cta.b64 %p1, [%s1], 0;", "shared::cta.b64 %p1, [%s8], 0;"),
    ),
    Fault(
        "a remote arrival whose release does not leave its CTA",
        "EMU_DATA_RACE",
        push(),
        Text("mbarrier.arrive.release.cluster.shared::cluster", "mbarrier.arrive.shared::cluster"),
    ),
    Fault(
        "a remote arrival that releases nothing",
        "EMU_DATA_RACE",
        push(),
        Text("mbarrier.arrive.release.cluster", "mbarrier.arrive.relaxed.cluster"),
    ),
    Fault(
        "a wait for remote arrivals that acquires within its CTA alone",
        "EMU_DATA_RACE",
        push(),
        Text("try_wait.parity.acquire.cluster", "try_wait.parity"),
    ),
    Fault(
        "a peer's barrier used before its initialisation is released to the cluster",
        "EMU_BARRIER_INIT_UNORDERED",
        kernel(
            PUSH.replace(MEET, "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;", 1),
            PAIR,
            declarations=SHARED,
        ),
        Text("fence.mbarrier_init.release.cluster;", ""),
    ),
    Fault(
        "remote words that lie a sector apart",
        "EMU_DSMEM_UNCOALESCED",
        kernel(
            f"""{ADDRESSES} shl.b32 %s5, %r0, 2; add.s32 %s5, %s0, %s5; st.shared.u32 [%s5], %r3; {MEET}
            mov.u32 %s6, %cluster_ctarank; xor.b32 %s6, %s6, 1; mapa.shared::cluster.u32 %s7, %s5, %s6;
            ld.shared::cluster.u32 %r9, [%s7]; barrier.cluster.arrive; barrier.cluster.wait; ret;""",
            launch(16, 2, 2),
            declarations=SHARED,
        ),
        Text("shl.b32 %s5, %r0, 2;", "shl.b32 %s5, %r0, 5;"),
    ),
    Fault(
        "a multicast to a CTA that has not armed its barrier",
        "EMU_DEADLOCK",
        multicast(),
        Text(
            "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256; and.pred %p4, %p3, %p0;",
            "and.pred %p4, %p3, %p0; @%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;",
        ),
    ),
    Fault(
        "a multicast mask without one of the receivers",
        "EMU_DEADLOCK",
        multicast(),
        Text("mov.b16 %h1, 3;", "mov.b16 %h1, 1;"),
    ),
    Fault(
        "a multicast mask with a CTA that the cluster does not have",
        "EMU_NO_SUCH_PEER",
        multicast(),
        Text("mov.b16 %h1, 3;", "mov.b16 %h1, 7;"),
    ),
    Fault(
        "a multicast before the cluster has met",
        "EMU_PEER_NOT_STARTED",
        multicast(),
        Text(MEET, ""),
    ),
]
