// One operand of a tile, as a stream of tiles along K: from global memory in either layout to fragments of mma.sync.
#pragma once

#include "tile_copy.cuh"
#include "types.cuh"
#include "warp_mma.cuh"

// An operand with K contiguous is copied as it lies. One without is transposed by ldmatrix where its elements have 16
// bits, else on its way into shared memory.
// kRows rows along M or N by kRowBytes bytes of K are copied at a time, by kThreads threads.
template <typename T, u32 kRows, u32 kRowBytes, bool kKMajor, u32 kThreads>
struct Source {
    static constexpr u32 kTileK = kRowBytes / sizeof(T);
    static constexpr bool kStraight = kKMajor || sizeof(T) == 2;
    using Fragments = ::Fragments<kRows, kRowBytes, kKMajor || !kStraight>;
    using KMajor = StraightCopy<kRows, kRowBytes, sizeof(T), kThreads>;
    using MNMajor = StraightCopy<kTileK, kRows * sizeof(T), sizeof(T), kThreads>;
    using Transposed = TransposedCopy<kRows, kRowBytes, sizeof(T) == 2 ? 4 : sizeof(T), kThreads>;
    static constexpr u32 kBytes = kRows * kRowBytes;

    const char* start;
    i64 stride;  // bytes
    u32 rows;    // of the tile that the operand has
    u32 alignment;

    // The operand of one batch, from row `row0` on; it has `extent` rows. `ld` in elements.
    __device__ __forceinline__ Source(const T* matrix, i64 ld, u32 row0, u32 extent)
        : start(reinterpret_cast<const char*>(kKMajor ? matrix + row0 * ld : matrix + row0)),
          stride(ld * static_cast<i64>(sizeof(T))),
          rows(extent - row0 < kRows ? extent - row0 : kRows),
          alignment(common_alignment(matrix, stride)) {}

    // All threads: begins to copy the next tile along K, of which `k_left` values are left.
    __device__ __forceinline__ void issue(u32 shared, char* bytes, u32 k_left) {
        const u32 values = k_left < kTileK ? k_left : kTileK;
        if constexpr (kKMajor) {
            KMajor{start, stride, rows, values * static_cast<u32>(sizeof(T)), alignment}.issue(shared, bytes);
            start += kRowBytes;
        } else {
            if constexpr (kStraight) {
                MNMajor{start, stride, values, rows * static_cast<u32>(sizeof(T)), alignment}.issue(shared, bytes);
            } else {
                Transposed{start, stride, values, rows, alignment}.issue(shared, bytes);
            }
            start += kTileK * stride;
        }
    }
};
