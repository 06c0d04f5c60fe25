"""Faults of kernels that start before the kernel before them has ended: who waits for it, and when."""

from __future__ import annotations

from dataclasses import replace

from tests.emulator.faults.copies import SHARED as COPY_SHARED
from tests.emulator.faults.hopper import gemm
from tests.emulator.faults.mbarriers import ADDRESSES, INIT, LOAD, READ, SHARED, WAIT
from tests.emulator.faults.model import Fault, Kernel, Pattern, Text, kernel
from tests.emulator.gemms import problem
from tests.emulator.kernels import launch

LATE = {"predecessor_writes": ("IN", "OUT")}
GRID_WAIT = "griddepcontrol.wait;"
MOVE = "ld.global.u32 %r9, [%d3]; st.global.u32 [%d4], %r9;"
# Warp 0 loads and warp 1 computes; both read how much there is to do, which the kernel before this one has written.
ROLES = f"""
    setp.lt.u32 %p2, %r0, 32; {GRID_WAIT} @%p2 bra LOADS;
    ld.global.u32 %r8, [%d0]; setp.lt.u32 %p3, %r8, 64; @!%p3 bra OUT; bar.sync 1, 64; bra OUT;
    LOADS: ld.global.u32 %r8, [%d0]; setp.lt.u32 %p3, %r8, 64; @!%p3 bra OUT; bar.sync 1, 64; OUT: ret;
"""
LEADER = "setp.eq.u32 %p1, %r6, 0;"


def late(body: str, declarations: str = "", *, ctas: int = 1, cluster: int = 1) -> Kernel:
    return kernel(body, launch(64, ctas, cluster), declarations=declarations, options=LATE)


def behind(twin: Kernel) -> Kernel:
    """A kernel of the project; the kernel before it writes all that it touches."""
    return replace(twin, options={**twin.options, "predecessor_writes": tuple(twin.launch.buffers)})


HOPPER = behind(gemm(problem(100, 72, 328, launch={"pdl": True})))
MEET_ALL = "barrier.cluster.arrive; barrier.cluster.wait;"
FAULTS = [
    Fault(
        "a read of what the kernel before this one writes, with no wait for it",
        "EMU_GRID_WAIT",
        late(f"{GRID_WAIT} {MOVE} ret;"),
        Text(GRID_WAIT, ""),
        field_case="K06",
    ),
    Fault(
        "only the warp that loads waits for the kernel before this one",
        "EMU_GRID_WAIT",
        late(ROLES),
        Text(GRID_WAIT, f"@%p2 {GRID_WAIT}"),
        field_case="K06",
    ),
    Fault(
        "one lane waits for the kernel before this one and the others do not meet it",
        "EMU_GRID_WAIT",
        late(f"setp.eq.u32 %p1, %r0, 0; @%p1 {GRID_WAIT} bar.sync 0; {MOVE} ret;"),
        Text("bar.sync 0;", ""),
        field_case="K06",
    ),
    Fault(
        "the other CTAs of a cluster do not meet the one that waits for the kernel before this one",
        "EMU_GRID_WAIT",
        late(
            f"mov.u32 %r6, %cluster_ctarank; {LEADER} @%p1 {GRID_WAIT} {MEET_ALL} {MOVE} ret;",
            ctas=2,
            cluster=2,
        ),
        Text(MEET_ALL, ""),
        field_case="K06",
    ),
    Fault(
        "a wait for the kernel before this one after the first read",
        "EMU_GRID_WAIT",
        late(f"{GRID_WAIT} {MOVE} ret;"),
        Text(f"{GRID_WAIT} {MOVE}", f"ld.global.u32 %r9, [%d3]; {GRID_WAIT} st.global.u32 [%d4], %r9;"),
        field_case="K06",
    ),
    Fault(
        "a bulk copy issued before the wait for the kernel before this one",
        "EMU_GRID_WAIT",
        late(ADDRESSES + INIT + GRID_WAIT + LOAD + WAIT + READ, SHARED),
        Text(GRID_WAIT + LOAD, LOAD + GRID_WAIT),
        field_case="K06",
    ),
    Fault(
        "a copy of single threads issued before the wait for the kernel before this one",
        "EMU_GRID_WAIT",
        late(
            f"{ADDRESSES} {GRID_WAIT} cp.async.ca.shared.global [%s3], [%d3], 4; cp.async.wait_all; {READ}", COPY_SHARED
        ),
        Text(
            f"{GRID_WAIT} cp.async.ca.shared.global [%s3], [%d3], 4;",
            f"cp.async.ca.shared.global [%s3], [%d3], 4; {GRID_WAIT}",
        ),
        field_case="K06",
    ),
    Fault(
        "an atomic on what the kernel before this one still writes",
        "EMU_GRID_WAIT",
        late(f"{GRID_WAIT} atom.global.add.u32 %r9, [%d1], 1; ret;"),
        Text(GRID_WAIT, ""),
        field_case="K06",
    ),
    Fault(
        "a result that the kernel before this one may write over",
        "EMU_GRID_WAIT",
        late(f"{GRID_WAIT} st.global.u32 [%d4], %r0; ret;"),
        Text(f"{GRID_WAIT} st.global.u32 [%d4], %r0;", f"st.global.u32 [%d4], %r0; {GRID_WAIT}"),
        field_case="K06",
    ),
    Fault(
        "a warp that leaves early and does not wait for the kernel before this one",
        "EMU_GRID_WAIT_SKIPPED",
        late(f"setp.ge.u32 %p1, %r0, 32; {GRID_WAIT} @%p1 bra OUT; {MOVE} OUT: ret;"),
        Text(f"{GRID_WAIT} @%p1 bra OUT;", f"@%p1 bra OUT; {GRID_WAIT}"),
        field_case="K06",
    ),
    Fault(
        "a tensor copy issued with no wait for the kernel before this one",
        "EMU_GRID_WAIT",
        HOPPER,
        Pattern(r"griddepcontrol\.wait;", ""),
        field_case="K06",
    ),
]
