// RMSNorm: y = x / sqrt(mean(x^2) + eps) * (offset + weight), and its gradients.
#include <cmath>
#include <vector>

#include "threads.h"
#include "vectors.h"

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
            Vector squares{};
            each_vector(width, [&](long c, auto part) {
                const Vector v = load(from + c, part);
                squares += v * v;
            });
            const float scale = 1.0f / std::sqrt(summed(squares) / float(width) + eps);
            inverse[row] = scale;
            each_vector(width, [=](long c, auto part) {
                const Vector by = load(weight + c, part) + offset;
                store(to + c, load(from + c, part) * scale * by, part);
            });
        }
    });
}

template <typename T>
void backward(const T *x, const float *weight, const float *inverse, const T *dy, T *dx, float *dweight,
              long rows, long width, float offset) {
    const int shares = parts(rows, GRAIN / width + 1);
    std::vector<float> sums(size_t(shares) * width, 0.0f);
    parallel(rows, GRAIN / width + 1, [&](long begin, long end, int share) {
        float *total = sums.data() + long(share) * width;
        for (long row = begin; row < end; ++row) {
            const T *from = x + row * width, *slope = dy + row * width;
            T *to = dx + row * width;
            const float scale = inverse[row];
            Vector along{};
            each_vector(width, [&](long c, auto part) {
                const Vector gv = load(slope + c, part) * load(from + c, part);
                store(total + c, load(total + c, part) + gv * scale, part);
                along += gv * (load(weight + c, part) + offset);
            });
            const float back = summed(along) * scale * scale * scale / float(width);
            each_vector(width, [=](long c, auto part) {
                const Vector by = (load(weight + c, part) + offset) * scale;
                store(to + c, load(slope + c, part) * by - load(from + c, part) * back, part);
            });
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
