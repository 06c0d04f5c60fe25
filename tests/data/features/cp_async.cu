extern "C" __global__ void kernel(const int4* source) {
  __shared__ int4 slot;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(&slot)), "l"(source) : "memory");
}
