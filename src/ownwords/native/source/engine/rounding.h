// Numbers to codes and back, exactly as models/quantize.py rounds a matrix.
#pragma once

#include <cmath>
#include <limits>

#include "vectors.h"

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

// Sixteen bits to a float, LANES of them.
inline Vector wide_halves(const uint16_t *from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    const Bits bits = __builtin_convertvector(halves, Bits);
    const Bits sign = (bits >> 15) << 31, exponent = bits & 0x7c00u, fraction = bits & 1023u;
    const Bits plain = ((bits & 0x7fffu) << 13) + (exponent == 0x7c00u ? Bits{} + (224u << 23)
                                                                       : Bits{} + (112u << 23));
    const Bits small = (Bits)(__builtin_convertvector((Whole)fraction, Vector) * 0x1p-24f);
    return (Vector)(sign | (exponent == 0 ? small : plain));
}

// Scale and codes of numbers, in codes of this many bits. A scale has a sign: codes reach one step
// further down than up, so the sign that puts the larger extreme below needs the smaller step; and
// rounding reaches half a step beyond the outermost codes.
template <int bits>
struct Rounding {
    static constexpr float half = float(1 << (bits - 1));
    float scale;

    // Of a multiple of LANES numbers.
    Rounding(const float *numbers, Long count) {
        Vector above{}, below{};
        for (Long i = 0; i < count; i += LANES) {
            const Vector x = load(numbers + i);
            above = larger(above, x);
            below = larger(below, -x);
        }
        const float high = largest(above), low = largest(below);
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
        scale = plain <= mirrored ? step : -step;
    }

    // From 0 on, to the nearest, ties to even.
    Bits codes(Vector x) const {
        // The lowest bits of a float this large are its whole number.
        const Vector large = every(0x1.8p23f), ratio = x / every(scale);
        const Vector near = (ratio + large) - large;
        const Vector within = larger(every(-half), smaller(every(half - 1), near));
        return (Bits)(within + (large + half)) - (Bits)large;
    }
};

}  // namespace ownwords::engine
