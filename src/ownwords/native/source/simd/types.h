// Float and bfloat16 scalars.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

using i64 = int64_t;

namespace ownwords {

struct Bf16 {
    uint16_t bits;
};

inline float to_float(float x) { return x; }

inline float to_float(Bf16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

inline void store(float &to, float x) { to = x; }

// To nearest even; NaN propagates.
inline void store(Bf16 &to, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const uint32_t near = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t none = (bits >> 16) | 0x40u;
    to.bits = uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? none : near);
}

}  // namespace ownwords
