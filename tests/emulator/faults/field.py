"""Incidents from the field, each as a kernel of its kind. `field_case` numbers them as the table does."""

from __future__ import annotations

from functools import cache

from advisor.codegen import templates
from advisor.kinds.gemm import sm100
from advisor.records.launch import Expected
from advisor.toolchain import Unit, compile_cuda
from tests.emulator.faults.accesses import MEET
from tests.emulator.faults.mbarriers import ADDRESSES, SHARED
from tests.emulator.faults.model import WRONG_VALUES, Fault, Kernel, Macro, Text, kernel, settings
from tests.emulator.gemms import case_of, problem, resolved
from tests.emulator.kernels import launch
from tests.emulator.test_sm100 import candidate

INCIDENTS = {
    "K01": (
        "a CTA exits while remote arrivals, multicast commits or the pair's tensor memory still involve it",
        "sglang 32907, 34340; facebookexperimental/triton 1105",
    ),
    "K02": ("a cluster straddles two groups of a grouped GEMM: a hang, and wrong tiles after it", "DeepGEMM 415, 429"),
    "K05": (
        "the slot of a CLC response is released before every warp has read it, or without the proxy fence",
        "tilelang 2410, 2420, 2423; cudnn-frontend 610, 894",
    ),
    "K06": (
        "only some warps or CTAs wait for the kernel before this one, and all read what it writes",
        "quack 206, 207; sglang 25575",
    ),
    "K12": (
        "tensor memory of a pair allocated or freed with no cluster barrier beside it",
        "cutlass 2230, 3316, 3435; triton 9498, 10735",
    ),
    "K17": (
        "the raster takes CTAs and not clusters: a pair gets two tiles, and multiplies halves of different operands",
        "facebookexperimental/triton 1071; cudnn-frontend 617",
    ),
    "K19": (
        "the mask, the bytes or the cta_group of a pair inside a larger cluster",
        "facebookexperimental/triton 644, 783; jax 40165; tilelang 2287, 2644",
    ),
    "K20": ("a CLC request after one that failed", "quack 0.6.1 in marin 8870"),
    "K46": (
        "the registers that warpgroups ask for are more than the CTA has, or a warp leaves out of step with setmaxnreg",
        "flashinfer 4533; tilelang 2406, 2559; cutlass 2007; helion 3620",
    ),
}
"""The incidents that faults repeat, with the threads of their projects."""

SETUP = f"""{ADDRESSES} mov.u32 %s4, spare; mov.u32 %s6, %cluster_ctarank; mov.u32 %s14, %cluster_nctarank;
    @%p0 mbarrier.init.shared::cta.b64 [%s1], 1; @%p0 mbarrier.init.shared::cta.b64 [%s4], %s14;
    fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; bar.sync 0; {MEET}
"""
LEAVE = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire; ret;"
# One thread of a pair's CTA loads its half of a tile for both, %s15 times; both give the stage back to both.
SHARE = """
    @!%p0 bra OUT; mov.u32 %s10, 0;
    NEXT: and.b32 %s11, %s10, 1; xor.b32 %s12, %s11, 1;
    A: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%s4], %s12; @!%p1 bra A;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;
    shl.b32 %s7, %s6, 7; add.s32 %s8, %s0, %s7; cvt.u64.u32 %q1, %s7; add.s64 %q2, %d0, %q1; mov.b16 %h1, 3;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%s8], [%q2], 128, [%s1], %h1;
    B: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s1], %s11; @!%p1 bra B;
    mapa.shared::cluster.u32 %s9, %s4, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%s9];
    mapa.shared::cluster.u32 %s9, %s4, 1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%s9];
    add.s32 %s10, %s10, 1; setp.lt.u32 %p4, %s10, %s15; @%p4 bra NEXT; OUT:
"""
# The even CTA of each pair of a cluster of four loads 256 bytes for the pair.
PAIRS = """
    and.b32 %s7, %s6, 1; setp.eq.u32 %p3, %s7, 0; and.pred %p4, %p3, %p0;
    and.b32 %s8, %s6, 2; mov.u32 %s9, 3; shl.b32 %s9, %s9, %s8; cvt.u16.u32 %h1, %s9;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s1], 256;
    @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%s0], [%d0], 256, [%s1], %h1;
    B: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%s1], 0; @!%p1 bra B;
    ld.shared.u32 %r9, [%s3]; st.global.u32 [%d4], %r9;
"""


def shared_tiles() -> Kernel:
    return kernel(SETUP + "mov.u32 %s15, 4;" + SHARE + LEAVE, launch(64, 4, 2), declarations=SHARED)


def grouped() -> Kernel:
    """Two groups of four tiles each, of two and of three blocks of K; a cluster takes two tiles that share one."""
    rows = "div.u32 %s13, %r1, 4; add.s32 %s15, %s13, 2;"
    return kernel(SETUP + rows + SHARE + LEAVE, launch(64, 8, 2), declarations=SHARED)


def pairs() -> Kernel:
    return kernel(SETUP + PAIRS + LEAVE, launch(64, 4, 4), declarations=SHARED)


RASTER = """    return {(tile.m * kUnitX + place.tile_x) * kTileM, (tile.n * kUnitY + place.tile_y) * kTileN,"""
OF_CTAS = """    const u32 cta = index * kClusterX + place.x;  // along N first, in bands of one tile
    return {cta / raster.tiles_n * kTileM, cta % raster.tiles_n * kTileN,"""


@cache
def paired_product() -> Kernel:
    """A Blackwell kernel of the project: 256 x 128 in tiles of 128 x 64, two by two, which a pair computes at once. A
    macro makes the raster take CTAs one by one."""
    p = problem(256, 128, 64)
    (spec,) = sm100.kernels(p, candidate(p, (128, 64), (2, 1, 1), "static", 2))

    @cache
    def text(*macros: str) -> str:
        source = templates.render(spec.template, **spec.context)
        if macros:
            assert source.count(RASTER) == 1
            source = source.replace(RASTER, OF_CTAS)
        headers = templates.headers_for(source)
        return compile_cuda(Unit(spec.kernel.source, source, headers, "sm_100a", spec.kernel.defines)).ptx

    product = "reshape(reshape(A, 256, 64) @ reshape(B, 128, 64).T, 32768)"
    expected = [Expected(buffer="D", formula=product, bound=f"0.01 * abs({product}) + 0.01")]
    shape = resolved(p, spec, case_of(p), "sm_100a").model_copy(update={"expected": expected})
    return Kernel(text, shape, settings=settings(seeds=1))


FAULTS = [
    Fault(
        "a raster that splits a CTA pair",
        WRONG_VALUES,
        paired_product(),
        Macro("RASTER_OF_CTAS"),
        field_case="K17",
    ),
    Fault(
        "a CTA leaves while its peer still arrives on its barriers",
        "EMU_PEER_EXITED",
        shared_tiles(),
        Text(LEAVE, "ret;"),
        field_case="K01",
    ),
    Fault(
        "a cluster takes tiles of two groups with loops of different length",
        "EMU_DEADLOCK",
        grouped(),
        Text("div.u32 %s13, %r1, 4;", "div.u32 %s13, %r1, 3;"),
        field_case="K02",
    ),
    Fault(
        "the mask of a pair is that of the first pair of the cluster",
        "EMU_DATA_RACE",
        pairs(),
        Text("and.b32 %s8, %s6, 2;", "and.b32 %s8, %s6, 0;"),
        field_case="K19",
    ),
    Fault(
        "the bytes of a pair are counted for the whole cluster",
        "EMU_DEADLOCK",
        pairs(),
        Text("_, [%s1], 256;", "_, [%s1], 512;"),
        field_case="K19",
    ),
]
