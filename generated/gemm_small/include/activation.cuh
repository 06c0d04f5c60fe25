// Activations, in float. Any thread may call any of these.
#pragma once

enum class Activation { none, relu, gelu, silu };

template <Activation kActivation>
__device__ __forceinline__ float activate(float x) {
    if constexpr (kActivation == Activation::relu) return x < 0.0f ? 0.0f : x;  // a NaN stays a NaN
    if constexpr (kActivation == Activation::gelu) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    if constexpr (kActivation == Activation::silu) return x / (1.0f + expf(-x));
    return x;
}
