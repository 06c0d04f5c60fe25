"""Faults of control flow, of the lanes of a warp and of the barriers of a CTA."""

from __future__ import annotations

from tests.emulator.faults.accesses import BOX, MINE
from tests.emulator.faults.model import Fault, Text, kernel
from tests.emulator.kernels import launch

HALVES = "setp.lt.u32 %p1, %r0, 32; @%p1 bra A;"
MATRIX = """.reg .b32 %s<6>; mov.u32 %s1, box; and.b32 %s2, %r0, 15; shl.b32 %s2, %s2, 4; add.s32 %s1, %s1, %s2;
    st.shared.v4.u32 [%s1], {%s2, %s2, %s2, %s2}; bar.warp.sync -1; """

FAULTS = [
    Fault(
        "an index that a branch table does not have",
        "EMU_BRANCH_TABLE",
        kernel("ts: .branchtargets A, A; and.b32 %r4, %r0, 1; brx.idx %r4, ts; A: ret;"),
        Text("and.b32 %r4, %r0, 1;", "and.b32 %r4, %r0, 3;"),
    ),
    Fault(
        "a loop that never ends",
        "EMU_STEP_LIMIT",
        kernel("L: setp.gt.u32 %p1, %r0, 64; @%p1 bra L; ret;", options={"step_limit": 10_000}),
        Text("setp.gt", "setp.lt"),
    ),
    Fault(
        "an assertion that fails",
        "EMU_TRAP",
        kernel("setp.lt.u32 %p1, %r0, 64; @%p1 bra E; trap; E: ret;"),
        Text("%r0, 64;", "%r0, 63;"),
    ),
    Fault(
        "a shuffle that half of the lanes it names do not reach",
        "EMU_WARP_SYNC",
        kernel(
            "setp.lt.u32 %p1, %r0, 16; @!%p1 bra E; shfl.sync.idx.b32 %r9, %r0, 0, 0x1f, 0x0000ffff; E: ret;",
            launch(32),
        ),
        Text("0x0000ffff", "0xffffffff"),
    ),
    Fault(
        "a vote by a lane that its mask leaves out",
        "EMU_WARP_SYNC",
        kernel("setp.lt.u32 %p1, %r0, 16; vote.sync.ballot.b32 %r9, %p1, 0xffffffff; ret;", launch(32)),
        Text("0xffffffff", "0x7fffffff"),
    ),
    Fault(
        "a barrier of the warp by a lane that its mask leaves out",
        "EMU_WARP_SYNC",
        kernel("bar.warp.sync 0xffffffff; ret;", launch(32)),
        Text("0xffffffff", "0x7fffffff"),
    ),
    Fault(
        "a matrix load of a warp that is not whole",
        "EMU_WARP_SYNC",
        kernel(
            f"{MATRIX} setp.lt.u32 %p1, %r0, 32; @!%p1 bra E;"
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%s1]; E: ret;",
            launch(32),
            declarations=BOX,
        ),
        Text("%r0, 32;", "%r0, 31;"),
    ),
    Fault(
        "half of the warps at another barrier",
        "EMU_DEADLOCK",
        kernel(f"{HALVES} bar.sync 0; bra B; A: bar.sync 0; B: ret;"),
        Text("A: bar.sync 0;", "A: bar.sync 1;"),
    ),
    Fault(
        "a barrier that counts a warp too many",
        "EMU_DEADLOCK",
        kernel("bar.sync 1, 64; ret;"),
        Text("bar.sync 1, 64;", "bar.sync 1, 96;"),
    ),
    Fault(
        "two thread counts at one barrier",
        "EMU_BARRIER",
        kernel(f"{HALVES} bar.sync 1, 64; ret; A: bar.sync 1, 64; ret;"),
        Text("A: bar.sync 1, 64;", "A: bar.sync 1, 96;"),
    ),
    Fault(
        "more threads at a barrier than it expects",
        "EMU_BARRIER",
        kernel("bar.arrive 1, 64; ret;"),
        Text("bar.arrive 1, 64;", "bar.arrive 1, 32;"),
    ),
    Fault(
        "a barrier number that a CTA does not have",
        "EMU_BARRIER",
        kernel("mov.u32 %r4, 15; bar.sync %r4, 64; ret;"),
        Text("mov.u32 %r4, 15;", "mov.u32 %r4, 16;"),
    ),
    Fault(
        "a store between an arrival at a barrier and its completion",
        "EMU_DATA_RACE",
        kernel(
            f"{MINE} {HALVES} nanosleep.u32 20; bar.sync 1, 64; xor.b32 %s3, %s1, 128; ld.shared.u32 %r9, [%s3]; ret;"
            "A: st.shared.u32 [%s1], %r0; bar.arrive 1, 64; ret;",
            declarations=BOX,
        ),
        Text("st.shared.u32 [%s1], %r0; bar.arrive 1, 64;", "bar.arrive 1, 64; st.shared.u32 [%s1], %r0;"),
    ),
    Fault(
        "a read after an arrival at a barrier that did not wait",
        "EMU_DATA_RACE",
        kernel(
            f"{MINE} {HALVES} st.shared.u32 [%s1], %r0; bar.sync 1, 64; ret;"
            "A: bar.sync 1, 64; nanosleep.u32 20; xor.b32 %s3, %s1, 128; ld.shared.u32 %r9, [%s3]; ret;",
            declarations=BOX,
        ),
        Text("A: bar.sync 1, 64;", "A: bar.arrive 1, 64;"),
    ),
]
