// float and bfloat16, and exp: all in forms that a compiler turns into vector instructions.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "long.h"

namespace ownwords {

struct Bf16 {
    uint16_t bits;
};

inline float wide(float x) { return x; }

inline float wide(Bf16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float made;
    std::memcpy(&made, &bits, sizeof made);
    return made;
}

inline void put(float &to, float x) { to = x; }

// To the nearest, ties to even; what is not a number stays none.
inline void put(Bf16 &to, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const uint32_t near = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t none = (bits >> 16) | 0x40u;
    to.bits = uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? none : near);
}

// Within 2 units in the last place; 0 below -87.3, as large as it gets above 88.
inline float fast_exp(float x) {
    const float low = -87.3f, high = 88.3f;
    const float bound = x < low ? low : (x > high ? high : x);
    const float turns = bound * 1.44269504f;
    const int32_t whole = int32_t(turns + 128.5f) - 128;
    const float n = float(whole);
    const float r = (bound - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const int32_t bits = (whole + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    const float made = (p * r * r + r + 1.0f) * power;
    return x < low ? 0.0f : made;
}

// Call body(T*) with the type that `kind` names: 0 float, 1 bfloat16.
template <typename Body>
void with_kind(int kind, const Body &body) {
    if (kind == 0)
        body(static_cast<float *>(nullptr));
    else
        body(static_cast<Bf16 *>(nullptr));
}

}  // namespace ownwords

#if defined(_WIN32)
#define OWNWORDS_API extern "C" __declspec(dllexport)
#else
#define OWNWORDS_API extern "C" __attribute__((visibility("default")))
#endif
