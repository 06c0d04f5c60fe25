// Where a 16-byte chunk of a tile's row lies in shared memory, so that eight rows that are read together (an ldmatrix)
// or written together fall into eight different groups of banks.
#pragma once

#include "types.cuh"

// A tile of rows of kRowBytes bytes (32 to 128, or a multiple of 128), 16-byte aligned.
template <u32 kRowBytes>
struct SwizzledRows {
    static constexpr u32 kChunks = kRowBytes / 16;
    // Rows that share the 128 bytes of all banks need no swizzle among themselves.
    static constexpr u32 kSpan = kChunks < 8 ? kChunks : 8;
    static constexpr u32 kRowsPerSpan = 8 / kSpan;

    // Offset in bytes.
    __device__ __forceinline__ static u32 offset(u32 row, u32 chunk) {
        return row * kRowBytes + (chunk ^ (row / kRowsPerSpan % kSpan)) * 16;
    }
};
