// Quantization, exactly as in models/quantize.py.
#pragma once

#include <cmath>
#include <limits>

#include "simd/vec.h"

namespace ownwords::engine {

// IEEE half precision.
inline float half_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t(bits >> 15) << 31, exponent = (bits >> 10) & 31u;
    const uint32_t fraction = bits & 1023u;
    float result;
    if (exponent == 0) {
        result = float(fraction) * 0x1p-24f;
        return sign ? -result : result;
    }
    const uint32_t pattern =
        sign | ((exponent == 31 ? 255u : exponent + 112u) << 23) | (fraction << 13);
    std::memcpy(&result, &pattern, sizeof result);
    return result;
}

inline VecF32 load_half(const uint16_t *from) {
    VecU16 halves;
    std::memcpy(&halves, from, sizeof halves);
    const VecU32 bits = __builtin_convertvector(halves, VecU32);
    const VecU32 sign = (bits >> 15) << 31, exponent = bits & 0x7c00u, fraction = bits & 1023u;
    const VecU32 step_plain =
        ((bits & 0x7fffu) << 13) +
        (exponent == 0x7c00u ? VecU32{} + (224u << 23) : VecU32{} + (112u << 23));
    const VecU32 small = (VecU32)(__builtin_convertvector((VecI32)fraction, VecF32) * 0x1p-24f);
    return (VecF32)(sign | (exponent == 0 ? small : step_plain));
}

// The scale and codes of a group of numbers. The scale is signed: codes reach one step further down
// than up, so the sign that makes the larger extreme negative gives the smaller step. Rounding
// reaches half a step beyond the outermost codes.
template <int bits>
struct Quantizer {
    static constexpr float half = float(1 << (bits - 1));
    float scale;

    // `count` is a multiple of LANES.
    Quantizer(const float *numbers, i64 count) {
        VecF32 above{}, below{};
        for (i64 i = 0; i < count; i += LANES) {
            const VecF32 x = load(numbers + i);
            above = max(above, x);
            below = max(below, -x);
        }
        const float high = reduce_max(above), low = reduce_max(below);
        const float step_plain = std::fmax(low / (half + 0.5f), high / (half - 0.5f));
        const float mirrored = std::fmax(high / (half + 0.5f), low / (half - 0.5f));
        // Zeros need a scale to be divided by, too.
        float step = std::fmax(std::fmin(step_plain, mirrored), std::numeric_limits<float>::min());
        if (bits == 4) {
            // Stored as bfloat16, rounded up.
            uint32_t pattern;
            std::memcpy(&pattern, &step, sizeof pattern);
            pattern = (pattern + 0xffffu) & ~0xffffu;
            std::memcpy(&step, &pattern, sizeof pattern);
        }
        scale = step_plain <= mirrored ? step : -step;
    }

    // Unsigned, rounded to nearest even.
    VecU32 codes(VecF32 x) const {
        // The lowest bits of a float this large are an integer.
        const VecF32 magic = splat(0x1.8p23f), ratio = x / splat(scale);
        const VecF32 rounded = (ratio + magic) - magic;
        const VecF32 clamped = max(splat(-half), min(splat(half - 1), rounded));
        return (VecU32)(clamped + (magic + half)) - (VecU32)magic;
    }
};

}  // namespace ownwords::engine
