// Activations for int8 weights with AVX512-VNNI: 15-bit integers, 128 * high byte + low byte, with one scale
// per row. The rows of low bytes follow those of high bytes.
#include "engine/panel_loops.h"
#include "engine/int8_dot.h"
#if defined(OWNWORDS_INT15)

namespace ownwords::engine {
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
    // NaN if the largest is infinite, and so for every product.
    input.scales[n] = (max_abs - max_abs) + max_abs * (1.0f / MAX_INT15);
    input.corrections[2 * n] = -INT8_OFFSET * _mm512_reduce_add_epi32(high_sum);
    input.corrections[2 * n + 1] = -INT8_OFFSET * _mm512_reduce_add_epi32(low_sum);
}

// Integers up to this one rounding of each output: the order of summation does not matter.
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

}  // namespace ownwords::engine
#endif
