// `cp.async`: copies from global to shared memory that run behind the thread. One instruction each; any thread.
// sm_80 and later. Both addresses are multiples of the size. Only the first `bytes` bytes are read, the rest of the
// destination becomes zero; with 0 nothing is read and `source` need only be a pointer.
#pragma once

#include "types.cuh"

namespace ptx {

// Past the first-level cache: what is copied is read once by this SM.
__device__ __forceinline__ void cp_async_cg_16(u32 destination, const void* source, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(bytes)
                 : "memory");
}

// Through the first-level cache: neighbours of a narrow copy hit the line that it brought.
__device__ __forceinline__ void cp_async_ca_4(u32 destination, const void* source, u32 bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(destination), "l"(source), "r"(bytes)
                 : "memory");
}

// The thread that issued copies: closes its group of them. An empty group is a group.
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// The same thread: all but its newest kGroups groups have landed, visible to it. Others see them behind a barrier.
template <u32 kGroups>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace ptx
