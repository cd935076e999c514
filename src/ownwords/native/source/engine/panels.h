// Where kernels find the weights of int8: in panels as they are, or in the two planes of a head.
#pragma once

#include "engine/blocks.h"
#include "engine/codes.h"
#include "engine/head.h"

namespace ownwords::engine {

// P panels, so many apart; `two` are weights of 4 inputs of a group, at a place in one of its first
// four lines, and of the 4 that are 16 inputs on.
template <int P>
struct PlainPanels {
    const unsigned char *panels[P];

    PlainPanels(const Work &w, Long p, Long apart) {
        const Long bytes = Long(w.matrix.panel_bytes());
        for (int i = 0; i < P; ++i) panels[i] = w.matrix.lines + (p + i * apart) * bytes;
    }

    void two(int i, Long group, Long within, Whole &first, Whole &second) const {
        const unsigned char *at = panels[i] + group * 8 * LINE + within;
        ask_behind(at);
        ask_behind(at + 4 * LINE);
        first = load_codes(at);
        second = load_codes(at + 4 * LINE);
    }
};

template <int P>
struct SplitPanels {
    const unsigned char *highs[P], *lows[P];

    SplitPanels(const Work &w, Long p, Long apart) {
        const Long bytes = Long(w.planes->rough().panel_bytes());
        for (int i = 0; i < P; ++i) {
            highs[i] = w.planes->lines + (p + i * apart) * bytes;
            lows[i] = w.planes->low(p + i * apart);
        }
    }

    void two(int i, Long group, Long within, Whole &first, Whole &second) const {
        const Long at = group * 4 * LINE + within;
        const unsigned char *high = highs[i] + at + group / 2 * LINE, *low = lows[i] + at;
        ask_behind(high);
        ask_behind(low);
        const Whole a = load_codes(high), b = load_codes(low);
        first = (a & 0x0f0f0f0f) << 4 | (b & 0x0f0f0f0f);
        second = (a & int32_t(0xf0f0f0f0u)) | (b >> 4 & 0x0f0f0f0f);
    }
};

}  // namespace ownwords::engine
