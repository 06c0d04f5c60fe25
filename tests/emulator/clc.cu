// Kernels that claim their work with Cluster Launch Control; each fault is one macro (clc_kernels.py).
typedef unsigned long long u64;
typedef unsigned u32;
#ifndef SLOTS
#define SLOTS 2
#endif

__device__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ u32 cluster_size() { u32 r; asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)); return r; }
__device__ void init(u64* b, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address(b)), "r"(n) : "memory");
}
__device__ void arm(u64* b) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" :: "r"(address(b)) : "memory");
}
__device__ void arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address(b)) : "memory");
}
__device__ void arrive_at(u64* b, u32 rank) {
  asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1;"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a]; }"
               :: "r"(address(b)), "r"(rank) : "memory");
}
__device__ void wait(u64* b, u32 parity) {
  asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @!p bra L; }"
               :: "r"(address(b)), "r"(parity) : "memory");
}
__device__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ bool elect() {
  u32 p;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(p));
  return p;
}
__device__ void ask(void* slot, u64* b) {
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
               :: "r"(address(slot)), "r"(address(b)) : "memory");
}
__device__ void ask_all(void* slot, u64* b) {
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
               ".multicast::cluster::all.b128 [%0], [%1];"
               :: "r"(address(slot)), "r"(address(b)) : "memory");
}
struct Answer { bool granted; u32 x, y, z; };
__device__ Answer read(const void* slot) {
  Answer a; u64 low, high; u32 p;
  asm volatile("ld.shared.v2.b64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "r"(address(slot)) : "memory");
  asm volatile("{ .reg .b128 r; .reg .pred p; mov.b128 r, {%1, %2};"
               "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r; selp.u32 %0, 1, 0, p; }"
               : "=r"(p) : "l"(low), "l"(high));
  a.granted = p; a.x = a.y = a.z = 0;
#ifdef DECODE_FIRST
  {
#else
  if (a.granted) {
#endif
    asm volatile("{ .reg .b128 r; mov.b128 r, {%3, %4};"
                 "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%0, %1, %2, _}, r; }"
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z) : "l"(low), "l"(high));
  }
  return a;
}
__device__ void work(u32* out, u32 x, u32 y, u32 z) {
  u32 tile = (z * gridDim.y + y) * gridDim.x + x;
  atomicAdd(out + (u64)tile * blockDim.x + threadIdx.x, 1u);
}

extern "C" __global__ void unicast(const u32* in, u32* out, u32 n) {
  __shared__ alignas(16) u64 slot[2 * SLOTS];
  __shared__ u64 bar;
  if (threadIdx.x == 0) init(&bar, 1);
  __syncthreads();
  u32 x = blockIdx.x, y = blockIdx.y, z = blockIdx.z, phase = 0;
  for (;;) {
#ifndef NO_BARRIER
    __syncthreads();
#endif
    if (threadIdx.x == 0) {
#ifndef NO_FENCE
      fence_async();
#endif
#ifndef NO_EXPECT
      arm(&bar);
#else
      arrive(&bar);
#endif
      ask((char*)slot + SHIFT, &bar);
    }
#ifdef EVERY_LANE
    if (threadIdx.x > 0 && threadIdx.x < 32) ask((char*)slot + SHIFT, &bar);
#endif
#ifdef TWICE
    if (threadIdx.x == 0 && x == 0) ask((char*)slot + SHIFT, &bar);
#endif
    work(out, x, y, z);
#ifdef NO_DRAIN
    if (n == 1) break;
#endif
#ifndef READ_EARLY
    wait(&bar, phase);
#endif
    phase ^= 1;
#ifdef IGNORE
    if (n == 2) break;
#endif
    Answer a = read(slot);
#ifdef AFTER_FAILURE
    if (!a.granted) {
      __syncthreads();
      if (threadIdx.x == 0) { fence_async(); arm(&bar); ask(slot, &bar); }
      wait(&bar, phase);
    }
#endif
#ifdef USE_FAILED
    x = a.x; y = a.y; z = a.z;
    if (!a.granted && x >= gridDim.x) break;
#else
    if (!a.granted) break;
    x = a.x; y = a.y; z = a.z;
#endif
  }
#ifdef READ_EARLY
  wait(&bar, 0);
#endif
}

extern "C" __global__ void multicast(const u32* in, u32* out, u32 n) {
  __shared__ alignas(16) u64 slots[2 * SLOTS];
  __shared__ u64 full[SLOTS], empty[SLOTS];
  u32 rank = cluster_rank(), warp = threadIdx.x / 32;
  u32 readers = blockDim.x / 32 * cluster_size();
#ifdef UNCOUNTED
  readers -= 1;
#endif
  if (threadIdx.x == 0)
    for (int i = 0; i < SLOTS; ++i) { init(&full[i], 1); init(&empty[i], readers); }
  fence_init();
#ifndef NO_MEET
  cluster_meet();
#endif
  u32 x = blockIdx.x, y = blockIdx.y, z = blockIdx.z, slot = 0, round = 0;
  u32 dx = x % DIM_X, dy = y % DIM_Y, dz = z % DIM_Z;
  for (;;) {
    if (warp == 0) {
      if (round > 0 && rank == 0) wait(&empty[slot], (round - 1) & 1);
      if (elect()) {
#ifdef PEER_NOT_ARMED
        if (rank == 0)
#endif
        arm(&full[slot]);
        if (rank == 0) ask_all(&slots[2 * slot], &full[slot]);
      }
      __syncwarp();
    }
    work(out, x, y, z);
#ifdef PEER_LEAVES
    if (rank == 1) return;
#endif
    wait(&full[slot], round & 1);
#ifdef PEER_LEAVES_LATER
    if (rank == 1) return;
#endif
#ifdef RELEASE_EARLY
    fence_async();
    __syncwarp();
    if (elect()) arrive_at(&empty[slot], 0);
#endif
    Answer a = read(&slots[2 * slot]);
#ifndef NO_FENCE
    fence_async();
#endif
    __syncwarp();
#ifdef UNCOUNTED
    if (rank != cluster_size() - 1 || warp != blockDim.x / 32 - 1)
#endif
#ifndef RELEASE_EARLY
    if (elect()) arrive_at(&empty[slot], 0);
#endif
    if (!a.granted) break;
    x = a.x + dx; y = a.y + dy; z = a.z + dz;
    if (++slot == SLOTS) { slot = 0; ++round; }
  }
#ifndef NO_FAREWELL
  cluster_meet();
#endif
}
