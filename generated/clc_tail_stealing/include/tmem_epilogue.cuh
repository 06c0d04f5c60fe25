// From tensor memory to D: one warp at a time, in chunks of kWarpRows rows (16 or 32) by kColumns columns.
// A chunk is one or two fragments of 16 rows, each as tcgen05.ld.16x256b and mma lay it out:
//   thread t holds at values[4j + 2i + e] row t / 4 + 8 i, column 8 j + 2 (t % 4) + e.
// That is the layout of one warp of a wgmma chunk, so Finish and DirectStore of epilogue.cuh do the arithmetic and the
// ordinary stores; here are the load from tensor memory, and C and D through shared memory and TMA.
#pragma once

#include "epilogue.cuh"
#include "numbers.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/pin.cuh"
#include "ptx/shared.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"
#include "types.cuh"

// What the chunk functions of epilogue.cuh take as the first row of a warpgroup's 64, so that this warp's fragment
// begins at `row`: they put 16 rows of each warp below each other.
__device__ __forceinline__ u32 fragment_base(u32 row) { return row - threadIdx.x % 128 / 32 * 16; }

// A warp reads the fragments of one chunk; `address` is that of its first lane and the chunk's first column.
template <u32 kFragments, u32 kValues>
__device__ __forceinline__ void load_chunk(float (&values)[kFragments][kValues], u32 address) {
#pragma unroll
    for (u32 i = 0; i < kFragments; ++i) ptx::tcgen05_ld_16x256b(values[i], address + (i * 16 << 16));
    ptx::tcgen05_wait_ld();
#pragma unroll
    for (u32 i = 0; i < kFragments; ++i) ptx::pin(values[i]);
}

// A chunk of a matrix in shared memory, as TMA copies it: kNMajor has a line for each row, else one for each column.
// A line has at most 128 bytes and is swizzled by its width: 16-byte units trade places by the number of the 128 bytes
// they lie in.
template <typename T, bool kNMajor, u32 kRows, u32 kColumns>
struct ChunkBox {
    static constexpr u32 kLineBytes = (kNMajor ? kColumns : kRows) * sizeof(T);
    static constexpr u32 kBytes = kRows * kColumns * sizeof(T);
    static constexpr u32 kValues = kColumns / 2;  // of a thread in one fragment
    static_assert(kLineBytes >= 16 && kLineBytes <= 128, "a line is as wide as its swizzle");
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "16-bit or 32-bit elements");

    // Whole warp: fragment `index` of the chunk at `box`, converted to T.
    __device__ __forceinline__ static void store(const float (&values)[kValues], u32 box, u32 index) {
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (u32 first = 0; first < kColumns; first += kStep) {
                u32 words[kStep / 4];
#pragma unroll
                for (u32 i = 0; i < kStep / 4; ++i) {
                    words[i] = pack<T>(values[first / 2 + 2 * i], values[first / 2 + 2 * i + 1]);
                }
                const u32 address = box + matrix_offset(index, first);
                if constexpr (kStep == 8) {
                    if constexpr (kNMajor) {
                        ptx::stmatrix_x2(address, words[0], words[1]);
                    } else {
                        ptx::stmatrix_x2_trans(address, words[0], words[1]);
                    }
                } else if constexpr (kNMajor) {
                    ptx::stmatrix_x4(address, words[0], words[1], words[2], words[3]);
                } else {
                    ptx::stmatrix_x4_trans(address, words[0], words[1], words[2], words[3]);
                }
            }
        } else {
#pragma unroll
            for (u32 at = 0; at < kValues; at += 2) {
                const u32 row = index * 16 + threadIdx.x % 32 / 4 + at / 2 % 2 * 8;
                const u32 column = threadIdx.x % 4 * 2 + at / 4 * 8;
                if constexpr (kNMajor) {
                    ptx::st_shared_v2_f32(box + offset(row, column), values[at], values[at + 1]);
                } else {
                    ptx::st_shared_f32(box + offset(row, column), values[at]);
                    ptx::st_shared_f32(box + offset(row, column + 1), values[at + 1]);
                }
            }
        }
    }

    // Whole warp: adds `factor` times fragment `index` of the chunk at `box`.
    __device__ __forceinline__ static void add(float (&values)[kValues], float factor, u32 box, u32 index) {
        if constexpr (sizeof(T) == 2) {
            struct Pair {
                T value[2];
            };
#pragma unroll
            for (u32 first = 0; first < kColumns; first += kStep) {
                u32 words[kStep / 4];
                const u32 address = box + matrix_offset(index, first);
                if constexpr (kStep == 8) {
                    if constexpr (kNMajor) {
                        ptx::ldmatrix_x2(words, address);
                    } else {
                        ptx::ldmatrix_x2_trans(words, address);
                    }
                } else if constexpr (kNMajor) {
                    ptx::ldmatrix_x4(words, address);
                } else {
                    ptx::ldmatrix_x4_trans(words, address);
                }
#pragma unroll
                for (u32 i = 0; i < kStep / 4; ++i) {
                    const T low = {static_cast<u16>(words[i])};
                    const T high = {static_cast<u16>(words[i] >> 16)};
                    values[first / 2 + 2 * i] += factor * to_f32(low);
                    values[first / 2 + 2 * i + 1] += factor * to_f32(high);
                }
            }
        } else {
#pragma unroll
            for (u32 at = 0; at < kValues; at += 2) {
                const u32 row = index * 16 + threadIdx.x % 32 / 4 + at / 2 % 2 * 8;
                const u32 column = threadIdx.x % 4 * 2 + at / 4 * 8;
                float pair[2];
                if constexpr (kNMajor) {
                    ptx::ld_shared_v2_f32(pair, box + offset(row, column));
                } else {
                    pair[0] = ptx::ld_shared_f32(box + offset(row, column));
                    pair[1] = ptx::ld_shared_f32(box + offset(row, column + 1));
                }
                values[at] += factor * pair[0];
                values[at + 1] += factor * pair[1];
            }
        }
    }

   private:
    static constexpr u32 kStep = kColumns == 8 ? 8 : 16;  // columns of one matrix instruction

    __device__ __forceinline__ static u32 swizzled(u32 offset) {
        constexpr u32 kUnits = kLineBytes / 16;
        return offset ^ (offset >> 7 & (kUnits - 1)) << 4;
    }

    __device__ __forceinline__ static u32 offset(u32 row, u32 column) {
        return swizzled(kNMajor ? row * kLineBytes + column * static_cast<u32>(sizeof(T))
                                : column * kLineBytes + row * static_cast<u32>(sizeof(T)));
    }

    // The line whose address a lane gives: line lane % 8 of matrix lane / 8, which are the upper and the lower 8 rows
    // of 8 columns, then those of the next 8.
    __device__ __forceinline__ static u32 matrix_offset(u32 index, u32 first) {
        const u32 lane = threadIdx.x % 32;
        const u32 row = index * 16 + lane / 8 % 2 * 8;
        const u32 column = first + (kStep == 8 ? 0 : lane / 16 * 8);
        const u32 line = lane % 8;
        return kNMajor ? offset(row + line, column) : offset(row, column + line);
    }
};

// D through shared memory and TMA. A warp owns two buffers of a chunk and fills one while the other drains.
//
// TMA cuts a box off at the end of the tensor, but along the contiguous extent only in units of 16 bytes: where the end
// lies within a unit, what is stored behind it would be lost. `fits` says whether it does not; a chunk that does not
// fit is stored by DirectStore.
template <typename T, bool kNMajor, u32 kRows, u32 kColumns>
struct WarpStore {
    using Box = ChunkBox<T, kNMajor, kRows, kColumns>;

    __device__ __forceinline__ static bool fits(u32 row, u32 column, u32 m, u32 n) {
        constexpr u32 kUnit = 16 / sizeof(T);
        return kNMajor ? column + kColumns <= n || n % kUnit == 0 : row + kRows <= m || m % kUnit == 0;
    }

    const TensorMap* map;
    u32 buffers;  // shared address of this warp's two
    u32 buffer = 0;

    // The whole warp. One thread of it issues every store: bulk groups belong to the thread that commits them.
    template <u32 kFragments, u32 kValues>
    __device__ __forceinline__ void chunk(const float (&values)[kFragments][kValues], u32 row, u32 column, u32 batch,
                                          bool inside) {
        const u32 box = buffers + buffer * Box::kBytes;
        if (ptx::elect_sync()) ptx::cp_async_bulk_wait_group_read<1>();  // the store before the last: its buffer's
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < kFragments; ++i) Box::store(values[i], box, i);
        ptx::fence_proxy_async_shared_cta();
        __syncwarp();
        if (ptx::elect_sync()) {
            if (inside) {
                ptx::cp_async_bulk_tensor_3d_shared_to_global(map, box, kNMajor ? column : row, kNMajor ? row : column,
                                                              batch);
            }
            ptx::cp_async_bulk_commit_group();
        }
        __syncwarp();
        buffer ^= 1;
    }

    // The whole warp, before the buffers' memory goes away.
    __device__ __forceinline__ void drain() const {
        if (ptx::elect_sync()) ptx::cp_async_bulk_wait_group<0>();
        __syncwarp();
    }
};
