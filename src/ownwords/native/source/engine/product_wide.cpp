// Products of very few rows with weights kept as int8, where many rows go to tiles: the same whole
// numbers, from vectors, which read memory a little faster.
#include "engine/panels.h"
#if defined(OWNWORDS_TILES)

namespace ownwords::engine {
namespace {

template <template <int> class Panels, int P, int R>
void block(const Work &w, Long p, Long apart) {
    const Long deep = w.matrix.depth();
    const Panels<P> panels(w, p, apart);
    const int8_t *highs = w.input.codes, *lows = w.input.codes + w.rows * deep;
    Whole high[P][R] = {}, low[P][R] = {};
    for (Long k = 0; k < deep; k += GROUP) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            Whole weights[2][P];
#pragma GCC unroll 4
            for (int i = 0; i < P; ++i)
                panels.two(i, k / GROUP, j * LINE, weights[0][i], weights[1][i]);
#pragma GCC unroll 3
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
                for (int half = 0; half < 2; ++half) {
                    const Long at = r * deep + k + half * 16 + j * 4;
                    const Four above(highs + at), below(lows + at);
#pragma GCC unroll 4
                    for (int i = 0; i < P; ++i) {
                        high[i][r] = plus_products(high[i][r], weights[half][i], above);
                        low[i][r] = plus_products(low[i][r], weights[half][i], below);
                    }
                }
        }
    }
    // Copies, as the address of what is summed up would keep it out of registers.
    int32_t above[P][R][PANEL], below[P][R][PANEL];
    std::memcpy(above, high, sizeof above);
    std::memcpy(below, low, sizeof below);
    for (int i = 0; i < P; ++i) put_bytes(w, p + i * apart, 0, R, above[i][0], below[i][0]);
}

template <template <int> class Panels, int R>
void all(const Work &w, Long first, Long last) {
    first = side_by_side<4>(
        first, last, [&](Long p, Long apart) { block<Panels, 4, R>(w, p, apart); });
    side_by_side<1>(first, last, [&](Long p, Long apart) { block<Panels, 1, R>(w, p, apart); });
}

template <template <int> class Panels>
void all_rows(const Work &work, Long first, Long last) {
    if (work.rows == 1)
        all<Panels, 1>(work, first, last);
    else if (work.rows == 2)
        all<Panels, 2>(work, first, last);
    else
        all<Panels, 3>(work, first, last);
}

}  // namespace

void multiply_wide(const Work &work, Long first, Long last) {
    work.planes == nullptr ? all_rows<PlainPanels>(work, first, last)
                           : all_rows<SplitPanels>(work, first, last);
}

}  // namespace ownwords::engine
#endif
