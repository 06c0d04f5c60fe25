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

// Where the owner of a chunk receives slice `slice` of it: 16 bytes of a thread beside those of its neighbours, so that
// a warp stores whole segments, and the same thread of the owner, which wants the same elements, reads them back.
template <u32 kSlices, u32 kCount>
__device__ __forceinline__ u32 partial_address(u32 base, u32 turn, u32 slice) {
    return base + (turn * kSlices + slice) * kCount * 128 * sizeof(float) + threadIdx.x % 128 * 16;
}

// The whole warpgroup, between two barriers of the cluster: its sums of a chunk into the memory of the chunk's owner.
// Stores, because a peer's memory is written several times faster than it is read. `base` is a shared::cluster address.
template <u32 kSlices, u32 kCount>
__device__ __forceinline__ void send_partials(const float (&values)[kCount], u32 base, u32 turn, u32 slice) {
    const u32 address = partial_address<kSlices, kCount>(base, turn, slice);
#pragma unroll
    for (u32 at = 0; at < kCount; at += 4) {
        ptx::st_shared_cluster_v4_f32(address + at / 4 * 2048, values[at], values[at + 1], values[at + 2],
                                      values[at + 3]);
    }
}

// The whole warpgroup of the owner, after a barrier of the cluster: the sum over all slices. `base` is its own memory.
template <u32 kSlices, u32 kCount>
__device__ __forceinline__ void sum_partials(float (&values)[kCount], u32 base, u32 turn) {
#pragma unroll
    for (u32 at = 0; at < kCount; ++at) values[at] = 0.0f;
#pragma unroll
    for (u32 slice = 0; slice < kSlices; ++slice) {
        const u32 address = partial_address<kSlices, kCount>(base, turn, slice);
#pragma unroll
        for (u32 at = 0; at < kCount; at += 4) {
            float part[4];
            ptx::ld_shared_v4_f32(part, address + at / 4 * 2048);
#pragma unroll
            for (u32 i = 0; i < 4; ++i) values[at + i] += part[i];
        }
    }
}
