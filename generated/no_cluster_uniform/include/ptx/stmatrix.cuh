// `stmatrix`: a warp stores 8x8 matrices of 16-bit elements from the fragment layout of an MMA. One instruction each;
// all threads of one warp together. sm_90 and later.
// Lanes 8i to 8i+7 give the addresses of the eight 16-byte rows of matrix i. `trans` stores columns as rows.
#pragma once

#include "types.cuh"

namespace ptx {

__device__ __forceinline__ void stmatrix_x2(u32 address, u32 r0, u32 r1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%0], {%1, %2};" ::"r"(address), "r"(r0), "r"(r1)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2_trans(u32 address, u32 r0, u32 r1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%0], {%1, %2};" ::"r"(address), "r"(r0), "r"(r1)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x4(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0),
                 "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x4_trans(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}

}  // namespace ptx
