// Products with int8 weights by vectors: the same integers as in amx_bf16_int8.cpp, which is faster
// from four rows on.
#include "engine/int8_panels.h"
#if defined(OWNWORDS_INT15)

namespace ownwords::engine {
namespace {

template <template <int> class Panels, int P, int R>
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

// Three rows at a time: so many sums of four panels fit into registers.
template <template <int> class Panels, int P>
void matmul_rows(const MatmulArgs &w, i64 p, i64 stride) {
    i64 n = 0;
    for (; n + 3 <= w.rows; n += 3) block<Panels, P, 3>(w, p, stride, n);
    if (w.rows - n == 2) block<Panels, P, 2>(w, p, stride, n);
    if (w.rows - n == 1) block<Panels, P, 1>(w, p, stride, n);
}

template <template <int> class Panels>
void matmul_panels(const MatmulArgs &w, i64 first, i64 last) {
    first = for_panel_streams<4>(
        first, last, [&](i64 p, i64 stride) { matmul_rows<Panels, 4>(w, p, stride); });
    for_panel_streams<1>(first, last,
                         [&](i64 p, i64 stride) { matmul_rows<Panels, 1>(w, p, stride); });
}

}  // namespace

void matmul_int15(const MatmulArgs &work, i64 first, i64 last) {
    work.split_head == nullptr ? matmul_panels<PlainPanels>(work, first, last)
                               : matmul_panels<SplitPanels>(work, first, last);
}

}  // namespace ownwords::engine
#endif
