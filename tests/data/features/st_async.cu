extern "C" __global__ void kernel() {
  __shared__ unsigned word;
  __shared__ alignas(8) unsigned long long barrier;
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"((unsigned)__cvta_generic_to_shared(&word)),
               "r"(1u), "r"((unsigned)__cvta_generic_to_shared(&barrier))
               : "memory");
}
