"""Faults of mbarriers: their life, their counts, their phases, the bytes that they expect."""

from __future__ import annotations

from tests.emulator.faults.model import Fault, Kernel, Text, kernel

SHARED = """
.shared .align 128 .b8 stage[1024];
.shared .align 8 .b64 bar;
.shared .align 8 .b64 spare;
"""
ADDRESSES = """
    .reg .b32 %s<24>; .reg .b64 %q<8>;
    mov.u32 %s0, stage; mov.u32 %s1, bar; shl.b32 %s2, %r0, 2; add.s32 %s3, %s0, %s2; setp.eq.u32 %p0, %r0, 0;
"""
INIT = "@%p0 mbarrier.init.shared::cta.b64 [%s1], 1; fence.proxy.async.shared::cta; bar.sync 0;"
LOAD = """
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;
    @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s0], [%d0], 256, [%s1];
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s1], 0; @!%p1 bra W;"
READ = "ld.shared.u32 %r9, [%s3]; st.global.u32 [%d4], %r9; ret;"
# Warp 0 fills a stage %r20 times, warp 1 empties it: two barriers, as every ring of stages has them.
RING = """
    mov.u32 %s4, spare; mov.u32 %r10, 0; setp.ge.u32 %p2, %r0, 32;
    @%p0 mbarrier.init.shared::cta.b64 [%s1], 32; @%p0 mbarrier.init.shared::cta.b64 [%s4], 32; bar.sync 0;
    and.b32 %s5, %r0, 31; shl.b32 %s5, %s5, 2; add.s32 %s3, %s0, %s5; @%p2 bra EMPTY;
    FILL: and.b32 %r11, %r10, 1; xor.b32 %r12, %r11, 1;
    A: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%s4], %r12; @!%p3 bra A;
    st.shared.u32 [%s3], %r10; mbarrier.arrive.shared::cta.b64 _, [%s1];
    add.s32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, 5; @%p4 bra FILL; ret;
    EMPTY: and.b32 %r11, %r10, 1;
    B: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%s1], %r11; @!%p3 bra B;
    ld.shared.u32 %r9, [%s3]; mbarrier.arrive.shared::cta.b64 _, [%s4];
    add.s32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, 5; @%p4 bra EMPTY; ret;
"""


def load() -> Kernel:
    """One thread loads 256 bytes in bulk; the CTA waits for them and writes them out."""
    return kernel(ADDRESSES + INIT + LOAD + WAIT + READ, declarations=SHARED)


def barrier(body: str) -> Kernel:
    return kernel(ADDRESSES + body, declarations=SHARED)


def ring() -> Kernel:
    return kernel(ADDRESSES + RING, declarations=SHARED)


FAULTS = [
    Fault(
        "a barrier that was never initialised",
        "EMU_BARRIER_UNINITIALIZED",
        load(),
        Text("@%p0 mbarrier.init.shared::cta.b64 [%s1], 1;", ""),
    ),
    Fault(
        "a barrier used before anything orders its initialisation",
        "EMU_BARRIER_INIT_UNORDERED",
        barrier(f"{INIT} mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s1], 1; ret;"),
        Text("bar.sync 0;", ""),
    ),
    Fault(
        "a barrier initialised for no arrival",
        "EMU_BARRIER_COUNT",
        load(),
        Text("mbarrier.init.shared::cta.b64 [%s1], 1;", "mbarrier.init.shared::cta.b64 [%s1], 0;"),
    ),
    Fault(
        "a barrier off its alignment",
        "EMU_BARRIER_MISALIGNED",
        barrier("@%p0 mbarrier.init.shared::cta.b64 [%s1], 1; ret;"),
        Text("b64 [%s1], 1;", "b64 [%s1+4], 1;"),
    ),
    Fault(
        "a barrier initialised twice",
        "EMU_BARRIER_REINIT",
        barrier(
            "@%p0 mbarrier.init.shared::cta.b64 [%s1], 1; @%p0 mbarrier.inval.shared::cta.b64 [%s1];"
            "@%p0 mbarrier.init.shared::cta.b64 [%s1], 2; ret;"
        ),
        Text("@%p0 mbarrier.inval.shared::cta.b64 [%s1];", ""),
    ),
    Fault(
        "a barrier invalidated while bytes are on their way to it",
        "EMU_BARRIER_IN_USE",
        barrier(f"{INIT} {LOAD} {WAIT} bar.sync 0; @%p0 mbarrier.inval.shared::cta.b64 [%s1]; ret;"),
        Text(WAIT, ""),
    ),
    Fault(
        "data written over a live barrier",
        "EMU_BARRIER_OVERWRITTEN",
        barrier(
            "@%p0 mbarrier.init.shared::cta.b64 [%s1], 1; @%p0 mbarrier.inval.shared::cta.b64 [%s1];"
            "@%p0 st.shared.u64 [%s1], 0; ret;"
        ),
        Text("@%p0 mbarrier.inval.shared::cta.b64 [%s1];", ""),
    ),
    Fault(
        "one arrival more than the phase has",
        "EMU_BARRIER_OVERRUN",
        barrier(f"{INIT} @%p0 mbarrier.arrive.shared::cta.b64 _, [%s1], 1; ret;"),
        Text("_, [%s1], 1;", "_, [%s1], 2;"),
    ),
    Fault(
        "an arrival that must not complete the phase and does",
        "EMU_BARRIER_NO_COMPLETE",
        barrier(
            "@%p0 mbarrier.init.shared::cta.b64 [%s1], 2; bar.sync 0;"
            "@%p0 mbarrier.arrive.noComplete.shared::cta.b64 %q1, [%s1], 1; ret;"
        ),
        Text("[%s1], 2;", "[%s1], 1;"),
    ),
    Fault(
        "more bytes expected than a phase can count",
        "EMU_BARRIER_TX_RANGE",
        barrier(
            f"{INIT} mov.u32 %s6, 1048575; @%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s1], %s6;"
            "@%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%s1], %s6; ret;"
        ),
        Text("mov.u32 %s6, 1048575;", "mov.u32 %s6, 1048576;"),
    ),
    Fault(
        "a wait that is two phases behind",
        "EMU_BARRIER_PHASE_BEHIND",
        barrier(
            f"{INIT} @!%p0 bra E; mbarrier.arrive.shared::cta.b64 %q1, [%s1];"
            "A: mbarrier.try_wait.shared::cta.b64 %p1, [%s1], %q1; @!%p1 bra A;"
            "mbarrier.arrive.shared::cta.b64 %q2, [%s1];"
            "B: mbarrier.try_wait.shared::cta.b64 %p1, [%s1], %q2; @!%p1 bra B; E: ret;"
        ),
        Text("%p1, [%s1], %q2;", "%p1, [%s1], %q1;"),
    ),
    Fault(
        "more bytes expected than the copy brings",
        "EMU_DEADLOCK",
        load(),
        Text("_, [%s1], 256;", "_, [%s1], 272;"),
    ),
    Fault(
        "fewer bytes expected than the copy brings",
        "EMU_DEADLOCK",
        load(),
        Text("_, [%s1], 256;", "_, [%s1], 240;"),
    ),
    Fault(
        "a copy whose bytes nobody expects",
        "EMU_DATA_RACE",
        load(),
        Text("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;", "mbarrier.arrive.shared::cta.b64 _, [%s1];"),
    ),
    Fault(
        "a stage filled again without a wait for its reader",
        "EMU_BARRIER_UNOBSERVED",
        ring(),
        Text("A: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%s4], %r12; @!%p3 bra A;", ""),
    ),
    Fault(
        "a stage read before it is full",
        "EMU_DATA_RACE",
        ring(),
        Text("B: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%s1], %r11; @!%p3 bra B;", ""),
    ),
    Fault(
        "a ring whose writer starts at the wrong parity",
        "EMU_DEADLOCK",
        ring(),
        Text("xor.b32 %r12, %r11, 1;", "xor.b32 %r12, %r11, 0;"),
    ),
    Fault(
        "a stage that is never given back",
        "EMU_DEADLOCK",
        ring(),
        Text("mbarrier.arrive.shared::cta.b64 _, [%s4];", ""),
    ),
    Fault(
        "a barrier that expects an arrival too many",
        "EMU_DEADLOCK",
        ring(),
        Text("mbarrier.init.shared::cta.b64 [%s4], 32;", "mbarrier.init.shared::cta.b64 [%s4], 33;"),
    ),
    Fault(
        "a barrier that expects an arrival too few",
        "EMU_BARRIER_UNOBSERVED",
        ring(),
        Text("mbarrier.init.shared::cta.b64 [%s4], 32;", "mbarrier.init.shared::cta.b64 [%s4], 31;"),
    ),
]
