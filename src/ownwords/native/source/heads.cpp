// Queries, keys and values as one product made them, [N, heads, D]: each query and key head is
// normed (if it has a norm) and turned to its position; values are passed on.
#include <cmath>
#include <vector>

#include "threads.h"
#include "vectors.h"

namespace ownwords {
namespace {

constexpr long GRAIN = 16384;

// cos and sin have a row of D / 2 for each token (or for each of `period` tokens, over and over).
struct Shape {
    long tokens, queries, keys, width, period;
    float eps, offset;

    long heads() const { return queries + 2 * keys; }
    long grain() const { return GRAIN / (heads() * width) + 1; }
};

template <typename T>
void forward(const Shape s, const T *x, const float *query_norm, const float *key_norm,
             const float *cosine, const float *sine, T *y) {
    const long half = s.width / 2;
    parallel(s.tokens, s.grain(), [=](long begin, long end, int) {
        for (long token = begin; token < end; ++token) {
            const float *cosines = cosine + (token % s.period) * half;
            const float *sines = sine + (token % s.period) * half;
            const T *from = x + token * s.heads() * s.width;
            T *to = y + token * s.heads() * s.width;
            for (long head = 0; head < s.queries + s.keys; ++head, from += s.width, to += s.width) {
                const float *norm = head < s.queries ? query_norm : key_norm;
                float scale = 1.0f;
                if (norm != nullptr) {
                    Vector squares{};
                    each_vector(s.width, [&](long d, auto part) {
                        const Vector v = load(from + d, part);
                        squares += v * v;
                    });
                    scale /= std::sqrt(summed(squares) / float(s.width) + s.eps);
                }
                each_vector(half, [=](long d, auto part) {
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
    });
}

template <typename T>
void backward(const Shape s, const T *x, const float *query_norm, const float *key_norm,
              const float *cosine, const float *sine, const T *dy, T *dx, float *dnorms) {
    const long half = s.width / 2;
    const int shares = parts(s.tokens, s.grain());
    std::vector<float> sums(size_t(shares) * 2 * s.width, 0.0f);
    parallel(s.tokens, s.grain(), [&](long begin, long end, int share) {
        std::vector<float> scratch(s.width);
        float *slope = scratch.data();
        for (long token = begin; token < end; ++token) {
            const float *cosines = cosine + (token % s.period) * half;
            const float *sines = sine + (token % s.period) * half;
            long at = token * s.heads() * s.width;
            for (long head = 0; head < s.queries + s.keys; ++head, at += s.width) {
                const T *from = x + at, *back = dy + at;
                T *to = dx + at;
                const bool is_key = head >= s.queries;
                const float *norm = is_key ? key_norm : query_norm;
                if (norm == nullptr) {
                    each_vector(half, [=](long d, auto part) {
                        const Vector a = load(back + d, part), b = load(back + half + d, part);
                        const Vector c = load(cosines + d, part), n = load(sines + d, part);
                        store(to + d, a * c + b * n, part);
                        store(to + half + d, b * c - a * n, part);
                    });
                    continue;
                }
                // The slopes of the normed head times its values: what the norm itself changes.
                Vector squares{}, along{};
                each_vector(half, [&](long d, auto part) {
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
                float *total = sums.data() + (2 * long(share) + is_key) * s.width;
                const float scale = 1.0f / std::sqrt(summed(squares) / float(s.width) + s.eps);
                const float less = summed(along) * scale * scale * scale / float(s.width);
                each_vector(s.width, [=](long d, auto part) {
                    const Vector v = load(from + d, part), g = load(slope + d, part) * scale;
                    store(total + d, load(total + d, part) + g * v, part);
                    store(to + d, g * (load(norm + d, part) + s.offset) - v * less, part);
                });
            }
            std::memcpy(dx + at, dy + at, size_t(s.keys * s.width) * sizeof(T));
        }
    });
    for (long d = 0; d < 2 * s.width; ++d) {
        dnorms[d] = 0;
        for (int share = 0; share < shares; ++share) dnorms[d] += sums[share * 2 * s.width + d];
    }
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_heads(int kind, const void *x, const float *query_norm,
                                 const float *key_norm, const float *cosine, const float *sine,
                                 void *y, long tokens, long queries, long keys, long width,
                                 long period, float eps, float offset) {
    const ownwords::Shape shape{tokens, queries, keys, width, period, eps, offset};
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::forward(shape, (const T *)x, query_norm, key_norm, cosine,
                          sine, (T *)y);
    });
}

OWNWORDS_API void ownwords_heads_back(int kind, const void *x, const float *query_norm,
                                      const float *key_norm, const float *cosine, const float *sine,
                                      const void *dy, void *dx, float *dnorms, long tokens,
                                      long queries, long keys, long width, long period, float eps,
                                      float offset) {
    const ownwords::Shape shape{tokens, queries, keys, width, period, eps, offset};
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::backward(shape, (const T *)x, query_norm, key_norm, cosine,
                           sine, (const T *)dy, (T *)dx, dnorms);
    });
}
