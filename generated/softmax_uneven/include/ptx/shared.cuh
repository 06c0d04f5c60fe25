// Shared memory by its 32-bit address: one instruction each. Any thread may call any of these.
#pragma once

#include "types.cuh"

namespace ptx {

// The shared::cta address of a generic pointer into shared memory.
__device__ __forceinline__ u32 cvta_to_shared(const void* pointer) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
    return static_cast<u32>(address);
}

// `address` is a multiple of 16.
__device__ __forceinline__ void ld_shared_v4_f32(float (&value)[4], u32 address) {
    asm volatile("ld.shared::cta.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ u32 ld_shared_b32(u32 address) {
    u32 value;
    asm volatile("ld.shared::cta.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ float ld_shared_f32(u32 address) {
    float value;
    asm volatile("ld.shared::cta.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

// `address` is a multiple of 8.
__device__ __forceinline__ void ld_shared_v2_f32(float (&value)[2], u32 address) {
    asm volatile("ld.shared::cta.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "r"(address) : "memory");
}

__device__ __forceinline__ void st_shared_f32(u32 address, float value) {
    asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// `address` is a multiple of 8.
__device__ __forceinline__ void st_shared_v2_f32(u32 address, float first, float second) {
    asm volatile("st.shared::cta.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second) : "memory");
}

// `address` is a multiple of 8.
__device__ __forceinline__ void ld_shared_v2_b32(u32& first, u32& second, u32 address) {
    asm volatile("ld.shared::cta.v2.b32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(address) : "memory");
}

// `address` is a multiple of 8.
__device__ __forceinline__ void st_shared_v2_b32(u32 address, u32 first, u32 second) {
    asm volatile("st.shared::cta.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second) : "memory");
}

}  // namespace ptx
