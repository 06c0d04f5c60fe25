"""Every case for Hopper (sm_90), and the cp.async pipelines of Ampere (sm_80)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tests.emulator.compilers import cases_blocks as blocks
from tests.emulator.compilers import cases_matmul as matmul
from tests.emulator.compilers.catalogue import Catalogue
from tests.emulator.compilers.data import integers, normal, product, real
from tests.emulator.compilers.harness import Case, Near, Out, Tile, layout

SM90 = Catalogue()

# --- Triton: products -------------------------------------------------------------------------------------------------

SM90.add("dot_fp16_ragged", partial(matmul.pointers, 90, "float16", (100, 90, 72), (64, 64, 32), out="float16"))
SM90.add("dot_bf16_pipelined", partial(matmul.pointers, 90, "bfloat16", (128, 128, 192), (128, 128, 64), out="bfloat16",
                                       num_warps=8, num_stages=3))  # fmt: skip
SM90.add("dot_tf32", partial(matmul.pointers, 90, "float32", (64, 128, 96), (64, 64, 32), b_major="k"))
SM90.add("dot_ieee", partial(matmul.pointers, 90, "float32", (64, 64, 32), (64, 64, 16), precision="ieee"))
SM90.add(
    "dot_tf32x3", partial(matmul.pointers, 90, "float32", (64, 64, 64), (64, 64, 32), precision="tf32x3", b_major="k")
)
SM90.add(
    "dot_bf16x3", partial(matmul.pointers, 90, "float32", (64, 64, 64), (64, 64, 32), precision="bf16x3", b_major="k")
)
SM90.add("dot_e4m3", partial(matmul.pointers, 90, "float8_e4m3fn", (64, 128, 256), (64, 64, 64), b_major="k"))
SM90.add("dot_e5m2", partial(matmul.pointers, 90, "float8_e5m2", (64, 64, 128), (64, 64, 64), b_major="k"))
SM90.add("dot_int8", partial(matmul.pointers, 90, "int8", (64, 64, 128), (64, 64, 64), b_major="k"))
SM90.add("dot_register_a", partial(matmul.converted, 90, "int8", "bfloat16", (64, 128, 192), (64, 64, 64)))
SM90.add("dot_batched", partial(matmul.batched, 90, 4, (32, 32, 32)))
SM90.add("split_k", partial(matmul.split_k, 90, (64, 64, 256), (64, 64, 32), 4))
SM90.add("two_ctas", partial(matmul.pointers, 90, "float16", (128, 64, 128), (128, 64, 64), num_ctas=2))
SM90.add("tma_host", partial(matmul.host_descriptors, 90, (192, 104, 160), (64, 64, 64)))
SM90.add("tma_host_mn_major", partial(matmul.host_descriptors, 90, (128, 64, 128), (64, 64, 64), majors="mn"))
SM90.add("tma_host_e4m3", partial(matmul.host_descriptors, 90, (64, 128, 256), (64, 64, 128), dtype="float8_e4m3fn"))
SM90.add("tma_device", partial(matmul.device_descriptors, 90, (128, 192, 160), (64, 64, 64)))
SM90.add("tma_specialized", partial(matmul.device_descriptors, 90, (128, 128, 256), (128, 64, 64), warps=True))
SM90.add("tma_device_nan", partial(matmul.padded_sums, 90))
SM90.add("persistent", partial(matmul.persistent, 90, (192, 128, 160), (64, 64, 64), programs=2))
SM90.add(
    "persistent_specialized", partial(matmul.persistent, 90, (384, 128, 128), (128, 64, 64), programs=2, warps=True)
)
SM90.add(
    "ampere_fp16", partial(matmul.pointers, 80, "float16", (96, 80, 160), (64, 64, 32), out="float16", num_stages=4)
)
SM90.add("ampere_int8", partial(matmul.pointers, 80, "int8", (64, 64, 128), (64, 64, 64), b_major="k"))
SM90.add("ampere_tf32", partial(matmul.pointers, 80, "float32", (64, 64, 96), (64, 64, 32)))

# --- Triton: attention, and blocks of values --------------------------------------------------------------------------

SM90.add("attention", partial(matmul.attention_pointers, 90, 2, 100, 64, causal=False))
SM90.add("attention_causal_bf16", partial(matmul.attention_pointers, 90, 1, 128, 64, causal=True, dtype="bfloat16"))
SM90.add("attention_ampere", partial(matmul.attention_pointers, 80, 1, 96, 32, causal=True))
SM90.add("attention_tma", partial(matmul.attention_descriptors, 90, 2, 128, 64, warps=False))
SM90.add("attention_decode", partial(matmul.attention_decode, 90, 3, 2, 96, 64))
for _block in blocks.ALL:
    SM90.add(_block.__name__, partial(_block, 90))

# --- Gluon ------------------------------------------------------------------------------------------------------------


def shared(element: Any, swizzle: int = 128, rank: int = 2, **more: Any) -> Mapping[str, Any]:
    """Arguments of Gluon's layout for tiles of tensor cores."""
    bits = 8 * np.dtype(element).itemsize
    return {"swizzle_byte_width": swizzle, "element_bitwidth": bits, "rank": rank, **more}


def _ring(dtype: str, n_major: bool) -> Case:
    m, n, k, tile, stages = 192, 128, 200, (64, 64, 64), 3
    a, b = normal((m, k), dtype, 1), normal((n, k), dtype, 2)
    plain = shared(a.dtype)
    right = Tile(np.ascontiguousarray(b.T), (tile[2], tile[1]), plain) if n_major else Tile(b, tile[1:], plain)
    return Case(
        "kernels_hopper.ring",
        (m // tile[0], n // tile[1]),
        {
            "a": Tile(a, (tile[0], tile[2]), plain),
            "b": right,
            "d": Tile(Out((m, n), "float16"), tile[:2], shared(np.float16)),
            "K": k,
        },
        {"d": product(real(a), real(b).T, "float16")},
        {"STAGES": stages, "N_MAJOR": n_major},
    )


SM90.add("gluon_ring", partial(_ring, "float16", False))
SM90.add("gluon_ring_n_major", partial(_ring, "bfloat16", True))


@SM90.case
def gluon_register_a() -> Case:
    a, b = normal((128, 192), "bfloat16", 1), normal((64, 192), "bfloat16", 2)
    plain = shared(a.dtype)
    return Case(
        "kernels_hopper.register_a",
        (2,),
        {
            "a": Tile(a, (64, 64), plain),
            "b": Tile(b, (64, 64), plain),
            "d": Tile(Out((128, 64), "bfloat16"), (64, 64), plain),
            "K": 192,
        },
        {"d": product(2 * real(a), real(b).T, "bfloat16")},
    )


@SM90.case
def gluon_specialized() -> Case:
    a, b = normal((320, 192), "float16", 1), normal((64, 192), "float16", 2)
    plain = shared(a.dtype)
    return Case(
        "kernels_hopper.specialized",
        (2,),
        {
            "a": Tile(a, (64, 64), plain),
            "b": Tile(b, (64, 64), plain),
            "d": Tile(Out((320, 64), "float16"), (64, 64), plain),
            "tiles": 5,
            "K": 192,
        },
        {"d": product(real(a), real(b).T, "float16")},
        {"STAGES": 2},
    )


def _multicast(split_m: int, split_n: int) -> Case:
    """A cluster of split_m x split_n CTAs, 64 x 32 each."""
    m, n, k = 64 * split_m, 32 * split_n, 192
    a, b = normal((2 * m, k), "float16", 1), normal((n, k), "float16", 2)
    along_m, along_n = split_m.bit_length() - 1, split_n.bit_length() - 1
    rows = [[1 << i, 0] for i in range(along_m)]
    spread = [[0, 0]] * along_n
    cga_a = rows + spread
    cga_b = [[0, 0]] * along_m + [[1 << i, 0] for i in range(along_n)]
    cga_d = rows + [[0, 1 << i] for i in range(along_n)]
    return Case(
        "kernels_hopper.multicast",
        (2,),
        {
            "a": Tile(a, (m, 64), shared(a.dtype, cga_layout=cga_a)),
            "b": Tile(b, (n, 64), shared(b.dtype, cga_layout=cga_b)),
            "d": Tile(Out((2 * m, n), "float16"), (m, n), shared(a.dtype, 64, cga_layout=cga_d)),
            "K": k,
        },
        {"d": product(real(a), real(b).T, "float16")},
        {"STAGES": 2, "CGA": _hashable(cga_d)},
        {"num_ctas": split_m * split_n},
    )


def _hashable(bases: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each) for each in bases)


SM90.add("gluon_multicast_2", partial(_multicast, 2, 1))
SM90.add("gluon_multicast_4", partial(_multicast, 2, 2))
SM90.add("gluon_multicast_4_along_n", partial(_multicast, 1, 4))


def _cluster_rows(ctas: int) -> Case:
    x = normal((8, 900), "float32", 1, scale=3)
    return Case(
        "kernels_hopper.cluster_rows",
        (2,),
        {"out": Out(x.shape), "x": x, "columns": 900},
        {"out": blocks.softmax_near(x)},
        {"COLUMNS": 1024, "ROWS": 4, "CGA": tuple((0, 1 << i) for i in range(ctas.bit_length() - 1))},
        {"num_ctas": ctas},
    )


SM90.add("gluon_cluster_rows_2", partial(_cluster_rows, 2))
SM90.add("gluon_cluster_rows_4", partial(_cluster_rows, 4))


@SM90.case
def gluon_cluster_transpose() -> Case:
    x = normal((64, 64), "float32", 1)
    return Case(
        "kernels_hopper.cluster_transpose",
        (1,),
        {"out": Out((64, 64)), "x": x},
        {"out": Near(real(x).T)},
        {"ROWS": 64, "COLUMNS": 64, "FROM": ((1, 0), (2, 0)), "TO": ((0, 1), (0, 2))},
        {"num_ctas": 4},
        warnings=frozenset({"EMU_DSMEM_UNCOALESCED"}),  # a transposition reads columns
    )


@SM90.case
def gluon_ampere_pipeline() -> Case:
    a, b = normal((100, 160), "float16", 1), normal((90, 160), "float16", 2)
    return Case(
        "kernels_hopper.ampere_pipeline",
        (2, 2),
        {"a": a, "b": b, "d": Out((100, 90), "float16"), "M": 100, "N": 90, "K": 160},
        {"d": product(real(a), real(b).T, "float16")},
        {"BM": 64, "BN": 64, "BK": 32, "STAGES": 3},
        target=80,
    )


@SM90.case
def gluon_copies_arrive() -> Case:
    x = integers((5, 512), -40, 40).astype(np.float32)
    return Case(
        "kernels_hopper.copies_arrive",
        (1,),
        {"out": Out((512,)), "x": x},
        {"out": Near(real(x).sum(axis=0))},
        {"SIZE": 512, "ROUNDS": 5},
    )


def _volumes(shape: tuple[int, ...], block: tuple[int, ...], swizzle: int, reduce: bool) -> Case:
    x = integers(shape, -100, 100).astype(np.float16)
    plain = shared(x.dtype, swizzle, len(shape))
    return Case(
        "kernels_hopper.volumes",
        (1,),
        {"x": Tile(x, block, plain), "out": Tile(Out(shape, "float16", zeros=reduce), block, plain)},
        {"out": Near(real(x))},
        {"REDUCE": reduce},
    )


SM90.add("gluon_volume_1d", partial(_volumes, (300,), (128,), 0, False))
SM90.add("gluon_volume_1d_reduce", partial(_volumes, (300,), (128,), 0, True))
SM90.add("gluon_volume_2d_reduce", partial(_volumes, (20, 96), (8, 64), 128, True))
SM90.add("gluon_volume_3d", partial(_volumes, (6, 10, 32), (2, 4, 32), 64, False))
SM90.add("gluon_volume_4d_reduce", partial(_volumes, (3, 5, 4, 64), (2, 2, 4, 64), 128, True))
SM90.add("gluon_volume_5d_reduce", partial(_volumes, (3, 4, 2, 2, 16), (2, 4, 2, 2, 16), 32, True))
SM90.add("gluon_volume_3d_reduce", partial(_volumes, (6, 10, 32), (2, 4, 32), 64, True))
SM90.add("gluon_volume_4d", partial(_volumes, (3, 5, 4, 64), (2, 2, 4, 64), 128, False))
SM90.add("gluon_volume_5d", partial(_volumes, (3, 4, 2, 2, 16), (2, 4, 2, 2, 16), 32, False))


@SM90.case
def gluon_bitwise_reductions() -> Case:
    rows, columns, programs = 16, 32, 3
    x = integers((programs * rows, columns), -(2**31), 2**31, "int32", 1)
    stacked = x.reshape(programs, rows, columns)
    block, plain = (rows, columns), shared(np.int32)
    zeros = Out(block, "int32", zeros=True)
    return Case(
        "kernels_hopper.bitwise",
        (programs,),
        {
            "both": Tile(zeros, block, plain),
            "any_": Tile(zeros, block, plain),
            "lows": Tile(zeros, block, plain),
            "x": Tile(x, block, plain),
        },
        {
            "both": Near(np.zeros(block)),
            "any_": Near(np.bitwise_or.reduce(stacked, axis=0)),
            "lows": Near(np.minimum(stacked.min(axis=0), 0)),
        },
    )


def _spread(block: tuple[int, ...]) -> Case:
    """A box to two CTAs."""
    rank, count = len(block), int(np.prod(block))
    x = normal(block, "float32", 1)
    return Case(
        "kernels_hopper.spread",
        (1,),
        {"x": Tile(x, block, shared(x.dtype, 0, rank, cga_layout=[[0] * rank])), "out": Out((count,))},
        {"out": Near(real(x).reshape(-1))},
        {
            "COUNT": count,
            "RANK": rank,
            "LAYOUT": layout(
                "BlockedLayout",
                size_per_thread=[1] * rank,
                threads_per_warp=[1] * (rank - 1) + [32],
                warps_per_cta=[4] + [1] * (rank - 1) if rank > 1 else [4],
                order=list(range(rank))[::-1],
                cga_layout=[[0] * rank],
            ),
            "CGA": ((1,),),
        },
        {"num_ctas": 2},
    )


SM90.add("gluon_multicast_1d", partial(_spread, (256,)))
SM90.add("gluon_multicast_3d", partial(_spread, (4, 2, 32)))
SM90.add("gluon_multicast_4d", partial(_spread, (4, 2, 2, 32)))
SM90.add("gluon_multicast_5d", partial(_spread, (4, 2, 2, 2, 32)))


def _blocked(ctas: Any) -> Any:
    return layout(
        "BlockedLayout", size_per_thread=(4,), threads_per_warp=(32,), warps_per_cta=(4,), order=(0,), cga_layout=ctas
    )


@SM90.case
def gluon_pushed() -> Case:
    x = normal((1024,), "float32", 1)
    return Case(
        "kernels_hopper.pushed",
        (1,),
        {"out": Out((1024,)), "x": x},
        {"out": Near(3 * real(x), 2.0**-22 * np.abs(real(x)))},
        {
            "SIZE": 1024,
            "LAYOUT": layout(  # 128 values in turn from either CTA; the first half belongs to CTA 0
                "DistributedLinearLayout",
                reg_bases=[[1], [2]],
                lane_bases=[[4], [8], [16], [32], [64]],
                warp_bases=[[256], [512]],
                block_bases=[[128]],
                shape=[1024],
            ),
            "OWN": _blocked([[1]]),
            "SHARED": layout("SwizzledSharedLayout", vec=1, per_phase=1, max_phase=1, order=(0,), cga_layout=[[1]]),
        },
        {"num_ctas": 2},
    )


@SM90.case
def gluon_counted_arrivals() -> Case:
    x = normal((1024,), "float32", 1)
    return Case(
        "kernels_hopper.counted_arrivals",
        (1,),
        {"out": Out((1024,)), "x": x},
        {"out": Near(2 * real(x))},
        {"SIZE": 1024, "LAYOUT": _blocked([[1]])},
        {"num_ctas": 2},
    )
