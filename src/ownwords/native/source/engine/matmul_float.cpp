// Products with float and bfloat16 weights.
#include "engine/panel_loops.h"

namespace ownwords::engine {
namespace {

constexpr i64 LINES_AT_ONCE = 8;  // every panel has a multiple of these

struct F32Kernel {
    static constexpr int SUMS = SUM_REGISTERS;
    static constexpr bool UNPACKS = false;

    template <int P, int R>
    static void block(const MatmulArgs &w, i64 p, i64 stride, i64 n,
                      VecF32 (&out)[P][R][VECS_PER_LINE]) {
        const i64 depth = w.matrix.depth(), bytes = i64(w.matrix.panel_bytes());
        const unsigned char *panels = w.matrix.lines + p * bytes;
        stride *= bytes;
        const float *in = w.input.f32 + n * depth;
        VecF32 sums[P][R][VECS_PER_LINE] = {};
        for (i64 at = 0; at < bytes; at += LINES_AT_ONCE * LINE) {
            const float *here = in + at / LINE;
#pragma GCC unroll 8
            for (int j = 0; j < LINES_AT_ONCE; ++j)
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i) {
                    const unsigned char *line = panels + i * stride + at + j * LINE;
                    prefetch_ahead(line);
#pragma GCC unroll 4
                    for (int v = 0; v < VECS_PER_LINE; ++v) {
                        const VecF32 weights =
                            load(reinterpret_cast<const float *>(line) + v * LANES);
#pragma GCC unroll 8
                        for (int r = 0; r < R; ++r)
                            sums[i][r][v] = fma(sums[i][r][v], weights, here[r * depth + j]);
                    }
                }
        }
        std::memcpy(out, sums, sizeof sums);
    }
};

// Pairs of inputs: the even one in the low half of each output's 32 bits.
struct Bf16Kernel {
    static constexpr int SUMS = SUM_REGISTERS;
    static constexpr bool UNPACKS = false;

    template <int P, int R>
    static void block(const MatmulArgs &w, i64 p, i64 stride, i64 n,
                      VecF32 (&out)[P][R][VECS_PER_LINE]) {
        const i64 depth = w.matrix.depth(), bytes = i64(w.matrix.panel_bytes());
        const unsigned char *panels = w.matrix.lines + p * bytes;
        stride *= bytes;
        VecF32 sums[P][R][VECS_PER_LINE] = {};
        for (i64 at = 0; at < bytes; at += LINES_AT_ONCE * LINE) {
#pragma GCC unroll 8
            for (int j = 0; j < LINES_AT_ONCE; ++j)
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < VECS_PER_LINE; ++v) {
                        const unsigned char *line = panels + i * stride + at + j * LINE;
                        if (v == 0) prefetch_ahead(line);
                        VecU32 pairs;
                        std::memcpy(&pairs, line + v * sizeof pairs, sizeof pairs);
                        const i64 k = n * depth + (at / LINE + j) * 2;
#if defined(__AVX512BF16__)
                        const uint16_t *in = w.input.bf16 + k;
#pragma GCC unroll 8
                        for (int r = 0; r < R; ++r) {
                            int32_t pair;
                            std::memcpy(&pair, in + r * depth, sizeof pair);
                            sums[i][r][v] =
                                (VecF32)_mm512_dpbf16_ps((__m512)sums[i][r][v], (__m512bh)pairs,
                                                         (__m512bh)_mm512_set1_epi32(pair));
                        }
#else
                        const float *in = w.input.f32 + k;
                        const VecF32 even = (VecF32)(pairs << 16);
                        const VecF32 odd = (VecF32)(pairs & 0xffff0000u);
#pragma GCC unroll 8
                        for (int r = 0; r < R; ++r) {
                            VecF32 &sum = sums[i][r][v];
                            sum = fma(sum, even, in[r * depth]);
                            sum = fma(sum, odd, in[r * depth + 1]);
                        }
#endif
                    }
        }
        std::memcpy(out, sums, sizeof sums);
    }
};

}  // namespace

void matmul_f32(const MatmulArgs &work, i64 first, i64 last) {
    matmul_all<F32Kernel>(work, first, last);
}

void matmul_bf16(const MatmulArgs &work, i64 first, i64 last) {
    matmul_all<Bf16Kernel>(work, first, last);
}

}  // namespace ownwords::engine
