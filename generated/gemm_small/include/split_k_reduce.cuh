// Summing the slices of K that clusters of their own have left in scratch memory, slice by slice in order: the result
// is the same on every run.
// The scratch is float [batch][slice][outer][inner], inner being D's contiguous extent, rounded up to 4.
#pragma once

#include "epilogue.cuh"
#include "types.cuh"

__device__ __forceinline__ i64 partials_ld(u32 inner) { return (static_cast<i64>(inner) + 3) / 4 * 4; }

// One slice of one batch as a matrix.
template <u32 kSlices, bool kNMajor>
__device__ __forceinline__ View<float, kNMajor> partials_of(float* partials, u32 m, u32 n, u32 batch, u32 slice) {
    const i64 ld = partials_ld(kNMajor ? n : m);
    return {partials, ld, ld * (kNMajor ? m : n), batch * kSlices + slice};
}

template <typename Result, typename D, bool kNMajor>
struct SplitKOutput {
    Result result;
    DirectStore<D, kNMajor> store;
};

// The whole grid, any number of threads. `output_of(batch)` is where a batch goes. A thread takes four neighbours of
// the inner extent at a time.
template <u32 kSlices, bool kNMajor, typename OutputOf>
__device__ __forceinline__ void split_k_reduce(const float* partials, u32 m, u32 n, u32 batch,
                                               const OutputOf& output_of) {
    struct alignas(16) Quad {
        float value[4];
    };
    const i64 ld = partials_ld(kNMajor ? n : m);
    const u32 quads = static_cast<u32>(ld / 4);
    const u32 outer = kNMajor ? m : n;
    const u32 extent = kNMajor ? n : m;
    const u64 total = static_cast<u64>(quads) * outer * batch;
    const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < total; at += step) {
        const u64 line = at / quads;
        const u32 inner = static_cast<u32>(at - line * quads) * 4;
        const u32 b = static_cast<u32>(line / outer);
        const u32 o = static_cast<u32>(line - static_cast<u64>(b) * outer);
        const float* source = partials + (static_cast<i64>(b) * kSlices * outer + o) * ld + inner;
        Quad sum = {};
#pragma unroll
        for (u32 slice = 0; slice < kSlices; ++slice) {
            const float* from = source + static_cast<i64>(slice) * outer * ld;
            Quad part = {};
            if (inner + 4 <= extent) {
                part = *reinterpret_cast<const Quad*>(from);
            } else {  // nobody has written what lies behind the last element of a line
#pragma unroll
                for (u32 i = 0; i < 3; ++i) {
                    if (inner + i < extent) part.value[i] = from[i];
                }
            }
#pragma unroll
            for (u32 i = 0; i < 4; ++i) sum.value[i] += part.value[i];
        }
        auto output = output_of(b);
        if constexpr (kNMajor) {
#pragma unroll
            for (u32 i = 0; i < 4; i += 2) {
                output.result.two(sum.value[i], sum.value[i + 1], o, inner + i);
                output.store.two(sum.value[i], sum.value[i + 1], o, inner + i);
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                output.result.single(sum.value[i], inner + i, o);
                output.store.single(sum.value[i], inner + i, o);
            }
        }
    }
}
