// One operand of tcgen05.mma in shared memory: how TMA brings a tile of it in, and how a descriptor says where it lies.
// A tile is kRows of M or N by 128 bytes of K.
//   K-major     rows of 128 bytes, 8 of them an atom of the 128-byte swizzle
//   MN-major    lines along M or N, one for each K: kChunk elements, the most that divide kRows and fit 128 bytes; the
//               swizzle is as wide as the line, and 8 lines are its atom. Of tf32 a line has 128 bytes, and the swizzle
//               moves units of 32 of them, not of 16: 4 lines are its atom
#pragma once

#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"
#include "ptx/tma_pair.cuh"
#include "types.cuh"

__host__ __device__ constexpr u32 greatest_common_divisor(u32 a, u32 b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
}

// Lines of a tile in shared memory, 8 of them an atom of the swizzle: rows, or one for each K.
template <typename T, u32 kRows, bool kKMajor>
inline constexpr u32 Tcgen05Lines = kKMajor ? kRows : 128 / sizeof(T);

// kReceivers CTAs of the cluster need the same tile: each fetches one slice of whole swizzle atoms and sends it to all.
// kCtas is the CTA group.
template <typename T, u32 kRows, bool kKMajor, u32 kReceivers, u32 kCtas>
struct Tcgen05Operand {
    static constexpr u32 kTileK = 128 / sizeof(T);
    static constexpr u32 kBytes = kRows * 128;
    static constexpr u32 kChunk = greatest_common_divisor(kRows, 128 / sizeof(T));
    static constexpr u32 kLines = Tcgen05Lines<T, kRows, kKMajor>;
    static constexpr u32 kLineBytes = kKMajor ? 128 : kChunk * sizeof(T);
    static constexpr u32 kSlices = kReceivers;
    static constexpr u32 kSliceLines = kLines / kSlices;
    static_assert(kSliceLines % 8 == 0 && kSliceLines * kReceivers == kLines, "a slice is made of whole atoms");
    static constexpr bool kWideUnits = !kKMajor && sizeof(T) == 4;
    static_assert(!kWideUnits || kLineBytes == 128, "the swizzle of 32-byte units has lines of 128 bytes alone");
    static_assert(kLineBytes >= 16, "a line of TMA has at least 16 bytes");

    // Strides in 16-byte units. MN-major: from one chunk of M or N to the next, and from the lines of an atom to those
    // of the next; without a swizzle the two fields trade places.
    static constexpr u64 kNextChunk = kTileK * kLineBytes / 16;
    static constexpr u64 kNextAtom = (kWideUnits ? 4 : 8) * kLineBytes / 16;
    static constexpr u64 kLeading = kKMajor ? 1 : kLineBytes == 16 ? kNextAtom : kNextChunk;
    static constexpr u64 kStride = !kKMajor && kLineBytes == 16 ? kNextChunk : kNextAtom;
    static constexpr u64 kSwizzle =
        kWideUnits ? 1 : kLineBytes == 128 ? 2 : kLineBytes == 64 ? 4 : kLineBytes == 32 ? 6 : 0;
    static constexpr u64 kConstant = 1;  // bits 46 to 48
    // One MMA eats 32 bytes of K along a K-major row, or as many MN-major lines.
    static constexpr u32 kStepBytes = kKMajor ? 32 : 32 / sizeof(T) * kLineBytes;
    static constexpr bool kMnMajor = !kKMajor;

    // The address of a CTA's own memory carries the CTA's rank in its upper bits; the field takes the lower 18.
    __device__ __forceinline__ static u64 descriptor(u32 address) {
        return kSwizzle << 61 | kConstant << 46 | kStride << 32 | kLeading << 16 | (address & 0x3ffff) >> 4;
    }

    // One thread: this CTA's share of the tile at (row, k) of matrix `batch`, into `stage` of every CTA of `mask`.
    // `barrier` counts the bytes: this CTA's own or, of a pair, the even CTA's.
    __device__ __forceinline__ static void fetch(const TensorMap* map, u32 stage, u32 barrier, u32 share, u16 mask,
                                                 u32 row, u32 k, u32 batch) {
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
        if constexpr (kCtas == 1 && kReceivers == 1) {
            ptx::cp_async_bulk_tensor_3d_global_to_shared(destination, map, barrier, x, y, z);
        } else if constexpr (kCtas == 1) {
            ptx::cp_async_bulk_tensor_3d_global_to_shared_multicast(destination, map, barrier, mask, x, y, z);
        } else if constexpr (kReceivers == 1) {
            ptx::cp_async_bulk_tensor_3d_cta_group_2_global_to_shared(destination, map, barrier, x, y, z);
        } else {
            ptx::cp_async_bulk_tensor_3d_cta_group_2_global_to_shared_multicast(destination, map, barrier, mask, x, y,
                                                                                z);
        }
    }
};

// The instruction descriptor of tcgen05.mma: fp32 accumulators, M by N of the whole CTA group, majors, types.
template <typename T>
struct Tcgen05Type;  // kFormat, and the kind that takes it
template <>
struct Tcgen05Type<fp16> {
    static constexpr u32 kFormat = 0;
    using Kind = ptx::KindF16;
};
template <>
struct Tcgen05Type<bf16> {
    static constexpr u32 kFormat = 1;
    using Kind = ptx::KindF16;
};
template <>
struct Tcgen05Type<tf32> {
    static constexpr u32 kFormat = 2;
    using Kind = ptx::KindTf32;
};
template <>
struct Tcgen05Type<e4m3> {
    static constexpr u32 kFormat = 0;
    using Kind = ptx::KindF8f6f4;
};
template <>
struct Tcgen05Type<e5m2> {
    static constexpr u32 kFormat = 1;
    using Kind = ptx::KindF8f6f4;
};

template <typename A, typename B, u32 kM, u32 kN, bool kAMnMajor, bool kBMnMajor>
__host__ __device__ constexpr u32 instruction_descriptor() {
    constexpr u32 kFloat32 = 1;
    return kFloat32 << 4 | Tcgen05Type<A>::kFormat << 7 | Tcgen05Type<B>::kFormat << 10 |
           static_cast<u32>(kAMnMajor) << 15 | static_cast<u32>(kBMnMajor) << 16 | kN / 8 << 17 | kM / 16 << 24;
}
