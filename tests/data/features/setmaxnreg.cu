extern "C" __global__ void __launch_bounds__(256, 1) kernel() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
