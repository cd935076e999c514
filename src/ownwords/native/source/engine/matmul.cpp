// Prepares activations, chooses the product for a weight type, and multiplies float and bfloat16.
#include "engine/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/kernels.h"
#include "simd/vec.h"

namespace ownwords::engine {
namespace {

// Whether activations are rounded for bfloat16 weights, rather than weights widened.
bool has_bf16_activations() {
#if defined(OWNWORDS_AMX)
    return true;
#elif defined(__AVX512BF16__)
    return has_fast_bf16_vectors();
#else
    return false;
#endif
}

constexpr int STEPS = int(GROUP) / LANES;

// Quantize 32 numbers to codes from -127 to 127, rounded to nearest even, with their scale and sum.
// If a number is not finite, the scale and every product are NaN.
inline void quantize_group(const float *f32, Code *codes, float &scale, int32_t &sum) {
    VecF32 x[STEPS];
    VecU32 max_bits{};
    for (int s = 0; s < STEPS; ++s) {
        x[s] = load(f32 + s * LANES);
        max_bits = max(max_bits, magnitude_bits(x[s]));
    }
    const float max_abs = reduce_max(max_bits);
    if (!std::isfinite(max_abs)) {
        std::fill_n(codes, GROUP, Code(0));
        scale = std::numeric_limits<float>::quiet_NaN();
        sum = 0;
        return;
    }
    const float scale_by = max_abs > 1e-30f ? 127.0f / max_abs : 0.0f;
    // The lowest bits of a float this large are an integer.
    const float magic = 0x1.8p23f;
    VecI32 sums{};
    for (int s = 0; s < STEPS; ++s) {
        const VecI32 codes_vec = (VecI32)(x[s] * scale_by + magic) - (VecI32)splat(magic);
        store_codes(codes_vec, codes + s * LANES);
        sums += codes_vec;
    }
    scale = max_abs * (1.0f / 127.0f);
    sum = int32_t(reduce_add(__builtin_convertvector(sums, VecF32)));  // exact: it is small
}

// Convert 32 numbers of a row to the type that the matrix is multiplied with.
inline void prepare_group(const Matrix &m, bool as_bf16, const float *f32, MatmulInput &input,
                          i64 at, i64 group) {
    if (m.type == WeightType::INT8) {
        int32_t sum;
        quantize_group(f32, reinterpret_cast<Code *>(input.codes) + at, input.scales[group], sum);
        input.corrections[group] = -INT8_OFFSET * sum;
    } else if (as_bf16) {
        auto *to = reinterpret_cast<Bf16 *>(input.bf16) + at;
        for (int s = 0; s < STEPS; ++s) store(to + s * LANES, load(f32 + s * LANES));
    } else {
        for (int s = 0; s < STEPS; ++s) store(input.f32 + at + s * LANES, load(f32 + s * LANES));
    }
}

}  // namespace

MatmulInput::MatmulInput(i64 rows, i64 inputs) {
    // Tiles read 16 rows and their scales, even if there are fewer.
    const size_t depth = size_t(inputs + 63) / 64 * 64, bytes = size_t(rows + 15) / 16 * 16 * depth;
    buffer_ = PageBuffer(bytes * 4 + 64);
    f32 = reinterpret_cast<float *>(buffer_.start());
    bf16 = reinterpret_cast<uint16_t *>(buffer_.start());
    codes = reinterpret_cast<int8_t *>(buffer_.start());
    scales = reinterpret_cast<float *>(buffer_.start() + bytes * 2);
    corrections = reinterpret_cast<int32_t *>(buffer_.start() + bytes * 2 + bytes / 8);
}

void prepare_input(const Matrix &m, const float *in, i64 rows, i64 stride, MatmulInput &input,
                   i64 begin, i64 end) {
    const i64 depth = m.depth();
    const bool as_bf16 = m.type == WeightType::BF16 && has_bf16_activations();
    for (i64 n = begin; n < end; ++n) {
        const float *from = in + n * stride;
#if defined(OWNWORDS_INT15)
        if (m.type == WeightType::INT8 && !m.int8_input) {
            prepare_int15(m, from, rows, n, input);
            continue;
        }
#endif
        i64 k = 0;
        for (; k + GROUP <= m.inputs; k += GROUP)
            prepare_group(m, as_bf16, from + k, input, n * depth + k, k / GROUP * rows + n);
        for (; k < depth; k += GROUP) {
            float tail[GROUP] = {};
            std::copy(from + std::min(k, m.inputs), from + m.inputs, tail);
            prepare_group(m, as_bf16, tail, input, n * depth + k, k / GROUP * rows + n);
        }
    }
}

void store_sums(const MatmulArgs &w, i64 panel, i64 row, i64 rows, const float *sums) {
    const i64 first = panel * PANEL, count = std::min(PANEL, w.matrix.outputs - first);
    float *to = w.out + row * w.stride + first;
    for_each_vec(count, [=](i64 o, auto tail) {
        const VecF32 bias = w.bias == nullptr ? VecF32{} : load(w.bias + first + o, tail);
        for (i64 r = 0; r < rows; ++r)
            store(to + r * w.stride + o, load(sums + r * PANEL + o) + bias, tail);
    });
}

void matmul(const Matrix &m, const MatmulInput &input, i64 rows, const float *bias, float *out,
            i64 stride, i64 first, i64 last) {
    const MatmulArgs work{m, input, rows, bias, out, stride};
#if defined(OWNWORDS_AMX)
    if (m.type == WeightType::BF16) return amx_bf16(work, first, last);
    if (m.type == WeightType::INT8)
        return rows < 4 ? matmul_int15(work, first, last) : amx_int8(work, first, last);
#elif defined(OWNWORDS_INT15)
    if (m.type == WeightType::INT8 && !m.int8_input) return matmul_int15(work, first, last);
#endif
    switch (m.type) {
        case WeightType::F32: return matmul_f32(work, first, last);
        case WeightType::BF16: return matmul_bf16(work, first, last);
        case WeightType::INT8: return matmul_int8(work, first, last);
    }
}

// Products with float and bfloat16 weights.

namespace {

constexpr i64 LINES_AT_ONCE = 8;  // every panel has a multiple of these

// How a line of weights is multiplied, in one or two steps: `weights` are those of each output, for
// an activation of 32 bits.
struct F32Steps {
    static constexpr int COUNT = 1;

    static VecF32 weights(const float *line, int) { return load(line); }
    static VecF32 add(VecF32 sum, VecF32 weights, float x) { return fma(sum, weights, x); }
};

// Pairs of bfloat16, the even input in the low half, are widened.
struct WidenedSteps : F32Steps {
    static constexpr int COUNT = 2;

    static VecF32 weights(const float *line, int step) {
        const VecU32 pairs = (VecU32)load(line);
        return (VecF32)(step == 0 ? pairs << 16 : pairs & 0xffff0000u);
    }
};

#if defined(__AVX512BF16__)
// Pairs times pairs.
struct DotSteps : F32Steps {
    static VecF32 add(VecF32 sum, VecF32 weights, float x) {
        return (VecF32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_ps(x),
                                       (__m512bh)weights);
    }
};
#endif

template <class Steps>
struct FloatKernel {
    static constexpr int SUMS = SUM_REGISTERS, ROWS = 12;
    static constexpr bool FEW_PASSES = true;

    template <int P, int R>
    static void block(const MatmulArgs &w, i64 p, i64 stride, i64 n,
                      VecF32 (&out)[P][R][VECS_PER_LINE]) {
        const i64 bytes = i64(w.matrix.panel_bytes()), depth = bytes / LINE * Steps::COUNT;
        const unsigned char *panels = w.matrix.lines + p * bytes;
        stride *= bytes;
        // Every third row has a pointer, because no more fit into registers.
        const float *in[(R + 2) / 3];
        for (int r = 0; r < R; r += 3) in[r / 3] = w.input.f32 + (n + r) * depth;
        VecF32 sums[P][R][VECS_PER_LINE] = {};
        for (i64 at = 0; at < bytes; at += LINES_AT_ONCE * LINE) {
#pragma GCC unroll 8
            for (int j = 0; j < LINES_AT_ONCE; ++j)
#pragma GCC unroll 2
                for (int step = 0; step < Steps::COUNT; ++step) {
                    VecF32 weights[P][VECS_PER_LINE];
#pragma GCC unroll 4
                    for (int i = 0; i < P; ++i) {
                        const unsigned char *line = panels + i * stride + at + j * LINE;
                        if (step == 0) prefetch_ahead(line);
#pragma GCC unroll 4
                        for (int v = 0; v < VECS_PER_LINE; ++v)
                            weights[i][v] = Steps::weights(
                                reinterpret_cast<const float *>(line) + v * LANES, step);
                    }
#pragma GCC unroll 12
                    for (int r = 0; r < R; ++r) {
                        const float x = in[r / 3][r % 3 * depth + j * Steps::COUNT + step];
#pragma GCC unroll 4
                        for (int i = 0; i < P; ++i)
#pragma GCC unroll 4
                            for (int v = 0; v < VECS_PER_LINE; ++v)
                                sums[i][r][v] = Steps::add(sums[i][r][v], weights[i][v], x);
                    }
                }
#pragma GCC unroll 4
            for (int r = 0; r < R; r += 3) in[r / 3] += LINES_AT_ONCE * Steps::COUNT;
        }
        std::memcpy(out, sums, sizeof sums);
    }
};

}  // namespace

void matmul_f32(const MatmulArgs &work, i64 first, i64 last) {
    matmul_all<FloatKernel<F32Steps>>(work, first, last);
}

void matmul_bf16(const MatmulArgs &work, i64 first, i64 last) {
#if defined(__AVX512BF16__)
    if (has_bf16_activations()) return matmul_all<FloatKernel<DotSteps>>(work, first, last);
#endif
    matmul_all<FloatKernel<WidenedSteps>>(work, first, last);
}

}  // namespace ownwords::engine
