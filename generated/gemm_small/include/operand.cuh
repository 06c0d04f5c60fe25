// One operand of the tensor cores in shared memory: how TMA brings a tile of it in, and how a wgmma descriptor says
// where it lies. A tile is kRows of M or N by 128 bytes of K.
//   K-major     rows of 128 bytes, 8 of them an atom of the 128-byte swizzle
//   MN-major    (16-bit types) columns of kChunk elements of M or N, 64 of K below each other; kChunk is the widest of
//               64, 32, 16, 8 that divides kRows, and the swizzle is as wide as the column
#pragma once

#include "ptx/tma.cuh"
#include "types.cuh"

__host__ __device__ constexpr u32 greatest_common_divisor(u32 a, u32 b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
}

// kReceivers CTAs of the cluster need the same tile: each fetches one of kSlices slices and sends it to all. A slice is
// a whole number of 8-row swizzle atoms, so with few rows some CTAs fetch nothing.
// kStreamed: nobody reads the matrix again, so its lines are the first to leave the L2.
template <typename T, u32 kRows, bool kKMajor, u32 kReceivers, bool kStreamed>
struct Operand {
    static constexpr u32 kTileK = 128 / sizeof(T);
    static constexpr u32 kBytes = kRows * 128;
    static constexpr u32 kChunk = greatest_common_divisor(kRows, 64);
    static constexpr u32 kLines = kKMajor ? kRows : kTileK;  // what a slice is cut from
    static constexpr u32 kLineBytes = kKMajor ? 128 : kChunk * sizeof(T);
    static constexpr u32 kSlices = greatest_common_divisor(kLines / 8, kReceivers);
    static constexpr u32 kSliceLines = kLines / kSlices;
    static_assert(kKMajor || sizeof(T) == 2, "wgmma reads MN-major operands of 16-bit types only");

    // The upper half of a descriptor: strides in 16-byte units, and the swizzle.
    static constexpr u64 kLeading = kKMajor ? 1 : kLineBytes == 16 ? 8 : kTileK * kLineBytes / 16;
    static constexpr u64 kStride = 8 * kLineBytes / 16;
    static constexpr u64 kSwizzle = kLineBytes == 128 ? 1 : kLineBytes == 64 ? 2 : kLineBytes == 32 ? 3 : 0;
    // One MMA eats 32 bytes of K along a K-major row, or 16 lines of an MN-major column.
    static constexpr u32 kStepBytes = kKMajor ? 32 : 16 * kLineBytes;
    static constexpr u32 kTransposed = kKMajor ? 0 : 1;

    // The address of a CTA's own memory carries the CTA's rank in its upper bits; the field takes the lower 18.
    __device__ __forceinline__ static u64 descriptor(u32 address) {
        return kSwizzle << 62 | kStride << 32 | kLeading << 16 | (address & 0x3ffff) >> 4;
    }

    // One thread: this CTA's share of the tile at (row, k) of matrix `batch`, into `stage` of every CTA of `mask`.
    __device__ __forceinline__ static void fetch(const TensorMap* map, u32 stage, u32 barrier, u32 share, u16 mask,
                                                 u32 row, u32 k, u32 batch) {
        if (share >= kSlices) return;
        const u32 line = share * kSliceLines;
        if constexpr (kKMajor) {
            copy(map, stage + line * kLineBytes, barrier, mask, k, row + line, batch);
        } else {
#pragma unroll
            for (u32 column = 0; column < kRows / kChunk; ++column) {
                copy(map, stage + (column * kLines + line) * kLineBytes, barrier, mask, row + column * kChunk, k + line,
                     batch);
            }
        }
    }

   private:
    __device__ __forceinline__ static void copy(const TensorMap* map, u32 destination, u32 barrier, u16 mask, u32 x,
                                                u32 y, u32 z) {
        if constexpr (kReceivers == 1 && kStreamed) {
            ptx::cp_async_bulk_tensor_3d_global_to_shared_hint(destination, map, barrier,
                                                               ptx::createpolicy_evict_first(), x, y, z);
        } else if constexpr (kReceivers == 1) {
            ptx::cp_async_bulk_tensor_3d_global_to_shared(destination, map, barrier, x, y, z);
        } else {
            ptx::cp_async_bulk_tensor_3d_global_to_shared_multicast(destination, map, barrier, mask, x, y, z);
        }
    }
};
