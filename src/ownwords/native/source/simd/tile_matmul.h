// C = A B for small matrices of bfloat16 or float, summed in float, or of int16, summed exactly in
// int32, 32 x 32 numbers at a time. A tile of A is 16 rows of 32 numbers, row-major. A tile of B is
// 32 rows of 16 numbers; of 16 bits, pairs of rows are interleaved, as AMX requires. Both have 16
// words of 32 bits per line. pack_b_t, pack_b and pack_a_t below convert other orders. Without AMX,
// vectors multiply the same tiles.
#pragma once

#include <algorithm>

#include "simd/amx.h"
#include "simd/scratch.h"
#include "simd/vec.h"

namespace ownwords {

constexpr i64 TILE_K = 32;  // numbers of a row, the inner dimension
constexpr i64 TILE_SIZE = TILE_ROWS * TILE_K;
constexpr i64 PANEL = 32;                 // rows of A and columns of B that are multiplied at once
constexpr i64 TILE_PAIR = 2 * TILE_SIZE;  // two tiles of B side by side

// P where it is not deduced, so that scratch buffers convert.
template <typename P>
using Same = std::common_type_t<P>;

// Lines of a tile of B, and words of a row of A.
template <typename P>
constexpr i64 TILE_LINES = TILE_K * sizeof(P) / sizeof(float);

// The stride of rows in memory: an odd number of panels, so that the rows of a column do not share a
// few cache sets.
inline i64 padded_stride(i64 width) { return (width / PANEL | 1) * PANEL; }

// Tiles of A: that of rows 16 i and columns 32 s begins at i * row_stride + s * k_stride.
template <typename P>
struct TilesA {
    const P *at;
    i64 row_stride, k_stride, stride;

    TilesA from(i64 i, i64 s) const {
        return {at + i * row_stride + s * k_stride, row_stride, k_stride, stride};
    }
};

template <typename P>
inline TilesA<P> row_major(const P *at, i64 stride) {
    return {at, TILE_ROWS * stride, TILE_K, stride};
}
// The tiles of 16 rows are contiguous; those of the next 16 begin `steps` tiles further on.
template <typename P>
inline TilesA<P> tiled(const P *at, i64 steps) {
    return {at, steps * TILE_SIZE, TILE_SIZE, TILE_K};
}

// The sums of products of P, and vectors of them.
template <typename P>
using Sum = std::conditional_t<std::is_same_v<P, int16_t>, int32_t, float>;
template <typename P>
using VecSum = std::conditional_t<std::is_same_v<P, int16_t>, VecI32, VecF32>;

// Add the product of a word of A, a float or a pair of bfloat16 or int16, with each word of B.
template <typename P>
inline void add_products(VecSum<P> &sum, uint32_t word, VecU32 words) {
    const VecU32 broadcast = VecU32{} + word;
    if constexpr (std::is_same_v<P, int16_t>) {
        sum = add_pairs(sum, (VecI32)broadcast, (VecI32)words);
        return;
    } else if constexpr (sizeof(P) == sizeof(float)) {
        sum += (VecF32)broadcast * (VecF32)words;
        return;
    } else {
#if defined(__AVX512BF16__)
    sum = (VecF32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)broadcast, (__m512bh)words);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    sum = (VecF32)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)broadcast, (bfloat16x8_t)words);
#else
    sum += (VecF32)(broadcast << 16) * (VecF32)(words << 16);
    sum += (VecF32)(broadcast & 0xffff0000u) * (VecF32)(words & 0xffff0000u);
#endif
    }
}

#if defined(__AMX_BF16__)
// As matmul_tile below; interleave() is called after each step, while the tiles are busy.
template <bool accumulate, typename Interleave>
inline void matmul_tile_amx(const TilesA<Bf16> &a, bool two_rows, const Bf16 *b, i64 steps,
                            float *c, const Interleave &interleave) {
    const i64 width = a.stride * i64(sizeof(Bf16)), floats = PANEL * i64(sizeof(float));
    const Bf16 *upper = a.at, *lower = two_rows ? a.at + a.row_stride : a.at;
    asm volatile("" ::: "memory");  // GCC does not know that _tile_loadd reads memory.
    if (accumulate) {
        _tile_loadd(0, c, floats);
        _tile_loadd(1, c + TILE_ROWS, floats);
        _tile_loadd(2, c + TILE_ROWS * PANEL, floats);
        _tile_loadd(3, c + TILE_ROWS * PANEL + TILE_ROWS, floats);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (i64 s = 0; s < steps; ++s, upper += a.k_stride, lower += a.k_stride, b += TILE_PAIR) {
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + TILE_SIZE, 64);
        _tile_loadd(4, upper, width);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two_rows) {
            _tile_loadd(5, lower, width);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        interleave();
    }
    _tile_stored(0, c, floats);
    _tile_stored(1, c + TILE_ROWS, floats);
    _tile_stored(2, c + TILE_ROWS * PANEL, floats);
    _tile_stored(3, c + TILE_ROWS * PANEL + TILE_ROWS, floats);
}
#endif

// With 32 registers, both halves of a panel at once: 10 loads for 16 products. With 16 of 256 bits,
// up to 6 rows, because 8 sums would just cover the latency of their additions.
constexpr int KERNEL_ROWS = LANES == 16 ? 8 : LANES == 8 ? 6 : 4,
              KERNEL_HALVES = LANES == 16 ? 2 : 1;

// ROWS rows of c [32, 32] = rows of A times half of a panel of B, or all of it; with accumulate
// that is added. noinline: the pointers to the rows must stay in registers.
template <bool accumulate, int ROWS, typename P>
__attribute__((noinline)) void matmul_rows(const P *rows, i64 stride, i64 k_stride, const P *b,
                                           i64 steps, Sum<P> *c, const P *next) {
    constexpr int VECS = KERNEL_HALVES * int(TILE_ROWS) / LANES;
    constexpr i64 WORD = 4 / sizeof(P), LINE = TILE_ROWS * WORD;  // in numbers
    VecSum<P> sum[ROWS][VECS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < VECS; ++j)
            sum[i][j] = accumulate ? load(c + i * PANEL + j * LANES) : VecSum<P>{};
    for (i64 s = 0; s < steps; ++s, rows += k_stride, b += TILE_PAIR, next += TILE_PAIR)
        for (i64 p = 0; p < TILE_LINES<P>; ++p) {
            // Floats take twice as long to multiply, so the hardware's prefetching is early enough.
            if (KERNEL_HALVES == 2 && sizeof(P) == 2 && p % 2 == 0)
                __builtin_prefetch(next + p / 2 * LINE, 0, 2);
            VecU32 words[VECS];
#pragma GCC unroll 4
            for (int j = 0; j < VECS; ++j) {
                const i64 tile = j * LANES / TILE_ROWS * TILE_SIZE;
                std::memcpy(&words[j], b + tile + p * LINE + j * LANES % TILE_ROWS * WORD,
                            sizeof words[j]);
            }
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; ++i) {
                uint32_t word;
                std::memcpy(&word, rows + i * stride + p * WORD, sizeof word);
#pragma GCC unroll 4
                for (int j = 0; j < VECS; ++j) add_products<P>(sum[i][j], word, words[j]);
            }
        }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < VECS; ++j) store(c + i * PANEL + j * LANES, sum[i][j]);
}

// c [32, 32] = the first 32 rows of A, or 16 if not two_rows, times a panel of B; with accumulate
// that is added to c. Without AMX, as much of 16 bits as is read of B is prefetched from `next`.
template <bool accumulate, typename P>
inline void matmul_tile(const TilesA<P> &a, bool two_rows, const P *b, i64 steps, Sum<P> *c,
                        const P *next) {
#if defined(__AMX_BF16__)
    if constexpr (std::is_same_v<P, Bf16>)
        return matmul_tile_amx<accumulate>(a, two_rows, b, steps, c, [] {});
#endif
    const auto multiply = [&](auto rows, i64 row) {
        for (i64 half = 0; half < 2; half += KERNEL_HALVES)
            matmul_rows<accumulate, rows>(
                a.at + row / TILE_ROWS * a.row_stride + row % TILE_ROWS * a.stride, a.stride,
                a.k_stride, b + half * TILE_SIZE, steps, c + row * PANEL + half * TILE_ROWS,
                next + row * (TILE_PAIR / PANEL));
    };
    // The rows of a tile, divided as evenly as possible.
    constexpr int PARTS = (TILE_ROWS + KERNEL_ROWS - 1) / KERNEL_ROWS, FEWER = TILE_ROWS / PARTS,
                  MORE_ROWS = TILE_ROWS % PARTS * (FEWER + 1);  // of parts with one row more
    for (i64 tile = 0; tile < (two_rows ? PANEL : TILE_ROWS); tile += TILE_ROWS) {
        if constexpr (MORE_ROWS > 0)
            for (i64 row = 0; row < MORE_ROWS; row += FEWER + 1)
                multiply(std::integral_constant<int, FEWER + 1>{}, tile + row);
        for (i64 row = MORE_ROWS; row < TILE_ROWS; row += FEWER)
            multiply(std::integral_constant<int, FEWER>{}, tile + row);
    }
}

// Compute all of C, and call epilogue(row, panel, 32 numbers). The sums of a block of C stay in the
// second-level cache, and K_BLOCK steps of A and B are read at a time.
#if defined(__AMX_BF16__)
template <typename P>  // with fewer, loading and storing sums would take too long
constexpr i64 K_BLOCK = std::is_same_v<P, Bf16> ? 32 : sizeof(P) == 2 ? 12 : 6;
#else
template <typename P>  // as much of a panel of B as fits in the first-level cache with A
constexpr i64 K_BLOCK = sizeof(P) == 2 ? 12 : 6;
#endif
constexpr i64 BLOCK_ROWS = 4 * PANEL, BLOCK_PANELS = 8;

template <typename P, typename Epilogue>
inline void matmul_deep(const TilesA<P> &a, const Same<P> *b, i64 panel_stride, i64 rows,
                        i64 panels, i64 steps, const Epilogue &epilogue) {
    ScratchBuffer<Sum<P>> sums(BLOCK_ROWS * BLOCK_PANELS * PANEL);
    const auto multiply = [&](i64 row, i64 row_count, i64 panel, i64 panel_count, i64 step) {
        const i64 count = std::min(K_BLOCK<P>, steps - step);
        for (i64 j = 0; j < panel_count; ++j)
            for (i64 i = 0; i < row_count; i += PANEL) {
                const TilesA<P> tiles = a.from((row + i) / TILE_ROWS, step);
                const P *columns = b + (panel + j) * panel_stride + step * TILE_PAIR;
                const bool two_rows = row_count - i > TILE_ROWS;
                Sum<P> *c = steps > count ? sums + (j * BLOCK_ROWS + i) * PANEL : sums;
                // Prefetch what the next steps read: B during the first rows, then a tiled A.
                const P *next = columns;
                if (step + count < steps && i == 0)
                    next = columns + count * TILE_PAIR;
                else if (step + count < steps && a.k_stride == TILE_SIZE)
                    next = a.from(row / TILE_ROWS + j, step + count).at;
                if (step == 0)
                    matmul_tile<false>(tiles, two_rows, columns, count, c, next);
                else
                    matmul_tile<true>(tiles, two_rows, columns, count, c, next);
                if (step + count < steps) continue;
                for (i64 k = 0; k < std::min(PANEL, row_count - i); ++k)
                    epilogue(row + i + k, panel + j, c + k * PANEL);
            }
    };
    for (i64 row = 0; row < rows; row += BLOCK_ROWS)
        for (i64 panel = 0; panel < panels; panel += BLOCK_PANELS)
            for (i64 step = 0; step < steps; step += K_BLOCK<P>)
                multiply(row, std::min(BLOCK_ROWS, rows - row), panel,
                         std::min(BLOCK_PANELS, panels - panel), step);
}

// The same, bit for bit. With AMX, one product is stored while the next is computed, which is faster
// for few steps.
template <typename P, typename Epilogue>
inline void matmul(const TilesA<P> &a, const Same<P> *b, i64 panel_stride, i64 rows, i64 panels,
                   i64 steps, const Epilogue &epilogue) {
#if defined(__AMX_BF16__)
    if constexpr (std::is_same_v<P, Bf16>) {
        alignas(64) float tiles[2][PANEL * PANEL];
        i64 row = 0, panel = 0, next = 0, count = 0;  // stored so far: `next` of `count` rows
        const i64 rows_per_step = PANEL / steps + 1;
        int current = 0;
        const auto flush_until = [&](i64 end) {
            const float *result = tiles[current ^ 1];
            for (end = end < count ? end : count; next < end; ++next)
                epilogue(row + next, panel, result + next * PANEL);
        };
        for (i64 j = 0; j < panels; ++j)
            for (i64 i = 0; i < rows; i += PANEL, current ^= 1) {
                matmul_tile_amx<false>(a.from(i / TILE_ROWS, 0), rows - i > TILE_ROWS,
                                       b + j * panel_stride, steps, tiles[current],
                                       [&] { flush_until(next + rows_per_step); });
                flush_until(count);
                row = i, panel = j, next = 0, count = rows - i < PANEL ? rows - i : PANEL;
            }
        flush_until(count);
        return;
    }
#endif
    matmul_deep(a, b, panel_stride, rows, panels, steps, epilogue);
}

// --- packing ---

// Rows are read 32 numbers at a time, which hardware prefetchers do not predict.
inline void prefetch(const void *at) { __builtin_prefetch(at); }

// 32 numbers of a row.
template <typename P>
struct Line {
    P at[TILE_K];
};

// Zeros beyond `count`.
template <typename P, typename T>
inline Line<P> load_line(const T *from, i64 count) {
    Line<P> line{};
    for_each_vec(std::clamp<i64>(count, 0, TILE_K),
                 [&](i64 i, auto part) { store(line.at + i, load(from + i, part), part); });
    return line;
}

template <>
inline Line<int16_t> load_line(const int16_t *from, i64 count) {
    Line<int16_t> line{};
    std::memcpy(line.at, from, size_t(std::clamp<i64>(count, 0, TILE_K)) * sizeof *from);
    return line;
}

#if defined(__AVX512BF16__)
template <>
inline Line<Bf16> load_line(const Bf16 *from, i64 count) {
    const uint32_t mask = count >= TILE_K ? ~0u : count > 0 ? (1u << count) - 1u : 0u;
    Line<Bf16> line;
    _mm512_storeu_si512(&line, _mm512_maskz_loadu_epi16(mask, from));
    return line;
}

template <>
inline Line<Bf16> load_line(const float *from, i64 count) {
    const uint32_t mask = count >= TILE_K ? ~0u : count > 0 ? (1u << count) - 1u : 0u;
    const __m512 low = _mm512_maskz_loadu_ps(__mmask16(mask), from);
    const __m512 high = _mm512_maskz_loadu_ps(__mmask16(mask >> 16), from + TILE_ROWS);
    Line<Bf16> line;
    _mm512_storeu_si512(&line, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    return line;
}
#endif

// Transpose 16 x 16 words of 32 bits, also in place; strides in words.
inline void transpose16(const void *from, i64 from_stride, void *to, i64 to_stride) {
    const auto *source = static_cast<const uint32_t *>(from);
    auto *target = static_cast<uint32_t *>(to);
#if defined(__AVX512F__)
    __m512i x[16], y[16];
    for (int i = 0; i < 16; ++i) x[i] = _mm512_loadu_si512(source + i * from_stride);
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
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(target + i * to_stride, y[i]);
#else
    uint32_t words[TILE_ROWS][TILE_ROWS];
    for (i64 i = 0; i < TILE_ROWS; ++i)
        std::memcpy(words[i], source + i * from_stride, sizeof words[i]);
    for (i64 j = 0; j < TILE_ROWS; ++j)
        for (i64 i = 0; i < TILE_ROWS; ++i) target[j * to_stride + i] = words[i][j];
#endif
}

// Pack a tile of B whose 16 columns are these rows.
template <typename P, typename T>
inline void pack_b_t(const T *from, i64 stride, i64 rows, i64 columns, P *to) {
    constexpr i64 LINES = TILE_LINES<P>;
    Line<P> lines[TILE_ROWS];
    for (i64 n = 0; n < TILE_ROWS; ++n) {
        lines[n] = load_line<P>(from + n * stride, n < rows ? columns : 0);
        prefetch(from + n * stride + TILE_K);
    }
    for (i64 k = 0; k < LINES; k += TILE_ROWS)
        transpose16(lines[0].at + k, LINES, to + k * TILE_ROWS, TILE_ROWS);
}

// Lines 2 p and 2 p + 1 of two tiles of B side by side, or their interleaved line p.
template <typename P>
inline void pack_rows(const Line<P> &even, const Line<P> &odd, i64 p, P *lower, P *upper) {
    lower += p * TILE_K, upper += p * TILE_K;
    if constexpr (std::is_same_v<P, float>) {
        std::memcpy(lower, even.at, sizeof even / 2);
        std::memcpy(upper, even.at + TILE_ROWS, sizeof even / 2);
        std::memcpy(lower + TILE_ROWS, odd.at, sizeof odd / 2);
        std::memcpy(upper + TILE_ROWS, odd.at + TILE_ROWS, sizeof odd / 2);
        return;
    }
#if defined(__AVX512BF16__)
    const __m512i a = _mm512_loadu_si512(&even), b = _mm512_loadu_si512(&odd);
    const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
    // Quarters hold four pairs each, alternately of the lower and upper half.
    const __m512i first_pairs = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second_pairs = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(lower, _mm512_permutex2var_epi64(low, first_pairs, high));
    _mm512_storeu_si512(upper, _mm512_permutex2var_epi64(low, second_pairs, high));
#else
    for (i64 n = 0; n < TILE_ROWS; ++n) {
        lower[2 * n] = even.at[n], lower[2 * n + 1] = odd.at[n];
        upper[2 * n] = even.at[TILE_ROWS + n], upper[2 * n + 1] = odd.at[TILE_ROWS + n];
    }
#endif
}

// Pack two tiles of B whose rows are these 32.
template <typename P, typename T>
inline void pack_b(const T *from, i64 stride, i64 rows, i64 columns, P *lower, P *upper) {
    for (i64 p = 0; p < TILE_ROWS; ++p) {
        const T *even = from + 2 * p * stride, *odd = even + stride;
        prefetch(even + TILE_K);
        prefetch(odd + TILE_K);
        pack_rows(load_line<P>(even, 2 * p < rows ? columns : 0),
                  load_line<P>(odd, 2 * p + 1 < rows ? columns : 0), p, lower, upper);
    }
}

// Pack two tiles of A whose rows are the columns of these 32 rows.
template <typename P, typename T>
inline void pack_a_t(const T *from, i64 stride, i64 rows, i64 columns, P *lower, P *upper) {
    constexpr i64 LINES = TILE_LINES<P>;
    alignas(64) P tiles[TILE_PAIR];
    pack_b(from, stride, rows, columns, tiles, tiles + TILE_SIZE);
    for (i64 k = 0; k < LINES; k += TILE_ROWS) {
        transpose16(tiles + k * TILE_ROWS, TILE_ROWS, lower + k, LINES);
        transpose16(tiles + TILE_SIZE + k * TILE_ROWS, TILE_ROWS, upper + k, LINES);
    }
}

}  // namespace ownwords
