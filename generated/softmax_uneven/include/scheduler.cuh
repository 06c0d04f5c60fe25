// Who computes which cluster tile. Three schedulers behind one interface: `first()`, then `next()` until it says that
// there is no more. Every role of every CTA of a cluster walks the same sequence. "More" is a boolean beside the
// index, never an index that means none.
//   one tile  cluster c computes tile c; the grid has as many clusters as there are tiles
//   static    cluster c computes tiles c, c + clusters, c + 2 clusters, ...
//   ticket    cluster c computes tile c, then what an atomic counter hands out; the counter is 0 at launch
// None needs clusters to be resident together: any number of them, one included, covers every tile.
#pragma once

#include "pipeline.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/st_async.cuh"
#include "types.cuh"

#define ADVISOR_ONE_TILE 0
#define ADVISOR_STATIC 1
#define ADVISOR_TICKET 2

struct Work {
    u32 index;
    bool more;
};

struct OneTileScheduler {
    u32 cluster;
    u32 total;

    __device__ __forceinline__ Work first() const { return {cluster, cluster < total}; }
    __device__ __forceinline__ Work next(Work) const { return {0, false}; }
};

struct StaticScheduler {
    u32 cluster;
    u32 total;
    u32 clusters;

    __device__ __forceinline__ Work first() const { return {cluster, cluster < total}; }
    __device__ __forceinline__ Work next(Work work) const {
        const bool more = total - work.index > clusters;
        return {work.index + clusters, more};
    }
};

// Where the ticket protocol of one cluster lies in the shared memory of its CTAs, the same offsets in each. CTA 0
// claims tickets and sends each into the slot of every CTA.
//   slot    8 bytes: index, more
//   full    one arrival of CTA 0's writer; in a cluster also the 8 bytes of the slot, which `st.async` counts there
//   empty   of CTA 0: one arrival of every reading warp of every CTA, after the read
struct TicketSlot {
    static constexpr u32 kBytes = 8;

    u32 slot;
    u32 full;
    u32 empty;
};

template <u32 kClusterSize>
struct TicketScheduler {
    u32 cluster;
    u32 total;
    TicketSlot place;
    u32 parity = 0;

    __device__ __forceinline__ TicketScheduler(u32 cluster, u32 total, TicketSlot place)
        : cluster(cluster), total(total), place(place) {
        if constexpr (kClusterSize > 1) this->place.empty = ptx::mapa_shared_cluster(place.empty, 0);
    }

    __device__ __forceinline__ Work first() const { return {cluster, cluster < total}; }

    // A whole warp.
    __device__ __forceinline__ Work next(Work) {
        if constexpr (kClusterSize > 1) {
            wait_cluster(place.full, parity);
        } else {
            wait(place.full, parity);
        }
        parity ^= 1;
        u32 index, more;
        ptx::ld_shared_v2_b32(index, more, place.slot);
        __syncwarp();  // every lane has read before one of them gives the slot back
        if (threadIdx.x % 32 == 0) {
            if constexpr (kClusterSize > 1) {
                ptx::mbarrier_arrive_release_cluster(place.empty);
            } else {
                ptx::mbarrier_arrive(place.empty);
            }
        }
        return {index, more != 0};
    }
};

// The writing end: one whole warp of CTA 0 of the cluster. A slot is written when every reader has read the one
// before, so a cluster holds at most one tile that it has not begun: more would leave others idle at the end. After the
// first "no more" nobody asks again.
template <u32 kClusterSize>
__device__ __forceinline__ void hand_out_tickets(u32* counter, u32 cluster, u32 clusters, u32 total,
                                                 TicketSlot place) {
    const u32 lane = threadIdx.x % 32;
    bool more = cluster < total;
    for (u32 parity = 1; more; parity ^= 1) {
        if constexpr (kClusterSize > 1) {
            wait_cluster(place.empty, parity);
        } else {
            wait(place.empty, parity);
        }
        u32 index = 0;
        if (lane == 0) index = clusters + atomicAdd(counter, 1u);
        index = __shfl_sync(0xffffffffu, index, 0);
        more = index < total;
        if constexpr (kClusterSize > 1) {
            if (lane < kClusterSize) {
                const u32 full = ptx::mapa_shared_cluster(place.full, lane);
                ptx::mbarrier_arrive_expect_tx_release_cluster(full, TicketSlot::kBytes);
                ptx::st_async_v2_b32(ptx::mapa_shared_cluster(place.slot, lane), index, more, full);
            }
        } else if (lane == 0) {
            ptx::st_shared_v2_b32(place.slot, index, more);
            ptx::mbarrier_arrive(place.full);
        }
    }
}
