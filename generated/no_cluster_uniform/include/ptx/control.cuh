// Control of registers and of dependent launches: one instruction each.
#pragma once

#include "types.cuh"

namespace ptx {

// All warps of one warpgroup, once; the kernel must have a register count at launch (its launch bounds give it).
// sm_90a. The count is a multiple of 8 from 24 to 256.
template <u32 kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <u32 kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Every thread that reads or writes global memory, before its first access: returns when the grids that this one
// depends on have completed and flushed. sm_90 and later; returns at once where the launch has no such dependence.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Any thread: this CTA no longer holds back the start of the grids that depend on this one. A hint.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace ptx
