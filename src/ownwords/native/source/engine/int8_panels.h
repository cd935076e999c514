// Readers of int8 weights: from panels, or from the two planes of a SplitHead.
#pragma once

#include "engine/panel_loops.h"
#include "engine/int8_dot.h"
#include "engine/split_head.h"

namespace ownwords::engine {

// P panels, `stride` apart. load_pair loads the weights of 4 inputs at `within` (in a group's first
// four lines), and of the 4 inputs that are 16 further on.
template <int P>
struct PlainPanels {
    const unsigned char *panels[P];

    PlainPanels(const MatmulArgs &w, i64 p, i64 stride) {
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

template <int P>
struct SplitPanels {
    const unsigned char *highs[P], *lows[P];

    SplitPanels(const MatmulArgs &w, i64 p, i64 stride) {
        const i64 bytes = i64(w.split_head->coarse().panel_bytes());
        for (int i = 0; i < P; ++i) {
            highs[i] = w.split_head->lines + (p + i * stride) * bytes;
            lows[i] = w.split_head->low_plane(p + i * stride);
        }
    }

    void load_pair(int i, i64 group, i64 within, VecI32 &first, VecI32 &second) const {
        const i64 at = group * 4 * LINE + within;
        const unsigned char *high = highs[i] + at + group / 2 * LINE, *low = lows[i] + at;
        prefetch_ahead(high);
        prefetch_ahead(low);
        const VecI32 a = load_codes(high), b = load_codes(low);
        first = (a & 0x0f0f0f0f) << 4 | (b & 0x0f0f0f0f);
        second = (a & int32_t(0xf0f0f0f0u)) | (b >> 4 & 0x0f0f0f0f);
    }
};

}  // namespace ownwords::engine
