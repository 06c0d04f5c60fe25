"""Gluon kernels for Hopper and Ampere: wgmma, tensor copies, multicast, clusters, cp.async. Imports Triton.

A kernel of several CTAs sees one tensor that is spread over them; the layouts say which CTA holds what.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    async_store,
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _fetch(a, b, smem_a, smem_b, full, row, column, i, STAGES: gl.constexpr, N_MAJOR: gl.constexpr):
    BK: gl.constexpr = a.block_shape[1]
    stage = i % STAGES
    mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [row, i * BK], full.index(stage), smem_a.index(stage))
    if N_MAJOR:
        tma.async_load(b, [i * BK, column], full.index(stage), smem_b.index(stage))
    else:
        tma.async_load(b, [column, i * BK], full.index(stage), smem_b.index(stage))


@gluon.jit
def ring(a, b, d, K, STAGES: gl.constexpr, N_MAJOR: gl.constexpr):
    """Loads run STAGES - 2 blocks ahead of asynchronous products, one of which stays in flight."""
    M: gl.constexpr = d.block_shape[0]
    N: gl.constexpr = d.block_shape[1]
    BK: gl.constexpr = a.block_shape[1]
    row = gl.program_id(0) * M
    column = gl.program_id(1) * N
    smem_a = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, N, 32 // (a.dtype.primitive_bitwidth // 8)]
    )
    steps = gl.cdiv(K, BK)
    for i in gl.static_range(STAGES - 2):
        if i < steps:
            _fetch(a, b, smem_a, smem_b, full, row, column, i, STAGES, N_MAJOR)
    sums = gl.zeros((M, N), gl.float32, layout)
    for i in range(steps):
        if i + STAGES - 2 < steps:  # the product that read this stage last, i - 2, is over
            _fetch(a, b, smem_a, smem_b, full, row, column, i + STAGES - 2, STAGES, N_MAJOR)
        stage = i % STAGES
        mbarrier.wait(full.index(stage), (i // STAGES) & 1)
        right = smem_b.index(stage) if N_MAJOR else smem_b.index(stage).permute((1, 0))
        sums = warpgroup_mma(smem_a.index(stage), right, sums, is_async=True)
        sums = warpgroup_mma_wait(1, deps=(sums,))
    result = warpgroup_mma_wait(0, deps=(sums,))
    for i in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(i))
    smem_d = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    smem_d.store(result.to(d.dtype))
    fence_async_shared()
    tma.async_store(d, [row, column], smem_d)
    tma.store_wait(0)


@gluon.jit
def register_a(a, b, d, K):
    """A is scaled in registers on its way from shared memory to the product."""
    M: gl.constexpr = d.block_shape[0]
    N: gl.constexpr = d.block_shape[1]
    BK: gl.constexpr = a.block_shape[1]
    row = gl.program_id(0) * M
    smem_a = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    left_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    sums = gl.zeros((M, N), gl.float32, layout)
    phase = 0
    for k in range(0, K, BK):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, k], full, smem_a)
        tma.async_load(b, [0, k], full, smem_b)
        mbarrier.wait(full, phase)
        left = smem_a.load(left_layout) * 2
        sums = warpgroup_mma(left, smem_b.permute((1, 0)), sums)
        phase ^= 1
    smem_d = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    smem_d.store(sums.to(d.dtype))
    fence_async_shared()
    tma.async_store(d, [row, 0], smem_d)
    tma.store_wait(0)


@gluon.jit
def _produce(a, b, smem_a, smem_b, full, empty, tiles, K, STAGES: gl.constexpr):
    M: gl.constexpr = a.block_shape[0]
    BK: gl.constexpr = a.block_shape[1]
    i = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        for k in range(0, K, BK):
            stage = i % STAGES
            mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
            mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_load(a, [tile * M, k], full.index(stage), smem_a.index(stage))
            tma.async_load(b, [0, k], full.index(stage), smem_b.index(stage))
            i += 1


@gluon.jit
def _consume(d, smem_a, smem_b, full, empty, tiles, K, STAGES: gl.constexpr):
    M: gl.constexpr = d.block_shape[0]
    N: gl.constexpr = d.block_shape[1]
    BK: gl.constexpr = smem_a.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    smem_d = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    i = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        sums = gl.zeros((M, N), gl.float32, layout)
        for k in range(0, K, BK):
            stage = i % STAGES
            mbarrier.wait(full.index(stage), (i // STAGES) & 1)
            sums = warpgroup_mma(smem_a.index(stage), smem_b.index(stage).permute((1, 0)), sums)
            mbarrier.arrive(empty.index(stage), count=1)
            i += 1
        tma.store_wait(0)
        smem_d.store(sums.to(d.dtype))
        fence_async_shared()
        tma.async_store(d, [tile * M, 0], smem_d)
    tma.store_wait(0)


@gluon.jit
def specialized(a, b, d, tiles, K, STAGES: gl.constexpr):
    """A warp that loads, a warpgroup that multiplies; programs walk the tiles."""
    smem_a = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (_consume, (d, smem_a, smem_b, full, empty, tiles, K, STAGES)),
            (_produce, (a, b, smem_a, smem_b, full, empty, tiles, K, STAGES)),
        ],
        [1],
        [24],
    )


@gluon.jit
def multicast(a, b, d, K, STAGES: gl.constexpr, CGA: gl.constexpr):
    """CTAs of a cluster share tiles of A and B: each load goes to every CTA that holds the tile."""
    M: gl.constexpr = d.block_shape[0]
    N: gl.constexpr = d.block_shape[1]
    BK: gl.constexpr = a.block_shape[1]
    row = gl.program_id(0) * M
    smem_a = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, 32, 16], cga_layout=CGA)
    sums = gl.zeros((M, N), gl.float32, layout)
    i = 0
    for k in range(0, K, BK):
        stage = i % STAGES
        mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
        cluster.barrier()
        tma.async_load(a, [row, k], full.index(stage), smem_a.index(stage), multicast=True)
        tma.async_load(b, [0, k], full.index(stage), smem_b.index(stage), multicast=True)
        mbarrier.wait(full.index(stage), (i // STAGES) & 1)
        sums = warpgroup_mma(smem_a.index(stage), smem_b.index(stage).permute((1, 0)), sums)
        i += 1
    smem_d = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    smem_d.store(sums.to(d.dtype))
    fence_async_shared()
    tma.async_store(d, [row, 0], smem_d)
    tma.store_wait(0)


@gluon.jit
def cluster_rows(out, x, columns, COLUMNS: gl.constexpr, ROWS: gl.constexpr, CGA: gl.constexpr):
    """A softmax whose rows are spread over the CTAs of a cluster: sums through distributed shared memory."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0], cga_layout=CGA)
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    at = row[:, None] * columns + column[None, :]
    inside = column[None, :] < columns
    values = gl.load(x + at, mask=inside, other=-float("inf"))
    weights = gl.exp(values - gl.max(values, axis=1)[:, None])
    gl.store(out + at, weights / gl.sum(weights, axis=1)[:, None], mask=inside)


@gluon.jit
def cluster_transpose(out, x, ROWS: gl.constexpr, COLUMNS: gl.constexpr, FROM: gl.constexpr, TO: gl.constexpr):
    """The rows of a cluster's tensor become its columns: every CTA reads from all the others."""
    source: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=FROM)
    target: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1], cga_layout=TO)
    row = gl.arange(0, ROWS, gl.SliceLayout(1, source))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, source))
    values = gl.convert_layout(gl.load(x + row[:, None] * COLUMNS + column[None, :]), target)
    row = gl.arange(0, ROWS, gl.SliceLayout(1, target))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, target))
    gl.store(out + column[None, :] * ROWS + row[:, None], values)


@gluon.jit
def pushed(out, x, SIZE: gl.constexpr, LAYOUT: gl.constexpr, SHARED: gl.constexpr, OWN: gl.constexpr):
    """st.async: values are stored into the shared memory of the CTA that owns them, which waits for their bytes."""
    at = gl.arange(0, SIZE, LAYOUT)
    memory = gl.allocate_shared_memory(gl.float32, [SIZE], SHARED)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, memory.nbytes_per_cta)
    cluster.barrier()
    async_store(memory, gl.load(x + at) * 3, bar)
    mbarrier.wait(bar, 0)
    gl.store(out + gl.arange(0, SIZE, OWN), memory.load(OWN))
    cluster.barrier()


@gluon.jit
def ampere_pipeline(a, b, d, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    """cp.async into a ring, committed in groups; mma.sync."""
    copy_layout: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    smem_layout: gl.constexpr = gl.SwizzledSharedLayout(8, 2, 4, [1, 0])
    mma_layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, copy_layout))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(1, copy_layout))
    inner = gl.arange(0, BK, gl.SliceLayout(0, copy_layout))
    smem_a = gl.allocate_shared_memory(a.dtype.element_ty, [STAGES, BM, BK], smem_layout)
    smem_b = gl.allocate_shared_memory(b.dtype.element_ty, [STAGES, BN, BK], smem_layout)
    from_a = a + rows[:, None] * K + inner[None, :]
    from_b = b + columns[:, None] * K + inner[None, :]
    steps = K // BK
    for i in gl.static_range(STAGES - 1):
        async_copy.async_load(
            smem_a.index(i), from_a + i * BK, mask=(rows[:, None] < M) & (inner[None, :] + i * BK < K)
        )
        async_copy.async_load(
            smem_b.index(i), from_b + i * BK, mask=(columns[:, None] < N) & (inner[None, :] + i * BK < K)
        )
        async_copy.commit_group()
    sums = gl.zeros((BM, BN), gl.float32, mma_layout)
    for i in range(steps):
        ahead = i + STAGES - 1
        stage = ahead % STAGES
        more = ahead < steps
        async_copy.async_load(smem_a.index(stage), from_a + ahead * BK, mask=(rows[:, None] < M) & more)
        async_copy.async_load(smem_b.index(stage), from_b + ahead * BK, mask=(columns[:, None] < N) & more)
        async_copy.commit_group()
        async_copy.wait_group(STAGES - 1)
        left = smem_a.index(i % STAGES).load(gl.DotOperandLayout(0, mma_layout, 2))
        right = smem_b.index(i % STAGES).permute((1, 0)).load(gl.DotOperandLayout(1, mma_layout, 2))
        sums = mma_v2(left, right, sums)
    async_copy.wait_group(0)
    out_rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, mma_layout))
    out_columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, mma_layout))
    gl.store(d + out_rows[:, None] * N + out_columns[None, :], sums.to(d.dtype.element_ty),
             mask=(out_rows[:, None] < M) & (out_columns[None, :] < N))  # fmt: skip


@gluon.jit
def copies_arrive(out, x, SIZE: gl.constexpr, ROUNDS: gl.constexpr):
    """cp.async whose completion arrives on an mbarrier."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.arange(0, SIZE, layout)
    memory = gl.allocate_shared_memory(gl.float32, [2, SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(2):
        mbarrier.init(ready.index(i), count=128)
    sums = gl.zeros((SIZE,), gl.float32, layout)
    async_copy.async_load(memory.index(0), x + at)
    async_copy.mbarrier_arrive(ready.index(0), increment_count=False)
    for i in range(ROUNDS):
        if i + 1 < ROUNDS:
            async_copy.async_load(memory.index((i + 1) % 2), x + (i + 1) * SIZE + at)
            async_copy.mbarrier_arrive(ready.index((i + 1) % 2), increment_count=False)
        mbarrier.wait(ready.index(i % 2), (i // 2) & 1)
        sums += memory.index(i % 2).load(layout)
    gl.store(out + at, sums)


@gluon.jit
def volumes(x, out, REDUCE: gl.constexpr):
    """Boxes of any rank to shared memory and back, also where they reach over the edge; or added to what is there."""
    RANK: gl.constexpr = len(x.block_shape)
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    rows: gl.constexpr = 1 if RANK == 1 else x.block_shape[1]
    many = 1 if RANK == 1 else x.shape[1]
    phase = 0
    for first in range(0, x.shape[0], x.block_shape[0]):
        for second in range(0, many, rows):
            mbarrier.expect(bar, x.nbytes_per_cta)
            if RANK == 1:
                tma.async_load(x, [first], bar, memory)
            elif RANK == 2:
                tma.async_load(x, [first, second], bar, memory)
            elif RANK == 3:
                tma.async_load(x, [first, second, 0], bar, memory)
            elif RANK == 4:
                tma.async_load(x, [first, second, 0, 0], bar, memory)
            else:
                tma.async_load(x, [first, second, 0, 0, 0], bar, memory)
            mbarrier.wait(bar, phase)
            phase ^= 1
            if REDUCE:
                if RANK == 1:
                    tma.async_atomic_add(out, [first], memory)
                elif RANK == 2:
                    tma.async_atomic_add(out, [first, second], memory)
                elif RANK == 3:
                    tma.async_atomic_add(out, [first, second, 0], memory)
                elif RANK == 4:
                    tma.async_atomic_add(out, [first, second, 0, 0], memory)
                else:
                    tma.async_atomic_add(out, [first, second, 0, 0, 0], memory)
            elif RANK == 1:
                tma.async_store(out, [first], memory)
            elif RANK == 2:
                tma.async_store(out, [first, second], memory)
            elif RANK == 3:
                tma.async_store(out, [first, second, 0], memory)
            elif RANK == 4:
                tma.async_store(out, [first, second, 0, 0], memory)
            else:
                tma.async_store(out, [first, second, 0, 0, 0], memory)
            tma.store_wait(0)
    mbarrier.invalidate(bar)


@gluon.jit
def bitwise(both, any_, lows, x):
    """Tensor reductions of bits and of minima, every program onto the same tile."""
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    tma.async_load(x, [gl.program_id(0) * x.block_shape[0], 0], bar, memory)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    tma.async_atomic_and(both, [0, 0], memory)
    tma.async_atomic_or(any_, [0, 0], memory)
    tma.async_atomic_min(lows, [0, 0], memory)
    tma.store_wait(0)


@gluon.jit
def spread(x, out, COUNT: gl.constexpr, RANK: gl.constexpr, LAYOUT: gl.constexpr, CGA: gl.constexpr):
    """One box to every CTA of a cluster; each CTA stores its own share of the sum of both halves of the values."""
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    cluster.barrier()
    if RANK == 1:
        tma.async_load(x, [0], bar, memory, multicast=True)
    elif RANK == 3:
        tma.async_load(x, [0, 0, 0], bar, memory, multicast=True)
    elif RANK == 4:
        tma.async_load(x, [0, 0, 0, 0], bar, memory, multicast=True)
    else:
        tma.async_load(x, [0, 0, 0, 0, 0], bar, memory, multicast=True)
    mbarrier.wait(bar, 0)
    values = gl.reshape(memory.load(LAYOUT), [COUNT])
    share: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0], cga_layout=CGA)
    gl.store(out + gl.arange(0, COUNT, share), gl.convert_layout(values, share))
    cluster.barrier()


@gluon.jit
def counted_arrivals(out, x, SIZE: gl.constexpr, LAYOUT: gl.constexpr):
    """CTA 0 of a cluster tells every CTA, with arrivals that count twice, that its values are in place."""
    at = gl.arange(0, SIZE, LAYOUT)
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=2)
    own = mbarrier.allocate_mbarrier()
    mbarrier.init(own, count=3)
    cluster.barrier()
    values = gl.load(x + at)
    mbarrier.arrive(ready, count=2, from_cta=0)
    mbarrier.arrive(own, count=3)
    mbarrier.wait(ready, 0)
    mbarrier.wait(own, 0)
    gl.store(out + at, values * 2)
    cluster.barrier()
