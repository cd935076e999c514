// RMSNorm, queries and keys with rotary positions, and activations, each with its gradient.
#include <vector>

#include "simd/vec.h"
#include "train/layers.h"
#include "train/parallel.h"

namespace ownwords {
namespace {

constexpr i64 GRAIN = 8192;  // numbers that are worth another thread

template <typename T>
void rms_norm(const T *x, const float *weight, T *y, float *reciprocal, i64 rows, i64 width,
              float eps, float offset) {
    parallel_for(rows, GRAIN / width + 1, [=](i64 begin, i64 end, i64) {
        const float *bias = nullptr;
        for (i64 row = begin; row < end; ++row) {
            const NormStats stats = rms_stats(x + row * width, width, eps);
            reciprocal[row] = stats.scale;
            norm_row(x + row * width, stats, weight, bias, offset, width, y + row * width);
        }
    });
}

template <typename T>
void rms_norm_backward(const T *x, const float *weight, const float *reciprocal, const T *dy, T *dx,
                       float *dweight, i64 rows, i64 width, float offset) {
    const i64 chunks = chunk_count(rows, GRAIN / width + 1);
    std::vector<float> sums(size_t(chunks) * width, 0.0f);
    parallel_for(rows, GRAIN / width + 1, [&](i64 begin, i64 end, i64 chunk) {
        float *dweight_sum = sums.data() + chunk * width, *dbias = nullptr;
        const float *bias = nullptr;
        T *no_output = nullptr;
        for (i64 row = begin; row < end; ++row)
            norm_row_backward(x + row * width, {0.0f, reciprocal[row]}, weight, bias, offset,
                              dy + row * width, no_output, width, false, dx + row * width,
                              dweight_sum, dbias, no_output);
    });
    for (i64 c = 0; c < width; ++c) {
        dweight[c] = 0;
        for (i64 chunk = 0; chunk < chunks; ++chunk) dweight[c] += sums[chunk * width + c];
    }
}

// RMSNorm and rotary positions of all heads, with gradients.

// cos and sin are [period, width / 2].
struct TokenHeads {
    HeadShape heads;
    i64 tokens, period;

    i64 size() const { return heads.count() * heads.width; }
    i64 angle(i64 token) const { return token % period * (heads.width / 2); }
    i64 grain() const { return GRAIN / size() + 1; }
};

template <typename T>
void norm_and_rope_all(const TokenHeads s, const T *x, const float *query_norm,
                       const float *key_norm, const float *cos, const float *sin, T *y) {
    parallel_for(s.tokens, s.grain(), [=](i64 begin, i64 end, i64) {
        for (i64 token = begin; token < end; ++token)
            norm_and_rope(s.heads, x + token * s.size(), query_norm, key_norm, cos + s.angle(token),
                          sin + s.angle(token), y + token * s.size());
    });
}

template <typename T>
void norm_and_rope_all_backward(const TokenHeads s, const T *x, const float *query_norm,
                                const float *key_norm, const float *cos, const float *sin,
                                const T *dy, T *dx, float *dnorms) {
    const i64 width = s.heads.width;
    const i64 chunks = chunk_count(s.tokens, s.grain());
    std::vector<float> sums(size_t(chunks) * 2 * width, 0.0f);
    parallel_for(s.tokens, s.grain(), [&](i64 begin, i64 end, i64 chunk) {
        std::vector<float> scratch(width);
        for (i64 token = begin; token < end; ++token)
            norm_and_rope_backward(s.heads, x + token * s.size(), query_norm, key_norm,
                                   cos + s.angle(token), sin + s.angle(token),
                                   dy + token * s.size(), dx + token * s.size(),
                                   sums.data() + 2 * chunk * width, scratch.data());
    });
    for (i64 d = 0; d < 2 * width; ++d) {
        dnorms[d] = 0;
        for (i64 chunk = 0; chunk < chunks; ++chunk) dnorms[d] += sums[chunk * 2 * width + d];
    }
}

// SwiGLU, GeGLU and gelu.

template <typename T, typename Activation>
void gated_forward(const T *gate_up, T *y, i64 rows, i64 width) {
    parallel_for(rows, GRAIN / width + 1, [=](i64 begin, i64 end, i64) {
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
    parallel_for(rows, GRAIN / width + 1, [=](i64 begin, i64 end, i64) {
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
    parallel_for(count, GRAIN, [=](i64 begin, i64 end, i64) {
        for_each_vec(end - begin, [=](i64 at, auto part) {
            const ActGrad act = Gelu::at<FAST_MATH<T>>(load(x + begin + at, part));
            store(y + begin + at, act.value, part);
        });
    });
}

template <typename T>
void gelu_backward(const T *x, const T *dy, T *dx, i64 count) {
    parallel_for(count, GRAIN, [=](i64 begin, i64 end, i64) {
        for_each_vec(end - begin, [=](i64 at, auto part) {
            const ActGrad act = Gelu::at<FAST_MATH<T>>(load(x + begin + at, part));
            store(dx + begin + at, act.grad * load(dy + begin + at, part), part);
        });
    });
}

}  // namespace
}  // namespace ownwords

int ownwords_rms_norm(int dtype, const void *x, const float *weight, void *y, float *inverse_rms,
                      int64_t rows, int64_t width, float eps, float offset) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::rms_norm((const T *)x, weight, (T *)y, inverse_rms, rows, width, eps, offset);
    });
}

int ownwords_rms_norm_backward(int dtype, const void *x, const float *weight,
                               const float *inverse_rms, const void *dy, void *dx, float *dweight,
                               int64_t rows, int64_t width, float offset) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::rms_norm_backward((const T *)x, weight, inverse_rms, (const T *)dy, (T *)dx,
                                    dweight, rows, width, offset);
    });
}

int ownwords_norm_and_rope(int dtype, const void *x, const float *query_norm, const float *key_norm,
                           const float *cos, const float *sin, void *y, int64_t tokens,
                           int64_t query_heads, int64_t kv_heads, int64_t head_dim, int64_t period,
                           float eps, float offset) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::norm_and_rope_all<T>(
            {{query_heads, kv_heads, head_dim, eps, offset}, tokens, period}, (const T *)x,
            query_norm, key_norm, cos, sin, (T *)y);
    });
}

int ownwords_norm_and_rope_backward(int dtype, const void *x, const float *query_norm,
                                    const float *key_norm, const float *cos, const float *sin,
                                    const void *dy, void *dx, float *dnorms, int64_t tokens,
                                    int64_t query_heads, int64_t kv_heads, int64_t head_dim,
                                    int64_t period, float eps, float offset) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::norm_and_rope_all_backward<T>(
            {{query_heads, kv_heads, head_dim, eps, offset}, tokens, period}, (const T *)x,
            query_norm, key_norm, cos, sin, (const T *)dy, (T *)dx, dnorms);
    });
}

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
