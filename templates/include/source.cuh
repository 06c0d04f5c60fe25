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

    i64 stride;
    const char* start;
    u32 alignment;
    i64 rows_left;
    i64 k_left;

    // The operand of one batch, from row `row0` on. `ld` in elements.
    __device__ __forceinline__ Source(const T* matrix, i64 ld, u32 row0, u32 rows, u32 k)
        : stride(ld * static_cast<i64>(sizeof(T))),
          start(reinterpret_cast<const char*>(matrix) + (kKMajor ? row0 * stride : row0 * static_cast<i64>(sizeof(T)))),
          alignment(common_alignment(matrix, stride)),
          rows_left(static_cast<i64>(rows) - row0),
          k_left(k) {}

    // All threads: begins to copy the next tile along K.
    __device__ __forceinline__ void issue(u32 shared, char* bytes) {
        if constexpr (kKMajor) {
            KMajor{start, stride, rows_left, k_left * static_cast<i64>(sizeof(T)), alignment}.issue(shared, bytes);
            start += kRowBytes;
        } else {
            if constexpr (kStraight) {
                MNMajor{start, stride, k_left, rows_left * static_cast<i64>(sizeof(T)), alignment}.issue(shared, bytes);
            } else {
                Transposed{start, stride, k_left, rows_left, alignment}.issue(shared, bytes);
            }
            start += kTileK * stride;
        }
        k_left -= kTileK;
    }
};
