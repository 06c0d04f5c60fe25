// `cp.async.bulk.tensor`: the tensor memory accelerator copies boxes of a tensor. One instruction each; one thread
// issues a copy. sm_90 and later. Coordinates count elements, innermost first; what lies outside the tensor reads as
// zero and is not written, and the full box counts as bytes either way.
#pragma once

#include "types.cuh"

// The driver's encoding of a tensor in global memory, passed by value as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
    u64 words[16];
};

namespace ptx {

// One thread: brings the descriptor into its cache. Touches no tensor data, so it may precede griddepcontrol.wait.
__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// One thread of the CTA; the box lands at `destination` of this CTA and its bytes count on `barrier` of this CTA.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_global_to_shared(u32 destination, const TensorMap* map,
                                                                         u32 barrier, i32 x, i32 y, i32 z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
        ::"r"(destination), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// A cache policy: the lines of an access go first when the L2 needs room.
__device__ __forceinline__ u64 createpolicy_evict_first() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// The same copy under a cache policy.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_global_to_shared_hint(u32 destination, const TensorMap* map,
                                                                              u32 barrier, u64 policy, i32 x, i32 y,
                                                                              i32 z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z),
        "l"(policy)
        : "memory");
}

// The same into every CTA of the cluster whose rank has its bit in `mask`, at the same offset, with the bytes counted
// on the barrier at the same offset there. Every receiver must have released the bytes that are overwritten.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_global_to_shared_multicast(u32 destination,
                                                                                   const TensorMap* map, u32 barrier,
                                                                                   u16 mask, i32 x, i32 y, i32 z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z),
        "h"(mask)
        : "memory");
}

// One thread of the CTA, after the writers of `source` have fenced their proxy and met it at a barrier.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_shared_to_global(const TensorMap* map, u32 source, i32 x,
                                                                         i32 y, i32 z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(source), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// The thread that issued stores: closes its group of them.
__device__ __forceinline__ void cp_async_bulk_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// The same thread: all but its newest kGroups groups have read their source.
template <u32 kGroups>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

// The same thread: all but its newest kGroups groups are complete and visible to it.
template <u32 kGroups>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace ptx
