// `opaque`: no instruction; a value that the compiler takes for a new one.
#pragma once

#include "types.cuh"

namespace ptx {

// What is computed of these words is computed again after this, instead of being kept in registers from before.
template <u32 kCount>
__device__ __forceinline__ void opaque(u32 (&words)[kCount]) {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) asm volatile("" : "+r"(words[i]));
}

}  // namespace ptx
