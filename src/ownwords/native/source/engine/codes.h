// Sums of products of codes: weights from 0 to 255, four in the 32 bits of an output, times
// activations from -127 to 127. As wide as the processor multiplies bytes, or else 16 bits.
#pragma once

#include "vectors.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace ownwords::engine {

// Sizes of numbers as their bits: in this order what is infinite comes after all others, and what
// is not a number after that.
inline Bits size_of(Vector x) { return (Bits)x & 0x7fffffffu; }

inline Bits larger(Bits a, Bits b) {
#if defined(__AVX512F__)
    return (Bits)_mm512_max_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Bits)_mm256_max_epu32((__m256i)a, (__m256i)b);
#else
    return a > b ? a : b;
#endif
}

inline float largest(Bits sizes) {
#if defined(__AVX512F__)
    const uint32_t bits = _mm512_reduce_max_epu32((__m512i)sizes);
#else
    uint32_t bits = sizes[0];
    for (int i = 1; i < LANES; ++i) bits = sizes[i] > bits ? sizes[i] : bits;
#endif
    float made;
    std::memcpy(&made, &bits, sizeof made);
    return made;
}

inline Whole load_codes(const void *from) {
    Whole made;
    std::memcpy(&made, from, sizeof made);
    return made;
}

#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD)

using Code = int8_t;

// The codes of four inputs, beside every output's.
struct Four {
    Whole all;

    explicit Four(const Code *codes) {
        int32_t bits;
        std::memcpy(&bits, codes, sizeof bits);
        all = Whole{} + bits;
    }
};

inline void put(Whole from, Code *to) {
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    const Bytes bytes = __builtin_convertvector(from, Bytes);
    std::memcpy(to, &bytes, sizeof bytes);
}

#if defined(__AVX512VNNI__)
constexpr int SHIFT8 = 128;  // what the weights of int8 have too much when they are multiplied

inline Whole weights8(Whole line) { return line; }

inline Whole plus_products(Whole sum, Whole weights, const Four &four) {
    return (Whole)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)four.all);
}
#else
constexpr int SHIFT8 = 0;

inline Whole weights8(Whole line) { return line ^ int32_t(0x80808080u); }

inline Whole plus_products(Whole sum, Whole weights, const Four &four) {
    return (Whole)vdotq_s32((int32x4_t)sum, (int8x16_t)weights, (int8x16_t)four.all);
}
#endif

#else

// Pairs of bytes would overflow 16 bits, so weights are widened: those of inputs 0 and 2, then
// those of 1 and 3. The activations are kept in this order.
using Code = int16_t;
constexpr int SHIFT8 = 128;

inline Whole two(const Code *codes) {
    int32_t bits;
    std::memcpy(&bits, codes, sizeof bits);
    return Whole{} + bits;
}

struct Four {
    Whole even, odd;

    explicit Four(const Code *codes) : even(two(codes)), odd(two(codes + 2)) {}
};

inline void put(Whole from, Code *to) {
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 4; ++j) to[i + j] = Code(from[i + (j % 2 * 2 + j / 2)]);
}

inline Whole weights8(Whole line) { return line; }

// Products of pairs of 16 bits, added up.
inline Whole paired(Whole a, Whole b) {
#if defined(__AVX512BW__)
    return (Whole)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Whole)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (Whole)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    const Whole low = ((Whole)((Bits)a << 16) >> 16) * ((Whole)((Bits)b << 16) >> 16);
    return low + (a >> 16) * (b >> 16);
#endif
}

inline Whole plus_products(Whole sum, Whole weights, const Four &four) {
    const Whole low = Whole{} + 0x00ff00ff;
    return sum + paired(weights & low, four.even) + paired((weights >> 8) & low, four.odd);
}

#endif

}  // namespace ownwords::engine
