// Cross entropy of rows of logits, and, in their place, its slope: softmax less the target.
#include <algorithm>
#include <cmath>
#include <vector>

#include "threads.h"
#include "vectors.h"

namespace ownwords {
namespace {

constexpr Long GRAIN = 8192;

template <typename T>
void entropy(T *logits, const int64_t *targets, const float *weights, double *sum, Long rows,
             Long width, float z_weight, bool slope) {
    const int shares = parts(rows, GRAIN / width + 1);
    std::vector<double> sums(shares, 0.0);
    parallel(rows, GRAIN / width + 1, [&](Long begin, Long end, int part) {
        std::vector<float> scratch(width);
        float *powers = scratch.data();
        for (Long row = begin; row < end; ++row) {
            T *line = logits + row * width;
            const float target = wide(line[targets[row]]);
            Vector tops = every(target), totals{};
            each_vector(width, [&](Long c, auto there) {
                tops = larger(tops, only(load(line + c, there), there, target));
            });
            const float top = largest(tops);
            each_vector(width, [&](Long c, auto there) {
                const Vector power = exp<ROUGH<T>>(load(line + c, there) - top);
                store(powers + c, power, there);
                totals += only(power, there, 0.0f);
            });
            const float total = summed(totals);
            const float log_sum = top + std::log(total);
            sums[part] += double(weights[row]) * (log_sum - target + z_weight * log_sum * log_sum);
            if (!slope) continue;
            const float share = weights[row] * (1.0f + 2.0f * z_weight * log_sum) / total;
            const float right = powers[targets[row]] * share - weights[row];
            each_vector(width, [=](Long c, auto there) {
                store(line + c, load(powers + c, there) * share, there);
            });
            put(line[targets[row]], right);
        }
    });
    for (const double one : sums) *sum += one;
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_entropy(int kind, void *logits, const int64_t *targets,
                                   const float *weights, double *sum, Long rows, Long width,
                                   float z_weight, int slope) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::entropy((T *)logits, targets, weights, sum, rows, width, z_weight, slope != 0);
    });
}
