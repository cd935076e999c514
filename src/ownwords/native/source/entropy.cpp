// Cross entropy of rows of logits, and, in their place, its slope: softmax less the target.
#include <algorithm>
#include <cmath>
#include <vector>

#include "numbers.h"
#include "threads.h"

namespace ownwords {
namespace {

constexpr long GRAIN = 8192;

template <typename T>
void entropy(T *logits, const int64_t *targets, const float *weights, double *sum, long rows,
             long width, float z_weight, bool slope) {
    const int shares = parts(rows, GRAIN / width + 1);
    std::vector<double> sums(shares, 0.0);
    parallel(rows, GRAIN / width + 1, [&](long begin, long end, int part) {
        std::vector<float> scratch(width);
        float *powers = scratch.data();
        for (long row = begin; row < end; ++row) {
            T *line = logits + row * width;
            const float target = wide(line[targets[row]]);
            float top = -INFINITY;
#pragma omp simd reduction(max : top)
            for (long c = 0; c < width; ++c) {
                const float x = wide(line[c]);
                top = x > top ? x : top;
            }
            float total = 0;
#pragma omp simd reduction(+ : total)
            for (long c = 0; c < width; ++c) {
                powers[c] = fast_exp(wide(line[c]) - top);
                total += powers[c];
            }
            const float log_sum = top + std::log(total);
            sums[part] += double(weights[row]) * (log_sum - target + z_weight * log_sum * log_sum);
            if (!slope) continue;
            const float share = weights[row] * (1.0f + 2.0f * z_weight * log_sum) / total;
            const float right = powers[targets[row]] * share - weights[row];
#pragma omp simd
            for (long c = 0; c < width; ++c) put(line[c], powers[c] * share);
            put(line[targets[row]], right);
        }
    });
    for (const double one : sums) *sum += one;
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_entropy(int kind, void *logits, const int64_t *targets,
                                   const float *weights, double *sum, long rows, long width,
                                   float z_weight, int slope) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::entropy((T *)logits, targets, weights, sum, rows, width, z_weight, slope != 0);
    });
}
