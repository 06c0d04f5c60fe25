// Tiles that only take time, under the schedulers that the GEMM kernels use: what a schedule costs when other work holds
// SMs, without a cache or a clock in the way. The launch defines
//   ADVISOR_SCHEDULE    ADVISOR_ONE_TILE, ADVISOR_STATIC, ADVISOR_TICKET, or ADVISOR_CLC where the target has it
//   ADVISOR_CLUSTER     CTAs of a cluster, along x
// A CTA has two warps: the first walks the tiles, the second hands out tickets (CTA 0) or asks for work (CLC).
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/special.cuh"
#include "scheduler.cuh"
#include "types.cuh"
#if ADVISOR_SCHEDULE == 3
#include "clc_scheduler.cuh"
#endif

namespace {

constexpr u32 kCluster = ADVISOR_CLUSTER;

__device__ __forceinline__ void cluster_barrier() {
    if constexpr (kCluster > 1) {
        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
    }
}

// One tile on one CTA: `cost_ns` of waiting, then a count of 1, so that the host can tell that each ran once.
__device__ __forceinline__ void run_tile(u32 cost_ns, u32* done) {
    const u64 begin = ptx::globaltimer();
    while (ptx::globaltimer() - begin < cost_ns) {
    }
    if (threadIdx.x == 0) atomicAdd(done, 1u);
    __syncwarp();
}

}  // namespace

extern __shared__ __align__(1024) unsigned char dynamic_smem[];  // enough that no second CTA fits on the SM

// done[tile] counts the CTAs that ran it: kCluster of them. tickets is 0 at launch.
extern "C" __global__ void __launch_bounds__(64, 1)
    probe_tiles(const u32* costs_ns, u32* done, u32 total, u32* tickets) {
    const u32 smem = ptx::cvta_to_shared(dynamic_smem);
    const u32 warp = threadIdx.x / 32;
    const u32 cluster = blockIdx.x / kCluster;
    [[maybe_unused]] const u32 clusters = gridDim.x / kCluster;
    [[maybe_unused]] const bool is_cta0 = blockIdx.x % kCluster == 0;

#if ADVISOR_SCHEDULE == ADVISOR_TICKET
    const TicketSlot ticket = {smem, smem + 8, smem + 16};
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(ticket.full, 1);
        ptx::mbarrier_init(ticket.empty, kCluster);  // the walking warp of every CTA
        ptx::fence_mbarrier_init_release_cluster();
    }
#elif ADVISOR_SCHEDULE == 3
    const ClcPlace place = {smem, smem + 16, smem + 24, smem + 32};
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(place.full, 1);
        ptx::mbarrier_init(place.empty, 2 * kCluster);  // both warps of every CTA
        ptx::mbarrier_init(place.throttle, 1);
        ptx::fence_mbarrier_init_release_cluster();
        ptx::fence_proxy_async_shared_cta();
    }
#endif
    __syncthreads();
    cluster_barrier();

#if ADVISOR_SCHEDULE == ADVISOR_ONE_TILE
    OneTileScheduler scheduler = {cluster, total};
#elif ADVISOR_SCHEDULE == ADVISOR_STATIC
    StaticScheduler scheduler = {cluster, total, clusters};
#elif ADVISOR_SCHEDULE == ADVISOR_TICKET
    TicketScheduler<kCluster> scheduler(cluster, total, ticket);
#else
    ClcScheduler<1, kCluster, kCluster> scheduler(cluster, total, blockIdx.x % kCluster, place);
#endif

    if (warp == 0) {
        for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) {
#if ADVISOR_SCHEDULE == 3
            if (is_cta0 && threadIdx.x == 0) ptx::mbarrier_arrive(place.throttle);
#endif
            run_tile(costs_ns[work.index], done + work.index);
        }
    } else {
#if ADVISOR_SCHEDULE == ADVISOR_TICKET
        if (is_cta0) hand_out_tickets<kCluster>(tickets, cluster, clusters, total, ticket);
#elif ADVISOR_SCHEDULE == 3
        request_work<1>(scheduler, is_cta0);
#endif
    }
    cluster_barrier();  // nobody leaves while a peer may still write to it
}
