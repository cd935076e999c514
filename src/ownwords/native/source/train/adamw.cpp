// AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101).
#include <algorithm>
#include <cmath>

#include "simd/types.h"
#include "train/parallel.h"

namespace ownwords {
namespace {

// Weights that stay in the first-level cache until their bfloat16 copy is written.
constexpr i64 BLOCK = 2048;

struct AdamWStep {
    float learning_rate, beta1, beta2, eps, weight_decay, correction1, correction2;
};

// noinline: inlined into the thread's closure, the loop is not vectorized.
template <typename Gradient>
__attribute__((noinline)) void update(const AdamWStep s, float *weight, const Gradient *gradient,
                                      float *mean, float *square, i64 count, float scale) {
    const float step_size = s.learning_rate / s.correction1,
                inverse_root = 1.0f / std::sqrt(s.correction2);
    const float decay_factor = 1.0f - s.learning_rate * s.weight_decay,
                one_minus_beta1 = 1.0f - s.beta1, one_minus_beta2 = 1.0f - s.beta2;
#pragma omp simd
    for (i64 i = 0; i < count; ++i) {
        const float g = to_float(gradient[i]) * scale;
        const float m = mean[i] + (g - mean[i]) * one_minus_beta1;
        const float v = square[i] * s.beta2 + g * g * one_minus_beta2;
        mean[i] = m;
        square[i] = v;
        weight[i] =
            weight[i] * decay_factor - step_size * m / (std::sqrt(v) * inverse_root + s.eps);
    }
}

__attribute__((noinline)) void round_to_bf16(const float *weight, Bf16 *bf16_copy, i64 count) {
#pragma omp simd
    for (i64 i = 0; i < count; ++i) store(bf16_copy[i], weight[i]);
}

template <typename Gradient>
void adamw(const AdamWStep s, float *weight, Bf16 *bf16_copy, const Gradient *gradient, float *mean,
           float *square, i64 count, float scale) {
    parallel_for(count, 32768, [=](i64 begin, i64 end, int) {
        for (i64 at = begin; at < end; at += BLOCK) {
            const i64 size = std::min(BLOCK, end - at);
            update(s, weight + at, gradient + at, mean + at, square + at, size, scale);
            if (bf16_copy != nullptr) round_to_bf16(weight + at, bf16_copy + at, size);
        }
    });
}

}  // namespace
}  // namespace ownwords

int ownwords_adamw(int dtype, float *weight, void *bf16_copy, const void *gradient, float *mean,
                   float *square, int64_t count, float scale, float learning_rate, float beta1,
                   float beta2, float eps, float weight_decay, float correction1,
                   float correction2) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const ownwords::AdamWStep step{learning_rate, beta1,       beta2,      eps,
                                       weight_decay,  correction1, correction2};
        ownwords::adamw(step, weight, (ownwords::Bf16 *)bf16_copy, (const T *)gradient, mean,
                        square, count, scale);
    });
}
