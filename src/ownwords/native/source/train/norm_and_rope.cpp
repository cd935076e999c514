// RMSNorm and rotary positions of all heads, with gradients.
#include "train/norm_and_rope.h"

#include <vector>

#include "train/parallel.h"

namespace ownwords {
namespace {

constexpr i64 GRAIN = 16384;

// cos and sin are [period, width / 2].
struct TokenHeads {
    HeadShape heads;
    i64 tokens, period;

    i64 size() const { return heads.count() * heads.width; }
    i64 angle(i64 token) const { return token % period * (heads.width / 2); }
    i64 grain() const { return GRAIN / size() + 1; }
};

template <typename T>
void forward(const TokenHeads s, const T *x, const float *query_norm, const float *key_norm,
             const float *cos, const float *sin, T *y) {
    parallel_for(s.tokens, s.grain(), [=](i64 begin, i64 end, int) {
        for (i64 token = begin; token < end; ++token)
            norm_and_rope(s.heads, x + token * s.size(), query_norm, key_norm, cos + s.angle(token),
                          sin + s.angle(token), y + token * s.size());
    });
}

template <typename T>
void backward(const TokenHeads s, const T *x, const float *query_norm, const float *key_norm,
              const float *cos, const float *sin, const T *dy, T *dx, float *dnorms) {
    const i64 width = s.heads.width;
    const int chunks = chunk_count(s.tokens, s.grain());
    std::vector<float> sums(size_t(chunks) * 2 * width, 0.0f);
    parallel_for(s.tokens, s.grain(), [&](i64 begin, i64 end, int chunk) {
        std::vector<float> scratch(width);
        for (i64 token = begin; token < end; ++token)
            norm_and_rope_backward(s.heads, x + token * s.size(), query_norm, key_norm,
                                   cos + s.angle(token), sin + s.angle(token),
                                   dy + token * s.size(), dx + token * s.size(),
                                   sums.data() + 2 * i64(chunk) * width, scratch.data());
    });
    for (i64 d = 0; d < 2 * width; ++d) {
        dnorms[d] = 0;
        for (int chunk = 0; chunk < chunks; ++chunk) dnorms[d] += sums[chunk * 2 * width + d];
    }
}

}  // namespace
}  // namespace ownwords

int ownwords_norm_and_rope(int dtype, const void *x, const float *query_norm, const float *key_norm,
                           const float *cos, const float *sin, void *y, int64_t tokens,
                           int64_t query_heads, int64_t kv_heads, int64_t head_dim, int64_t period,
                           float eps, float offset) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::forward<T>({{query_heads, kv_heads, head_dim, eps, offset}, tokens, period},
                             (const T *)x, query_norm, key_norm, cos, sin, (T *)y);
    });
}

int ownwords_norm_and_rope_backward(int dtype, const void *x, const float *query_norm,
                                    const float *key_norm, const float *cos, const float *sin,
                                    const void *dy, void *dx, float *dnorms, int64_t tokens,
                                    int64_t query_heads, int64_t kv_heads, int64_t head_dim,
                                    int64_t period, float eps, float offset) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::backward<T>({{query_heads, kv_heads, head_dim, eps, offset}, tokens, period},
                              (const T *)x, query_norm, key_norm, cos, sin, (const T *)dy, (T *)dx,
                              dnorms);
    });
}
