// Who computes which cluster tile, by Cluster Launch Control: the grid has a cluster for every tile, those that run
// take over the work of those that do not yet. The fourth scheduler behind the interface of scheduler.cuh.
//
// One request at a time for a cluster, a tile ahead: the loads of a tile begin, then the next tile is asked for.
//   response   16 bytes, kDepth of them, the same offsets in every CTA: each response is multicast to all
//   full       one arrival, that of the CTA's own scheduler warp with 16 bytes expected, and those bytes
//   empty      of CTA 0: one arrival of every reading warp of every CTA, after the read
//   throttle   of CTA 0: one arrival of its load warp as it begins a tile
// A failure says "stop", never "all is done": clusters that nobody took over are launched later. After one failure has
// been seen nobody asks again, and every request has been answered and read before anybody leaves.
#pragma once

#include "pipeline.cuh"
#include "ptx/clc.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "scheduler.cuh"
#include "types.cuh"

#define ADVISOR_CLC 3

// Shared addresses of the first of each.
struct ClcPlace {
    u32 response;
    u32 full;
    u32 empty;
    u32 throttle;
};

// The grid lays its clusters along x, so the first CTA of a cluster that was taken over is told by its x alone.
template <u32 kDepth, u32 kClusterX, u32 kClusterSize>
struct ClcScheduler {
    u32 cluster;
    u32 total;
    u32 x;  // of this CTA in its cluster
    ClcPlace place;
    u32 empty_of_cta0;  // shared::cluster address
    RingPosition<kDepth> slot;

    __device__ __forceinline__ ClcScheduler(u32 cluster, u32 total, u32 x, ClcPlace place)
        : cluster(cluster),
          total(total),
          x(x),
          place(place),
          empty_of_cta0(ptx::mapa_shared_cluster(place.empty, 0)) {}

    __device__ __forceinline__ Work first() const { return {cluster, cluster < total}; }

    // A whole warp: one load of the response, its predicate, and only on success the coordinate.
    __device__ __forceinline__ Work next(Work) {
        if constexpr (kClusterSize == 1) {
            wait(place.full + 8 * slot.stage, slot.parity);
        } else {
            wait_cluster(place.full + 8 * slot.stage, slot.parity);
        }
        const ptx::ClcResponse response = ptx::ld_shared_response(place.response + 16 * slot.stage);
        ptx::fence_proxy_async_shared_cta();  // the next response into this slot comes after this read
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive_release_cluster(empty_of_cta0 + 8 * slot.stage);
        slot.advance();
        if (!ptx::clusterlaunchcontrol_query_cancel_is_canceled(response)) return {0, false};
        const u32 block_x = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid_x(response) + x;
        return {block_x / kClusterX, true};
    }
};

// The asking end: one whole warp of every CTA. Each arms its own barrier; CTA 0 asks, once for the cluster, when its
// load warp has begun the tile before and every reader has read what the slot held. That load warp begins a tile after
// it has seen the request for it succeed, so nobody asks after a failure that anybody has seen.
template <u32 kDepth, u32 kClusterX, u32 kClusterSize>
__device__ __forceinline__ void request_work(ClcScheduler<kDepth, kClusterX, kClusterSize> scheduler,
                                             bool is_cta0) {
    u32 throttle_parity = 0;
    for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) {
        const u32 full = scheduler.place.full + 8 * scheduler.slot.stage;
        const u32 response = scheduler.place.response + 16 * scheduler.slot.stage;
        if (ptx::elect_sync()) {
            if (is_cta0) {
                wait(scheduler.place.throttle, throttle_parity);
                wait_cluster(scheduler.place.empty + 8 * scheduler.slot.stage, scheduler.slot.parity ^ 1);
            }
            ptx::mbarrier_arrive_expect_tx(full, 16);
            if (is_cta0) {
                if constexpr (kClusterSize == 1) {
                    ptx::clusterlaunchcontrol_try_cancel(response, full);
                } else {
                    ptx::clusterlaunchcontrol_try_cancel_multicast(response, full);
                }
            }
        }
        __syncwarp();
        throttle_parity ^= 1;
    }
}
