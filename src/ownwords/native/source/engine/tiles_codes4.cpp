// Products of many rows with weights kept as int4, on AMX. A tile sums up 32 inputs of 16 rows; its
// whole numbers then go, each with the scales of its group, into the same floats as for few rows.
#include "engine/blocks.h"
#if defined(OWNWORDS_TILES)
#include "engine/tiles.h"

namespace ownwords::engine {
namespace {

constexpr Long DEEP = 2048;                    // inputs whose weights are made ready at a time
constexpr Long GROUP_BYTES = GROUP * PANEL;    // 8 lines of signed bytes
constexpr Long ROWS = 256;                     // rows whose sums are kept in between

// A panel's next inputs as signed bytes, and of int4 their scales.
struct Weights {
    alignas(64) signed char lines[DEEP * PANEL];
    alignas(64) float steps[DEEP / GROUP][PANEL];
};

void widen(const unsigned char *panel, Long groups, Weights &to) {
    const __m512i half = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    for (Long g = 0; g < groups; ++g) {
        const unsigned char *block = panel + g / 2 * 9 * LINE;
        const unsigned char *lines = block + g % 2 * 4 * LINE;
        signed char *into = to.lines + g * GROUP_BYTES;
        for (Long j = 0; j < 4; ++j) {
            const __m512i both = _mm512_load_si512(lines + j * LINE);
            const __m512i high = _mm512_srli_epi16(both, 4);
            _mm512_store_si512(into + j * LINE,
                               _mm512_sub_epi8(_mm512_and_si512(both, half), eight));
            _mm512_store_si512(into + (4 + j) * LINE,
                               _mm512_sub_epi8(_mm512_and_si512(high, half), eight));
        }
        const __m512i pair = _mm512_load_si512(block + 8 * LINE);
        const __m512i step = g % 2 ? _mm512_and_si512(pair, _mm512_set1_epi32(int(0xffff0000u)))
                                   : _mm512_slli_epi32(pair, 16);
        _mm512_store_si512(to.steps[g], step);
    }
}

// The whole numbers of two groups; what is multiplied and what is added up are apart by one pair,
// so that neither waits for the other.
struct Counts {
    alignas(64) int32_t of[2][TALL][PANEL];
};

inline void add_group(const int32_t (*counts)[PANEL], const float *scales, const float *steps,
                      __m512 (&sums)[TALL]) {
#pragma GCC unroll 16
    for (int r = 0; r < TALL; ++r) {
        const __m512 count = _mm512_cvtepi32_ps(_mm512_load_si512(counts[r]));
        const __m512 scale = _mm512_mul_ps(_mm512_load_ps(steps), _mm512_set1_ps(scales[r]));
        sums[r] = _mm512_fmadd_ps(count, scale, sums[r]);
    }
}

// Sixteen rows times a panel; `scales` are those of the first row, `next` on for the next group.
void tall(const Weights &weights, const int8_t *codes, Long deep, const float *scales, Long next,
          Long groups, bool go_on, float (*kept)[PANEL]) {
    __m512 sums[TALL];
#pragma GCC unroll 16
    for (int r = 0; r < TALL; ++r)
        sums[r] = go_on ? _mm512_load_ps(kept[r]) : _mm512_setzero_ps();
    Counts counts[2];
    for (Long g = 0; g <= groups; g += 2) {
        if (g < groups) {
            const signed char *lines = weights.lines + g * GROUP_BYTES;
            auto &into = counts[g / 2 % 2].of;
            _tile_zero(0);
            _tile_loadd(2, codes + g * GROUP, deep);
            _tile_loadd(4, lines, LINE);
            _tile_dpbssd(0, 2, 4);
            _tile_stored(0, into[0], LINE);
            _tile_zero(1);
            _tile_loadd(3, codes + (g + 1) * GROUP, deep);
            _tile_loadd(5, lines + GROUP_BYTES, LINE);
            _tile_dpbssd(1, 3, 5);
            _tile_stored(1, into[1], LINE);
        }
        if (g == 0) continue;
        const Long before = g - 2;
        const auto &from = counts[before / 2 % 2].of;
        add_group(from[0], scales + before * next, weights.steps[before], sums);
        add_group(from[1], scales + (before + 1) * next, weights.steps[before + 1], sums);
    }
#pragma GCC unroll 16
    for (int r = 0; r < TALL; ++r) _mm512_store_ps(kept[r], sums[r]);
}

void panel_times_rows(const Work &w, Long p, Long begin, Long end) {
    const Long deep = w.matrix.depth();
    const unsigned char *panel = w.matrix.lines + p * Long(w.matrix.panel_bytes());
    Weights weights;
    alignas(64) float kept[ROWS][PANEL];
    for (Long k = 0; k < deep; k += DEEP) {
        const Long groups = std::min(DEEP, deep - k) / GROUP, group = k / GROUP;
        widen(panel + k / 64 * 9 * LINE, groups, weights);
        for (Long n = begin; n < end; n += TALL)
            tall(weights, w.input.codes + n * deep + k, deep,
                 w.input.scales + group * w.rows + n, w.rows, groups, k > 0, kept + (n - begin));
    }
    put_out(w, p, begin, end - begin, kept[0]);
}

}  // namespace

void tile_codes4(const Work &work, Long first, Long last) {
    TileShapes shapes;
    for (int tile = 0; tile < 2; ++tile) shapes.set(tile, TALL, LINE);
    for (int tile = 2; tile < 4; ++tile) shapes.set(tile, TALL, GROUP);
    for (int tile = 4; tile < 6; ++tile) shapes.set(tile, GROUP / 4, LINE);
    const Tiles tiles(shapes);
    for (Long p = first; p < last; ++p)
        for (Long n = 0; n < work.rows; n += ROWS) {
            const Long end = std::min(n + ROWS, work.rows);
            panel_times_rows(work, p, n, end);
        }
}

}  // namespace ownwords::engine
#endif
