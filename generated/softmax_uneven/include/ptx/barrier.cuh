// Barriers of threads: `barrier.sync` within a CTA, `barrier.cluster` over a cluster. One instruction each.
#pragma once

#include "types.cuh"

namespace ptx {

// `threads` threads of the CTA, whole warps; ids 0 to 15, of which __syncthreads uses 0. sm_80 and later.
__device__ __forceinline__ void barrier_sync(u32 id, u32 threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same barrier for threads that wait at it and for threads that go on: together kThreads. The id and the count are
// in the instruction.
template <u32 kId, u32 kThreads>
__device__ __forceinline__ void barrier_sync() {
    asm volatile("barrier.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

template <u32 kId, u32 kThreads>
__device__ __forceinline__ void barrier_arrive() {
    asm volatile("barrier.arrive %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

// Every thread of every CTA of the cluster, exactly once before its wait. sm_90 and later. Threads of a warp need
// not arrive together.
__device__ __forceinline__ void barrier_cluster_arrive_release() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

// Every thread of the cluster, after its arrive: returns when all have arrived.
__device__ __forceinline__ void barrier_cluster_wait_acquire() {
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

}  // namespace ptx
