"""Kernels in a few lines of PTX, and their launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.emulator import Outcome, run
from advisor.records.launch import BufferInit, Param, PtrParam, ResolvedLaunch, ScalarParam

REGISTERS = """
    .reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %d<32>; .reg .f32 %f<16>; .reg .f64 %fd<8>;
"""
THREAD = """
    ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];
    cvta.to.global.u64 %d0, %d0; cvta.to.global.u64 %d1, %d1;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0;
    mul.wide.u32 %d2, %r3, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;
"""


def module(body: str, *, declarations: str = "", registers: str = REGISTERS, target: str = "sm_90a") -> str:
    """`in` and `out` are buffers; the prologue leaves &in[i] in %d3, &out[i] in %d4, and i in %r3, tid in %r0."""
    return f""".version 8.6
.target {target}
.address_size 64
{declarations}
.visible .entry kernel(.param .u64 in, .param .u64 out, .param .u32 n)
{{
{registers}
{THREAD}
{body}
}}
"""


def launch(
    threads: int = 64,
    ctas: int = 1,
    cluster: int = 1,
    *,
    count: int | None = None,
    dtype: str = "uint32",
    out: str = "zeros",
    dynamic: int = 0,
    n: int = 0,
) -> ResolvedLaunch:
    size = threads * ctas if count is None else count
    params: list[Param] = [
        PtrParam(name="in", buffer="IN"),
        PtrParam(name="out", buffer="OUT"),
        ScalarParam(kind="u32", name="n", value=n),
    ]
    return ResolvedLaunch(
        entry="kernel",
        target="sm_90a",
        grid_blocks=(ctas, 1, 1),
        block=(threads, 1, 1),
        cluster=(cluster, 1, 1),
        dynamic_smem_bytes=dynamic,
        params=params,
        buffers={
            "IN": BufferInit(shape=[size], dtype=dtype, init="arange"),
            "OUT": BufferInit(shape=[size], dtype=dtype, init=out),
        },
    )


def execute(
    body: str,
    shape: ResolvedLaunch | None = None,
    *,
    declarations: str = "",
    inputs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Outcome:
    return run(module(body, declarations=declarations), shape or launch(), inputs=inputs, **options)


def results(body: str, shape: ResolvedLaunch | None = None, **options: Any) -> np.ndarray:
    return execute(body, shape, **options).typed("OUT")
