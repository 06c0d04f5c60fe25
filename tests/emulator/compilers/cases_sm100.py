"""Every case for Blackwell (sm_100): tcgen05, tensor memory, CTA pairs, Cluster Launch Control."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.emulator.compilers import cases_blocks as blocks
from tests.emulator.compilers import cases_matmul as matmul
from tests.emulator.compilers.catalogue import Catalogue
from tests.emulator.compilers.data import exact_product, integers, normal, numpy_type, product, real
from tests.emulator.compilers.harness import Case, Gluon, Near, Out, Tile, layout

SM100 = Catalogue()
Bases = Sequence[Sequence[int]]

# --- Triton -----------------------------------------------------------------------------------------------------------

SM100.add("dot_fp16_ragged", partial(matmul.pointers, 100, "float16", (200, 90, 136), (128, 64, 64), out="float16"))
SM100.add("dot_bf16_64_rows", partial(matmul.pointers, 100, "bfloat16", (64, 128, 192), (64, 128, 64), out="bfloat16"))
SM100.add("dot_tf32", partial(matmul.pointers, 100, "float32", (128, 64, 96), (128, 64, 32), b_major="k"))
SM100.add("dot_e4m3", partial(matmul.pointers, 100, "float8_e4m3fn", (128, 64, 256), (128, 64, 128), b_major="k"))
SM100.add("dot_e5m2", partial(matmul.pointers, 100, "float8_e5m2", (128, 64, 128), (128, 64, 128), b_major="k"))
SM100.add("dot_int8", partial(matmul.pointers, 100, "int8", (128, 64, 128), (128, 64, 64), b_major="k"))
SM100.add("dot_converted_a", partial(matmul.converted, 100, "int8", "bfloat16", (128, 64, 192), (128, 64, 64)))
SM100.add("split_k", partial(matmul.split_k, 100, (128, 64, 256), (128, 64, 64), 2))
SM100.add("tma_host", partial(matmul.host_descriptors, 100, (256, 104, 160), (128, 64, 64)))
SM100.add("tma_host_mn_major", partial(matmul.host_descriptors, 100, (128, 128, 128), (128, 64, 64), majors="mn"))
SM100.add("tma_device", partial(matmul.device_descriptors, 100, (256, 128, 160), (128, 64, 64)))
SM100.add("tma_specialized", partial(matmul.host_descriptors, 100, (256, 128, 256), (128, 64, 64), warps=True))
SM100.add("tma_two_ctas", partial(matmul.host_descriptors, 100, (512, 128, 192), (256, 128, 64), num_ctas=2))
SM100.add("tma_device_nan", partial(matmul.padded_sums, 100))
SM100.add("persistent", partial(matmul.persistent, 100, (384, 128, 128), (128, 64, 64), programs=2))
SM100.add(
    "persistent_specialized", partial(matmul.persistent, 100, (384, 192, 128), (128, 64, 64), programs=3, warps=True)
)
SM100.add("clc_option", partial(matmul.host_descriptors, 100, (384, 128, 128), (128, 64, 64), clc=True))
for _kind in matmul.SCALED:
    SM100.add(f"scaled_{_kind}", partial(matmul.block_scaled, 100, _kind, (128, 128, 256), (128, 128, 128)), slow=True)
SM100.add("attention", partial(matmul.attention_pointers, 100, 1, 200, 64, causal=True, rows=128))
SM100.add("attention_tma", partial(matmul.attention_descriptors, 100, 2, 256, 64, warps=False, tile=(128, 64)))
SM100.add(
    "attention_specialized",
    partial(matmul.attention_descriptors, 100, 1, 256, 64, warps=True, tile=(128, 64), dtype="bfloat16"),
)
for _block in blocks.ALL:
    SM100.add(_block.__name__, partial(_block, 100), slow=_block is not blocks.softmax)

# --- Gluon: products --------------------------------------------------------------------------------------------------


def shared(element: Any, swizzle: int = 128, rank: int = 2, **more: Any) -> dict[str, Any]:
    """Arguments of Gluon's layout for tiles of tensor cores."""
    bits = 8 * np.dtype(element).itemsize
    return {"swizzle_byte_width": swizzle, "element_bitwidth": bits, "rank": rank, **more}


def tmem(columns: int, *, rows: int = 128, stride: int = 1, ctas: Bases = (), two: bool = False) -> Gluon:
    """The layout of a tile in tensor memory; `ctas` says which CTA holds what."""
    return layout("TensorMemoryLayout", block=(rows, columns), col_stride=stride, cga_layout=ctas, two_ctas=two)


def operands(dtype: str, m: int, n: int, k: int) -> tuple[Any, Any, Near]:
    """A [m, k], B [n, k], and A B' in fp32 (whole numbers for int8)."""
    if dtype == "int8":
        a, b = integers((m, k), -128, 128, dtype, 1), integers((n, k), -128, 128, dtype, 2)
        return a, b, exact_product(a, b.T)
    a, b = normal((m, k), dtype, 1), normal((n, k), dtype, 2)
    return a, b, product(real(a), real(b).T, operand="tf32" if dtype == "float32" else "")


def one_tile(
    dtype: str = "float16",
    *,
    tile: tuple[int, int, int] = (128, 64, 64),
    grid: tuple[int, int] = (2, 1),
    k: int = 192,
    stages: int = 2,
    majors: str = "kk",
    swizzle: int = 128,
    out: str = "float32",
    sum_type: str = "float32",
    columns: int = 0,
    rows: int = 128,
    ctas: tuple[Bases, Bases, Bases] = ((), (), ()),
    two: bool = False,
    multicast: bool = False,
) -> Case:
    """`ctas` are the bases of A [M, K], B [N, K] and D [M, N]; `columns` and `rows` of the accumulator of one CTA."""
    bm, bn, bk = tile
    m, n = bm * grid[0], bn * grid[1]
    a, b, near = operands(dtype, m, n, k)
    if out != "float32":
        near = product(real(a), real(b).T, out)
    if sum_type == "float16":  # each step is rounded
        magnitude = np.abs(real(a)) @ np.abs(real(b)).T
        near = Near(near.value, 2.0**-10 * (k // 16) * magnitude)

    def side(array: Any, block: tuple[int, int], major: str, bases: Bases) -> Tile:
        if major == "k":
            return Tile(array, block, shared(array.dtype, swizzle, cga_layout=[list(each) for each in bases]))
        turned = [list(reversed(each)) for each in bases]
        return Tile(np.ascontiguousarray(array.T), block[::-1], shared(array.dtype, swizzle, cga_layout=turned))

    spread = [list(each) for each in ctas[2]]
    return Case(
        "kernels_blackwell.one_tile",
        grid,
        {
            "a": side(a, (bm, bk), majors[0], ctas[0]),
            "b": side(b, (bn, bk), majors[1], ctas[1]),
            "d": Tile(Out((m, n), out), (bm, bn), shared(numpy_type(out), cga_layout=spread)),
            "K": k,
        },
        {"d": near},
        {
            "BK": bk,
            "STAGES": stages,
            "ACC": tmem(columns or bn, rows=rows, ctas=ctas[2], two=two, stride=2 if sum_type == "float16" else 1),
            "SUM": Gluon(sum_type),
            "A_MAJOR": majors[0],
            "B_MAJOR": majors[1],
            "MULTICAST": multicast,
        },
        {"num_ctas": 1 << len(ctas[2])},
        100,
    )


PAIR = (((1, 0),), ((1, 0),), ((1, 0),))  # M of A and D in two, N of B in two
SM100.add("gluon_one_cta", one_tile)
SM100.add("gluon_bf16_ring", partial(one_tile, "bfloat16", k=328, stages=3, out="bfloat16"))
SM100.add("gluon_m_major", partial(one_tile, majors="mk"))
SM100.add("gluon_n_major", partial(one_tile, majors="kn"))
SM100.add("gluon_mn_major", partial(one_tile, "bfloat16", majors="mn"))
SM100.add("gluon_swizzle_64", partial(one_tile, tile=(128, 64, 32), swizzle=64))
SM100.add("gluon_swizzle_32", partial(one_tile, tile=(128, 32, 16), swizzle=32, k=64))
SM100.add("gluon_64_rows", partial(one_tile, tile=(64, 64, 64), rows=64))
SM100.add("gluon_256_columns", partial(one_tile, tile=(128, 256, 64), grid=(1, 1)), slow=True)
SM100.add("gluon_tf32", partial(one_tile, "float32", tile=(128, 64, 32), k=96))
SM100.add("gluon_e4m3", partial(one_tile, "float8_e4m3fn", tile=(128, 64, 128), k=256))
SM100.add("gluon_e5m2_n_major", partial(one_tile, "float8_e5m2", tile=(128, 128, 128), k=256, majors="kn"), slow=True)
SM100.add("gluon_int8", partial(one_tile, "int8", tile=(128, 64, 128), k=256, sum_type="int32", out="int32"))
SM100.add("gluon_fp16_sums", partial(one_tile, sum_type="float16", k=64, tile=(128, 64, 64)))
SM100.add("gluon_pair", partial(one_tile, tile=(256, 64, 64), ctas=PAIR, two=True))
SM100.add(
    "gluon_pair_e4m3", partial(one_tile, "float8_e4m3fn", tile=(256, 128, 128), k=256, ctas=PAIR, two=True), slow=True
)
SM100.add("gluon_pair_mn_major", partial(one_tile, tile=(256, 128, 64), ctas=PAIR, two=True, majors="mn"))
SM100.add("gluon_pair_64_rows", partial(one_tile, tile=(128, 64, 64), ctas=PAIR, two=True, rows=64))
SM100.add("gluon_pair_tf32", partial(one_tile, "float32", tile=(256, 64, 32), k=96, ctas=PAIR, two=True))
SM100.add(
    "gluon_pair_int8",
    partial(one_tile, "int8", tile=(256, 64, 128), k=256, sum_type="int32", out="int32", ctas=PAIR, two=True),
)
SM100.add(
    "gluon_multicast_2",
    partial(one_tile, tile=(256, 64, 64), ctas=(((1, 0),), ((0, 0),), ((1, 0),)), multicast=True),
)
SM100.add(
    "gluon_multicast_4",
    partial(
        one_tile,
        tile=(256, 128, 64),
        columns=64,
        ctas=(((1, 0), (0, 0)), ((0, 0), (1, 0)), ((1, 0), (0, 1))),
        multicast=True,
    ),
)
SM100.add(
    "gluon_two_pairs_multicast",
    partial(
        one_tile,
        tile=(256, 128, 64),
        columns=64,
        ctas=(((1, 0), (0, 0)), ((1, 0), (2, 0)), ((1, 0), (0, 1))),
        two=True,
        multicast=True,
    ),
)


def a_from_tensor_memory(dtype: str, ctas: Bases = (), two: bool = False) -> Case:
    bk = 128 // numpy_type(dtype).itemsize
    m, n, k = 128 * (2 if two else 1), 64, 3 * bk
    a, b, near = operands(dtype, 2 * m, n, k)
    double = dtype in ("float16", "bfloat16", "float32")
    if double:
        near = product(2 * real(a), real(b).T, operand="tf32" if dtype == "float32" else "")
    out = "int32" if dtype == "int8" else "float32"
    spread = [list(each) for each in ctas]
    plain = shared(a.dtype, cga_layout=spread)
    return Case(
        "kernels_blackwell.a_from_tensor_memory",
        (2,),
        {
            "a": Tile(a, (m, bk), plain),
            "b": Tile(b, (n, bk), plain),
            "d": Tile(Out((2 * m, n), out), (m, n), shared(np.float32, cga_layout=spread)),
            "K": k,
        },
        {"d": near},
        {
            "BK": bk,
            "ACC": tmem(n, ctas=ctas, two=two),
            "LEFT": tmem(bk, ctas=ctas, two=two),
            "SUM": Gluon(out),
            "DOUBLE": double,
        },
        {"num_ctas": 1 << len(ctas)},
        100,
    )


SM100.add("gluon_a_from_tmem", partial(a_from_tensor_memory, "float16"))
SM100.add("gluon_a_from_tmem_pair", partial(a_from_tensor_memory, "bfloat16", ((1, 0),), True))
for _type, _short in (("float32", "tf32"), ("float8_e4m3fn", "e4m3"), ("int8", "int8")):
    SM100.add(f"gluon_a_from_tmem_{_short}", partial(a_from_tensor_memory, _type), slow=True)
    SM100.add(f"gluon_a_from_tmem_{_short}_pair", partial(a_from_tensor_memory, _type, ((1, 0),), True), slow=True)


def specialized(tile: tuple[int, int, int], tiles: tuple[int, int], *, programs: int, **more: Any) -> Case:
    """Programs walk tiles[0] x tiles[1] tiles."""
    ctas, two, multicast = more.get("ctas", ((), (), ())), more.get("two", False), more.get("multicast", False)
    bm, bn, bk = tile
    m, n, k = bm * tiles[0], bn * tiles[1], 128
    a, b, _ = operands("float16", m, n, k)
    spread = [[list(each) for each in bases] for bases in ctas]
    return Case(
        "kernels_blackwell.specialized",
        (programs,),
        {
            "a": Tile(a, (bm, bk), shared(a.dtype, cga_layout=spread[0])),
            "b": Tile(b, (bn, bk), shared(a.dtype, cga_layout=spread[1])),
            "d": Tile(Out((m, n), "float16"), (bm, bn), shared(a.dtype, cga_layout=spread[2])),
            "tiles_m": tiles[0],
            "tiles": tiles[0] * tiles[1],
            "K": k,
        },
        {"d": product(real(a), real(b).T, "float16")},
        {"BK": bk, "STAGES": 2, "ACC": tmem(more.get("columns", bn), ctas=ctas[2], two=two), "MULTICAST": multicast},
        {"num_ctas": 1 << len(ctas[2])},
        100,
    )


SM100.add("gluon_specialized", partial(specialized, (128, 64, 64), (3, 2), programs=2))
SM100.add("gluon_specialized_pair", partial(specialized, (256, 64, 64), (2, 2), programs=2, ctas=PAIR, two=True))
SM100.add(
    "gluon_specialized_multicast",
    partial(
        specialized,
        (256, 64, 64),
        (2, 2),
        programs=2,
        ctas=(((1, 0),), ((0, 0),), ((1, 0),)),
        multicast=True,
    ),
)

# --- Gluon: Cluster Launch Control ------------------------------------------------------------------------------------


def response(ctas: int) -> Gluon:
    bases = [[0]] * (ctas.bit_length() - 1)
    return layout("SwizzledSharedLayout", vec=1, per_phase=1, max_phase=1, order=(0,), cga_layout=bases)


def clc_matmul(
    tile: tuple[int, int, int], tiles: tuple[int, int], ctas: Bases = (), *, slots: int = 2, counted: bool = True
) -> Case:
    bm, bn, bk = tile
    m, n, k = bm * tiles[0], bn * tiles[1], 128
    a, b, _ = operands("float16", m, n, k)
    plain = shared(a.dtype, cga_layout=[list(each) for each in ctas])
    return Case(
        "kernels_clc.matmul",
        (tiles[0] * tiles[1],),
        {
            "a": Tile(a, (bm, bk), plain),
            "b": Tile(b, (bn, bk), plain),
            "d": Tile(Out((m, n), "float16"), (bm, bn), plain),
            "K": k,
            "tiles_m": tiles[0],
        },
        {"d": product(real(a), real(b).T, "float16")},
        {
            "STAGES": 2,
            "SLOTS": slots,
            "ACC": tmem(bn, ctas=ctas, two=bool(ctas)),
            "RESULT": response(1 << len(ctas)),
            "COUNTED": counted,
        },
        {"num_ctas": 1 << len(ctas)},
        100,
    )


def clc_scaled(ctas: int) -> Case:
    block, programs = 256 * ctas, 9
    x = normal((programs * block,), "float32", 1)
    spread = [[1 << i] for i in range(ctas.bit_length() - 1)]
    blocked = layout(
        "BlockedLayout", size_per_thread=(2,), threads_per_warp=(32,), warps_per_cta=(4,), order=(0,), cga_layout=spread
    )
    return Case(
        "kernels_clc.scaled",
        (programs,),
        {"out": Out(x.shape), "x": x, "factor": 0.25},
        {"out": Near(real(x) / 4)},
        {"BLOCK": block, "LAYOUT": blocked, "RESULT": response(ctas)},
        {"num_ctas": ctas},
        100,
    )


@SM100.case
def gluon_clc_three_dimensions() -> Case:
    return Case(
        "kernels_clc.three_dimensions",
        (3, 4, 2),
        {"out": Out((2, 4, 3), "int32", zeros=True)},
        {"out": Near(np.ones((2, 4, 3)))},
        {"RESULT": response(1)},
        target=100,
    )


SM100.add("gluon_clc", partial(clc_matmul, (128, 64, 64), (3, 3)))
SM100.add("gluon_clc_one_slot", partial(clc_matmul, (128, 64, 64), (3, 3), slots=1))
SM100.add("gluon_clc_pair", partial(clc_matmul, (256, 64, 64), (3, 2), ((1, 0),)))
SM100.add("gluon_clc_alone", partial(clc_scaled, 1))
SM100.add("gluon_clc_multicast_2", partial(clc_scaled, 2))
SM100.add("gluon_clc_multicast_4", partial(clc_scaled, 4))

# --- Gluon: tensor memory ---------------------------------------------------------------------------------------------


def there_and_back(
    store: str, load: str, dtype: str = "float32", *, columns: int = 64, stride: int = 1, rows: int = 128
) -> Case:
    x = normal((rows, columns), dtype, 1)
    return Case(
        "kernels_tmem.there_and_back",
        (1,),
        {"out": Out(x.shape, dtype), "x": x},
        {"out": Near(real(x))},
        {
            "ROWS": rows,
            "COLUMNS": columns,
            "TMEM": tmem(columns, rows=min(rows, 128), stride=stride),
            "STORE": store,
            "LOAD": load,
        },
        target=100,
    )


for _store, _load in (
    ("32x32b", "16x256b"),
    ("16x256b", "16x128b"),
    ("16x128b", "16x64b"),
    ("16x64b", "32x32b"),
):
    SM100.add(f"tmem_{_store}_to_{_load}", partial(there_and_back, _store, _load))
SM100.add("tmem_16x32bx2", partial(there_and_back, "32x32b", "32x32b", rows=64))
SM100.add("tmem_fp16_packed", partial(there_and_back, "32x32b", "16x256b", "float16"))
SM100.add("tmem_fp16_unpacked", partial(there_and_back, "32x32b", "32x32b", "float16", stride=2))
SM100.add("tmem_fp16_unpacked_16x256b", partial(there_and_back, "16x256b", "16x128b", "float16", stride=2))
SM100.add("tmem_fp16_unpacked_16x64b", partial(there_and_back, "16x64b", "16x256b", "float16", stride=2))
SM100.add("tmem_fp16_unpacked_16x128b", partial(there_and_back, "16x128b", "16x64b", "float16", stride=2))
SM100.add("tmem_fp16_unpacked_16x32bx2", partial(there_and_back, "32x32b", "32x32b", "float16", stride=2, rows=64))
SM100.add("tmem_256_columns", partial(there_and_back, "32x32b", "16x64b", columns=256))


@SM100.case
def tmem_slices() -> Case:
    x = normal((128, 64), "float32", 1)
    return Case(
        "kernels_tmem.slices",
        (1,),
        {"out": Out(x.shape), "x": x},
        {"out": Near(np.concatenate([real(x)[:, 32:], 2 * real(x)[:, :32]], axis=1))},
        {"ROWS": 128, "COLUMNS": 64, "TMEM": tmem(64)},
        target=100,
    )


def smallest(absolute: bool) -> Case:
    rows = 128
    x = normal((rows, 64), "float32", 1)
    values = np.abs(real(x)) if absolute else real(x)
    return Case(
        "kernels_tmem.smallest",
        (1,),
        {"out": Out(x.shape), "low": Out((rows,)), "high": Out((rows,)), "x": x},
        {"out": Near(real(x)), "low": Near(values.min(axis=1)), "high": Near(values.max(axis=1))},
        {"ROWS": rows, "COLUMNS": 64, "TMEM": tmem(64, rows=rows), "ABS": absolute},
        target=103,
    )


SM100.add("tmem_smallest", partial(smallest, False))
SM100.add("tmem_smallest_magnitude", partial(smallest, True))


def copied(columns: int, swizzle: int, ctas: Bases = ()) -> Case:
    rows = 128
    x = normal((rows << len(ctas), columns), "float32", 1)
    spread = [list(each) for each in ctas]
    return Case(
        "kernels_tmem.copied",
        (1,),
        {"out": Out(x.shape), "x": x},
        {"out": Near(real(x))},
        {
            "ROWS": rows << len(ctas),
            "COLUMNS": columns,
            "SHARED": layout("NVMMASharedLayout", **shared(x.dtype, swizzle, cga_layout=spread)),
            "TMEM": tmem(columns, rows=rows, ctas=ctas, two=bool(ctas)),
            "CGA": ctas,
        },
        {"num_ctas": 1 << len(ctas)},
        100,
    )


SM100.add("tmem_copied", partial(copied, 64, 128))
SM100.add("tmem_copied_pair", partial(copied, 64, 128, ctas=((1, 0),)))
SM100.add("tmem_copied_swizzle_64", partial(copied, 16, 64))


def _scaled_side(kind: str, rows: int, k: int, block: tuple[int, int], seed: int, ctas: Bases, padded: bool) -> Any:
    stored, values = matmul.scaled_operand(kind, rows, k, seed)
    pack = 2 if kind == "e2m1" else 1
    more = {"fp4_padded": True} if padded else {}
    plain = shared(np.int8, cga_layout=[list(each) for each in ctas], **more)
    return Tile(stored, (block[0], block[1] // pack), plain), values


def block_scaled(kind: str, *, two: bool = False, left: bool = False, k: int = 512, bk: int = 256) -> Case:
    a_type, b_type, vector = matmul.SCALED[kind]
    ctas: Bases = ((1, 0),) if two else ()
    bm, bn = 128 * (2 if two else 1), 128
    mixed = a_type != b_type
    a, a_values = _scaled_side(a_type, 2 * bm, k, (bm, bk), 1, ctas, mixed and a_type == "e2m1")
    b, b_values = _scaled_side(b_type, bn, k, (bn, bk), 2, ctas, mixed and b_type == "e2m1")
    a_scale, a_factors = matmul.scales(vector, 2 * bm, k, 3)
    b_scale, b_factors = matmul.scales(vector, bn, k, 4)
    spread = [list(each) for each in ctas]
    return Case(
        "kernels_tmem.block_scaled",
        (2,),
        {
            "a": a,
            "a_scale": a_scale,
            "b": b,
            "b_scale": b_scale,
            "d": Tile(Out((2 * bm, bn)), (bm, bn), shared(np.float32, cga_layout=spread)),
            "K": k,
        },
        {
            "d": product(
                a_values * np.repeat(a_factors, vector, axis=1), (b_values * np.repeat(b_factors, vector, axis=1)).T
            )
        },
        {
            "A_TYPE": a_type,
            "B_TYPE": b_type,
            "BK": bk,
            "VECTOR": vector,
            "ACC": tmem(bn, ctas=ctas, two=two),
            "LEFT": tmem(a.block[1], ctas=ctas, two=two) if left else None,
            "A_LAYOUT": layout("TensorMemoryScalesLayout", cga_layout=spread),
            "B_LAYOUT": layout("TensorMemoryScalesLayout", cga_layout=[[0, 0]] * len(spread)),
        },
        {"num_ctas": 1 << len(ctas)},
        100,
    )


for _kind in ("mxfp8", "mxfp4", "nvfp4"):
    SM100.add(f"gluon_{_kind}", partial(block_scaled, _kind), slow=_kind != "nvfp4")
    SM100.add(f"gluon_{_kind}_pair", partial(block_scaled, _kind, two=True), slow=True)
    SM100.add(f"gluon_{_kind}_a_from_tmem", partial(block_scaled, _kind, left=True), slow=True)
    SM100.add(f"gluon_{_kind}_a_from_tmem_pair", partial(block_scaled, _kind, left=True, two=True), slow=True)


def _packed(scales: Any) -> Any:
    """[rows, columns] scales in blocks of 128 x 4, each as 32 x 4 x 4 bytes: [rows / 128, columns / 4, 1, 2, 256]."""
    rows, columns = scales.shape
    blocked = scales.reshape(rows // 128, 4, 32, columns // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(blocked).reshape(rows // 128, columns // 4, 1, 2, 256)


def copied_scales(kind: str, *, two: bool = False, k: int = 512, bk: int = 256) -> Case:
    a_type, b_type, vector = matmul.SCALED[kind]
    ctas: Bases = ((1, 0),) if two else ()
    bm, bn = 128 << len(ctas), 128
    a, left = _scaled_side(a_type, bm, k, (bm, bk), 1, ctas, False)
    b, right = _scaled_side(b_type, bn, k, (bn, bk), 2, ctas, False)
    a_scale, a_factors = matmul.scales(vector, bm, k, 3)
    b_scale, b_factors = matmul.scales(vector, bn, k, 4)
    steps = bk // vector // 4
    spread = [list(each) for each in ctas]
    split, whole = ([[first, 0, 0, 0, 0]] * len(ctas) for first in (1, 0))
    return Case(
        "kernels_tmem.copied_scales",
        (1,),
        {
            "a": a,
            "a_scale": Tile(_packed(a_scale), (bm // 128, steps, 1, 2, 256), shared(np.int8, 0, 5, cga_layout=split)),
            "b": b,
            "b_scale": Tile(_packed(b_scale), (1, steps, 1, 2, 256), shared(np.int8, 0, 5, cga_layout=whole)),
            "d": Tile(Out((bm, bn)), (bm, bn), shared(np.float32, cga_layout=spread)),
            "K": k,
        },
        {"d": product(left * np.repeat(a_factors, vector, axis=1), (right * np.repeat(b_factors, vector, axis=1)).T)},
        {
            "A_TYPE": a_type,
            "B_TYPE": b_type,
            "BK": bk,
            "VECTOR": vector,
            "ACC": tmem(bn, ctas=ctas, two=two),
            "A_SCALES": layout("TensorMemoryScalesLayout", cga_layout=spread),
            "B_SCALES": layout("TensorMemoryScalesLayout", cga_layout=[[0, 0]] * len(ctas)),
        },
        {"num_ctas": 1 << len(ctas)},
        100,
    )


SM100.add("gluon_copied_scales_mxfp8", partial(copied_scales, "mxfp8"))
SM100.add("gluon_copied_scales_nvfp4", partial(copied_scales, "nvfp4"))
SM100.add("gluon_copied_scales_mxfp8_pair", partial(copied_scales, "mxfp8", two=True), slow=True)
SM100.add("gluon_copied_scales_nvfp4_pair", partial(copied_scales, "nvfp4", two=True), slow=True)


@SM100.case
def gluon_attention() -> Case:
    count, depth = 256, 64
    q, k, v = (normal((count, depth), "float16", seed) for seed in (1, 2, 3))
    near, _ = matmul.attended(q, k, v, depth**-0.5, "float16")
    plain = shared(q.dtype)
    return Case(
        "kernels_tmem.attention",
        (2,),
        {
            "q": Tile(q, (128, depth), plain),
            "k": Tile(k, (64, depth), plain),
            "v": Tile(v, (64, depth), plain),
            "out": Tile(Out(q.shape, "float16"), (128, depth), plain),
            "count": count,
            "scale": depth**-0.5,
        },
        {"out": near},
        {"ACC": tmem(depth), "SCORES": tmem(64), "WEIGHTS": tmem(64)},
        target=100,
    )


@SM100.case
def gluon_gathered_rows() -> Case:
    rows, columns, block = 100, 64, 32
    x = normal((rows, columns), "float16", 1)
    index = np.random.default_rng(2).permutation(rows)[: 2 * block].astype(np.int32)
    wanted = np.zeros((rows, columns))
    wanted[index] = real(x)[index]
    plain = shared(x.dtype)
    return Case(
        "kernels_tmem.gathered_rows",
        (2,),
        {
            "x": Tile(x, (1, columns), plain),
            "out": Tile(Out(x.shape, "float16", zeros=True), (1, columns), plain),
            "rows": index,
        },
        {"out": Near(wanted)},
        {"STEP": 1, "ROWS": block, "COLUMNS": columns, "SHARED": layout("NVMMASharedLayout", **plain)},
        target=100,
    )


@SM100.case
def gluon_packed_pairs() -> Case:
    x, y = normal((512,), "float32", 1), normal((512,), "float32", 2)
    a, b = real(x), real(y)
    wanted = (a + b) * (a * b) + b
    blocked = layout("BlockedLayout", size_per_thread=(4,), threads_per_warp=(32,), warps_per_cta=(4,), order=(0,))
    return Case(
        "kernels_tmem.packed_pairs",
        (1,),
        {"out": Out((512,)), "x": x, "y": y},
        {"out": Near(wanted, 2.0**-22 * (np.abs(a) + np.abs(b)) * (np.abs(a * b) + 1))},
        {"BLOCK": 512, "LAYOUT": blocked, "add2": Gluon("add2"), "mul2": Gluon("mul2"), "fma2": Gluon("fma2")},
        target=100,
    )
