// A ring of shared memory stages between TMA and its readers: two mbarriers a stage.
//   full[s]   one arrival, the producer's own expect_tx, and the bytes of every copy that lands in stage s
//   empty[s]  one arrival of every warp, in every CTA, whose release the producer has to await before it may issue
//             copies into stage s: with multicast those of each CTA that receives what this one issues
#pragma once

#include "ptx/mbarrier.cuh"
#include "types.cuh"

// A place in the ring, and the parity of the pass over it. A reader starts at parity 0; a writer waits for
// `parity ^ 1`, which a fresh barrier counts as passed.
template <u32 kStages>
struct RingPosition {
    u32 stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }

    // Past stages that another reader consumes.
    __device__ __forceinline__ void advance_by(u32 count) {
        const u32 place = stage + count;
        parity ^= place / kStages & 1;
        stage = place % kStages;
    }
};

// Barriers of arrivals and copies within the CTA; and of arrivals from other CTAs by threads that have only read, for
// whoever then overwrites through TMA what they read.
__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
    while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {
    }
}

// Barriers that threads of other CTAs arrive on.
__device__ __forceinline__ void wait_cluster(u32 barrier, u32 parity) {
    while (!ptx::mbarrier_try_wait_parity_acquire_cluster(barrier, parity)) {
    }
}
