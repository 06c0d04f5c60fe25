// A kernel for `advisor emulate` with a fault: it reads the coordinate of a request that has failed.
// failed_response.ptx is what NVRTC makes of it for sm_100a with -lineinfo, failed_response.json a launch.
//
// y = 2 x, a block of x for each CTA. One CTA does its own block and, by Cluster Launch Control, those of CTAs that have
// not started. The answer of a request is one bit, and coordinates only where the bit is set. Line 46 takes a coordinate
// inside the grid for the bit.
__device__ unsigned address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

extern "C" __global__ void __launch_bounds__(128) scaled(const float* x, float* y)
{
    __shared__ alignas(16) unsigned long long response[2];
    __shared__ unsigned long long landed;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&landed)) : "memory");
    __syncthreads();
    unsigned block = blockIdx.x;
    for (unsigned phase = 0;; phase ^= 1) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(address(&landed)) : "memory");
            asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                         ::"r"(address(response)), "r"(address(&landed))
                         : "memory");
        }
        const unsigned i = block * blockDim.x + threadIdx.x;
        y[i] = 2 * x[i];
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again;\n"
                     "}" ::"r"(address(&landed)), "r"(phase)
                     : "memory");
        unsigned granted;
        asm volatile("{\n"
                     ".reg .b128 answer;\n"
                     ".reg .pred taken;\n"
                     "ld.shared.b128 answer, [%2];\n"
                     "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 taken, answer;\n"
                     "selp.u32 %0, 1, 0, taken;\n"
                     "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, answer;\n"
                     "}"
                     : "=r"(granted), "=r"(block)
                     : "r"(address(response))
                     : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the answer is read before the next is written
        __syncthreads();
        if (block >= gridDim.x) return;  // if (!granted) return; is right
    }
}
