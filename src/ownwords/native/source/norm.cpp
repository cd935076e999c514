// RMSNorm over all rows, and its gradients.
#include "norm.h"

#include <vector>

#include "threads.h"

namespace ownwords {
namespace {

constexpr Long GRAIN = 16384;  // numbers that are worth another thread

template <typename T>
void forward(const T *x, const float *weight, T *y, float *inverse, Long rows, Long width,
             float eps, float offset) {
    parallel(rows, GRAIN / width + 1, [=](Long begin, Long end, int) {
        const float *bias = nullptr;
        for (Long row = begin; row < end; ++row) {
            const Spread spread = rms_of(x + row * width, width, eps);
            inverse[row] = spread.scale;
            norm_row(x + row * width, spread, weight, bias, offset, width, y + row * width);
        }
    });
}

template <typename T>
void backward(const T *x, const float *weight, const float *inverse, const T *dy, T *dx,
              float *dweight, Long rows, Long width, float offset) {
    const int shares = parts(rows, GRAIN / width + 1);
    std::vector<float> sums(size_t(shares) * width, 0.0f);
    parallel(rows, GRAIN / width + 1, [&](Long begin, Long end, int share) {
        float *total = sums.data() + Long(share) * width, *dbias = nullptr;
        const float *bias = nullptr;
        T *none = nullptr;
        for (Long row = begin; row < end; ++row)
            norm_row_back(x + row * width, {0.0f, inverse[row]}, weight, bias, offset,
                          dy + row * width, none, width, false, dx + row * width, total, dbias,
                          none);
    });
    for (Long c = 0; c < width; ++c) {
        dweight[c] = 0;
        for (int share = 0; share < shares; ++share) dweight[c] += sums[share * width + c];
    }
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_norm(int kind, const void *x, const float *weight, void *y,
                                float *inverse, Long rows, Long width, float eps, float offset) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::forward((const T *)x, weight, (T *)y, inverse, rows, width, eps, offset);
    });
}

OWNWORDS_API void ownwords_norm_back(int kind, const void *x, const float *weight,
                                     const float *inverse, const void *dy, void *dx, float *dweight,
                                     Long rows, Long width, float offset) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::backward((const T *)x, weight, inverse, (const T *)dy, (T *)dx, dweight, rows,
                           width, offset);
    });
}
