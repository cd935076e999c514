// The operations between matrix products, on one row: norms, rotary positions, activations, softcap.
#pragma once

#include <cmath>

#include "simd/vec.h"

namespace ownwords::engine {

struct NormWeights {
    const float *weight = nullptr;  // null: no norm
    const float *bias = nullptr;    // makes it a LayerNorm
    float eps = 0;
};

// The sum over a row, in four chains, to hide the latency of an addition.
template <typename Term>
inline float row_sum(i64 width, const Term &term) {
    VecF32 sums[4] = {};
    i64 at = 0;
    for (; at + 4 * LANES <= width; at += 4 * LANES)
        for (int i = 0; i < 4; ++i) sums[i] += term(at + i * LANES, FullVec{});
    for (; at + LANES <= width; at += LANES) sums[0] += term(at, FullVec{});
    if (at < width) sums[1] += mask_tail(term(at, TailVec{width - at}), TailVec{width - at}, 0.0f);
    return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// to = norm(x), which may be the same row. The weight of an RMSNorm includes its offset.
inline void normalize(const NormWeights &norm, const float *x, i64 width, float *to) {
    float mean = 0;
    if (norm.bias != nullptr)
        mean = row_sum(width, [=](i64 c, auto part) { return load(x + c, part); }) / float(width);
    const float squares = row_sum(width, [=](i64 c, auto part) {
        const VecF32 centered = load(x + c, part) - mean;
        return centered * centered;
    });
    const float scale = 1.0f / std::sqrt(squares / float(width) + norm.eps);
    for_each_vec(width, [=](i64 c, auto part) {
        VecF32 result = (load(x + c, part) - mean) * scale * load(norm.weight + c, part);
        if (norm.bias != nullptr) result += load(norm.bias + c, part);
        store(to + c, result, part);
    });
}

inline void add_row(float *x, const float *y, i64 width) {
    for_each_vec(width, [=](i64 c, auto part) {
        store(x + c, load(x + c, part) + load(y + c, part), part);
    });
}

// Compute cos and sin of the angles at a position, [half] each. The angle is rounded to float first,
// as in other implementations.
inline void rope_angles(i64 position, const float *frequencies, i64 half, float *cosines,
                        float *sines) {
    for (i64 i = 0; i < half; ++i) {
        const double angle = double(float(position) * frequencies[i]);
        // 1.5 * 2^52 rounds to integers
        const double shifted = angle * 0.63661977236758134 + 6755399441055744.0;
        const double quarters = shifted - 6755399441055744.0;
        const double r = angle - quarters * 1.5707963267948966;
        const double s = r * r;
        const double sine =
            r + r * s *
                    (-1.6666666666666632e-1 +
                     s * (8.3333333333224895e-3 +
                          s * (-1.9841269829857949e-4 +
                               s * (2.7557313707070068e-6 + s * -2.5050760253406863e-8))));
        const double cosine = 1.0 - 0.5 * s +
                              s * s *
                                  (4.1666666666665929e-2 +
                                   s * (-1.3888888888730564e-3 +
                                        s * (2.4801587288851704e-5 + s * -2.7557314297343598e-7)));
        const int32_t quarter = int32_t(quarters) & 3;
        const double first = quarter & 1 ? sine : cosine, second = quarter & 1 ? cosine : sine;
        cosines[i] = float(quarter == 1 || quarter == 2 ? -first : first);
        sines[i] = float(quarter >= 2 ? -second : second);
    }
}

// Norm, unless its weight is null, rotary position, unless `cosines` is null, and scale, of one
// head. `to` may be `from`.
inline void norm_and_rope_head(const float *from, const NormWeights &norm, const float *cosines,
                               const float *sines, float scale, i64 width, float *to) {
    if (norm.weight != nullptr) {
        const float squares = row_sum(width, [=](i64 d, auto part) {
            const VecF32 v = load(from + d, part);
            return v * v;
        });
        scale *= 1.0f / std::sqrt(squares / float(width) + norm.eps);
    }
    const auto scaled = [&](i64 d, auto part) {
        const VecF32 x = load(from + d, part) * scale;
        return norm.weight == nullptr ? x : x * load(norm.weight + d, part);
    };
    if (cosines == nullptr) {
        for_each_vec(width, [=](i64 d, auto part) { store(to + d, scaled(d, part), part); });
        return;
    }
    const i64 half = width / 2;
    for_each_vec(half, [=](i64 d, auto part) {
        const VecF32 a = scaled(d, part), b = scaled(half + d, part);
        const VecF32 c = load(cosines + d, part), s = load(sines + d, part);
        store(to + d, a * c - b * s, part);
        store(to + half + d, b * c + a * s, part);
    });
}

// x = activation(x), times gate_partner unless that is null.
template <typename Activation>
inline void activate_row(const Activation &activation, float *x, const float *gate_partner,
                         i64 width) {
    for_each_vec(width, [=](i64 c, auto part) {
        VecF32 result = activation(load(x + c, part));
        if (gate_partner != nullptr) result *= load(gate_partner + c, part);
        store(x + c, result, part);
    });
}

// x = bound * tanh(x / bound)
inline void softcap_row(float *x, float bound, i64 width) {
    for_each_vec(width, [=](i64 c, auto part) {
        const VecF32 logistic =
            reciprocal<false>(1.0f + exp<false>(load(x + c, part) * (-2.0f / bound)));
        store(x + c, bound * (2.0f * logistic - 1.0f), part);
    });
}

}  // namespace ownwords::engine
