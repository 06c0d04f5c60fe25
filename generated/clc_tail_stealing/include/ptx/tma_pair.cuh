// `cp.async.bulk.tensor` with `.cta_group::2`: copies of a CTA pair, whose bytes may count on the even CTA's barrier.
// One instruction each; one thread issues a copy. sm_100a, sm_100f, sm_103a.
#pragma once

#include "ptx/tma.cuh"
#include "types.cuh"

namespace ptx {

// One thread of a CTA of a pair; the box lands at `destination` of this CTA, its bytes count on `barrier`, a
// shared::cluster address in this CTA or in the other one of the pair.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_cta_group_2_global_to_shared(u32 destination,
                                                                                     const TensorMap* map, u32 barrier,
                                                                                     i32 x, i32 y, i32 z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// The same into every CTA of the cluster whose rank has its bit in `mask`. The bytes count in that CTA or in the other
// one of its pair: in the one whose rank has the parity of the CTA that `barrier` lies in.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_cta_group_2_global_to_shared_multicast(
    u32 destination, const TensorMap* map, u32 barrier, u16 mask, i32 x, i32 y, i32 z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z),
        "h"(mask)
        : "memory");
}

}  // namespace ptx
