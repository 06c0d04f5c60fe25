// D = activation(alpha A B + beta C + bias) on Blackwell: TMA fills a ring of shared memory stages, tcgen05 empties it
// into tensor memory, four warps take the sums from there. Each CTA computes tiles of 128 x 256, 64 of K a stage.
//
// M and N are those of the multiplication: the caller's own.
// The launch defines the macros:
//   ADVISOR_SCHEDULE                 ADVISOR_ONE_TILE, ADVISOR_STATIC or ADVISOR_CLC
//   ADVISOR_CLUSTER_X, _Y, _Z        CTAs of a cluster along M, along N, along slices of K
//   ADVISOR_PREFERRED_X, _Y          where the launch prefers larger clusters: those. Each cluster then has one of the
//                                    two sizes, and reads at run time which
//   ADVISOR_MMA_CTAS                 CTAs of one MMA: 1, or 2 for the pairs of neighbours along x
//   ADVISOR_SPLIT_K                  slices of K: of one cluster where it is ADVISOR_CLUSTER_Z, else clusters of their
//                                    own, whose sums a second kernel adds up (ADVISOR_REDUCE builds that one)
//   ADVISOR_RASTER_ALONG_M, _GROUP   the order of cluster tiles
//   ADVISOR_STAGES                   stages of the ring
//   ADVISOR_ACCUMULATORS             tiles in tensor memory: 2 where the MMAs of the next run under the epilogue of one
//   ADVISOR_TMEM_COLUMNS             columns of tensor memory that a CTA takes
//   ADVISOR_COLUMNS                  columns that the epilogue finishes and stores at a time
//   ADVISOR_SMEM_A, _B, _STORE, _C, _RESPONSES, _BARRIERS, _TMEM
//                                    where the parts of dynamic shared memory begin, bytes
//   ADVISOR_TRACE                    adds a counter for each tile and slice, for checks
#include "clc_scheduler.cuh"
#include "epilogue.cuh"
#include "pipeline.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/elect.cuh"
#include "ptx/special.cuh"
#include "ptx/tcgen05.cuh"
#include "raster.cuh"
#include "scheduler.cuh"
#include "split_k.cuh"
#include "split_k_reduce.cuh"
#include "tcgen05_operand.cuh"
#include "tmem_epilogue.cuh"
#include "types.cuh"

namespace gemm {

using A = bf16;
using B = bf16;
using C = bf16;
using D = bf16;
inline constexpr u32 kTileM = 128;
inline constexpr u32 kTileN = 256;
inline constexpr u32 kTileK = 64;
inline constexpr u32 kThreads = 256;
inline constexpr bool kDNMajor = true;
inline constexpr u32 kSplitK = ADVISOR_SPLIT_K;

#if defined(ADVISOR_REDUCE)

using Result = Finish<C, D, false, true, Bias::none, Activation::none>;

}  // namespace gemm

using namespace gemm;

// Adds up the slices of K and finishes the sums: the second kernel of a split over scratch memory.
extern "C" __global__ void __launch_bounds__(256, 4)
    gemm_sm100_reduce(const float* partials, D* d, i64 ldd, i64 batch_stride_d,
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
// What a tile of a cluster is made for: the preferred cluster where there is one. Clusters of the other size are then a
// part of such a tile's CTAs each, and together do what one preferred cluster does.
#if defined(ADVISOR_PREFERRED_X)
inline constexpr bool kMixed = true;
inline constexpr u32 kUnitX = ADVISOR_PREFERRED_X;
inline constexpr u32 kUnitY = ADVISOR_PREFERRED_Y;
#else
inline constexpr bool kMixed = false;
inline constexpr u32 kUnitX = kClusterX;
inline constexpr u32 kUnitY = kClusterY;
#endif
inline constexpr u32 kUnitSize = kUnitX * kUnitY * kClusterZ;
inline constexpr u32 kMmaCtas = ADVISOR_MMA_CTAS;
inline constexpr bool kPair = kMmaCtas == 2;
inline constexpr u32 kStages = ADVISOR_STAGES;
inline constexpr bool kSlicesInCluster = kClusterZ > 1;  // summed over distributed shared memory
inline constexpr bool kSlicesInScratch = kSplitK > 1 && !kSlicesInCluster;
inline constexpr bool kClc = ADVISOR_SCHEDULE == ADVISOR_CLC;
static_assert(!kSlicesInCluster || kClusterZ == kSplitK, "the slices of a tile are the CTAs of a cluster along z");
static_assert(kClusterX % kMmaCtas == 0, "a pair is two neighbours along x");
static_assert(kUnitX % kClusterX == 0 && kUnitY % kClusterY == 0, "smaller clusters make up a preferred one");
static_assert(!kMixed || kClusterZ == 1, "slices that are summed in the cluster need clusters of one size");
static_assert(!kMixed || !kClc, "a response does not say of which size the cluster was that it took over");

// An M tile of A serves the CTAs along y, an N tile of B those along x. Each CTA of a pair holds one half of the tile
// of B, so a half serves every second CTA along x. As many of them as there are slices of 8 lines load one each and
// send it to each other. Each of such a group loads something, so an MMA that goes on has waited for all of them. In
// the smaller clusters of a mixed launch fewer CTAs share a tile: each loads several of the same slices.
inline constexpr u32 kLinesA = Tcgen05Lines<A, kTileM, true>;
inline constexpr u32 kLinesB = Tcgen05Lines<B, kTileN / kMmaCtas, true>;
inline constexpr u32 kSharersA = greatest_common_divisor(kLinesA / 8, kUnitY);
inline constexpr u32 kSharersB = greatest_common_divisor(kLinesB / 8, kUnitX / kMmaCtas);
inline constexpr u32 kFewerSharersA = greatest_common_divisor(kLinesA / 8, kClusterY);
inline constexpr u32 kFewerSharersB = greatest_common_divisor(kLinesB / 8, kClusterX / kMmaCtas);
using TileA = Tcgen05Operand<A, kTileM, true, kSharersA, kMmaCtas>;
using TileB = Tcgen05Operand<B, kTileN / kMmaCtas, true, kSharersB, kMmaCtas>;
inline constexpr u32 kStageBytes = kMmaCtas * (TileA::kBytes + TileB::kBytes);  // on one barrier: both CTAs' of a pair
using Mma = ptx::tcgen05_mma<Tcgen05Type<A>::Kind, kMmaCtas>;
inline constexpr u32 kInstruction =
    instruction_descriptor<A, B, kTileM * kMmaCtas, kTileN, TileA::kMnMajor, TileB::kMnMajor>();

// Where the accumulator of a CTA lies in tensor memory:
//   128 rows            a lane for each row, a column for each column
//   64 rows, alone      16 rows in each quarter of the lanes
//   64 rows of a pair   the left half of the columns in the lower 64 lanes, the right half in the upper 64
inline constexpr bool kFolded = kTileM == 64 && kPair;
inline constexpr u32 kAccumulatorColumns = kFolded ? kTileN / 2 : kTileN;
inline constexpr u32 kAccumulators = ADVISOR_ACCUMULATORS;
inline constexpr u32 kTmemColumns = ADVISOR_TMEM_COLUMNS;
static_assert(kAccumulators * kAccumulatorColumns <= kTmemColumns && kTmemColumns <= 512, "tensor memory has 512");

// What one epilogue warp finishes and stores at a time.
inline constexpr u32 kEpilogueWarps = 4;
inline constexpr u32 kWarpRows = kTileM == 64 && !kPair ? 16 : 32;
inline constexpr u32 kFragments = kWarpRows / 16;
inline constexpr u32 kColumns = ADVISOR_COLUMNS;
inline constexpr u32 kChunks = kAccumulatorColumns / kColumns;
inline constexpr u32 kValues = kColumns / 2;  // of a thread in one fragment
static_assert(kChunks * kColumns == kAccumulatorColumns, "chunks make up the accumulator");
__device__ constexpr u32 row_of_warp(u32 part) { return (kFolded ? part % 2 : part) * kWarpRows; }
__device__ constexpr u32 column_of_warp(u32 part) { return kFolded ? part / 2 * kAccumulatorColumns : 0; }
// What a CTA receives of partial sums: every slice of the chunks that it owns.
inline constexpr u32 kPartialBytes =
    ceil_div(kChunks, kClusterZ) * kClusterZ * kFragments * 64 * kColumns * sizeof(float);
static_assert(!kSlicesInCluster || kPartialBytes <= kStages * (TileA::kBytes + TileB::kBytes), "they lie in the ring");
using BoxStore = WarpStore<D, kDNMajor, kWarpRows, kColumns>;
using Result =
    Finish<C, D, false, true, Bias::none, Activation::none>;

// The warps. Only those that walk the tiles read the responses of Cluster Launch Control.
inline constexpr u32 kMmaWarp = 0;
inline constexpr u32 kSchedulerWarp = 1;
inline constexpr u32 kLoadWarp = 2;
inline constexpr u32 kLoadCWarp = 3;
inline constexpr u32 kFirstEpilogueWarp = 4;
inline constexpr bool kLoadsC = false && !kSlicesInScratch;
inline constexpr u32 kResponses = 3;
inline constexpr u32 kResponseReaders = (kEpilogueWarps + 3 + kLoadsC) * kUnitSize;
static_assert(kThreads == 32 * (kFirstEpilogueWarp + kEpilogueWarps), "a warp for each role");

// Dynamic shared memory, offsets in bytes.
struct Smem {
    static constexpr u32 kA = ADVISOR_SMEM_A;
    static constexpr u32 kB = ADVISOR_SMEM_B;
    static constexpr u32 kStore = ADVISOR_SMEM_STORE;
    static constexpr u32 kC = ADVISOR_SMEM_C;
    static constexpr u32 kResponse = ADVISOR_SMEM_RESPONSES;
    static constexpr u32 kFull = ADVISOR_SMEM_BARRIERS;
    static constexpr u32 kEmpty = kFull + 8 * kStages;
    static constexpr u32 kAccumulatorFull = kEmpty + 8 * kStages;
    static constexpr u32 kAccumulatorEmpty = kAccumulatorFull + 8 * kAccumulators;
    static constexpr u32 kCFull = kAccumulatorEmpty + 8 * kAccumulators;
    static constexpr u32 kCEmpty = kCFull + 8 * 2 * kLoadsC;
    static constexpr u32 kClcFull = kCEmpty + 8 * 2 * kLoadsC;
    static constexpr u32 kClcEmpty = kClcFull + 8 * kResponses;
    static constexpr u32 kClcThrottle = kClcEmpty + 8 * kResponses;
    static constexpr u32 kTmem = ADVISOR_SMEM_TMEM;
};

extern __shared__ __align__(1024) unsigned char dynamic_smem[];

// Which CTA of its cluster this one is, and which of those that do the cluster's tile: they are more where a smaller
// cluster does a part of it. The launch lays clusters along x alone: y and z of the grid are those of the tile.
struct Place {
    bool whole = !kMixed || ptx::cluster_nctarank() == kUnitSize;
    u32 extent_x = whole ? kUnitX : kClusterX;
    u32 extent_y = whole ? kUnitY : kClusterY;
    u32 sharers_a = whole ? kSharersA : kFewerSharersA;
    u32 sharers_b = whole ? kSharersB : kFewerSharersB;
    // In the cluster. Clusters of either size begin at multiples of it, so this is %cluster_ctaid.
    u32 x = blockIdx.x % extent_x;
    u32 y = kMixed ? blockIdx.y % extent_y : blockIdx.y;
    u32 z = blockIdx.z;
    // In the tile; which tile, and how many there are at a time. Never from %clusterid: each size counts its own.
    u32 tile_x = blockIdx.x % kUnitX;
    u32 tile_y = blockIdx.y;
    u32 cluster = blockIdx.x / kUnitX;
    u32 clusters = gridDim.x / kUnitX;

    __device__ __forceinline__ u32 rank_of(u32 x, u32 y, u32 z) const {
        return x + y * extent_x + z * extent_x * extent_y;
    }
    __device__ __forceinline__ u32 rank() const { return rank_of(x, y, z); }
    // The CTA that issues the MMAs of this one: itself, or the even one of its pair.
    __device__ __forceinline__ u32 leader_x() const { return x / kMmaCtas * kMmaCtas; }
    __device__ __forceinline__ u32 leader() const { return rank_of(leader_x(), y, z); }
    __device__ __forceinline__ bool leads() const { return x == leader_x(); }
    // Which slice of A and of B this CTA loads, and where its groups begin.
    __device__ __forceinline__ u32 share_a() const { return y % sharers_a; }
    __device__ __forceinline__ u32 share_b() const { return x / kMmaCtas % sharers_b; }
    __device__ __forceinline__ u32 first_y() const { return y - share_a(); }
    __device__ __forceinline__ u32 first_x() const { return leader_x() - share_b() * kMmaCtas; }
    // A stage is free when the MMAs of every pair (or CTA) that this CTA's loads reach have read it.
    __device__ __forceinline__ u32 empty_arrivals() const { return sharers_a + sharers_b - 1; }
    // The CTAs with this one's tile of A, that is along y; and those with its tile of B, or its half of one, along x.
    __device__ __forceinline__ u16 receivers_a() const {
        u32 mask = 0;
#pragma unroll
        for (u32 each = 0; each < kSharersA; ++each) {
            if (each < sharers_a) mask |= 1u << rank_of(x, first_y() + each, z);
        }
        return mask;
    }
    __device__ __forceinline__ u16 receivers_b() const {
        u32 mask = 0;
#pragma unroll
        for (u32 each = 0; each < kSharersB; ++each) {
            if (each < sharers_b) mask |= 1u << rank_of(first_x() + each * kMmaCtas + x % kMmaCtas, y, z);
        }
        return mask;
    }
    // Of a leader: every CTA that sends into what its MMAs read, in the columns of its pair and in the row.
    __device__ __forceinline__ u16 senders() const {
        constexpr u32 kOne = (1u << kMmaCtas) - 1;  // one CTA, or both of a pair
        u32 mask = 0;
#pragma unroll
        for (u32 each = 0; each < kSharersB; ++each) {
            if (each < sharers_b) mask |= kOne << rank_of(first_x() + each * kMmaCtas, y, z);
        }
#pragma unroll
        for (u32 each = 0; each < kSharersA; ++each) {
            if (each < sharers_a) mask |= kOne << rank_of(leader_x(), first_y() + each, z);
        }
        return mask;
    }
    __device__ __forceinline__ u16 pair() const { return ((1u << kMmaCtas) - 1) << leader(); }
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
    return {(tile.m * kUnitX + place.tile_x) * kTileM, (tile.n * kUnitY + place.tile_y) * kTileN, tile.batch, slice,
            slice_of<kSplitK>(k_blocks, slice)};
}

// This CTA's slices of a tile of an operand: one, or every `sharers`-th where fewer share it than there are slices.
template <typename Tile>
__device__ __forceinline__ void fetch_share(const TensorMap* map, u32 stage, u32 barrier, u32 share, u32 sharers,
                                            u16 mask, u32 row, u32 k, u32 batch) {
    if constexpr (kMixed) {
        for (u32 slice = share; slice < Tile::kSlices; slice += sharers) {
            Tile::fetch(map, stage, barrier, slice, mask, row, k, batch);
        }
    } else {
        Tile::fetch(map, stage, barrier, share, mask, row, k, batch);
    }
}

__device__ __forceinline__ void cluster_barrier() {
    if constexpr (kUnitSize > 1) {
        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
    }
}

// The barriers of a tile whose slices are summed over the cluster, for threads that take no part in the sums.
__device__ __forceinline__ void join_exchange() {
    cluster_barrier();  // every ring is idle: all operands are read, no copy is on its way
    cluster_barrier();  // all partial sums have arrived in the rings' memory
    cluster_barrier();  // all of them are read: the rings may be filled again
}

// Barriers that the other CTA of a pair may arrive on.
__device__ __forceinline__ void wait_pair(u32 barrier, u32 parity) {
    if constexpr (kPair) {
        wait_cluster(barrier, parity);
    } else {
        wait(barrier, parity);
    }
}

}  // namespace gemm

using namespace gemm;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    gemm_sm100(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
#if ADVISOR_SPLIT_K > 1 && ADVISOR_CLUSTER_Z == 1
               float* partials,
#else
               const __grid_constant__ TensorMap map_d,
               D* d, i64 ldd, i64 batch_stride_d,
               float alpha,
#endif
#if defined(ADVISOR_TRACE)
               u32* trace,
#endif
               u32 m, u32 n, u32 k, u32 batch) {
    const u32 smem = ptx::cvta_to_shared(dynamic_smem);
    const u32 warp = threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const Place place;
    const ClusterRaster raster = {ceil_div(m, kTileM * kUnitX), ceil_div(n, kTileN * kUnitY), batch};
    const u32 k_blocks = ceil_div(k, kTileK);

    if (warp == kLoadWarp && ptx::elect_sync()) {
        ptx::prefetch_tensormap(&map_a);
        ptx::prefetch_tensormap(&map_b);
#if ADVISOR_SPLIT_K == 1 || ADVISOR_CLUSTER_Z > 1
        ptx::prefetch_tensormap(&map_d);
#endif
        for (u32 stage = 0; stage < kStages; ++stage) {
            ptx::mbarrier_init(smem + Smem::kFull + 8 * stage, 1);
            ptx::mbarrier_init(smem + Smem::kEmpty + 8 * stage, place.empty_arrivals());
        }
        for (u32 each = 0; each < kAccumulators; ++each) {
            ptx::mbarrier_init(smem + Smem::kAccumulatorFull + 8 * each, 1);
            ptx::mbarrier_init(smem + Smem::kAccumulatorEmpty + 8 * each, kEpilogueWarps * kMmaCtas);
        }
        if constexpr (kLoadsC) {
            for (u32 each = 0; each < 2; ++each) {
                ptx::mbarrier_init(smem + Smem::kCFull + 8 * each, 1);
                ptx::mbarrier_init(smem + Smem::kCEmpty + 8 * each, kEpilogueWarps);
            }
        }
        if constexpr (kClc) {
            for (u32 each = 0; each < kResponses; ++each) {
                ptx::mbarrier_init(smem + Smem::kClcFull + 8 * each, 1);
                ptx::mbarrier_init(smem + Smem::kClcEmpty + 8 * each, kResponseReaders);
            }
            ptx::mbarrier_init(smem + Smem::kClcThrottle, 1);
        }
        ptx::fence_mbarrier_init_release_cluster();
        ptx::fence_proxy_async_shared_cta();  // TMA counts its bytes on them
    }
    __syncthreads();
    cluster_barrier();  // before the first remote access: every CTA runs, and its barriers exist
    if (warp == kMmaWarp) {
        ptx::tcgen05_alloc<kMmaCtas>(smem + Smem::kTmem, kTmemColumns);
        ptx::tcgen05_relinquish_alloc_permit<kMmaCtas>();
        ptx::tcgen05_fence_before_thread_sync();
    }
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    const u32 tmem = ptx::ld_shared_b32(smem + Smem::kTmem);

#if ADVISOR_SCHEDULE == ADVISOR_ONE_TILE
    OneTileScheduler scheduler = {place.cluster, raster.total()};
#elif ADVISOR_SCHEDULE == ADVISOR_STATIC
    StaticScheduler scheduler = {place.cluster, raster.total(), place.clusters};
#else
    const ClcPlace clc = {smem + Smem::kResponse, smem + Smem::kClcFull, smem + Smem::kClcEmpty,
                          smem + Smem::kClcThrottle};
    ClcScheduler<kResponses, kClusterX, kUnitSize> scheduler(place.cluster, raster.total(), place.x, clc);
#endif

    if (warp == kMmaWarp) {
        const u64 desc_a = TileA::descriptor(smem + Smem::kA);
        const u64 desc_b = TileB::descriptor(smem + Smem::kB);
        const u16 senders = place.senders();
        RingPosition<kStages> ring;
        RingPosition<kAccumulators> accumulator;
        for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) {
            const CtaTile tile = cta_tile(raster, place, k_blocks, work.index);
            if (place.leads() && tile.blocks.first < tile.blocks.end) {
                if (ptx::elect_sync()) {
                    wait_pair(smem + Smem::kAccumulatorEmpty + 8 * accumulator.stage, accumulator.parity ^ 1);
                    ptx::tcgen05_fence_after_thread_sync();
                    const u32 sums = tmem + accumulator.stage * kAccumulatorColumns;
                    for (u32 block = tile.blocks.first; block < tile.blocks.end; ++block) {
                        wait(smem + Smem::kFull + 8 * ring.stage, ring.parity);
                        ptx::tcgen05_fence_after_thread_sync();
#pragma unroll
                        for (u32 step = 0; step < 4; ++step) {
                            Mma::issue(sums, desc_a + (ring.stage * TileA::kBytes + step * TileA::kStepBytes) / 16,
                                       desc_b + (ring.stage * TileB::kBytes + step * TileB::kStepBytes) / 16,
                                       kInstruction, block > tile.blocks.first || step > 0);
                        }
                        // When these MMAs are done, the stage is free, in every CTA that loads into it.
                        const u32 empty = smem + Smem::kEmpty + 8 * ring.stage;
                        if constexpr (kUnitSize == 1) {
                            ptx::tcgen05_commit<kMmaCtas>(empty);
                        } else {
                            ptx::tcgen05_commit_multicast<kMmaCtas>(empty, senders);
                        }
                        ring.advance();
                    }
                    const u32 full = smem + Smem::kAccumulatorFull + 8 * accumulator.stage;
                    if constexpr (kPair) {
                        ptx::tcgen05_commit_multicast<kMmaCtas>(full, place.pair());
                    } else {
                        ptx::tcgen05_commit<kMmaCtas>(full);
                    }
                }
                // One thread has advanced the ring; the others follow.
                accumulator.advance();
                __syncwarp();
            }
            if constexpr (kSlicesInCluster) join_exchange();
        }
    } else if (kClc && warp == kSchedulerWarp) {
#if ADVISOR_SCHEDULE == ADVISOR_CLC
        request_work(scheduler, place.rank() == 0);
#endif
    } else if (warp == kLoadWarp) {
        const u16 receivers_a = place.receivers_a();
        const u16 receivers_b = place.receivers_b();
        const u32 fulls = kPair ? ptx::mapa_shared_cluster(smem + Smem::kFull, place.leader()) : smem + Smem::kFull;
        RingPosition<kStages> ring;
        for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) {
            const CtaTile tile = cta_tile(raster, place, k_blocks, work.index);
            if (ptx::elect_sync()) {
                if (kClc && place.rank() == 0) ptx::mbarrier_arrive(smem + Smem::kClcThrottle);
                for (u32 block = tile.blocks.first; block < tile.blocks.end; ++block) {
                    wait(smem + Smem::kEmpty + 8 * ring.stage, ring.parity ^ 1);
                    const u32 full = fulls + 8 * ring.stage;
                    if (place.leads()) ptx::mbarrier_arrive_expect_tx(smem + Smem::kFull + 8 * ring.stage, kStageBytes);
                    fetch_share<TileA>(&map_a, smem + Smem::kA + ring.stage * TileA::kBytes, full, place.share_a(),
                                       place.sharers_a, receivers_a, tile.row, block * kTileK, tile.batch);
                    fetch_share<TileB>(&map_b, smem + Smem::kB + ring.stage * TileB::kBytes, full, place.share_b(),
                                       place.sharers_b, receivers_b,
                                       tile.column + place.x % kMmaCtas * (kTileN / kMmaCtas), block * kTileK,
                                       tile.batch);
                    ring.advance();
                }
            }
            __syncwarp();
            if constexpr (kSlicesInCluster) join_exchange();
        }
        // The commits of other CTAs arrive on this one's barriers, and all have before it may leave. Nothing else says
        // so: a commit arrives when its MMAs are done, on its own, whatever its thread does next and meets on the way.
        if (ptx::elect_sync()) {
            for (u32 stage = 0; stage < kStages; ++stage) {
                wait(smem + Smem::kEmpty + 8 * ring.stage, ring.parity ^ 1);
                ring.advance();
            }
        }
        __syncwarp();
    } else if (kLoadsC && warp == kLoadCWarp) {
    } else if (warp >= kFirstEpilogueWarp) {
        const u32 part = warp - kFirstEpilogueWarp;  // of the lanes of tensor memory
        const u32 row_in_tile = row_of_warp(part);
        const u32 column_in_tile = column_of_warp(part);
        const u32 empties = kPair ? ptx::mapa_shared_cluster(smem + Smem::kAccumulatorEmpty, place.leader())
                                  : smem + Smem::kAccumulatorEmpty;
#if ADVISOR_SPLIT_K == 1 || ADVISOR_CLUSTER_Z > 1
        const float scale = alpha;
        BoxStore box_store = {&map_d, smem + Smem::kStore + part * 2 * BoxStore::Box::kBytes};
#endif
        RingPosition<kAccumulators> accumulator;
        for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) {
            const CtaTile tile = cta_tile(raster, place, k_blocks, work.index);
            const bool summed = tile.blocks.first < tile.blocks.end;  // else nothing was multiplied: the sums are 0
            const u32 sums = tmem + accumulator.stage * kAccumulatorColumns + (part * 32 << 16);
            const u32 row = tile.row + row_in_tile;
            const auto take = [&](float (&values)[kFragments][kValues], u32 chunk) {
                if (summed) {
                    load_chunk(values, sums + chunk * kColumns);
                } else {
#pragma unroll
                    for (u32 i = 0; i < kFragments; ++i) {
#pragma unroll
                        for (u32 at = 0; at < kValues; ++at) values[i][at] = 0.0f;
                    }
                }
            };
            const auto release = [&] {
                if (!summed) return;
                ptx::tcgen05_fence_before_thread_sync();
                __syncwarp();
                if (lane == 0) {
                    if constexpr (kPair) {
                        ptx::mbarrier_arrive_release_cluster(empties + 8 * accumulator.stage);
                    } else {
                        ptx::mbarrier_arrive(empties + 8 * accumulator.stage);
                    }
                }
                accumulator.advance();
            };
            if (summed) {
                wait_pair(smem + Smem::kAccumulatorFull + 8 * accumulator.stage, accumulator.parity);
                ptx::tcgen05_fence_after_thread_sync();
            }
#if ADVISOR_SPLIT_K > 1 && ADVISOR_CLUSTER_Z == 1
            const DirectStore<float, kDNMajor> store = {
                partials_of<kSplitK, kDNMajor>(partials, m, n, tile.batch, tile.slice), m, n};
#pragma unroll 1
            for (u32 chunk = 0; chunk < kChunks; ++chunk) {
                float values[kFragments][kValues];
                take(values, chunk);
                if (chunk + 1 == kChunks) release();
#pragma unroll
                for (u32 i = 0; i < kFragments; ++i) {
                    store.chunk(values[i], fragment_base(row + i * 16),
                                tile.column + column_in_tile + chunk * kColumns);
                }
            }
#else
            const Result result = {
                scale, 0.0f, {nullptr, 0, 0, 0}, nullptr, m, n};
            const DirectStore<D, kDNMajor> store = {{d, ldd, batch_stride_d, tile.batch}, m, n};
            // The CTAs of the slices take turns: CTA z owns, sums and stores every kClusterZ-th chunk from the z-th on.
            const u32 partials = smem + Smem::kA;
            if constexpr (kSlicesInCluster) {
                cluster_barrier();
#pragma unroll 1
                for (u32 chunk = 0; chunk < kChunks; ++chunk) {
                    float values[kFragments][kValues];
                    take(values, chunk);
                    if (chunk + 1 == kChunks) release();
                    const u32 owner = place.rank_of(place.x, place.y, chunk % kClusterZ);
#pragma unroll
                    for (u32 i = 0; i < kFragments; ++i) {
                        send_partials<kClusterZ>(values[i], ptx::mapa_shared_cluster(partials, owner),
                                                 chunk / kClusterZ * kFragments + i, place.z);
                    }
                }
                cluster_barrier();
            }
#pragma unroll 1
            for (u32 chunk = kSlicesInCluster ? place.z : 0; chunk < kChunks; chunk += kClusterZ) {
                const u32 column = tile.column + column_in_tile + chunk * kColumns;
                float values[kFragments][kValues];
                if constexpr (kSlicesInCluster) {
#pragma unroll
                    for (u32 i = 0; i < kFragments; ++i) {
                        sum_partials<kClusterZ>(values[i], partials, chunk / kClusterZ * kFragments + i);
                    }
                } else {
                    take(values, chunk);
                    if (chunk + 1 == kChunks) release();
                }
#pragma unroll
                for (u32 i = 0; i < kFragments; ++i) result.chunk(values[i], fragment_base(row + i * 16), column);
                if (BoxStore::fits(row, column, m, n)) {
                    box_store.chunk(values, row, column, tile.batch, row < m && column < n);
                    continue;
                }
#pragma unroll
                for (u32 i = 0; i < kFragments; ++i) store.chunk(values[i], fragment_base(row + i * 16), column);
            }
            if constexpr (kSlicesInCluster) {
                ptx::fence_proxy_async();  // the next copies into the rings come after these reads and writes
                cluster_barrier();
            }
#endif
#if defined(ADVISOR_TRACE)
            // [batch][slice][tile of M][tile of N], tiles of one CTA.
            if (warp == kFirstEpilogueWarp && lane == 0 && tile.row < m && tile.column < n) {
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
        ptx::tcgen05_fence_before_thread_sync();
    } else if constexpr (kSlicesInCluster) {
        for (Work work = scheduler.first(); work.more; work = scheduler.next(work)) join_exchange();
    }
    // All loads from tensor memory are done, in both CTAs of a pair, before it is given back.
    if constexpr (kPair) {
        cluster_barrier();
    } else {
        __syncthreads();
    }
    if (warp == kMmaWarp) {
        ptx::tcgen05_fence_after_thread_sync();
        ptx::tcgen05_dealloc<kMmaCtas>(tmem, kTmemColumns);
    }
    // The one way out: no CTA leaves while a peer may still send to it or arrive on its barriers.
    cluster_barrier();
}

#endif
