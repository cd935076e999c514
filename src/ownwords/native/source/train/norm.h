// RMSNorm, x / rms(x) * (offset + weight), and LayerNorm of one row, with gradients.
#pragma once

#include <cmath>

#include "simd/vec.h"

namespace ownwords {

struct NormStats {
    float mean, scale;
};

template <typename T>
inline NormStats rms_stats(const T *x, i64 width, float eps) {
    VecF32 squares{};
    for_each_vec(width, [&](i64 c, auto part) {
        const VecF32 v = load(x + c, part);
        squares += v * v;
    });
    return {0.0f, 1.0f / std::sqrt(reduce_add(squares) / float(width) + eps)};
}

template <typename T>
inline NormStats layer_norm_stats(const T *x, i64 width, float eps) {
    VecF32 sum{}, squares{};
    for_each_vec(width, [&](i64 c, auto part) { sum += load(x + c, part); });
    const float mean = reduce_add(sum) / float(width);
    for_each_vec(width, [&](i64 c, auto part) {
        const VecF32 v = mask_tail(load(x + c, part) - mean, part, 0.0f);
        squares += v * v;
    });
    return {mean, 1.0f / std::sqrt(reduce_add(squares) / float(width) + eps)};
}

template <typename T, typename W, typename Y>
inline void norm_row(const T *x, NormStats stats, const W *weight, const W *bias, float offset,
                     i64 width, Y *y) {
    for_each_vec(width, [=](i64 c, auto part) {
        const VecF32 weighted = load(weight + c, part) + offset;
        const VecF32 result = (load(x + c, part) - stats.mean) * stats.scale * weighted;
        store(y + c, bias == nullptr ? result : result + load(bias + c, part), part);
    });
}

// dx of one row, plus residual_grad if not null; adds to dweight and dbias. Recomputes the norm's
// output unless `y` is null.
template <typename T, typename W, typename S, typename O, typename D, typename Y>
inline void norm_row_backward(const T *x, NormStats stats, const W *weight, const W *bias,
                              float offset, const S *dy, const O *residual_grad, i64 width,
                              bool layer_norm, D *dx, float *dweight, float *dbias, Y *y) {
    VecF32 dot{}, sum{};
    for_each_vec(width, [&](i64 c, auto part) {
        const VecF32 g = load(dy + c, part), weighted = load(weight + c, part) + offset;
        const VecF32 v = mask_tail((load(x + c, part) - stats.mean) * stats.scale, part, 0.0f);
        store(dweight + c, load(dweight + c, part) + g * v, part);
        if (dbias != nullptr) store(dbias + c, load(dbias + c, part) + g, part);
        if (y != nullptr)
            store(y + c, bias ? v * weighted + load(bias + c, part) : v * weighted, part);
        dot += g * weighted * v;
        sum += g * weighted;
    });
    const float mean_dot = reduce_add(dot) / float(width);
    const float mean = layer_norm ? reduce_add(sum) / float(width) : 0.0f;
    for_each_vec(width, [=](i64 c, auto part) {
        const VecF32 weighted = load(dy + c, part) * (load(weight + c, part) + offset);
        const VecF32 v = (load(x + c, part) - stats.mean) * stats.scale;
        VecF32 result = (weighted - mean - v * mean_dot) * stats.scale;
        if (residual_grad != nullptr) result += load(residual_grad + c, part);
        store(dx + c, result, part);
    });
}

}  // namespace ownwords
