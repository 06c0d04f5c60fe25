extern "C" __global__ void kernel() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
