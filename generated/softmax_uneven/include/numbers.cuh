// Elements to float and back, by type: what an epilogue calls. Any thread may call any of these.
#pragma once

#include "ptx/convert.cuh"
#include "types.cuh"

// Exact for every storage type.
__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(tf32 x) { return ptx::mov_f32_b32(x.bits); }
__device__ __forceinline__ float to_f32(bf16 x) { return ptx::mov_f32_b32(static_cast<u32>(x.bits) << 16); }
__device__ __forceinline__ float to_f32(fp16 x) { return ptx::cvt_f32_f16(x.bits); }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
__device__ __forceinline__ float to_f32(e4m3 x) {
    return ptx::cvt_f32_f16(static_cast<u16>(ptx::cvt_rn_f16x2_e4m3x2(x.bits)));
}
__device__ __forceinline__ float to_f32(e5m2 x) {
    return ptx::cvt_f32_f16(static_cast<u16>(ptx::cvt_rn_f16x2_e5m2x2(x.bits)));
}
#endif

// Rounded to nearest even: from_f32<bf16>(x).
template <typename T>
__device__ __forceinline__ T from_f32(float x);
template <>
__device__ __forceinline__ float from_f32<float>(float x) { return x; }
template <>
__device__ __forceinline__ bf16 from_f32<bf16>(float x) { return {ptx::cvt_rn_bf16_f32(x)}; }
template <>
__device__ __forceinline__ fp16 from_f32<fp16>(float x) { return {ptx::cvt_rn_f16_f32(x)}; }

// Two neighbours in one register, `first` at the lower address: pack<bf16>(first, second).
template <typename T>
__device__ __forceinline__ u32 pack(float first, float second);
template <>
__device__ __forceinline__ u32 pack<bf16>(float first, float second) { return ptx::cvt_rn_bf16x2_f32(second, first); }
template <>
__device__ __forceinline__ u32 pack<fp16>(float first, float second) { return ptx::cvt_rn_f16x2_f32(second, first); }
