// Fences between proxies and for fresh barriers: one instruction each. sm_90 and later.
#pragma once

#include "types.cuh"

namespace ptx {

// The thread that initialised mbarriers, before the cluster (or the CTA) synchronises: makes them known to the
// cluster.
__device__ __forceinline__ void fence_mbarrier_init_release_cluster() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Every thread whose ordinary accesses to its CTA's shared memory come before an asynchronous one (a TMA copy, a
// wgmma) to the same bytes; a barrier between the two threads must follow.
__device__ __forceinline__ void fence_proxy_async_shared_cta() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for ordinary accesses to any shared memory of the cluster.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace ptx
