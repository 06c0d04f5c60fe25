"""Faults of asynchronous copies: cp.async, bulk copies, tensor copies and the maps that they read."""

from __future__ import annotations

from advisor.records.launch import ScratchParam, TensorMapParam
from tests.emulator.faults.accesses import BOX, MINE
from tests.emulator.faults.mbarriers import ADDRESSES, INIT, LOAD, READ, SHARED, WAIT, load
from tests.emulator.faults.model import Fault, Kernel, Launch, Text, kernel
from tests.emulator.kernels import REGISTERS, THREAD
from tests.emulator.kernels import launch as small_launch

START = "cp.async.ca.shared.global [%s1], [%d3], 4; cp.async.commit_group;"
COPY = f"{MINE} {START}"
OLDER = "st.shared.u32 [%s1], 7;"
OWN = "ld.shared.u32 %r9, [%s1];"
NEXT = "xor.b32 %s3, %s1, 4; ld.shared.u32 %r9, [%s3];"
WRITE = "st.shared.u32 [%s3], %r3;"
COPIED = "ld.global.u32 %r9, [%d3]; st.global.u32 [%d4], %r9; ret;"
STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d1], [%s0], 256; @%p0 cp.async.bulk.commit_group;"
BYTES = "fence.proxy.async.shared::cta; bar.sync 0;"

MAP = TensorMapParam(
    name="map", buffer="IN", dtype="uint32", rank=2, global_dim=[16, 4], global_stride_bytes=[64], box_dim=[8, 8],
    element_strides=[1, 1], swizzle="none",
)  # fmt: skip
TENSOR = """
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256; mov.u32 %s10, 8; mov.u32 %s11, 0;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%s0], [%q3, {%s10, %s11}], [%s1];
"""
# A warp makes the same map in shared memory, field by field, and publishes it in scratch memory.
MAKE = """
    .shared .align 128 .b8 image[128];
    mov.u32 %s7, image; setp.lt.u32 %p5, %r0, 32; shl.b32 %s8, %r0, 2; add.s32 %s9, %s7, %s8;
    @%p5 st.shared.b32 [%s9], 0; @!%p5 bra MADE; bar.warp.sync -1; cvt.u64.u32 %q2, %s7; ld.param.u64 %q3, [map];
    @!%p0 bra COPY;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%q2], %d0;
    tensormap.replace.tile.rank.shared::cta.b1024.b32 [%q2], 1;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%q2], 0, 8;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%q2], 1, 8;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%q2], 0, 16;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%q2], 1, 4;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%q2], 0, 64;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%q2], 0, 1;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%q2], 1, 1;
    tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%q2], 2;
    COPY: bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%q3], [%q2], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%q3], 128;
    MADE: bar.sync 0; ld.param.u64 %q3, [map];
"""


def prefetched() -> Kernel:
    """One thread brings the whole input into L2, then every thread copies its element."""
    return kernel(f"{ADDRESSES} @%p0 cp.async.bulk.prefetch.L2.global [%d0], 256; {COPIED}", declarations=SHARED)


def stored() -> Kernel:
    """The CTA writes a stage, one thread stores it in bulk; then the stage is written again."""
    return kernel(
        f"{ADDRESSES} {WRITE} {BYTES} {STORE} @%p0 cp.async.bulk.wait_group.read 0; bar.sync 1;"
        "st.shared.u32 [%s3], 7; @%p0 cp.async.bulk.wait_group 0; ret;",
        declarations=SHARED,
    )


def with_map(body: str, param: TensorMapParam | ScratchParam, declared: str) -> Kernel:
    text = f""".version 8.6
.target sm_90a
.address_size 64
{SHARED}
.visible .entry kernel(.param .u64 in, .param .u64 out, {declared})
{{ {REGISTERS} {THREAD} {ADDRESSES} {INIT} {body} }}"""
    shape = small_launch()
    return Kernel(text, shape.model_copy(update={"params": [*shape.params[:2], param]}))


def tensor(body: str = TENSOR + WAIT + READ) -> Kernel:
    """A box of 8 x 8 words through a tensor map of the launch."""
    return with_map("mov.b64 %q3, map;" + body, MAP, ".param .align 64 .b8 map[128]")


def made() -> Kernel:
    """The same through a map that the kernel makes."""
    return with_map(MAKE + TENSOR + WAIT + READ, ScratchParam(name="map", bytes=128, align=128), ".param .u64 map")


FAULTS = [
    Fault(
        "a copy that is read before its wait",
        "EMU_UNINITIALISED",
        kernel(f"{COPY} cp.async.wait_all; ld.shared.u32 %r9, [%s1]; ret;", declarations=BOX),
        Text("cp.async.wait_all;", ""),
    ),
    Fault(
        "a wait that leaves the group which is read",
        "EMU_UNINITIALISED",
        kernel(f"{COPY} cp.async.wait_group 0; ld.shared.u32 %r9, [%s1]; ret;", declarations=BOX),
        Text("cp.async.wait_group 0;", "cp.async.wait_group 1;"),
    ),
    Fault(
        "a copy over older bytes, which are read before its wait",
        "EMU_DATA_RACE",
        kernel(f"{MINE} {OLDER} {START} cp.async.wait_group 0; {OWN} ret;", declarations=BOX),
        Text("cp.async.wait_group 0;", "cp.async.wait_group 1;"),
    ),
    Fault(
        "a copy that no commit has put into a group",
        "EMU_DATA_RACE",
        kernel(
            f"{MINE} {OLDER} {START} cp.async.wait_group 0; ld.shared.u32 %r9, [%s1]; cp.async.wait_all; ret;",
            declarations=BOX,
        ),
        Text("cp.async.commit_group;", ""),
    ),
    Fault(
        "a slot that is written while a copy is on its way to it",
        "EMU_DATA_RACE",
        kernel(f"{COPY} cp.async.wait_all; {OLDER} ret;", declarations=BOX),
        Text("cp.async.wait_all;", ""),
    ),
    Fault(
        "a copy that another thread reads before its wait",
        "EMU_DATA_RACE",
        kernel(
            f"{MINE} {OLDER} {START} cp.async.wait_all; bar.sync 0; {NEXT} ret;",
            declarations=BOX,
        ),
        Text("cp.async.wait_all; bar.sync 0;", "bar.sync 0;"),
    ),
    Fault(
        "a copy that nobody waits for",
        "EMU_COPY_IN_FLIGHT",
        kernel(f"{COPY} cp.async.wait_all; ret;", declarations=BOX),
        Text("cp.async.wait_all;", ""),
    ),
    Fault(
        "a bulk load that is read before its phase",
        "EMU_DATA_RACE",
        load(),
        Text(WAIT, ""),
    ),
    Fault(
        "an exit with a bulk load on its way",
        "EMU_ASYNC_AT_EXIT",
        kernel(ADDRESSES + INIT + LOAD + WAIT + "ret;", declarations=SHARED),
        Text(WAIT, ""),
    ),
    Fault(
        "a bulk copy of a size that is no multiple of 16",
        "EMU_MISALIGNED",
        load(),
        Text("[%d0], 256", "[%d0], 250"),
    ),
    Fault(
        "a bulk copy past the end of its source",
        "EMU_OUT_OF_BOUNDS",
        load(),
        Text("[%s0], [%d0], 256", "[%s0], [%d0+16], 256"),
    ),
    Fault(
        "a bulk prefetch of an address that is no multiple of 16",
        "EMU_MISALIGNED",
        prefetched(),
        Text("[%d0], 256", "[%d0+8], 240"),
    ),
    Fault(
        "a bulk prefetch of a size that is no multiple of 16",
        "EMU_MISALIGNED",
        prefetched(),
        Text("[%d0], 256", "[%d0], 250"),
    ),
    Fault(
        "a bulk prefetch past the end of its buffer",
        "EMU_OUT_OF_BOUNDS",
        prefetched(),
        Text("[%d0], 256", "[%d0+16], 256"),
    ),
    Fault(
        "a bulk store of what generic stores wrote, with no proxy fence between",
        "EMU_DATA_RACE",
        stored(),
        Text("fence.proxy.async.shared::cta;", ""),
    ),
    Fault(
        "a bulk store of what other warps write, with no barrier between",
        "EMU_DATA_RACE",
        stored(),
        Text("bar.sync 0;", ""),
    ),
    Fault(
        "the source of a bulk store written again before it was read",
        "EMU_DATA_RACE",
        stored(),
        Text("@%p0 cp.async.bulk.wait_group.read 0;", ""),
    ),
    Fault(
        "a bulk store that was never committed",
        "EMU_DATA_RACE",
        stored(),
        Text("@%p0 cp.async.bulk.commit_group;", ""),
    ),
    Fault(
        "an exit with the source of a bulk store still being read",
        "EMU_ASYNC_AT_EXIT",
        kernel(f"{ADDRESSES} {WRITE} {BYTES} {STORE} @%p0 cp.async.bulk.wait_group.read 0; ret;", declarations=SHARED),
        Text("@%p0 cp.async.bulk.wait_group.read 0;", ""),
    ),
    Fault(
        "a generic read of a stage that the next bulk load fills",
        "EMU_DATA_RACE",
        kernel(
            ADDRESSES
            + INIT
            + LOAD
            + WAIT
            + "ld.shared.u32 %r9, [%s3]; bar.sync 1;"
            + LOAD.replace("[%d0]", "[%d1]")
            + WAIT.replace("W", "V").replace(", 0;", ", 1;")
            + "ret;",
            declarations=SHARED,
        ),
        Text("bar.sync 1;", ""),
    ),
    Fault(
        "a tensor copy from what is no tensor map",
        "EMU_TENSOR_COPY",
        tensor(),
        Text("mov.b64 %q3, map;", "mov.b64 %q3, %d0;"),
    ),
    Fault(
        "a tensor copy of another rank than its map",
        "EMU_TENSOR_COPY",
        tensor(),
        Text(
            "tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes\n        [%s0], [%q3, {%s10, %s11}]",
            "tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes\n        [%s0], [%q3, {%s10}]",
        ),
    ),
    Fault(
        "a tensor copy to a place that is no multiple of 128",
        "EMU_TENSOR_COPY",
        tensor(),
        Text("[%s0], [%q3,", "[%s0+64], [%q3,"),
    ),
    Fault(
        "a tensor copy whose bytes are counted without those outside of the tensor",
        "EMU_DEADLOCK",
        tensor(),
        Text("_, [%s1], 256;", "_, [%s1], 128;"),
    ),
    Fault(
        "a tensor map of the kernel used without its acquire",
        "EMU_TENSOR_MAP_FENCE",
        made(),
        Text("fence.proxy.tensormap::generic.acquire.gpu [%q3], 128;", ""),
    ),
    Fault(
        "a field of a tensor map with a value that does not exist",
        "EMU_TENSOR_MAP_FIELD",
        made(),
        Text("elemtype.shared::cta.b1024.b32 [%q2], 2;", "elemtype.shared::cta.b1024.b32 [%q2], 99;"),
    ),
    Fault(
        "a tensor map that the driver's encoder refuses",
        "EMU_TENSOR_MAP_REFUSED",
        tensor(),
        Launch(
            {
                "params": [
                    *small_launch().params[:2],
                    MAP.model_copy(update={"box_dim": [8, 257]}),
                ]
            }
        ),
    ),
]
