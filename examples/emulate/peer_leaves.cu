// A kernel for `advisor emulate` with a fault: a CTA leaves while the other one of its cluster still reads its memory.
// peer_leaves.ptx is what NVRTC makes of it for sm_90a with -lineinfo, peer_leaves.json a launch.
//
// Each CTA of a pair puts its part of x into shared memory, and CTA 0 adds up both parts. CTA 1 has nothing more to do and
// returns; its shared memory goes with it. A cluster barrier before the end, in both, keeps it until CTA 0 has read.
__device__ void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(128) __cluster_dims__(2, 1, 1) sums(const float* x, float* y)
{
    __shared__ float part[128];
    part[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
    cluster_barrier();  // both parts are there
    if (blockIdx.x % 2 == 1) return;
    float other;
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %1, 1;\n"
                 "ld.shared::cluster.f32 %0, [there];\n"
                 "}"
                 : "=f"(other)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&part[threadIdx.x])))
                 : "memory");
    y[blockIdx.x / 2 * 128 + threadIdx.x] = part[threadIdx.x] + other;
}
