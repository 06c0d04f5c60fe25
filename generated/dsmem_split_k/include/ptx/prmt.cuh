// `prmt`: picks four bytes out of eight. One instruction; any thread.
#pragma once

#include "types.cuh"

namespace ptx {

// Byte i of the result is byte number `(selector >> 4 i) & 7` of the eight bytes low (0 to 3), high (4 to 7).
__device__ __forceinline__ u32 prmt(u32 low, u32 high, u32 selector) {
    u32 bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}

}  // namespace ptx
