extern "C" __global__ void kernel() {
  __shared__ alignas(16) uint4 response;
  __shared__ alignas(8) unsigned long long barrier;
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];" ::"r"(
                   (unsigned)__cvta_generic_to_shared(&response)),
               "r"((unsigned)__cvta_generic_to_shared(&barrier))
               : "memory");
}
