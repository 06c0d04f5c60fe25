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
    static constexpr bool kContiguous = kKContiguous;
    using Contiguous = SwizzledRows<kRowBytes>;
    using Strided = SwizzledRows<kRows * 2>;

    // All threads of a warp: 16 rows by 32 bytes of K. With i the upper or lower 8 rows and j the 16-byte half of K, A
    // gets (i, j) in r[i + 2j]. B gets it in r[j + 2i]: an MMA takes both halves of 8 columns in two registers side by
    // side.
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

    // All threads of the warp: adds the product of the tiles in shared memory. (row0, column0) is the warp's corner.
    template <typename FragmentsA, typename FragmentsB, u32 kRowBytes>
    __device__ __forceinline__ void multiply(u32 tile_a, u32 tile_b, u32 row0, u32 column0) {
        // Steps in flight hold their fragments in registers, of which a strided operand's addresses leave too few, and
        // so does fp8 where it is unpacked to be multiplied as fp16 (sm_90).
        constexpr bool kRoom = FragmentsA::kContiguous && FragmentsB::kContiguous && sizeof(A) > 1;
        constexpr u32 kUnroll = kRoom ? 2 : 1;
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

// A warp's accumulators in shared memory, where they can be read in another order than the MMA left them in: each
// access to D then covers whole sectors, and one loop of a few instructions finishes every element.
template <u32 kM, u32 kN>
struct ParkedTile {
    struct alignas(8) Pair {
        float first;
        float second;
    };
    static constexpr u32 kPairs = kN / 2;  // of a row
    static constexpr u32 kBytes = kM * kN * 4;

    Pair* pairs;

    // All threads of the warp; the memory is the warp's own.
    __device__ __forceinline__ void put(const float (&acc)[kM / 16][kN / 8][4]) const {
        const u32 lane = threadIdx.x % 32;
#pragma unroll
        for (u32 i = 0; i < kM / 16; ++i) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
#pragma unroll
                for (u32 j = 0; j < kN / 8; ++j) {
                    pairs[place(i * 16 + half * 8 + lane / 4, j * 4 + lane % 4)] = {acc[i][j][half * 2],
                                                                                    acc[i][j][half * 2 + 1]};
                }
            }
        }
        __syncwarp();
    }

    // All threads of the warp: visit(pair, row, column) for each pair of columns; neighbouring lanes are neighbours
    // along a row (kAlongN), or down a column.
    template <bool kAlongN, typename Visit>
    __device__ __forceinline__ void each(Visit visit) const {
#pragma unroll 2
        for (u32 index = threadIdx.x % 32; index < kM * kPairs; index += 32) {
            const u32 row = kAlongN ? index / kPairs : index % kM;
            const u32 pair = kAlongN ? index % kPairs : index / kM;
            visit(pairs[place(row, pair)], row, pair * 2);
        }
    }

   private:
    // Swizzled so that the lanes of a fragment, of a row and of a column each fall into different banks.
    __device__ __forceinline__ static u32 place(u32 row, u32 pair) {
        constexpr u32 kRowsPerSpan = kPairs < 16 ? 16 / kPairs : 1;  // rows in the 128 bytes of all banks
        constexpr u32 kQuads = 4 / kRowsPerSpan;
        const u32 span = row / kRowsPerSpan;
        return row * kPairs + (pair ^ (span % kQuads * 4 + span / kQuads % 4));
    }
};
