// What all products share: a few panels times a few rows at a time, so that sums stay in registers.
//
// A kernel has `SUMS`, how many vectors of sums there are registers for, `UNPACKS`, whether weights
// take work before they are multiplied, so that few passes over them are best, and
// `block<P, R>(work, p, apart, n, sums)`, which multiplies P panels, from p on and so many apart, by
// rows n to n + R.
#pragma once

#include <algorithm>

#include "engine/kinds.h"
#include "vectors.h"
#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ownwords::engine {

constexpr int PARTS = int(PANEL) / LANES;  // vectors in a line
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int REGISTERS = 24;  // of 32, for sums
#else
constexpr int REGISTERS = 12;  // of 16
#endif

// With one rounding wherever there is such an instruction, and not as a compiler sees fit: products
// of any number of rows are to agree.
inline Vector plus_product(Vector sum, Vector a, Vector b) {
#if defined(__AVX512F__)
    return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__FMA__)
    return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined(__aarch64__)
    return (Vector)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#else
    return sum + a * b;
#endif
}

inline Vector plus_product(Vector sum, Vector a, float b) {
#if defined(__AVX512F__)
    return plus_product(sum, a, (Vector)_mm512_set1_ps(b));
#elif defined(__FMA__)
    return plus_product(sum, a, (Vector)_mm256_set1_ps(b));
#elif defined(__aarch64__)
    return plus_product(sum, a, every(b));
#else
    return sum + a * b;
#endif
}

// Panels are read side by side, as memory gives more to several streams than to one: panels that are
// far apart, as it gives still more to streams that go on where they are for long.
constexpr Long RUN = 8;  // panels of a stream, at most: some 100 kB

// body(p, apart) for panels p, p + apart, ... to the number of P; the first that is left.
template <int P, typename Body>
inline Long side_by_side(Long first, Long last, const Body &body) {
    while (last - first >= P) {
        const Long apart = std::min(RUN, (last - first) / P);
        for (Long p = first; p < first + apart; ++p) body(p, apart);
        first += P * apart;
    }
    return first;
}

// Have what comes 2 KiB behind a line brought nearer: into the second cache, and line by line, as
// the first takes but few requests at a time.
inline void ask_behind(const unsigned char *line) { __builtin_prefetch(line + 2048); }

// Rows from n on, as many at a time as asked for; fewer at the end.
template <class Kernel, int P, int R>
inline void all_rows(const Work &w, Long p, Long apart, Long n, Long at_once) {
    if (at_once >= R) {
        for (; n + R <= w.rows; n += R) {
            Vector sums[P][R][PARTS];
            Kernel::template block<P, R>(w, p, apart, n, sums);
            for (int i = 0; i < P; ++i)
                put_out(w, p + i * apart, n, R, reinterpret_cast<const float *>(sums[i]));
        }
    }
    if constexpr (R > 1)
        if (n < w.rows) all_rows<Kernel, P, R - 1>(w, p, apart, n, at_once);
}

// The most rows that P panels are multiplied by at a time.
template <class Kernel, int P>
constexpr int most_rows() {
    constexpr int FIT = Kernel::SUMS / (P * PARTS);
    static_assert(FIT > 0);
    return FIT < 8 ? FIT : 8;
}

// How often the weights are gone over.
template <class Kernel, int P>
inline Long passes(Long rows) {
    return (rows + most_rows<Kernel, P>() - 1) / most_rows<Kernel, P>();
}

template <class Kernel, int P>
inline Long panels_at_once(const Work &w, Long first, Long last) {
    // Evenly, as a few sums at once leave the processor waiting for each.
    const Long parts = passes<Kernel, P>(w.rows), at_once = (w.rows + parts - 1) / parts;
    return side_by_side<P>(first, last, [&](Long p, Long apart) {
        all_rows<Kernel, P, most_rows<Kernel, P>()>(w, p, apart, 0, at_once);
    });
}

template <class Kernel>
inline void all_panels(const Work &w, Long first, Long last) {
    constexpr int WIDE = Kernel::SUMS / PARTS;  // panels that fit with one row
    if constexpr (WIDE >= 4)
        if (w.rows <= WIDE / 4 || WIDE >= 24) first = panels_at_once<Kernel, 4>(w, first, last);
    if constexpr (WIDE >= 2)
        if (!Kernel::UNPACKS || passes<Kernel, 2>(w.rows) <= passes<Kernel, 1>(w.rows))
            first = panels_at_once<Kernel, 2>(w, first, last);
    panels_at_once<Kernel, 1>(w, first, last);
}

}  // namespace ownwords::engine
