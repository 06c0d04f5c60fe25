// `st.async`: a store into a peer's shared memory that counts its bytes on a barrier there. One instruction. sm_90 and
// later.
#pragma once

#include "types.cuh"

namespace ptx {

// Any thread of a cluster of two CTAs or more. `address`, a multiple of 16, and `barrier` are shared::cluster addresses
// in one CTA. The 16 bytes land later; the phase of `barrier` then counts them, and who waits for it sees them.
__device__ __forceinline__ void st_async_v4_b32(u32 address, u32 a, u32 b, u32 c, u32 d, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     address),
                 "r"(a), "r"(b), "r"(c), "r"(d), "r"(barrier)
                 : "memory");
}

// The same with 8 bytes; `address` is a multiple of 8.
__device__ __forceinline__ void st_async_v2_b32(u32 address, u32 a, u32 b, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "r"(a), "r"(b), "r"(barrier)
                 : "memory");
}

}  // namespace ptx
