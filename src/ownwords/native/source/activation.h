// silu and gelu (its tanh approximation): value and slope in one.
#pragma once

#include "vectors.h"

namespace ownwords {

struct Slope {
    Vector value, slope;
};

struct Silu {
    template <bool rough>
    static Slope at(Vector x) {
        const Vector s = inverse<rough>(1.0f + exp<rough>(-x));
        return {x * s, s * (1.0f + x * (1.0f - s))};
    }
};

struct Gelu {
    template <bool rough>
    static Slope at(Vector x) {
        const float root = 0.7978845608f, cubic = 0.044715f;
        const Vector square = x * x;
        const Vector inner = root * x * (1.0f + cubic * square);
        // (1 + tanh(inner)) / 2
        const Vector s = inverse<rough>(1.0f + exp<rough>(-2.0f * inner));
        const Vector steep = 2.0f * root * (1.0f + 3.0f * cubic * square);
        return {x * s, s + x * s * (1.0f - s) * steep};
    }
};

}  // namespace ownwords
