// A vector is 16 bytes of a row: what one thread copies, reads and computes at a time. Copies into shared memory,
// unpacking, and stores of results, whatever the alignment of rows. Any thread may call any of these.
#pragma once

#include "numbers.cuh"
#include "ptx/cp_async.cuh"
#include "types.cuh"

constexpr u32 kVectorBytes = 16;

template <u32 kBytes>
struct alignas(kBytes) Words {
    u32 words[kBytes / 4];
};

template <typename T>
struct Vector {
    float of[kVectorBytes / sizeof(T)];
};

// The 16-bit element in the lower half of a word.
template <typename T>
__device__ __forceinline__ T element_of(u32 word) {
    return {static_cast<u16>(word)};
}

template <typename T>
__device__ __forceinline__ Vector<T> unpack(Words<16> bytes) {
    Vector<T> x;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 4) {
            x.of[i] = ptx::mov_f32_b32(bytes.words[i]);
        } else {
            x.of[2 * i] = to_f32(element_of<T>(bytes.words[i]));
            x.of[2 * i + 1] = to_f32(element_of<T>(bytes.words[i] >> 16));
        }
    }
    return x;
}

// A word of elements of -infinity.
template <typename T>
constexpr u32 kLowest = 0xFF800000;
template <>
constexpr u32 kLowest<bf16> = 0xFF80FF80;
template <>
constexpr u32 kLowest<fp16> = 0xFC00FC00;

// The vector with everything from byte `bytes` on replaced by that of `nothing`.
__device__ __forceinline__ Words<16> masked(Words<16> x, u32 bytes, u32 nothing) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        const u32 kept = bytes >= 4 * i + 4 ? 0xFFFFFFFF : bytes >= 4 * i + 2 ? 0x0000FFFF : 0;
        x.words[i] = (x.words[i] & kept) | (nothing & ~kept);
    }
    return x;
}

// Begins to copy the first `bytes` (1 to 16) of a vector into a slot. kAnyAlignment: where rows are not all multiples of
// 16 the copy is done on return, an element at a time.
template <typename T, bool kAnyAlignment>
__device__ __forceinline__ void copy_vector(char* slot, u32 slot_address, const char* source, u32 bytes,
                                            bool aligned) {
    if (!kAnyAlignment || aligned) {
        ptx::cp_async_cg_16(slot_address, source, bytes);
    } else if constexpr (kAnyAlignment) {
        Words<16> gathered{};
#pragma unroll
        for (u32 i = 0; i < kVectorBytes; i += sizeof(T)) {
            if (i >= bytes) continue;
            if constexpr (sizeof(T) == 4) {
                gathered.words[i / 4] = *reinterpret_cast<const u32*>(source + i);
            } else {
                gathered.words[i / 4] |= static_cast<u32>(*reinterpret_cast<const u16*>(source + i)) << (8 * (i % 4));
            }
        }
        *reinterpret_cast<Words<16>*>(slot) = gathered;
    }
}

// A vector's worth of weights or biases, of which the first `count` are there. The rest is 0.
template <typename T, bool kAnyAlignment>
__device__ __forceinline__ Words<16> load_words(const T* __restrict__ source, u32 count, bool aligned) {
    constexpr u32 kCount = kVectorBytes / sizeof(T);
    if (count == kCount && (!kAnyAlignment || aligned)) return *reinterpret_cast<const Words<16>*>(source);
    Words<16> words{};
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
        if (i >= count) continue;
        if constexpr (sizeof(T) == 4) {
            words.words[i] = *reinterpret_cast<const u32*>(source + i);
        } else {
            words.words[i / 2] |= static_cast<u32>(*reinterpret_cast<const u16*>(source + i)) << (16 * (i % 2));
        }
    }
    return words;
}

// The first `count` of a vector's results.
template <typename T, u32 kCount, bool kAnyAlignment>
__device__ __forceinline__ void store_vector(T* destination, const float (&y)[kCount], u32 count, bool aligned) {
    constexpr u32 kWidth = kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16;  // bytes of one store
    constexpr u32 kEach = kWidth / sizeof(T);
    if (count == kCount && (!kAnyAlignment || aligned)) {
#pragma unroll
        for (u32 i = 0; i < kCount; i += kEach) {
            Words<kWidth> packed;
#pragma unroll
            for (u32 j = 0; j < kWidth / 4; ++j) {
                if constexpr (sizeof(T) == 4) {
                    packed.words[j] = ptx::mov_b32_f32(y[i + j]);
                } else {
                    packed.words[j] = pack<T>(y[i + 2 * j], y[i + 2 * j + 1]);
                }
            }
            *reinterpret_cast<Words<kWidth>*>(destination + i) = packed;
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) {
            if (i < count) destination[i] = from_f32<T>(y[i]);
        }
    }
}
