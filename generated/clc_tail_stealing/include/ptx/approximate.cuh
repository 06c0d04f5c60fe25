// Functions of the special function unit, to a few units in the last place; subnormals are zero. One instruction each.
// Any thread.
#pragma once

namespace ptx {

__device__ __forceinline__ float rcp_approx(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 2 to the power of x.
__device__ __forceinline__ float ex2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

}  // namespace ptx
