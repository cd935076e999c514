// activation(gate) * up, where gate and up lie side by side in each row; silu or gelu (tanh).
// And gelu alone.
#include "activation.h"
#include "threads.h"
#include "vectors.h"

namespace ownwords {
namespace {

constexpr Long GRAIN = 8192;

template <typename T, typename Activation>
void forward(const T *both, T *y, Long rows, Long width) {
    parallel(rows, GRAIN / width + 1, [=](Long begin, Long end, int) {
        for (Long row = begin; row < end; ++row) {
            const T *gate = both + 2 * row * width, *up = gate + width;
            T *to = y + row * width;
            each_vector(width, [=](Long c, auto part) {
                const Slope one = Activation::template at<ROUGH<T>>(load(gate + c, part));
                store(to + c, one.value * load(up + c, part), part);
            });
        }
    });
}

template <typename T, typename Activation>
void backward(const T *both, const T *dy, T *dboth, Long rows, Long width) {
    parallel(rows, GRAIN / width + 1, [=](Long begin, Long end, int) {
        for (Long row = begin; row < end; ++row) {
            const T *gate = both + 2 * row * width, *up = gate + width, *from = dy + row * width;
            T *dgate = dboth + 2 * row * width, *dup = dgate + width;
            each_vector(width, [=](Long c, auto part) {
                const Slope one = Activation::template at<ROUGH<T>>(load(gate + c, part));
                const Vector g = load(from + c, part);
                store(dgate + c, g * load(up + c, part) * one.slope, part);
                store(dup + c, g * one.value, part);
            });
        }
    });
}

template <typename T>
void gelu(const T *x, T *y, Long count) {
    parallel(count, GRAIN, [=](Long begin, Long end, int) {
        each_vector(end - begin, [=](Long at, auto part) {
            const Slope one = Gelu::at<ROUGH<T>>(load(x + begin + at, part));
            store(y + begin + at, one.value, part);
        });
    });
}

template <typename T>
void gelu_back(const T *x, const T *dy, T *dx, Long count) {
    parallel(count, GRAIN, [=](Long begin, Long end, int) {
        each_vector(end - begin, [=](Long at, auto part) {
            const Slope one = Gelu::at<ROUGH<T>>(load(x + begin + at, part));
            store(dx + begin + at, one.slope * load(dy + begin + at, part), part);
        });
    });
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_gate(int kind, int gelu, const void *both, void *y, Long rows,
                                Long width) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const auto run = gelu ? ownwords::forward<T, ownwords::Gelu>
                              : ownwords::forward<T, ownwords::Silu>;
        run((const T *)both, (T *)y, rows, width);
    });
}

OWNWORDS_API void ownwords_gate_back(int kind, int gelu, const void *both, const void *dy,
                                     void *dboth, Long rows, Long width) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const auto run = gelu ? ownwords::backward<T, ownwords::Gelu>
                              : ownwords::backward<T, ownwords::Silu>;
        run((const T *)both, (const T *)dy, (T *)dboth, rows, width);
    });
}

OWNWORDS_API void ownwords_gelu(int kind, const void *x, void *y, Long count) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::gelu((const T *)x, (T *)y, count);
    });
}

OWNWORDS_API void ownwords_gelu_back(int kind, const void *x, const void *dy, void *dx,
                                     Long count) {
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::gelu_back((const T *)x, (const T *)dy, (T *)dx, count);
    });
}
