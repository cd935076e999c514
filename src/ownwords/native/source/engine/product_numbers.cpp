// Products with weights kept as float or bfloat16.
#include "engine/blocks.h"

namespace ownwords::engine {
namespace {

constexpr Long AT_ONCE = 8;  // lines; every panel has a multiple of these

struct Floats {
    static constexpr int SUMS = REGISTERS;
    static constexpr bool UNPACKS = false;

    template <int P, int R>
    static void block(const Work &w, Long p, Long apart, Long n, Vector (&out)[P][R][PARTS]) {
        const Long deep = w.matrix.depth(), bytes = Long(w.matrix.panel_bytes());
        const unsigned char *panels = w.matrix.lines + p * bytes;
        apart *= bytes;
        const float *in = w.input.numbers + n * deep;
        Vector sums[P][R][PARTS] = {};
        for (Long at = 0; at < bytes; at += AT_ONCE * LINE) {
            const float *here = in + at / LINE;
#pragma GCC unroll 8
            for (int j = 0; j < AT_ONCE; ++j)
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i) {
                    const unsigned char *line = panels + i * apart + at + j * LINE;
                    ask_behind(line);
#pragma GCC unroll 4
                    for (int v = 0; v < PARTS; ++v) {
                        const Vector weights =
                            load(reinterpret_cast<const float *>(line) + v * LANES);
#pragma GCC unroll 8
                        for (int r = 0; r < R; ++r)
                            sums[i][r][v] =
                                plus_product(sums[i][r][v], weights, here[r * deep + j]);
                    }
                }
        }
        std::memcpy(out, sums, sizeof sums);
    }
};

// Pairs of inputs: the even one in the low half of each output's 32 bits.
struct Halves16 {
    static constexpr int SUMS = REGISTERS;
    static constexpr bool UNPACKS = false;

    template <int P, int R>
    static void block(const Work &w, Long p, Long apart, Long n, Vector (&out)[P][R][PARTS]) {
        const Long deep = w.matrix.depth(), bytes = Long(w.matrix.panel_bytes());
        const unsigned char *panels = w.matrix.lines + p * bytes;
        apart *= bytes;
        Vector sums[P][R][PARTS] = {};
        for (Long at = 0; at < bytes; at += AT_ONCE * LINE) {
#pragma GCC unroll 8
            for (int j = 0; j < AT_ONCE; ++j)
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < PARTS; ++v) {
                        const unsigned char *line = panels + i * apart + at + j * LINE;
                        if (v == 0) ask_behind(line);
                        Bits both;
                        std::memcpy(&both, line + v * sizeof both, sizeof both);
                        const Long k = n * deep + (at / LINE + j) * 2;
#if defined(__AVX512BF16__)
                        const uint16_t *in = w.input.halves + k;
#pragma GCC unroll 8
                        for (int r = 0; r < R; ++r) {
                            int32_t pair;
                            std::memcpy(&pair, in + r * deep, sizeof pair);
                            sums[i][r][v] = (Vector)_mm512_dpbf16_ps(
                                (__m512)sums[i][r][v], (__m512bh)both,
                                (__m512bh)_mm512_set1_epi32(pair));
                        }
#else
                        const float *in = w.input.numbers + k;
                        const Vector even = (Vector)(both << 16);
                        const Vector odd = (Vector)(both & 0xffff0000u);
#pragma GCC unroll 8
                        for (int r = 0; r < R; ++r) {
                            Vector &sum = sums[i][r][v];
                            sum = plus_product(sum, even, in[r * deep]);
                            sum = plus_product(sum, odd, in[r * deep + 1]);
                        }
#endif
                    }
        }
        std::memcpy(out, sums, sizeof sums);
    }
};

}  // namespace

void multiply_floats(const Work &work, Long first, Long last) {
    all_panels<Floats>(work, first, last);
}

void multiply_halves(const Work &work, Long first, Long last) {
    all_panels<Halves16>(work, first, last);
}

}  // namespace ownwords::engine
