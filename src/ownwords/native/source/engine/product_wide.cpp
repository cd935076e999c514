// Products of very few rows with weights kept as int8, where many rows go to tiles: the same whole
// numbers, from vectors, which read memory a little faster.
#include "engine/blocks.h"
#include "engine/codes.h"
#if defined(OWNWORDS_TILES)

namespace ownwords::engine {
namespace {

template <int P, int R>
void block(const Work &w, Long p, const Ahead &ahead) {
    const Long deep = w.matrix.depth(), bytes = ahead.end;
    const unsigned char *panels = w.matrix.lines + p * bytes;
    const int8_t *highs = w.input.codes, *lows = w.input.codes + w.rows * deep;
    Whole high[P][R] = {}, low[P][R] = {};
    for (Long k = 0; k < deep; k += GROUP) {
        const Long at = k * PANEL;
        for (int i = 0; i < P; ++i) ahead.fetch(panels + i * bytes, at, GROUP / 4);
#pragma GCC unroll 8
        for (int j = 0; j < GROUP / 4; ++j) {
            Whole weights[P];
#pragma GCC unroll 4
            for (int i = 0; i < P; ++i)
                weights[i] = load_codes(panels + i * bytes + at + j * LINE);
#pragma GCC unroll 3
            for (int r = 0; r < R; ++r) {
                const Four above(highs + r * deep + k + j * 4), below(lows + r * deep + k + j * 4);
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i) {
                    high[i][r] = plus_products(high[i][r], weights[i], above);
                    low[i][r] = plus_products(low[i][r], weights[i], below);
                }
            }
        }
    }
    // Copies, as the address of what is summed up would keep it out of registers.
    int32_t above[P][R][PANEL], below[P][R][PANEL];
    std::memcpy(above, high, sizeof above);
    std::memcpy(below, low, sizeof below);
    for (int i = 0; i < P; ++i) put_bytes(w, p + i, 0, R, above[i][0], below[i][0]);
}

template <int R>
void all(const Work &w, Long first, Long last) {
    const Long bytes = Long(w.matrix.panel_bytes());
    Long p = first;
    for (; p + 4 <= last; p += 4) block<4, R>(w, p, {bytes, 3 * bytes, p + 8 <= last});
    for (; p < last; ++p) block<1, R>(w, p, {bytes, 0, p + 1 < last});
}

}  // namespace

void multiply_wide(const Work &work, Long first, Long last) {
    if (work.rows == 1)
        all<1>(work, first, last);
    else if (work.rows == 2)
        all<2>(work, first, last);
    else
        all<3>(work, first, last);
}

}  // namespace ownwords::engine
#endif
