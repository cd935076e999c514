// Products with int8 and int4 weights: integers within groups of 32 inputs, floats beyond.
#include "engine/int8_panels.h"

namespace ownwords::engine {
namespace {

constexpr int INT_SUM_REGISTERS = SUM_REGISTERS / 2;  // half for integers, half for floats

inline VecF32 as_floats(VecI32 x) { return __builtin_convertvector(x, VecF32); }

template <int P, int R>
inline void init_counts(const MatmulArgs &w, i64 n, i64 group,
                        VecI32 (&counts)[P][R][VECS_PER_LINE]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        const VecI32 correction = VecI32{} + w.input.corrections[group * w.rows + n + r];
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < VECS_PER_LINE; ++v) counts[i][r][v] = correction;
    }
}

inline const Code *codes(const MatmulInput &input) {
    return reinterpret_cast<const Code *>(input.codes);
}

template <template <int> class Panels>
struct Int8Kernel {
    static constexpr int SUMS = INT_SUM_REGISTERS;
    static constexpr bool UNPACKS = true;

    template <int P, int R>
    static void block(const MatmulArgs &w, i64 p, i64 stride, i64 n,
                      VecF32 (&out)[P][R][VECS_PER_LINE]) {
        const i64 depth = w.matrix.depth(), groups = depth / GROUP;
        const Panels<P> panels(w, p, stride);
        const Code *in = codes(w.input) + n * depth;
        VecF32 sums[P][R][VECS_PER_LINE] = {};
        for (i64 g = 0; g < groups; ++g) {
            VecI32 counts[P][R][VECS_PER_LINE];
            init_counts(w, n, g, counts);
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                VecI32 weights[2][P][VECS_PER_LINE];
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < VECS_PER_LINE; ++v)
                        panels.load_pair(i, g, j * LINE + v * i64(sizeof(VecI32)), weights[0][i][v],
                                         weights[1][i][v]);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
                    for (int half = 0; half < 2; ++half) {
                        const Activations4 activations(in + r * depth + g * GROUP + half * 16 +
                                                       j * 4);
#pragma GCC unroll 4
                        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                            for (int v = 0; v < VECS_PER_LINE; ++v)
                                counts[i][r][v] =
                                    dot_add(counts[i][r][v], int8_operand(weights[half][i][v]),
                                            activations);
                    }
            }
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const float scale = w.input.scales[g * w.rows + n + r];
#pragma GCC unroll 4
                for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                    for (int v = 0; v < VECS_PER_LINE; ++v)
                        sums[i][r][v] = fma(sums[i][r][v], as_floats(counts[i][r][v]), scale);
            }
        }
        for (int i = 0; i < P; ++i)
            for (int v = 0; v < VECS_PER_LINE; ++v) {
                const float *scales = scales_of(w, p + i * stride);
                for (int r = 0; r < R; ++r) out[i][r][v] = sums[i][r][v] * load(scales + v * LANES);
            }
    }
};

struct Int4Kernel {
    static constexpr int SUMS = INT_SUM_REGISTERS;
    static constexpr bool UNPACKS = true;
    static constexpr int LINES = 4;

    template <int P, int R>
    static void block(const MatmulArgs &w, i64 p, i64 stride, i64 n,
                      VecF32 (&out)[P][R][VECS_PER_LINE]) {
        const i64 depth = w.matrix.depth(), bytes = i64(w.matrix.panel_bytes());
        const unsigned char *panels = w.matrix.lines + p * bytes;
        stride *= bytes;
        const Code *in = codes(w.input) + n * depth;
        VecF32 sums[P][R][VECS_PER_LINE] = {};
        for (i64 at = 0, k = 0; at < bytes; at += 9 * LINE, k += 2 * GROUP) {
            for (int i = 0; i < P; ++i) prefetch_ahead(panels + i * stride + at + 2 * LINES * LINE);
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half)
                group(w, panels + at, stride, half, in + k + half * GROUP, n, k / GROUP + half,
                      sums);
        }
        std::memcpy(out, sums, sizeof sums);
    }

    template <int P, int R>
    static void group(const MatmulArgs &w, const unsigned char *block, i64 stride, int half,
                      const Code *in, i64 n, i64 number, VecF32 (&sums)[P][R][VECS_PER_LINE]) {
        const i64 depth = w.matrix.depth();
        VecI32 counts[P][R][VECS_PER_LINE];
        init_counts(w, n, number, counts);
#pragma GCC unroll 4
        for (int j = 0; j < LINES; ++j) {
            const unsigned char *line = block + (half * LINES + j) * LINE;
#pragma GCC unroll 4
            for (int i = 0; i < P; ++i) {
                prefetch_ahead(line + i * stride);
#pragma GCC unroll 4
                for (int v = 0; v < VECS_PER_LINE; ++v) {
                    const VecI32 nibbles = load_codes(line + i * stride + v * i64(sizeof(VecI32)));
                    const VecI32 low = nibbles & 0x0f0f0f0f, high = (nibbles >> 4) & 0x0f0f0f0f;
#pragma GCC unroll 8
                    for (int r = 0; r < R; ++r) {
                        VecI32 &count = counts[i][r][v];
                        count = dot_add(count, low, Activations4(in + r * depth + j * 4));
                        count = dot_add(count, high, Activations4(in + r * depth + 16 + j * 4));
                    }
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < VECS_PER_LINE; ++v) {
                const VecU32 pair = (VecU32)load_codes(block + 2 * LINES * LINE + i * stride +
                                                       v * i64(sizeof(VecI32)));
                const VecF32 step = (VecF32)(half ? pair & 0xffff0000u : pair << 16);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
                    sums[i][r][v] = fma(sums[i][r][v], as_floats(counts[i][r][v]),
                                        step * w.input.scales[number * w.rows + n + r]);
            }
    }
};

}  // namespace

const float *scales_of(const MatmulArgs &w, i64 panel) {
    if (w.split_head != nullptr) return w.split_head->scales(panel);
    const i64 end = (panel + 1) * i64(w.matrix.panel_bytes());
    return reinterpret_cast<const float *>(w.matrix.lines + end - LINE);
}

void matmul_int8(const MatmulArgs &work, i64 first, i64 last) {
    work.split_head == nullptr ? matmul_all<Int8Kernel<PlainPanels>>(work, first, last)
                               : matmul_all<Int8Kernel<SplitPanels>>(work, first, last);
}

void matmul_int4(const MatmulArgs &work, i64 first, i64 last) {
    matmul_all<Int4Kernel>(work, first, last);
}

}  // namespace ownwords::engine
