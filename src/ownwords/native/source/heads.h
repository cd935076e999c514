// The heads of one token: queries and keys normed, if there are norms, and turned by the position's
// angles; values as they are.
#pragma once

#include <cmath>
#include <cstring>

#include "vectors.h"

namespace ownwords {

struct Heads {
    Long queries, keys, width;
    float eps, offset;

    Long count() const { return queries + 2 * keys; }
};

template <typename T, typename W, typename A>
inline void turn_heads(const Heads s, const T *from, const W *query_norm, const W *key_norm,
                       const A *cosines, const A *sines, T *to) {
    const Long half = s.width / 2;
    for (Long head = 0; head < s.queries + s.keys; ++head, from += s.width, to += s.width) {
        const W *norm = head < s.queries ? query_norm : key_norm;
        float scale = 1.0f;
        if (norm != nullptr) {
            Vector squares{};
            each_vector(s.width, [&](Long d, auto part) {
                const Vector v = load(from + d, part);
                squares += v * v;
            });
            scale /= std::sqrt(summed(squares) / float(s.width) + s.eps);
        }
        each_vector(half, [=](Long d, auto part) {
            Vector a = load(from + d, part), b = load(from + half + d, part);
            if (norm != nullptr) {
                a *= scale * (load(norm + d, part) + s.offset);
                b *= scale * (load(norm + half + d, part) + s.offset);
            }
            const Vector c = load(cosines + d, part), n = load(sines + d, part);
            store(to + d, a * c - b * n, part);
            store(to + half + d, b * c + a * n, part);
        });
    }
    std::memcpy(to, from, size_t(s.keys * s.width) * sizeof(T));
}

// `total`: what the slopes of the two norms' weights are added to; `slope`: room for a head.
template <typename T, typename W, typename A>
inline void turn_heads_back(const Heads s, const T *from, const W *query_norm, const W *key_norm,
                            const A *cosines, const A *sines, const T *back, T *to,
                            float *total, float *slope) {
    const Long half = s.width / 2;
    for (Long head = 0; head < s.queries + s.keys;
         ++head, from += s.width, back += s.width, to += s.width) {
        const bool is_key = head >= s.queries;
        const W *norm = is_key ? key_norm : query_norm;
        if (norm == nullptr) {
            each_vector(half, [=](Long d, auto part) {
                const Vector a = load(back + d, part), b = load(back + half + d, part);
                const Vector c = load(cosines + d, part), n = load(sines + d, part);
                store(to + d, a * c + b * n, part);
                store(to + half + d, b * c - a * n, part);
            });
            continue;
        }
        // The slopes of the normed head times its values: what the norm itself changes.
        Vector squares{}, along{};
        each_vector(half, [&](Long d, auto part) {
            const Vector a = load(back + d, part), b = load(back + half + d, part);
            const Vector c = load(cosines + d, part), n = load(sines + d, part);
            const Vector left = a * c + b * n, right = b * c - a * n;
            const Vector v = load(from + d, part), w = load(from + half + d, part);
            squares += v * v + w * w;
            along += left * v * (load(norm + d, part) + s.offset);
            along += right * w * (load(norm + half + d, part) + s.offset);
            store(slope + d, left, part);
            store(slope + half + d, right, part);
        });
        float *sums = total + Long(is_key) * s.width;
        const float scale = 1.0f / std::sqrt(summed(squares) / float(s.width) + s.eps);
        const float less = summed(along) * scale * scale * scale / float(s.width);
        each_vector(s.width, [=](Long d, auto part) {
            const Vector v = load(from + d, part), g = load(slope + d, part) * scale;
            store(sums + d, load(sums + d, part) + g * v, part);
            store(to + d, g * (load(norm + d, part) + s.offset) - v * less, part);
        });
    }
    if (to != back) std::memcpy(to, back, size_t(s.keys * s.width) * sizeof(T));
}

}  // namespace ownwords
