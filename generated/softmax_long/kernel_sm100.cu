// softmax of each row of x[rows, cols]. Extents, strides and pointers are run-time arguments.
//
// A row is cut over the CTAs of a cluster (each has a run of whole vectors of 16 bytes) and over ADVISOR_ROW_THREADS
// threads of each CTA: vector v of a thread is vector v * ADVISOR_ROW_THREADS + its number. A thread copies its own
// vectors into slots of shared memory that nobody else reads, so copies need no barrier. Rows pass in one of two ways:
//   kept      ADVISOR_VECTORS slots hold a thread's vectors of a row, which it reads twice; those beyond, of
//             ADVISOR_SLOTS, take vectors of the next row meanwhile, as does each slot after its last reading
//   streamed  (ADVISOR_VECTORS 0) any number of vectors pass through the slots: once where the result is a number a row,
//             else twice
// ADVISOR_BATCH vectors of a thread are computed at a time.
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/shared.cuh"
#include "row_clc.cuh"
#include "row_exchange.cuh"
#include "row_op.cuh"
#include "row_vector.cuh"
#include "scheduler.cuh"
#include "types.cuh"

using In = bf16;
using Out = bf16;
constexpr bool kExact = false;  // what is written keeps more than 16 bits
using TheOp = RowOp<Op::softmax, In, kExact>;
constexpr bool kWeight = false;
constexpr bool kBias = false;
constexpr bool kAnyAlignment = false;  // else rows and pointers are multiples of 16 bytes

constexpr u32 kThreads = ADVISOR_THREADS;
constexpr u32 kRowThreads = ADVISOR_ROW_THREADS;
constexpr u32 kRows = kThreads / kRowThreads;  // that a CTA computes side by side
constexpr u32 kSlots = ADVISOR_SLOTS;
constexpr u32 kBatch = ADVISOR_BATCH;
constexpr u32 kCluster = ADVISOR_CLUSTER;
constexpr u32 kPasses = TheOp::kElementwise ? 2 : 1;
constexpr u32 kCount = kVectorBytes / sizeof(In);       // elements of a vector
constexpr u32 kStepBytes = kRowThreads * kVectorBytes;  // from one vector of a thread to its next
constexpr u32 kSlotBytes = kThreads * kVectorBytes;     // from one slot of a thread to its next
constexpr u32 kNothing = TheOp::kNothingIsLowest ? kLowest<In> : 0;
static_assert(kRowThreads <= 32 || kRows == 1, "rows side by side are no wider than a warp");
static_assert(kCluster == 1 || kRowThreads > 32, "a row of a cluster has a CTA's threads");

using Place = ExchangePlace<kThreads / 32, kCluster>;
using TheExchange = Exchange<TheOp, kThreads / 32, kCluster>;

// All but the newest `groups` of this thread's copies have landed. A loop that calls it is unrolled: `groups` is known.
template <u32 kMost>
__device__ __forceinline__ void wait_groups(u32 groups) {
    if constexpr (kMost > 0) {
        if (groups < kMost) return wait_groups<kMost - 1>(groups);
    }
    ptx::cp_async_wait_group<kMost>();
}

__device__ __forceinline__ u32 stepped(u32 slot, u32 by) { return slot + by >= kSlots ? slot + by - kSlots : slot + by; }

// This thread's part of the rows: where it starts, and how far it goes.
struct Part {
    const char* x;
    i64 stride;       // bytes
    u32 rows;
    u32 row_in_item;  // of the rows that a CTA computes side by side
    u32 offset;       // of this thread's first vector in a row, bytes
    i32 bytes;        // from there to the end of the CTA's run; 0 or less: it has none
    bool aligned;
    char* slots;      // its first slot
    u32 slots_address;

    __device__ __forceinline__ bool has(Work work) const { return work.more && row(work) < rows; }
    __device__ __forceinline__ u32 row(Work work) const { return work.index * kRows + row_in_item; }
    __device__ __forceinline__ const char* start(Work work) const { return x + row(work) * stride + offset; }

    // Begins to copy a vector of which `left` bytes are there, 16 or more where kWhole.
    template <bool kWhole>
    __device__ __forceinline__ void copy(const char* source, i32 left, u32 slot) const {
        if (kWhole || left > 0) {
            copy_vector<In, kAnyAlignment>(slots + slot * kSlotBytes, slots_address + slot * kSlotBytes, source,
                                           kWhole || left >= 16 ? 16 : static_cast<u32>(left), aligned);
        }
    }

    // The same vector, with nothing where the row has no elements, and how many it has.
    template <bool kWhole>
    __device__ __forceinline__ Words<16> read(u32 slot, i32 left, u32& count) const {
        const auto* place = reinterpret_cast<const Words<16>*>(slots + slot * kSlotBytes);
        count = kCount;
        if (kWhole) return *place;
        const u32 valid = left >= 16 ? 16 : left > 0 ? static_cast<u32>(left) : 0;
        count = valid / sizeof(In);
        Words<16> words{};
        if (valid > 0) words = *place;
        return masked(words, valid, kNothing);
    }
};

// What is written of a row, by the thread that has its elements.
struct Output {
    Out* y;  // the row, from this thread's first element on
    const In* weight;
    const In* bias;
    bool aligned;
    bool weights_aligned;

    // Vector `v` of the thread.
    __device__ __forceinline__ void write(Vector<In> x, u32 v, u32 count, typename TheOp::Whole whole) const {
        const u32 first = v * (kRowThreads * kCount);
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) x.of[i] = TheOp::element(x.of[i], whole);
        if constexpr (kWeight) {
            const Vector<In> w = load_vector<In, kAnyAlignment>(weight + first, count, weights_aligned);
#pragma unroll
            for (u32 i = 0; i < kCount; ++i) x.of[i] *= w.of[i];
        }
        if constexpr (kBias) {
            const Vector<In> b = load_vector<In, kAnyAlignment>(bias + first, count, weights_aligned);
#pragma unroll
            for (u32 i = 0; i < kCount; ++i) x.of[i] += b.of[i];
        }
        store_vector<Out, kCount, kAnyAlignment>(y + first, x.of, count, aligned);
    }
};

#if ADVISOR_VECTORS > 0
constexpr u32 kVectors = ADVISOR_VECTORS;
constexpr u32 kExtra = kSlots - kVectors;  // vectors of the next row that come in before this one is read
static_assert(kVectors <= kSlots && kSlots <= 2 * kVectors, "the slots hold a row, and at most another");
static_assert(kVectors % kBatch == 0, "whole batches");

// Begins to copy vectors `first` to `end` of a row, of which `left` bytes are there, a group each.
template <bool kWhole>
__device__ __forceinline__ void begin(const Part& part, const char* start, i32 left, u32 first, u32 end, u32 slot) {
#pragma unroll
    for (u32 v = first; v < end; ++v) {
        const i32 here = left - static_cast<i32>(v * kStepBytes);
        part.copy<kWhole>(start + v * kStepBytes, here, stepped(slot, v));
        ptx::cp_async_commit_group();
    }
}

// A row as it comes in.
template <bool kWhole>
__device__ __forceinline__ Partial first_pass(const Part& part, i32 left, u32 slot) {
    Partial p = TheOp::identity();
#pragma unroll
    for (u32 v = 0; v < kVectors; v += kBatch) {
        wait_groups<kSlots>(kSlots - v - kBatch);  // newer ones: the rest of the row, and what was begun of the next
        Words<16> words[kBatch];
        u32 count[kBatch];
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            words[i] = part.read<kWhole>(stepped(slot, v + i), left - static_cast<i32>((v + i) * kStepBytes), count[i]);
        }
        TheOp::add<kWhole>(p, words, count);
    }
    return p;
}

// A row on its way out. Slots that it gives back take the next row's.
template <bool kWhole>
__device__ __forceinline__ void second_pass(const Part& part, i32 left, u32 slot, const Output& out,
                                            typename TheOp::Whole whole, const char* next, i32 next_left) {
#pragma unroll
    for (u32 v = 0; v < kVectors; ++v) {
        u32 count;
        const Words<16> words = part.read<kWhole>(stepped(slot, v), left - static_cast<i32>(v * kStepBytes), count);
        if (kWhole || count > 0) out.write(unpack<In>(words), v, count, whole);
        if (v + kExtra < kVectors) {
            part.copy<false>(next + (v + kExtra) * kStepBytes,
                             next_left - static_cast<i32>((v + kExtra) * kStepBytes), stepped(slot, v));
            ptx::cp_async_commit_group();
        }
    }
}
#else
// Some vectors of a streamed row.
template <bool kWhole>
__device__ __forceinline__ void stream(const Part& part, i32 left, u32 slot, u32 v, bool second, Partial& p,
                                       const Output& out, typename TheOp::Whole whole) {
    Words<16> words[kBatch];
    u32 count[kBatch];
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
        words[i] = part.read<kWhole>(slot + i, left - static_cast<i32>(i * kStepBytes), count[i]);
    }
    if (!second) {
        TheOp::add<kWhole>(p, words, count);
    } else {
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            if (kWhole || count[i] > 0) out.write(unpack<In>(words[i]), v + i, count[i], whole);
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, ADVISOR_MIN_CTAS)
row_reduce(const In* __restrict__ x, Out* __restrict__ y, const In* __restrict__ weight, const In* __restrict__ bias,
            u32 rows, u32 cols, i64 row_stride, i64 out_stride, float eps
#if defined(ADVISOR_TRACE)
            ,
            u32* trace
#endif
) {
    extern __shared__ __align__(128) char shared[];
    const u32 cluster = blockIdx.x / kCluster, rank = blockIdx.x % kCluster;
    const u32 in_row = threadIdx.x % kRowThreads;
    const u32 shared_address = ptx::cvta_to_shared(shared);
    TheExchange exchange{shared + kSlots * kSlotBytes, shared_address + kSlots * kSlotBytes, rank};

    // A CTA's run: as many whole vectors as each other's, the last ones fewer or none.
    const u32 run = ((cols + kCount - 1) / kCount + kCluster - 1) / kCluster;
    const u32 first = rank * run + in_row;
    const u32 end = (rank + 1) * run * kCount < cols ? (rank + 1) * run * kCount : cols;
    Part part{reinterpret_cast<const char*>(x),
              row_stride * static_cast<i64>(sizeof(In)),
              rows,
              threadIdx.x / kRowThreads,
              first * 16,
              (static_cast<i32>(end) - static_cast<i32>(first * kCount)) * static_cast<i32>(sizeof(In)),
              true,
              shared + threadIdx.x * 16,
              shared_address + threadIdx.x * 16};
    bool out_aligned = true, weights_aligned = true;
    if constexpr (kAnyAlignment) {
        part.aligned = (reinterpret_cast<u64>(x) | static_cast<u64>(part.stride)) % 16 == 0;
        out_aligned = (reinterpret_cast<u64>(y) | static_cast<u64>(out_stride) * sizeof(Out)) % 16 == 0;
        weights_aligned = (reinterpret_cast<u64>(weight) | reinterpret_cast<u64>(bias)) % 16 == 0;
    }

    const u32 items = (rows + (kRows - 1)) / kRows;
#if ADVISOR_SCHEDULE == ADVISOR_ONE_TILE
    OneTileScheduler scheduler{cluster, items};
#elif ADVISOR_SCHEDULE == ADVISOR_CLC
    // Of a streamed row, `issue` may be as many batches ahead as slots hold, and a row has one at least for each pass.
    constexpr u32 kAhead = ADVISOR_VECTORS > 0 ? 0 : 1 + kSlots / (kBatch * kPasses);
    RowClaims<kThreads / 32, kCluster, kAhead> scheduler(cluster, items, rank,
                                                         shared_address + kSlots * kSlotBytes + Place::kBytes);
    scheduler.init();
#else
    StaticScheduler scheduler{cluster, items, gridDim.x / kCluster};
#endif

    if constexpr (kCluster > 1) {
        if (threadIdx.x == 0) {
            exchange.init();
            ptx::fence_mbarrier_init_release_cluster();
        }
        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
    }

    const float count = static_cast<float>(cols);
    const auto reduced = [&](Partial p) {
        if constexpr (kRowThreads > 32) return exchange.reduce(p);
        return reduce_lanes<TheOp, kRowThreads>(p);
    };
    const auto output = [&](Work work) {
        return Output{y + part.row(work) * out_stride + first * kCount, weight + first * kCount, bias + first * kCount,
                      out_aligned, weights_aligned};
    };
    const auto write_number = [&](Work work, Partial p) {
        if (rank == 0 && in_row == 0 && part.has(work)) {
            y[part.row(work) * out_stride] = from_f32<Out>(TheOp::whole(p, count, eps).shift);
        }
    };
#if defined(ADVISOR_TRACE)
    const auto done = [&](Work work) {
        if (threadIdx.x == 0) atomicAdd(trace + work.index * kCluster + rank, 1u);
    };
#else
    const auto done = [](Work) {};
#endif

    Work work = scheduler.first();
    u32 slot = 0;
#if ADVISOR_VECTORS > 0
    const auto is_whole = [](i32 left) { return left >= static_cast<i32>((kVectors - 1) * kStepBytes + 16); };
    const char* start = part.has(work) ? part.start(work) : part.x;
    i32 left = part.has(work) ? part.bytes : 0;
    if (is_whole(left)) {
        begin<true>(part, start, left, 0, kVectors, 0);
    } else {
        begin<false>(part, start, left, 0, kVectors, 0);
    }
    while (work.more) {
        const Work next = scheduler.next(work);
        const char* next_start = part.has(next) ? part.start(next) : part.x;
        const i32 next_left = part.has(next) ? part.bytes : 0;
        begin<false>(part, next_start, next_left, 0, kExtra, stepped(slot, kVectors));
        const Partial p = reduced(is_whole(left) ? first_pass<true>(part, left, slot) : first_pass<false>(part, left, slot));
        if constexpr (TheOp::kElementwise) {
            const typename TheOp::Whole whole = TheOp::whole(p, count, eps);
            const Output out = output(work);
            if (is_whole(left)) {
                second_pass<true>(part, left, slot, out, whole, next_start, next_left);
            } else {
                second_pass<false>(part, left, slot, out, whole, next_start, next_left);
            }
        } else {
            write_number(work, p);
            begin<false>(part, next_start, next_left, kExtra, kVectors, stepped(slot, kVectors));
        }
        done(work);
        slot = stepped(slot, kVectors);
        work = next;
        left = next_left;
    }
#else
    // As many vectors in flight as there are slots, over the ends of passes and rows.
    static_assert(kSlots % kBatch == 0, "a batch does not wrap");
    const u32 turns = run > 0 ? (run + kRowThreads * kBatch - 1) / (kRowThreads * kBatch) : 1;  // batches of a pass
    Work issued = work;
    const char* source = part.has(issued) ? part.start(issued) : part.x;  // of the next copy
    i32 source_left = part.has(issued) ? part.bytes : 0;
    u32 turn = 0, pass = 0;
    const auto issue = [&](u32 into) {
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            part.copy<false>(source, source_left, into + i);
            source += kStepBytes;
            source_left -= static_cast<i32>(kStepBytes);
        }
        if (++turn == turns) {
            turn = 0;
            if (++pass == kPasses) {
                pass = 0;
                if (issued.more) issued = scheduler.next(issued);
            }
            source = part.has(issued) ? part.start(issued) : part.x;
            source_left = part.has(issued) ? part.bytes : 0;
        }
        ptx::cp_async_commit_group();
    };
#if ADVISOR_SCHEDULE == ADVISOR_CLC
    const auto following = [&](Work) { return scheduler.claimed(); };  // what `issue` has been given: nobody asks twice
#else
    const auto following = [&](Work of) { return scheduler.next(of); };
#endif
    for (u32 each = 0; each < kSlots; each += kBatch) issue(each);
    for (; work.more; work = following(work)) {
        Partial p = TheOp::identity();
        typename TheOp::Whole whole{};
        const Output out = output(work);
        const auto each = [&](bool second) {
            i32 left = part.has(work) ? part.bytes : 0;
#pragma unroll 1
            for (u32 v = 0; v < turns * kBatch; v += kBatch) {
                ptx::cp_async_wait_group<kSlots / kBatch - 1>();
                if (left >= static_cast<i32>((kBatch - 1) * kStepBytes + 16)) {
                    stream<true>(part, left, slot, v, second, p, out, whole);
                } else {
                    stream<false>(part, left, slot, v, second, p, out, whole);
                }
                left -= static_cast<i32>(kBatch * kStepBytes);
                issue(slot);
                slot = stepped(slot, kBatch);
            }
        };
        each(false);
        p = reduced(p);
        if constexpr (TheOp::kElementwise) {
            whole = TheOp::whole(p, count, eps);
            each(true);
        } else {
            write_number(work, p);
        }
        done(work);
    }
#endif

    // Nobody leaves while a peer may still reach it. Pushes have been awaited by then; what gives the last claim's slot
    // back has not.
    if constexpr (kCluster > 1) {
        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
    }
}
