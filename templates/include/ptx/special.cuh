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

}  // namespace ptx
