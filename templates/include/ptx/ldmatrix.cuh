// `ldmatrix`: a warp loads two or four 8x8 matrices of 16-bit elements into the fragment layout of an MMA. One
// instruction each; all threads of one warp together. sm_80 and later.
// Lanes 8i to 8i+7 give the addresses of the eight 16-byte rows of matrix i; each address is a multiple of 16. Lane l
// gets in r[i] bytes 4 (l % 4) to 4 (l % 4) + 3 of row l / 4, so a row may as well be four words or sixteen bytes.
// `trans` hands out columns in place of rows, which only 16-bit elements survive.
#pragma once

#include "types.cuh"

namespace ptx {

__device__ __forceinline__ void ldmatrix_x2(u32 (&r)[2], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(u32 (&r)[2], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

}  // namespace ptx
