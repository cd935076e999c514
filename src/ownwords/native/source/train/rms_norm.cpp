// RMSNorm outside of blocks, with its gradient.
#include <vector>

#include "simd/vec.h"
#include "train/layers.h"
#include "train/parallel.h"

namespace ownwords {
namespace {

constexpr i64 GRAIN = 8192;  // numbers that are worth another thread

template <typename T>
void rms_norm(const T *x, const float *weight, T *y, float *reciprocal, i64 rows, i64 width,
              float eps, float offset) {
    parallel_for(rows, GRAIN / width + 1, [=](i64 begin, i64 end, int) {
        const float *bias = nullptr;
        for (i64 row = begin; row < end; ++row) {
            const NormStats stats = rms_stats(x + row * width, width, eps);
            reciprocal[row] = stats.scale;
            norm_row(x + row * width, stats, weight, bias, offset, width, y + row * width);
        }
    });
}

template <typename T>
void rms_norm_backward(const T *x, const float *weight, const float *reciprocal, const T *dy, T *dx,
                       float *dweight, i64 rows, i64 width, float offset) {
    const int chunks = chunk_count(rows, GRAIN / width + 1);
    std::vector<float> sums(size_t(chunks) * width, 0.0f);
    parallel_for(rows, GRAIN / width + 1, [&](i64 begin, i64 end, int chunk) {
        float *dweight_sum = sums.data() + i64(chunk) * width, *dbias = nullptr;
        const float *bias = nullptr;
        T *no_output = nullptr;
        for (i64 row = begin; row < end; ++row)
            norm_row_backward(x + row * width, {0.0f, reciprocal[row]}, weight, bias, offset,
                              dy + row * width, no_output, width, false, dx + row * width,
                              dweight_sum, dbias, no_output);
    });
    for (i64 c = 0; c < width; ++c) {
        dweight[c] = 0;
        for (int chunk = 0; chunk < chunks; ++chunk) dweight[c] += sums[chunk * width + c];
    }
}

}  // namespace
}  // namespace ownwords

int ownwords_rms_norm(int dtype, const void *x, const float *weight, void *y, float *inverse_rms,
                      int64_t rows, int64_t width, float eps, float offset) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::rms_norm((const T *)x, weight, (T *)y, inverse_rms, rows, width, eps, offset);
    });
}

int ownwords_rms_norm_backward(int dtype, const void *x, const float *weight,
                               const float *inverse_rms, const void *dy, void *dx, float *dweight,
                               int64_t rows, int64_t width, float offset) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::rms_norm_backward((const T *)x, weight, inverse_rms, (const T *)dy, (T *)dx,
                                    dweight, rows, width, offset);
    });
}
