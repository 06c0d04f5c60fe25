// Arithmetic that C++ has no operator for: one instruction each. Any thread. sm_80 and later.
#pragma once

#include "types.cuh"

namespace ptx {

// The larger of two; NaN where either is one. (fmaxf drops a NaN.)
__device__ __forceinline__ float max_nan_f32(float a, float b) {
    float value;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
    return value;
}

// The same of each half: two bf16 or two fp16.
__device__ __forceinline__ u32 max_nan_bf16x2(u32 a, u32 b) {
    u32 value;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(value) : "r"(a), "r"(b));
    return value;
}

__device__ __forceinline__ u32 max_nan_f16x2(u32 a, u32 b) {
    u32 value;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(value) : "r"(a), "r"(b));
    return value;
}

// 1 / x to a unit in the last place; subnormal numbers count as zero.
__device__ __forceinline__ float rcp_approx_ftz_f32(float x) {
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

// 2^x to about 22 bits; subnormal results become zero.
__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

}  // namespace ptx
