// SwiGLU, GeGLU and gelu.
#include "train/activation.h"
#include "train/parallel.h"
#include "simd/vec.h"

namespace ownwords {
namespace {

constexpr i64 GRAIN = 8192;

template <typename T, typename Activation>
void gated_forward(const T *gate_up, T *y, i64 rows, i64 width) {
    parallel_for(rows, GRAIN / width + 1, [=](i64 begin, i64 end, int) {
        for (i64 row = begin; row < end; ++row) {
            const T *gate = gate_up + 2 * row * width, *up = gate + width;
            T *to = y + row * width;
            for_each_vec(width, [=](i64 c, auto part) {
                const ActGrad act = Activation::template at<FAST_MATH<T>>(load(gate + c, part));
                store(to + c, act.value * load(up + c, part), part);
            });
        }
    });
}

template <typename T, typename Activation>
void gated_backward(const T *gate_up, const T *dy, T *dgate_up, i64 rows, i64 width) {
    parallel_for(rows, GRAIN / width + 1, [=](i64 begin, i64 end, int) {
        for (i64 row = begin; row < end; ++row) {
            const T *gate = gate_up + 2 * row * width, *up = gate + width, *from = dy + row * width;
            T *dgate = dgate_up + 2 * row * width, *dup = dgate + width;
            for_each_vec(width, [=](i64 c, auto part) {
                const ActGrad act = Activation::template at<FAST_MATH<T>>(load(gate + c, part));
                const VecF32 g = load(from + c, part);
                store(dgate + c, g * load(up + c, part) * act.grad, part);
                store(dup + c, g * act.value, part);
            });
        }
    });
}

template <typename T>
void gelu_forward(const T *x, T *y, i64 count) {
    parallel_for(count, GRAIN, [=](i64 begin, i64 end, int) {
        for_each_vec(end - begin, [=](i64 at, auto part) {
            const ActGrad act = Gelu::at<FAST_MATH<T>>(load(x + begin + at, part));
            store(y + begin + at, act.value, part);
        });
    });
}

template <typename T>
void gelu_backward(const T *x, const T *dy, T *dx, i64 count) {
    parallel_for(count, GRAIN, [=](i64 begin, i64 end, int) {
        for_each_vec(end - begin, [=](i64 at, auto part) {
            const ActGrad act = Gelu::at<FAST_MATH<T>>(load(x + begin + at, part));
            store(dx + begin + at, act.grad * load(dy + begin + at, part), part);
        });
    });
}

}  // namespace
}  // namespace ownwords

int ownwords_gated_activation(int dtype, int gelu, const void *gate_up, void *y, int64_t rows,
                              int64_t width) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const auto run = gelu ? ownwords::gated_forward<T, ownwords::Gelu>
                              : ownwords::gated_forward<T, ownwords::Silu>;
        run((const T *)gate_up, (T *)y, rows, width);
    });
}

int ownwords_gated_activation_backward(int dtype, int gelu, const void *gate_up, const void *dy,
                                       void *dgate_up, int64_t rows, int64_t width) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const auto run = gelu ? ownwords::gated_backward<T, ownwords::Gelu>
                              : ownwords::gated_backward<T, ownwords::Silu>;
        run((const T *)gate_up, (const T *)dy, (T *)dgate_up, rows, width);
    });
}

int ownwords_gelu(int dtype, const void *x, void *y, int64_t count) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::gelu_forward((const T *)x, (T *)y, count);
    });
}

int ownwords_gelu_backward(int dtype, const void *x, const void *dy, void *dx, int64_t count) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::gelu_backward((const T *)x, (const T *)dy, (T *)dx, count);
    });
}
