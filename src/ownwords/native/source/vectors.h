// Vectors of float, as wide as the processor has them: read from float or bfloat16, written back.
// Spelled out, because compilers turn loops over bfloat16 into many more instructions than this.
#pragma once

#include <cstring>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "numbers.h"

namespace ownwords {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Whole __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t Bits __attribute__((vector_size(LANES * sizeof(float))));
typedef uint16_t Halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

#if defined(__AVX512F__)
constexpr Whole NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif defined(__AVX__)
constexpr Whole NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7};
#else
constexpr Whole NUMBERS = {0, 1, 2, 3};
#endif

// How many of a vector's numbers there are: all, or what is left of a row.
struct Full {
    static constexpr Long count = LANES;
};

struct Part {
    Long count;
};

// body(at, Full or Part) for all of a row.
template <typename Body>
inline void each_vector(Long width, const Body &body) {
    Long at = 0;
    for (; at + LANES <= width; at += LANES) body(at, Full{});
    if (at < width) body(at, Part{width - at});
}

inline Vector load(const float *from, Full = {}) {
    Vector made;
    std::memcpy(&made, from, sizeof made);
    return made;
}

inline Vector load(const Bf16 *from, Full = {}) {
#if defined(__AVX512F__)
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
    return (Vector)((Bits)_mm512_cvtepu16_epi32(halves) << 16);
#else
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    return (Vector)(__builtin_convertvector(halves, Bits) << 16);
#endif
}

// What is not there is read as 0.
template <typename T>
inline Vector load(const T *from, Part part) {
    T whole[LANES] = {};
    std::memcpy(whole, from, size_t(part.count) * sizeof(T));
    return load(whole);
}

inline void store(float *to, Vector x, Full = {}) { std::memcpy(to, &x, sizeof x); }

// To the nearest, ties to even; what is not a number stays none.
inline void store(Bf16 *to, Vector x, Full = {}) {
#if defined(__AVX512BF16__)
    const __m256bh halves = _mm512_cvtneps_pbh((__m512)x);
    std::memcpy(to, &halves, sizeof halves);
#else
    const Bits bits = (Bits)x;
    const Bits near = bits + 0x7fffu + ((bits >> 16) & 1u);
    const Halves halves = __builtin_convertvector((x == x ? near : bits | 0x400000u) >> 16, Halves);
    std::memcpy(to, &halves, sizeof halves);
#endif
}

template <typename T>
inline void store(T *to, Vector x, Part part) {
    T whole[LANES];
    store(whole, x);
    std::memcpy(to, whole, size_t(part.count) * sizeof(T));
}

// These numbers, and others in place of those that are not there.
inline Vector only(Vector x, Full, float) { return x; }

inline Vector only(Vector x, Part part, float others) {
    for (int i = int(part.count); i < LANES; ++i) x[i] = others;
    return x;
}

inline Vector every(float x) { return Vector{} + x; }

// Where `b` is not a number, neither is what is made.
#if defined(__AVX512F__)
inline Vector larger(Vector a, Vector b) { return (Vector)_mm512_max_ps((__m512)a, (__m512)b); }
inline Vector smaller(Vector a, Vector b) { return (Vector)_mm512_min_ps((__m512)a, (__m512)b); }
#else
inline Vector larger(Vector a, Vector b) { return a > b ? a : b; }
inline Vector smaller(Vector a, Vector b) { return a < b ? a : b; }
#endif

inline float summed(Vector x) {
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

inline float largest(Vector x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float made = x[0];
    for (int i = 1; i < LANES; ++i) made = x[i] > made ? x[i] : made;
    return made;
#endif
}

// What a result is kept as says how exact it has to be.
template <typename T>
constexpr bool ROUGH = sizeof(T) == 2;

// Below -87 as at -87, 1.6e-38, and above 87 as there. Within 2 units in the last place; if rough,
// within 5e-6 of the value up to 1, and more above as x itself is rounded.
template <bool rough = false>
inline Vector exp(Vector x) {
    const float round = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to whole numbers
    const Vector bound = larger(every(-87.0f), smaller(every(87.0f), x));
    const Vector turns = bound * 1.44269504f + round, n = turns - round;
    Vector made;
    if (rough) {
        const Vector f = bound * 1.44269504f - n;
        made = f * 0.009570096619427204f + 0.05591785907745361f;
        made = made * f + 0.240247443318367f;
        made = made * f + 0.6931217908859253f;
        made = made * f + 0.9999992847442627f;
    } else {
        const Vector r = (bound - n * 0.693359375f) + n * 2.12194440e-4f;
        Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        made = p * (r * r) + r + 1.0f;
    }
    return (Vector)((Bits)made + ((Bits)turns << 23));
}

// 1 / x for x from 1 to 2^126; if rough, within 7e-5. Dividing such long vectors takes longer.
template <bool rough = false>
inline Vector inverse(Vector x) {
#if defined(__AVX512F__)
    const Vector made = (Vector)_mm512_rcp14_ps((__m512)x);
    return rough ? made : made * (2.0f - x * made);
#else
    return 1.0f / x;
#endif
}

}  // namespace ownwords
