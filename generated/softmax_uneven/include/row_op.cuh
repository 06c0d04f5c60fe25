// What is computed of a row: a partial result of some of its elements, how two of them make one, and what becomes of
// an element once that of the whole row is known. Nothing here knows of threads.
//
//   softmax, log_softmax, logsumexp   a = largest element, b = sum of exp(x - a)
//   layernorm                         a = mean, b = sum of squares of deviations from it, c = count
//   rmsnorm                           a = sum of squares
//   sum, max                          a
//
// Where results keep 24 bits, a sum carries what its additions have rounded away: of exponentials in c, else in b.
//
// Infinities and NaN come out as the definition has them: a NaN makes a row NaN, as does an infinite largest element of
// a softmax; a logsumexp with an infinite largest element is that element.
#pragma once

#include "numbers.cuh"
#include "ptx/math.cuh"
#include "row_vector.cuh"
#include "types.cuh"

enum class Op { softmax, log_softmax, layernorm, rmsnorm, logsumexp, sum, max };

struct Partial {
    float a;
    float b;
    float c;
};

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float infinity() { return ptx::mov_f32_b32(0x7F800000); }

// exp(x - reference) for finite `reference`. kExact: to a unit in the last place, for results that keep 24 bits; else to 2e-6
// of its value, for results of 16 bits.
template <bool kExact>
__device__ __forceinline__ float exp_above(float x, float reference) {
    if constexpr (kExact) {
        return expf(x - reference);
    } else {
        return ptx::ex2_approx_ftz_f32(fmaf(x, kLog2E, -reference * kLog2E));
    }
}

// sum += x; what that rounds away is added to `lost`. (Knuth: exact whichever is larger. An infinite sum has none.)
__device__ __forceinline__ void add_exactly(float& sum, float& lost, float x) {
    const float next = __fadd_rn(sum, x);
    const float part = __fsub_rn(next, sum);
    const float rest = __fadd_rn(__fsub_rn(sum, __fsub_rn(next, part)), __fsub_rn(x, part));
    sum = next;
    lost += rest - rest == 0.0f ? rest : 0.0f;
}

template <u32 kCount>
__device__ __forceinline__ float sum_of(const float (&x)[kCount]) {
    float tree[kCount];
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) tree[i] = x[i];
#pragma unroll
    for (u32 width = kCount / 2; width > 0; width /= 2) {
#pragma unroll
        for (u32 i = 0; i < width; ++i) tree[i] += tree[i + width];
    }
    return tree[0];
}

// The larger of two words: of one float, or of each of two 16-bit elements.
template <typename T>
__device__ __forceinline__ u32 larger(u32 a, u32 b);
template <>
__device__ __forceinline__ u32 larger<float>(u32 a, u32 b) {
    return ptx::mov_b32_f32(ptx::max_nan_f32(ptx::mov_f32_b32(a), ptx::mov_f32_b32(b)));
}
template <>
__device__ __forceinline__ u32 larger<bf16>(u32 a, u32 b) { return ptx::max_nan_bf16x2(a, b); }
template <>
__device__ __forceinline__ u32 larger<fp16>(u32 a, u32 b) { return ptx::max_nan_f16x2(a, b); }

// The largest element of some vectors, before they are unpacked.
template <typename T, u32 kBatch>
__device__ __forceinline__ float largest_of(const Words<16> (&x)[kBatch]) {
    u32 word = x[0].words[0];
#pragma unroll
    for (u32 i = 1; i < 4 * kBatch; ++i) word = larger<T>(word, x[i / 4].words[i % 4]);
    if constexpr (sizeof(T) == 4) {
        return ptx::mov_f32_b32(word);
    } else {
        return ptx::max_nan_f32(to_f32(element_of<T>(word)), to_f32(element_of<T>(word >> 16)));
    }
}

// T: of the elements. kExact: what is written keeps more than 16 bits.
template <Op kOp, typename T, bool kExact>
struct RowOp {
    static constexpr bool kExponential = kOp == Op::softmax || kOp == Op::log_softmax || kOp == Op::logsumexp;
    static constexpr bool kElementwise =
        kOp == Op::softmax || kOp == Op::log_softmax || kOp == Op::layernorm || kOp == Op::rmsnorm;
    static constexpr u32 kCount = kVectorBytes / sizeof(T);
    static constexpr bool kCarries = kExact && kOp != Op::layernorm && kOp != Op::max;
    static constexpr u32 kParts = kOp == Op::layernorm ? 3 : (kExponential ? 2 : 1) + (kCarries ? 1 : 0);

    // What an element that is not there counts as: -infinity or 0.
    static constexpr bool kNothingIsLowest = kExponential || kOp == Op::max;

    __device__ __forceinline__ static Partial identity() {
        return {kNothingIsLowest ? -infinity() : 0.0f, 0.0f, 0.0f};
    }

    // What exp takes as zero: the largest element, or any number where all elements are -infinity.
    __device__ __forceinline__ static float reference(float largest) { return largest == -infinity() ? 0.0f : largest; }

    // Adds some vectors. Where not kWhole their elements from count[i] on are nothing, as `masked` leaves them.
    template <bool kWhole, u32 kBatch>
    __device__ __forceinline__ static void add(Partial& p, const Words<16> (&words)[kBatch],
                                               const u32 (&count)[kBatch]) {
        if constexpr (kOp == Op::max) {
            p.a = ptx::max_nan_f32(p.a, largest_of<T>(words));
        } else if constexpr (kOp == Op::layernorm) {
            p = combined(p, deviations<kWhole>(words, count));
        } else {
            float scale = 1.0f, zero = 0.0f;
            if constexpr (kExponential) {
                const float before = p.a;
                p.a = ptx::max_nan_f32(before, largest_of<T>(words));
                zero = reference(p.a);
                scale = exp_above<kExact>(before, zero);
            }
            float total[kBatch];
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) {
                Vector<T> x = unpack<T>(words[i]);
#pragma unroll
                for (u32 j = 0; j < kCount; ++j) {
                    if constexpr (kExponential) x.of[j] = exp_above<kExact>(x.of[j], zero);
                    if constexpr (kOp == Op::rmsnorm) x.of[j] *= x.of[j];
                }
                total[i] = sum_of(x.of);
            }
            if constexpr (kExponential && kCarries) {
                p.b *= scale;
                p.c *= scale;
                add_exactly(p.b, p.c, sum_of(total));
            } else if constexpr (kExponential) {
                p.b = fmaf(p.b, scale, sum_of(total));
            } else if constexpr (kCarries) {
                add_exactly(p.a, p.b, sum_of(total));
            } else {
                p.a += sum_of(total);
            }
        }
    }

    // Mean and squared deviations of some vectors.
    template <bool kWhole, u32 kBatch>
    __device__ __forceinline__ static Partial deviations(const Words<16> (&words)[kBatch], const u32 (&count)[kBatch]) {
        float total[kBatch];
        u32 there = kCount * kBatch;
        if constexpr (!kWhole) {
            there = 0;
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) there += count[i];
        }
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) total[i] = sum_of(unpack<T>(words[i]).of);
        const float n = static_cast<float>(there);
        const float inverse = kWhole ? 1.0f / (kCount * kBatch) : there > 0 ? __fdividef(1.0f, n) : 0.0f;
        const float mean = sum_of(total) * inverse;
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            Vector<T> x = unpack<T>(words[i]);
#pragma unroll
            for (u32 j = 0; j < kCount; ++j) {
                const float deviation = kWhole || j < count[i] ? x.of[j] - mean : 0.0f;
                x.of[j] = deviation * deviation;
            }
            total[i] = sum_of(x.of);
        }
        return {mean, sum_of(total), n};
    }

    // The same partial of exponentials over a largest element that is no smaller.
    __device__ __forceinline__ static Partial raised(Partial p, float largest) {
        const float scale = exp_above<kExact>(p.a, reference(largest));
        return {largest, p.b * scale, p.c * scale};
    }

    // Two partials as one; of exponentials both over one largest element.
    __device__ __forceinline__ static Partial combined(Partial p, Partial q) {
        if constexpr (kExponential) {
            if constexpr (!kCarries) return {p.a, p.b + q.b, 0.0f};
            add_exactly(p.b, p.c, q.b);
            return {p.a, p.b, p.c + q.c};
        } else if constexpr (kCarries) {
            add_exactly(p.a, p.b, q.a);
            return {p.a, p.b + q.b, 0.0f};
        } else if constexpr (kOp == Op::max) {
            return {ptx::max_nan_f32(p.a, q.a), 0.0f, 0.0f};
        } else if constexpr (kOp == Op::layernorm) {
            const float n = p.c + q.c;
            const float share = n > 0.0f ? __fdividef(q.c, n) : 0.0f;
            const float delta = q.a - p.a;
            return {fmaf(delta, share, p.a), p.b + fmaf(delta * delta, p.c * share, q.b), n};
        } else {
            return {p.a + q.a, 0.0f, 0.0f};
        }
    }

    // 1 / sqrt(total / count + eps), in double precision where the result keeps 24 bits.
    __device__ __forceinline__ static float inverse_root(float total, float count, float eps) {
        if constexpr (kExact) {
            return static_cast<float>(1.0 / sqrt(static_cast<double>(total) / static_cast<double>(count) +
                                                 static_cast<double>(eps)));
        } else {
            return 1.0f / sqrtf(total / count + eps);
        }
    }

    // What an element needs to know of its row.
    struct Whole {
        float shift;
        float scale;
        float total;  // of an exact softmax: what `scale` is the inverse of
    };

    __device__ __forceinline__ static Whole whole(Partial p, float count, float eps) {
        if constexpr (kCarries) {
            (kExponential ? p.b : p.a) += kExponential ? p.c : p.b;
        }
        if constexpr (kOp == Op::softmax || kOp == Op::log_softmax) {
            // With an infinite largest element the definition has infinity minus infinity in it.
            const float total = p.a - p.a == 0.0f ? p.b : p.a - p.a;
            if constexpr (kExact) return {p.a, kOp == Op::softmax ? 1.0f / total : logf(total), total};
            // exp(x - a) / b = 2^(x log2 e - shift)
            return {kOp == Op::softmax ? fmaf(p.a, kLog2E, log2f(total)) : p.a + logf(total), 0.0f, 0.0f};
        } else if constexpr (kOp == Op::layernorm) {
            return {p.a, inverse_root(p.b, count, eps), 0.0f};
        } else if constexpr (kOp == Op::rmsnorm) {
            return {0.0f, inverse_root(p.a, count, eps), 0.0f};
        } else if constexpr (kOp == Op::logsumexp) {
            return {p.a - p.a == 0.0f ? p.a + logf(p.b) : p.a, 0.0f, 0.0f};
        } else {
            return {p.a, 0.0f, 0.0f};
        }
    }

    __device__ __forceinline__ static float element(float x, Whole row) {
        if constexpr (kOp == Op::softmax && kExact) {
            const float power = exp_above<kExact>(x, row.shift);
            const float quotient = power * row.scale;
            return fmaf(fmaf(-quotient, row.total, power), row.scale, quotient);  // to the nearest, mostly
        }
        if constexpr (kOp == Op::softmax) return ptx::ex2_approx_ftz_f32(fmaf(x, kLog2E, -row.shift));
        if constexpr (kOp == Op::log_softmax) return kExact ? x - row.shift - row.scale : x - row.shift;
        if constexpr (kOp == Op::layernorm) return (x - row.shift) * row.scale;
        return x * row.scale;
    }
};
