// `pin`: no instruction, an order for the compiler.
#pragma once

#include "types.cuh"

namespace ptx {

// Keeps the compiler from moving uses of `d` across this point. It knows nothing of registers that an asynchronous
// instruction (a wgmma, a tcgen05.ld) still writes, so every wait for one is followed by this.
template <u32 kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace ptx
