// Shared by the matrix products: products by weight type, dot products of quantized numbers, and
// loops over panels and rows.
#pragma once

#include <algorithm>

#include "engine/matmul.h"
#include "simd/vec.h"

namespace ownwords {

// Whether vectors multiply bfloat16 faster than float, as measured: see rates.cpp.
bool has_fast_bf16_vectors();

}  // namespace ownwords

namespace ownwords::engine {

struct MatmulArgs {
    const Matrix &matrix;
    const MatmulInput &input;
    i64 rows;
    const float *bias;
    float *out;
    i64 stride;
};

// Store a panel's sums of some rows, plus bias. Not inlined: compilers would add the bias before
// rounding in some kernels and after it in others.
void store_sums(const MatmulArgs &work, i64 panel, i64 row, i64 rows, const float *sums);

// Panels [first, last) times all rows.
void matmul_f32(const MatmulArgs &work, i64 first, i64 last);
void matmul_bf16(const MatmulArgs &work, i64 first, i64 last);
void matmul_int8(const MatmulArgs &work, i64 first, i64 last);

// The scales of an int8 panel.
const float *scales_of(const MatmulArgs &work, i64 panel);

#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
#define OWNWORDS_AMX 1
void amx_bf16(const MatmulArgs &work, i64 first, i64 last);
void amx_int8(const MatmulArgs &work, i64 first, i64 last);
#endif

#if defined(__AVX512F__)
// Products of int8 weights are of 15-bit activations, with AMX and without it, to the bit.
#define OWNWORDS_INT15 1
void matmul_int15(const MatmulArgs &work, i64 first, i64 last);

// See matmul_quantized.cpp.
void prepare_int15(const Matrix &matrix, const float *in, i64 rows, i64 row, MatmulInput &input);
void store_int15_sums(const MatmulArgs &work, i64 panel, i64 row, i64 rows, const int32_t *high,
                      const int32_t *low);
#endif

// Dot products of quantized numbers: unsigned weights, four in the 32 bits of an output, times
// activations from -127 to 127; with VNNI or NEON dot products, or else by 16-bit multiplication.

// Absolute values as integers, ordered: all numbers, infinity, NaN.
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

#if defined(__AVX512F__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)

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
constexpr int INT8_OFFSET = 128;  // added to stored int8 weights

inline VecI32 int8_operand(VecI32 line) { return line; }

inline VecI32 dot_add(VecI32 sum, VecI32 weights, const Activations4 &four) {
#if defined(__AVX512F__)
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

inline VecI32 dot_add(VecI32 sum, VecI32 weights, const Activations4 &four) {
    const VecI32 low = VecI32{} + 0x00ff00ff;
    return add_pairs(add_pairs(sum, weights & low, four.even), (weights >> 8) & low, four.odd);
}

#endif

// The loops of all products: a few panels times a few rows at a time, so that sums stay in registers.
// A kernel has SUMS, the vectors of sums that fit into registers; ROWS, the maximum number of rows at
// a time; FEW_PASSES, whether few passes over the weights are best; and block<P, R>(args, p, stride,
// n, sums), which multiplies P panels, p, p + stride, ..., by rows [n, n + R).

constexpr int VECS_PER_LINE = int(PANEL) / LANES;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int SUM_REGISTERS = 24;  // of 32
#else
constexpr int SUM_REGISTERS = 12;  // of 16
#endif

// Fused on every processor that can, so that products of any number of rows agree.
inline VecF32 fma(VecF32 sum, VecF32 a, VecF32 b) {
#if defined(__AVX512F__)
    return (VecF32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__FMA__)
    return (VecF32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined(__aarch64__)
    return (VecF32)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#else
    return sum + a * b;
#endif
}

inline VecF32 fma(VecF32 sum, VecF32 a, float b) { return fma(sum, a, splat(b)); }

// Memory is faster with several long streams than with one, so panels that are far apart are read
// side by side.
constexpr i64 MAX_RUN = 8;  // panels per stream: some 100 kB

// Call body(p, stride) for P panels p, p + stride, ... at a time. Returns the first panel left over.
template <int P, typename Body>
inline i64 for_panel_streams(i64 first, i64 last, const Body &body) {
    while (last - first >= P) {
        const i64 stride = std::min(MAX_RUN, (last - first) / P);
        for (i64 p = first; p < first + stride; ++p) body(p, stride);
        first += P * stride;
    }
    return first;
}

// Into the second-level cache, because the first takes few requests at a time.
inline void prefetch_ahead(const unsigned char *line) { __builtin_prefetch(line + 2048); }

// Multiply rows from n on, at most rows_at_once together.
template <class Kernel, int P, int R>
inline void matmul_rows(const MatmulArgs &w, i64 p, i64 stride, i64 n, i64 rows_at_once) {
    if (rows_at_once >= R) {
        for (; n + R <= w.rows; n += R) {
            VecF32 sums[P][R][VECS_PER_LINE];
            Kernel::template block<P, R>(w, p, stride, n, sums);
            for (int i = 0; i < P; ++i)
                store_sums(w, p + i * stride, n, R, reinterpret_cast<const float *>(sums[i]));
        }
    }
    if constexpr (R > 1)
        if (n < w.rows) matmul_rows<Kernel, P, R - 1>(w, p, stride, n, rows_at_once);
}

// The maximum number of rows that P panels are multiplied with at a time.
template <class Kernel, int P>
constexpr int max_rows() {
    constexpr int FIT = Kernel::SUMS / (P * VECS_PER_LINE);
    static_assert(FIT > 0);
    return std::min(FIT, Kernel::ROWS);
}

template <class Kernel, int P>
inline i64 weight_passes(i64 rows) {
    return (rows + max_rows<Kernel, P>() - 1) / max_rows<Kernel, P>();
}

template <class Kernel, int P>
inline i64 matmul_panels(const MatmulArgs &w, i64 first, i64 last) {
    // Evenly, because a pass with few sums would wait for each addition.
    const i64 weight_passes_needed = weight_passes<Kernel, P>(w.rows),
              rows_at_once = (w.rows + weight_passes_needed - 1) / weight_passes_needed;
    return for_panel_streams<P>(first, last, [&](i64 p, i64 stride) {
        matmul_rows<Kernel, P, max_rows<Kernel, P>()>(w, p, stride, 0, rows_at_once);
    });
}

template <class Kernel>
inline void matmul_all(const MatmulArgs &w, i64 first, i64 last) {
    constexpr int PANELS_PER_ROW = Kernel::SUMS / VECS_PER_LINE;  // panels that fit with one row
    if constexpr (PANELS_PER_ROW >= 4)
        if (w.rows <= PANELS_PER_ROW / 4) first = matmul_panels<Kernel, 4>(w, first, last);
    if constexpr (PANELS_PER_ROW >= 2)
        if (!Kernel::FEW_PASSES ||
            weight_passes<Kernel, 2>(w.rows) <= weight_passes<Kernel, 1>(w.rows))
            first = matmul_panels<Kernel, 2>(w, first, last);
    matmul_panels<Kernel, 1>(w, first, last);
}

}  // namespace ownwords::engine
