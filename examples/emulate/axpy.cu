// A vector kernel for `advisor emulate`. axpy.ptx is what NVRTC makes of it for sm_90 with -lineinfo, axpy.json a launch.
//
// y = alpha * x + y
extern "C" __global__ void __launch_bounds__(256) axpy(const float* x, float* y, float alpha, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = alpha * x[i] + y[i];
}
