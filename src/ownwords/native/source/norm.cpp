// RMSNorm: y = x / sqrt(mean(x^2) + eps) * (offset + weight), and its gradients.
#include <cmath>
#include <vector>

#include "numbers.h"
#include "threads.h"

namespace ownwords {
namespace {

constexpr long GRAIN = 16384;  // numbers that are worth another thread

template <typename T>
void forward(const T *x, const float *weight, T *y, float *inverse, long rows, long width, float eps,
             float offset) {
    parallel(rows, GRAIN / width + 1, [=](long begin, long end, int) {
        for (long row = begin; row < end; ++row) {
            const T *from = x + row * width;
            T *to = y + row * width;
            float squares = 0;
#pragma omp simd reduction(+ : squares)
            for (long c = 0; c < width; ++c) squares += wide(from[c]) * wide(from[c]);
            const float scale = 1.0f / std::sqrt(squares / float(width) + eps);
            inverse[row] = scale;
#pragma omp simd
            for (long c = 0; c < width; ++c)
                put(to[c], wide(from[c]) * scale * (wide(weight[c]) + offset));
        }
    });
}

template <typename T>
void backward(const T *x, const float *weight, const float *inverse, const T *dy, T *dx, float *dweight,
              long rows, long width, float offset) {
    const int shares = parts(rows, GRAIN / width + 1);
    std::vector<float> sums(size_t(shares) * width, 0.0f);
    parallel(rows, GRAIN / width + 1, [&](long begin, long end, int part) {
        float *sum = sums.data() + long(part) * width;
        for (long row = begin; row < end; ++row) {
            const T *from = x + row * width, *slope = dy + row * width;
            T *to = dx + row * width;
            const float scale = inverse[row];
            float along = 0;
#pragma omp simd reduction(+ : along)
            for (long c = 0; c < width; ++c)
                along += wide(slope[c]) * wide(from[c]) * (wide(weight[c]) + offset);
            const float back = along * scale * scale * scale / float(width);
#pragma omp simd
            for (long c = 0; c < width; ++c) {
                const float g = wide(slope[c]), v = wide(from[c]);
                sum[c] += g * v * scale;
                put(to[c], g * (wide(weight[c]) + offset) * scale - v * back);
            }
        }
    });
    for (long c = 0; c < width; ++c) {
        dweight[c] = 0;
        for (int share = 0; share < shares; ++share) dweight[c] += sums[share * width + c];
    }
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_norm(int kind, const void *x, const float *weight, void *y,
                                float *inverse, long rows, long width, float eps, float offset) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::forward((const T *)x, weight, (T *)y, inverse, rows, width, eps,
                          offset);
    });
}

OWNWORDS_API void ownwords_norm_back(int kind, const void *x, const float *weight,
                                     const float *inverse, const void *dy, void *dx, float *dweight,
                                     long rows, long width, float offset) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::backward((const T *)x, weight, inverse, (const T *)dy, (T *)dx,
                           dweight, rows, width, offset);
    });
}
