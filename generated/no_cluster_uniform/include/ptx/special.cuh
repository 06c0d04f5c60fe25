// Special registers: one read each. Any thread.
#pragma once

#include "types.cuh"

namespace ptx {

// The SM that this CTA runs on. The ids interleave over the GPCs: they say nothing of who may share a cluster.
__device__ __forceinline__ u32 smid() {
    u32 id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

// CTAs of this one's cluster: the same for its whole life, and in a launch that mixes two sizes one or the other.
__device__ __forceinline__ u32 cluster_nctarank() {
    u32 count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
}

// Nanoseconds of a clock that all SMs share, in steps of the machine's own (32 ns on Hopper).
__device__ __forceinline__ u64 globaltimer() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

}  // namespace ptx
