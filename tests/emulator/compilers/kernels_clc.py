"""Gluon kernels for Blackwell that ask for their work: Cluster Launch Control. Imports Triton."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)


@gluon.jit
def scaled(out, x, factor, BLOCK: gl.constexpr, LAYOUT: gl.constexpr, RESULT: gl.constexpr):
    """The least: one request after each block, by a kernel with nothing else to wait for."""
    result = gl.allocate_shared_memory(gl.int64, [2], RESULT)
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    block = gl.program_id(0)
    more = True
    phase = 0
    while more:
        mbarrier.expect(ready, 16)
        clc.try_cancel(result, ready)
        at = block * BLOCK + gl.arange(0, BLOCK, LAYOUT)
        gl.store(out + at, gl.load(x + at) * factor)
        mbarrier.wait(ready, phase)
        response = clc.load_result(result)
        more = response.is_canceled()
        if more:
            block = response.program_id(0)
        phase ^= 1
        fence_async_shared(cluster=gl.num_ctas() > 1)  # the response was read before the next one is written
        gl.barrier(cluster=gl.num_ctas() > 1)


@gluon.jit
def three_dimensions(out, RESULT: gl.constexpr):
    """Every program counts itself, at the place that the response names."""
    result = gl.allocate_shared_memory(gl.int64, [2], RESULT)
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    x = gl.program_id(0)
    y = gl.program_id(1)
    z = gl.program_id(2)
    more = True
    phase = 0
    while more:
        mbarrier.expect(ready, 16)
        clc.try_cancel(result, ready)
        gl.atomic_add(out + (z * gl.num_programs(1) + y) * gl.num_programs(0) + x, 1)
        mbarrier.wait(ready, phase)
        response = clc.load_result(result)
        more = response.is_canceled()
        x = response.program_id(0)
        y = response.program_id(1)
        z = response.program_id(2)
        phase ^= 1
        fence_async_shared()
        gl.barrier()


@gluon.jit
def _next(ready, free, results, SLOTS: gl.constexpr, turn):
    """The response of this turn: is there more work, and which tile; its slot is given back."""
    slot = turn % SLOTS
    mbarrier.wait(ready.index(slot), (turn // SLOTS) & 1)
    response = clc.load_result(results.index(slot))
    more = response.is_canceled()
    tile = response.program_id(0)
    fence_async_shared()
    mbarrier.arrive(free.index(slot))
    return more, tile


@gluon.jit
def _ask(ready, free, results, SLOTS: gl.constexpr, COUNTED: gl.constexpr):
    """A request per turn, as soon as its slot is free, until one is declined. `COUNTED`: it gives slots back too."""
    more = True
    turn = 0
    while more:
        slot = turn % SLOTS
        mbarrier.wait(free.index(slot), ((turn // SLOTS) & 1) ^ 1)
        mbarrier.expect(ready.index(slot), 16)
        clc.try_cancel(results.index(slot), ready.index(slot))
        if COUNTED:
            more, _ = _next(ready, free, results, SLOTS, turn)
        else:
            mbarrier.wait(ready.index(slot), (turn // SLOTS) & 1)
            more = clc.load_result(results.index(slot)).is_canceled()
        turn += 1


@gluon.jit
def _load(a, b, smem_a, smem_b, full, empty, ready, free, results, K, tiles_m, STAGES: gl.constexpr,
          SLOTS: gl.constexpr):  # fmt: skip
    BK: gl.constexpr = a.block_shape[1]
    tile = gl.program_id(0)
    more = True
    turn = 0
    i = 0
    while more:
        row = (tile % tiles_m) * a.block_shape[0]
        column = (tile // tiles_m) * b.block_shape[0]
        for k in range(0, K, BK):
            stage = i % STAGES
            mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
            mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_load(a, [row, k], full.index(stage), smem_a.index(stage))
            tma.async_load(b, [column, k], full.index(stage), smem_b.index(stage))
            i += 1
        more, tile = _next(ready, free, results, SLOTS, turn)
        turn += 1


@gluon.jit
def _multiply(smem_a, smem_b, sums, full, empty, done, drained, ready, free, results, K, BK: gl.constexpr,
              STAGES: gl.constexpr, SLOTS: gl.constexpr):  # fmt: skip
    more = True
    turn = 0
    i = 0
    while more:
        buffer = turn & 1
        mbarrier.wait(drained.index(buffer), ((turn >> 1) & 1) ^ 1)
        for k in range(0, K, BK):
            stage = i % STAGES
            mbarrier.wait(full.index(stage), (i // STAGES) & 1)
            tcgen05_mma(smem_a.index(stage), smem_b.index(stage).permute((1, 0)), sums.index(buffer), use_acc=k > 0,
                        mbarriers=[empty.index(stage)])  # fmt: skip
            i += 1
        tcgen05_commit(done.index(buffer))
        more, _ = _next(ready, free, results, SLOTS, turn)
        turn += 1


@gluon.jit
def _finish(d, sums, done, drained, ready, free, results, tiles_m, SLOTS: gl.constexpr):
    memory = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    tile = gl.program_id(0)
    more = True
    turn = 0
    while more:
        buffer = turn & 1
        mbarrier.wait(done.index(buffer), (turn >> 1) & 1)
        values = sums.index(buffer).load()
        mbarrier.arrive(drained.index(buffer))
        tma.store_wait(0)
        memory.store(values.to(d.dtype))
        fence_async_shared()
        tma.async_store(d, [(tile % tiles_m) * d.block_shape[0], (tile // tiles_m) * d.block_shape[1]], memory)
        more, tile = _next(ready, free, results, SLOTS, turn)
        turn += 1
    tma.store_wait(0)


@gluon.jit
def matmul(a, b, d, K, tiles_m, STAGES: gl.constexpr, SLOTS: gl.constexpr, ACC: gl.constexpr, RESULT: gl.constexpr,
           COUNTED: gl.constexpr = True):  # fmt: skip
    """Warps of their own for requests, loads, products and stores; every tile after the first by request.

    With `COUNTED` False the warp that asks reads responses and is not counted among their readers: a fault.
    """
    TWO: gl.constexpr = ACC.two_ctas
    BK: gl.constexpr = a.block_shape[1]
    smem_a = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    smem_b = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=TWO)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier(batch=2)
    drained = mbarrier.allocate_mbarrier(batch=2, two_ctas=TWO)
    ready = mbarrier.allocate_mbarrier(batch=SLOTS)
    free = mbarrier.allocate_mbarrier(batch=SLOTS, two_ctas=TWO)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(done.index(i), count=1)
        mbarrier.init(drained.index(i), count=1)
    for i in gl.static_range(SLOTS):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(free.index(i), count=4 if COUNTED else 3)
    results = gl.allocate_shared_memory(gl.int64, [SLOTS, 2], RESULT)
    sums = allocate_tensor_memory(gl.float32, [2] + d.block_shape, ACC)
    gl.warp_specialize(
        [
            (_finish, (d, sums, done, drained, ready, free, results, tiles_m, SLOTS)),
            (_load, (a, b, smem_a, smem_b, full, empty, ready, free, results, K, tiles_m, STAGES, SLOTS)),
            (_multiply, (smem_a, smem_b, sums, full, empty, done, drained, ready, free, results, K, BK, STAGES, SLOTS)),
            (_ask, (ready, free, results, SLOTS, COUNTED)),
        ],
        [1, 1, 1],
        [24, 24, 24],
    )
