// Activations for products with int8 on AMX: whole numbers of 15 bits, 128 times a high byte plus a
// low one. A row has one scale; the rows of low bytes come after those of high ones.
#include "engine/blocks.h"
#include "engine/codes.h"
#if defined(OWNWORDS_TILES)

namespace ownwords::engine {
namespace {

constexpr float MOST = 127 * 128;
constexpr Long STEP = 64;  // numbers at a time

struct Scaled {
    __m512 by;

    __m512i operator()(const float *from) const {
        return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from), by));
    }
};

// 64 numbers; their sums of high and of low bytes are added to those that there are.
inline void split(const float *from, const Scaled &scaled, int8_t *highs, int8_t *lows,
                  __m512i &high_sum, __m512i &low_sum) {
    // Packing goes by quarters of a vector; afterwards they are put in order.
    const __m512i order =
        _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i one = _mm512_packs_epi32(scaled(from), scaled(from + 16));
    const __m512i two = _mm512_packs_epi32(scaled(from + 32), scaled(from + 48));
    const __m512i half = _mm512_set1_epi16(64);
    const __m512i high_one = _mm512_srai_epi16(_mm512_add_epi16(one, half), 7);
    const __m512i high_two = _mm512_srai_epi16(_mm512_add_epi16(two, half), 7);
    const __m512i low_one = _mm512_sub_epi16(one, _mm512_slli_epi16(high_one, 7));
    const __m512i low_two = _mm512_sub_epi16(two, _mm512_slli_epi16(high_two, 7));
    const __m512i high =
        _mm512_permutexvar_epi32(order, _mm512_packs_epi16(high_one, high_two));
    const __m512i low = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low_one, low_two));
    _mm512_storeu_si512(highs, high);
    _mm512_storeu_si512(lows, low);
    high_sum = _mm512_dpbusd_epi32(high_sum, _mm512_set1_epi8(1), high);
    low_sum = _mm512_dpbusd_epi32(low_sum, _mm512_set1_epi8(1), low);
}

}  // namespace

void ready_wide(const Matrix &m, const float *in, Long rows, Long n, Input &input) {
    Bits most{};
    each_vector(m.inputs, [&](Long k, auto part) {
        most = larger(most, size_of(load(in + k, part)));
    });
    const float top = largest(most);
    const Scaled scaled{_mm512_set1_ps(top > 1e-30f ? MOST / top : 0.0f)};
    const Long deep = m.depth();
    int8_t *highs = input.codes + n * deep, *lows = input.codes + (rows + n) * deep;
    __m512i high_sum = _mm512_setzero_si512(), low_sum = high_sum;
    Long k = 0;
    for (; k + STEP <= m.inputs; k += STEP)
        split(in + k, scaled, highs + k, lows + k, high_sum, low_sum);
    if (k < m.inputs) {
        float last[STEP] = {};
        std::copy(in + k, in + m.inputs, last);
        split(last, scaled, highs + k, lows + k, high_sum, low_sum);
    }
    // No number at all where the largest is infinite, and so for every product.
    input.scales[n] = (top - top) + top * (1.0f / MOST);
    input.shifts[2 * n] = -SHIFT8 * _mm512_reduce_add_epi32(high_sum);
    input.shifts[2 * n + 1] = -SHIFT8 * _mm512_reduce_add_epi32(low_sum);
}

// Whole numbers from here to the one rounding of each output, so that sums made in any way agree.
void put_bytes(const Work &w, Long panel, Long n, Long rows, const int32_t *high,
               const int32_t *low) {
    const Long first = panel * PANEL, there = std::min(PANEL, w.matrix.outputs - first);
    const __mmask16 only = __mmask16((1u << there) - 1);
    const __m512 scales = _mm512_load_ps(scales_of(w, panel)), much = _mm512_set1_ps(128);
    const __m512 bias =
        w.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(only, w.bias + first);
    for (Long r = 0; r < rows; ++r) {
        const int32_t *shifts = w.input.shifts + 2 * (n + r);
        const __m512 above = _mm512_cvtepi32_ps(
            _mm512_add_epi32(_mm512_loadu_si512(high + r * PANEL), _mm512_set1_epi32(shifts[0])));
        const __m512 below = _mm512_cvtepi32_ps(
            _mm512_add_epi32(_mm512_loadu_si512(low + r * PANEL), _mm512_set1_epi32(shifts[1])));
        const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(w.input.scales[n + r]));
        const __m512 made = _mm512_fmadd_ps(_mm512_fmadd_ps(above, much, below), scale, bias);
        _mm512_mask_storeu_ps(w.out + (n + r) * w.stride + first, only, made);
    }
}

}  // namespace ownwords::engine
#endif
