// Products with int8 weights: integer sums within groups of 32 inputs, float sums of those.
#include "engine/kernels.h"

namespace ownwords::engine {
namespace {

// P panels, `stride` apart. load_pair loads the weights of 4 inputs at `within` (in a group's first
// four lines), and of the 4 inputs that are 16 further on.
template <int P>
struct Panels {
    const unsigned char *panels[P];

    Panels(const MatmulArgs &w, i64 p, i64 stride) {
        const i64 bytes = i64(w.matrix.panel_bytes());
        for (int i = 0; i < P; ++i) panels[i] = w.matrix.lines + (p + i * stride) * bytes;
    }

    void load_pair(int i, i64 group, i64 within, VecI32 &first, VecI32 &second) const {
        const unsigned char *at = panels[i] + group * 8 * LINE + within;
        prefetch_ahead(at);
        prefetch_ahead(at + 4 * LINE);
        first = load_codes(at);
        second = load_codes(at + 4 * LINE);
    }
};

constexpr int INT_SUM_REGISTERS = SUM_REGISTERS / 2;  // half for integers, half for floats

inline VecF32 as_floats(VecI32 x) { return __builtin_convertvector(x, VecF32); }

template <int P, int R>
inline void init_counts(const MatmulArgs &w, i64 n, i64 group,
                        VecI32 (&counts)[P][R][VECS_PER_LINE]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        const VecI32 correction = VecI32{} + w.input.corrections[group * w.rows + n + r];
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < VECS_PER_LINE; ++v) counts[i][r][v] = correction;
    }
}

inline const Code *codes(const MatmulInput &input) {
    return reinterpret_cast<const Code *>(input.codes);
}

struct Int8Kernel {
    static constexpr int SUMS = INT_SUM_REGISTERS, ROWS = 8;
    // With 16 lanes there are registers for two panels and six rows.
    static constexpr bool FEW_PASSES = LANES < 16;

    template <int P, int R>
    static void block(const MatmulArgs &w, i64 p, i64 stride, i64 n,
                      VecF32 (&out)[P][R][VECS_PER_LINE]) {
        const i64 depth = w.matrix.depth(), groups = depth / GROUP;
        const Panels<P> panels(w, p, stride);
        const Code *in = codes(w.input) + n * depth;
        VecF32 sums[P][R][VECS_PER_LINE] = {};
        for (i64 g = 0; g < groups; ++g) {
            VecI32 counts[P][R][VECS_PER_LINE];
            init_counts(w, n, g, counts);
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                VecI32 weights[2][P][VECS_PER_LINE];
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < VECS_PER_LINE; ++v)
                        panels.load_pair(i, g, j * LINE + v * i64(sizeof(VecI32)), weights[0][i][v],
                                         weights[1][i][v]);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
                    for (int half = 0; half < 2; ++half) {
                        const Activations4 activations(in + r * depth + g * GROUP + half * 16 +
                                                       j * 4);
#pragma GCC unroll 4
                        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                            for (int v = 0; v < VECS_PER_LINE; ++v)
                                counts[i][r][v] =
                                    dot_add(counts[i][r][v], int8_operand(weights[half][i][v]),
                                            activations);
                    }
            }
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const float scale = w.input.scales[g * w.rows + n + r];
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < VECS_PER_LINE; ++v)
                        sums[i][r][v] = fma(sums[i][r][v], as_floats(counts[i][r][v]), scale);
            }
        }
        for (int i = 0; i < P; ++i)
            for (int v = 0; v < VECS_PER_LINE; ++v) {
                const float *scales = scales_of(w, p + i * stride);
                for (int r = 0; r < R; ++r) out[i][r][v] = sums[i][r][v] * load(scales + v * LANES);
            }
    }
};

}  // namespace

const float *scales_of(const MatmulArgs &w, i64 panel) {
    const i64 end = (panel + 1) * i64(w.matrix.panel_bytes());
    return reinterpret_cast<const float *>(w.matrix.lines + end - LINE);
}

void matmul_int8(const MatmulArgs &work, i64 first, i64 last) {
    matmul_all<Int8Kernel>(work, first, last);
}

#if defined(OWNWORDS_INT15)
// Activations for int8 weights with AVX-512: 15-bit integers, 128 * high byte + low byte, with
// one scale per row. The rows of low bytes follow those of high bytes.

namespace {

constexpr float MAX_INT15 = 127 * 128;
constexpr i64 STEP = 64;

struct ScaleToInt {
    __m512 scale;

    __m512i operator()(const float *from) const {
        return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from), scale));
    }
};

// Split 64 numbers into bytes, and add up the bytes.
inline void split_bytes(const float *from, const ScaleToInt &scaled, int8_t *highs, int8_t *lows,
                        __m512i &high_sum, __m512i &low_sum) {
    // Packing works within quarters of a vector; this puts them in order.
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i first_words = _mm512_packs_epi32(scaled(from), scaled(from + 16));
    const __m512i second_words = _mm512_packs_epi32(scaled(from + 32), scaled(from + 48));
    const __m512i half = _mm512_set1_epi16(64);
    const __m512i high_one = _mm512_srai_epi16(_mm512_add_epi16(first_words, half), 7);
    const __m512i high_two = _mm512_srai_epi16(_mm512_add_epi16(second_words, half), 7);
    const __m512i low_one = _mm512_sub_epi16(first_words, _mm512_slli_epi16(high_one, 7));
    const __m512i low_two = _mm512_sub_epi16(second_words, _mm512_slli_epi16(high_two, 7));
    const __m512i high = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(high_one, high_two));
    const __m512i low = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low_one, low_two));
    _mm512_storeu_si512(highs, high);
    _mm512_storeu_si512(lows, low);
    high_sum = _mm512_dpbusd_epi32(high_sum, _mm512_set1_epi8(1), high);
    low_sum = _mm512_dpbusd_epi32(low_sum, _mm512_set1_epi8(1), low);
}

}  // namespace

void prepare_int15(const Matrix &m, const float *in, i64 rows, i64 n, MatmulInput &input) {
    VecU32 max_bits{};
    for_each_vec(m.inputs, [&](i64 k, auto part) {
        max_bits = max(max_bits, magnitude_bits(load(in + k, part)));
    });
    const float max_abs = reduce_max(max_bits);
    const ScaleToInt scaled{_mm512_set1_ps(max_abs > 1e-30f ? MAX_INT15 / max_abs : 0.0f)};
    const i64 depth = m.depth();
    int8_t *highs = input.codes + n * depth, *lows = input.codes + (rows + n) * depth;
    __m512i high_sum = _mm512_setzero_si512(), low_sum = high_sum;
    i64 k = 0;
    for (; k + STEP <= m.inputs; k += STEP)
        split_bytes(in + k, scaled, highs + k, lows + k, high_sum, low_sum);
    if (k < m.inputs) {
        float tail[STEP] = {};
        std::copy(in + k, in + m.inputs, tail);
        split_bytes(tail, scaled, highs + k, lows + k, high_sum, low_sum);
    }
    // NaN, as is every product, if the largest is infinite.
    input.scales[n] = (max_abs - max_abs) + max_abs * (1.0f / MAX_INT15);
    input.corrections[2 * n] = -INT8_OFFSET * _mm512_reduce_add_epi32(high_sum);
    input.corrections[2 * n + 1] = -INT8_OFFSET * _mm512_reduce_add_epi32(low_sum);
}

// Each output is rounded only here, so the order of the integer sums does not matter.
void store_int15_sums(const MatmulArgs &w, i64 panel, i64 n, i64 rows, const int32_t *high,
                      const int32_t *low) {
    const i64 first = panel * PANEL, count = std::min(PANEL, w.matrix.outputs - first);
    const __mmask16 mask = __mmask16((1u << count) - 1);
    const __m512 scales = _mm512_load_ps(scales_of(w, panel)), high_scale = _mm512_set1_ps(128);
    const __m512 bias =
        w.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, w.bias + first);
    for (i64 r = 0; r < rows; ++r) {
        const int32_t *corrections = w.input.corrections + 2 * (n + r);
        const __m512 high_part = _mm512_cvtepi32_ps(_mm512_add_epi32(
            _mm512_loadu_si512(high + r * PANEL), _mm512_set1_epi32(corrections[0])));
        const __m512 low_part = _mm512_cvtepi32_ps(_mm512_add_epi32(
            _mm512_loadu_si512(low + r * PANEL), _mm512_set1_epi32(corrections[1])));
        const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(w.input.scales[n + r]));
        const __m512 result =
            _mm512_fmadd_ps(_mm512_fmadd_ps(high_part, high_scale, low_part), scale, bias);
        _mm512_mask_storeu_ps(w.out + (n + r) * w.stride + first, mask, result);
    }
}

// Products with int8 weights in vectors: the same integers as in amx.cpp, which is faster with four
// rows or more.

namespace {

template <int P, int R>
void block(const MatmulArgs &w, i64 p, i64 stride, i64 n) {
    const i64 depth = w.matrix.depth();
    const Panels<P> panels(w, p, stride);
    const int8_t *highs = w.input.codes + n * depth, *lows = highs + w.rows * depth;
    VecI32 high[P][R] = {}, low[P][R] = {};
    for (i64 k = 0; k < depth; k += GROUP) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            VecI32 weights[2][P];
#pragma GCC unroll 4
            for (int i = 0; i < P; ++i)
                panels.load_pair(i, k / GROUP, j * LINE, weights[0][i], weights[1][i]);
#pragma GCC unroll 3
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
                for (int half = 0; half < 2; ++half) {
                    const i64 at = r * depth + k + half * 16 + j * 4;
                    const Activations4 high_codes(highs + at), low_codes(lows + at);
#pragma GCC unroll 4
                    for (int i = 0; i < P; ++i) {
                        high[i][r] = dot_add(high[i][r], weights[half][i], high_codes);
                        low[i][r] = dot_add(low[i][r], weights[half][i], low_codes);
                    }
                }
        }
    }
    // Copies: taking the address of the sums would keep them out of registers.
    int32_t high_codes[P][R][PANEL], low_codes[P][R][PANEL];
    std::memcpy(high_codes, high, sizeof high_codes);
    std::memcpy(low_codes, low, sizeof low_codes);
    for (int i = 0; i < P; ++i)
        store_int15_sums(w, p + i * stride, n, R, high_codes[i][0], low_codes[i][0]);
}

// Three rows at a time, because no more sums of four panels fit into registers.
template <int P>
void matmul_rows(const MatmulArgs &w, i64 p, i64 stride) {
    i64 n = 0;
    for (; n + 3 <= w.rows; n += 3) block<P, 3>(w, p, stride, n);
    if (w.rows - n == 2) block<P, 2>(w, p, stride, n);
    if (w.rows - n == 1) block<P, 1>(w, p, stride, n);
}

}  // namespace

void matmul_int15(const MatmulArgs &w, i64 first, i64 last) {
    first = for_panel_streams<4>(first, last,
                                 [&](i64 p, i64 stride) { matmul_rows<4>(w, p, stride); });
    for_panel_streams<1>(first, last, [&](i64 p, i64 stride) { matmul_rows<1>(w, p, stride); });
}

#endif

}  // namespace ownwords::engine
