// Activations made ready, and the product by the kind of its weights.
#include "engine/product.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/codes.h"
#include "engine/kinds.h"
#include "vectors.h"

namespace ownwords::engine {
namespace {

#if defined(__AVX512BF16__)
constexpr bool HALVES = true;  // bfloat16 times bfloat16
#else
constexpr bool HALVES = false;
#endif

constexpr int STEPS = int(GROUP) / LANES;

// 32 numbers as codes, the largest becoming 127, rounded to the nearest, ties to even; what a code
// of 1 stands for, and the sum of all. Where they are not finite, that is no number, and makes none
// of every product.
inline void round_group(const float *numbers, Code *codes, float &scale, int32_t &sum) {
    Vector x[STEPS];
    Bits most{};
    for (int s = 0; s < STEPS; ++s) {
        x[s] = load(numbers + s * LANES);
        most = larger(most, size_of(x[s]));
    }
    const float top = largest(most);
    if (!std::isfinite(top)) {
        std::fill_n(codes, GROUP, Code(0));
        scale = std::numeric_limits<float>::quiet_NaN();
        sum = 0;
        return;
    }
    const float by = top > 1e-30f ? 127.0f / top : 0.0f;
    // The lowest bits of a float this large are its whole number.
    const float large = 0x1.8p23f;
    Whole sums{};
    for (int s = 0; s < STEPS; ++s) {
        const Whole whole = (Whole)(x[s] * by + large) - (Whole)every(large);
        put(whole, codes + s * LANES);
        sums += whole;
    }
    scale = top * (1.0f / 127.0f);
    sum = int32_t(summed(__builtin_convertvector(sums, Vector)));  // small enough to be exact
}

// 32 numbers of a row as a matrix of this kind takes them.
inline void ready_group(const Matrix &m, const float *numbers, Input &input, Long at, Long group) {
    if (m.kind == Kind::INT8 || m.kind == Kind::INT4) {
        int32_t sum;
        round_group(numbers, reinterpret_cast<Code *>(input.codes) + at, input.scales[group], sum);
        input.shifts[group] = -(m.kind == Kind::INT8 ? SHIFT8 : 8) * sum;
    } else if (HALVES && m.kind == Kind::BF16) {
        auto *to = reinterpret_cast<Bf16 *>(input.halves) + at;
        for (int s = 0; s < STEPS; ++s) store(to + s * LANES, load(numbers + s * LANES));
    } else {
        for (int s = 0; s < STEPS; ++s)
            store(input.numbers + at + s * LANES, load(numbers + s * LANES));
    }
}

}  // namespace

Input::Input(Long rows, Long inputs) {
    // Tiles read 16 rows where there are fewer, and with them the scales of as many.
    const size_t deep = size_t(inputs + 63) / 64 * 64, all = size_t(rows + 15) / 16 * 16 * deep;
    memory_ = Memory(all * 4 + 64);
    numbers = reinterpret_cast<float *>(memory_.start());
    halves = reinterpret_cast<uint16_t *>(memory_.start());
    codes = reinterpret_cast<int8_t *>(memory_.start());
    scales = reinterpret_cast<float *>(memory_.start() + all * 2);
    shifts = reinterpret_cast<int32_t *>(memory_.start() + all * 2 + all / 8);
}

void ready(const Matrix &m, const float *in, Long rows, Long stride, Input &input, Long begin,
           Long end) {
    const Long deep = m.depth();
    for (Long n = begin; n < end; ++n) {
        const float *from = in + n * stride;
#if defined(OWNWORDS_TILES)
        if (m.kind == Kind::INT8) {
            ready_wide(m, from, rows, n, input);
            continue;
        }
#endif
        Long k = 0;
        for (; k + GROUP <= m.inputs; k += GROUP)
            ready_group(m, from + k, input, n * deep + k, k / GROUP * rows + n);
        for (; k < deep; k += GROUP) {
            float part[GROUP] = {};
            std::copy(from + std::min(k, m.inputs), from + m.inputs, part);
            ready_group(m, part, input, n * deep + k, k / GROUP * rows + n);
        }
    }
}

void put_out(const Work &w, Long panel, Long row, Long rows, const float *sums) {
    const Long first = panel * PANEL, count = std::min(PANEL, w.matrix.outputs - first);
    float *to = w.out + row * w.stride + first;
    each_vector(count, [=](Long o, auto part) {
        const Vector more = w.bias == nullptr ? Vector{} : load(w.bias + first + o, part);
        for (Long r = 0; r < rows; ++r)
            store(to + r * w.stride + o, load(sums + r * PANEL + o) + more, part);
    });
}

void multiply(const Matrix &m, const Input &input, Long rows, const float *bias, float *out,
              Long stride, Long first, Long last) {
    const Work work{m, input, rows, bias, out, stride};
#if defined(OWNWORDS_TILES)
    if (m.kind == Kind::BF16) return tile_halves(work, first, last);
    if (m.kind == Kind::INT8)
        return rows < 4 ? multiply_wide(work, first, last) : tile_bytes(work, first, last);
    if (m.kind == Kind::INT4 && rows > 12) return tile_codes4(work, first, last);
#endif
    switch (m.kind) {
        case Kind::F32: return multiply_floats(work, first, last);
        case Kind::BF16: return multiply_halves(work, first, last);
        case Kind::INT8: return multiply_codes8(work, first, last);
        case Kind::INT4: return multiply_codes4(work, first, last);
    }
}

}  // namespace ownwords::engine
