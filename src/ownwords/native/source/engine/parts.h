// What stands between the products of a model: norms, rotary positions, gates, bounds. One row each.
#pragma once

#include <cmath>

#include "vectors.h"

namespace ownwords::engine {

struct Norm {
    const float *weight = nullptr;  // null: there is no such norm
    const float *bias = nullptr;    // for a LayerNorm, which takes the mean away first
    float eps = 0;
};

// Sums of a row, four at a time: one alone would wait for each addition.
template <typename Of>
inline float total(Long width, const Of &of) {
    Vector sums[4] = {};
    Long at = 0;
    for (; at + 4 * LANES <= width; at += 4 * LANES)
        for (int i = 0; i < 4; ++i) sums[i] += of(at + i * LANES, Full{});
    for (; at + LANES <= width; at += LANES) sums[0] += of(at, Full{});
    if (at < width) sums[1] += only(of(at, Part{width - at}), Part{width - at}, 0.0f);
    return summed((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// to = norm(x), which may be the same row; the weight of an RMSNorm has its offset in it.
inline void normalise(const Norm &norm, const float *x, Long width, float *to) {
    float mean = 0;
    if (norm.bias != nullptr)
        mean = total(width, [=](Long c, auto part) { return load(x + c, part); }) / float(width);
    const float squares = total(width, [=](Long c, auto part) {
        const Vector apart = load(x + c, part) - mean;
        return apart * apart;
    });
    const float scale = 1.0f / std::sqrt(squares / float(width) + norm.eps);
    each_vector(width, [=](Long c, auto part) {
        Vector made = (load(x + c, part) - mean) * scale * load(norm.weight + c, part);
        if (norm.bias != nullptr) made += load(norm.bias + c, part);
        store(to + c, made, part);
    });
}

inline void add(float *x, const float *y, Long width) {
    each_vector(width,
                [=](Long c, auto part) { store(x + c, load(x + c, part) + load(y + c, part), part); });
}

// Cosines and sines of the angles at one position, [half] each. The angle is rounded to float before
// it is turned into them, as in every other implementation.
inline void turn_of(Long position, const float *frequencies, Long half, float *cosines,
                    float *sines) {
    for (Long i = 0; i < half; ++i) {
        const double angle = double(float(position) * frequencies[i]);
        const double shifted = angle * 0.63661977236758134 + 6755399441055744.0;  // 1.5 * 2^52
        const double quarters = shifted - 6755399441055744.0;
        const double r = angle - quarters * 1.5707963267948966;
        const double s = r * r;
        const double sine =
            r + r * s * (-1.6666666666666632e-1 +
                         s * (8.3333333333224895e-3 +
                              s * (-1.9841269829857949e-4 +
                                   s * (2.7557313707070068e-6 + s * -2.5050760253406863e-8))));
        const double cosine =
            1.0 - 0.5 * s +
            s * s * (4.1666666666665929e-2 +
                     s * (-1.3888888888730564e-3 +
                          s * (2.4801587288851704e-5 + s * -2.7557314297343598e-7)));
        const int32_t quarter = int32_t(quarters) & 3;
        const double first = quarter & 1 ? sine : cosine, second = quarter & 1 ? cosine : sine;
        cosines[i] = float(quarter == 1 || quarter == 2 ? -first : first);
        sines[i] = float(quarter >= 2 ? -second : second);
    }
}

// A head normed, if it has a norm, turned, if there are angles, and scaled; `to` may be `from`.
inline void prepare(const float *from, const Norm &norm, const float *cosines, const float *sines,
                    float scale, Long width, float *to) {
    float by = scale;
    if (norm.weight != nullptr) {
        const float squares = total(width, [=](Long d, auto part) {
            const Vector v = load(from + d, part);
            return v * v;
        });
        by *= 1.0f / std::sqrt(squares / float(width) + norm.eps);
    }
    const auto scaled = [&](Long d, auto part) {
        const Vector x = load(from + d, part) * by;
        return norm.weight == nullptr ? x : x * load(norm.weight + d, part);
    };
    if (cosines == nullptr) {
        each_vector(width, [=](Long d, auto part) { store(to + d, scaled(d, part), part); });
        return;
    }
    const Long half = width / 2;
    each_vector(half, [=](Long d, auto part) {
        const Vector a = scaled(d, part), b = scaled(half + d, part);
        const Vector c = load(cosines + d, part), s = load(sines + d, part);
        store(to + d, a * c - b * s, part);
        store(to + half + d, b * c + a * s, part);
    });
}

// Rough is enough where what enters the next product is rounded far more.
template <bool rough>
inline Vector silu(Vector x) {
    return x * inverse<rough>(1.0f + exp<rough>(-x));
}

// The tanh approximation, as x times a logistic function.
template <bool rough>
inline Vector gelu(Vector x) {
    const Vector inner = 0.7978845608f * x * (1.0f + 0.044715f * (x * x));
    return x * inverse<rough>(1.0f + exp<rough>(-2.0f * inner));
}

// x = activation(x), times `other` if there is one.
template <typename Activation>
inline void activate(const Activation &activation, float *x, const float *other, Long width) {
    each_vector(width, [=](Long c, auto part) {
        Vector made = activation(load(x + c, part));
        if (other != nullptr) made *= load(other + c, part);
        store(x + c, made, part);
    });
}

// x = bound * tanh(x / bound)
inline void cap(float *x, float bound, Long width) {
    each_vector(width, [=](Long c, auto part) {
        const Vector turned = inverse<false>(1.0f + exp<false>(load(x + c, part) * (-2.0f / bound)));
        store(x + c, bound * (2.0f * turned - 1.0f), part);
    });
}

}  // namespace ownwords::engine
