// `tcgen05`: tensor memory and the fifth-generation tensor core. One instruction each. sm_100a, sm_100f, sm_103a.
// Tensor memory has 128 lanes of 512 columns, 32 bits each; an address has the lane in bits 16 to 31, the column below.
// kCtas is the CTA group: 1, or 2 for the pair of ranks 2k and 2k + 1. A kernel uses one of the two throughout.
#pragma once

#include "types.cuh"

namespace ptx {

// A whole warp; of a pair, one warp of each CTA together, after both have started. Takes `columns` (a power of two from
// 32 up), blocks until they are free, and writes the address of the first to `destination` in shared memory.
template <u32 kCtas>
__device__ __forceinline__ void tcgen05_alloc(u32 destination, u32 columns) {
    static_assert(kCtas == 1 || kCtas == 2, "a CTA or a pair");
    if constexpr (kCtas == 1) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(destination),
                     "r"(columns)
                     : "memory");
    } else {
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(destination),
                     "r"(columns)
                     : "memory");
    }
}

// The same warp, when the CTA will allocate no more: others need not wait for it.
template <u32 kCtas>
__device__ __forceinline__ void tcgen05_relinquish_alloc_permit() {
    if constexpr (kCtas == 1) {
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    } else {
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
    }
}

// The same warp; of a pair, both together. Every access to the columns has completed, in both CTAs.
template <u32 kCtas>
__device__ __forceinline__ void tcgen05_dealloc(u32 address, u32 columns) {
    if constexpr (kCtas == 1) {
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
    } else {
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
    }
}

// tcgen05_mma<Kind, kCtas>::issue(d, a, b, instruction, accumulate): one thread, of a pair the even CTA's alone.
// D in tensor memory (+)= A B out of shared memory, 32 bytes of K; `accumulate` 0 overwrites D. Asynchronous: what this
// thread issues runs in order, everybody else learns of the end through a commit.
struct KindF16 {};  // fp16 and bf16
struct KindTf32 {};
struct KindF8f6f4 {};  // e4m3 and e5m2

template <typename Kind, u32 kCtas>
struct tcgen05_mma;

#define ADVISOR_TCGEN05_MMA(kKind, kName, kCtas) \
    template <> \
    struct tcgen05_mma<kKind, kCtas> { \
        __device__ __forceinline__ static void issue(u32 d, u64 a, u64 b, u32 instruction, u32 accumulate) { \
            asm volatile( \
                "{\n" \
                ".reg .pred p;\n" \
                "setp.ne.b32 p, %4, 0;\n" \
                "tcgen05.mma.cta_group::" #kCtas ".kind::" kName " [%0], %1, %2, %3, p;\n" \
                "}\n" ::"r"(d), \
                "l"(a), "l"(b), "r"(instruction), "r"(accumulate) \
                : "memory"); \
        } \
    }
ADVISOR_TCGEN05_MMA(KindF16, "f16", 1);
ADVISOR_TCGEN05_MMA(KindF16, "f16", 2);
ADVISOR_TCGEN05_MMA(KindTf32, "tf32", 1);
ADVISOR_TCGEN05_MMA(KindTf32, "tf32", 2);
ADVISOR_TCGEN05_MMA(KindF8f6f4, "f8f6f4", 1);
ADVISOR_TCGEN05_MMA(KindF8f6f4, "f8f6f4", 2);
#undef ADVISOR_TCGEN05_MMA

// The thread that issued MMAs: one arrival on `barrier` when all of them so far are complete, which says as much as
// fence::before_thread_sync. `barrier` lies in this CTA or, of a pair, in either.
template <u32 kCtas>
__device__ __forceinline__ void tcgen05_commit(u32 barrier) {
    if constexpr (kCtas == 1) {
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                     : "memory");
    } else {
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                     : "memory");
    }
}

// The same on the barrier at this offset of every CTA of the cluster whose rank has its bit in `mask`.
template <u32 kCtas>
__device__ __forceinline__ void tcgen05_commit_multicast(u32 barrier, u16 mask) {
    if constexpr (kCtas == 1) {
        asm volatile(
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
            ::"r"(barrier), "h"(mask)
            : "memory");
    } else {
        asm volatile(
            "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
            ::"r"(barrier), "h"(mask)
            : "memory");
    }
}

// Every thread whose tcgen05 work comes before a barrier that another thread's tcgen05 work comes after.
__device__ __forceinline__ void tcgen05_fence_before_thread_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// That other thread, behind the barrier.
__device__ __forceinline__ void tcgen05_fence_after_thread_sync() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// A whole warp: its loads have arrived in its registers (behind `pin`: the compiler knows nothing of it).
__device__ __forceinline__ void tcgen05_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

// A whole warp reads 16 lanes, 8 columns for every 4 registers. Warp w of a warpgroup reaches lanes 32 w to 32 w + 31;
// `address` names lane 32 w or 32 w + 16. Thread t gets at d[4j + 2i + e] lane t / 4 + 8 i, column 8 j + 2 (t % 4) + e:
// the fragment layout of mma and wgmma. The registers hold their values after tcgen05_wait_ld.
__device__ __forceinline__ void tcgen05_ld_16x256b(float (&d)[4], u32 address) {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x1.b32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(address)
                 : "memory");
}

#define ADVISOR_OUT4(i) "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define ADVISOR_OUT8(i) ADVISOR_OUT4(i), ADVISOR_OUT4(i + 4)
#define ADVISOR_OUT16(i) ADVISOR_OUT8(i), ADVISOR_OUT8(i + 8)

__device__ __forceinline__ void tcgen05_ld_16x256b(float (&d)[8], u32 address) {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x2.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : ADVISOR_OUT8(0)
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void tcgen05_ld_16x256b(float (&d)[16], u32 address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.16x256b.x4.b32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
        : ADVISOR_OUT16(0)
        : "r"(address)
        : "memory");
}

__device__ __forceinline__ void tcgen05_ld_16x256b(float (&d)[32], u32 address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.16x256b.x8.b32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : ADVISOR_OUT16(0), ADVISOR_OUT16(16)
        : "r"(address)
        : "memory");
}

#undef ADVISOR_OUT4
#undef ADVISOR_OUT8
#undef ADVISOR_OUT16

}  // namespace ptx
