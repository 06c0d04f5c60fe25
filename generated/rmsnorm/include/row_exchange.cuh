// Partial results of a row made one: within a warp by shuffles, within a CTA through shared memory, within a cluster by
// one packed store into every CTA's shared memory (`st.async`), which a barrier there counts.
//
// An exchange is a push and, after other work, a pull; the next push comes after that.
//
// Everything is doubled and used in turn. A slot of exchange n is written again in exchange n + 2, by a CTA that has
// seen all partials of n + 1; its owner pushed the one of n + 1 after a barrier of its threads, which they came to
// after they had read n. So no CTA can be two exchanges ahead of another, and there is nothing to give back.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/convert.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/st_async.cuh"
#include "pipeline.cuh"
#include "row_op.cuh"
#include "types.cuh"

constexpr u32 kPartialBytes = 16;
constexpr u32 kPushBytes = 32;  // a push has a whole segment of the peer's shared memory to itself

// A whole warp: the partials of each kLanes lanes as one. Then every lane takes that of the first lane of its kWidth, so
// that all have the same bits; with 0 only that lane's is of use.
template <typename RowOp, u32 kLanes, u32 kWidth = kLanes>
__device__ __forceinline__ Partial reduce_lanes(Partial p) {
    if constexpr (RowOp::kExponential) {  // first the largest element of all, so that sums are rescaled once
        float largest = p.a;
#pragma unroll
        for (u32 offset = kLanes / 2; offset > 0; offset /= 2) {
            largest = ptx::max_nan_f32(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
        }
        p = RowOp::raised(p, largest);
    }
    if constexpr (RowOp::kDeviations) {  // first the mean of all, so that only sums are left
        float total = RowOp::kParts > 3 ? fmaf(p.a, p.c, p.d) : p.a * p.c, count = p.c;
#pragma unroll
        for (u32 offset = kLanes / 2; offset > 0; offset /= 2) {
            total += __shfl_xor_sync(0xffffffffu, total, offset);
            count += __shfl_xor_sync(0xffffffffu, count, offset);
        }
        p = RowOp::about(p, mean_of(total, count));
        p.c = count;
    }
#pragma unroll
    for (u32 offset = kLanes / 2; offset > 0; offset /= 2) {
        Partial q = p;
        if constexpr (!RowOp::kExponential && !RowOp::kDeviations) q.a = __shfl_xor_sync(0xffffffffu, p.a, offset);
        if constexpr (RowOp::kParts > 1) q.b = __shfl_xor_sync(0xffffffffu, p.b, offset);
        if constexpr (RowOp::kParts > 2 && !RowOp::kDeviations) q.c = __shfl_xor_sync(0xffffffffu, p.c, offset);
        if constexpr (RowOp::kParts > 3) q.d = __shfl_xor_sync(0xffffffffu, p.d, offset);
        p = RowOp::combined(p, q);
    }
    if constexpr (kWidth > 1) {
        p.a = __shfl_sync(0xffffffffu, p.a, 0, kWidth);
        if constexpr (RowOp::kParts > 1) p.b = __shfl_sync(0xffffffffu, p.b, 0, kWidth);
        if constexpr (RowOp::kParts > 2) p.c = __shfl_sync(0xffffffffu, p.c, 0, kWidth);
        if constexpr (RowOp::kParts > 3) p.d = __shfl_sync(0xffffffffu, p.d, 0, kWidth);
    }
    return p;
}

// Where it lies in shared memory, the same offsets in every CTA of the cluster.
//   partials   [2][warps] of 16 bytes
//   pushed     [2][CTAs] of 32 bytes, each a multiple of 32
//   barriers   [2] mbarriers: an arrival of the CTA's own thread 0 with the bytes expected, one of each CTA with its push,
//              and those bytes. The arrivals carry what the bytes do not: that the pusher has read the exchange before
template <u32 kWarps, u32 kCluster>
struct ExchangePlace {
    static constexpr u32 kPartials = 2 * kWarps * kPartialBytes;
    static constexpr u32 kPushed = kCluster > 1 ? 2 * kCluster * kPushBytes : 0;
    static constexpr u32 kBarriers = kCluster > 1 ? 16 : 0;
    static constexpr u32 kBytes = kPartials + kPushed + kBarriers;
};

template <typename RowOp, u32 kWarps, u32 kCluster>
struct Exchange {
    using Place = ExchangePlace<kWarps, kCluster>;

    char* memory;
    u32 base;  // its shared address, a multiple of 32
    u32 rank;
    u32 turn = 0;    // which of the two
    u32 parity = 0;  // of its barrier

    // Thread 0, before the cluster synchronises.
    __device__ __forceinline__ void init() const {
        if constexpr (kCluster > 1) {
            ptx::mbarrier_init(barrier(0), 1 + kCluster);
            ptx::mbarrier_init(barrier(1), 1 + kCluster);
        }
    }

    // All threads of every CTA of the cluster, as often in each: begins to combine their partials of a row.
    __device__ __forceinline__ void push(Partial p) const {
        const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        p = reduce_lanes<RowOp, 32, 0>(p);
        if (lane == 0) {
            *reinterpret_cast<Packed*>(memory + partials() + warp * kPartialBytes) = {p.a, p.b, p.c, p.d};
        }
        if constexpr (kCluster > 1) {
            __syncthreads();
            if (warp == 0) {
                p = gathered<kWarps>(partials(), kPartialBytes);
                if (lane == 0) ptx::mbarrier_arrive_expect_tx(barrier(turn), kCluster * kPartialBytes);
                if (lane < kCluster) {
                    const u32 there = ptx::mapa_shared_cluster(barrier(turn), lane);
                    ptx::st_async_v4_b32(ptx::mapa_shared_cluster(base + pushed() + rank * kPushBytes, lane),
                                         ptx::mov_b32_f32(p.a), ptx::mov_b32_f32(p.b), ptx::mov_b32_f32(p.c),
                                         ptx::mov_b32_f32(p.d), there);
                    ptx::mbarrier_arrive_shared_cluster(there);
                }
                __syncwarp();
            }
        }
    }

    // After each push, by the same threads: every thread gets the row's partial, the same bits.
    __device__ __forceinline__ Partial pull() {
        Partial p;
        if constexpr (kCluster == 1) {
            __syncthreads();
            p = gathered<kWarps>(partials(), kPartialBytes);
        } else {
            wait_cluster(barrier(turn), parity);
            p = gathered<kCluster>(pushed(), kPushBytes);
            parity ^= turn;
        }
        turn ^= 1;
        return p;
    }

private:
    __device__ __forceinline__ u32 partials() const { return turn * (kWarps * kPartialBytes); }
    __device__ __forceinline__ u32 pushed() const { return Place::kPartials + turn * (kCluster * kPushBytes); }

    __device__ __forceinline__ u32 barrier(u32 which) const {
        return base + Place::kPartials + Place::kPushed + 8 * which;
    }

    struct alignas(16) Packed {
        float a, b, c, d;
    };

    // A whole warp: kCount partials, `stride` bytes apart, as one.
    template <u32 kCount>
    __device__ __forceinline__ Partial gathered(u32 first, u32 stride) const {
        const u32 lane = threadIdx.x % 32;
        Partial p = RowOp::identity();
        if (lane < kCount) {
            const Packed packed = *reinterpret_cast<const Packed*>(memory + first + lane * stride);
            p = {packed.a, packed.b, packed.c, RowOp::kParts > 3 ? packed.d : 0.0f};
        }
        constexpr u32 kLanes = kCount > 16 ? 32 : kCount > 8 ? 16 : kCount > 4 ? 8 : kCount > 2 ? 4 : kCount > 1 ? 2 : 1;
        return reduce_lanes<RowOp, kLanes, 32>(p);
    }
};
