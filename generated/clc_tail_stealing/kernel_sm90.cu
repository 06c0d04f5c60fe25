// D = activation(alpha A B + beta C + bias) on Hopper: TMA fills a ring of shared memory stages, wgmma empties it.
// One warpgroup produces, 2 consume; each CTA computes tiles of 128 x 144, 64 of K a stage.
//
// M and N are those of the multiplication: the caller's own.
// The launch defines the macros:
//   ADVISOR_SCHEDULE                 ADVISOR_ONE_TILE, ADVISOR_STATIC or ADVISOR_TICKET
//   ADVISOR_CLUSTER_X, _Y, _Z        CTAs of a cluster along M, along N, along slices of K
//   ADVISOR_SPLIT_K                  slices of K: of one cluster where it is ADVISOR_CLUSTER_Z, else clusters of their
//                                    own, whose sums a second kernel adds up (ADVISOR_REDUCE builds that one)
//   ADVISOR_RASTER_ALONG_M, _GROUP   the order of cluster tiles
//   ADVISOR_STAGES                   stages of the ring
//   ADVISOR_PING_PONG                1: the consumers take whole tiles in turn: one multiplies while the other stores;
//                                    0: they share every tile
//   ADVISOR_STREAM_A, _B             1: the operand is read once by the problem that was planned
//   ADVISOR_COLUMNS, _BUFFERS        columns that the epilogue finishes and stores at a time, buffers for them
//   ADVISOR_SMEM_A, _B, _STORE, _BARRIERS   where the parts of dynamic shared memory begin, bytes
//   ADVISOR_TRACE                    adds a counter for each tile and slice, for checks
#include "epilogue.cuh"
#include "operand.cuh"
#include "pipeline.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/elect.cuh"
#include "ptx/wgmma.cuh"
#include "raster.cuh"
#include "scheduler.cuh"
#include "split_k.cuh"
#include "split_k_reduce.cuh"
#include "types.cuh"

namespace gemm {

using A = bf16;
using B = bf16;
using C = bf16;
using D = bf16;
inline constexpr u32 kTileM = 128;
inline constexpr u32 kTileN = 144;
inline constexpr u32 kTileK = 64;
inline constexpr u32 kConsumers = 2;  // warpgroups
inline constexpr u32 kThreads = 384;
inline constexpr u32 kProducerRegisters = 40;
inline constexpr u32 kConsumerRegisters = 232;
inline constexpr bool kDNMajor = true;
inline constexpr u32 kSplitK = ADVISOR_SPLIT_K;

using Result = Finish<C, D, false, true, Bias::none, Activation::none>;

#if defined(ADVISOR_REDUCE)

}  // namespace gemm

using namespace gemm;

// Adds up the slices of K and finishes the sums: the second kernel of a split over scratch memory.
extern "C" __global__ void __launch_bounds__(256, 4)
    gemm_sm90_reduce(const float* partials, D* d, i64 ldd, i64 batch_stride_d,
                     float alpha, u32 m, u32 n, u32 batch) {
    const float scale = alpha;
    split_k_reduce<kSplitK, kDNMajor>(partials, m, n, batch, [&](u32 b) {
        return SplitKOutput<Result, D, kDNMajor>{
            {scale, 0.0f, {nullptr, 0, 0, 0}, nullptr, m, n},
            {{d, ldd, batch_stride_d, b}, m, n}};
    });
}

#else

__host__ __device__ constexpr u32 ceil_div(u32 value, u32 by) { return value / by + (value % by != 0); }

inline constexpr u32 kClusterX = ADVISOR_CLUSTER_X;
inline constexpr u32 kClusterY = ADVISOR_CLUSTER_Y;
inline constexpr u32 kClusterZ = ADVISOR_CLUSTER_Z;
inline constexpr u32 kClusterSize = kClusterX * kClusterY * kClusterZ;
inline constexpr u32 kStages = ADVISOR_STAGES;
inline constexpr bool kSlicesInCluster = kClusterZ > 1;  // summed over distributed shared memory
inline constexpr bool kSlicesInScratch = kSplitK > 1 && !kSlicesInCluster;
inline constexpr bool kTicket = ADVISOR_SCHEDULE == ADVISOR_TICKET;
inline constexpr bool kRingsRefill = ADVISOR_SCHEDULE != ADVISOR_ONE_TILE;  // after an exchange of partial sums
static_assert(!kSlicesInCluster || kClusterZ == kSplitK, "the slices of a tile are the CTAs of a cluster along z");

// An M tile of A serves the CTAs along y, an N tile of B those along x: each loads its share and sends it to all.
using TileA = Operand<A, kTileM, true, kClusterY, ADVISOR_STREAM_A>;
using TileB = Operand<B, kTileN, true, kClusterX, ADVISOR_STREAM_B>;
inline constexpr u32 kStageBytes = TileA::kBytes + TileB::kBytes;

inline constexpr bool kPingPong = ADVISOR_PING_PONG;
inline constexpr u32 kSharers = kPingPong ? 1 : kConsumers;  // warpgroups of one tile
inline constexpr u32 kWarpsM = kTileM / (64 * kSharers);     // wgmma tiles of 64 rows above each other in a warpgroup
inline constexpr u32 kAccumulators = kTileN / 2;            // registers of one such tile
using Mma = ptx::wgmma_mma_async<kTileN, A, B>;
// A narrow wgmma takes longer than it multiplies, and one that adds to the same sums waits for it: with few sums there
// are two sets of them, which take turns and are added up behind the last stage.
inline constexpr u32 kChains = kWarpsM * kAccumulators <= 32 && !false ? 2 : 1;

inline constexpr u32 kColumns = ADVISOR_COLUMNS;  // of one chunk of the epilogue, which has 64 rows
inline constexpr u32 kChunks = kTileN / kColumns;
inline constexpr u32 kChunkValues = kColumns * 64 / 128;
// What a warpgroup receives of partial sums: every slice of the chunks that its CTA owns.
inline constexpr u32 kPartialBytes = ceil_div(kWarpsM * kChunks, kClusterZ) * kClusterZ * 64 * kColumns * sizeof(float);
static_assert(!kPingPong || !kSlicesInCluster, "the barriers of the exchange count every warp, tile by tile");
static_assert(!kSlicesInCluster || kConsumers * kPartialBytes <= kStages * kStageBytes, "they lie in the ring");
using BoxStore = TmaStore<D, kDNMajor, kColumns, ADVISOR_BUFFERS>;

// Every warp that reads a stage frees it in each CTA that may send into it: its row and its column of the cluster.
inline constexpr u32 kConsumerWarps = 4 * kConsumers;
inline constexpr u32 kSenders = kClusterX + kClusterY - 1;
inline constexpr u32 kEmptyArrivals = 4 * kSharers * kSenders;
// The producing warp and the consumer warps of every CTA read a ticket.
inline constexpr u32 kTicketReaders = (1 + kConsumerWarps) * kClusterSize;

// Dynamic shared memory, offsets in bytes.
struct Smem {
    static constexpr u32 kA = ADVISOR_SMEM_A;
    static constexpr u32 kB = ADVISOR_SMEM_B;
    static constexpr u32 kStore = ADVISOR_SMEM_STORE;
    static constexpr u32 kFull = ADVISOR_SMEM_BARRIERS;
    static constexpr u32 kEmpty = kFull + 8 * kStages;
    static constexpr u32 kTurn = kEmpty + 8 * kStages;
    static constexpr u32 kTicketFull = kTurn + (kPingPong ? 16 : 0);
    static constexpr u32 kTicketEmpty = kTicketFull + 8;
    static constexpr u32 kTicketSlot = kTicketEmpty + 8;
};

inline constexpr u32 kStartBarrier = 0;  // named barriers: the start's
inline constexpr u32 kWarpgroupBarrier = 1;  // one for each consumer warpgroup from here on

extern __shared__ __align__(1024) unsigned char dynamic_smem[];

// Which CTA of its cluster this one is. The launch lays clusters along x alone: y and z of the grid are the cluster's.
struct Place {
    u32 x = blockIdx.x % kClusterX;
    u32 y = blockIdx.y;
    u32 z = blockIdx.z;
    u32 cluster = blockIdx.x / kClusterX;
    u32 clusters = gridDim.x / kClusterX;

    __device__ __forceinline__ static u32 rank_of(u32 x, u32 y, u32 z) {
        return x + y * kClusterX + z * kClusterX * kClusterY;
    }
    __device__ __forceinline__ u32 rank() const { return rank_of(x, y, z); }
    // The CTAs with this one's M tile, that is along y; and those with its N tile, along x.
    __device__ __forceinline__ u16 receivers_a() const {
        u32 mask = 0;
#pragma unroll
        for (u32 each = 0; each < kClusterY; ++each) mask |= 1u << rank_of(x, each, z);
        return mask;
    }
    __device__ __forceinline__ u16 receivers_b() const {
        u32 mask = 0;
#pragma unroll
        for (u32 each = 0; each < kClusterX; ++each) mask |= 1u << rank_of(each, y, z);
        return mask;
    }
    // The i-th of the kSenders CTAs of this one's row and column.
    __device__ __forceinline__ u32 sender(u32 i) const {
        if (i < kClusterX) return rank_of(i, y, z);
        const u32 other = i - kClusterX;
        return rank_of(x, other < y ? other : other + 1, z);
    }
};

// The first row and column of this CTA's part of a cluster tile, and its K blocks.
struct CtaTile {
    u32 row;
    u32 column;
    u32 batch;
    u32 slice;
    Span blocks;
};

using ClusterRaster = Raster<ADVISOR_RASTER_ALONG_M, ADVISOR_RASTER_GROUP, kSlicesInScratch ? kSplitK : 1>;

__device__ __forceinline__ CtaTile cta_tile(const ClusterRaster& raster, const Place& place, u32 k_blocks, u32 index) {
    const ClusterTile tile = raster.tile(index);
    const u32 slice = kSlicesInCluster ? place.z : tile.slice;
    return {(tile.m * kClusterX + place.x) * kTileM, (tile.n * kClusterY + place.y) * kTileN, tile.batch, slice,
            slice_of<kSplitK>(k_blocks, slice)};
}

__device__ __forceinline__ void cluster_barrier() {
    if constexpr (kClusterSize > 1) {
        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
    }
}

// The barriers of a tile whose slices are summed over the cluster, for threads that take no part in the sums.
__device__ __forceinline__ void join_exchange() {
    cluster_barrier();  // every ring is idle: all operands are read, no copy is on its way
    cluster_barrier();  // all partial sums have arrived in the rings' memory
    if constexpr (kRingsRefill) cluster_barrier();  // all of them are read: the rings may be filled again
}

}  // namespace gemm

using namespace gemm;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    gemm_sm90(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
#if ADVISOR_SPLIT_K > 1 && ADVISOR_CLUSTER_Z == 1
              float* partials,
#else
              const __grid_constant__ TensorMap map_d,
              D* d, i64 ldd, i64 batch_stride_d,
              float alpha,
#endif
#if ADVISOR_SCHEDULE == ADVISOR_TICKET
              u32* tickets,
#endif
#if defined(ADVISOR_TRACE)
              u32* trace,
#endif
              u32 m, u32 n, u32 k, u32 batch) {
    const u32 smem = ptx::cvta_to_shared(dynamic_smem);
    const u32 warp = threadIdx.x / 32;
    // Lane 0's, so that the compiler knows it to be the warp's: descriptors then stay in uniform registers.
    const u32 warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const Place place;
    const ClusterRaster raster = {ceil_div(m, kTileM * kClusterX), ceil_div(n, kTileN * kClusterY), batch};
    const u32 k_blocks = ceil_div(k, kTileK);

    if (warp == 0 && ptx::elect_sync()) {
        ptx::prefetch_tensormap(&map_a);
        ptx::prefetch_tensormap(&map_b);
        for (u32 stage = 0; stage < kStages; ++stage) {
            ptx::mbarrier_init(smem + Smem::kFull + 8 * stage, 1);
            ptx::mbarrier_init(smem + Smem::kEmpty + 8 * stage, kEmptyArrivals);
        }
        if constexpr (kPingPong) {
            ptx::mbarrier_init(smem + Smem::kTurn, 4);
            ptx::mbarrier_init(smem + Smem::kTurn + 8, 4);
        }
        if constexpr (kTicket) {
            ptx::mbarrier_init(smem + Smem::kTicketFull, 1);
            ptx::mbarrier_init(smem + Smem::kTicketEmpty, kTicketReaders);
        }
        ptx::fence_mbarrier_init_release_cluster();
        ptx::fence_proxy_async_shared_cta();  // TMA counts its bytes on them
    }
    if constexpr (kClusterSize > 1) {
        __syncthreads();
        cluster_barrier();  // before the first remote access: every CTA runs, and its barriers exist
    } else if (warp == 0) {  // the producer meets nobody: its first copies need no barrier but those it has made
        __syncwarp();
        ptx::barrier_arrive<kStartBarrier, kThreads>();
    } else {
        ptx::barrier_sync<kStartBarrier, kThreads>();
    }

#if ADVISOR_SCHEDULE == ADVISOR_ONE_TILE
    OneTileScheduler scheduler = {place.cluster, raster.total()};
#elif ADVISOR_SCHEDULE == ADVISOR_STATIC
    StaticScheduler scheduler = {place.cluster, raster.total(), place.clusters};
#else
    const TicketSlot ticket = {smem + Smem::kTicketSlot, smem + Smem::kTicketFull, smem + Smem::kTicketEmpty};
    TicketScheduler<kClusterSize> scheduler(place.cluster, raster.total(), ticket);
#endif

    if (warpgroup == 0) {
        ptx::setmaxnreg_dec<kProducerRegisters>();
        if (warp == 0) {
            const u16 receivers_a = place.receivers_a();
            const u16 receivers_b = place.receivers_b();
            RingPosition<kStages> ring;
            for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) {
                const CtaTile tile = cta_tile(raster, place, k_blocks, work.index);
                if (ptx::elect_sync()) {
                    for (u32 block = tile.blocks.first; block < tile.blocks.end; ++block) {
                        const u32 full = smem + Smem::kFull + 8 * ring.stage;
                        wait(smem + Smem::kEmpty + 8 * ring.stage, ring.parity ^ 1);
                        ptx::mbarrier_arrive_expect_tx(full, kStageBytes);
                        TileA::fetch(&map_a, smem + Smem::kA + ring.stage * TileA::kBytes, full, place.y,
                                     receivers_a, tile.row, block * kTileK, tile.batch);
                        TileB::fetch(&map_b, smem + Smem::kB + ring.stage * TileB::kBytes, full, place.x,
                                     receivers_b, tile.column, block * kTileK, tile.batch);
                        ring.advance();
                    }
                }
                __syncwarp();
                if constexpr (kSlicesInCluster) join_exchange();
            }
        } else if (kTicket && warp == 1 && place.rank() == 0) {
#if ADVISOR_SCHEDULE == ADVISOR_TICKET
            hand_out_tickets<kClusterSize>(tickets, place.cluster, place.clusters, raster.total(), ticket);
#endif
        } else if constexpr (kSlicesInCluster) {
            for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) join_exchange();
        }
    } else {
        ptx::setmaxnreg_inc<kConsumerRegisters>();
        const u32 consumer = warpgroup - 1;
#if ADVISOR_SPLIT_K == 1 || ADVISOR_CLUSTER_Z > 1
        if (threadIdx.x == 128) ptx::prefetch_tensormap(&map_d);
#endif
        const u32 lane = threadIdx.x % 32;
        const u32 row_in_tile = kPingPong ? 0 : consumer * kWarpsM * 64;
        const u64 desc_a = TileA::descriptor(smem + Smem::kA) + row_in_tile * 128 / 16;
        const u64 desc_b = TileB::descriptor(smem + Smem::kB);
        // Lane i of a warp answers for the i-th sender.
        const u32 empty = smem + Smem::kEmpty;
        const u32 empty_of_sender =
            kSenders == 1 ? empty : ptx::mapa_shared_cluster(empty, place.sender(lane % kSenders));
        const auto release = [&](u32 stage) {
            if (lane < kSenders) {
                if constexpr (kSenders == 1) {
                    ptx::mbarrier_arrive(empty_of_sender + 8 * stage);
                } else {
                    ptx::mbarrier_arrive_shared_cluster(empty_of_sender + 8 * stage);
                }
            }
        };
        const auto multiply = [&](float (&acc)[kChains][kWarpsM][kAccumulators], u32 stage, bool accumulate) {
#pragma unroll
            for (u32 step = 0; step < 4; ++step) {
#pragma unroll
                for (u32 i = 0; i < kWarpsM; ++i) {
                    Mma::template issue<TileA::kTransposed, TileB::kTransposed>(
                        acc[step % kChains][i],
                        desc_a + (stage * (TileA::kBytes / 16) + (i * 8192 + step * TileA::kStepBytes) / 16),
                        desc_b + (stage * (TileB::kBytes / 16) + step * TileB::kStepBytes / 16),
                        accumulate || step > 0);
                }
            }
        };
#if ADVISOR_SPLIT_K == 1 || ADVISOR_CLUSTER_Z > 1
        const float scale = alpha;
        BoxStore box_store = {&map_d, smem + Smem::kStore + consumer * ADVISOR_BUFFERS * BoxStore::kBufferBytes,
                              kWarpgroupBarrier + consumer};
#endif

        RingPosition<kStages> ring;
        bool own = consumer == 0;
        u32 turn_parity = consumer ^ 1;  // the first tile waits for nobody: the phase before a fresh barrier's first
        for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) {
            const CtaTile tile = cta_tile(raster, place, k_blocks, work.index);
            const u32 blocks = tile.blocks.end - tile.blocks.first;
            if constexpr (kPingPong) {
                if (!own) {  // the other's tile, and the other's stages
                    own = true;
                    ring.advance_by(blocks);
                    continue;
                }
                own = false;
            }
#if ADVISOR_SPLIT_K == 1 || ADVISOR_CLUSTER_Z > 1
            const Result result = {
                scale, 0.0f, {nullptr, 0, 0, 0}, nullptr, m, n};
            result.template prefetch<kWarpsM * 64, kTileN>(tile.row + row_in_tile, tile.column);
#endif
            if constexpr (kPingPong) {
                // Parity tells a phase from its neighbours alone: waiting for stages while the other still waits for
                // earlier phases of them would find a phase complete that has not begun.
                wait(smem + Smem::kTurn + 8 * consumer, turn_parity);
                turn_parity ^= 1;
            }
            float sums[kChains][kWarpsM][kAccumulators];
            float(&acc)[kWarpsM][kAccumulators] = sums[0];
#pragma unroll
            for (u32 chain = 0; chain < kChains; ++chain) {
#pragma unroll
                for (u32 i = 0; i < kWarpsM; ++i) {
#pragma unroll
                    for (u32 at = 0; at < kAccumulators; ++at) sums[chain][i][at] = 0.0f;
                }
            }
            u32 before = 0;
            for (u32 block = 0; block < blocks; ++block) {
                wait(smem + Smem::kFull + 8 * ring.stage, ring.parity);
                ptx::wgmma_fence();
                multiply(sums, ring.stage, true);
                ptx::wgmma_commit_group();
                // One stage's multiplications stay in flight; those before them are done with their stage.
                ptx::wgmma_wait_group<1>();
                if (block > 0) release(before);
                before = ring.stage;
                ring.advance();
            }
            if constexpr (kPingPong) {  // the other may multiply: every stage of this tile has been waited for
                if (lane == 0) ptx::mbarrier_arrive(smem + Smem::kTurn + 8 * (consumer ^ 1));
            }
            ptx::wgmma_wait_group<0>();
#pragma unroll
            for (u32 chain = 0; chain < kChains; ++chain) {
#pragma unroll
                for (u32 i = 0; i < kWarpsM; ++i) ptx::pin(sums[chain][i]);
            }
            if (blocks > 0) release(before);
            if constexpr (kChains == 2) {
#pragma unroll
                for (u32 i = 0; i < kWarpsM; ++i) {
#pragma unroll
                    for (u32 at = 0; at < kAccumulators; ++at) acc[i][at] += sums[kChains - 1][i][at];
                }
            }

#if ADVISOR_SPLIT_K > 1 && ADVISOR_CLUSTER_Z == 1
            const DirectStore<float, kDNMajor> store = {
                partials_of<kSplitK, kDNMajor>(partials, m, n, tile.batch, tile.slice), m, n};
#pragma unroll
            for (u32 i = 0; i < kWarpsM; ++i) store.chunk(acc[i], tile.row + row_in_tile + i * 64, tile.column);
#else
            const DirectStore<D, kDNMajor> store = {{d, ldd, batch_stride_d, tile.batch}, m, n};
            // The CTAs of the slices take turns: CTA z owns, sums and stores every kClusterZ-th chunk from the z-th on.
            const u32 partials = smem + Smem::kA + consumer * kPartialBytes;
            if constexpr (kSlicesInCluster) {
                cluster_barrier();
#pragma unroll
                for (u32 i = 0; i < kWarpsM; ++i) {
#pragma unroll
                    for (u32 chunk = 0; chunk < kChunks; ++chunk) {
                        const u32 turn = (i * kChunks + chunk) / kClusterZ;
                        const u32 owner = (i * kChunks + chunk) % kClusterZ;
                        float values[kChunkValues];
#pragma unroll
                        for (u32 at = 0; at < kChunkValues; ++at) values[at] = acc[i][chunk * kChunkValues + at];
                        send_partials<kClusterZ>(
                            values, ptx::mapa_shared_cluster(partials, Place::rank_of(place.x, place.y, owner)), turn,
                            place.z);
                    }
                }
                cluster_barrier();
            }
#pragma unroll
            for (u32 chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
                for (u32 i = 0; i < kWarpsM; ++i) {
                    const u32 row = tile.row + row_in_tile + i * 64;
                    const u32 column = tile.column + chunk * kColumns;
                    float values[kChunkValues];
                    if constexpr (kSlicesInCluster) {
                        if ((i * kChunks + chunk) % kClusterZ != place.z) continue;
                        sum_partials<kClusterZ>(values, partials, (i * kChunks + chunk) / kClusterZ);
                    } else {
#pragma unroll
                        for (u32 at = 0; at < kChunkValues; ++at) values[at] = acc[i][chunk * kChunkValues + at];
                    }
                    result.template chunk<32>(values, row, column);
                    if (BoxStore::fits(row, column, m, n)) {
                        box_store.chunk(values, row, column, tile.batch, row < m && column < n);
                    } else {
                        store.chunk(values, row, column);
                    }
                }
            }
            if constexpr (kSlicesInCluster && kRingsRefill) {
                ptx::fence_proxy_async();  // the next copies into the rings come after these reads and writes
                cluster_barrier();
            }
#endif
#if defined(ADVISOR_TRACE)
            // [batch][slice][tile of M][tile of N], tiles of one CTA.
            const bool counts = threadIdx.x % 128 == 0 && (kPingPong || consumer == 0);
            if (counts && tile.row < m && tile.column < n) {
                const u32 tiles_n = ceil_div(n, kTileN);
                const u64 layer = static_cast<u64>(tile.batch) * kSplitK + tile.slice;
                const u64 line = layer * ceil_div(m, kTileM) + tile.row / kTileM;
                atomicAdd(trace + line * tiles_n + tile.column / kTileN, 1u);
            }
#endif
        }
#if ADVISOR_SPLIT_K == 1 || ADVISOR_CLUSTER_Z > 1
        box_store.drain();
#endif
    }
    // The one way out: no CTA leaves while a peer may still send to it or arrive on its barriers.
    cluster_barrier();
}

#endif
