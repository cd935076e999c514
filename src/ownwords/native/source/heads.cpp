// The heads of all tokens, normed and turned, and their gradients.
#include "heads.h"

#include <vector>

#include "threads.h"

namespace ownwords {
namespace {

constexpr Long GRAIN = 16384;

// cos and sin have a row of D / 2 for each token (or for each of `period` tokens, over and over).
struct Shape {
    Heads heads;
    Long tokens, period;

    Long size() const { return heads.count() * heads.width; }
    Long angle(Long token) const { return token % period * (heads.width / 2); }
    Long grain() const { return GRAIN / size() + 1; }
};

template <typename T>
void forward(const Shape s, const T *x, const float *query_norm, const float *key_norm,
             const float *cosine, const float *sine, T *y) {
    parallel(s.tokens, s.grain(), [=](Long begin, Long end, int) {
        for (Long token = begin; token < end; ++token)
            turn_heads(s.heads, x + token * s.size(), query_norm, key_norm, cosine + s.angle(token),
                       sine + s.angle(token), y + token * s.size());
    });
}

template <typename T>
void backward(const Shape s, const T *x, const float *query_norm, const float *key_norm,
              const float *cosine, const float *sine, const T *dy, T *dx, float *dnorms) {
    const Long width = s.heads.width;
    const int shares = parts(s.tokens, s.grain());
    std::vector<float> sums(size_t(shares) * 2 * width, 0.0f);
    parallel(s.tokens, s.grain(), [&](Long begin, Long end, int share) {
        std::vector<float> room(width);
        for (Long token = begin; token < end; ++token)
            turn_heads_back(s.heads, x + token * s.size(), query_norm, key_norm,
                            cosine + s.angle(token), sine + s.angle(token), dy + token * s.size(),
                            dx + token * s.size(), sums.data() + 2 * Long(share) * width,
                            room.data());
    });
    for (Long d = 0; d < 2 * width; ++d) {
        dnorms[d] = 0;
        for (int share = 0; share < shares; ++share) dnorms[d] += sums[share * 2 * width + d];
    }
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_heads(int kind, const void *x, const float *query_norm,
                                 const float *key_norm, const float *cosine, const float *sine,
                                 void *y, Long tokens, Long queries, Long keys, Long width,
                                 Long period, float eps, float offset) {
    const ownwords::Shape shape{{queries, keys, width, eps, offset}, tokens, period};
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::forward(shape, (const T *)x, query_norm, key_norm, cosine, sine, (T *)y);
    });
}

OWNWORDS_API void ownwords_heads_back(int kind, const void *x, const float *query_norm,
                                      const float *key_norm, const float *cosine, const float *sine,
                                      const void *dy, void *dx, float *dnorms, Long tokens,
                                      Long queries, Long keys, Long width, Long period, float eps,
                                      float offset) {
    const ownwords::Shape shape{{queries, keys, width, eps, offset}, tokens, period};
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::backward(shape, (const T *)x, query_norm, key_norm, cosine, sine, (const T *)dy,
                           (T *)dx, dnorms);
    });
}
