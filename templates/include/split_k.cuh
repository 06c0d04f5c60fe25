// Cutting K into slices, and summing them: in a cluster over distributed shared memory. The order of summation is the
// order of the slices, whoever is first: the result is the same on every run.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/shared.cuh"
#include "types.cuh"

struct Span {
    u32 first;
    u32 end;
};

// Slice `slice` of `blocks` K blocks, cut as evenly as they go; empty where there are more slices than blocks.
template <u32 kSlices>
__device__ __forceinline__ Span slice_of(u32 blocks, u32 slice) {
    if constexpr (kSlices == 1) return {0, blocks};
    const u64 all = blocks;
    return {static_cast<u32>(all * slice / kSlices), static_cast<u32>(all * (slice + 1) / kSlices)};
}

// The partial sums of one warpgroup in its CTA's shared memory: 16 bytes of a thread beside those of its neighbours, so
// that the same thread of another CTA, which wants the same elements, reads whole segments.
__device__ __forceinline__ u32 partial_address(u32 base, u32 group) {
    return base + (group * 128 + threadIdx.x % 128) * 16;
}

// The whole warpgroup, into its own shared memory.
template <u32 kCount>
__device__ __forceinline__ void put_partials(const float (&values)[kCount], u32 base) {
#pragma unroll
    for (u32 at = 0; at < kCount; at += 4) {
        ptx::st_shared_v4_f32(partial_address(base, at / 4), values[at], values[at + 1], values[at + 2], values[at + 3]);
    }
}

// The whole warpgroup, between two barriers of the cluster: the sum over all slices of kCount accumulators that lie from
// `base` on. Slice s is in the CTA of rank `rank0 + s * rank_step`.
template <u32 kSlices, u32 kCount>
__device__ __forceinline__ void sum_partials(float (&values)[kCount], u32 base, u32 rank0, u32 rank_step) {
#pragma unroll
    for (u32 at = 0; at < kCount; ++at) values[at] = 0.0f;
#pragma unroll 1
    for (u32 slice = 0; slice < kSlices; ++slice) {
        const u32 remote = ptx::mapa_shared_cluster(base, rank0 + slice * rank_step);
#pragma unroll
        for (u32 at = 0; at < kCount; at += 4) {
            float part[4];
            ptx::ld_shared_cluster_v4_f32(part, partial_address(remote, at / 4));
#pragma unroll
            for (u32 i = 0; i < 4; ++i) values[at + i] += part[i];
        }
    }
}
