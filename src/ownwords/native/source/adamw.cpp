// One step of AdamW over one tensor: float32 weights, moments and gradients or bfloat16 gradients;
// where the model computes with bfloat16 weights, these are written in the same pass.
#include <cmath>

#include "numbers.h"
#include "threads.h"

namespace ownwords {
namespace {

struct Step {
    float rate, beta1, beta2, eps, decay, share1, share2;  // shares: 1 - beta^step
};

template <typename Gradient>
void adamw(const Step s, float *weight, Bf16 *narrow, const Gradient *gradient, float *first,
           float *second, long count, float scale) {
    const float step = s.rate / s.share1, root = 1.0f / std::sqrt(s.share2);
    parallel(count, 32768, [=](long begin, long end, int) {
#pragma omp simd
        for (long i = begin; i < end; ++i) {
            const float g = wide(gradient[i]) * scale;
            const float m = first[i] + (g - first[i]) * (1.0f - s.beta1);
            const float v = second[i] * s.beta2 + g * g * (1.0f - s.beta2);
            first[i] = m;
            second[i] = v;
            weight[i] = weight[i] * (1.0f - s.rate * s.decay) -
                        step * m / (std::sqrt(v) * root + s.eps);
        }
        if (narrow != nullptr)
#pragma omp simd
            for (long i = begin; i < end; ++i) put(narrow[i], weight[i]);
    });
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_adamw(int kind, float *weight, void *narrow, const void *gradient,
                                 float *first, float *second, long count, float scale, float rate,
                                 float beta1, float beta2, float eps, float decay, float share1,
                                 float share2) {
    const ownwords::Step step{rate, beta1, beta2, eps, decay, share1, share2};
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::adamw(step, weight, (ownwords::Bf16 *)narrow, (const T *)gradient, first, second,
                        count, scale);
    });
}
