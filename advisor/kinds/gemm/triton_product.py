"""A persistent TMA matmul written in Triton: a second yardstick beside the vendor's library.

Imports `numerics`, `problem` and `records`; it needs torch and triton, so only a function that has asked for it imports
this module. Five configurations are offered: whoever measures takes the fastest, as Triton's users tune theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from advisor.kinds.gemm.numerics import view_of
from advisor.problem.gemm import GemmProblem
from advisor.records.case import Case

# (tile M, tile N, tile K, warps, stages)
CONFIGS = ((128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 8, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 5))
_GROUP = 8


# Triton reads the annotations of a kernel, and takes none but its own.
@triton.jit  # type: ignore[untyped-decorator]
def _matmul(  # type: ignore[no-untyped-def]
    a,
    b,
    d,
    m,
    n,
    k,
    tm: tl.constexpr,
    tn: tl.constexpr,
    tk: tl.constexpr,
    group: tl.constexpr,
    workers: tl.constexpr,
):
    tiles_m = tl.cdiv(m, tm)
    tiles_n = tl.cdiv(n, tn)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, workers):
        first = tile // (group * tiles_n) * group
        height = min(tiles_m - first, group)
        within = tile - first * tiles_n
        row = (first + within % height) * tm
        column = within // height * tn
        acc = tl.zeros((tm, tn), dtype=tl.float32)
        for block in range(tl.cdiv(k, tk)):
            acc = tl.dot(a.load([row, block * tk]), b.load([column, block * tk]).T, acc)
        d.store([row, column], acc.to(d.dtype))


def products(p: GemmProblem, case: Case, tensors: Mapping[str, Any], sms: int) -> list[tuple[str, Callable[[], None]]]:
    """(configuration, a call) of the product alone; none where operands are not 16-bit, K-major and aligned for TMA."""
    k_major = p.a.major == p.b.major == "k" and p.d.major == "n"
    aligned = all(int(case.arguments[f"ld{name}"]) % 8 == 0 for name in ("a", "b", "d"))
    if not k_major or not aligned or p.batch != 1 or p.a.element_bytes != 2 or p.d.dtype != p.a.dtype:
        return []
    m, n, k = (int(case.arguments[each]) for each in ("m", "n", "k"))
    a, b, d = (view_of(tensors[name.upper()], name, getattr(p, name), case.arguments)[0] for name in ("a", "b", "d"))
    found: list[tuple[str, Callable[[], None]]] = []
    for tm, tn, tk, warps, stages in CONFIGS:
        maps = [
            TensorDescriptor.from_tensor(matrix, [rows, columns])
            for matrix, rows, columns in ((a, tm, tk), (b.T, tn, tk), (d, tm, tn))
        ]
        workers = min(sms, -(-m // tm) * -(-n // tn))
        sizes, how = (m, n, k, tm, tn, tk, _GROUP, workers), {"num_warps": warps, "num_stages": stages}
        found.append((f"{tm}x{tn}x{tk}, {warps} warps, {stages} stages", partial(_launch, workers, maps, sizes, how)))
    return found


def _launch(workers: int, maps: list[Any], sizes: tuple[int, ...], how: Mapping[str, int]) -> None:
    _matmul[(workers,)](*maps, *sizes, **how)
