// Copies one tile of an operand from global into shared memory, whatever its alignment. What lies outside the operand
// becomes zero, so that the edges of M, N and K need no case of their own in the main loop.
//
// Two geometries:
//   StraightCopy    shared memory keeps the order of global memory: kOuter rows of kRowBytes contiguous bytes
//   TransposedCopy  the operand is contiguous along M or N but the MMA wants K contiguous and no ldmatrix transposes
//                   its type (tf32, fp8): kRows rows of kRowBytes bytes of K are gathered from columns
//
// The width of a copy follows from the alignment of pointer and stride at run time; every thread of the launch takes
// the same branch.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/prmt.cuh"
#include "ptx/shared.cuh"
#include "swizzle.cuh"
#include "types.cuh"

struct alignas(16) Bytes16 {
    u32 words[4];
};

// The widest power of two, at most 16, that divides the address and the stride.
__device__ __forceinline__ u32 common_alignment(const void* pointer, i64 stride_bytes) {
    const u32 bits = static_cast<u32>(reinterpret_cast<u64>(pointer)) | static_cast<u32>(stride_bytes) | 16;
    return bits & (~bits + 1);
}

// A multiple of kBytes bytes as one load. `source` is as aligned as kBytes says.
template <u32 kBytes>
__device__ __forceinline__ u32 load_word(const char* source) {
    if constexpr (kBytes == 4) return *reinterpret_cast<const u32*>(source);
    if constexpr (kBytes == 2) return *reinterpret_cast<const u16*>(source);
    return *reinterpret_cast<const u8*>(source);
}

// kOuter rows of kRowBytes bytes, elements of kElement bytes, by kThreads threads.
template <u32 kOuter, u32 kRowBytes, u32 kElement, u32 kThreads>
struct StraightCopy {
    using Rows = SwizzledRows<kRowBytes>;
    static constexpr u32 kBytes = kOuter * kRowBytes;
    static constexpr u32 kChunks = kBytes / 16;
    static constexpr u32 kPasses = (kChunks + kThreads - 1) / kThreads;

    const char* tile;  // its first byte in global memory
    i64 stride;        // bytes between rows
    u32 rows;          // of the tile that the operand has, at most kOuter
    u32 row_bytes;     // of a row that it has, at most kRowBytes
    u32 alignment;     // of every row

    // `shared` is the address of the tile and `bytes` the same place as a pointer. Copies of 4 or 16 bytes are left in
    // flight for the caller's group; narrower ones are done on return.
    __device__ __forceinline__ void issue(u32 shared, char* bytes) const {
        if (alignment == 16 && rows == kOuter && row_bytes == kRowBytes) {
            each<kPasses, true>([&](u32 place, const char* source, u32) {
                ptx::cp_async_cg_16(shared + place, source, 16);
            });
        } else if (alignment == 16) {
            each<1>([&](u32 place, const char* source, u32 valid) {
                ptx::cp_async_cg_16(shared + place, source, valid);
            });
        } else if (kElement == 4 || alignment >= 4) {
            each<1>([&](u32 place, const char* source, u32 valid) {
#pragma unroll
                for (u32 i = 0; i < 16; i += 4) {
                    const u32 here = valid > i ? (valid - i < 4 ? valid - i : 4) : 0;
                    ptx::cp_async_ca_4(shared + place + i, here ? source + i : tile, here);
                }
            });
        } else if constexpr (kElement < 4) {
            each<1>([&](u32 place, const char* source, u32 valid) {
                Bytes16 gathered = {};
#pragma unroll
                for (u32 i = 0; i < 16; i += kElement) {
                    if (i < valid) gathered.words[i / 4] |= load_word<kElement>(source + i) << (8 * (i % 4));
                }
                *reinterpret_cast<Bytes16*>(bytes + place) = gathered;
            });
        }
    }

    // Calls visit(offset in shared memory, source, valid bytes) for this thread's share of the 16-byte chunks. Only the
    // wide copies of whole tiles are unrolled: the others have enough instructions of their own, and the offsets of
    // every pass would be kept in registers all through the main loop.
    template <u32 kUnroll, bool kWhole = false, typename Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        // Whole rows per pass: a thread keeps its chunk and steps by a fixed number of rows.
        static_assert(kThreads % Rows::kChunks == 0, "uneven passes");
        constexpr u32 kRowsPerPass = kThreads / Rows::kChunks;
        const u32 chunk = threadIdx.x % Rows::kChunks;
        const u32 first = threadIdx.x / Rows::kChunks;
        const u32 left = row_bytes > chunk * 16 ? row_bytes - chunk * 16 : 0;
        const char* source = tile + first * stride + chunk * 16;
#pragma unroll kUnroll
        for (u32 pass = 0; pass < kPasses; ++pass) {
            const u32 row = first + pass * kRowsPerPass;
            if (kChunks % kThreads != 0 && row >= kOuter) break;
            const u32 valid = kWhole ? 16 : row < rows ? (left < 16 ? left : 16) : 0;
            visit(Rows::offset(row, chunk), valid ? source : tile, valid);
            source += kRowsPerPass * stride;
        }
    }
};

// kRows rows of kRowBytes bytes of K, out of memory where K is the strided extent.
template <u32 kRows, u32 kRowBytes, u32 kElement, u32 kThreads>
struct TransposedCopy {
    using Rows = SwizzledRows<kRowBytes>;
    static constexpr u32 kBytes = kRows * kRowBytes;
    static constexpr u32 kValues = kRowBytes / kElement;  // of K in a tile
    static_assert(kElement == 4 || kElement == 1, "16-bit operands are transposed by ldmatrix");

    const char* tile;
    i64 stride;     // bytes between values of K
    u32 values;     // of K that the operand has of the tile, at most kValues
    u32 rows;       // elements along M or N that it has, at most kRows
    u32 alignment;  // of every value of K

    __device__ __forceinline__ void issue(u32 shared, char* bytes) const {
        if constexpr (kElement == 4) {
            words(shared);
        } else if (alignment >= 4) {
            blocks<4>(bytes);
        } else {
            blocks<1>(bytes);
        }
    }

    // A warp copies 8 rows by 4 values of K: whole 32-byte sectors of global memory, all banks of shared memory.
    __device__ __forceinline__ void words(u32 shared) const {
        constexpr u32 kWords = kBytes / 4;
#pragma unroll 2
        for (u32 pass = 0; pass < kWords / kThreads; ++pass) {
            const u32 index = threadIdx.x + pass * kThreads;
            const u32 patch = index / 32;
            const u32 row = index % 8 + patch % (kRows / 8) * 8;
            const u32 k = index / 8 % 4 + patch / (kRows / 8) * 4;
            const bool inside = row < rows && k < values;
            ptx::cp_async_ca_4(shared + Rows::offset(row, k / 4) + k % 4 * 4,
                               inside ? tile + k * stride + row * 4 : tile, inside ? 4 : 0);
        }
        static_assert(kWords % kThreads == 0, "uneven passes");
    }

    // A thread turns a block of 4 rows by 4 values of K, loaded in pieces of kLoad bytes; a warp 8 by 4 such blocks.
    template <u32 kLoad>
    __device__ __forceinline__ void blocks(char* bytes) const {
        constexpr u32 kBlocks = kBytes / 16;
        constexpr u32 kAcross = kRows / 32 > 0 ? kRows / 32 : 1;  // warps' patches along the rows
        constexpr u32 kPatchRows = kRows < 32 ? kRows / 4 : 8;     // blocks of a patch along the rows
#pragma unroll 1
        for (u32 pass = 0; pass < (kBlocks + kThreads - 1) / kThreads; ++pass) {
            const u32 index = threadIdx.x + pass * kThreads;
            if (kBlocks % kThreads != 0 && index >= kBlocks) break;
            const u32 patch = index / (kPatchRows * 4);
            const u32 row = (index % kPatchRows + patch % kAcross * kPatchRows) * 4;
            const u32 k = (index / kPatchRows % 4 + patch / kAcross * 4) * 4;
            u32 column[4] = {};
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                if (k + j >= values) continue;
                const char* source = tile + (k + j) * stride + row;
                if (kLoad == 4 && row + 4 <= rows) {
                    column[j] = load_word<4>(source);
                    continue;
                }
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    if (row + i < rows) column[j] |= load_word<1>(source + i) << (8 * i);
                }
            }
            // 4x4 bytes transposed in two rounds: pairs of columns, then pairs of pairs.
            const u32 low01 = ptx::prmt(column[0], column[1], 0x5140), high01 = ptx::prmt(column[0], column[1], 0x7362);
            const u32 low23 = ptx::prmt(column[2], column[3], 0x5140), high23 = ptx::prmt(column[2], column[3], 0x7362);
            const u32 turned[4] = {ptx::prmt(low01, low23, 0x5410), ptx::prmt(low01, low23, 0x7632),
                                   ptx::prmt(high01, high23, 0x5410), ptx::prmt(high01, high23, 0x7632)};
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                *reinterpret_cast<u32*>(bytes + Rows::offset(row + i, k / 16) + k % 16) = turned[i];
            }
        }
    }
};
