// Scalars of float and bfloat16, and vectors of float, as wide as the processor's, loaded from and
// stored to both. Written out, because compilers need many more instructions for loops over bfloat16.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

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

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float VecF32 __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t VecI32 __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t VecU32 __attribute__((vector_size(LANES * sizeof(float))));
typedef uint16_t VecU16 __attribute__((vector_size(LANES * sizeof(uint16_t))));

#if defined(__AVX512F__)
constexpr VecI32 kIota = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif defined(__AVX__)
constexpr VecI32 kIota = {0, 1, 2, 3, 4, 5, 6, 7};
#else
constexpr VecI32 kIota = {0, 1, 2, 3};
#endif

// The lanes in use: all, or the rest of a row.
struct FullVec {
    static constexpr i64 count = LANES;
};

struct TailVec {
    i64 count;
};

// Call body(at, FullVec or TailVec) for each vector of a row.
template <typename Body>
inline void for_each_vec(i64 width, const Body &body) {
    i64 at = 0;
    for (; at + LANES <= width; at += LANES) body(at, FullVec{});
    if (at < width) body(at, TailVec{width - at});
}

inline VecF32 load(const float *from, FullVec = {}) {
    VecF32 result;
    std::memcpy(&result, from, sizeof result);
    return result;
}

inline VecF32 load(const Bf16 *from, FullVec = {}) {
#if defined(__AVX512F__)
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
    return (VecF32)((VecU32)_mm512_cvtepu16_epi32(halves) << 16);
#else
    VecU16 halves;
    std::memcpy(&halves, from, sizeof halves);
    return (VecF32)(__builtin_convertvector(halves, VecU32) << 16);
#endif
}

// Lanes beyond the tail are 0.
template <typename T>
inline VecF32 load(const T *from, TailVec part) {
    T lanes[LANES] = {};
    std::memcpy(lanes, from, size_t(part.count) * sizeof(T));
    return load(lanes);
}

inline void store(float *to, VecF32 x, FullVec = {}) { std::memcpy(to, &x, sizeof x); }

// To nearest even; NaN propagates.
inline void store(Bf16 *to, VecF32 x, FullVec = {}) {
#if defined(__AVX512BF16__)
    const __m256bh halves = _mm512_cvtneps_pbh((__m512)x);
    std::memcpy(to, &halves, sizeof halves);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    const bfloat16x4_t halves = vcvt_bf16_f32((float32x4_t)x);
    std::memcpy(to, &halves, sizeof halves);
#else
    const VecU32 bits = (VecU32)x;
    const VecU32 near = bits + 0x7fffu + ((bits >> 16) & 1u);
    const VecU16 halves = __builtin_convertvector((x == x ? near : bits | 0x400000u) >> 16, VecU16);
    std::memcpy(to, &halves, sizeof halves);
#endif
}

template <typename T>
inline void store(T *to, VecF32 x, TailVec part) {
    T lanes[LANES];
    store(lanes, x);
    std::memcpy(to, lanes, size_t(part.count) * sizeof(T));
}

inline VecI32 load(const int32_t *from) {
    VecI32 result;
    std::memcpy(&result, from, sizeof result);
    return result;
}

inline void store(int32_t *to, VecI32 x) { std::memcpy(to, &x, sizeof x); }

inline VecF32 to_float(VecI32 x) { return __builtin_convertvector(x, VecF32); }

// The nearest integers, to even; `x` is within 32 bits.
inline VecI32 round_to_int(VecF32 x) {
#if defined(__AVX512F__)
    return (VecI32)_mm512_cvtps_epi32((__m512)x);
#elif defined(__AVX__)
    return (VecI32)_mm256_cvtps_epi32((__m256)x);
#elif defined(__SSE2__)
    return (VecI32)_mm_cvtps_epi32((__m128)x);
#elif defined(__aarch64__)
    return (VecI32)vcvtnq_s32_f32((float32x4_t)x);
#else
    return __builtin_convertvector(x + 12582912.0f - 12582912.0f, VecI32);
#endif
}

// Add the products of pairs of int16: exactly, modulo 2^32.
inline VecI32 add_pairs(VecI32 sum, VecI32 a, VecI32 b) {
#if defined(__AVX512VNNI__)
    return (VecI32)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVXVNNI__)
    return (VecI32)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#else
#if defined(__AVX2__)
    const VecI32 products = (VecI32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    const VecI32 products = (VecI32)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    const VecI32 low = ((VecI32)((VecU32)a << 16) >> 16) * ((VecI32)((VecU32)b << 16) >> 16);
    const VecI32 products = (VecI32)((VecU32)low + (VecU32)((a >> 16) * (b >> 16)));
#endif
    return (VecI32)((VecU32)sum + (VecU32)products);
#endif
}

// Set the lanes beyond the tail to `others`.
inline VecF32 mask_tail(VecF32 x, FullVec, float) { return x; }

inline VecF32 mask_tail(VecF32 x, TailVec part, float others) {
    for (int i = int(part.count); i < LANES; ++i) x[i] = others;
    return x;
}

// Not VecF32{} + x, which compilers must compute, because of -0.
inline VecF32 splat(float x) { return x - VecF32{}; }

// Set the lanes of x, which are positions from `at` on, to `otherwise` outside [from, to).
inline VecF32 mask_range(VecF32 x, i64 at, i64 from, i64 to, float otherwise) {
    const VecI32 position = kIota + int32_t(at);
    return ((position >= int32_t(from)) & (position < int32_t(to))) ? x : splat(otherwise);
}

// NaN in `b` propagates.
#if defined(__AVX512F__)
inline VecF32 max(VecF32 a, VecF32 b) { return (VecF32)_mm512_max_ps((__m512)a, (__m512)b); }
inline VecF32 min(VecF32 a, VecF32 b) { return (VecF32)_mm512_min_ps((__m512)a, (__m512)b); }
#else
inline VecF32 max(VecF32 a, VecF32 b) { return a > b ? a : b; }
inline VecF32 min(VecF32 a, VecF32 b) { return a < b ? a : b; }
#endif

inline float reduce_add(VecF32 x) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float numbers[LANES];
    std::memcpy(numbers, &x, sizeof numbers);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) numbers[i] += numbers[i + half];
    return numbers[0];
#endif
}

inline float reduce_max(VecF32 x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float result = x[0];
    for (int i = 1; i < LANES; ++i) result = x[i] > result ? x[i] : result;
    return result;
#endif
}

// Results that are stored as bfloat16 need no exact exp.
template <typename T>
constexpr bool FAST_MATH = sizeof(T) == 2;

// exp(x) for x clamped to [-87, 87], within 2 ulp. Fast: within a relative 5e-6 for x <= 1, and
// more above, as x is rounded.
template <bool fast = false>
inline VecF32 exp(VecF32 x) {
    const float round = 12582912.0f;  // 1.5 * 2^23 rounds to integers
    const VecF32 bound = max(splat(-87.0f), min(splat(87.0f), x));
    const VecF32 turns = bound * 1.44269504f + round, n = turns - round;
    VecF32 result;
    if (fast) {
        const VecF32 f = bound * 1.44269504f - n;
        result = f * 0.009570096619427204f + 0.05591785907745361f;
        result = result * f + 0.240247443318367f;
        result = result * f + 0.6931217908859253f;
        result = result * f + 0.9999992847442627f;
    } else {
        const VecF32 r = (bound - n * 0.693359375f) + n * 2.12194440e-4f;
        VecF32 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        result = p * (r * r) + r + 1.0f;
    }
    return (VecF32)((VecU32)result + ((VecU32)turns << 23));
}

// 1 / x for x from 1 to 2^126. Fast: within a relative 7e-5, without a division.
template <bool fast = false>
inline VecF32 reciprocal(VecF32 x) {
#if defined(__AVX512F__)
    const VecF32 result = (VecF32)_mm512_rcp14_ps((__m512)x);
    return fast ? result : result * (2.0f - x * result);
#else
    return 1.0f / x;
#endif
}

// Silu and gelu (tanh approximation), with their gradients.
struct ActGrad {
    VecF32 value, grad;
};

struct Silu {
    template <bool fast>
    static ActGrad at(VecF32 x) {
        const VecF32 s = reciprocal<fast>(1.0f + exp<fast>(-x));
        return {x * s, s * (1.0f + x * (1.0f - s))};
    }
};

struct Gelu {
    template <bool fast>
    static ActGrad at(VecF32 x) {
        const float root = 0.7978845608f, cubic = 0.044715f;
        const VecF32 square = x * x;
        const VecF32 inner = root * x * (1.0f + cubic * square);
        // (1 + tanh(inner)) / 2
        const VecF32 s = reciprocal<fast>(1.0f + exp<fast>(-2.0f * inner));
        const VecF32 inner_grad = 2.0f * root * (1.0f + 3.0f * cubic * square);
        return {x * s, s + x * s * (1.0f - s) * inner_grad};
    }
};

}  // namespace ownwords
