// `mbarrier`: a barrier in shared memory that counts arrivals and bytes. One instruction each. sm_90 and later.
// A barrier is named by its 32-bit shared address; a remote one by what `mapa` made of it.
#pragma once

#include "types.cuh"

namespace ptx {

// One thread of the CTA, before anybody else knows the barrier; a fence and a barrier of the readers must follow.
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Any thread of the CTA that the barrier's count includes.
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Any thread of the cluster that the barrier's count includes; `barrier` is a shared::cluster address.
__device__ __forceinline__ void mbarrier_arrive_release_cluster(u32 barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The same for a thread that has only read: a release within its own CTA, which keeps its reads before the arrival and
// costs nothing. A release at cluster scope would wait for every outstanding access of the thread first.
__device__ __forceinline__ void mbarrier_arrive_shared_cluster(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One thread of the CTA: arrives, and makes the phase wait for `bytes` more of asynchronous copies.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Any thread of the cluster that the barrier's count includes; `barrier` is a shared::cluster address.
__device__ __forceinline__ void mbarrier_arrive_expect_tx_release_cluster(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Any thread of the CTA. True once the phase of this parity is complete; false after a while, then ask again.
__device__ __forceinline__ bool mbarrier_try_wait_parity(u32 barrier, u32 parity) {
    u32 complete;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(complete)
        : "r"(barrier), "r"(parity)
        : "memory");
    return complete != 0;
}

// The same where the arrivals that complete the phase may come from other CTAs of the cluster.
__device__ __forceinline__ bool mbarrier_try_wait_parity_acquire_cluster(u32 barrier, u32 parity) {
    u32 complete;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(complete)
        : "r"(barrier), "r"(parity)
        : "memory");
    return complete != 0;
}

}  // namespace ptx
