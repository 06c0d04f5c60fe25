// Rows that are claimed by Cluster Launch Control: the grid has a cluster for every item, and those that run take over
// the items of those that do not yet. The interface is that of scheduler.cuh; responses are read by clc_scheduler.cuh.
//
// Every warp computes and copies, so every warp walks the sequence, and one thread of each CTA's warp 0 is the asking
// end: it arms its own CTA's barrier, and that of CTA 0 asks, once for the cluster. Copies of a row begin while one of the
// two rows before it is computed, so the row must be known by then: it is asked for when the one before it is known. One
// request is in flight, and a claim is at most one row ahead of what is copied.
//   response  [2] of 16 bytes, the same offsets in every CTA: each response is multicast to all
//   full      [2] one arrival, that of the CTA's own warp 0 with 16 bytes expected, and those bytes
//   empty     [2] of CTA 0: one arrival of every warp of every CTA, after the read
// A failure says "stop", never "all is done". Nobody asks after one, and the walk ends with reading one: so every
// request has been answered and read before anybody leaves.
#pragma once

#include "clc_scheduler.cuh"
#include "ptx/clc.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "scheduler.cuh"
#include "types.cuh"

// kAhead: items that the walk may be ahead of `claimed`, where two ends of a pipeline follow one sequence; else 0.
template <u32 kWarps, u32 kCluster, u32 kAhead>
struct RowClaims {
    static constexpr u32 kResponses = 2;
    static constexpr u32 kBytes = kResponses * (16 + 8 + 8);

    ClcScheduler<kResponses, kCluster, kCluster> responses;
    u32 rank;
    u32 held = 0;  // of `ahead`, the oldest first
    u32 ahead[kAhead > 0 ? kAhead : 1] = {};

    // `base`: the shared address of kBytes bytes, a multiple of 16.
    __device__ __forceinline__ RowClaims(u32 cluster, u32 items, u32 rank, u32 base)
        : responses(cluster, items, rank, {base, base + 16 * kResponses, base + 24 * kResponses, 0}), rank(rank) {}

    // All threads, before the cluster synchronises; a CTA alone is synchronised here.
    __device__ __forceinline__ void init() const {
        if (threadIdx.x == 0) {
            for (u32 each = 0; each < kResponses; ++each) {
                ptx::mbarrier_init(responses.place.full + 8 * each, 1);
                ptx::mbarrier_init(responses.place.empty + 8 * each, kWarps * kCluster);
            }
            ptx::fence_mbarrier_init_release_cluster();
            ptx::fence_proxy_async_shared_cta();  // responses count their bytes on them
        }
        if constexpr (kCluster == 1) __syncthreads();
    }

    // A whole warp, as are those below: once, after the cluster has synchronised.
    __device__ __forceinline__ Work first() {
        const Work work = responses.first();
        if (work.more) ask();
        return work;
    }

    // The item asked for before; the one after it is asked for.
    __device__ __forceinline__ Work next(Work work) {
        work = responses.next(work);
        if (!work.more) return work;
        if constexpr (kAhead > 0) {
#pragma unroll
            for (u32 i = 0; i < kAhead; ++i) ahead[i] = i == held ? work.index : ahead[i];
            ++held;
        }
        ask();
        return work;
    }

    // The oldest item that `next` has given and this has not; with none left, there is no more: `next` has seen a failure.
    __device__ __forceinline__ Work claimed() {
        static_assert(kAhead > 0, "a walk that is not ahead holds nothing");
        if (held == 0) return {0, false};
        const u32 index = ahead[0];
#pragma unroll
        for (u32 i = 1; i < kAhead; ++i) ahead[i - 1] = ahead[i];
        --held;
        return {index, true};
    }

private:
    // Asks into the slot that is read next. Its last response was the one before that just read.
    __device__ __forceinline__ void ask() const {
        if (threadIdx.x < 32 && ptx::elect_sync()) {
            const u32 stage = responses.slot.stage;
            const u32 response = responses.place.response + 16 * stage, full = responses.place.full + 8 * stage;
            if (rank == 0) wait_cluster(responses.place.empty + 8 * stage, responses.slot.parity ^ 1);
            ptx::mbarrier_arrive_expect_tx(full, 16);
            if (rank == 0) {
                if constexpr (kCluster == 1) {
                    ptx::clusterlaunchcontrol_try_cancel(response, full);
                } else {
                    ptx::clusterlaunchcontrol_try_cancel_multicast(response, full);
                }
            }
        }
        __syncwarp();
    }
};
