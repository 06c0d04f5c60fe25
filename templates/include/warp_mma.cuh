// The part of a tile that one warp computes with mma.sync, and its accumulators.
#pragma once

#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "swizzle.cuh"
#include "types.cuh"

// Fragments of one operand. kRows rows along M or N by kRowBytes bytes of K lie in shared memory, with K contiguous
// (kKContiguous) or, 16-bit types only, as values of K below each other.
template <u32 kRows, u32 kRowBytes, bool kKContiguous>
struct Fragments {
    using Contiguous = SwizzledRows<kRowBytes>;
    using Strided = SwizzledRows<kRows * 2>;

    // All threads of a warp: 16 rows by 32 bytes of K. With i the upper or lower 8 rows and j the 16-byte half of K, A
    // gets (i, j) in r[i + 2j]. B gets it in r[j + 2i]: an MMA takes both halves of 8 columns in neighbouring registers.
    template <bool kIsA>
    __device__ __forceinline__ static void load(u32 (&r)[4], u32 tile, u32 row0, u32 step) {
        const u32 line = threadIdx.x % 8;
        const u32 bit0 = threadIdx.x / 8 % 2, bit1 = threadIdx.x / 16 % 2;
        const u32 i = kIsA ? bit0 : bit1, j = kIsA ? bit1 : bit0;
        if constexpr (kKContiguous) {
            ptx::ldmatrix_x4(r, tile + Contiguous::offset(row0 + i * 8 + line, step * 2 + j));
        } else {
            ptx::ldmatrix_x4_trans(r, tile + Strided::offset(step * 16 + j * 8 + line, row0 / 8 + i));
        }
    }
};

// A warp's kM x kN accumulators: acc[i][j] is the fragment of rows 16 i, columns 8 j.
// kPromote: each instruction starts from zero and its sum is added in float. The tensor cores add fp8 products to what
// they hold with about 14 bits; so every 32 elements of K their sum leaves for a float.
template <typename A, typename B, u32 kM, u32 kN, bool kPromote>
struct WarpTile {
    static_assert(kM % 16 == 0 && kN % 16 == 0, "fragments are loaded by 16 rows");
    float acc[kM / 16][kN / 8][4] = {};

    // Steps in flight cost fragments in registers; fp8 more so, where it is unpacked to be multiplied as fp16 (sm_90).
    static constexpr u32 kUnroll = sizeof(A) == 1 ? 1 : 2;

    // All threads of the warp: adds the product of the tiles in shared memory. (row0, column0) is the warp's corner.
    template <typename FragmentsA, typename FragmentsB, u32 kRowBytes>
    __device__ __forceinline__ void multiply(u32 tile_a, u32 tile_b, u32 row0, u32 column0) {
#pragma unroll kUnroll
        for (u32 step = 0; step < kRowBytes / 32; ++step) {
            u32 a[kM / 16][4], b[kN / 16][4];
#pragma unroll
            for (u32 i = 0; i < kM / 16; ++i) FragmentsA::template load<true>(a[i], tile_a, row0 + i * 16, step);
#pragma unroll
            for (u32 j = 0; j < kN / 16; ++j) FragmentsB::template load<false>(b[j], tile_b, column0 + j * 16, step);
#pragma unroll
            for (u32 i = 0; i < kM / 16; ++i) {
#pragma unroll
                for (u32 j = 0; j < kN / 8; ++j) {
                    const u32 columns[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    add(acc[i][j], a[i], columns);
                }
            }
        }
    }

    // Calls visit(first, second, row, column) for each pair of neighbours, with row and column inside the warp's tile.
    template <typename Visit>
    __device__ __forceinline__ void each_pair(Visit visit) {
        const u32 lane = threadIdx.x % 32;
#pragma unroll
        for (u32 i = 0; i < kM / 16; ++i) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
#pragma unroll
                for (u32 j = 0; j < kN / 8; ++j) {
                    visit(acc[i][j][half * 2], acc[i][j][half * 2 + 1], i * 16 + half * 8 + lane / 4,
                          j * 8 + lane % 4 * 2);
                }
            }
        }
    }

   private:
    __device__ __forceinline__ static void add(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
        if constexpr (kPromote) {
            float part[4] = {};
            ptx::mma_sync<A, B>(part, a, b);
#pragma unroll
            for (u32 e = 0; e < 4; ++e) sum[e] += part[e];
        } else {
            ptx::mma_sync<A, B>(sum, a, b);
        }
    }
};
