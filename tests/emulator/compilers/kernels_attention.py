"""Triton attention, forward: online softmax over blocks of keys. Imports Triton."""

import triton
import triton.language as tl


@triton.jit
def _accumulate(scores, values, top, total, sums):
    """One block of keys: scores in units of log2, [rows, keys]; values [keys, depth]."""
    higher = tl.maximum(top, tl.max(scores, axis=1))
    weights = tl.exp2(scores - higher[:, None])
    fade = tl.exp2(top - higher)
    sums = tl.dot(weights.to(values.dtype), values, sums * fade[:, None])
    return higher, total * fade + tl.sum(weights, axis=1), sums


@triton.jit
def pointers(q, k, v, out, lse, count, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
             CAUSAL: tl.constexpr):  # fmt: skip
    """[heads, count, D], any count; also the log of the sums, as a backward pass needs it."""
    block = tl.program_id(0)
    base = tl.program_id(1) * count * D
    rows = block * BM + tl.arange(0, BM)
    depth = tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + depth[None, :], mask=rows[:, None] < count, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    end = tl.minimum((block + 1) * BM, count) if CAUSAL else count
    for start in range(0, end, BN):
        keys = start + tl.arange(0, BN)
        inside = keys < count
        key = tl.load(k + base + keys[None, :] * D + depth[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(queries, key) * (scale * 1.4426950408889634)
        seen = inside[None, :]
        if CAUSAL:
            seen = seen & (keys[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        value = tl.load(v + base + keys[:, None] * D + depth[None, :], mask=inside[:, None], other=0.0)
        top, total, sums = _accumulate(scores, value, top, total, sums)
    tl.store(out + base + rows[:, None] * D + depth[None, :], (sums / total[:, None]).to(out.dtype.element_ty),
             mask=rows[:, None] < count)  # fmt: skip
    tl.store(lse + tl.program_id(1) * count + rows, top * 0.6931471805599453 + tl.log(total), mask=rows < count)


@triton.jit
def descriptors(q, k, v, out, count, scale, WARPS: tl.constexpr):
    """[heads * count, D] through tensor maps; every head a multiple of the blocks."""
    BM: tl.constexpr = q.block_shape[0]
    BN: tl.constexpr = k.block_shape[0]
    D: tl.constexpr = q.block_shape[1]
    first = tl.program_id(1) * count
    row = first + tl.program_id(0) * BM
    queries = q.load([row, 0])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for start in tl.range(0, count, BN, warp_specialize=WARPS):
        scores = tl.dot(queries, k.load([first + start, 0]).T) * (scale * 1.4426950408889634)
        top, total, sums = _accumulate(scores, v.load([first + start, 0]), top, total, sums)
    out.store([row, 0], (sums / total[:, None]).to(out.dtype))


@triton.jit
def decode(q, k, v, out, lengths, heads, longest, scale, GROUP: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """One new token per sequence, GROUP query heads for each head of keys; sequences of different length."""
    sequence = tl.program_id(0)
    head = tl.program_id(1)
    length = tl.load(lengths + sequence)
    group = tl.arange(0, GROUP)
    depth = tl.arange(0, D)
    at = ((sequence * heads + head) * GROUP + group)[:, None] * D + depth[None, :]
    queries = tl.load(q + at)
    base = (sequence * heads + head) * longest * D
    top = tl.full((GROUP,), -float("inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    sums = tl.zeros((GROUP, D), tl.float32)
    for start in range(0, length, BN):
        keys = start + tl.arange(0, BN)
        inside = keys < length
        key = tl.load(k + base + keys[None, :] * D + depth[:, None], mask=inside[None, :], other=0.0)
        scores = tl.where(inside[None, :], tl.dot(queries, key) * (scale * 1.4426950408889634), -float("inf"))
        value = tl.load(v + base + keys[:, None] * D + depth[None, :], mask=inside[:, None], other=0.0)
        top, total, sums = _accumulate(scores, value, top, total, sums)
    tl.store(out + at, (sums / total[:, None]).to(out.dtype.element_ty))
