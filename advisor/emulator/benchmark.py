"""How fast the emulator is: committed kernels of scalar, divergent, memory and barrier code. Imports its own room.

Rates are warp instructions per second of one process with every check on. `python -m tests.emulator.benchmark` prints
them beside what is asked for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from advisor.emulator.program import load_program
from advisor.emulator.run import run
from advisor.records.launch import BufferInit, PtrParam, ResolvedLaunch

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.shared .align 16 .b8 box[4096];
.visible .entry kernel(.param .u64 in, .param .u64 out)
{
.reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %d<16>; .reg .f32 %f<16>;
ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];
cvta.to.global.u64 %d0, %d0; cvta.to.global.u64 %d1, %d1;
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
mul.wide.u32 %d2, %r3, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;
shl.b32 %r4, %r0, 2; mov.u32 %r5, box; add.s32 %r6, %r5, %r4;
mov.u32 %r9, %r3; mov.u32 %r10, 0; cvt.rn.f32.u32 %f1, %r3; mov.f32 %f2, 0f3F000000; mov.f32 %f3, 0f3F800000;
LOOP:
"""
_TAIL = """
add.s32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, TIMES; @%p1 bra LOOP;
cvt.rzi.u32.f32 %r30, %f3; add.s32 %r9, %r9, %r30; st.global.u32 [%d4], %r9; ret;
}
"""
_INTEGER = """add.s32 %r11, %r9, 13; xor.b32 %r12, %r11, %r3; shl.b32 %r13, %r12, 3; and.b32 %r14, %r13, 65535;
mad.lo.s32 %r9, %r14, 5, %r9; shr.u32 %r15, %r9, 7; or.b32 %r9, %r15, %r9; min.u32 %r16, %r9, 70000;
setp.gt.u32 %p2, %r16, 100; selp.b32 %r17, %r16, %r9, %p2; sub.s32 %r9, %r17, %r10;"""
_FLOAT = """fma.rn.f32 %f4, %f1, %f2, %f3; add.f32 %f5, %f4, %f2; mul.f32 %f6, %f5, %f2; max.f32 %f3, %f6, %f2;"""
_DIVERGENT = """and.b32 %r18, %r0, 3; setp.eq.u32 %p3, %r18, 0; @%p3 bra A{0};
add.s32 %r9, %r9, 3; xor.b32 %r9, %r9, %r0;
bra B{0};
A{0}: shl.b32 %r19, %r9, 1; add.s32 %r9, %r19, 1;
B{0}:"""
_SHARED = """st.shared.u32 [%r6], %r9; bar.sync 0; xor.b32 %r20, %r6, 64; ld.shared.u32 %r21, [%r20];
add.s32 %r9, %r9, %r21;
shfl.sync.bfly.b32 %r22, %r9, 1, 31, -1; xor.b32 %r9, %r9, %r22; bar.sync 0;"""
_GLOBAL = """ld.global.u32 %r23, [%d3]; add.s32 %r9, %r9, %r23; st.global.u32 [%d4], %r9; ld.global.u32 %r24, [%d4];
xor.b32 %r9, %r9, %r24; st.global.u32 [%d4], %r9;"""


@dataclass(frozen=True, slots=True)
class Rate:
    name: str
    warp_instructions: int
    seconds: float
    wanted: float  # warp instructions per second

    @property
    def per_second(self) -> float:
        return self.warp_instructions / self.seconds


KERNELS = {
    "alu": (_INTEGER * 4 + _FLOAT * 3, 800_000.0),
    "mix": (_INTEGER + _FLOAT + _DIVERGENT.format(0) + _SHARED + _INTEGER + _GLOBAL, 250_000.0),
    "global memory": (_GLOBAL * 4 + "add.s32 %r9, %r9, 1;", 80_000.0),
}


def measure(name: str, *, times: int = 60, threads: int = 256, ctas: int = 4, races: bool = True) -> Rate:
    """One kernel's rate, its translation included and its parsing not."""
    body, wanted = KERNELS[name]
    program = load_program(_HEAD + body + _TAIL.replace("TIMES", str(times)))
    size = threads * ctas
    launch = ResolvedLaunch(
        entry="kernel",
        target="sm_90a",
        grid_blocks=(ctas, 1, 1),
        block=(threads, 1, 1),
        cluster=(1, 1, 1),
        dynamic_smem_bytes=0,
        params=[PtrParam(name="in", buffer="IN"), PtrParam(name="out", buffer="OUT")],
        buffers={
            "IN": BufferInit(shape=[size], dtype="uint32", init="arange"),
            "OUT": BufferInit(shape=[size], dtype="uint32", init="zeros"),
        },
    )
    start = time.perf_counter()
    outcome = run(program, launch, races=races)
    return Rate(name, outcome.warp_instructions, time.perf_counter() - start, wanted)


def measure_all() -> list[Rate]:
    return [measure(name) for name in KERNELS]
