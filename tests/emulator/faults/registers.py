"""Faults of `setmaxnreg`: more registers than the CTA has, warps of a warpgroup out of step."""

from __future__ import annotations

from tests.emulator.faults.hopper import PERSISTENT, SETTING
from tests.emulator.faults.model import Fault, Kernel, Pattern, Text
from tests.emulator.kernels import launch, module

BOUNDS = ".maxntid 384, 1, 1\n.minnctapersm 1\n"  # 168 registers a thread
# Warpgroup 0 gives registers back, two others take them: 40 + 2 * 232 = 3 * 168.
ROLES = """
    setp.ge.u32 %p1, %r0, 128; @%p1 bra TAKE;
    setmaxnreg.dec.sync.aligned.u32 40; bar.sync 1, 128; ret;
    TAKE: setmaxnreg.inc.sync.aligned.u32 232; st.global.u32 [%d4], %r0; ret;
"""
TWICE = "setmaxnreg.dec.sync.aligned.u32 40; bar.sync 0; setmaxnreg.inc.sync.aligned.u32 168; ret;"
# One warpgroup, and a warp beside it.
SPARE = (
    "setp.ge.u32 %p1, %r0, 128; @%p1 bra OUT; setmaxnreg.dec.sync.aligned.u32 40; OUT: st.global.u32 [%d4], %r0; ret;"
)


def bounded(body: str, directives: str = BOUNDS, threads: int = 384) -> Kernel:
    text = module(body).replace("\n{\n", f"\n{directives}{{\n", 1)
    return Kernel(text, launch(threads))


FAULTS = [
    Fault(
        "warpgroups that take more registers than the others give back",
        "EMU_DEADLOCK",
        bounded(ROLES),
        Text("aligned.u32 232", "aligned.u32 240"),
        field_case="K46",
    ),
    Fault(
        "a warpgroup that gives no registers back",
        "EMU_DEADLOCK",
        bounded(ROLES),
        Text("setmaxnreg.dec.sync.aligned.u32 40;", ""),
        field_case="K46",
    ),
    Fault(
        "registers that are to come from warps that have exited",
        "EMU_DEADLOCK",
        bounded(ROLES),
        Text("setmaxnreg.dec.sync.aligned.u32 40; bar.sync 1, 128;", ""),
        field_case="K46",
    ),
    Fault(
        "launch bounds that leave half of the registers which the warpgroups share out",
        "EMU_DEADLOCK",
        bounded(ROLES),
        Text(".minnctapersm 1", ".minnctapersm 2"),
        field_case="K46",
    ),
    Fault(
        "a warp that leaves before the setmaxnreg of its warpgroup",
        "EMU_REGISTERS",
        bounded("setp.lt.u32 %p2, %r0, 32; setp.lt.u32 %p3, %r0, 0; @%p3 bra OUT;" + TWICE + "OUT: ret;"),
        Text("setp.lt.u32 %p3, %r0, 0;", "setp.lt.u32 %p3, %r0, 32;"),
        field_case="K46",
    ),
    Fault(
        "warps of one warpgroup that ask for different numbers of registers",
        "EMU_REGISTERS",
        bounded(ROLES),
        Text("setp.ge.u32 %p1, %r0, 128;", "setp.ge.u32 %p1, %r0, 96;"),
        field_case="K46",
    ),
    Fault(
        "setmaxnreg of a warp whose warpgroup has no other warps",
        "EMU_REGISTERS",
        bounded(SPARE, ".maxntid 160, 1, 1\n.minnctapersm 1\n", threads=160),
        Text("setp.ge.u32 %p1, %r0, 128;", "setp.ge.u32 %p1, %r0, 160;"),
        field_case="K46",
    ),
    Fault(
        "a second setmaxnreg with no barrier after the first",
        "EMU_REGISTERS",
        bounded(TWICE),
        Text("bar.sync 0;", ""),
    ),
    Fault(
        "a number of registers that is no multiple of 8",
        "EMU_REGISTERS",
        bounded(ROLES),
        Text("aligned.u32 40", "aligned.u32 44"),
    ),
    Fault(
        "setmaxnreg.inc to fewer registers than the warp has",
        "EMU_REGISTERS",
        bounded(ROLES),
        Text("aligned.u32 232", "aligned.u32 160"),
    ),
    Fault(
        "setmaxnreg in a kernel whose registers at entry are not known",
        "EMU_REGISTERS_UNKNOWN",
        bounded(ROLES),
        Text("\n.minnctapersm 1\n", "\n"),
    ),
    Fault(
        "a Hopper kernel of the project that takes 8 registers more than its producer gives back",
        "EMU_DEADLOCK",
        PERSISTENT,
        Pattern(r"(setmaxnreg\.inc\.sync\.aligned\.u32) 216;", r"\1 224;"),
        SETTING,
        field_case="K46",
    ),
    Fault(
        "a Hopper kernel of the project whose producer gives no registers back",
        "EMU_DEADLOCK",
        PERSISTENT,
        Pattern(r"setmaxnreg\.dec\.sync\.aligned\.u32 \d+;", ""),
        SETTING,
        field_case="K46",
    ),
]
