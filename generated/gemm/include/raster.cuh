// The order in which whole clusters take their tiles: bands of `kGroup` cluster tiles along the fast axis, swept along
// the other one, so that clusters that run together read few distinct rows of A and columns of B out of the L2 cache.
// It permutes cluster tiles, never CTAs: what a cluster shares stays in one rectangle.
#pragma once

#include "types.cuh"

struct ClusterTile {
    u32 m;  // in cluster tiles
    u32 n;
    u32 slice;  // of K, where the slices of a tile are clusters of their own
    u32 batch;
};

template <bool kAlongM, u32 kGroup, u32 kSlices>
struct Raster {
    u32 tiles_m;  // in cluster tiles
    u32 tiles_n;
    u32 batch;

    // At most 2^32: D would not fit in any memory before that.
    __device__ __forceinline__ u32 total() const { return tiles_m * tiles_n * kSlices * batch; }

    __device__ __forceinline__ ClusterTile tile(u32 index) const {
        const u32 plane = tiles_m * tiles_n;
        const u32 layer = index / plane;
        const u32 place = index - layer * plane;
        const u32 fast = kAlongM ? tiles_m : tiles_n;
        const u32 slow = kAlongM ? tiles_n : tiles_m;
        const u32 first = place / (kGroup * slow) * kGroup;
        const u32 height = fast - first < kGroup ? fast - first : kGroup;  // the last band may be lower
        const u32 within = place - first * slow;
        const u32 along_slow = within / height;
        const u32 along_fast = first + within - along_slow * height;
        return {kAlongM ? along_fast : along_slow, kAlongM ? along_slow : along_fast, layer % kSlices, layer / kSlices};
    }
};
