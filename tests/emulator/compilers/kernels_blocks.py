"""Triton kernels that work on blocks of values: rows, scans, reductions, sorts, atomics. Imports Triton."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def softmax(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=-float("inf"))
    weights = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, weights / tl.sum(weights, axis=0), mask=inside)


@triton.jit
def layernorm(out, mean, rstd, x, gain, shift, columns, epsilon, BLOCK: tl.constexpr):
    """Walks the row in blocks, twice, and keeps the statistics."""
    row = tl.program_id(0)
    x += row * columns
    out += row * columns
    sums = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        sums += values
        squares += values * values
    mu = tl.sum(sums) / columns
    inverse = 1 / tl.sqrt(tl.sum(squares) / columns - mu * mu + epsilon)
    tl.store(mean + row, mu)
    tl.store(rstd + row, inverse)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        scaled = (values - mu) * inverse * tl.load(gain + at, mask=inside) + tl.load(shift + at, mask=inside)
        tl.store(out + at, scaled.to(out.dtype.element_ty), mask=inside)


@triton.jit
def rmsnorm(out, x, gain, rows, columns, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Several rows per program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (at[None, :] < columns)
    values = tl.load(x + row[:, None] * columns + at[None, :], mask=inside, other=0.0).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(values * values, axis=1) / columns + epsilon)
    scaled = values * inverse[:, None] * tl.load(gain + at, mask=at < columns, other=0.0)[None, :]
    tl.store(out + row[:, None] * columns + at[None, :], scaled.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _after(a_decay, a_value, b_decay, b_value):
    return a_decay * b_decay, a_value * b_decay + b_value


@triton.jit
def scans(sums, products, backwards, linear, x, decay, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    values = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(values, axis=1))
    tl.store(products + at, tl.cumprod(tl.abs(values), axis=0))
    tl.store(backwards + at, tl.cumsum(values, axis=0, reverse=True))
    _, states = tl.associative_scan((tl.load(decay + at), values), 1, _after)
    tl.store(linear + at, states)


@triton.jit
def histogram(out, x, count, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    found = tl.histogram(tl.load(x + at, mask=inside, other=0), BINS, mask=inside)
    tl.atomic_add(out + tl.arange(0, BINS), found)


@triton.jit
def atomics(f32, f16, i32, u32, i64, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * BLOCK + at)
    slot = at % 8
    real = values.to(tl.float32)
    tl.atomic_add(f32 + slot, real)
    tl.atomic_max(f32 + 8 + slot, real)
    tl.atomic_min(f32 + 16 + slot, real)
    tl.atomic_add(f16 + at, values.to(tl.float16))
    tl.atomic_add(i32 + slot, values)
    tl.atomic_max(i32 + 8 + slot, values)
    tl.atomic_min(i32 + 16 + slot, values)
    tl.atomic_and(i32 + 24 + slot, values)
    tl.atomic_or(i32 + 32 + slot, values)
    tl.atomic_xor(i32 + 40 + slot, values)
    tl.atomic_max(u32 + slot, values.to(tl.uint32, bitcast=True))
    tl.atomic_min(u32 + 8 + slot, values.to(tl.uint32, bitcast=True))
    tl.atomic_add(i64 + slot, values.to(tl.int64) * 1000003, sem="relaxed")
    tl.atomic_max(i64 + 8 + slot, values.to(tl.int64) << 33, scope="sys")


@triton.jit
def locked(out, lock, x, BLOCK: tl.constexpr):
    """A spin lock around a read, an addition and a write."""
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at) + values)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_one_sums(out, partial, arrived, x, BLOCK: tl.constexpr):
    """Each program leaves a partial row; the one that arrives last adds them up."""
    at = tl.arange(0, BLOCK)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    tl.store(partial + program * BLOCK + at, tl.load(x + program * BLOCK + at) * 2)
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1, sem="acq_rel") == programs - 1:
        sums = tl.zeros((BLOCK,), tl.float32)
        for each in range(programs):
            sums += tl.load(partial + each * BLOCK + at, cache_modifier=".cg")
        tl.store(out + at, sums)


@triton.jit
def reductions(over_rows, over_columns, largest, where_largest, smallest, bits, total, x, words,
               ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    row = tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * COLUMNS + column[None, :]
    values = tl.load(x + at)
    tl.store(over_rows + column, tl.sum(values, axis=0))
    tl.store(over_columns + row, tl.sum(values, axis=1))
    best, index = tl.max(values, axis=1, return_indices=True)
    tl.store(largest + row, best)
    tl.store(where_largest + row, index)
    tl.store(smallest + column, tl.argmin(values, axis=0))
    tl.store(bits + column, tl.xor_sum(tl.load(words + at), axis=0))
    tl.store(total, tl.sum(values))


@triton.jit
def transpose(out, x, ROWS: tl.constexpr, COLUMNS: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr):
    """[planes, rows, columns] to [columns, planes, rows]: within registers and through shared memory."""
    plane = tl.arange(0, D0)[:, None, None]
    row = tl.arange(0, ROWS)[None, :, None]
    column = tl.arange(0, COLUMNS)[None, None, :]
    values = tl.permute(tl.load(x + (plane * ROWS + row) * COLUMNS + column), (2, 0, 1))
    flat = tl.reshape(values, (COLUMNS, D0 * ROWS))
    at = tl.arange(0, COLUMNS)[:, None] * (D0 * ROWS) + tl.arange(0, D0 * ROWS)[None, :]
    tl.store(out + at, flat)


@triton.jit
def gathers(along_columns, along_rows, looked_up, x, index, table, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(x + at)
    chosen = tl.load(index + at)
    tl.store(along_columns + at, tl.gather(values, chosen % COLUMNS, axis=1))
    tl.store(along_rows + at, tl.gather(values, chosen % ROWS, axis=0))
    tl.store(looked_up + at, tl.load(table + chosen))


@triton.jit
def sorts(ascending, descending, best, x, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr):
    row = tl.arange(0, ROWS)
    at = row[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(x + at)
    tl.store(ascending + at, tl.sort(values, dim=1))
    tl.store(descending + at, tl.sort(values, dim=1, descending=True))
    tl.store(best + row[:, None] * K + tl.arange(0, K)[None, :], tl.topk(values, K, dim=1))


@triton.jit
def shuffles(joined, halves, mirrored, mixed, x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = tl.load(y + at)
    tl.store(joined + tl.arange(0, 2 * BLOCK), tl.interleave(a, b))
    even, odd = tl.split(tl.reshape(a, (BLOCK // 2, 2)))
    tl.store(halves + tl.arange(0, BLOCK // 2), even - odd)
    tl.store(mirrored + at, tl.flip(a))
    tl.store(mixed + tl.arange(0, 2 * BLOCK), tl.reshape(tl.permute(tl.join(a, b), (1, 0)), (2 * BLOCK,)))


@triton.jit
def inline_asm(mixed, packed, clamped, x, y, f, BLOCK: tl.constexpr):
    """PTX by hand, within a kernel: four bytes at a time, two results, and a predicate of its own."""
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = tl.load(y + at)
    halves = tl.inline_asm_elementwise(
        "{ .reg .b32 t; lop3.b32 t, $1, $2, 0x0f0f0f0f, 0xe4; prmt.b32 $0, t, t, 0x2301; }",
        "=r,r,r", [a, b], dtype=tl.int8, is_pure=True, pack=4,
    )  # fmt: skip
    tl.store(mixed + at, halves)
    values = tl.load(f + at)
    low, high = tl.inline_asm_elementwise(
        "{ .reg .b32 t; cvt.rn.bf16x2.f32 t, $2, $2; and.b32 $0, t, 0xffff; shr.u32 $1, t, 16; }",
        "=r,=r,f", [values], dtype=(tl.int32, tl.int32), is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(packed + at, low + high)
    limited = tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.f32 p, $1, 0f3F800000; selp.f32 $0, 0f3F800000, $1, p; }",
        "=f,f", [values], dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(clamped + at, limited)


@triton.jit
def dropout(out, words, x, keep, key, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(key, at) < keep
    tl.store(words + at, tl.randint(key, at))
    tl.store(out + at, tl.where(kept, tl.load(x + at) / keep, 0.0))


@triton.jit
def functions(out, x, y, BLOCK: tl.constexpr):
    """One row of results per function."""
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = tl.load(y + at)
    tl.store(out + 0 * BLOCK + at, tl.exp(a))
    tl.store(out + 1 * BLOCK + at, tl.exp2(a))
    tl.store(out + 2 * BLOCK + at, tl.log(b))
    tl.store(out + 3 * BLOCK + at, tl.log2(b))
    tl.store(out + 4 * BLOCK + at, tl.sin(a))
    tl.store(out + 5 * BLOCK + at, tl.cos(a))
    tl.store(out + 6 * BLOCK + at, tl.sqrt(b))
    tl.store(out + 7 * BLOCK + at, tl.rsqrt(b))
    tl.store(out + 8 * BLOCK + at, tl.erf(a))
    tl.store(out + 9 * BLOCK + at, tl.sigmoid(a))
    tl.store(out + 10 * BLOCK + at, tl.floor(a) + tl.ceil(b))
    tl.store(out + 11 * BLOCK + at, tl.div_rn(a, b))
    tl.store(out + 12 * BLOCK + at, tl.fma(a, b, a))
    tl.store(out + 13 * BLOCK + at, libdevice.tanh(a))
    tl.store(out + 14 * BLOCK + at, libdevice.pow(b, a))
    tl.store(out + 15 * BLOCK + at, libdevice.atan2(a, b))


@triton.jit
def whole_numbers(quotients, remainders, high, wide, counts, x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = tl.load(y + at)
    tl.store(quotients + at, a // b)
    tl.store(remainders + at, a % b)
    tl.store(high + at, tl.umulhi(a.to(tl.uint32, bitcast=True), b.to(tl.uint32, bitcast=True)))
    tl.store(wide + at, (a.to(tl.int64) * 1234567) // b.to(tl.int64))
    tl.store(counts + at, libdevice.popc(a) + 64 * libdevice.clz(a))


@triton.jit
def casts(half, brain, e4m3, e5m2, double, small, back, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(half + at, values.to(tl.float16))
    tl.store(brain + at, values.to(tl.bfloat16))
    tl.store(e4m3 + at, values.to(tl.float8e4nv))
    tl.store(e5m2 + at, values.to(tl.float8e5))
    tl.store(double + at, values.to(tl.float64) * 3.0)
    tl.store(small + at, values.to(tl.int8))
    tl.store(back + at, values.to(tl.float8e4nv).to(tl.float32) + values.to(tl.float8e5).to(tl.float16).to(tl.float32))


@triton.jit
def collatz(steps, x, BLOCK: tl.constexpr):
    """A loop whose length depends on the data."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)
    taken = tl.zeros((BLOCK,), tl.int32)
    running = tl.max((values > 1).to(tl.int32), axis=0)
    while running > 0:
        odd = (values & 1) == 1
        following = tl.where(odd, 3 * values + 1, values >> 1)
        taken += tl.where(values > 1, 1, 0)
        values = tl.where(values > 1, following, values)
        running = tl.max((values > 1).to(tl.int32), axis=0)
    tl.store(steps + at, taken)


@triton.jit
def cross_entropy(loss, gradient, logits, labels, columns, BLOCK: tl.constexpr):
    """Running maximum and sum over blocks of the row, then the gradient in a second walk."""
    row = tl.program_id(0)
    logits += row * columns
    label = tl.load(labels + row)
    top = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(logits + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(values))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(values - higher))
        top = higher
    tl.store(loss + row, top + tl.log(total) - tl.load(logits + label).to(tl.float32))
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        values = tl.load(logits + at, mask=inside, other=-float("inf")).to(tl.float32)
        share = tl.exp(values - top) / total - tl.where(at == label, 1.0, 0.0)
        tl.store(gradient + row * columns + at, share, mask=inside)


@triton.jit
def descriptor_reductions(sums, lows, highs, bits, x, words):
    """Tensor reductions into global memory, every program onto the same tile."""
    ROWS: tl.constexpr = x.block_shape[0]
    row = tl.program_id(0) * ROWS
    values = x.load([row, 0])
    sums.atomic_add([0, 0], values)
    lows.atomic_min([0, 0], words.load([row, 0]))
    highs.atomic_max([0, 0], words.load([row, 0]))
    bits.atomic_xor([0, 0], words.load([row, 0]))
