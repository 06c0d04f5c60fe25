// D[m, n] = activation(alpha * scale_a * scale_b * A[m, k] B[k, n] + beta * C[m, n] + bias) with mma.sync and cp.async,
// one CTA for each tile of D, on any GPU that has the operands' type (sm_80 and later; fp8 sm_89 and later). Extents,
// strides and pointers are run-time arguments; any leading dimension and any alignment down to one element will do.
#include "epilogue.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"
#include "raster.cuh"
#include "source.cuh"
#include "types.cuh"
#include "warp_mma.cuh"

using A = bf16;
using B = bf16;
using C = bf16;
using D = bf16;
constexpr bool kAKMajor = true;
constexpr bool kBKMajor = true;
constexpr bool kCNMajor = true;
constexpr bool kDNMajor = true;
constexpr bool kUseC = false;
constexpr Bias kBias = Bias::none;
constexpr Activation kActivation = Activation::none;
constexpr bool kScaleA = false;
constexpr bool kScaleB = false;
constexpr bool kPromote = false;  // fp8 sums leave the tensor core for a float

constexpr u32 kTileM = ADVISOR_TILE_M;
constexpr u32 kTileN = ADVISOR_TILE_N;
constexpr u32 kTileK = ADVISOR_TILE_K;
constexpr u32 kStages = ADVISOR_STAGES;
constexpr u32 kWarpsM = ADVISOR_WARPS_M;
constexpr u32 kWarpsN = ADVISOR_WARPS_N;
constexpr u32 kThreads = kWarpsM * kWarpsN * 32;
constexpr u32 kRowBytes = kTileK * sizeof(A);
static_assert(sizeof(A) == sizeof(B), "operands are of one size");
static_assert(kStages >= 2, "a stage is filled while another is read");

// What the problem does not have (C, bias, scales) is a null pointer and never read. Grid: one CTA for each tile, on x.
extern "C" __global__ void __launch_bounds__(kThreads, ADVISOR_MIN_CTAS)
gemm_portable(const A* a, const B* b, const C* c, D* d, const D* bias, const float* scale_a, const float* scale_b,
              u32 m, u32 n, u32 k, u32 batch, i64 lda, i64 ldb, i64 ldc, i64 ldd, i64 batch_stride_a,
              i64 batch_stride_b, i64 batch_stride_c, i64 batch_stride_d, float alpha, float beta
#if defined(ADVISOR_TRACE)
              ,
              u32* trace
#endif
) {
    using SourceA = Source<A, kTileM, kRowBytes, kAKMajor, kThreads>;
    using SourceB = Source<B, kTileN, kRowBytes, kBKMajor, kThreads>;
    extern __shared__ __align__(128) char shared[];
    constexpr u32 kStageBytes = SourceA::kBytes + SourceB::kBytes;
    const u32 shared_address = ptx::cvta_to_shared(shared);

    const Raster<ADVISOR_RASTER_ALONG_M != 0, ADVISOR_RASTER_GROUP, 1> raster{(m + kTileM - 1) / kTileM,
                                                                              (n + kTileN - 1) / kTileN, batch};
    const ClusterTile tile = raster.tile(blockIdx.x);
    const u32 row0 = tile.m * kTileM, column0 = tile.n * kTileN;
    SourceA source_a(a + tile.batch * batch_stride_a, lda, row0, m);
    SourceB source_b(b + tile.batch * batch_stride_b, ldb, column0, n);

    const u32 warp = threadIdx.x / 32;
    const u32 warp_row = warp / kWarpsN * (kTileM / kWarpsM), warp_column = warp % kWarpsN * (kTileN / kWarpsN);
    WarpTile<A, B, kTileM / kWarpsM, kTileN / kWarpsN, kPromote> warp_tile;

    // Iteration t fills stage t % kStages and multiplies tile t - (kStages - 1), so that filling is in one place. The
    // barrier says both that the tile has landed for every thread and that every warp is done with the stage that is
    // filled next. Without K nothing is copied or multiplied.
    const u32 steps = (k + kTileK - 1) / kTileK;
    u32 fill = 0, read = 0;
#pragma unroll 1
    for (u32 t = 0; t < steps + (kStages - 1); ++t) {
        if (t >= kStages - 1) {
            ptx::cp_async_wait_group<kStages - 2>();
            __syncthreads();
        }
        if (t < steps) {
            const u32 k_left = k - t * kTileK;
            source_a.issue(shared_address + fill, shared + fill, k_left);
            source_b.issue(shared_address + fill + SourceA::kBytes, shared + fill + SourceA::kBytes, k_left);
            fill = fill == (kStages - 1) * kStageBytes ? 0 : fill + kStageBytes;
        }
        ptx::cp_async_commit_group();
        if (t >= kStages - 1) {
            warp_tile.multiply<SourceA::Fragments, SourceB::Fragments, kRowBytes>(
                shared_address + read, shared_address + read + SourceA::kBytes, warp_row, warp_column);
            read = read == (kStages - 1) * kStageBytes ? 0 : read + kStageBytes;
        }
    }

    if constexpr (kScaleA) alpha *= scale_a[0];
    if constexpr (kScaleB) alpha *= scale_b[0];
    const Finish<C, D, kUseC, kCNMajor, kBias, kActivation> finish{
        alpha, beta, View<const C, kCNMajor>(c, ldc, batch_stride_c, tile.batch), bias, m, n};
    const DirectStore<D, kDNMajor> store{View<D, kDNMajor>(d, ldd, batch_stride_d, tile.batch), m, n};

    using Parked = ParkedTile<kTileM / kWarpsM, kTileN / kWarpsN>;
    __syncthreads();  // every warp is done with the stages
    const Parked parked{reinterpret_cast<Parked::Pair*>(shared + warp * Parked::kBytes)};
    parked.put(warp_tile.acc);
    parked.each<kDNMajor>([&](Parked::Pair pair, u32 row, u32 column) {
        row += row0 + warp_row;
        column += column0 + warp_column;
        finish.two(pair.first, pair.second, row, column);
        store.two(pair.first, pair.second, row, column);
    });
#if defined(ADVISOR_TRACE)
    // [batch][tile of M][tile of N]
    if (threadIdx.x == 0) {
        const u64 row_of_tiles = static_cast<u64>(tile.batch) * raster.tiles_m + tile.m;
        atomicAdd(trace + row_of_tiles * raster.tiles_n + tile.n, 1u);
    }
#endif
}
