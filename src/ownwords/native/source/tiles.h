// Products of bfloat16 matrices, added up in float, for matrices small enough that starting a
// product and arranging its numbers costs as much as the product: C = A B, 32 x 32 numbers at once.
//
// The matrix units multiply tiles of 16 rows of 16 pairs. A tile of A is 16 rows of 32 numbers as
// they lie in memory. A tile of B is 32 rows of 16 numbers, two rows side by side: pairs of those
// that are added up. Whoever has a matrix in another order puts it in this one, a tile at a time:
// `across`, `along` and `turned` below. Without matrix units vectors multiply the same tiles.
#pragma once

#if defined(__AMX_BF16__)
#include <immintrin.h>
#endif

#include "vectors.h"

namespace ownwords {

constexpr Long SIDE = 16;    // rows of a tile
constexpr Long DEPTH = 32;   // numbers of its rows, those that are added up
constexpr Long TILE = SIDE * DEPTH;
constexpr Long PANEL = 32;   // columns of B, and rows of A, that are multiplied at once
constexpr Long LINES = 2 * TILE;  // two tiles of B side by side

// How far rows of so many numbers are apart: an odd number of panels, or those of one column would
// fall on the same few places of a cache.
inline Long apart(Long width) { return (width / PANEL | 1) * PANEL; }

// For as long as it lives, its thread may multiply.
class Units {
  public:
#if defined(__AMX_BF16__)
    Units() {
        struct alignas(64) Shape {
            uint8_t palette = 1, start = 0, unused[14] = {};
            uint16_t width[16] = {};
            uint8_t rows[16] = {};
        } shape;
        for (int i = 0; i < 8; ++i) shape.width[i] = 64, shape.rows[i] = SIDE;
        _tile_loadconfig(&shape);
    }
    ~Units() { _tile_release(); }
#else
    Units() {}
#endif
    Units(const Units &) = delete;
    Units &operator=(const Units &) = delete;
};

// Where the tiles of A are: that of rows 16 i and numbers 32 s begins at i * down + s * along.
struct Left {
    const Bf16 *at;
    Long down, along, stride;

    Left from(Long i, Long s) const { return {at + i * down + s * along, down, along, stride}; }
};

inline Left as_it_lies(const Bf16 *at, Long stride) { return {at, SIDE * stride, DEPTH, stride}; }
// Tiles of the same rows follow one another, those of the next 16 begin `steps` tiles on.
inline Left in_tiles(const Bf16 *at, Long steps) { return {at, steps * TILE, TILE, DEPTH}; }

// Two products of each number with its neighbour's, added.
inline void add_pairs(Vector &sum, uint32_t pair, Bits pairs) {
#if defined(__AVX512BF16__)
    const __m512i same = _mm512_set1_epi32(int32_t(pair));
    sum = (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)same, (__m512bh)pairs);
#else
    const Bits same = Bits{} + pair;
    sum += (Vector)(same << 16) * (Vector)(pairs << 16);
    sum += (Vector)(same & 0xffff0000u) * (Vector)(pairs & 0xffff0000u);
#endif
}

// c [32, 32] = A's first 32 rows (16 if not `both`) times a panel of B. After each step between()
// is called: the units go on meanwhile.
template <typename Between>
inline void multiply(const Left &a, bool both, const Bf16 *b, Long steps, float *c,
                     const Between &between) {
#if defined(__AMX_BF16__)
    const Long width = a.stride * Long(sizeof(Bf16)), floats = PANEL * Long(sizeof(float));
    const Bf16 *upper = a.at, *lower = both ? a.at + a.down : a.at;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (Long s = 0; s < steps; ++s, upper += a.along, lower += a.along, b += LINES) {
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + TILE, 64);
        _tile_loadd(4, upper, width);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (both) {
            _tile_loadd(5, lower, width);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        between();
    }
    _tile_stored(0, c, floats);
    _tile_stored(1, c + SIDE, floats);
    _tile_stored(2, c + SIDE * PANEL, floats);
    _tile_stored(3, c + SIDE * PANEL + SIDE, floats);
#else
    (void)between;
    constexpr int TOGETHER = LANES == 16 ? 8 : 4, BESIDE = int(SIDE) / LANES;
    for (Long begin = 0; begin < (both ? PANEL : SIDE); begin += TOGETHER)
        for (Long half = 0; half < 2; ++half) {
            Vector sum[TOGETHER][BESIDE] = {};
            const Bf16 *rows = a.at + begin / SIDE * a.down + begin % SIDE * a.stride;
            const Bf16 *tile = b + half * TILE;
            for (Long s = 0; s < steps; ++s, rows += a.along, tile += LINES)
                for (Long p = 0; p < DEPTH / 2; ++p)
                    for (int j = 0; j < BESIDE; ++j) {
                        Bits pairs;
                        std::memcpy(&pairs, tile + p * DEPTH + 2 * j * LANES, sizeof pairs);
                        for (int i = 0; i < TOGETHER; ++i) {
                            uint32_t pair;
                            std::memcpy(&pair, rows + i * a.stride + 2 * p, sizeof pair);
                            add_pairs(sum[i][j], pair, pairs);
                        }
                    }
            for (int i = 0; i < TOGETHER; ++i)
                for (int j = 0; j < BESIDE; ++j)
                    store(c + (begin + i) * PANEL + half * SIDE + j * LANES, sum[i][j]);
        }
#endif
}

// All of C: put(row, panel, its 32 numbers). What one product made is put while the next is made.
// `beyond` is between the panels of B.
template <typename Put>
inline void product(const Left &a, const Bf16 *b, Long beyond, Long rows, Long panels, Long steps,
                    const Put &put) {
    alignas(64) float room[2][PANEL * PANEL];
    Long row = 0, panel = 0, next = 0, count = 0;  // what is being put: from `next` to `count`
    const Long share = PANEL / steps + 1;
    int which = 0;
    const auto put_until = [&](Long end) {
        const float *made = room[which ^ 1];
        for (end = end < count ? end : count; next < end; ++next)
            put(row + next, panel, made + next * PANEL);
    };
    for (Long j = 0; j < panels; ++j)
        for (Long i = 0; i < rows; i += PANEL, which ^= 1) {
            multiply(a.from(i / SIDE, 0), rows - i > SIDE, b + j * beyond, steps, room[which],
                     [&] { put_until(next + share); });
            put_until(count);
            row = i, panel = j, next = 0, count = rows - i < PANEL ? rows - i : PANEL;
        }
    put_until(count);
}

// --- the order of numbers ----------------------------------------------------------------------

// Have what will be needed soon on its way: rows are read 32 numbers at a time, from one to the
// next, which no processor foresees.
inline void fetch(const void *at) { __builtin_prefetch(at); }

// 32 numbers as bfloat16, of which `count` are there and the others 0.
#if defined(__AVX512BF16__)
typedef __m512i Line;

inline Line line_of(const Bf16 *from, Long count) {
    if (count >= DEPTH) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi16(count > 0 ? (1u << count) - 1u : 0u, from);
}

inline Line line_of(const float *from, Long count) {
    const uint32_t there = count >= DEPTH ? ~0u : count > 0 ? (1u << count) - 1u : 0u;
    const __m512 low = _mm512_maskz_loadu_ps(__mmask16(there), from);
    const __m512 high = _mm512_maskz_loadu_ps(__mmask16(there >> 16), from + SIDE);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}
#else
struct Line {
    Bf16 at[DEPTH];
};

template <typename T>
inline Line line_of(const T *from, Long count) {
    Line line{};
    each_vector(count < DEPTH ? count : DEPTH, [&](Long i, auto part) {
        store(line.at + i, load(from + i, part), part);
    });
    return line;
}
#endif

#if defined(__AVX512F__)
// Rows to columns, 16 x 16 numbers of 32 bits.
inline void turn(__m512i *x) {
    __m512i y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; ++j) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
        }
    for (int j = 0; j < 4; ++j) {
        const __m512i a = _mm512_shuffle_i32x4(x[j], x[j + 4], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(x[j], x[j + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], 0xdd);
        y[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        y[j + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        y[j + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        y[j + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    for (int i = 0; i < 16; ++i) x[i] = y[i];
}
#endif

// A tile in place: its pairs' rows to columns, which makes one of A from one of B and back.
inline void turn(Bf16 *tile) {
#if defined(__AVX512F__)
    __m512i x[16];
    for (int i = 0; i < 16; ++i) x[i] = _mm512_loadu_si512(tile + i * DEPTH);
    turn(x);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tile + i * DEPTH, x[i]);
#else
    uint32_t pairs[SIDE][SIDE];
    std::memcpy(pairs, tile, sizeof pairs);
    for (Long i = 0; i < SIDE; ++i)
        for (Long j = 0; j < i; ++j) {
            const uint32_t pair = pairs[i][j];
            pairs[i][j] = pairs[j][i];
            pairs[j][i] = pair;
        }
    std::memcpy(tile, pairs, sizeof pairs);
#endif
}

// A tile of B whose 16 columns are these rows, of 32 numbers each.
template <typename T>
inline void across(const T *from, Long stride, Long rows, Long columns, Bf16 *to) {
    for (Long n = 0; n < SIDE; ++n) {
        const Line line = line_of(from + n * stride, n < rows ? columns : 0);
        fetch(from + n * stride + DEPTH);
        std::memcpy(to + n * DEPTH, &line, sizeof line);
    }
    turn(to);
}

// Two rows side by side, number by number: 16 pairs of their first halves, 16 of the others.
inline void paired(const Line &one, const Line &other, Bf16 *first, Bf16 *second) {
#if defined(__AVX512BF16__)
    const __m512i low = _mm512_unpacklo_epi16(one, other);
    const __m512i high = _mm512_unpackhi_epi16(one, other);
    // Their quarters are four pairs each: of the first numbers low, high, low, high.
    const __m512i firsts = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i others = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(first, _mm512_permutex2var_epi64(low, firsts, high));
    _mm512_storeu_si512(second, _mm512_permutex2var_epi64(low, others, high));
#else
    for (Long n = 0; n < SIDE; ++n) {
        first[2 * n] = one.at[n], first[2 * n + 1] = other.at[n];
        second[2 * n] = one.at[SIDE + n], second[2 * n + 1] = other.at[SIDE + n];
    }
#endif
}

// Two tiles of B, one at `first` and one at `second`: these rows as they are, of 32 numbers each.
template <typename T>
inline void along(const T *from, Long stride, Long rows, Long columns, Bf16 *first, Bf16 *second) {
    for (Long p = 0; p < SIDE; ++p) {
        fetch(from + 2 * p * stride + DEPTH);
        fetch(from + (2 * p + 1) * stride + DEPTH);
        const Line one = line_of(from + 2 * p * stride, 2 * p < rows ? columns : 0);
        const Line other = line_of(from + (2 * p + 1) * stride, 2 * p + 1 < rows ? columns : 0);
        paired(one, other, first + p * DEPTH, second + p * DEPTH);
    }
}

// Two tiles of A whose rows are the columns of these rows, 32 of 32 numbers.
template <typename T>
inline void turned(const T *from, Long stride, Long rows, Long columns, Bf16 *first, Bf16 *second) {
    along(from, stride, rows, columns, first, second);
    turn(first);
    turn(second);
}

}  // namespace ownwords
