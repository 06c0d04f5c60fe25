// Global memory on its way into a cache. One instruction each. Any thread.
#pragma once

#include "types.cuh"

namespace ptx {

// The line of an address.
__device__ __forceinline__ void prefetch_global_l2(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

// A run of bytes. Both are multiples of 16. sm_90 and later.
__device__ __forceinline__ void cp_async_bulk_prefetch_l2(const void* address, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes) : "memory");
}

}  // namespace ptx
