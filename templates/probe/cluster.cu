// Measures what clusters are like: which SMs host one together, what their barrier costs, how fast a CTA stores into a
// peer's shared memory. sm_90 and later; clusters lie along x.
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared.cuh"
#include "ptx/special.cuh"
#include "types.cuh"

extern __shared__ __align__(1024) unsigned char dynamic_smem[];

// smids[block] = the SM it runs on. Each CTA stays for `hold` ticks, so that all that fit are there at once.
extern "C" __global__ void probe_place(u32* smids, u64 hold) {
    const u64 begin = clock64();
    if (threadIdx.x == 0) smids[blockIdx.x] = ptx::smid();
    while (static_cast<u64>(clock64()) - begin < hold) {
    }
}

extern "C" __global__ void probe_cluster_barrier(u32 repeats, u64* cycles) {
    ptx::barrier_cluster_arrive_release();
    ptx::barrier_cluster_wait_acquire();
    const u64 begin = clock64();
    for (u32 repeat = 0; repeat < repeats; ++repeat) {
        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
    }
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
}

// Clusters of two: every thread of both CTAs stores 8 bytes at a time into its peer's 64 KB, a warp side by side. No two
// stores of a round go to one address: those could be merged on the way.
extern "C" __global__ void __launch_bounds__(1024) probe_dsmem_store(u32 repeats, u64* cycles) {
    const u32 mine = ptx::cvta_to_shared(dynamic_smem) + threadIdx.x * 8;
    const u32 theirs = ptx::mapa_shared_cluster(mine, (blockIdx.x & 1) ^ 1);
    ptx::barrier_cluster_arrive_release();
    ptx::barrier_cluster_wait_acquire();
    const u64 begin = clock64();
    for (u32 repeat = 0; repeat < repeats; ++repeat) {
#pragma unroll
        for (u32 i = 0; i < 8; ++i) ptx::st_shared_cluster_v2_b32(theirs + i * 8192, repeat, i);
    }
    ptx::barrier_cluster_arrive_release();
    ptx::barrier_cluster_wait_acquire();  // all stores have landed, and nobody leaves before
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
}
