// Queries, keys and values as one product made them, [N, heads, D]: each query and key head is
// normed (if it has a norm) and turned to its position; values are passed on.
#include <cmath>
#include <vector>

#include "numbers.h"
#include "threads.h"

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
void forward(const Shape s, const T *x, const float *query_norm, const float *key_norm, const float *cosine,
             const float *sine, T *y) {
    const long half = s.width / 2;
    parallel(s.tokens, s.grain(), [=](long begin, long end, int) {
        for (long token = begin; token < end; ++token) {
            const float *c = cosine + (token % s.period) * half;
            const float *n = sine + (token % s.period) * half;
            for (long head = 0; head < s.heads(); ++head) {
                const T *from = x + (token * s.heads() + head) * s.width;
                T *to = y + (token * s.heads() + head) * s.width;
                if (head >= s.queries + s.keys) {
                    for (long d = 0; d < s.width; ++d) to[d] = from[d];
                    continue;
                }
                const float *norm = head < s.queries ? query_norm : key_norm;
                if (norm == nullptr) {
#pragma omp simd
                    for (long d = 0; d < half; ++d) {
                        const float a = wide(from[d]), b = wide(from[d + half]);
                        put(to[d], a * c[d] - b * n[d]);
                        put(to[d + half], b * c[d] + a * n[d]);
                    }
                    continue;
                }
                float squares = 0;
#pragma omp simd reduction(+ : squares)
                for (long d = 0; d < s.width; ++d) squares += wide(from[d]) * wide(from[d]);
                const float scale = 1.0f / std::sqrt(squares / float(s.width) + s.eps);
#pragma omp simd
                for (long d = 0; d < half; ++d) {
                    const float a = wide(from[d]) * scale * (wide(norm[d]) + s.offset);
                    const float b =
                        wide(from[d + half]) * scale * (wide(norm[d + half]) + s.offset);
                    put(to[d], a * c[d] - b * n[d]);
                    put(to[d + half], b * c[d] + a * n[d]);
                }
            }
        }
    });
}

template <typename T>
void backward(const Shape s, const T *x, const float *query_norm, const float *key_norm,
              const float *cosine, const float *sine, const T *dy, T *dx, float *dnorms) {
    const long half = s.width / 2;
    const int shares = parts(s.tokens, s.grain());
    std::vector<float> sums(size_t(shares) * 2 * s.width, 0.0f);
    parallel(s.tokens, s.grain(), [&](long begin, long end, int part) {
        std::vector<float> scratch(s.width);
        float *slope = scratch.data();
        for (long token = begin; token < end; ++token) {
            const float *c = cosine + (token % s.period) * half;
            const float *n = sine + (token % s.period) * half;
            for (long head = 0; head < s.heads(); ++head) {
                const long at = (token * s.heads() + head) * s.width;
                const T *from = x + at, *back = dy + at;
                T *to = dx + at;
                if (head >= s.queries + s.keys) {
                    for (long d = 0; d < s.width; ++d) to[d] = back[d];
                    continue;
                }
                const bool is_key = head >= s.queries;
                const float *norm = is_key ? key_norm : query_norm;
#pragma omp simd
                for (long d = 0; d < half; ++d) {
                    const float a = wide(back[d]), b = wide(back[d + half]);
                    slope[d] = a * c[d] + b * n[d];
                    slope[d + half] = b * c[d] - a * n[d];
                }
                if (norm == nullptr) {
#pragma omp simd
                    for (long d = 0; d < s.width; ++d) put(to[d], slope[d]);
                    continue;
                }
                float *sum = sums.data() + (2 * long(part) + is_key) * s.width;
                float squares = 0, along = 0;
#pragma omp simd reduction(+ : squares, along)
                for (long d = 0; d < s.width; ++d) {
                    const float v = wide(from[d]);
                    squares += v * v;
                    along += slope[d] * v * (wide(norm[d]) + s.offset);
                }
                const float scale = 1.0f / std::sqrt(squares / float(s.width) + s.eps);
                const float less = along * scale * scale * scale / float(s.width);
#pragma omp simd
                for (long d = 0; d < s.width; ++d) {
                    const float v = wide(from[d]);
                    sum[d] += slope[d] * v * scale;
                    put(to[d], slope[d] * (wide(norm[d]) + s.offset) * scale - v * less);
                }
            }
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
