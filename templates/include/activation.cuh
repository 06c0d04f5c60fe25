// Activations, in float. Any thread may call any of these.
#pragma once

#include "ptx/approximate.cuh"

enum class Activation { none, relu, gelu, silu };

// The error function to 3e-7: Abramowitz and Stegun 7.1.26. Half the instructions of erff, and none of them waits for a
// choice between two series, so that a compiler can work on many values at once.
__device__ __forceinline__ float fast_erf(float x) {
    const float z = x < 0.0f ? -x : x;
    const float t = ptx::rcp_approx(1.0f + 0.3275911f * z);
    float series = 1.061405429f;
    series = series * t - 1.453152027f;
    series = series * t + 1.421413741f;
    series = series * t - 0.284496736f;
    series = series * t + 0.254829592f;
    const float rest = series * t * ptx::ex2_approx(-1.44269504f * z * z);  // erfc(z)
    return x < 0.0f ? rest - 1.0f : 1.0f - rest;
}

template <Activation kActivation>
__device__ __forceinline__ float activate(float x) {
    if constexpr (kActivation == Activation::relu) return x < 0.0f ? 0.0f : x;  // a NaN stays a NaN
    if constexpr (kActivation == Activation::gelu) return 0.5f * x * (1.0f + fast_erf(x * 0.70710678118654752f));
    if constexpr (kActivation == Activation::silu) return x / (1.0f + expf(-x));
    return x;
}
