// Silu and gelu (tanh approximation), with their gradients.
#pragma once

#include "simd/vec.h"

namespace ownwords {

struct ActGrad {
    VecF32 value, grad;
};

struct Silu {
    template <bool fast>
    static ActGrad at(VecF32 x) {
        const VecF32 s = reciprocal<fast>(1.0f + exp<fast>(-x));
        return {x * s, s * (1.0f + x * (1.0f - s))};
    }
};

struct Gelu {
    template <bool fast>
    static ActGrad at(VecF32 x) {
        const float root = 0.7978845608f, cubic = 0.044715f;
        const VecF32 square = x * x;
        const VecF32 inner = root * x * (1.0f + cubic * square);
        // (1 + tanh(inner)) / 2
        const VecF32 s = reciprocal<fast>(1.0f + exp<fast>(-2.0f * inner));
        const VecF32 inner_grad = 2.0f * root * (1.0f + 3.0f * cubic * square);
        return {x * s, s + x * s * (1.0f - s) * inner_grad};
    }
};

}  // namespace ownwords
