// Products with weights kept as codes: whole numbers within 32 inputs, floats from there on.
#include "engine/panels.h"

namespace ownwords::engine {
namespace {

constexpr int SUMS_OF_CODES = REGISTERS / 2;  // as many whole numbers are kept beside the floats

inline Vector as_floats(Whole x) { return __builtin_convertvector(x, Vector); }

template <int P, int R>
inline void begin_group(const Work &w, Long n, Long group, Whole (&counts)[P][R][PARTS]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        const Whole shift = Whole{} + w.input.shifts[group * w.rows + n + r];
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < PARTS; ++v) counts[i][r][v] = shift;
    }
}

inline const Code *codes(const Input &input) { return reinterpret_cast<const Code *>(input.codes); }

template <template <int> class Panels>
struct Codes8 {
    static constexpr int SUMS = SUMS_OF_CODES;
    static constexpr bool UNPACKS = true;

    template <int P, int R>
    static void block(const Work &w, Long p, Long apart, Long n, Vector (&out)[P][R][PARTS]) {
        const Long deep = w.matrix.depth(), groups = deep / GROUP;
        const Panels<P> panels(w, p, apart);
        const Code *in = codes(w.input) + n * deep;
        Vector sums[P][R][PARTS] = {};
        for (Long g = 0; g < groups; ++g) {
            Whole counts[P][R][PARTS];
            begin_group(w, n, g, counts);
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                Whole weights[2][P][PARTS];
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < PARTS; ++v)
                        panels.two(i, g, j * LINE + v * Long(sizeof(Whole)), weights[0][i][v],
                                   weights[1][i][v]);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
                    for (int half = 0; half < 2; ++half) {
                        const Four four(in + r * deep + g * GROUP + half * 16 + j * 4);
#pragma GCC unroll 4
                        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                            for (int v = 0; v < PARTS; ++v)
                                counts[i][r][v] = plus_products(
                                    counts[i][r][v], weights8(weights[half][i][v]), four);
                    }
            }
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const float scale = w.input.scales[g * w.rows + n + r];
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < PARTS; ++v)
                        sums[i][r][v] =
                            plus_product(sums[i][r][v], as_floats(counts[i][r][v]), scale);
            }
        }
        for (int i = 0; i < P; ++i)
            for (int v = 0; v < PARTS; ++v) {
                const float *scales = scales_of(w, p + i * apart);
                for (int r = 0; r < R; ++r)
                    out[i][r][v] = sums[i][r][v] * load(scales + v * LANES);
            }
    }
};

struct Codes4 {
    static constexpr int SUMS = SUMS_OF_CODES;
    static constexpr bool UNPACKS = true;
    static constexpr int LINES = 4;

    template <int P, int R>
    static void block(const Work &w, Long p, Long apart, Long n, Vector (&out)[P][R][PARTS]) {
        const Long deep = w.matrix.depth(), bytes = Long(w.matrix.panel_bytes());
        const unsigned char *panels = w.matrix.lines + p * bytes;
        apart *= bytes;
        const Code *in = codes(w.input) + n * deep;
        Vector sums[P][R][PARTS] = {};
        for (Long at = 0, k = 0; at < bytes; at += 9 * LINE, k += 2 * GROUP) {
            for (int i = 0; i < P; ++i) ask_behind(panels + i * apart + at + 2 * LINES * LINE);
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half)
                group(w, panels + at, apart, half, in + k + half * GROUP, n, k / GROUP + half,
                      sums);
        }
        std::memcpy(out, sums, sizeof sums);
    }

    template <int P, int R>
    static void group(const Work &w, const unsigned char *block, Long apart, int half,
                      const Code *in, Long n, Long number, Vector (&sums)[P][R][PARTS]) {
        const Long deep = w.matrix.depth();
        Whole counts[P][R][PARTS];
        begin_group(w, n, number, counts);
#pragma GCC unroll 4
        for (int j = 0; j < LINES; ++j) {
            const unsigned char *line = block + (half * LINES + j) * LINE;
#pragma GCC unroll 4
            for (int i = 0; i < P; ++i) {
                ask_behind(line + i * apart);
#pragma GCC unroll 4
                for (int v = 0; v < PARTS; ++v) {
                    const Whole both = load_codes(line + i * apart + v * Long(sizeof(Whole)));
                    const Whole low = both & 0x0f0f0f0f, high = (both >> 4) & 0x0f0f0f0f;
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) {
                        Whole &count = counts[i][r][v];
                        count = plus_products(count, low, Four(in + r * deep + j * 4));
                        count = plus_products(count, high, Four(in + r * deep + 16 + j * 4));
                    }
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < PARTS; ++v) {
                const Bits pair = (Bits)load_codes(block + 2 * LINES * LINE + i * apart +
                                                   v * Long(sizeof(Whole)));
                const Vector step = (Vector)(half ? pair & 0xffff0000u : pair << 16);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
                    sums[i][r][v] =
                        plus_product(sums[i][r][v], as_floats(counts[i][r][v]),
                                     step * w.input.scales[number * w.rows + n + r]);
            }
    }
};

}  // namespace

const float *scales_of(const Work &w, Long panel) {
    if (w.planes != nullptr) return w.planes->ends(panel);
    const Long end = (panel + 1) * Long(w.matrix.panel_bytes());
    return reinterpret_cast<const float *>(w.matrix.lines + end - LINE);
}

void multiply_codes8(const Work &work, Long first, Long last) {
    work.planes == nullptr ? all_panels<Codes8<PlainPanels>>(work, first, last)
                           : all_panels<Codes8<SplitPanels>>(work, first, last);
}

void multiply_codes4(const Work &work, Long first, Long last) {
    all_panels<Codes4>(work, first, last);
}

}  // namespace ownwords::engine
