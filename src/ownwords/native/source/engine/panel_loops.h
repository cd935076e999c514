// The loops that all products share: a few panels times a few rows at a time, so that sums stay in
// registers.
// A kernel has SUMS, the vectors of sums that fit into registers; UNPACKS, whether weights need
// unpacking, so that few passes over them are best; and block<P, R>(args, p, stride, n, sums),
// which multiplies P panels, p, p + stride, ..., by rows [n, n + R).
#pragma once

#include <algorithm>

#include "engine/kernels.h"
#include "simd/vec.h"
#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ownwords::engine {

constexpr int VECS_PER_LINE = int(PANEL) / LANES;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int SUM_REGISTERS = 24;  // of 32
#else
constexpr int SUM_REGISTERS = 12;  // of 16
#endif

// Always fused where the processor can, so that products of any number of rows agree.
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

inline VecF32 fma(VecF32 sum, VecF32 a, float b) {
#if defined(__AVX512F__)
    return fma(sum, a, (VecF32)_mm512_set1_ps(b));
#elif defined(__FMA__)
    return fma(sum, a, (VecF32)_mm256_set1_ps(b));
#elif defined(__aarch64__)
    return fma(sum, a, splat(b));
#else
    return sum + a * b;
#endif
}

// Memory is faster with several streams than with one, and with streams that go on for long. So
// panels are read side by side that are far apart.
constexpr i64 MAX_RUN = 8;  // panels per stream, at most: some 100 kB

// body(p, stride) for P panels p, p + stride, ... at a time. The first panel left over.
template <int P, typename Body>
inline i64 for_panel_streams(i64 first, i64 last, const Body &body) {
    while (last - first >= P) {
        const i64 stride = std::min(MAX_RUN, (last - first) / P);
        for (i64 p = first; p < first + stride; ++p) body(p, stride);
        first += P * stride;
    }
    return first;
}

// Into the second-level cache: the first takes few requests at a time.
inline void prefetch_ahead(const unsigned char *line) { __builtin_prefetch(line + 2048); }

// Rows from n on, at most rows_at_once together.
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

// The most rows that P panels are multiplied with at a time.
template <class Kernel, int P>
constexpr int max_rows() {
    constexpr int FIT = Kernel::SUMS / (P * VECS_PER_LINE);
    static_assert(FIT > 0);
    return FIT < 8 ? FIT : 8;
}

template <class Kernel, int P>
inline i64 weight_passes(i64 rows) {
    return (rows + max_rows<Kernel, P>() - 1) / max_rows<Kernel, P>();
}

template <class Kernel, int P>
inline i64 matmul_panels(const MatmulArgs &w, i64 first, i64 last) {
    // Evenly: a pass with few sums would wait for each addition.
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
        if (w.rows <= PANELS_PER_ROW / 4 || PANELS_PER_ROW >= 24)
            first = matmul_panels<Kernel, 4>(w, first, last);
    if constexpr (PANELS_PER_ROW >= 2)
        if (!Kernel::UNPACKS ||
            weight_passes<Kernel, 2>(w.rows) <= weight_passes<Kernel, 1>(w.rows))
            first = matmul_panels<Kernel, 2>(w, first, last);
    matmul_panels<Kernel, 1>(w, first, last);
}

}  // namespace ownwords::engine
