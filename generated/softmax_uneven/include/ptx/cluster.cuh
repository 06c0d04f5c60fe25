// Distributed shared memory: addresses of a peer's shared memory, loads and stores over the cluster. One instruction
// each. sm_90 and later. No thread may use them before the cluster has synchronised once (the peer may not have
// started), nor after the peer may have exited.
#pragma once

#include "types.cuh"

namespace ptx {

// Any thread: the shared::cluster address, in CTA `rank`, of what lies at `address` in this CTA.
__device__ __forceinline__ u32 mapa_shared_cluster(u32 address, u32 rank) {
    u32 remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

// Any thread; `address` is a multiple of 16. A warp's stores should make whole 32-byte segments.
__device__ __forceinline__ void st_shared_cluster_v4_f32(u32 address, float a, float b, float c, float d) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}

// Any thread; `address` is a multiple of 8.
__device__ __forceinline__ void st_shared_cluster_v2_b32(u32 address, u32 first, u32 second) {
    asm volatile("st.shared::cluster.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second) : "memory");
}

}  // namespace ptx
