"""Triton matrix products, for every target: pointers, tensor descriptors, persistent, scaled. Imports Triton."""

import triton
import triton.language as tl


@triton.jit
def pointers(a, b, d, M, N, K, step_am, step_ak, step_bk, step_bn,
             BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr = "tf32"):  # fmt: skip
    """Masked loads of any strides; any M, N, K."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=tl.float32 if not a.dtype.element_ty.is_int() else tl.int32)
    for k in range(0, K, BK):
        ks = k + inner
        left = tl.load(a + rows[:, None] * step_am + ks[None, :] * step_ak,
                       mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)  # fmt: skip
        right = tl.load(b + ks[:, None] * step_bk + columns[None, :] * step_bn,
                        mask=(ks[:, None] < K) & (columns[None, :] < N), other=0.0)  # fmt: skip
        sums = tl.dot(left, right, sums, input_precision=PRECISION)
    tl.store(d + rows[:, None] * N + columns[None, :], sums.to(d.dtype.element_ty),
             mask=(rows[:, None] < M) & (columns[None, :] < N))  # fmt: skip


@triton.jit
def host_descriptors(a, b, d, K, A_MAJOR: tl.constexpr = "k", B_MAJOR: tl.constexpr = "k",
                     WARPS: tl.constexpr = False):  # fmt: skip
    """One tile per program; A is [M, K] or [K, M] in memory, B is [N, K] or [K, N]."""
    BM: tl.constexpr = d.block_shape[0]
    BN: tl.constexpr = d.block_shape[1]
    BK: tl.constexpr = a.block_shape[1] if A_MAJOR == "k" else a.block_shape[0]
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=WARPS):
        left = a.load([row, k]) if A_MAJOR == "k" else a.load([k, row]).T
        right = b.load([column, k]).T if B_MAJOR == "k" else b.load([k, column])
        sums = tl.dot(left, right, sums)
    d.store([row, column], sums.to(d.dtype))


@triton.jit
def device_descriptors(a, b, d, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                       WARPS: tl.constexpr = False):  # fmt: skip
    """The kernel encodes its own tensor maps into global scratch."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    out = tl.make_tensor_descriptor(d, [M, N], [N, 1], [BM, BN])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=WARPS):
        sums = tl.dot(left.load([row, k]), right.load([column, k]).T, sums)
    out.store([row, column], sums.to(d.dtype.element_ty))


@triton.jit
def padded_sums(out, x, ROWS, COLUMNS, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """Sums of blocks that reach over the edges, where the kernel's own tensor map gives NaN."""
    tensor = tl.make_tensor_descriptor(x, [ROWS, COLUMNS], [COLUMNS, 1], [BLOCK_ROWS, BLOCK_COLUMNS],
                                       padding_option="nan")  # fmt: skip
    row = tl.program_id(0)
    values = tensor.load([row * BLOCK_ROWS, tl.program_id(1) * BLOCK_COLUMNS])
    missing = tl.sum((values != values).to(tl.int32))
    total = tl.sum(tl.where(values == values, values, 0.0))
    at = out + 2 * (row * tl.num_programs(1) + tl.program_id(1))
    tl.store(at, total)
    tl.store(at + 1, missing.to(tl.float32))


@triton.jit
def persistent(a, b, d, M, N, K, PROGRAMS: tl.constexpr, WARPS: tl.constexpr, FLATTEN: tl.constexpr = True):
    """A fixed number of programs walk the tiles."""
    BM: tl.constexpr = a.block_shape[0]
    BN: tl.constexpr = b.block_shape[0]
    BK: tl.constexpr = a.block_shape[1]
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN, warp_specialize=WARPS):
        row = tile // across * BM
        column = tile % across * BN
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(a.load([row, k]), b.load([column, k]).T, sums)
        d.store([row, column], sums.to(d.dtype))


@triton.jit
def block_scaled(a, a_scale, b, b_scale, d, M, N, K, A_TYPE: tl.constexpr, B_TYPE: tl.constexpr, BM: tl.constexpr,
                 BN: tl.constexpr, BK: tl.constexpr, VECTOR: tl.constexpr):  # fmt: skip
    """tl.dot_scaled over K-major operands; fp4 is packed in pairs along K. BK counts values."""
    A_PACK: tl.constexpr = 2 if A_TYPE == "e2m1" else 1
    B_PACK: tl.constexpr = 2 if B_TYPE == "e2m1" else 1
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    a_inner = tl.arange(0, BK // A_PACK)
    b_inner = tl.arange(0, BK // B_PACK)
    s_inner = tl.arange(0, BK // VECTOR)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * (K // A_PACK) + (k // A_PACK + a_inner)[None, :])
        right = tl.load(b + columns[None, :] * (K // B_PACK) + (k // B_PACK + b_inner)[:, None])
        left_scale = tl.load(a_scale + rows[:, None] * (K // VECTOR) + (k // VECTOR + s_inner)[None, :])
        right_scale = tl.load(b_scale + columns[:, None] * (K // VECTOR) + (k // VECTOR + s_inner)[None, :])
        sums = tl.dot_scaled(left, left_scale, A_TYPE, right, right_scale, B_TYPE, sums)
    tl.store(d + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def converted(a, b, d, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A is converted to the type of B on its way: it reaches the product in registers."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        sums = tl.dot(left.to(b.dtype.element_ty), right, sums)
    tl.store(d + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def split_k(a, b, d, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SLICES: tl.constexpr):
    """Each slice of K is added to the result atomically."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.program_id(2) * BK + tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK * SLICES):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + columns[None, :] * K + (k + inner)[:, None])
        sums = tl.dot(left, right, sums)
    tl.atomic_add(d + rows[:, None] * N + columns[None, :], sums, sem="relaxed")


@triton.jit
def batched(a, b, d, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    each = tl.arange(0, B)[:, None, None]
    row = tl.arange(0, M)[None, :, None]
    column = tl.arange(0, N)[None, None, :]
    left = tl.load(a + (each * M + row) * K + tl.arange(0, K)[None, None, :])
    right = tl.load(b + (each * K + tl.arange(0, K)[None, :, None]) * N + column)
    tl.store(d + (each * M + row) * N + column, tl.dot(left, right))
