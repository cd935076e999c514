// Cross entropy of rows of logits and, in their place, its gradient: softmax minus one-hot target.
#include <algorithm>
#include <cmath>
#include <vector>

#include "train/parallel.h"
#include "simd/vec.h"

namespace ownwords {
namespace {

constexpr i64 GRAIN = 8192;

template <typename T>
void cross_entropy(T *logits, const int64_t *targets, const float *weights, double *sum, i64 rows,
                   i64 width, float z_weight, bool with_grad) {
    const int chunks = chunk_count(rows, GRAIN / width + 1);
    std::vector<double> chunk_sums(chunks, 0.0);
    parallel_for(rows, GRAIN / width + 1, [&](i64 begin, i64 end, int chunk) {
        std::vector<float> scratch(width);
        float *probs = scratch.data();
        for (i64 row = begin; row < end; ++row) {
            T *line = logits + row * width;
            const float target = to_float(line[targets[row]]);
            VecF32 maxima = splat(target), sums{};
            for_each_vec(width, [&](i64 c, auto lanes) {
                maxima = max(maxima, mask_tail(load(line + c, lanes), lanes, target));
            });
            const float max_logit = reduce_max(maxima);
            for_each_vec(width, [&](i64 c, auto lanes) {
                const VecF32 prob = exp<FAST_MATH<T>>(load(line + c, lanes) - max_logit);
                store(probs + c, prob, lanes);
                sums += mask_tail(prob, lanes, 0.0f);
            });
            const float sum_exp = reduce_add(sums);
            const float log_sum = max_logit + std::log(sum_exp);
            chunk_sums[chunk] +=
                double(weights[row]) * (log_sum - target + z_weight * log_sum * log_sum);
            if (!with_grad) continue;
            const float scale = weights[row] * (1.0f + 2.0f * z_weight * log_sum) / sum_exp;
            const float target_grad = probs[targets[row]] * scale - weights[row];
            for_each_vec(width, [=](i64 c, auto lanes) {
                store(line + c, load(probs + c, lanes) * scale, lanes);
            });
            store(line[targets[row]], target_grad);
        }
    });
    for (const double chunk_sum : chunk_sums) *sum += chunk_sum;
}

}  // namespace
}  // namespace ownwords

int ownwords_cross_entropy(int dtype, void *logits, const int64_t *targets, const float *weights,
                           double *sum, int64_t rows, int64_t vocabulary, float z_weight,
                           int with_grad) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        for (int64_t row = 0; row < rows; ++row)
            if (targets[row] < 0 || targets[row] >= vocabulary)
                throw ownwords::Error{STATUS_BAD_ID};
        ownwords::cross_entropy((T *)logits, targets, weights, sum, rows, vocabulary, z_weight,
                                with_grad != 0);
    });
}
