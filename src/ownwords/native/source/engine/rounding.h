// Numbers to codes and back, exactly as models/quantize.py rounds a matrix.
#pragma once

#include <cmath>
#include <limits>

#include "numbers.h"

namespace ownwords::engine {

// Of IEEE's 16 bits.
inline float wide_half(uint16_t bits) {
    const uint32_t sign = uint32_t(bits >> 15) << 31, exponent = (bits >> 10) & 31u;
    const uint32_t fraction = bits & 1023u;
    float made;
    if (exponent == 0) {
        made = float(fraction) * 0x1p-24f;
        return sign ? -made : made;
    }
    const uint32_t whole =
        sign | ((exponent == 31 ? 255u : exponent + 112u) << 23) | (fraction << 13);
    std::memcpy(&made, &whole, sizeof made);
    return made;
}

// The scale of numbers that codes of this many bits stand for. It has a sign: codes reach one step
// further down than up, so the sign that puts the larger extreme below needs the smaller step; and
// rounding reaches half a step beyond the outermost codes.
template <int bits>
inline float scale_of(const float *numbers, long count) {
    constexpr float half = float(1 << (bits - 1));
    float high = 0, low = 0;
    for (long i = 0; i < count; ++i) {
        high = numbers[i] > high ? numbers[i] : high;
        low = numbers[i] < low ? numbers[i] : low;
    }
    low = -low;
    const float plain = std::fmax(low / (half + 0.5f), high / (half - 0.5f));
    const float mirrored = std::fmax(high / (half + 0.5f), low / (half - 0.5f));
    // Zeros too need a scale to be divided by.
    float step = std::fmax(std::fmin(plain, mirrored), std::numeric_limits<float>::min());
    if (bits == 4) {
        // Kept as bfloat16, and never smaller than asked for.
        uint32_t whole;
        std::memcpy(&whole, &step, sizeof whole);
        whole = (whole + 0xffffu) & ~0xffffu;
        std::memcpy(&step, &whole, sizeof whole);
    }
    return plain <= mirrored ? step : -step;
}

template <int bits>
inline int code_of(float number, float scale) {
    constexpr float half = float(1 << (bits - 1));
    const float near = std::nearbyint(number / scale);  // ties to even
    return int(near < -half ? -half : near > half - 1 ? half - 1 : near);
}

}  // namespace ownwords::engine
