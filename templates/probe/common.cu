// Measures what every GPU has: copies, reads from L2, a global atomic, mma.sync, and what a launch costs.
// Each kernel that counts cycles writes one number per CTA: clock ticks of its SM between its first and last step.
#include "ptx/mma_sync.cuh"
#include "types.cuh"

extern "C" __global__ void probe_empty() {}

// dst = src, `count` chunks of 16 bytes.
extern "C" __global__ void __launch_bounds__(512) probe_copy(const uint4* src, uint4* dst, u64 count) {
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; at + 3 * stride < count; at += 4 * stride) {
        uint4 chunk[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) chunk[i] = src[at + i * stride];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) dst[at + i * stride] = chunk[i];
    }
    for (; at < count; at += stride) dst[at] = src[at];
}

// Every CTA reads the whole buffer of `count` chunks `repeats` times, past L1, each from a start of its own.
extern "C" __global__ void __launch_bounds__(1024) probe_read(const uint4* src, u32 count, u32 repeats, u64* cycles,
                                                              u32* sink) {
    u32 sum = 0;
    const u32 start = static_cast<u32>(static_cast<u64>(blockIdx.x) * count / gridDim.x);
    __syncthreads();
    const u64 begin = clock64();
    for (u32 repeat = 0; repeat < repeats; ++repeat) {
#pragma unroll 8
        for (u32 at = threadIdx.x; at < count; at += blockDim.x) {
            const u32 chunk = start + at;
            const uint4 value = __ldcg(src + (chunk < count ? chunk : chunk - count));
            sum += value.x ^ value.y ^ value.z ^ value.w;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
    if (sum == 0x9e3779b9u) *sink = sum;  // keeps the loads
}

// One thread claims tickets, each after the one before.
extern "C" __global__ void probe_atomic(u32* counter, u32 repeats, u64* cycles) {
    u32 value = 0;
    const u64 begin = clock64();
    for (u32 repeat = 0; repeat < repeats; ++repeat) value = atomicAdd(counter, (value & 0x80000000u) | 1u);
    const u64 end = clock64();
    if (value != 0xffffffffu) cycles[0] = end - begin;
}

// 8 independent products a warp: enough to fill the tensor core's pipeline with 16 warps an SM.
template <typename T>
__device__ __forceinline__ void multiply(u32 repeats, u64* cycles, float* sink) {
    float d[8][4] = {};
    // Products of fp8 have an A of their own, and a new one each time: on sm_90 ptxas makes such a product of two in
    // fp16 and an addition, and computes what repeats only once.
    constexpr u32 kOperands = sizeof(T) == 1 ? 8 : 1;
    u32 a[kOperands][4] = {};
#pragma unroll
    for (u32 i = 0; i < kOperands; ++i) {
        a[i][0] = threadIdx.x + i;
        a[i][2] = blockIdx.x + i;
    }
    const u32 b[2] = {threadIdx.x, 0};
    __syncthreads();
    const u64 begin = clock64();
    for (u32 repeat = 0; repeat < repeats; ++repeat) {
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            if constexpr (kOperands > 1) {
                a[i][0] ^= repeat;
                a[i][2] ^= repeat;
            }
            ptx::mma_sync<T, T>(d[i], a[i % kOperands], b);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
    if (sum == 1.2345e37f) *sink = sum;  // keeps the products
}

extern "C" __global__ void __launch_bounds__(512) probe_mma_bf16(u32 repeats, u64* cycles, float* sink) {
    multiply<bf16>(repeats, cycles, sink);
}
extern "C" __global__ void __launch_bounds__(512) probe_mma_fp16(u32 repeats, u64* cycles, float* sink) {
    multiply<fp16>(repeats, cycles, sink);
}
extern "C" __global__ void __launch_bounds__(512) probe_mma_tf32(u32 repeats, u64* cycles, float* sink) {
    multiply<tf32>(repeats, cycles, sink);
}
#if __CUDA_ARCH__ >= 890
extern "C" __global__ void __launch_bounds__(512) probe_mma_fp8(u32 repeats, u64* cycles, float* sink) {
    multiply<e4m3>(repeats, cycles, sink);
}
#endif
