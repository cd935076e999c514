// Dot products of quantized numbers: unsigned weights, four in the 32 bits of an output, times
// activations from -127 to 127; with VNNI or NEON dot products, or else by 16-bit multiplication.
#pragma once

#include "simd/vec.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace ownwords::engine {

// Absolute values as integers, whose order puts infinity after all numbers and NaN after infinity.
inline VecU32 magnitude_bits(VecF32 x) { return (VecU32)x & 0x7fffffffu; }

inline VecU32 max(VecU32 a, VecU32 b) {
#if defined(__AVX512F__)
    return (VecU32)_mm512_max_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (VecU32)_mm256_max_epu32((__m256i)a, (__m256i)b);
#else
    return a > b ? a : b;
#endif
}

inline float reduce_max(VecU32 sizes) {
#if defined(__AVX512F__)
    const uint32_t bits = _mm512_reduce_max_epu32((__m512i)sizes);
#else
    uint32_t bits = sizes[0];
    for (int i = 1; i < LANES; ++i) bits = sizes[i] > bits ? sizes[i] : bits;
#endif
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

inline VecI32 load_codes(const void *from) {
    VecI32 result;
    std::memcpy(&result, from, sizeof result);
    return result;
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)

using Code = int8_t;

// The activations of four inputs, broadcast to all outputs.
struct Activations4 {
    VecI32 all;

    explicit Activations4(const Code *codes) {
        int32_t bits;
        std::memcpy(&bits, codes, sizeof bits);
        all = VecI32{} + bits;
    }
};

inline void store_codes(VecI32 from, Code *to) {
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    const Bytes bytes = __builtin_convertvector(from, Bytes);
    std::memcpy(to, &bytes, sizeof bytes);
}

#if defined(__x86_64__)
constexpr int INT8_OFFSET = 128;  // what int8 weights are stored with too much

inline VecI32 int8_operand(VecI32 line) { return line; }

inline VecI32 dot_add(VecI32 sum, VecI32 weights, const Activations4 &four) {
#if defined(__AVX512VNNI__)
    return (VecI32)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)four.all);
#else
    return (VecI32)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)four.all);
#endif
}
#else
constexpr int INT8_OFFSET = 0;

inline VecI32 int8_operand(VecI32 line) { return line ^ int32_t(0x80808080u); }

inline VecI32 dot_add(VecI32 sum, VecI32 weights, const Activations4 &four) {
    return (VecI32)vdotq_s32((int32x4_t)sum, (int8x16_t)weights, (int8x16_t)four.all);
}
#endif

#else

// Products of bytes would overflow 16 bits, so weights are widened: those of inputs 0 and 2, then
// of 1 and 3. The activations are kept in this order.
using Code = int16_t;
constexpr int INT8_OFFSET = 128;

inline VecI32 broadcast_pair(const Code *codes) {
    int32_t bits;
    std::memcpy(&bits, codes, sizeof bits);
    return VecI32{} + bits;
}

struct Activations4 {
    VecI32 even, odd;

    explicit Activations4(const Code *codes)
        : even(broadcast_pair(codes)), odd(broadcast_pair(codes + 2)) {}
};

inline void store_codes(VecI32 from, Code *to) {
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 4; ++j) to[i + j] = Code(from[i + (j % 2 * 2 + j / 2)]);
}

inline VecI32 int8_operand(VecI32 line) { return line; }

inline VecI32 madd_pairs(VecI32 a, VecI32 b) {
#if defined(__AVX512BW__)
    return (VecI32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (VecI32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (VecI32)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    const VecI32 low = ((VecI32)((VecU32)a << 16) >> 16) * ((VecI32)((VecU32)b << 16) >> 16);
    return low + (a >> 16) * (b >> 16);
#endif
}

inline VecI32 dot_add(VecI32 sum, VecI32 weights, const Activations4 &four) {
    const VecI32 low = VecI32{} + 0x00ff00ff;
    return sum + madd_pairs(weights & low, four.even) + madd_pairs((weights >> 8) & low, four.odd);
}

#endif

}  // namespace ownwords::engine
