// One row of the layers between matrix products, with gradients: RMSNorm, x / rms(x) * (offset +
// weight), LayerNorm, rotary positions and activations.
#pragma once

#include <cmath>
#include <cstring>

#include "simd/vec.h"

namespace ownwords {

struct NormStats {
    float mean, scale;
};

// Of LayerNorm, or RMSNorm, whose mean is 0.
template <typename T>
inline NormStats norm_stats(const T *x, i64 width, float eps, bool layer_norm = false) {
    VecF32 sum{}, squares{};
    if (layer_norm) for_each_vec(width, [&](i64 c, auto part) { sum += load(x + c, part); });
    const float mean = layer_norm ? reduce_add(sum) / float(width) : 0.0f;
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

// RMSNorm of a token's queries and keys, if it has weights, and rotary positions (Su et al. 2021,
// arXiv 2104.09864); values are copied.

struct HeadShape {
    i64 query_heads, kv_heads, width;
    float eps, offset;

    i64 count() const { return query_heads + 2 * kv_heads; }
};

template <typename T, typename W, typename A>
inline void norm_and_rope(const HeadShape s, const T *from, const W *query_norm, const W *key_norm,
                          const A *cosines, const A *sines, T *to) {
    const i64 half = s.width / 2;
    for (i64 head = 0; head < s.query_heads + s.kv_heads; ++head, from += s.width, to += s.width) {
        const W *norm = head < s.query_heads ? query_norm : key_norm;
        const float scale = norm != nullptr ? norm_stats(from, s.width, s.eps).scale : 1.0f;
        for_each_vec(half, [=](i64 d, auto part) {
            VecF32 a = load(from + d, part), b = load(from + half + d, part);
            if (norm != nullptr) {
                a *= scale * (load(norm + d, part) + s.offset);
                b *= scale * (load(norm + half + d, part) + s.offset);
            }
            const VecF32 c = load(cosines + d, part), n = load(sines + d, part);
            store(to + d, a * c - b * n, part);
            store(to + half + d, b * c + a * n, part);
        });
    }
    std::memcpy(to, from, size_t(s.kv_heads * s.width) * sizeof(T));
}

// Adds the gradients of the two norms' weights to dnorms. `normed_grad` is scratch for a head.
template <typename T, typename W, typename A>
inline void norm_and_rope_backward(const HeadShape s, const T *from, const W *query_norm,
                                   const W *key_norm, const A *cosines, const A *sines, const T *dy,
                                   T *to, float *dnorms, float *normed_grad) {
    const i64 half = s.width / 2;
    for (i64 head = 0; head < s.query_heads + s.kv_heads;
         ++head, from += s.width, dy += s.width, to += s.width) {
        const bool is_key = head >= s.query_heads;
        const W *norm = is_key ? key_norm : query_norm;
        if (norm == nullptr) {
            for_each_vec(half, [=](i64 d, auto part) {
                const VecF32 a = load(dy + d, part), b = load(dy + half + d, part);
                const VecF32 c = load(cosines + d, part), n = load(sines + d, part);
                store(to + d, a * c + b * n, part);
                store(to + half + d, b * c - a * n, part);
            });
            continue;
        }
        // Undo the rotation, then the gradient of RMSNorm.
        VecF32 squares{}, dot{};
        for_each_vec(half, [&](i64 d, auto part) {
            const VecF32 a = load(dy + d, part), b = load(dy + half + d, part);
            const VecF32 c = load(cosines + d, part), n = load(sines + d, part);
            const VecF32 first_half = a * c + b * n, second_half = b * c - a * n;
            const VecF32 v = load(from + d, part), w = load(from + half + d, part);
            squares += v * v + w * w;
            dot += first_half * v * (load(norm + d, part) + s.offset);
            dot += second_half * w * (load(norm + half + d, part) + s.offset);
            store(normed_grad + d, first_half, part);
            store(normed_grad + half + d, second_half, part);
        });
        float *dnorm = dnorms + i64(is_key) * s.width;
        const float scale = 1.0f / std::sqrt(reduce_add(squares) / float(s.width) + s.eps);
        const float correction = reduce_add(dot) * scale * scale * scale / float(s.width);
        for_each_vec(s.width, [=](i64 d, auto part) {
            const VecF32 v = load(from + d, part), g = load(normed_grad + d, part) * scale;
            store(dnorm + d, load(dnorm + d, part) + g * v, part);
            store(to + d, g * (load(norm + d, part) + s.offset) - v * correction, part);
        });
    }
    if (to != dy) std::memcpy(to, dy, size_t(s.kv_heads * s.width) * sizeof(T));
}

}  // namespace ownwords
