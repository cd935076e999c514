// Rows rounded to int16, with one scale per row. The scale keeps a row's norm below the root of 2^31,
// so that by the Cauchy-Schwarz inequality the product of two rows fits 32 bits: its sum is exact,
// in any order. A row of 576 keeps some 11 bits of a typical number, however large the largest is.
// Every instruction set rounds to the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "simd/scratch.h"
#include "simd/tile_matmul.h"

namespace ownwords {

inline VecF32 magnitude(VecF32 x) { return (VecF32)((VecU32)x & 0x7fffffffu); }

// The square of the first 12 bits of a number, which is exact, whether it is fused with a sum or not.
inline VecF32 exact_square(VecF32 x) {
    const VecF32 high = (VecF32)((VecU32)x & 0xfffff000u);
    return high * high;
}

// A row is multiplied by `inverse` and rounded. NaN for a row with a number that is not finite.
struct Int16Scale {
    float scale, inverse;

    // From the largest magnitude and the sum of exact squares.
    Int16Scale(float largest, float squares, i64 width) : scale(0), inverse(0) {
        if (!(squares <= std::numeric_limits<float>::max()))
            scale = std::numeric_limits<float>::quiet_NaN();
        else if (largest > 0) {
            // 46340 is the root; 1/1024 less for the bits that squares lack.
            const float root = std::sqrt(float(width)), limit = 46294.0f - 0.5f * root;
            const float norm = squares > 1e-30f ? std::sqrt(squares) : largest * root;
            inverse = std::min(32767.0f / largest, limit / norm);
            scale = 1.0f / inverse;
        }
    }
};

inline void store_int16(int16_t *to, VecF32 x) {
    typedef int16_t VecI16 __attribute__((vector_size(LANES * sizeof(int16_t))));
    const VecI16 rounded = __builtin_convertvector(round_to_int(x), VecI16);
    std::memcpy(to, &rounded, sizeof rounded);
}

// Round a row, whose width is a multiple of 16; return its scale.
template <typename T>
float round_row(const T *from, i64 width, int16_t *to) {
    constexpr int SUMS = 16;  // on every instruction set
    VecF32 largest{}, squares[SUMS / LANES] = {};
    for (i64 c = 0; c < width; c += SUMS)
        for (int i = 0; i < SUMS / LANES; ++i) {
            const VecF32 x = load(from + c + i * LANES);
            largest = max(largest, magnitude(x));
            squares[i] += exact_square(x);
        }
    float sums[SUMS];
    std::memcpy(sums, squares, sizeof sums);
    for (int half = SUMS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    const Int16Scale scale(reduce_max(largest), sums[0], width);
    for (i64 c = 0; c < width; c += LANES) store_int16(to + c, load(from + c) * scale.inverse);
    return scale.scale;
}

// Round 16 rows, of which `used` exist, and pack them as columns of B: a tile in each pair of tiles.
template <typename T>
void round_rows_b_t(const T *from, i64 width, i64 used, int16_t *to, float *scales) {
    ScratchBuffer<int16_t> rows(TILE_ROWS * width);
    for (i64 row = 0; row < TILE_ROWS; ++row)
        scales[row] = row < used ? round_row(from + row * width, width, rows + row * width) : 0.0f;
    for (i64 c = 0; c < width; c += TILE_K, to += TILE_PAIR)
        pack_b_t<int16_t, int16_t>(rows + c, width, used, TILE_K, to);
}

// Round `columns` columns of a matrix of `rows` rows, and pack them as tiles of B whose panels are
// `rows` long, rounded up. for_rows calls its argument for each row: (row, its first of the columns).
constexpr i64 COLUMN_BAND = 4 * PANEL;  // at most

template <typename ForRows>
void round_columns(i64 rows, i64 columns, int16_t *to, float *scales, const ForRows &for_rows) {
    constexpr i64 VECS = COLUMN_BAND / LANES;
    VecF32 largest[VECS] = {}, squares[VECS] = {}, inverses[VECS];
    for_rows([&](i64, const auto *from) {
        for (i64 i = 0; i < columns / LANES; ++i) {
            const VecF32 x = load(from + i * LANES);
            largest[i] = max(largest[i], magnitude(x));
            squares[i] += exact_square(x);
        }
    });
    for (i64 c = 0; c < columns; ++c) {
        const i64 i = c / LANES, lane = c % LANES;
        const Int16Scale scale(largest[i][lane], squares[i][lane], rows);
        scales[c] = scale.scale, inverses[i][lane] = scale.inverse;
    }
    ScratchBuffer<int16_t> band(TILE_K * columns);
    const i64 steps = (rows + TILE_K - 1) / TILE_K;
    for_rows([&](i64 row, const auto *from) {
        const i64 in_band = row % TILE_K + 1;
        for (i64 i = 0; i < columns / LANES; ++i)
            store_int16(band + (in_band - 1) * columns + i * LANES,
                        load(from + i * LANES) * inverses[i]);
        if (in_band < TILE_K && row + 1 < rows) return;
        for (i64 c = 0; c < columns; c += PANEL) {
            int16_t *tiles = to + (c / PANEL * steps + row / TILE_K) * TILE_PAIR;
            pack_b<int16_t, int16_t>(band + c, columns, in_band, PANEL, tiles, tiles + TILE_SIZE);
        }
    });
}

}  // namespace ownwords
