// RMSNorm of a token's queries and keys, if it has weights, and rotary positions (Su et al. 2021,
// arXiv 2104.09864); values are copied.
#pragma once

#include <cmath>
#include <cstring>

#include "simd/vec.h"

namespace ownwords {

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
        float scale = 1.0f;
        if (norm != nullptr) {
            VecF32 squares{};
            for_each_vec(s.width, [&](i64 d, auto part) {
                const VecF32 v = load(from + d, part);
                squares += v * v;
            });
            scale /= std::sqrt(reduce_add(squares) / float(s.width) + s.eps);
        }
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
