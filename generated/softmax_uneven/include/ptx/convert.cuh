// `cvt` and bit moves between float and the storage formats: one instruction each, named as PTX names it.
// Any thread may call any of these. sm_80 and later; the fp8 forms sm_89 and later (they do not assemble below).
#pragma once

#include "types.cuh"

namespace ptx {

// The float with the same bits, and back.
__device__ __forceinline__ float mov_f32_b32(u32 bits) {
    float value;
    asm("mov.b32 %0, %1;" : "=f"(value) : "r"(bits));
    return value;
}

__device__ __forceinline__ u32 mov_b32_f32(float value) {
    u32 bits;
    asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ u16 cvt_rn_bf16_f32(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Two values, one register: `high` lands in bits 16..31.
__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float high, float low) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

__device__ __forceinline__ u16 cvt_rn_f16_f32(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ u32 cvt_rn_f16x2_f32(float high, float low) {
    u32 bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

__device__ __forceinline__ float cvt_f32_f16(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Round to nearest, ties away from zero: the only rounding that sm_80 has for tf32.
__device__ __forceinline__ u32 cvt_rna_tf32_f32(float value) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
__device__ __forceinline__ u16 cvt_rn_satfinite_e4m3x2_f32(float high, float low) {
    u16 bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
    return bits;
}

__device__ __forceinline__ u16 cvt_rn_satfinite_e5m2x2_f32(float high, float low) {
    u16 bits;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
    return bits;
}

// Exact: every fp8 value is an fp16 value. The pair keeps its order.
__device__ __forceinline__ u32 cvt_rn_f16x2_e4m3x2(u16 pair) {
    u32 bits;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(bits) : "h"(pair));
    return bits;
}

__device__ __forceinline__ u32 cvt_rn_f16x2_e5m2x2(u16 pair) {
    u32 bits;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(bits) : "h"(pair));
    return bits;
}
#endif

}  // namespace ptx
