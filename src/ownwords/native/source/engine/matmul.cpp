// Prepares activations, and picks the product for a weight type.
#include "engine/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/int8_dot.h"
#include "engine/kernels.h"
#include "simd/vec.h"

namespace ownwords::engine {
namespace {

#if defined(__AVX512BF16__)
constexpr bool BF16_PRODUCTS = true;
#else
constexpr bool BF16_PRODUCTS = false;
#endif

constexpr int STEPS = int(GROUP) / LANES;

// 32 numbers as codes from -127 to 127, rounded to nearest even, with their scale and sum. If some
// are not finite the scale is NaN, and so is every product.
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

// 32 numbers of a row, in the type that the matrix is multiplied with.
inline void prepare_group(const Matrix &m, const float *f32, MatmulInput &input, i64 at,
                          i64 group) {
    if (m.type == WeightType::INT8 || m.type == WeightType::INT4) {
        int32_t sum;
        quantize_group(f32, reinterpret_cast<Code *>(input.codes) + at, input.scales[group], sum);
        input.corrections[group] = -(m.type == WeightType::INT8 ? INT8_OFFSET : 8) * sum;
    } else if (BF16_PRODUCTS && m.type == WeightType::BF16) {
        auto *to = reinterpret_cast<Bf16 *>(input.bf16) + at;
        for (int s = 0; s < STEPS; ++s) store(to + s * LANES, load(f32 + s * LANES));
    } else {
        for (int s = 0; s < STEPS; ++s) store(input.f32 + at + s * LANES, load(f32 + s * LANES));
    }
}

}  // namespace

MatmulInput::MatmulInput(i64 rows, i64 inputs) {
    // Tiles read 16 rows, and their scales, even where there are fewer.
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
    for (i64 n = begin; n < end; ++n) {
        const float *from = in + n * stride;
#if defined(OWNWORDS_INT15)
        if (m.type == WeightType::INT8) {
            prepare_int15(m, from, rows, n, input);
            continue;
        }
#endif
        i64 k = 0;
        for (; k + GROUP <= m.inputs; k += GROUP)
            prepare_group(m, from + k, input, n * depth + k, k / GROUP * rows + n);
        for (; k < depth; k += GROUP) {
            float tail[GROUP] = {};
            std::copy(from + std::min(k, m.inputs), from + m.inputs, tail);
            prepare_group(m, tail, input, n * depth + k, k / GROUP * rows + n);
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
    if (m.type == WeightType::INT4 && rows > 12) return amx_int4(work, first, last);
#elif defined(OWNWORDS_INT15)
    if (m.type == WeightType::INT8) return matmul_int15(work, first, last);
#endif
    switch (m.type) {
        case WeightType::F32: return matmul_f32(work, first, last);
        case WeightType::BF16: return matmul_bf16(work, first, last);
        case WeightType::INT8: return matmul_int8(work, first, last);
        case WeightType::INT4: return matmul_int4(work, first, last);
    }
}

}  // namespace ownwords::engine
