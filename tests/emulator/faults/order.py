"""Data races: what is handed from one thread to another without the barrier, the scope or the fence that it needs."""

from __future__ import annotations

from tests.emulator.faults.accesses import BOX, MINE
from tests.emulator.faults.model import Fault, Kernel, Text, kernel
from tests.emulator.kernels import launch

# Thread 0 of CTA 0 writes data and a flag; thread 0 of CTA 1 waits for the flag and reads the data.
FIRST = "setp.ne.u32 %p1, %r0, 0; @%p1 ret; setp.ne.u32 %p2, %r1, 0; @%p2 bra READER;"
SPIN = "READER: L: ld.{0}.global.u32 %r9, [%d1]; setp.eq.u32 %p3, %r9, 0; @%p3 bra L;"
MESSAGE = (
    f"{FIRST} st.global.u32 [%d1+128], 7; st.release.gpu.global.u32 [%d1], 1; ret;"
    f"{SPIN.format('acquire.gpu')} ld.global.u32 %r10, [%d1+128]; st.global.u32 [%d1+192], %r10; ret;"
)
FENCED = (
    f"{FIRST} st.global.u32 [%d1+128], 7; fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%d1], 1; ret;"
    f"{SPIN.format('relaxed.gpu')} membar.gl; ld.global.u32 %r10, [%d1+128]; ret;"
)
EXCHANGE = (
    f"{MINE} xor.b32 %s3, %s1, 128; st.shared.u32 [%s1], %r3; bar.sync 0; ld.shared.u32 %r9, [%s3];"
    "bar.sync 1; st.shared.u32 [%s1], %r9; ret;"
)


def exchange() -> Kernel:
    """Two warps swap words through shared memory, twice."""
    return kernel(EXCHANGE, declarations=BOX)


def lanes() -> Kernel:
    """Lanes of one warp swap words through shared memory, and write their own again."""
    return kernel(
        f"{MINE} xor.b32 %s3, %s1, 4; st.shared.u32 [%s1], %r3; bar.warp.sync -1; ld.shared.u32 %r9, [%s3];"
        "bar.warp.sync 0xffffffff; st.shared.u32 [%s1], %r9; ret;",
        launch(32),
        declarations=BOX,
    )


FAULTS = [
    Fault(
        "lanes of one warp that store different values to one place at once",
        "EMU_STORE_COLLISION",
        kernel("mov.u32 %r9, 7; st.global.u32 [%d1], %r9; ret;", launch(32)),
        Text("st.global.u32 [%d1], %r9;", "st.global.u32 [%d1], %r0;"),
    ),
    Fault(
        "shared memory written by two warps with no barrier between",
        "EMU_DATA_RACE",
        kernel(
            f"{MINE} xor.b32 %s3, %s1, 128; st.shared.u32 [%s3], %r0; bar.sync 0; st.shared.u32 [%s1], %r3; ret;",
            declarations=BOX,
        ),
        Text("bar.sync 0;", ""),
    ),
    Fault(
        "shared memory read by the next warp with no barrier between",
        "EMU_DATA_RACE",
        exchange(),
        Text("bar.sync 0;", ""),
    ),
    Fault(
        "shared memory written again while the next warp may still read it",
        "EMU_DATA_RACE",
        exchange(),
        Text("bar.sync 1;", ""),
    ),
    Fault(
        "lanes of one warp hand on words with no barrier of the warp",
        "EMU_DATA_RACE",
        lanes(),
        Text("bar.warp.sync -1;", ""),
    ),
    Fault(
        "a lane writes what its neighbour may still read",
        "EMU_DATA_RACE",
        lanes(),
        Text("bar.warp.sync 0xffffffff;", ""),
    ),
    Fault(
        "one lane stores in bulk what the others of its warp have written, before they meet",
        "EMU_DATA_RACE",
        kernel(
            f"{MINE} cvt.u64.u32 %d8, %r0; st.shared.u32 [%s1], %r0; fence.proxy.async.shared::cta; bar.warp.sync -1;"
            "setp.eq.u32 %p1, %r0, 0; @!%p1 bra E; cp.async.bulk.global.shared::cta.bulk_group [%d1], [%s1], 128;"
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E: ret;",
            launch(32),
            declarations=BOX,
        ),
        Text("bar.warp.sync -1;", ""),
    ),
    Fault(
        "one word written by two CTAs without atomicity",
        "EMU_DATA_RACE",
        kernel(
            "setp.eq.u32 %p1, %r3, 0; @%p1 st.relaxed.gpu.global.u32 [%d1], 7; setp.eq.u32 %p2, %r3, 64;"
            "@%p2 st.relaxed.gpu.global.u32 [%d1], 8; ret;",
            launch(64, 2),
        ),
        Text("@%p2 st.relaxed.gpu.global.u32", "@%p2 st.global.u32"),
    ),
    Fault(
        "a flag that is stored without release",
        "EMU_DATA_RACE",
        kernel(MESSAGE, launch(64, 2)),
        Text("st.release.gpu", "st.relaxed.gpu"),
    ),
    Fault(
        "a flag that is polled without acquire",
        "EMU_DATA_RACE",
        kernel(MESSAGE, launch(64, 2)),
        Text("ld.acquire.gpu", "ld.relaxed.gpu"),
    ),
    Fault(
        "a flag between CTAs that is released to its own CTA alone",
        "EMU_DATA_RACE",
        kernel(MESSAGE, launch(64, 2)),
        Text("st.release.gpu", "st.release.cta"),
    ),
    Fault(
        "a relaxed flag without the fence before it",
        "EMU_DATA_RACE",
        kernel(FENCED, launch(64, 2)),
        Text("fence.acq_rel.gpu;", ""),
    ),
    Fault(
        "a relaxed poll without the fence after it",
        "EMU_DATA_RACE",
        kernel(FENCED, launch(64, 2)),
        Text("membar.gl;", ""),
    ),
]
