// Norms of one row, and their gradients: RMSNorm, x / sqrt(mean(x^2) + eps) * (offset + weight),
// and LayerNorm, the same of what x differs from its mean, with a bias.
#pragma once

#include <cmath>

#include "vectors.h"

namespace ownwords {

// What a row is multiplied by, after the mean is taken off it.
struct Spread {
    float mean, scale;
};

template <typename T>
inline Spread rms_of(const T *x, Long width, float eps) {
    Vector squares{};
    each_vector(width, [&](Long c, auto part) {
        const Vector v = load(x + c, part);
        squares += v * v;
    });
    return {0.0f, 1.0f / std::sqrt(summed(squares) / float(width) + eps)};
}

template <typename T>
inline Spread deviation_of(const T *x, Long width, float eps) {
    Vector sum{}, squares{};
    each_vector(width, [&](Long c, auto part) { sum += load(x + c, part); });
    const float mean = summed(sum) / float(width);
    each_vector(width, [&](Long c, auto part) {
        const Vector v = only(load(x + c, part) - mean, part, 0.0f);
        squares += v * v;
    });
    return {mean, 1.0f / std::sqrt(summed(squares) / float(width) + eps)};
}

template <typename T, typename W, typename Y>
inline void norm_row(const T *x, Spread spread, const W *weight, const W *bias, float offset,
                     Long width, Y *y) {
    each_vector(width, [=](Long c, auto part) {
        const Vector by = load(weight + c, part) + offset;
        const Vector made = (load(x + c, part) - spread.mean) * spread.scale * by;
        store(y + c, bias == nullptr ? made : made + load(bias + c, part), part);
    });
}

// The slopes of x, plus `other`'s if there is one; those of weight and bias are added to theirs.
// Once more what the norm made, where `y` is.
template <typename T, typename W, typename S, typename O, typename D, typename Y>
inline void norm_row_back(const T *x, Spread spread, const W *weight, const W *bias, float offset,
                          const S *slope, const O *other, Long width, bool centred, D *dx,
                          float *dweight, float *dbias, Y *y) {
    Vector along{}, all{};
    each_vector(width, [&](Long c, auto part) {
        const Vector g = load(slope + c, part), by = load(weight + c, part) + offset;
        const Vector v = only((load(x + c, part) - spread.mean) * spread.scale, part, 0.0f);
        store(dweight + c, load(dweight + c, part) + g * v, part);
        if (dbias != nullptr) store(dbias + c, load(dbias + c, part) + g, part);
        if (y != nullptr) store(y + c, bias ? v * by + load(bias + c, part) : v * by, part);
        along += g * by * v;
        all += g * by;
    });
    const float back = summed(along) / float(width);
    const float mean = centred ? summed(all) / float(width) : 0.0f;
    each_vector(width, [=](Long c, auto part) {
        const Vector by = load(slope + c, part) * (load(weight + c, part) + offset);
        const Vector v = (load(x + c, part) - spread.mean) * spread.scale;
        Vector made = (by - mean - v * back) * spread.scale;
        if (other != nullptr) made += load(other + c, part);
        store(dx + c, made, part);
    });
}

}  // namespace ownwords
