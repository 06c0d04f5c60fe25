// softmax of each row of x[rows, cols]. Extents, strides and pointers are run-time arguments.
//
// A row is cut over the CTAs of a cluster (each has a run of whole vectors of 16 bytes) and over ADVISOR_ROW_THREADS
// threads of each CTA: vector v of a thread is vector v * ADVISOR_ROW_THREADS + its number. A thread copies its own
// vectors into slots of shared memory that nobody else reads, so copies need no barrier. Rows pass in one of two ways:
//   kept      ADVISOR_VECTORS slots hold a thread's vectors of a row, which it reads twice. Slots form a ring: each
//             takes, after its last reading, the vector ADVISOR_SLOTS further on, of the next row or the one after it
//   streamed  (ADVISOR_VECTORS 0) any number of vectors pass through the slots: once where the result is a number a row,
//             else twice
// ADVISOR_BATCH vectors of a thread are computed at a time. What a thread needs again it holds where there is room:
//   ADVISOR_HELD          vectors in registers: of weights, then of biases, for all rows; or else of the exponentials of a
//                         row, from its first pass to its second
//   ADVISOR_WEIGHT_SLOTS  further vectors of weights, then of biases, in slots of their own
//   ADVISOR_EARLY         vectors of the next row that are read for the first time while partials are exchanged
//   ADVISOR_PREFETCH      what is asked into the L2 before its copies begin: by a CTA that runs one item of work, the rows
//                         of the item so many further on; by a persistent one, so many vectors beyond its slots
//   ADVISOR_FETCH_AHEAD   vectors that the others, which come from the L2 for each row, are fetched ahead of their use
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/opaque.cuh"
#include "ptx/prefetch.cuh"
#include "ptx/shared.cuh"
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
constexpr u32 kPasses = TheOp::kElementwise ? 2 : 1;  // over a streamed row
constexpr u32 kWeights = (kWeight ? 1 : 0) + (kBias ? 1 : 0);
constexpr u32 kHeldWeights = kWeights > 0 ? ADVISOR_HELD : 0;
constexpr u32 kHeldPowers = kWeights > 0 ? 0 : ADVISOR_HELD;
constexpr u32 kWeightSlots = ADVISOR_WEIGHT_SLOTS;
constexpr u32 kFetchAhead = kHeldWeights + kWeightSlots < kWeights * ADVISOR_VECTORS ? ADVISOR_FETCH_AHEAD : 0;
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

// The slot `by` further on in the ring; `by` is at most kSlots.
__device__ __forceinline__ u32 stepped(u32 slot, u32 by) { return slot + by >= kSlots ? slot + by - kSlots : slot + by; }

// A row on its way in: this thread's first vector, and the bytes from there to the end of the CTA's run; 0 or less: none.
// Where there is no row, no thread of the CTA has any: not even the first, if the bytes are counted from there.
struct Row {
    const char* start;
    i32 left;
};

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
    __device__ __forceinline__ Row of(Work work) const {
        return has(work) ? Row{x + row(work) * stride + offset, bytes} : Row{x, -static_cast<i32>(kSlotBytes)};
    }

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

__device__ constexpr u32 at_least_one(u32 count) { return count > 0 ? count : 1; }

// The weights, and then the biases, of this thread's columns: `which` of them is 0, or 1 for biases beside weights. Vectors
// of both are numbered through: the first are held in registers, the next in slots, and the others come from the L2.
struct Weights {
    const In* first[2];  // of each, from this thread's first element on
    bool aligned;
    char* slots;
    u32 slots_address;
    Words<16> held[at_least_one(kHeldWeights)];
    Words<16> coming[2][at_least_one(kFetchAhead)];  // of vectors that the second pass comes to next

    // Loads what is held in registers; `bytes` of this thread's columns are there.
    __device__ __forceinline__ void load(i32 bytes) {
#pragma unroll
        for (u32 i = 0; i < kHeldWeights; ++i) held[i] = from_memory<false>(which(i), vector(i), bytes);
    }

    // Begins to copy what stays in slots. These copies are of the group that is closed next.
    __device__ __forceinline__ void begin(i32 bytes) const {
#pragma unroll
        for (u32 i = 0; i < kWeightSlots; ++i) {
            const i32 left = bytes - static_cast<i32>(vector(kHeldWeights + i) * kStepBytes);
            const In* source = first[which(kHeldWeights + i)] + vector(kHeldWeights + i) * kStep;
            if (left > 0) {
                copy_vector<In, kAnyAlignment>(slots + i * kSlotBytes, slots_address + i * kSlotBytes,
                                               reinterpret_cast<const char*>(source),
                                               left >= 16 ? 16 : static_cast<u32>(left), aligned);
            }
        }
    }

    // The first thread of a CTA: asks the run's weights and biases into the L2, where all CTAs will look for them at once.
    __device__ __forceinline__ void ask(i32 bytes) const {
#pragma unroll
        for (u32 each = 0; each < kWeights; ++each) {
            if (bytes >= 16) ptx::cp_async_bulk_prefetch_l2(first[each], static_cast<u32>(bytes) & ~15u);
        }
    }

    // Once a row: unpacked weights, kept from row to row, would take twice the registers.
    __device__ __forceinline__ void stay_packed() {
#pragma unroll
        for (u32 i = 0; i < kHeldWeights; ++i) ptx::opaque(held[i].words);
    }

    // Fetches vector `v`, where it comes from the L2.
    template <bool kWhole>
    __device__ __forceinline__ void fetch(u32 v, i32 bytes) {
#pragma unroll
        for (u32 each = 0; each < kWeights; ++each) {
            if (kFetchAhead > 0 && v < ADVISOR_VECTORS && number(each, v) >= kHeldWeights + kWeightSlots) {
                coming[each][kFetchAhead > 0 ? v % at_least_one(kFetchAhead) : 0] = from_memory<kWhole>(each, v, bytes);
            }
        }
    }

    // Vector `v`; `bytes` of this thread's columns are there.
    template <bool kWhole>
    __device__ __forceinline__ Vector<In> get(u32 each, u32 v, i32 bytes) const {
        const u32 i = number(each, v);
        if (i < kHeldWeights) return unpack<In>(held[i < kHeldWeights ? i : 0]);
        if (i < kHeldWeights + kWeightSlots) {
            return unpack<In>(*reinterpret_cast<const Words<16>*>(slots + (i - kHeldWeights) * kSlotBytes));
        }
        if (kFetchAhead > 0) return unpack<In>(coming[each][v % at_least_one(kFetchAhead)]);
        return unpack<In>(from_memory<kWhole>(each, v, bytes));
    }

private:
    static constexpr u32 kStep = kRowThreads * kCount;
    static constexpr u32 kEach = at_least_one(ADVISOR_VECTORS);
    __device__ __forceinline__ static u32 which(u32 i) { return i / kEach; }
    __device__ __forceinline__ static u32 vector(u32 i) { return i % kEach; }
    __device__ __forceinline__ static u32 number(u32 each, u32 v) { return each * ADVISOR_VECTORS + v; }

    template <bool kWhole>
    __device__ __forceinline__ Words<16> from_memory(u32 each, u32 v, i32 bytes) const {
        const i32 left = bytes - static_cast<i32>(v * kStepBytes);
        const u32 count = kWhole || left >= 16 ? kCount : left > 0 ? static_cast<u32>(left) / sizeof(In) : 0;
        return load_words<In, kAnyAlignment>(first[each] + v * kStep, count, aligned);
    }
};

// What is written of a row, by the thread that has its elements.
struct Output {
    Out* y;  // the row, from this thread's first element on
    bool aligned;

    // Vector `v` of the thread, `bytes` of whose columns are there.
    template <bool kWhole>
    __device__ __forceinline__ void write(Vector<In> x, u32 v, u32 count, typename TheOp::Whole whole,
                                          const Weights& weights, i32 bytes) const {
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) x.of[i] = TheOp::element(x.of[i], whole);
        if constexpr (kWeight) {
            const Vector<In> w = weights.get<kWhole>(0, v, bytes);
#pragma unroll
            for (u32 i = 0; i < kCount; ++i) x.of[i] *= w.of[i];
        }
        if constexpr (kBias) {
            const Vector<In> b = weights.get<kWhole>(kWeights - 1, v, bytes);
#pragma unroll
            for (u32 i = 0; i < kCount; ++i) x.of[i] += b.of[i];
        }
        store(x, v, count);
    }

    // The same of its powers.
    __device__ __forceinline__ void write_powers(Vector<In> powers, u32 v, u32 count, float scale) const {
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) powers.of[i] *= scale;
        store(powers, v, count);
    }

private:
    __device__ __forceinline__ void store(const Vector<In>& x, u32 v, u32 count) const {
        store_vector<Out, kCount, kAnyAlignment>(y + v * (kRowThreads * kCount), x.of, count, aligned);
    }
};

#if ADVISOR_VECTORS > 0
constexpr u32 kVectors = ADVISOR_VECTORS;
constexpr u32 kExtra = kSlots - kVectors;  // vectors of the next row that come in before this one is read
constexpr bool kOneRow = ADVISOR_SCHEDULE == ADVISOR_ONE_TILE;
constexpr u32 kEarly = ADVISOR_EARLY;
static_assert(kVectors <= kSlots && kSlots <= 2 * kVectors, "the slots hold a row, and at most another");
static_assert(kVectors % kBatch == 0 && kHeldPowers % kBatch == 0 && kEarly % kBatch == 0, "whole batches");
static_assert(kOneRow || ADVISOR_PREFETCH == 0 || (ADVISOR_PREFETCH <= kVectors && kRows == 1), "vectors of one row");
static_assert(kEarly <= kExtra && kEarly + kHeldPowers <= kVectors, "read early is what is there, and not held");

// Begins to copy vectors `first` to `end` of a row, a group each.
template <bool kWhole>
__device__ __forceinline__ void begin(const Part& part, Row row, u32 first, u32 end, u32 slot) {
#pragma unroll
    for (u32 v = first; v < end; ++v) {
        part.copy<kWhole>(row.start + v * kStepBytes, row.left - static_cast<i32>(v * kStepBytes), stepped(slot, v));
        ptx::cp_async_commit_group();
    }
}

// The slot of vector `v` has been read for the last time: it takes the vector kSlots further on. Groups follow each
// other as vectors do, row after row, one for each vector, there or not: so waits count vectors.
__device__ __forceinline__ void refill(const Part& part, Row next, Row after, u32 v, u32 slot) {
    if constexpr (!kOneRow) {
        const bool is_next = v + kExtra < kVectors;
        const Row row = is_next ? next : after;
        const u32 bytes = (is_next ? v + kExtra : v + kExtra - kVectors) * kStepBytes;
        part.copy<false>(row.start + bytes, row.left - static_cast<i32>(bytes), stepped(slot, v));
        ptx::cp_async_commit_group();
    }
}

// One thread: asks vectors kFrom to kTo of all threads, which lie side by side, into the L2.
template <u32 kFrom, u32 kTo>
__device__ __forceinline__ void prefetch(Row row) {
    if constexpr (kFrom < kTo) {
        const i32 before = static_cast<i32>(threadIdx.x * kVectorBytes);
        const i32 left = row.left + before - static_cast<i32>(kFrom * kStepBytes);
        constexpr i32 kMost = static_cast<i32>((kTo - kFrom) * kStepBytes);
        if (left >= 16) {
            ptx::cp_async_bulk_prefetch_l2(row.start - before + kFrom * kStepBytes,
                                           static_cast<u32>(left < kMost ? left : kMost) & ~15u);
        }
    }
}

// The same of the first vectors that refills will bring.
__device__ __forceinline__ void prefetch_refills(Row next, Row after) {
    if constexpr (!kOneRow && ADVISOR_PREFETCH > 0) {
        constexpr u32 kEnd = kExtra + ADVISOR_PREFETCH;
        if (threadIdx.x == kThreads - 32) {  // not of the warp that pushes
            prefetch<kExtra, kEnd < kVectors ? kEnd : kVectors>(next);
            prefetch<0, kEnd < kVectors ? 0 : kEnd - kVectors>(after);
        }
    }
}

// Exponentials of a thread's last vectors, each batch over its own zero.
struct Powers {
    Vector<In> of[at_least_one(kHeldPowers)];
    float zero[at_least_one(kHeldPowers / kBatch)];
};

// Adds vectors kFrom to kTo of a row as they come in; kNewer vectors have been begun from its first on.
template <bool kWhole, u32 kFrom, u32 kTo, u32 kNewer>
__device__ __forceinline__ void first_pass(Partial& p, const Part& part, i32 left, u32 slot, Powers& powers) {
#pragma unroll
    for (u32 v = kFrom; v < kTo; v += kBatch) {
        wait_groups<kNewer>(kNewer - v - kBatch);
        Words<16> words[kBatch];
        u32 count[kBatch];
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            words[i] = part.read<kWhole>(stepped(slot, v + i), left - static_cast<i32>((v + i) * kStepBytes), count[i]);
        }
        if (v >= kVectors - kHeldPowers) {
            const u32 held = v - (kVectors - kHeldPowers);
            Vector<In> found[kBatch];
            powers.zero[held / kBatch] = TheOp::add_powers(p, words, found);
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) powers.of[held + i] = found[i];
        } else {
            TheOp::template add<kWhole>(p, words, count);
        }
    }
}

// A row on its way out.
template <bool kWhole>
__device__ __forceinline__ void second_pass(const Part& part, i32 left, u32 slot, Row next, Row after,
                                            const Output& out, typename TheOp::Whole whole, Weights& weights,
                                            const Powers& powers) {
#pragma unroll
    for (u32 v = 0; v < kVectors; ++v) {
        const i32 here = left - static_cast<i32>(v * kStepBytes);
        if (v < kVectors - kHeldPowers) {
            u32 count;
            const Words<16> words = part.read<kWhole>(stepped(slot, v), here, count);
            if (kWhole || count > 0) out.write<kWhole>(unpack<In>(words), v, count, whole, weights, left);
            weights.fetch<kWhole>(v + kFetchAhead, left);
        } else {
            const u32 held = v - (kVectors - kHeldPowers);
            const u32 count = kWhole || here >= 16 ? kCount : here > 0 ? static_cast<u32>(here) / sizeof(In) : 0;
            const float scale = TheOp::power_scale(powers.zero[held / kBatch], whole);
            if (kWhole || count > 0) out.write_powers(powers.of[held], v, count, scale);
        }
        refill(part, next, after, v, slot);
    }
}
#else
// Some vectors of a streamed row.
template <bool kWhole>
__device__ __forceinline__ void stream(const Part& part, i32 left, u32 slot, u32 v, bool second, Partial& p,
                                       const Output& out, typename TheOp::Whole whole, const Weights& weights) {
    Words<16> words[kBatch];
    u32 count[kBatch];
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
        words[i] = part.read<kWhole>(slot + i, left - static_cast<i32>(i * kStepBytes), count[i]);
    }
    if (!second) {
        TheOp::template add<kWhole>(p, words, count);
    } else {
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            const i32 bytes = left + static_cast<i32>(v * kStepBytes);
            if (kWhole || count[i] > 0) out.write<kWhole>(unpack<In>(words[i]), v + i, count[i], whole, weights, bytes);
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
    constexpr u32 kAllSlotBytes = (kSlots + kWeightSlots) * kSlotBytes;
    TheExchange exchange{shared + kAllSlotBytes, shared_address + kAllSlotBytes, rank};

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
    // What threads found of a row becomes the row's, in two steps that other work may come between.
    const auto push = [&](Partial p) {
        if constexpr (kRowThreads <= 32) return reduce_lanes<TheOp, kRowThreads>(p);
        exchange.push(p);
        return p;
    };
    const auto pull = [&](Partial p) {
        if constexpr (kRowThreads <= 32) return p;
        return exchange.pull();
    };
    const auto reduced = [&](Partial p) { return pull(push(p)); };
    // A row whose squares or sums have left float32 is read again from memory and exchanged once more: rare, so a loop
    // that takes few registers. Rows of one warp go together, for they shuffle together.
    const auto whole_of = [&](Work work, Partial p) {
        typename TheOp::Whole whole = TheOp::whole(p, count, eps);
        if constexpr (TheOp::kOverflows) {
            const bool overflowed = TheOp::overflowed(p);
            if (__builtin_expect(kRowThreads < 32 ? __any_sync(0xffffffffu, overflowed) : overflowed, 0)) {
                const In* begin = x + part.row(work) * row_stride;
                const float origin = TheOp::kDeviations && part.has(work) ? to_f32(*begin) : 0.0f;
                const u32 stop = part.has(work) ? end : 0;
                p = TheOp::identity();
#pragma unroll 1
                for (u32 vector = first * kCount; vector < stop; vector += kRowThreads * kCount) {
#pragma unroll 1
                    for (u32 i = vector; i < stop && i < vector + kCount; ++i) {
                        TheOp::add_scaled(p, to_f32(begin[i]), origin);
                    }
                }
                const typename TheOp::Whole scaled = TheOp::whole_scaled(reduced(p), origin, count, eps);
                if (overflowed) whole = scaled;
            }
        }
        return whole;
    };
    const auto output = [&](Work work) {
        return Output{y + part.row(work) * out_stride + first * kCount, out_aligned};
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
    const In* affine = kWeight ? weight : bias;
    Weights weights{ {affine + first * kCount, bias + first * kCount}, weights_aligned, part.slots + kSlots * kSlotBytes,
                     part.slots_address + kSlots * kSlotBytes};
    u32 slot = 0;
#if ADVISOR_VECTORS > 0
    const auto is_whole = [](i32 left) { return left >= static_cast<i32>((kVectors - 1) * kStepBytes + 16); };
    Row row = part.of(work);
    Work next = work.more ? scheduler.next(work) : work;
    Row next_row = part.of(next);
    weights.begin(part.bytes);
    if (is_whole(row.left)) {
        begin<true>(part, row, 0, kVectors, 0);
    } else {
        begin<false>(part, row, 0, kVectors, 0);
    }
    begin<false>(part, next_row, 0, kExtra, stepped(0, kVectors));
    if constexpr (kOneRow && ADVISOR_PREFETCH > 0) {
        const Row ahead = part.of(Work{work.index + ADVISOR_PREFETCH, work.more});
        if (in_row == 0 && ahead.left >= 16) {
            ptx::cp_async_bulk_prefetch_l2(ahead.start, static_cast<u32>(ahead.left) & ~15u);
        }
        if (kWeights > 0 && cluster == 0 && threadIdx.x == 0) weights.ask(part.bytes);
    }
    weights.load(part.bytes);
    Partial p = TheOp::identity();  // of the first `kEarly` vectors of the row that is next
    Powers powers;
    if constexpr (kEarly > 0) {
        if (is_whole(row.left)) {
            first_pass<true, 0, kEarly, kSlots>(p, part, row.left, slot, powers);
        } else {
            first_pass<false, 0, kEarly, kSlots>(p, part, row.left, slot, powers);
        }
    }
    while (work.more) {
        const Work after = next.more ? scheduler.next(next) : next;
        const Row row_after = part.of(after);
        weights.stay_packed();
        if (is_whole(row.left)) {
            first_pass<true, kEarly, kVectors, kSlots>(p, part, row.left, slot, powers);
        } else {
            first_pass<false, kEarly, kVectors, kSlots>(p, part, row.left, slot, powers);
        }
#pragma unroll
        for (u32 v = 0; v < kFetchAhead; ++v) weights.fetch<false>(v, row.left);
        Partial total = push(TheOp::settled(p));
        prefetch_refills(next_row, row_after);
        p = TheOp::identity();
        if constexpr (kEarly > 0) {
            if (is_whole(next_row.left)) {
                first_pass<true, 0, kEarly, kExtra>(p, part, next_row.left, stepped(slot, kVectors), powers);
            } else {
                first_pass<false, 0, kEarly, kExtra>(p, part, next_row.left, stepped(slot, kVectors), powers);
            }
        }
        total = pull(total);
        if constexpr (TheOp::kElementwise) {
            const typename TheOp::Whole whole = whole_of(work, total);
            const Output out = output(work);
            if (is_whole(row.left)) {
                second_pass<true>(part, row.left, slot, next_row, row_after, out, whole, weights, powers);
            } else {
                second_pass<false>(part, row.left, slot, next_row, row_after, out, whole, weights, powers);
            }
        } else {
            write_number(work, total);
#pragma unroll
            for (u32 v = 0; v < kVectors; ++v) refill(part, next_row, row_after, v, slot);
        }
        done(work);
        slot = stepped(slot, kVectors);
        work = next;
        next = after;
        row = next_row;
        next_row = row_after;
    }
#else
    // As many vectors in flight as there are slots, over the ends of passes and rows.
    static_assert(kSlots % kBatch == 0, "a batch does not wrap");
    const u32 turns = run > 0 ? (run + kRowThreads * kBatch - 1) / (kRowThreads * kBatch) : 1;  // batches of a pass
    Work issued = work;
    Row source = part.of(issued);  // from the next copy on
    u32 turn = 0, pass = 0;
    const auto issue = [&](u32 into) {
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            part.copy<false>(source.start, source.left, into + i);
            source.start += kStepBytes;
            source.left -= static_cast<i32>(kStepBytes);
        }
        if (++turn == turns) {
            turn = 0;
            if (++pass == kPasses) {
                pass = 0;
                if (issued.more) issued = scheduler.next(issued);
            }
            source = part.of(issued);
        }
        ptx::cp_async_commit_group();
    };
    const auto following = [&](Work of) { return scheduler.next(of); };
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
                    stream<true>(part, left, slot, v, second, p, out, whole, weights);
                } else {
                    stream<false>(part, left, slot, v, second, p, out, whole, weights);
                }
                left -= static_cast<i32>(kBatch * kStepBytes);
                issue(slot);
                slot = stepped(slot, kBatch);
            }
        };
        each(false);
        p = reduced(TheOp::settled(p));
        if constexpr (TheOp::kElementwise) {
            whole = whole_of(work, p);
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
