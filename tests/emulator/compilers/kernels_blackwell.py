"""Gluon kernels for Blackwell: products by tcgen05, by one CTA and by pairs, with multicast. Imports Triton.

A kernel of several CTAs sees one tensor that is spread over them; the layouts say which CTA holds what.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tma,
)


@gluon.jit
def _fetch(a, b, smem_a, smem_b, full, row, column, k, stage, A_MAJOR: gl.constexpr, B_MAJOR: gl.constexpr,
           MULTICAST: gl.constexpr):  # fmt: skip
    """One block of K of both operands; the bytes of each CTA are expected on the barrier that gets them."""
    mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
    if A_MAJOR == "k":
        tma.async_load(a, [row, k], full.index(stage), smem_a.index(stage), multicast=MULTICAST)
    else:
        tma.async_load(a, [k, row], full.index(stage), smem_a.index(stage), multicast=MULTICAST)
    if B_MAJOR == "k":
        tma.async_load(b, [column, k], full.index(stage), smem_b.index(stage), multicast=MULTICAST)
    else:
        tma.async_load(b, [k, column], full.index(stage), smem_b.index(stage), multicast=MULTICAST)


@gluon.jit
def _left(tile, MAJOR: gl.constexpr):
    """[M, K] as the product wants it."""
    if MAJOR == "k":
        return tile
    else:
        return tile.permute((1, 0))


@gluon.jit
def _right(tile, MAJOR: gl.constexpr):
    """[K, N]."""
    if MAJOR == "k":
        return tile.permute((1, 0))
    else:
        return tile


@gluon.jit
def _store(d, values, row, column):
    memory = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    memory.store(values.to(d.dtype))
    fence_async_shared()
    tma.async_store(d, [row, column], memory)
    tma.store_wait(0)


@gluon.jit
def one_tile(a, b, d, K, BK: gl.constexpr, STAGES: gl.constexpr, ACC: gl.constexpr, SUM: gl.constexpr,
             A_MAJOR: gl.constexpr = "k", B_MAJOR: gl.constexpr = "k", MULTICAST: gl.constexpr = False):  # fmt: skip
    """One tile of the result per program, loads STAGES - 1 blocks ahead of the products."""
    row = gl.program_id(0) * d.block_shape[0]
    column = gl.program_id(1) * d.block_shape[1]
    TWO: gl.constexpr = ACC.two_ctas
    smem_a = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=TWO)
    done = mbarrier.allocate_mbarrier(batch=STAGES)
    COMMITS: gl.constexpr = tcgen05_mma_barrier_count([smem_a, smem_b], MULTICAST, TWO)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(done.index(i), count=COMMITS)
    sums = allocate_tensor_memory(SUM, d.block_shape, ACC)
    steps = gl.cdiv(K, BK)
    for i in range(steps + STAGES - 1):
        if i < steps:
            stage = i % STAGES
            mbarrier.wait(done.index(stage), ((i // STAGES) & 1) ^ 1)
            _fetch(a, b, smem_a, smem_b, full, row, column, i * BK, stage, A_MAJOR, B_MAJOR, MULTICAST)
        j = i - (STAGES - 1)
        if j >= 0:
            stage = j % STAGES
            mbarrier.wait(full.index(stage), (j // STAGES) & 1)
            tcgen05_mma(_left(smem_a.index(stage), A_MAJOR), _right(smem_b.index(stage), B_MAJOR), sums,
                        use_acc=j > 0, multicast=MULTICAST, mbarriers=[done.index(stage)])  # fmt: skip
    for i in gl.static_range(STAGES):  # the last commit of every stage, before its barrier goes away
        uses = (steps - i + STAGES - 1) // STAGES
        mbarrier.wait(done.index(i), (uses - 1) & 1, pred=uses > 0)
    for i in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(i))
        mbarrier.invalidate(done.index(i))
    _store(d, sums.load(), row, column)


@gluon.jit
def a_from_tensor_memory(a, b, d, K, BK: gl.constexpr, ACC: gl.constexpr, LEFT: gl.constexpr, SUM: gl.constexpr,
                         DOUBLE: gl.constexpr):  # fmt: skip
    """A is doubled (where its type can be) in registers on its way from shared to tensor memory."""
    row = gl.program_id(0) * d.block_shape[0]
    TWO: gl.constexpr = ACC.two_ctas
    smem_a = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full_a = mbarrier.allocate_mbarrier()  # each CTA waits for its own part of A, to read it
    full_b = mbarrier.allocate_mbarrier(two_ctas=TWO)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full_a, count=1)
    mbarrier.init(full_b, count=1)
    mbarrier.init(done, count=1)
    sums = allocate_tensor_memory(SUM, d.block_shape, ACC)
    left = allocate_tensor_memory(a.dtype, a.block_shape, LEFT)
    phase = 0
    for k in range(0, K, BK):
        mbarrier.expect(full_a, a.nbytes_per_cta)
        tma.async_load(a, [row, k], full_a, smem_a)
        mbarrier.expect(full_b, b.nbytes_per_cta)
        tma.async_load(b, [0, k], full_b, smem_b)
        mbarrier.wait(full_a, phase)
        values = smem_a.load(left.get_reg_layout())
        if DOUBLE:
            values = values * 2
        left.store(values)
        gl.barrier(cluster=TWO)  # the pair's product reads what both have stored
        mbarrier.wait(full_b, phase)
        tcgen05_mma(left, smem_b.permute((1, 0)), sums, use_acc=k > 0, mbarriers=[done])
        mbarrier.wait(done, phase)
        phase ^= 1
    mbarrier.invalidate(full_a)
    mbarrier.invalidate(full_b)
    mbarrier.invalidate(done)
    _store(d, sums.load(), row, 0)


@gluon.jit
def _load_tiles(a, b, smem_a, smem_b, full, empty, tiles_m, tiles, K, BK: gl.constexpr, STAGES: gl.constexpr,
                MULTICAST: gl.constexpr):  # fmt: skip
    i = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row = (tile % tiles_m) * a.block_shape[0]
        column = (tile // tiles_m) * b.block_shape[0]
        for k in range(0, K, BK):
            stage = i % STAGES
            mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
            _fetch(a, b, smem_a, smem_b, full, row, column, k, stage, "k", "k", MULTICAST)
            i += 1
    for _ in range(STAGES):  # the commits of other CTAs arrive here: not after this one has gone
        mbarrier.wait(empty.index(i % STAGES), ((i // STAGES) & 1) ^ 1)
        i += 1


@gluon.jit
def _multiply_tiles(smem_a, smem_b, sums, full, empty, ready, drained, tiles, K, BK: gl.constexpr,
                    STAGES: gl.constexpr, MULTICAST: gl.constexpr):  # fmt: skip
    i = 0
    turn = 0
    for _ in range(gl.program_id(0), tiles, gl.num_programs(0)):
        buffer = turn & 1
        mbarrier.wait(drained.index(buffer), ((turn >> 1) & 1) ^ 1)
        for k in range(0, K, BK):
            stage = i % STAGES
            mbarrier.wait(full.index(stage), (i // STAGES) & 1)
            tcgen05_mma(smem_a.index(stage), smem_b.index(stage).permute((1, 0)), sums.index(buffer), use_acc=k > 0,
                        multicast=MULTICAST, mbarriers=[empty.index(stage)])  # fmt: skip
            i += 1
        tcgen05_commit(ready.index(buffer))
        turn += 1


@gluon.jit
def _store_tiles(d, sums, ready, drained, tiles_m, tiles):
    memory = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    turn = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        buffer = turn & 1
        mbarrier.wait(ready.index(buffer), (turn >> 1) & 1)
        values = sums.index(buffer).load()
        mbarrier.arrive(drained.index(buffer))
        tma.store_wait(0)
        memory.store(values.to(d.dtype))
        fence_async_shared()
        tma.async_store(d, [(tile % tiles_m) * d.block_shape[0], (tile // tiles_m) * d.block_shape[1]], memory)
        turn += 1
    tma.store_wait(0)


@gluon.jit
def specialized(a, b, d, tiles_m, tiles, K, BK: gl.constexpr, STAGES: gl.constexpr, ACC: gl.constexpr,
                MULTICAST: gl.constexpr = False):  # fmt: skip
    """A warp that loads, a warp that multiplies, a warpgroup that stores; two accumulators; programs walk the tiles."""
    TWO: gl.constexpr = ACC.two_ctas
    smem_a = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=TWO)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    ready = mbarrier.allocate_mbarrier(batch=2)
    drained = mbarrier.allocate_mbarrier(batch=2, two_ctas=TWO)
    COMMITS: gl.constexpr = tcgen05_mma_barrier_count([smem_a, smem_b], MULTICAST, TWO)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=COMMITS)
    for i in gl.static_range(2):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(drained.index(i), count=1)
    sums = allocate_tensor_memory(gl.float32, [2] + d.block_shape, ACC)
    gl.warp_specialize(
        [
            (_store_tiles, (d, sums, ready, drained, tiles_m, tiles)),
            (_load_tiles, (a, b, smem_a, smem_b, full, empty, tiles_m, tiles, K, BK, STAGES, MULTICAST)),
            (_multiply_tiles, (smem_a, smem_b, sums, full, empty, ready, drained, tiles, K, BK, STAGES, MULTICAST)),
        ],
        [1, 1],
        [24, 24],
    )
