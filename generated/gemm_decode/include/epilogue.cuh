// From accumulators to D: what is computed on the way (Finish), and the two ways out. A chunk is 64 rows by kColumns
// columns of a warpgroup's accumulators, in the fragment layout of wgmma:
//   thread t holds at values[4j + 2i + e] row 16 (t / 32) + (t % 32) / 4 + 8 i, column 8 j + 2 (t % 4) + e.
#pragma once

#include "activation.cuh"
#include "numbers.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/prefetch.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tma.cuh"
#include "types.cuh"

enum class Bias { none, row, col };  // row: one value for each column of D, along a row; col: one for each row

__device__ __forceinline__ u32 fragment_row() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }
__device__ __forceinline__ u32 fragment_column() { return threadIdx.x % 4 * 2; }

// A matrix in global memory, seen from one of its batches. Offsets are 64-bit.
template <typename T, bool kNMajor>
struct View {
    T* base;
    i64 ld;
    bool pairs;  // two neighbours along n lie in one aligned word: a property of the pointer and the strides

    __device__ __forceinline__ View(T* matrix, i64 ld, i64 batch_stride, u32 batch)
        : base(matrix + static_cast<i64>(batch) * batch_stride),
          ld(ld),
          pairs(kNMajor && ld % 2 == 0 && reinterpret_cast<u64>(base) % (2 * sizeof(T)) == 0) {}

    __device__ __forceinline__ T* at(u32 row, u32 column) const {
        return kNMajor ? base + static_cast<i64>(row) * ld + column : base + static_cast<i64>(column) * ld + row;
    }
};

// alpha acc + beta C + bias, then the activation. Rows and columns outside [m, n] read nothing.
template <typename C, typename D, bool kUseC, bool kCNMajor, Bias kBias, Activation kActivation>
struct Finish {
    float alpha;
    float beta;
    View<const C, kCNMajor> c;
    const D* bias;
    u32 m;
    u32 n;

    static constexpr bool kReads = kUseC || kBias != Bias::none;

    __device__ __forceinline__ float one(float acc, float c_value, u32 row, u32 column) const {
        float value = alpha * acc;
        if constexpr (kUseC) value += beta * c_value;
        if constexpr (kBias == Bias::row) value += to_f32(bias[column]);
        if constexpr (kBias == Bias::col) value += to_f32(bias[row]);
        return activate<kActivation>(value);
    }

    __device__ __forceinline__ void single(float& value, u32 row, u32 column) const {
        if (kReads && (row >= m || column >= n)) return;
        C c_value = {};
        if constexpr (kUseC) c_value = *c.at(row, column);
        value = one(value, to_f32(c_value), row, column);
    }

    // Two columns of one row; `column` is even.
    __device__ __forceinline__ void two(float& first, float& second, u32 row, u32 column) const {
        if (kUseC && c.pairs && row < m && column + 1 < n) {
            struct alignas(2 * sizeof(C)) Pair {
                C value[2];
            };
            const Pair pair = *reinterpret_cast<const Pair*>(c.at(row, column));
            first = one(first, to_f32(pair.value[0]), row, column);
            second = one(second, to_f32(pair.value[1]), row, column + 1);
        } else {
            single(first, row, column);
            single(second, row, column + 1);
        }
    }

    // The whole warpgroup: C of kRows by kColumns elements on its way into the L2, where rows of it are contiguous.
    template <u32 kRows, u32 kColumns>
    __device__ __forceinline__ void prefetch(u32 row0, u32 column0) const {
        if constexpr (kUseC && kCNMajor) {
            for (u32 row = row0 + threadIdx.x % 128; row < least(row0 + kRows, m); row += 128) {
#pragma unroll
                for (u32 column = 0; column < kColumns; column += 128 / sizeof(C)) {
                    if (column0 + column < n) ptx::prefetch_global_l2(c.at(row, column0 + column));
                }
            }
        }
    }

    // A whole chunk, in batches: all loads of a batch are issued before the first result is used, and none hangs on a
    // branch of its own: outside of [m, n] the nearest element inside is read, and nobody stores what is made of it.
    // kMostC: values of C that fit in registers beside the accumulators.
    template <u32 kMostC = 16, u32 kCount>
    __device__ __forceinline__ void chunk(float (&values)[kCount], u32 row0, u32 column0) const {
        // Where columns of C lie apart each has an address.
        constexpr u32 kMost = kUseC && !kCNMajor ? 8 : kUseC ? kMostC : 16;
        constexpr u32 kBatch = kCount < kMost ? kCount : kMost;
        const u32 row = row0 + fragment_row();
        const bool columns_inside = column0 + 2 * kCount <= n;
        D by_row[2];
        if constexpr (kBias == Bias::col) {
            by_row[0] = bias[least(row, m - 1)];
            by_row[1] = bias[least(row + 8, m - 1)];
        }
#pragma unroll
        for (u32 first = 0; first < kCount; first += kBatch) {
            const u32 column = column0 + fragment_column() + first * 2;
            C c_values[kUseC ? kBatch : 1];
            D by_column[kBias == Bias::row ? kBatch / 2 : 1];
            const u32 count = kCount - first < kBatch ? kCount - first : kBatch;  // the last batch may be smaller
            if constexpr (kUseC) load_c(c_values, count, row, column, columns_inside);
            if constexpr (kBias == Bias::row) {
#pragma unroll
                for (u32 i = 0; i < kBatch / 2; ++i) {
                    if (2 * i < count) by_column[i] = bias[least(column + i / 2 * 8 + i % 2, n - 1)];
                }
            }
#pragma unroll
            for (u32 at = 0; at < kBatch; ++at) {
                if (at >= count) break;
                float value = alpha * values[first + at];
                if constexpr (kUseC) value += beta * to_f32(c_values[at]);
                if constexpr (kBias == Bias::row) value += to_f32(by_column[at / 4 * 2 + at % 2]);
                if constexpr (kBias == Bias::col) value += to_f32(by_row[at / 2 % 2]);
                values[first + at] = activate<kActivation>(value);
            }
            if constexpr (kUseC) __syncwarp();  // the compiler may not begin the loads of the next batch before
        }
    }

   private:
    __device__ __forceinline__ static u32 least(u32 a, u32 b) { return a < b ? a : b; }

    // `column` is this thread's first; the first `count` values lie as in a chunk.
    template <u32 kCount>
    __device__ __forceinline__ void load_c(C (&c_values)[kCount], u32 count, u32 row, u32 column,
                                           bool columns_inside) const {
        if (c.pairs && columns_inside) {
            struct alignas(2 * sizeof(C)) Pair {
                C value[2];
            };
#pragma unroll
            for (u32 at = 0; at < kCount; at += 2) {
                if (at >= count) break;
                const C* source = c.at(least(row + at / 2 % 2 * 8, m - 1), column + at / 4 * 8);
                const Pair pair = *reinterpret_cast<const Pair*>(source);
                c_values[at] = pair.value[0];
                c_values[at + 1] = pair.value[1];
            }
        } else {
#pragma unroll
            for (u32 at = 0; at < kCount; ++at) {
                if (at >= count) break;
                c_values[at] = *c.at(least(row + at / 2 % 2 * 8, m - 1), least(column + at / 4 * 8 + at % 2, n - 1));
            }
        }
    }
};

// Ordinary stores from registers: any alignment, any major, any type.
template <typename T, bool kNMajor>
struct DirectStore {
    View<T, kNMajor> d;
    u32 m;
    u32 n;

    template <u32 kCount>
    __device__ __forceinline__ void chunk(const float (&values)[kCount], u32 row0, u32 column0) const {
#pragma unroll
        for (u32 at = 0; at < kCount; at += 2) {
            two(values[at], values[at + 1], row0 + fragment_row() + at / 2 % 2 * 8,
                column0 + fragment_column() + at / 4 * 8);
        }
        __syncwarp();  // the compiler may not begin the next chunk before this one is out of its registers
    }

    __device__ __forceinline__ void single(float value, u32 row, u32 column) const {
        if (row < m && column < n) *d.at(row, column) = from_f32<T>(value);
    }

    // Two columns of one row; `column` is even.
    __device__ __forceinline__ void two(float first, float second, u32 row, u32 column) const {
        if (d.pairs && row < m && column + 1 < n) {
            struct alignas(2 * sizeof(T)) Pair {
                T value[2];
            };
            *reinterpret_cast<Pair*>(d.at(row, column)) = {from_f32<T>(first), from_f32<T>(second)};
        } else {
            single(first, row, column);
            single(second, row, column + 1);
        }
    }
};

// Through shared memory and TMA, 16-bit D. A warpgroup owns kBuffers buffers: with two it fills one while TMA reads the
// other. Both the box and the buffer are 64 rows by kColumns columns, whichever of them is contiguous.
//
// TMA cuts a box off at the end of the tensor, but along the contiguous extent only in units of 16 bytes: where the end
// lies within a unit, what is stored behind it would be lost. `fits` says whether it does not; a chunk that does not
// fit is stored by DirectStore.
template <typename T, bool kNMajor, u32 kColumns, u32 kBuffers>
struct TmaStore {
    static constexpr u32 kBufferBytes = 64 * kColumns * sizeof(T);
    static constexpr u32 kLineBytes = (kNMajor ? kColumns : 64) * sizeof(T);
    static_assert(sizeof(T) == 2, "stmatrix stores 16-bit elements");

    __device__ __forceinline__ static bool fits(u32 row0, u32 column0, u32 m, u32 n) {
        constexpr u32 kUnit = 16 / sizeof(T);
        return kNMajor ? column0 + kColumns <= n || n % kUnit == 0 : row0 + 64 <= m || m % kUnit == 0;
    }

    const TensorMap* map;
    u32 buffers;  // shared address, a multiple of 1024
    u32 barrier;  // named barrier of this warpgroup
    u32 chunks = 0;  // so far

    // The whole warpgroup. One thread of it issues every store: bulk groups belong to the thread that commits them.
    __device__ __forceinline__ void chunk(const float (&values)[kColumns * 64 / 128], u32 row0, u32 column0, u32 batch,
                                          bool inside) {
        const u32 destination = buffers + chunks % kBuffers * kBufferBytes;
        if (chunks >= kBuffers) {  // the last store from this buffer has read it; one from the other may still read
            if (threadIdx.x % 128 == 0) ptx::cp_async_bulk_wait_group_read<kBuffers - 1>();
            ptx::barrier_sync(barrier, 128);
        }
        fill(values, destination);
        ptx::fence_proxy_async_shared_cta();
        ptx::barrier_sync(barrier, 128);
        if (threadIdx.x % 128 == 0) {
            if (inside) {
                ptx::cp_async_bulk_tensor_3d_shared_to_global(map, destination, kNMajor ? column0 : row0,
                                                              kNMajor ? row0 : column0, batch);
            }
            ptx::cp_async_bulk_commit_group();  // an empty one too: the wait above counts chunks
        }
        ++chunks;
    }

    // The whole warpgroup, before the buffers' memory goes away.
    __device__ __forceinline__ void drain() const {
        if (threadIdx.x % 128 == 0) ptx::cp_async_bulk_wait_group<0>();
    }

   private:
    // The swizzle that the tensor map names: 16-byte units of a line trade places by the number of the 128-byte line.
    // Lines of other lengths than 32, 64 and 128 bytes lie as they are: those of an odd number of units, 8 below each
    // other, meet in no bank.
    __device__ __forceinline__ static u32 swizzled(u32 offset) {
        constexpr u32 kUnits = kLineBytes / 16;
        if constexpr (kUnits > 8 || (kUnits & (kUnits - 1)) != 0) return offset;
        return offset ^ (offset >> 7 & (kUnits - 1)) << 4;
    }

    __device__ __forceinline__ void fill(const float (&values)[kColumns * 64 / 128], u32 destination) const {
        const u32 warp = threadIdx.x % 128 / 32;
        // A lane gives the address of line lane % 8 of matrix lane / 8: upper and lower 8 rows of 8 columns, then the
        // next 8 columns.
        const u32 row = warp * 16 + threadIdx.x / 8 % 2 * 8;
        const u32 column = threadIdx.x / 16 % 2 * 8;
        const u32 line = threadIdx.x % 8;
#pragma unroll
        for (u32 first = 0; first < kColumns; first += 16) {
            const u32 offset = kNMajor ? (row + line) * kLineBytes + (first + column) * sizeof(T)
                                       : (first + column + line) * kLineBytes + row * sizeof(T);
            const u32 address = destination + swizzled(offset);
            const u32 upper = pack<T>(values[first / 2], values[first / 2 + 1]);
            const u32 lower = pack<T>(values[first / 2 + 2], values[first / 2 + 3]);
            if (first + 8 == kColumns) {  // 8 columns are left
                if constexpr (kNMajor) {
                    ptx::stmatrix_x2(address, upper, lower);
                } else {
                    ptx::stmatrix_x2_trans(address, upper, lower);
                }
                break;
            }
            const u32 next_upper = pack<T>(values[first / 2 + 4], values[first / 2 + 5]);
            const u32 next_lower = pack<T>(values[first / 2 + 6], values[first / 2 + 7]);
            if constexpr (kNMajor) {
                ptx::stmatrix_x4(address, upper, lower, next_upper, next_lower);
            } else {
                ptx::stmatrix_x4_trans(address, upper, lower, next_upper, next_lower);
            }
        }
    }
};
