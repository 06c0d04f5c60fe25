"""Gluon kernels for Blackwell: what moves through tensor memory, and products with block scales. Imports Triton."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)


@gluon.jit
def _offsets(ROWS: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr):
    row = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
    return row[:, None] * COLUMNS + column[None, :]


@gluon.jit
def there_and_back(out, x, ROWS: gl.constexpr, COLUMNS: gl.constexpr, TMEM: gl.constexpr, STORE: gl.constexpr,
                   LOAD: gl.constexpr):  # fmt: skip
    """Into tensor memory with one shape of instruction, out of it with another."""
    memory = allocate_tensor_memory(x.dtype.element_ty, [ROWS, COLUMNS], TMEM)
    source: gl.constexpr = memory.get_reg_layout(instr_variant=STORE)
    target: gl.constexpr = memory.get_reg_layout(instr_variant=LOAD)
    memory.store(gl.load(x + _offsets(ROWS, COLUMNS, source)))
    values = memory.load(target)
    gl.store(out + _offsets(ROWS, COLUMNS, target), values)


@gluon.jit
def smallest(out, low, high, x, ROWS: gl.constexpr, COLUMNS: gl.constexpr, TMEM: gl.constexpr, ABS: gl.constexpr):
    """Loads that also give the least and the greatest of each row (sm_103)."""
    memory = allocate_tensor_memory(x.dtype.element_ty, [ROWS, COLUMNS], TMEM)
    layout: gl.constexpr = memory.get_reg_layout()
    memory.store(gl.load(x + _offsets(ROWS, COLUMNS, layout)))
    values, least = memory.load_min(layout, abs=ABS)
    _, greatest = memory.load_max(layout, abs=ABS)
    rows: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    gl.store(out + _offsets(ROWS, COLUMNS, layout), values)
    gl.store(low + gl.arange(0, ROWS, rows), gl.convert_layout(least, rows))
    gl.store(high + gl.arange(0, ROWS, rows), gl.convert_layout(greatest, rows))


@gluon.jit
def slices(out, x, ROWS: gl.constexpr, COLUMNS: gl.constexpr, TMEM: gl.constexpr):
    """The halves of a tile change places within tensor memory."""
    HALF: gl.constexpr = COLUMNS // 2
    memory = allocate_tensor_memory(x.dtype.element_ty, [ROWS, COLUMNS], TMEM)
    whole: gl.constexpr = memory.get_reg_layout()
    memory.store(gl.load(x + _offsets(ROWS, COLUMNS, whole)))
    left = memory.slice(0, HALF)
    right = memory.slice(HALF, HALF)
    first = left.load()
    second = right.load()
    left.store(second)
    right.store(first * 2)
    gl.store(out + _offsets(ROWS, COLUMNS, whole), memory.load())


@gluon.jit
def copied(out, x, ROWS: gl.constexpr, COLUMNS: gl.constexpr, SHARED: gl.constexpr, TMEM: gl.constexpr,
           CGA: gl.constexpr):  # fmt: skip
    """Shared to tensor memory by tcgen05.cp."""
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=CGA)
    memory = gl.allocate_shared_memory(x.dtype.element_ty, [ROWS, COLUMNS], SHARED)
    memory.store(gl.load(x + _offsets(ROWS, COLUMNS, blocked)))
    target = allocate_tensor_memory(x.dtype.element_ty, [ROWS, COLUMNS], TMEM)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fence_async_shared(cluster=TMEM.two_ctas)
    gl.barrier(cluster=TMEM.two_ctas)
    tcgen05_copy(memory, target)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    layout: gl.constexpr = target.get_reg_layout()
    gl.store(out + _offsets(ROWS, COLUMNS, layout), target.load(layout))


@gluon.jit
def block_scaled(a, a_scale, b, b_scale, d, K, A_TYPE: gl.constexpr, B_TYPE: gl.constexpr, BK: gl.constexpr,
                 VECTOR: gl.constexpr, ACC: gl.constexpr, A_LAYOUT: gl.constexpr, B_LAYOUT: gl.constexpr,
                 LEFT: gl.constexpr = None):  # fmt: skip
    """Operands by tensor copies, scales through registers, and A too where `LEFT` is its layout in tensor memory.

    BK counts values.
    """
    M: gl.constexpr = d.block_shape[0]
    N: gl.constexpr = d.block_shape[1]
    TWO: gl.constexpr = ACC.two_ctas
    A_PACK: gl.constexpr = BK // a.block_shape[1]
    B_PACK: gl.constexpr = BK // b.block_shape[1]
    row = gl.program_id(0) * M
    smem_a = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(two_ctas=TWO)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    sums = allocate_tensor_memory(gl.float32, [M, N], ACC)
    left_scale = allocate_tensor_memory(a_scale.dtype.element_ty, [M, BK // VECTOR], A_LAYOUT)
    right_scale = allocate_tensor_memory(b_scale.dtype.element_ty, [N, BK // VECTOR], B_LAYOUT)
    if LEFT is not None:
        full_a = mbarrier.allocate_mbarrier()
        mbarrier.init(full_a, count=1)
        left = allocate_tensor_memory(a.dtype, a.block_shape, LEFT)
    left_layout: gl.constexpr = left_scale.get_reg_layout()
    right_layout: gl.constexpr = right_scale.get_reg_layout()
    rows = row + gl.arange(0, M, gl.SliceLayout(1, left_layout))
    columns = gl.arange(0, N, gl.SliceLayout(1, right_layout))
    left_inner = gl.arange(0, BK // VECTOR, gl.SliceLayout(0, left_layout))
    right_inner = gl.arange(0, BK // VECTOR, gl.SliceLayout(0, right_layout))
    phase = 0
    for k in range(0, K, BK):
        mbarrier.expect(full, b.nbytes_per_cta + (a.nbytes_per_cta if LEFT is None else 0))
        if LEFT is None:
            tma.async_load(a, [row, k // A_PACK], full, smem_a)
        else:
            mbarrier.expect(full_a, a.nbytes_per_cta)
            tma.async_load(a, [row, k // A_PACK], full_a, smem_a)
            mbarrier.wait(full_a, phase)
            left.store(smem_a.load(left.get_reg_layout()))
        tma.async_load(b, [0, k // B_PACK], full, smem_b)
        left_scale.store(gl.load(a_scale + rows[:, None] * (K // VECTOR) + (k // VECTOR + left_inner)[None, :]))
        right_scale.store(gl.load(b_scale + columns[:, None] * (K // VECTOR) + (k // VECTOR + right_inner)[None, :]))
        gl.barrier(cluster=TWO)  # the pair's product reads the scales of both
        mbarrier.wait(full, phase)
        operand = smem_a if LEFT is None else left
        tcgen05_mma_scaled(operand, smem_b.permute((1, 0)), sums, left_scale, right_scale, A_TYPE, B_TYPE,
                           use_acc=k > 0, mbarriers=[done])  # fmt: skip
        mbarrier.wait(done, phase)
        phase ^= 1
    if LEFT is not None:
        mbarrier.invalidate(full_a)
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    memory = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    memory.store(sums.load().to(d.dtype))
    fence_async_shared()
    tma.async_store(d, [row, 0], memory)
    tma.store_wait(0)


@gluon.jit
def _unpacked(tile, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Scales as they lie in memory, 32 rows x 4 columns to 512 bytes, as a matrix [ROWS, COLUMNS]."""
    return tile.reshape([ROWS // 128, COLUMNS // 4, 32, 4, 4]).permute((0, 3, 2, 1, 4)).reshape([ROWS, COLUMNS])


@gluon.jit
def copied_scales(a, a_scale, b, b_scale, d, K, A_TYPE: gl.constexpr, B_TYPE: gl.constexpr, BK: gl.constexpr,
                  VECTOR: gl.constexpr, ACC: gl.constexpr, A_SCALES: gl.constexpr, B_SCALES: gl.constexpr):  # fmt: skip
    """Scales by tensor copies in their packed order, then to tensor memory by tcgen05.cp."""
    M: gl.constexpr = d.block_shape[0]
    N: gl.constexpr = d.block_shape[1]
    A_PACK: gl.constexpr = BK // a.block_shape[1]
    B_PACK: gl.constexpr = BK // b.block_shape[1]
    STEP: gl.constexpr = a_scale.block_shape[1]
    smem_a = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    smem_as = gl.allocate_shared_memory(a_scale.dtype, a_scale.block_shape, a_scale.layout)
    smem_bs = gl.allocate_shared_memory(b_scale.dtype, b_scale.block_shape, b_scale.layout)
    full = mbarrier.allocate_mbarrier(two_ctas=ACC.two_ctas)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    sums = allocate_tensor_memory(gl.float32, [M, N], ACC)
    left_scale = allocate_tensor_memory(a_scale.dtype, [M, BK // VECTOR], A_SCALES)
    right_scale = allocate_tensor_memory(b_scale.dtype, [N, BK // VECTOR], B_SCALES)
    phase = 0
    step = 0
    for k in range(0, K, BK):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta + a_scale.nbytes_per_cta + b_scale.nbytes_per_cta)
        tma.async_load(a, [0, k // A_PACK], full, smem_a)
        tma.async_load(b, [0, k // B_PACK], full, smem_b)
        tma.async_load(a_scale, [0, step * STEP, 0, 0, 0], full, smem_as)
        tma.async_load(b_scale, [0, step * STEP, 0, 0, 0], full, smem_bs)
        mbarrier.wait(full, phase)
        tcgen05_copy(_unpacked(smem_as, M, BK // VECTOR), left_scale)
        tcgen05_copy(_unpacked(smem_bs, N, BK // VECTOR), right_scale)
        tcgen05_mma_scaled(smem_a, smem_b.permute((1, 0)), sums, left_scale, right_scale, A_TYPE, B_TYPE,
                           use_acc=k > 0, mbarriers=[done])  # fmt: skip
        mbarrier.wait(done, phase)
        phase ^= 1
        step += 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    memory = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    memory.store(sums.load().to(d.dtype))
    fence_async_shared()
    tma.async_store(d, [0, 0], memory)
    tma.store_wait(0)


@gluon.jit
def attention(q, k, v, out, count, scale, ACC: gl.constexpr, SCORES: gl.constexpr, WEIGHTS: gl.constexpr):
    """Scores and weights live in tensor memory; the weights are the A operand of the second product."""
    M: gl.constexpr = q.block_shape[0]
    N: gl.constexpr = k.block_shape[0]
    D: gl.constexpr = q.block_shape[1]
    row = gl.program_id(0) * M
    smem_q = gl.allocate_shared_memory(q.dtype, q.block_shape, q.layout)
    smem_k = gl.allocate_shared_memory(k.dtype, k.block_shape, k.layout)
    smem_v = gl.allocate_shared_memory(v.dtype, v.block_shape, v.layout)
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    scores = allocate_tensor_memory(gl.float32, [M, N], SCORES)
    weights = allocate_tensor_memory(q.dtype, [M, N], WEIGHTS)
    sums = allocate_tensor_memory(gl.float32, [M, D], ACC)
    layout: gl.constexpr = scores.get_reg_layout()
    sums_layout: gl.constexpr = sums.get_reg_layout()
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    top = gl.full([M], -float("inf"), gl.float32, rows)
    total = gl.full([M], 0.0, gl.float32, rows)
    sums.store(gl.full([M, D], 0.0, gl.float32, sums_layout))
    mbarrier.expect(full, q.nbytes_per_cta)
    tma.async_load(q, [row, 0], full, smem_q)
    mbarrier.wait(full, 0)
    phase = 1
    turn = 0
    for start in range(0, count, N):
        mbarrier.expect(full, k.nbytes_per_cta + v.nbytes_per_cta)
        tma.async_load(k, [start, 0], full, smem_k)
        tma.async_load(v, [start, 0], full, smem_v)
        mbarrier.wait(full, phase)
        phase ^= 1
        tcgen05_mma(smem_q, smem_k.permute((1, 0)), scores, use_acc=False, mbarriers=[done])
        mbarrier.wait(done, turn)
        turn ^= 1
        values = scores.load(layout) * (scale * 1.4426950408889634)
        higher = gl.maximum(top, gl.max(values, axis=1))
        shares = gl.exp2(values - higher[:, None])
        fade = gl.exp2(top - higher)
        total = total * fade + gl.sum(shares, axis=1)
        top = higher
        weights.store(gl.convert_layout(shares.to(q.dtype), weights.get_reg_layout()))
        faded = gl.convert_layout(fade, gl.SliceLayout(1, sums_layout))
        sums.store(sums.load(sums_layout) * faded[:, None])
        tcgen05_mma(weights, smem_v, sums, mbarriers=[done])
        mbarrier.wait(done, turn)
        turn ^= 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    whole = gl.convert_layout(total, gl.SliceLayout(1, sums_layout))
    memory = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    memory.store((sums.load(sums_layout) / whole[:, None]).to(out.dtype))
    fence_async_shared()
    tma.async_store(out, [row, 0], memory)
    tma.store_wait(0)


@gluon.jit
def gathered_rows(x, out, rows, STEP: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, SHARED: gl.constexpr):
    """Rows by index into shared memory, and to other rows by the same index: TMA's gather and scatter of four."""
    layout: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 4], [32, 1], [1, 4], [1, 0]))
    memory = gl.allocate_shared_memory(x.dtype, [ROWS, COLUMNS], SHARED)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    index = gl.load(rows + gl.program_id(0) * ROWS + gl.arange(0, ROWS, layout))
    mbarrier.expect(bar, memory.nbytes_per_cta)
    tma.async_gather(x, index, 0, bar, memory)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    tma.async_scatter(out, index, 0, memory)
    tma.store_wait(0)


@gluon.jit
def packed_pairs(out, x, y, BLOCK: gl.constexpr, LAYOUT: gl.constexpr, add2: gl.constexpr, mul2: gl.constexpr,
                 fma2: gl.constexpr):  # fmt: skip
    """Arithmetic on pairs of fp32."""
    at = gl.arange(0, BLOCK, LAYOUT)
    a = gl.load(x + at)
    b = gl.load(y + at)
    gl.store(out + at, fma2(add2(a, b), mul2(a, b), b))
