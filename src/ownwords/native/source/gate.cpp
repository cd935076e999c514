// activation(gate) * up, where gate and up lie side by side in each row; silu or gelu (tanh).
#include "numbers.h"
#include "threads.h"

namespace ownwords {
namespace {

constexpr long GRAIN = 8192;

struct Slope {
    float value, slope;
};

struct Silu {
    static Slope at(float x) {
        const float s = 1.0f / (1.0f + fast_exp(-x));
        return {x * s, s * (1.0f + x * (1.0f - s))};
    }
};

struct Gelu {
    static Slope at(float x) {
        const float root = 0.7978845608f, cubic = 0.044715f;
        const float inner = root * (x + cubic * x * x * x);
        // (1 + tanh(inner)) / 2
        const float s = 1.0f / (1.0f + fast_exp(-2.0f * inner));
        const float steep = 2.0f * root * (1.0f + 3.0f * cubic * x * x);
        return {x * s, s + x * s * (1.0f - s) * steep};
    }
};

template <typename T, typename Activation>
void forward(const T *both, T *y, long rows, long width) {
    parallel(rows, GRAIN / width + 1, [=](long begin, long end, int) {
        for (long row = begin; row < end; ++row) {
            const T *gate = both + 2 * row * width, *up = gate + width;
            T *to = y + row * width;
#pragma omp simd
            for (long c = 0; c < width; ++c)
                put(to[c], Activation::at(wide(gate[c])).value * wide(up[c]));
        }
    });
}

template <typename T, typename Activation>
void backward(const T *both, const T *dy, T *dboth, long rows, long width) {
    parallel(rows, GRAIN / width + 1, [=](long begin, long end, int) {
        for (long row = begin; row < end; ++row) {
            const T *gate = both + 2 * row * width, *up = gate + width, *from = dy + row * width;
            T *dgate = dboth + 2 * row * width, *dup = dgate + width;
#pragma omp simd
            for (long c = 0; c < width; ++c) {
                const Slope one = Activation::at(wide(gate[c]));
                const float g = wide(from[c]);
                put(dgate[c], g * wide(up[c]) * one.slope);
                put(dup[c], g * one.value);
            }
        }
    });
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_gate(int kind, int gelu, const void *both, void *y, long rows,
                                long width) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const auto run = gelu ? ownwords::forward<T, ownwords::Gelu>
                              : ownwords::forward<T, ownwords::Silu>;
        run((const T *)both, (T *)y, rows, width);
    });
}

OWNWORDS_API void ownwords_gate_back(int kind, int gelu, const void *both, const void *dy,
                                     void *dboth, long rows, long width) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const auto run = gelu ? ownwords::backward<T, ownwords::Gelu>
                              : ownwords::backward<T, ownwords::Silu>;
        run((const T *)both, (const T *)dy, (T *)dboth, rows, width);
    });
}
