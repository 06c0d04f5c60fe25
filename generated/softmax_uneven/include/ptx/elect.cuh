// `elect.sync`: one lane of a converged warp. sm_90 and later.
#pragma once

#include "types.cuh"

namespace ptx {

// A whole warp: true in exactly one lane, always the same one. Unlike `lane == 0` it tells the compiler that one thread
// goes on, which TMA instructions need to be issued without a loop over lanes.
__device__ __forceinline__ bool elect_sync() {
    u32 elected;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(elected)::"memory");
    return elected != 0;
}

}  // namespace ptx
