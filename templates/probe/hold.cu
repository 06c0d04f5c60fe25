// Other work that holds SMs: each CTA takes a whole SM, by its shared memory, until the host says that it may go.
#include "ptx/special.cuh"
#include "types.cuh"

// arrived counts the CTAs that run. A CTA leaves when *release is not 0, or after `limit_ns`: nothing hangs for good.
extern "C" __global__ void probe_hold(u32* arrived, const volatile u32* release, u64 limit_ns) {
    const u64 begin = ptx::globaltimer();
    atomicAdd(arrived, 1u);
    while (*release == 0 && ptx::globaltimer() - begin < limit_ns) {
    }
}
