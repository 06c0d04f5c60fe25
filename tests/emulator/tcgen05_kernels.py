"""A tcgen05 kernel in named parts, so that a test can change one of them.

Every CTA copies its bytes of IN to shared memory and its words of FILL to tensor memory, one thread of the CTA of rank
0 issues what the test asks for, all wait for the commit, and OUT gets the tensor memory, [lane, column].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.emulator import Outcome, run
from advisor.records.launch import BufferInit, BytesParam, PtrParam, ResolvedLaunch, TensorMapParam

TILE = 2048  # where dynamic shared memory begins: after the system's kilobyte and the static variables, aligned
PARTS = (
    "begin",
    "alloc",
    "init",
    "meet",
    "address",
    "copy",
    "fill",
    "fill_wait",
    "proxy",
    "before",
    "ready",
    "after_ready",
    "issue",
    "commit",
    "issued",
    "wait",
    "after",
    "load",
    "done",
    "dealloc",
    "end",
)


def parts(
    *, issue: str, group: int = 1, columns: int = 512, used: int = 64, bytes_: int = 0, fill: int = 0, fences: bool,
) -> dict[str, str]:  # fmt: skip
    """The text of each part. `issue` has %tm, the allocation's address; `used` columns go to OUT, `fill` are stored."""
    pair = group == 2
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if pair else "bar.sync 0;"
    fill_lines = [f"ld.global.u32 %v{each}, [%d3 + {4 * each}];" for each in range(fill)]
    fill_lines += [
        f"add.u32 %r20, %lane0, {each}; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r20], {{%v{each}}};"
        for each in range(fill)
    ]
    load = []
    for first in range(0, used, 8):
        registers = ", ".join(f"%v{each}" for each in range(8))
        load.append(f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{registers}}}, [%lane0 + {first}];")
        load.append("tcgen05.wait::ld.sync.aligned;")
        load += [f"st.global.u32 [%d4 + {4 * (first + each)}], %v{each};" for each in range(8)]
    target = ".shared::cluster.multicast::cluster.b64 [%bar], %mask16;" if pair else ".shared::cluster.b64 [%bar];"
    return {
        "begin": meet if pair else "",
        "alloc": f"@%warp0 tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%slot], {columns};",
        "init": "@%first mbarrier.init.shared::cta.b64 [%bar], 1;\n"
        + ("fence.mbarrier_init.release.cluster;" if pair else ""),
        "meet": meet,
        "address": "ld.shared.u32 %tm, [slot]; shl.b32 %r20, %warp, 21; or.b32 %lane0, %tm, %r20;",
        "copy": f"""
    mov.u32 %r21, %tid; shl.b32 %r21, %r21, 4;
COPY:
    setp.ge.u32 %p5, %r21, {bytes_};
    @%p5 bra COPIED;
    cvt.u64.u32 %d10, %r21; add.s64 %d11, %d2, %d10; add.u32 %r22, %tile, %r21;
    ld.global.v4.u32 {{%r23, %r24, %r25, %r26}}, [%d11];
    st.shared.v4.u32 [%r22], {{%r23, %r24, %r25, %r26}};
    add.u32 %r21, %r21, 2048;
    bra COPY;
COPIED:
""",
        "fill": "\n".join(fill_lines),
        "fill_wait": "tcgen05.wait::st.sync.aligned;" if fill else "",
        "proxy": "fence.proxy.async.shared::cta;",
        "before": "tcgen05.fence::before_thread_sync;" if fences else "",
        "ready": meet,
        "after_ready": "tcgen05.fence::after_thread_sync;" if fences else "",
        "issue": f"@!%leader bra ISSUED;\n{issue}",
        "commit": f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one{target}",
        "issued": "ISSUED:",
        "wait": """
WAITING:
    mbarrier.try_wait.parity.shared::cta.b64 %p6, [%bar], 0;
    @!%p6 bra WAITING;
""",
        "after": "tcgen05.fence::after_thread_sync;" if fences else "",
        "load": "\n".join(load),
        "done": meet,
        "dealloc": f"@%warp0 tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %tm, {columns};\n"
        f"@%warp0 tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;",
        "end": "ret;",
    }


def text(named: Mapping[str, str], *, bytes_: int, fill: int, used: int, target: str = "sm_100a") -> str:
    body = "\n".join(named[each] for each in PARTS)
    return f""".version 8.8
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry kernel(.param .u64 in, .param .u64 fill, .param .u64 out, .param .align 64 .b8 map[128])
{{
    .reg .pred %p<16>; .reg .pred %first; .reg .pred %warp0; .reg .pred %leader;
    .reg .b16 %mask16; .reg .b32 %r<64>; .reg .b32 %v<256>; .reg .b64 %d<64>;
    .reg .b32 %tid; .reg .b32 %warp; .reg .b32 %rank; .reg .b32 %bar; .reg .b32 %slot; .reg .b32 %tile;
    .reg .b32 %tm; .reg .b32 %lane0;
    .shared .align 8 .b64 bar; .shared .align 8 .b64 full; .shared .align 4 .b32 slot;
    mov.u32 %tid, %tid.x; shr.u32 %warp, %tid, 5; mov.u32 %rank, %cluster_ctarank; mov.u32 %r1, %ctaid.x;
    mov.u32 %bar, bar; mov.u32 %slot, slot; mov.u32 %tile, dynamic; mov.u16 %mask16, 3;
    setp.eq.u32 %first, %tid, 0; setp.lt.u32 %warp0, %tid, 32;
    setp.eq.u32 %p1, %rank, 0; and.pred %leader, %first, %p1;
    ld.param.u64 %d2, [in]; ld.param.u64 %d3, [fill]; ld.param.u64 %d4, [out];
    cvta.to.global.u64 %d2, %d2; cvta.to.global.u64 %d3, %d3; cvta.to.global.u64 %d4, %d4;
    mul.wide.u32 %d5, %r1, {bytes_}; add.s64 %d2, %d2, %d5;
    mad.lo.u32 %r2, %r1, 128, %tid;
    mul.wide.u32 %d6, %r2, {4 * fill}; add.s64 %d3, %d3, %d6;
    mul.wide.u32 %d7, %r2, {4 * used}; add.s64 %d4, %d4, %d7;
{body}
}}
"""


def execute(
    issue: str,
    shared: np.ndarray | None = None,
    filled: np.ndarray | None = None,
    *,
    group: int = 1,
    used: int = 64,
    columns: int = 512,
    fences: bool = True,
    changed: Mapping[str, str] | None = None,
    target: str = "sm_100a",
    **options: Any,
) -> np.ndarray:
    """OUT, [CTAs, 128, used] words. `shared` [CTAs, bytes] and `filled` [CTAs, 128, columns] go in; `changed` parts."""
    return outcome(
        issue, shared, filled, group=group, used=used, columns=columns, fences=fences, changed=changed, target=target,
        **options,
    ).typed("OUT")  # fmt: skip


def outcome(
    issue: str,
    shared: np.ndarray | None = None,
    filled: np.ndarray | None = None,
    *,
    group: int = 1,
    used: int = 64,
    columns: int = 512,
    fences: bool = True,
    changed: Mapping[str, str] | None = None,
    target: str = "sm_100a",
    ctas: int | None = None,
    cluster: int | None = None,
    tile: TensorMapParam | None = None,
    **options: Any,
) -> Outcome:
    count = group if ctas is None else ctas
    bytes_ = 0 if shared is None else shared.shape[1]
    fill = 0 if filled is None else filled.shape[2]
    named = parts(
        issue=issue, group=group, columns=columns, used=used, bytes_=bytes_, fill=fill, fences=fences
    ) | dict(changed or {})  # fmt: skip
    source = np.zeros(16, np.uint8) if shared is None else np.resize(shared, (count, bytes_)).ravel()
    words = np.zeros(4, np.uint32) if filled is None else filled.ravel()
    launch = ResolvedLaunch(
        entry="kernel",
        target=target,
        grid_blocks=(count, 1, 1),
        block=(128, 1, 1),
        cluster=(cluster or group, 1, 1),
        dynamic_smem_bytes=max(bytes_, 16),
        params=[
            PtrParam(name="in", buffer="IN"),
            PtrParam(name="fill", buffer="FILL"),
            PtrParam(name="out", buffer="OUT"),
            tile or BytesParam(name="map", value="00" * 128),
        ],
        buffers={
            "IN": BufferInit(shape=(source.size // 2,), dtype="float16", init="zeros"),
            "FILL": BufferInit(shape=(words.size,), dtype="uint32", init="zeros"),
            "OUT": BufferInit(shape=(count, 128, used), dtype="uint32", init="zeros"),
        },
    )
    ptx = text(named, bytes_=bytes_, fill=fill, used=used, target=target)
    if tile is not None and tile.dtype != "float16":
        launch.buffers["IN"] = BufferInit(shape=(source.size // 2,), dtype=tile.dtype, init="zeros")
    inputs = {"IN": source, "FILL": np.ascontiguousarray(words).view(np.uint8)}
    return run(ptx, launch, inputs=inputs, **options)
