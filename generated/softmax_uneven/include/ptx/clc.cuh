// `clusterlaunchcontrol`: a running cluster takes over the work of one that has not been launched yet. One instruction
// each. sm_100 and later; the multicast form needs an architecture- or family-specific target.
#pragma once

#include "types.cuh"

namespace ptx {

// The 16 bytes of a response, as they lie in shared memory.
struct ClcResponse {
    u64 low;
    u64 high;
};

// One thread of a cluster of one CTA. The response lands at `response` (a multiple of 16), written asynchronously, and
// counts 16 bytes on `barrier`. Never again after a failure has been seen.
__device__ __forceinline__ void clusterlaunchcontrol_try_cancel(u32 response, u32 barrier) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
        ::"r"(response), "r"(barrier)
        : "memory");
}

// One thread of the whole cluster. The response lands at this offset of every CTA and counts on the barrier at that
// offset there; every CTA has started and none has exited.
__device__ __forceinline__ void clusterlaunchcontrol_try_cancel_multicast(u32 response, u32 barrier) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 "
        "[%0], [%1];" ::"r"(response), "r"(barrier)
        : "memory");
}

// Any thread that has waited for the response: the one load of it.
__device__ __forceinline__ ClcResponse ld_shared_response(u32 response) {
    ClcResponse value;
    asm volatile("ld.shared::cta.v2.b64 {%0, %1}, [%2];"
                 : "=l"(value.low), "=l"(value.high)
                 : "r"(response)
                 : "memory");
    return value;
}

// Any thread: whether the request took a cluster over. If not, nothing else may be asked of the response.
__device__ __forceinline__ bool clusterlaunchcontrol_query_cancel_is_canceled(ClcResponse response) {
    u32 taken;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        ".reg .b128 r;\n"
        "mov.b128 r, {%1, %2};\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(taken)
        : "l"(response.low), "l"(response.high));
    return taken != 0;
}

// Any thread, of a response that took a cluster over: blockIdx.x of that cluster's first CTA.
__device__ __forceinline__ u32 clusterlaunchcontrol_query_cancel_get_first_ctaid_x(ClcResponse response) {
    u32 x;
    asm volatile(
        "{\n"
        ".reg .b128 r;\n"
        "mov.b128 r, {%1, %2};\n"
        "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, r;\n"
        "}\n"
        : "=r"(x)
        : "l"(response.low), "l"(response.high));
    return x;
}

}  // namespace ptx
