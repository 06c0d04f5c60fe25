"""Faults of loads and stores: outside of every object, misaligned, read before written."""

from __future__ import annotations

from tests.emulator.faults.model import Fault, Text, kernel
from tests.emulator.kernels import launch

BOX = ".shared .align 16 .b8 box[256];"
MINE = ".reg .b32 %s<6>; mov.u32 %s1, box; shl.b32 %s2, %r0, 2; add.s32 %s1, %s1, %s2;"
LOCAL = ".local .align 8 .b8 frame[16]; .reg .b64 %s<4>; mov.u64 %s1, frame;"
PEER = f"{MINE} mapa.shared::cluster.u32 %s3, %s1, 1; st.shared.u32 [%s1], %r3;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"

FAULTS = [
    Fault(
        "a store past the end of a buffer",
        "EMU_OUT_OF_BOUNDS",
        kernel("st.global.u32 [%d4], %r0; ret;"),
        Text("[%d4]", "[%d4+4]"),
    ),
    Fault(
        "a load through a null pointer",
        "EMU_OUT_OF_BOUNDS",
        kernel("mov.u64 %d5, %d0; ld.global.u32 %r9, [%d5]; ret;"),
        Text("mov.u64 %d5, %d0;", "mov.u64 %d5, 0;"),
    ),
    Fault(
        "a store past the end of shared memory",
        "EMU_OUT_OF_BOUNDS",
        kernel(f"{MINE} st.shared.u32 [%s1], %r0; ret;", declarations=BOX),
        Text("[%s1]", "[%s1+4]"),
    ),
    Fault(
        "a store past the end of the local frame",
        "EMU_OUT_OF_BOUNDS",
        kernel(f"{LOCAL} st.local.u32 [%s1+12], %r0; ret;"),
        Text("[%s1+12]", "[%s1+16]"),
    ),
    Fault(
        "a store to the shared::cta address of a peer",
        "EMU_OUT_OF_BOUNDS",
        kernel(f"{PEER} {MEET} st.shared::cta.u32 [%s1], %r0; {MEET} ret;", launch(64, 2, 2), declarations=BOX),
        Text("st.shared::cta.u32 [%s1]", "st.shared::cta.u32 [%s3]"),
    ),
    Fault(
        "a vector load at half of its alignment",
        "EMU_MISALIGNED",
        kernel("ld.global.v2.u32 {%r8, %r9}, [%d0+8]; ret;"),
        Text("[%d0+8]", "[%d0+4]"),
    ),
    Fault(
        "a store to shared memory at an odd address",
        "EMU_MISALIGNED",
        kernel(f"{MINE} st.shared.u16 [%s1+2], %h1; ret;", declarations=BOX),
        Text("[%s1+2]", "[%s1+1]"),
    ),
    Fault(
        "shared memory read before anybody has written it",
        "EMU_UNINITIALISED",
        kernel(f"{MINE} st.shared.u32 [%s1], %r0; ld.shared.u32 %r9, [%s1]; ret;", declarations=BOX),
        Text("st.shared.u32 [%s1], %r0;", ""),
    ),
    Fault(
        "an output read before it is written",
        "EMU_UNINITIALISED",
        kernel("st.global.u32 [%d4], 1; ld.global.u32 %r9, [%d4]; ret;", launch(out="poison")),
        Text("st.global.u32 [%d4], 1;", ""),
    ),
    Fault(
        "a vector of which half was never written",
        "EMU_UNINITIALISED",
        kernel(f"{LOCAL} st.local.u64 [%s1], 1; ld.local.v2.u32 {{%r8, %r9}}, [%s1]; ret;"),
        Text("st.local.u64", "st.local.u32"),
    ),
    Fault(
        "an atomic on memory without a value",
        "EMU_UNINITIALISED",
        kernel(f"{MINE} st.shared.u32 [%s1], 0; atom.shared.add.u32 %r9, [%s1], 1; ret;", declarations=BOX),
        Text("st.shared.u32 [%s1], 0;", ""),
    ),
]
