// `prefetch`: a line of global memory on its way into a cache. One instruction each. Any thread.
#pragma once

namespace ptx {

__device__ __forceinline__ void prefetch_global_l2(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

}  // namespace ptx
