// One step of AdamW over one tensor: float32 weights, moments and gradients or bfloat16 gradients;
// where the model computes with bfloat16 weights, these are written in the same pass.
#include <algorithm>
#include <cmath>

#include "numbers.h"
#include "threads.h"

namespace ownwords {
namespace {

// Weights that stay in the nearest cache until their bfloat16 copy is written.
constexpr Long BLOCK = 2048;

struct Step {
    float rate, beta1, beta2, eps, decay, share1, share2;  // shares: 1 - beta^step
};

// A function of its own: inlined into the threads' closure, the loop is not made of vectors.
template <typename Gradient>
__attribute__((noinline)) void change(const Step s, float *weight, const Gradient *gradient,
                                      float *first, float *second, Long count, float scale) {
    const float step = s.rate / s.share1, root = 1.0f / std::sqrt(s.share2);
    const float kept = 1.0f - s.rate * s.decay, fresh1 = 1.0f - s.beta1, fresh2 = 1.0f - s.beta2;
#pragma omp simd
    for (Long i = 0; i < count; ++i) {
        const float g = wide(gradient[i]) * scale;
        const float m = first[i] + (g - first[i]) * fresh1;
        const float v = second[i] * s.beta2 + g * g * fresh2;
        first[i] = m;
        second[i] = v;
        weight[i] = weight[i] * kept - step * m / (std::sqrt(v) * root + s.eps);
    }
}

__attribute__((noinline)) void narrowed(const float *weight, Bf16 *narrow, Long count) {
#pragma omp simd
    for (Long i = 0; i < count; ++i) put(narrow[i], weight[i]);
}

template <typename Gradient>
void adamw(const Step s, float *weight, Bf16 *narrow, const Gradient *gradient, float *first,
           float *second, Long count, float scale) {
    parallel(count, 32768, [=](Long begin, Long end, int) {
        for (Long at = begin; at < end; at += BLOCK) {
            const Long size = std::min(BLOCK, end - at);
            change(s, weight + at, gradient + at, first + at, second + at, size, scale);
            if (narrow != nullptr) narrowed(weight + at, narrow + at, size);
        }
    });
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_adamw(int kind, float *weight, void *narrow, const void *gradient,
                                 float *first, float *second, Long count, float scale, float rate,
                                 float beta1, float beta2, float eps, float decay, float share1,
                                 float share2) {
    const ownwords::Step step{rate, beta1, beta2, eps, decay, share1, share2};
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::adamw(step, weight, (ownwords::Bf16 *)narrow, (const T *)gradient, first, second,
                        count, scale);
    });
}
