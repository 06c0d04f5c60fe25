"""Cases of Triton's matrix products and attention that every target can run; `target` is 80, 90 or 100."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.emulator.compilers.data import (
    e8m0_values,
    exact_product,
    fp4_values,
    integers,
    normal,
    product,
    real,
    rounded,
    softmax,
)
from tests.emulator.compilers.harness import Case, Near, Out, Tile

LOG2_E_ERROR = 2.0**-20  # ex2.approx and lg2.approx, their scaling, and weights near 1


def pointers(
    target: int,
    dtype: str,
    shape: tuple[int, int, int],
    tile: tuple[int, int, int],
    *,
    out: str = "float32",
    precision: str = "tf32",
    b_major: str = "n",
    **options: Any,
) -> Case:
    """Masked loads. `shape` and `tile` are (M, N, K); B is [K, N] in memory, or [N, K] with `b_major` k."""
    m, n, k = shape
    if dtype == "int8":
        a, b = integers((m, k), -128, 128, dtype, 1), integers((k, n), -128, 128, dtype, 2)
        near = exact_product(a, b)
        out = "int32"
    else:
        a, b = normal((m, k), dtype, 1), normal((k, n), dtype, 2)
        operand = precision if dtype == "float32" and precision != "ieee" else ""
        near = product(real(a), real(b), out, operand)
    steps = (n, 1) if b_major == "n" else (1, k)
    return Case(
        kernel="kernels_matmul.pointers",
        grid=(-(-m // tile[0]), -(-n // tile[1])),
        arguments={
            "a": a,
            "b": b if b_major == "n" else np.ascontiguousarray(b.T),
            "d": Out((m, n), out),
            "M": m,
            "N": n,
            "K": k,
            "step_am": k,
            "step_ak": 1,
            "step_bk": steps[0],
            "step_bn": steps[1],
        },
        expected={"d": near},
        constants={"BM": tile[0], "BN": tile[1], "BK": tile[2], "PRECISION": precision},
        options=options,
        target=target,
    )


def converted(target: int, left: str, right: str, shape: tuple[int, int, int], tile: tuple[int, int, int]) -> Case:
    """A is converted in registers to the type of B."""
    m, n, k = shape
    a = integers((m, k), -128, 128, left, 1) if left == "int8" else normal((m, k), left, 1)
    b = normal((k, n), right, 2)
    return Case(
        kernel="kernels_matmul.converted",
        grid=(m // tile[0], n // tile[1]),
        arguments={"a": a, "b": b, "d": Out((m, n)), "N": n, "K": k},
        expected={"d": product(real(a), real(b))},
        constants={"BM": tile[0], "BN": tile[1], "BK": tile[2]},
        target=target,
    )


def host_descriptors(
    target: int,
    shape: tuple[int, int, int],
    tile: tuple[int, int, int],
    *,
    dtype: str = "float16",
    out: str = "float16",
    majors: str = "kk",
    warps: bool = False,
    **options: Any,
) -> Case:
    """Tensor maps from the host. `majors`: the contiguous dimension of A ("k" or "m") and of B ("k" or "n")."""
    m, n, k = shape
    bm, bn, bk = tile
    a, b = normal((m, k), dtype, 1), normal((n, k), dtype, 2)
    left = Tile(a, (bm, bk)) if majors[0] == "k" else Tile(np.ascontiguousarray(a.T), (bk, bm))
    right = Tile(b, (bn, bk)) if majors[1] == "k" else Tile(np.ascontiguousarray(b.T), (bk, bn))
    return Case(
        kernel="kernels_matmul.host_descriptors",
        grid=(-(-m // bm), -(-n // bn)),
        arguments={"a": left, "b": right, "d": Tile(Out((m, n), out), (bm, bn)), "K": k},
        expected={"d": product(real(a), real(b).T, out)},
        constants={"A_MAJOR": majors[0], "B_MAJOR": majors[1], "WARPS": warps},
        options=options,
        target=target,
    )


def device_descriptors(
    target: int, shape: tuple[int, int, int], tile: tuple[int, int, int], *, warps: bool = False, **options: Any
) -> Case:
    m, n, k = shape
    a, b = normal((m, k), "float16", 1), normal((n, k), "float16", 2)
    return Case(
        kernel="kernels_matmul.device_descriptors",
        grid=(-(-m // tile[0]), -(-n // tile[1])),
        arguments={"a": a, "b": b, "d": Out((m, n), "float16"), "M": m, "N": n, "K": k},
        expected={"d": product(real(a), real(b).T, "float16")},
        constants={"BM": tile[0], "BN": tile[1], "BK": tile[2], "WARPS": warps},
        options=options,
        target=target,
    )


def padded_sums(target: int) -> Case:
    rows, columns, block_rows, block_columns = 40, 72, 32, 64
    x = integers((rows, columns), -50, 50).astype(np.float32)
    wanted = np.zeros((2, 2, 2))
    for row, column in np.ndindex(2, 2):
        block = x[row * block_rows :, column * block_columns :][:block_rows, :block_columns]
        wanted[row, column] = block.sum(), block_rows * block_columns - block.size
    return Case(
        kernel="kernels_matmul.padded_sums",
        grid=(2, 2),
        arguments={"out": Out((2, 2, 2)), "x": x, "ROWS": rows, "COLUMNS": columns},
        expected={"out": Near(wanted)},
        constants={"BLOCK_ROWS": block_rows, "BLOCK_COLUMNS": block_columns},
        target=target,
    )


def persistent(
    target: int,
    shape: tuple[int, int, int],
    tile: tuple[int, int, int],
    *,
    programs: int,
    warps: bool = False,
    flatten: bool = True,
    dtype: str = "float16",
    **options: Any,
) -> Case:
    m, n, k = shape
    bm, bn, bk = tile
    a, b = normal((m, k), dtype, 1), normal((n, k), dtype, 2)
    return Case(
        kernel="kernels_matmul.persistent",
        grid=(programs,),
        arguments={
            "a": Tile(a, (bm, bk)),
            "b": Tile(b, (bn, bk)),
            "d": Tile(Out((m, n), "float16"), (bm, bn)),
            "M": m,
            "N": n,
            "K": k,
        },
        expected={"d": product(real(a), real(b).T, "float16")},
        constants={"PROGRAMS": programs, "WARPS": warps, "FLATTEN": flatten},
        options=options,
        target=target,
    )


def split_k(target: int, shape: tuple[int, int, int], tile: tuple[int, int, int], slices: int) -> Case:
    m, n, k = shape
    a, b = normal((m, k), "float16", 1), normal((n, k), "float16", 2)
    return Case(
        kernel="kernels_matmul.split_k",
        grid=(m // tile[0], n // tile[1], slices),
        arguments={"a": a, "b": b, "d": Out((m, n), zeros=True), "N": n, "K": k},
        expected={"d": product(real(a), real(b).T)},
        constants={"BM": tile[0], "BN": tile[1], "BK": tile[2], "SLICES": slices},
        target=target,
    )


def batched(target: int, batch: int, shape: tuple[int, int, int]) -> Case:
    """One program, tl.dot of three dimensions."""
    m, n, k = shape
    a, b = normal((batch, m, k), "float16", 1), normal((batch, k, n), "float16", 2)
    return Case(
        kernel="kernels_matmul.batched",
        grid=(1,),
        arguments={"a": a, "b": b, "d": Out((batch, m, n))},
        expected={"d": product(real(a), real(b))},
        constants={"B": batch, "M": m, "N": n, "K": k},
        target=target,
    )


SCALED = {  # operand types of A and B, values per scale
    "mxfp8": ("e4m3", "e5m2", 32),
    "mxfp4": ("e2m1", "e2m1", 32),
    "nvfp4": ("e2m1", "e2m1", 16),
    "mxfp8_mxfp4": ("e4m3", "e2m1", 32),
}


def scaled_operand(kind: str, rows: int, k: int, seed: int) -> tuple[Any, Any]:
    """The stored array of [rows, k] values of one type, and the values."""
    if kind == "e2m1":
        packed = integers((rows, k // 2), 0, 256, "uint8", seed)
        return packed, fp4_values(packed)
    stored = normal((rows, k), {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[kind], seed)
    return stored, real(stored)


def scales(vector: int, rows: int, k: int, seed: int) -> tuple[Any, Any]:
    """One scale for `vector` values along K: ue8m0 for 32, e4m3 for 16."""
    if vector == 16:
        stored = (np.abs(normal((rows, k // 16), "float32", seed)) + 0.25).astype(normal((1,), "float8_e4m3fn").dtype)
        return stored, real(stored)
    exponents = integers((rows, k // 32), 124, 131, "uint8", seed)
    return exponents, e8m0_values(exponents)


def block_scaled(target: int, kind: str, shape: tuple[int, int, int], tile: tuple[int, int, int]) -> Case:
    m, n, k = shape
    a_type, b_type, vector = SCALED[kind]
    a, a_values = scaled_operand(a_type, m, k, 1)
    b, b_values = scaled_operand(b_type, n, k, 2)
    a_scale, a_factors = scales(vector, m, k, 3)
    b_scale, b_factors = scales(vector, n, k, 4)
    left = a_values * np.repeat(a_factors, vector, axis=1)
    right = b_values * np.repeat(b_factors, vector, axis=1)
    return Case(
        kernel="kernels_matmul.block_scaled",
        grid=(m // tile[0], n // tile[1]),
        arguments={
            "a": a,
            "a_scale": a_scale,
            "b": b,
            "b_scale": b_scale,
            "d": Out((m, n)),
            "M": m,
            "N": n,
            "K": k,
        },
        expected={"d": product(left, right.T)},
        constants={
            "A_TYPE": a_type,
            "B_TYPE": b_type,
            "BM": tile[0],
            "BN": tile[1],
            "BK": tile[2],
            "VECTOR": vector,
        },
        target=target,
    )


# --- attention --------------------------------------------------------------------------------------------------------


def attended(q: Any, k: Any, v: Any, scale: float, dtype: str, seen: Any = True) -> tuple[Near, Any]:
    """softmax(q k' scale) v over the last two dimensions. Weights are rounded to the type of v before the product."""
    scores = np.where(seen, (real(q) @ real(k).swapaxes(-1, -2)) * scale, -np.inf)
    weights = softmax(scores)
    relative = (LOG2_E_ERROR + {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]) * 2
    bound = relative * (weights @ np.abs(real(v)))
    return rounded(weights @ real(v), dtype, bound), np.log(np.exp(scores).sum(axis=-1))


def attention_pointers(
    target: int,
    heads: int,
    count: int,
    depth: int,
    *,
    causal: bool,
    dtype: str = "float16",
    rows: int = 64,
    **options: Any,
) -> Case:
    q, k, v = (normal((heads, count, depth), dtype, seed) for seed in (1, 2, 3))
    seen = np.tril(np.ones((count, count), bool)) if causal else True
    scale = depth**-0.5
    near, lse = attended(q, k, v, scale, dtype, seen)
    return Case(
        kernel="kernels_attention.pointers",
        grid=(-(-count // rows), heads),
        arguments={
            "q": q,
            "k": k,
            "v": v,
            "out": Out(q.shape, dtype),
            "lse": Out((heads, count)),
            "count": count,
            "scale": scale,
        },
        expected={"out": near, "lse": Near(lse, 1e-5 * (1 + np.abs(lse)))},
        constants={"BM": rows, "BN": 32, "D": depth, "CAUSAL": causal},
        options=options,
        target=target,
    )


def attention_descriptors(
    target: int,
    heads: int,
    count: int,
    depth: int,
    *,
    warps: bool,
    dtype: str = "float16",
    tile: tuple[int, int] = (64, 64),
    **options: Any,
) -> Case:
    q, k, v = (normal((heads, count, depth), dtype, seed) for seed in (1, 2, 3))
    near, _ = attended(q, k, v, depth**-0.5, dtype)
    flat = (heads * count, depth)
    return Case(
        kernel="kernels_attention.descriptors",
        grid=(count // tile[0], heads),
        arguments={
            "q": Tile(q.reshape(flat), (tile[0], depth)),
            "k": Tile(k.reshape(flat), (tile[1], depth)),
            "v": Tile(v.reshape(flat), (tile[1], depth)),
            "out": Tile(Out(flat, dtype), (tile[0], depth)),
            "count": count,
            "scale": depth**-0.5,
        },
        expected={"out": Near(near.value.reshape(flat), np.asarray(near.bound).reshape(flat))},
        constants={"WARPS": warps},
        options=options,
        target=target,
    )


def attention_decode(target: int, sequences: int, heads: int, longest: int, depth: int) -> Case:
    group = 16
    q = normal((sequences, heads, group, depth), "bfloat16", 1)
    k, v = (normal((sequences, heads, longest, depth), "bfloat16", seed) for seed in (2, 3))
    lengths = integers((sequences,), 1, longest + 1, "int32", 4)
    seen = (np.arange(longest)[None, :] < lengths[:, None])[:, None, None, :]
    near, _ = attended(q, k, v, depth**-0.5, "bfloat16", seen)
    return Case(
        kernel="kernels_attention.decode",
        grid=(sequences, heads),
        arguments={
            "q": q,
            "k": k,
            "v": v,
            "out": Out(q.shape, "bfloat16"),
            "lengths": lengths,
            "heads": heads,
            "longest": longest,
            "scale": depth**-0.5,
        },
        expected={"out": near},
        constants={"GROUP": group, "BN": 32, "D": depth},
        target=target,
    )
