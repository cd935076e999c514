// Products with weights kept as codes: whole numbers within 32 inputs, floats from there on.
#include "engine/blocks.h"
#include "engine/codes.h"

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

struct Codes8 {
    static constexpr int SUMS = SUMS_OF_CODES;
    static constexpr bool UNPACKS = true;
    static constexpr int LINES = 8;  // of a group

    template <int P, int R>
    static void block(const Work &w, const unsigned char *panels, Long n, const Ahead &ahead,
                      Vector (&out)[P][R][PARTS]) {
        const Long deep = w.matrix.depth(), bytes = ahead.end, groups = deep / GROUP;
        const Code *in = codes(w.input) + n * deep;
        Vector sums[P][R][PARTS] = {};
        for (Long g = 0; g < groups; ++g) {
            const Long at = g * LINES * LINE;
            for (int i = 0; i < P; ++i) ahead.fetch(panels + i * bytes, at, LINES);
            Whole counts[P][R][PARTS];
            begin_group(w, n, g, counts);
#pragma GCC unroll 8
            for (int j = 0; j < LINES; ++j) {
                const unsigned char *line = panels + at + j * LINE;
                Whole weights[P][PARTS];
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < PARTS; ++v)
                        weights[i][v] =
                            weights8(load_codes(line + i * bytes + v * Long(sizeof(Whole))));
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    const Four four(in + r * deep + g * GROUP + j * 4);
#pragma GCC unroll 4
                    for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                        for (int v = 0; v < PARTS; ++v)
                            counts[i][r][v] = plus_products(counts[i][r][v], weights[i][v], four);
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
                const auto *scales =
                    reinterpret_cast<const float *>(panels + i * bytes + deep * PANEL);
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
    static void block(const Work &w, const unsigned char *panels, Long n, const Ahead &ahead,
                      Vector (&out)[P][R][PARTS]) {
        const Long deep = w.matrix.depth(), bytes = ahead.end;
        const Code *in = codes(w.input) + n * deep;
        Vector sums[P][R][PARTS] = {};
        for (Long at = 0, k = 0; at < bytes; at += 9 * LINE, k += 2 * GROUP) {
            for (int i = 0; i < P; ++i) ahead.fetch(panels + i * bytes, at, 9);
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half)
                group(w, panels + at, bytes, half, in + k + half * GROUP, n, k / GROUP + half,
                      sums);
        }
        std::memcpy(out, sums, sizeof sums);
    }

    template <int P, int R>
    static void group(const Work &w, const unsigned char *block, Long bytes, int half,
                      const Code *in, Long n, Long number, Vector (&sums)[P][R][PARTS]) {
        const Long deep = w.matrix.depth();
        Whole counts[P][R][PARTS];
        begin_group(w, n, number, counts);
#pragma GCC unroll 4
        for (int j = 0; j < LINES; ++j) {
            const unsigned char *line = block + (half * LINES + j) * LINE;
#pragma GCC unroll 4
            for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                for (int v = 0; v < PARTS; ++v) {
                    const Whole both = load_codes(line + i * bytes + v * Long(sizeof(Whole)));
                    const Whole low = both & 0x0f0f0f0f, high = (both >> 4) & 0x0f0f0f0f;
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) {
                        Whole &count = counts[i][r][v];
                        count = plus_products(count, low, Four(in + r * deep + j * 4));
                        count = plus_products(count, high, Four(in + r * deep + 16 + j * 4));
                    }
                }
        }
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < PARTS; ++v) {
                const Bits pair = (Bits)load_codes(block + 2 * LINES * LINE + i * bytes +
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

void multiply_codes8(const Work &work, Long first, Long last) {
    all_panels<Codes8>(work, first, last);
}

void multiply_codes4(const Work &work, Long first, Long last) {
    all_panels<Codes4>(work, first, last);
}

}  // namespace ownwords::engine
