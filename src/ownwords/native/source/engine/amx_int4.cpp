// Matrix products of many rows with int4 weights on AMX. A tile sums 32 inputs of 16 rows in
// integers, which are scaled and added to floats exactly as in matmul_quantized.cpp.
#include "engine/panel_loops.h"
#if defined(OWNWORDS_AMX)
#include "simd/amx.h"

namespace ownwords::engine {
namespace {

constexpr i64 INPUTS_AT_ONCE = 2048;        // inputs unpacked at a time
constexpr i64 GROUP_BYTES = GROUP * PANEL;  // 8 lines of signed bytes
constexpr i64 ROWS_AT_ONCE = 256;           // rows whose partial sums are kept

// A panel's next inputs as signed bytes, and their scales.
struct Int4Weights {
    alignas(64) signed char lines[INPUTS_AT_ONCE * PANEL];
    alignas(64) float steps[INPUTS_AT_ONCE / GROUP][PANEL];
};

void unpack_int4(const unsigned char *panel, i64 groups, Int4Weights &to) {
    const __m512i half = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    for (i64 g = 0; g < groups; ++g) {
        const unsigned char *block = panel + g / 2 * 9 * LINE;
        const unsigned char *lines = block + g % 2 * 4 * LINE;
        signed char *into = to.lines + g * GROUP_BYTES;
        for (i64 j = 0; j < 4; ++j) {
            const __m512i nibbles = _mm512_load_si512(lines + j * LINE);
            const __m512i high = _mm512_srli_epi16(nibbles, 4);
            _mm512_store_si512(into + j * LINE,
                               _mm512_sub_epi8(_mm512_and_si512(nibbles, half), eight));
            _mm512_store_si512(into + (4 + j) * LINE,
                               _mm512_sub_epi8(_mm512_and_si512(high, half), eight));
        }
        const __m512i steps_pair = _mm512_load_si512(block + 8 * LINE);
        const __m512i step = g % 2
                                 ? _mm512_and_si512(steps_pair, _mm512_set1_epi32(int(0xffff0000u)))
                                 : _mm512_slli_epi32(steps_pair, 16);
        _mm512_store_si512(to.steps[g], step);
    }
}

// The integer sums of two groups. Double buffered, so that storing tiles and adding overlap.
struct GroupSums {
    alignas(64) int32_t groups[2][TILE_ROWS][PANEL];
};

inline void add_group(const int32_t (*sums_buffer)[PANEL], const float *scales, const float *steps,
                      __m512 (&sums)[TILE_ROWS]) {
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; ++r) {
        const __m512 value = _mm512_cvtepi32_ps(_mm512_load_si512(sums_buffer[r]));
        const __m512 scale = _mm512_mul_ps(_mm512_load_ps(steps), _mm512_set1_ps(scales[r]));
        sums[r] = _mm512_fmadd_ps(value, scale, sums[r]);
    }
}

// Sixteen rows times a panel. `scales` are those of the first row; the next group's are `next`
// further on.
void matmul_rows16(const Int4Weights &weights, const int8_t *codes, i64 depth, const float *scales,
                   i64 next, i64 groups, bool accumulate, float (*partial)[PANEL]) {
    __m512 sums[TILE_ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; ++r)
        sums[r] = accumulate ? _mm512_load_ps(partial[r]) : _mm512_setzero_ps();
    GroupSums sums_buffer[2];
    for (i64 g = 0; g <= groups; g += 2) {
        if (g < groups) {
            const signed char *lines = weights.lines + g * GROUP_BYTES;
            auto &into = sums_buffer[g / 2 % 2].groups;
            _tile_zero(0);
            _tile_loadd(2, codes + g * GROUP, depth);
            _tile_loadd(4, lines, LINE);
            _tile_dpbssd(0, 2, 4);
            _tile_stored(0, into[0], LINE);
            _tile_zero(1);
            _tile_loadd(3, codes + (g + 1) * GROUP, depth);
            _tile_loadd(5, lines + GROUP_BYTES, LINE);
            _tile_dpbssd(1, 3, 5);
            _tile_stored(1, into[1], LINE);
        }
        if (g == 0) continue;
        const i64 previous = g - 2;
        const auto &from = sums_buffer[previous / 2 % 2].groups;
        add_group(from[0], scales + previous * next, weights.steps[previous], sums);
        add_group(from[1], scales + (previous + 1) * next, weights.steps[previous + 1], sums);
    }
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; ++r) _mm512_store_ps(partial[r], sums[r]);
}

void matmul_panel(const MatmulArgs &w, i64 p, i64 begin, i64 end) {
    const i64 depth = w.matrix.depth();
    const unsigned char *panel = w.matrix.lines + p * i64(w.matrix.panel_bytes());
    Int4Weights weights;
    alignas(64) float partial[ROWS_AT_ONCE][PANEL];
    for (i64 k = 0; k < depth; k += INPUTS_AT_ONCE) {
        const i64 groups = std::min(INPUTS_AT_ONCE, depth - k) / GROUP, group = k / GROUP;
        unpack_int4(panel + k / 64 * 9 * LINE, groups, weights);
        for (i64 n = begin; n < end; n += TILE_ROWS)
            matmul_rows16(weights, w.input.codes + n * depth + k, depth,
                          w.input.scales + group * w.rows + n, w.rows, groups, k > 0,
                          partial + (n - begin));
    }
    store_sums(w, p, begin, end - begin, partial[0]);
}

}  // namespace

void amx_int4(const MatmulArgs &work, i64 first, i64 last) {
    AmxTileShapes shapes;
    for (int tile = 0; tile < 2; ++tile) shapes.set(tile, TILE_ROWS, LINE);
    for (int tile = 2; tile < 4; ++tile) shapes.set(tile, TILE_ROWS, GROUP);
    for (int tile = 4; tile < 6; ++tile) shapes.set(tile, GROUP / 4, LINE);
    const AmxTileConfig tiles(shapes);
    for (i64 p = first; p < last; ++p)
        for (i64 n = 0; n < work.rows; n += ROWS_AT_ONCE) {
            const i64 end = std::min(n + ROWS_AT_ONCE, work.rows);
            matmul_panel(work, p, n, end);
        }
}

}  // namespace ownwords::engine
#endif
