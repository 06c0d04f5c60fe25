// `mma.sync`: the matrix multiply of one warp, D += A B with D in float. One instruction each; all threads of one warp
// together. A is m16 by 32 bytes of K, B is 32 bytes of K by n8, whatever the type. With g = lane / 4, t = lane % 4:
//   d[2i + e]  row g + 8 i, column 2 t + e
//   a[i + 2j]  row g + 8 i, bytes 4 t to 4 t + 3 of the j-th 16 bytes of K
//   b[j]       column g, bytes 4 t to 4 t + 3 of the j-th 16 bytes of K
// sm_80 and later; fp8 sm_89 and later (it does not assemble below).
#pragma once

#include "types.cuh"

namespace ptx {

// mma_sync<A, B>(d, a, b) for the types of the operands.
template <typename A, typename B>
__device__ __forceinline__ void mma_sync(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]);

#define ADVISOR_MMA_SYNC(A, B, SHAPE, TYPES)                                                                   \
    template <>                                                                                                \
    __device__ __forceinline__ void mma_sync<A, B>(float(&d)[4], const u32(&a)[4], const u32(&b)[2]) {         \
        asm("mma.sync.aligned." SHAPE ".row.col.f32." TYPES ".f32 "                                            \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                  \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                   \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                               \
    }

ADVISOR_MMA_SYNC(bf16, bf16, "m16n8k16", "bf16.bf16")
ADVISOR_MMA_SYNC(fp16, fp16, "m16n8k16", "f16.f16")
ADVISOR_MMA_SYNC(tf32, tf32, "m16n8k8", "tf32.tf32")
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
ADVISOR_MMA_SYNC(e4m3, e4m3, "m16n8k32", "e4m3.e4m3")
ADVISOR_MMA_SYNC(e4m3, e5m2, "m16n8k32", "e4m3.e5m2")
ADVISOR_MMA_SYNC(e5m2, e4m3, "m16n8k32", "e5m2.e4m3")
ADVISOR_MMA_SYNC(e5m2, e5m2, "m16n8k32", "e5m2.e5m2")
#endif

#undef ADVISOR_MMA_SYNC

}  // namespace ptx
