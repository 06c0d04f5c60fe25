extern "C" __global__ void kernel(const void* map, unsigned short mask) {
  __shared__ alignas(128) char tile[128];
  __shared__ alignas(8) unsigned long long barrier;
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %2}], [%3], %4;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(tile)),
               "l"(map), "r"(0), "r"((unsigned)__cvta_generic_to_shared(&barrier)), "h"(mask)
               : "memory");
}
