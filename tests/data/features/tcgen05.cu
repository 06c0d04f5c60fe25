extern "C" __global__ void kernel() {
  __shared__ unsigned address;
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"((unsigned)__cvta_generic_to_shared(&address)) : "memory");
}
