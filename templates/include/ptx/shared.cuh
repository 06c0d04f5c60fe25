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
__device__ __forceinline__ void st_shared_v4_f32(u32 address, float a, float b, float c, float d) {
    asm volatile("st.shared::cta.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}

// `address` is a multiple of 8.
__device__ __forceinline__ void ld_shared_v2_b32(u32& first, u32& second, u32 address) {
    asm volatile("ld.shared::cta.v2.b32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(address) : "memory");
}

}  // namespace ptx
