// What is computed of a row: a partial result of some of its elements, how two of them make one, and what becomes of
// an element once that of the whole row is known. Nothing here knows of threads.
//
//   softmax, log_softmax, logsumexp   a = largest element, b = sum of exp(x - a)
//   layernorm                         a = mean, b = sum of squares of deviations from it, c = count; of one thread's elements
//                                     a = the mean of its first ones, b, d = sums of squares and of deviations from that.
//                                     Where elements or results have 24 bits d stays, as what rounding took from the mean
//   rmsnorm                           a = sum of squares
//   sum, max                          a
//
// Where results keep 24 bits, a sum carries what its additions have rounded away: of exponentials in c, else in b.
//
// Infinities and NaN come out as the definition has them: a NaN makes a row NaN, as does an infinite largest element of
// a softmax; a logsumexp with an infinite largest element is that element. Finite numbers whose squares, or whose sum,
// float32 does not hold leave a norm's partial not finite: such a row is computed again, scaled down (`add_scaled`).
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
    float d;
};

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float infinity() { return ptx::mov_f32_b32(0x7F800000); }

// exp(x - reference) for finite `reference`. kExact: to a unit in the last place, for results that keep 24 bits; else for
// results of 16 bits. The difference comes first: one fused step over `reference` log2 e has the rounding of that product,
// as much as the result itself from 2^13 on, and infinity less infinity where a mask has the lowest number of bf16.
template <bool kExact>
__device__ __forceinline__ float exp_above(float x, float reference) {
    if constexpr (kExact) {
        return expf(x - reference);
    } else {
        return ptx::ex2_approx_ftz_f32((x - reference) * kLog2E);
    }
}

// sum += x; returns what that rounds away. (Knuth: exact whichever is larger. Of an infinite sum it is NaN.)
__device__ __forceinline__ float rounded_away(float& sum, float x) {
    const float next = __fadd_rn(sum, x);
    const float part = __fsub_rn(next, sum);
    const float rest = __fadd_rn(__fsub_rn(sum, __fsub_rn(next, part)), __fsub_rn(x, part));
    sum = next;
    return rest;
}

// The same added to `lost`; an infinite sum has lost nothing.
__device__ __forceinline__ void add_exactly(float& sum, float& lost, float x) {
    const float rest = rounded_away(sum, x);
    lost += rest - rest == 0.0f ? rest : 0.0f;
}

// A sum over a count of 1 or more, to the nearest float, mostly; 0 of none. As the mean of equal numbers it is that number.
__device__ __forceinline__ float mean_of(float sum, float count) {
    const float inverse = ptx::rcp_approx_ftz_f32(count);
    const float mean = sum * inverse;
    return count > 0.0f ? fmaf(fmaf(-mean, count, sum), inverse, mean) : 0.0f;
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

// Sum of squares. kTree: of rounded squares, by a tree; else by two chains of fused steps.
template <bool kTree, u32 kCount>
__device__ __forceinline__ float squares_of(const float (&x)[kCount]) {
    if constexpr (kTree) {
        float squares[kCount];
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) squares[i] = x[i] * x[i];
        return sum_of(squares);
    } else {
        float even = x[0] * x[0], odd = x[1] * x[1];
#pragma unroll
        for (u32 i = 2; i < kCount; i += 2) {
            even = fmaf(x[i], x[i], even);
            odd = fmaf(x[i + 1], x[i + 1], odd);
        }
        return even + odd;
    }
}

// What elements are scaled by where their squares overflow: differences of 2^129 have squares of 2^98 then, and a row of
// 2^28 of them does not overflow. One of such a row is 2^50 or more, and squares that become 0 are 2^-88 of its square.
constexpr float kUnit = 0x1p-80f;

// Numbers of this type have squares, and sums, that float32 does not hold.
template <typename T>
constexpr bool kLeavesFloat = true;
template <>
constexpr bool kLeavesFloat<fp16> = false;

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
    static constexpr bool kDeviations = kOp == Op::layernorm;
    static constexpr u32 kCount = kVectorBytes / sizeof(T);
    static constexpr bool kCarries = kExact && kOp != Op::layernorm && kOp != Op::max;
    static constexpr bool kTwoMeans = kOp == Op::layernorm && (kExact || sizeof(T) == 4);  // a mean, and what it lacks
    static constexpr u32 kParts =
        kOp == Op::layernorm ? (kTwoMeans ? 4 : 3) : (kExponential ? 2 : 1) + (kCarries ? 1 : 0);
    static constexpr bool kOverflows = (kOp == Op::layernorm || kOp == Op::rmsnorm) && kLeavesFloat<T>;

    // What an element that is not there counts as: -infinity or 0.
    static constexpr bool kNothingIsLowest = kExponential || kOp == Op::max;

    __device__ __forceinline__ static Partial identity() {
        return {kNothingIsLowest ? -infinity() : 0.0f, 0.0f, 0.0f, 0.0f};
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
            if (p.c == 0.0f) {
                p = deviations<kWhole>(words, count);
            } else {
                add_deviations<kWhole>(p, words, count);
            }
        } else if constexpr (kExponential) {
            Vector<T> powers[kBatch];
            add_powers(p, words, powers);
        } else {
            float total[kBatch];
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) {
                const Vector<T> x = unpack<T>(words[i]);
                total[i] = kOp == Op::rmsnorm ? squares_of<kCarries>(x.of) : sum_of(x.of);
            }
            if constexpr (kCarries) {
                add_exactly(p.a, p.b, sum_of(total));
            } else {
                p.a += sum_of(total);
            }
        }
    }

    // Adds the exponentials of some vectors over the largest element so far, and returns that.
    template <u32 kBatch>
    __device__ __forceinline__ static float add_powers(Partial& p, const Words<16> (&words)[kBatch],
                                                       Vector<T> (&powers)[kBatch]) {
        const float before = p.a;
        p.a = ptx::max_nan_f32(before, largest_of<T>(words));
        const float zero = reference(p.a);
        const float scale = exp_above<kExact>(before, zero);
        float total[kBatch];
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            powers[i] = unpack<T>(words[i]);
#pragma unroll
            for (u32 j = 0; j < kCount; ++j) powers[i].of[j] = exp_above<kExact>(powers[i].of[j], zero);
            total[i] = sum_of(powers[i].of);
        }
        if constexpr (kCarries) {
            p.b *= scale;
            p.c *= scale;
            add_exactly(p.b, p.c, sum_of(total));
        } else {
            p.b = fmaf(p.b, scale, sum_of(total));
        }
        return zero;
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
        const float mean = kWhole ? sum_of(total) * (1.0f / (kCount * kBatch)) : mean_of(sum_of(total), n);
        float left[kBatch];
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            Vector<T> x = unpack<T>(words[i]);
#pragma unroll
            for (u32 j = 0; j < kCount; ++j) {
                x.of[j] = kWhole || j < count[i] ? x.of[j] - mean : 0.0f;
            }
            left[i] = kTwoMeans ? sum_of(x.of) : 0.0f;
            total[i] = squares_of<kExact>(x.of);
        }
        return {mean, sum_of(total), n, kTwoMeans ? sum_of(left) : 0.0f};
    }

    // Further vectors of a thread: deviations from the mean of its first ones. That mean is of elements that count, so
    // that what `settled` takes off again is at most as many times the rest as a thread has batches.
    template <bool kWhole, u32 kBatch>
    __device__ __forceinline__ static void add_deviations(Partial& p, const Words<16> (&words)[kBatch],
                                                          const u32 (&count)[kBatch]) {
        float total[kBatch], squares[kBatch];
        u32 there = kCount * kBatch;
        if constexpr (!kWhole) {
            there = 0;
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) there += count[i];
        }
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            Vector<T> x = unpack<T>(words[i]);
#pragma unroll
            for (u32 j = 0; j < kCount; ++j) x.of[j] = kWhole || j < count[i] ? x.of[j] - p.a : 0.0f;
            total[i] = sum_of(x.of);
            squares[i] = squares_of<kExact>(x.of);
        }
        p.b += sum_of(squares);
        p.c += static_cast<float>(there);
        p.d += sum_of(total);
    }

    // The same partial of deviations from another mean.
    __device__ __forceinline__ static Partial about(Partial p, float mean) {
        const float shift = p.a - mean;
        if constexpr (!kTwoMeans) return {mean, fmaf(p.c * shift, shift, p.b), p.c, 0.0f};
        const float left = fmaf(p.c, shift, p.d);
        return {mean, fmaf(p.d + left, shift, p.b), p.c, left};
    }

    // A thread's partial once it has all its elements: what others combine.
    __device__ __forceinline__ static Partial settled(Partial p) {
        if constexpr (kOp == Op::layernorm) {
            const float shift = mean_of(p.d, p.c);
            const float mean = p.a + shift;
            if constexpr (!kTwoMeans) return {mean, ptx::max_nan_f32(fmaf(-p.d, shift, p.b), 0.0f), p.c, 0.0f};
            return about(p, mean);
        }
        return p;
    }

    // The same partial of exponentials over a largest element that is no smaller.
    __device__ __forceinline__ static Partial raised(Partial p, float largest) {
        const float scale = exp_above<kExact>(p.a, reference(largest));
        return {largest, p.b * scale, p.c * scale, 0.0f};
    }

    // Two partials as one; of exponentials both over one largest element, of deviations both from one mean.
    __device__ __forceinline__ static Partial combined(Partial p, Partial q) {
        if constexpr (kExponential) {
            if constexpr (!kCarries) return {p.a, p.b + q.b, 0.0f, 0.0f};
            add_exactly(p.b, p.c, q.b);
            return {p.a, p.b, p.c + q.c, 0.0f};
        } else if constexpr (kCarries) {
            add_exactly(p.a, p.b, q.a);
            return {p.a, p.b + q.b, 0.0f, 0.0f};
        } else if constexpr (kOp == Op::max) {
            return {ptx::max_nan_f32(p.a, q.a), 0.0f, 0.0f, 0.0f};
        } else if constexpr (kOp == Op::layernorm) {
            return {p.a, p.b + q.b, p.c, kTwoMeans ? p.d + q.d : 0.0f};
        } else {
            return {p.a + q.a, 0.0f, 0.0f, 0.0f};
        }
    }

    // What an element needs to know of its row.
    struct Whole {
        float shift;  // what is taken from an element; of a layernorm what is added to one times `scale`
        float scale;
        float total;  // of an exact softmax: what `scale` is the inverse of; of a layernorm the rest of `shift`
        float rest;   // what rounding took from `total`, or else from `scale`
    };

    __device__ __forceinline__ static Whole whole(Partial p, float count, float eps) {
        if constexpr (kExponential) {
            return kExact ? whole_exactly(p) : whole_power(p);
        } else if constexpr (kOp == Op::layernorm) {
            return kExact ? whole_deviation_exactly(p, count, eps) : whole_deviation(p, count, eps);
        } else {
            const float total = kCarries ? p.a + p.b : p.a;
            if constexpr (kOp == Op::sum || kOp == Op::max) return {total, 0.0f, 0.0f, 0.0f};
            if constexpr (!kExact) return {0.0f, rsqrtf(__fdividef(total, count) + eps), 0.0f, 0.0f};
            const double scale = 1.0 / sqrt(static_cast<double>(total) / static_cast<double>(count) +
                                            static_cast<double>(eps));
            const float rounded = static_cast<float>(scale);
            return {0.0f, rounded, 0.0f, static_cast<float>(scale - static_cast<double>(rounded))};
        }
    }

    // The squares of deviations from the row's own mean, for p.a less what it lacks. A row of one number has none, whatever
    // `shift` would be rounded by: as of infinite squares its elements are 0, or NaN where eps is 0, which they are divided
    // by. (Nearer to 0 than this, squares of other deviations are 0 too.)
    __device__ __forceinline__ static float squares_about_mean(Partial p, float left, float eps) {
        if (p.b == 0.0f && fabsf(p.a) > 0x1p-40f) return infinity() * eps;
        return kTwoMeans ? ptx::max_nan_f32(fmaf(-left, p.d, p.b), 0.0f) : p.b;
    }

    // (x - mean) scale as x scale + shift.
    __device__ __forceinline__ static Whole whole_deviation(Partial p, float count, float eps) {
        const float left = kTwoMeans ? mean_of(p.d, count) : 0.0f;
        const float scale = rsqrtf(__fdividef(squares_about_mean(p, left, eps), count) + eps);
        const float shift = -p.a * scale;
        return {shift, scale, kTwoMeans ? fmaf(-left, scale, fmaf(-p.a, scale, -shift)) : 0.0f, 0.0f};
    }

    __device__ __forceinline__ static Whole whole_deviation_exactly(Partial p, float count, float eps) {
        const float left = mean_of(p.d, count), squares = squares_about_mean(p, left, eps);
        const double scale = 1.0 / sqrt(static_cast<double>(squares) / static_cast<double>(count) +
                                        static_cast<double>(eps));
        const double shift = -scale * (static_cast<double>(p.a) + static_cast<double>(left));
        const float rounded = static_cast<float>(scale), nearest = static_cast<float>(shift);
        return {nearest, rounded, static_cast<float>(shift - static_cast<double>(nearest)),
                static_cast<float>(scale - static_cast<double>(rounded))};
    }

    // The row's squares or sums have left float32, or it has an infinity or a NaN: `add_scaled` and `whole_scaled` say.
    __device__ __forceinline__ static bool overflowed(Partial p) {
        return !((kOp == Op::layernorm ? p.b : p.a) < infinity());
    }

    // Adds an element x as (x - origin) kUnit. Of a layernorm `origin` is the row's first element, so that equal elements
    // have no deviation at all; of an rmsnorm 0.
    __device__ __forceinline__ static void add_scaled(Partial& p, float x, float origin) {
        const float y = fmaf(x, kUnit, -origin * kUnit);
        if constexpr (kOp == Op::layernorm) {
            p.c += 1.0f;
            const float deviation = y - p.a;
            p.a += __fdividef(deviation, p.c);
            p.b = fmaf(deviation, y - p.a, p.b);
        } else {
            p.a = fmaf(y, y, p.a);
        }
    }

    // `whole` of such partials.
    __device__ __forceinline__ static Whole whole_scaled(Partial p, float origin, float count, float eps) {
        const float total = kOp == Op::layernorm ? p.b : kCarries ? p.a + p.b : p.a;
        const float root = rsqrtf(__fdividef(total, count) + eps * kUnit * kUnit);
        const float scale = total == 0.0f ? 0.0f * rsqrtf(eps) : root;
        return {kOp == Op::layernorm ? -fmaf(origin, kUnit, p.a) * scale : 0.0f, scale * kUnit, 0.0f, 0.0f};
    }

    // With an infinite largest element the definition of a softmax has infinity minus infinity in it.
    __device__ __forceinline__ static Whole whole_power(Partial p) {
        const bool finite = p.a - p.a == 0.0f;
        const float total = finite ? p.b : p.a - p.a;
        if constexpr (kOp == Op::softmax) {
            return {p.a, log2f(total), 0.0f, 0.0f};
        } else if constexpr (kOp == Op::log_softmax) {
            return {p.a, logf(total), 0.0f, 0.0f};
        } else {
            return {finite ? p.a + logf(p.b) : p.a, 0.0f, 0.0f, 0.0f};
        }
    }

    // The same with what rounding takes from the sum, or from its logarithm, beside it.
    __device__ __forceinline__ static Whole whole_exactly(Partial p) {
        const bool finite = p.a - p.a == 0.0f;
        const double sum = static_cast<double>(p.b) + static_cast<double>(p.c);
        const double total = finite ? sum : static_cast<double>(p.a - p.a);
        if constexpr (kOp == Op::softmax) {
            const float rounded = static_cast<float>(total);
            return {p.a, 1.0f / rounded, rounded, static_cast<float>(total - static_cast<double>(rounded))};
        } else {
            const double logarithm = log(total);
            if constexpr (kOp == Op::logsumexp) {
                return {finite ? static_cast<float>(static_cast<double>(p.a) + logarithm) : p.a, 0.0f, 0.0f, 0.0f};
            }
            const float rounded = static_cast<float>(logarithm);
            return {p.a, rounded, 0.0f, static_cast<float>(logarithm - static_cast<double>(rounded))};
        }
    }

    // exp(x - a) / b is 2 to the power of this: softmax of 16 bits.
    __device__ __forceinline__ static float exponent_of(float x, Whole row) {
        return fmaf(x - row.shift, kLog2E, -row.scale);
    }

    // What the powers over `zero` (as `add_powers` left them) are to be multiplied by: softmax of 16 bits. Powers of a
    // row's start of -infinity alone are 0 over 0, whatever the row's shift: the factor stays finite, unless it is NaN.
    __device__ __forceinline__ static float power_scale(float zero, Whole row) {
        const float exponent = exponent_of(zero, row);
        return ptx::ex2_approx_ftz_f32(exponent > 64.0f ? 64.0f : exponent);
    }

    __device__ __forceinline__ static float element(float x, Whole row) {
        if constexpr (kOp == Op::softmax && kExact) {
            const float power = exp_above<kExact>(x, row.shift);
            const float quotient = power * row.scale;
            const float left = fmaf(-quotient, row.rest, fmaf(-quotient, row.total, power));
            return fmaf(left, row.scale, quotient);  // to the nearest, mostly
        }
        if constexpr (kOp == Op::softmax) return ptx::ex2_approx_ftz_f32(exponent_of(x, row));
        if constexpr (kOp == Op::log_softmax && kExact) {
            float lost = -row.rest;
            add_exactly(x, lost, -row.shift);
            add_exactly(x, lost, -row.scale);
            return x + lost;
        }
        if constexpr (kOp == Op::log_softmax) return (x - row.shift) - row.scale;
        if constexpr (kOp == Op::layernorm && !kExact) {
            const float y = fmaf(x, row.scale, row.shift);
            return kTwoMeans ? y + row.total : y;
        }
        if constexpr (kOp == Op::layernorm) {
            float y = x * row.scale;
            const float rest = fmaf(x, row.rest, fmaf(x, row.scale, -y)) + row.total;
            return rounded_away(y, row.shift) + rest + y;
        }
        if constexpr (kExact) return fmaf(x, row.scale, x * row.rest);
        return x * row.scale;
    }
};
