// Causal attention in float32, in blocks of queries. A block takes only the keys that some of its
// queries see: neither what lies above the diagonal nor other documents are computed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "simd/vec.h"
#include "train/parallel.h"

namespace ownwords {

// C += A B for small float matrices: vectors along rows of B, broadcast numbers of A.
constexpr int MATMUL_ROWS = LANES == 16 ? 8 : LANES == 8 ? 6 : 4;
constexpr int MATMUL_VECS = 2;
constexpr i64 MATMUL_COLS = i64(LANES) * MATMUL_VECS;  // columns come in multiples of this

inline i64 padded(i64 width) { return (width + MATMUL_COLS - 1) / MATMUL_COLS * MATMUL_COLS; }

// A(i, k) = a[i * row_stride + k * k_stride]
template <int ROWS>
inline void tile(const float *a, i64 row_stride, i64 k_stride, const float *b, i64 b_stride,
                 float *c, i64 c_stride, i64 depth) {
    VecF32 sum[ROWS][MATMUL_VECS];
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < MATMUL_VECS; ++j)
            std::memcpy(&sum[i][j], c + i * c_stride + j * LANES, sizeof(VecF32));
    for (i64 k = 0; k < depth; ++k) {
        VecF32 b_vecs[MATMUL_VECS];
        for (int j = 0; j < MATMUL_VECS; ++j)
            std::memcpy(&b_vecs[j], b + k * b_stride + j * LANES, sizeof(VecF32));
        for (int i = 0; i < ROWS; ++i) {
            const float a_value = a[i * row_stride + k * k_stride];
            for (int j = 0; j < MATMUL_VECS; ++j) sum[i][j] += a_value * b_vecs[j];
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < MATMUL_VECS; ++j)
            std::memcpy(c + i * c_stride + j * LANES, &sum[i][j], sizeof(VecF32));
}

inline void matmul_f32(const float *a, i64 row_stride, i64 k_stride, const float *b, i64 b_stride,
                       float *c, i64 c_stride, i64 rows, i64 depth, i64 width) {
    for (i64 j = 0; j < width; j += MATMUL_COLS) {
        i64 i = 0;
        for (; i + MATMUL_ROWS <= rows; i += MATMUL_ROWS)
            tile<MATMUL_ROWS>(a + i * row_stride, row_stride, k_stride, b + j, b_stride,
                              c + i * c_stride + j, c_stride, depth);
        for (; i < rows; ++i)
            tile<1>(a + i * row_stride, row_stride, k_stride, b + j, b_stride, c + i * c_stride + j,
                    c_stride, depth);
    }
}

namespace {

constexpr i64 QUERY_BLOCK = 48;  // a multiple of every MATMUL_ROWS

struct F32AttentionShape {
    i64 batch, tokens, query_heads, kv_heads, width;
    float scale;
    const int32_t *first;
    i64 first_stride;

    i64 stride() const { return (query_heads + 2 * kv_heads) * width; }
    i64 padded_tokens() const { return padded(tokens); }
    i64 padded_width() const { return padded(width); }
};

// One head of [tokens, ...] as floats, rows padded with zeros.
template <typename T>
void read(const F32AttentionShape &s, const T *from, i64 begin, i64 end, i64 step, float scale_by,
          float *to) {
    for (i64 t = begin; t < end; ++t) {
        float *row = to + (t - begin) * s.padded_width();
        for_each_vec(s.width, [=](i64 d, auto part) {
            store(row + d, load(from + t * step + d, part) * scale_by, part);
        });
        for (i64 d = s.width; d < s.padded_width(); ++d) row[d] = 0;
    }
}

// [tokens, padded_width] -> [width, padded_tokens], a few tokens at a time for locality.
void transpose(const F32AttentionShape &s, const float *from, float *to) {
    for (i64 begin = 0; begin < s.padded_tokens(); begin += LANES) {
        const i64 end = std::min(begin + LANES, s.tokens);
        for (i64 d = 0; d < s.width; ++d) {
            VecF32 column{};
            for (i64 t = begin; t < end; ++t) column[t - begin] = from[t * s.padded_width() + d];
            store(to + d * s.padded_tokens() + begin, column);
        }
    }
}

// The keys that queries [begin, end) may see, padded.
struct KeyRange {
    i64 first, count;
};

KeyRange key_range(const int32_t *first, i64 begin, i64 end) {
    const i64 first_key = first == nullptr ? 0 : first[begin] / MATMUL_COLS * MATMUL_COLS;
    return {first_key, padded(end - first_key)};
}

// Softmax of a block's scores, 0 where a query does not see a key; saves or uses log_sum, the log
// of the denominator.
template <bool fast>
void softmax_row(const int32_t *first, KeyRange range, i64 begin, i64 end, float *scores,
                 float *log_sum, bool has_log_sum) {
    for (i64 t = begin; t < end; ++t) {
        float *row = scores + (t - begin) * range.count;
        const i64 from = first == nullptr ? 0 : first[t] - range.first, to = t + 1 - range.first;
        // Whole vectors around the visible keys.
        const i64 start = from / LANES * LANES, stop = (to + LANES - 1) / LANES * LANES;
        float shift = log_sum[t], inverse_sum = 1;
        if (!has_log_sum) {
            VecF32 maxima = splat(-INFINITY), sums{};
            for (i64 k = start; k < stop; k += LANES)
                maxima = max(maxima, mask_range(load(row + k), k, from, to, -INFINITY));
            shift = reduce_max(maxima);
            for (i64 k = start; k < stop; k += LANES) {
                const VecF32 prob = mask_range(exp<fast>(load(row + k) - shift), k, from, to, 0);
                store(row + k, prob);
                sums += prob;
            }
            const float sum = reduce_add(sums);
            inverse_sum = 1.0f / sum;
            log_sum[t] = shift + std::log(sum);
        }
        for (i64 k = 0; k < start; k += LANES) store(row + k, VecF32{});
        for (i64 k = start; k < stop; k += LANES)
            store(row + k, has_log_sum
                               ? mask_range(exp<fast>(load(row + k) - shift), k, from, to, 0)
                               : load(row + k) * inverse_sum);
        for (i64 k = stop; k < range.count; k += LANES) store(row + k, VecF32{});
    }
}

template <typename T>
void forward(const F32AttentionShape s, const T *x, T *y, float *log_sums) {
    const i64 group_size = s.query_heads / s.kv_heads;
    parallel_for(s.batch * s.kv_heads, 1, [=](i64 start, i64 stop, i64) {
        std::vector<float> key_rows(s.padded_tokens() * s.padded_width()),
            keys(s.padded_width() * s.padded_tokens());
        std::vector<float> values(s.padded_tokens() * s.padded_width(), 0.0f),
            query(QUERY_BLOCK * s.padded_width());
        std::vector<float> scores(QUERY_BLOCK * s.padded_tokens()),
            out(QUERY_BLOCK * s.padded_width());
        for (i64 task = start; task < stop; ++task) {
            const i64 row = task / s.kv_heads, kv_head = task % s.kv_heads;
            const T *text = x + row * s.tokens * s.stride();
            const int32_t *first = s.first ? s.first + row * s.first_stride : nullptr;
            read(s, text + (s.query_heads + kv_head) * s.width, 0, s.tokens, s.stride(), 1,
                 key_rows.data());
            transpose(s, key_rows.data(), keys.data());
            read(s, text + (s.query_heads + s.kv_heads + kv_head) * s.width, 0, s.tokens,
                 s.stride(), 1, values.data());
            for (i64 head = kv_head * group_size; head < (kv_head + 1) * group_size; ++head)
                for (i64 begin = 0; begin < s.tokens; begin += QUERY_BLOCK) {
                    const i64 end = std::min(begin + QUERY_BLOCK, s.tokens), rows = end - begin;
                    const KeyRange range = key_range(first, begin, end);
                    read(s, text + head * s.width, begin, end, s.stride(), s.scale, query.data());
                    std::fill_n(scores.data(), rows * range.count, 0.0f);
                    matmul_f32(query.data(), s.padded_width(), 1, keys.data() + range.first,
                               s.padded_tokens(), scores.data(), range.count, rows, s.width,
                               range.count);
                    softmax_row<FAST_MATH<T>>(first, range, begin, end, scores.data(),
                                              log_sums + (row * s.query_heads + head) * s.tokens,
                                              false);
                    std::fill_n(out.data(), rows * s.padded_width(), 0.0f);
                    matmul_f32(scores.data(), range.count, 1,
                               values.data() + range.first * s.padded_width(), s.padded_width(),
                               out.data(), s.padded_width(), rows, end - range.first,
                               s.padded_width());
                    for (i64 t = begin; t < end; ++t) {
                        T *to = y + ((row * s.tokens + t) * s.query_heads + head) * s.width;
                        const float *from = out.data() + (t - begin) * s.padded_width();
                        for_each_vec(s.width, [=](i64 d, auto part) {
                            store(to + d, load(from + d, part), part);
                        });
                    }
                }
        }
    });
}

template <typename T>
void write(const F32AttentionShape &s, const float *from, i64 begin, i64 end, float scale_by,
           T *to) {
    for (i64 t = begin; t < end; ++t)
        for_each_vec(s.width, [=](i64 d, auto part) {
            store(to + t * s.stride() + d,
                  load(from + (t - begin) * s.padded_width() + d, part) * scale_by, part);
        });
}

template <typename T>
void backward(const F32AttentionShape s, const T *x, const T *dy, float *log_sums, T *dx) {
    const i64 group_size = s.query_heads / s.kv_heads, size = s.padded_tokens() * s.padded_width();
    parallel_for(s.batch * s.kv_heads, 1, [=](i64 start, i64 stop, i64) {
        std::vector<float> keys(size), keys_t(size), values(size), values_t(size);
        std::vector<float> dkeys(size), dvalues(size);
        std::vector<float> query(QUERY_BLOCK * s.padded_width()),
            dout(QUERY_BLOCK * s.padded_width());
        std::vector<float> dquery(QUERY_BLOCK * s.padded_width());
        std::vector<float> probs(QUERY_BLOCK * s.padded_tokens()),
            score_grads(QUERY_BLOCK * s.padded_tokens());
        for (i64 task = start; task < stop; ++task) {
            const i64 row = task / s.kv_heads, kv_head = task % s.kv_heads;
            const i64 key_at = (s.query_heads + kv_head) * s.width;
            const i64 value_at = key_at + s.kv_heads * s.width;
            const T *text = x + row * s.tokens * s.stride();
            T *dtext = dx + row * s.tokens * s.stride();
            const int32_t *first = s.first ? s.first + row * s.first_stride : nullptr;
            read(s, text + key_at, 0, s.tokens, s.stride(), 1, keys.data());
            transpose(s, keys.data(), keys_t.data());
            read(s, text + value_at, 0, s.tokens, s.stride(), 1, values.data());
            transpose(s, values.data(), values_t.data());
            std::fill(dkeys.begin(), dkeys.end(), 0.0f);
            std::fill(dvalues.begin(), dvalues.end(), 0.0f);
            for (i64 head = kv_head * group_size; head < (kv_head + 1) * group_size; ++head)
                for (i64 begin = 0; begin < s.tokens; begin += QUERY_BLOCK) {
                    const i64 end = std::min(begin + QUERY_BLOCK, s.tokens), rows = end - begin;
                    const KeyRange range = key_range(first, begin, end);
                    const i64 first_at = range.first * s.padded_width(), count = end - range.first;
                    read(s, text + head * s.width, begin, end, s.stride(), s.scale, query.data());
                    read(s, dy + row * s.tokens * s.query_heads * s.width + head * s.width, begin,
                         end, s.query_heads * s.width, 1, dout.data());
                    std::fill_n(probs.data(), rows * range.count, 0.0f);
                    matmul_f32(query.data(), s.padded_width(), 1, keys_t.data() + range.first,
                               s.padded_tokens(), probs.data(), range.count, rows, s.width,
                               range.count);
                    softmax_row<FAST_MATH<T>>(first, range, begin, end, probs.data(),
                                              log_sums + (row * s.query_heads + head) * s.tokens,
                                              true);
                    matmul_f32(probs.data(), 1, range.count, dout.data(), s.padded_width(),
                               dvalues.data() + first_at, s.padded_width(), count, rows,
                               s.padded_width());
                    std::fill_n(score_grads.data(), rows * range.count, 0.0f);
                    matmul_f32(dout.data(), s.padded_width(), 1, values_t.data() + range.first,
                               s.padded_tokens(), score_grads.data(), range.count, rows, s.width,
                               range.count);
                    for (i64 t = 0; t < rows; ++t) {
                        const float *prob = probs.data() + t * range.count;
                        float *score_grad = score_grads.data() + t * range.count;
                        VecF32 dot_vec{};
                        for (i64 k = 0; k < range.count; k += LANES)
                            dot_vec += load(prob + k) * load(score_grad + k);
                        const float dot = reduce_add(dot_vec);
                        for (i64 k = 0; k < range.count; k += LANES)
                            store(score_grad + k, load(prob + k) * (load(score_grad + k) - dot));
                    }
                    std::fill_n(dquery.data(), rows * s.padded_width(), 0.0f);
                    matmul_f32(score_grads.data(), range.count, 1, keys.data() + first_at,
                               s.padded_width(), dquery.data(), s.padded_width(), rows, count,
                               s.padded_width());
                    write(s, dquery.data(), begin, end, s.scale, dtext + head * s.width);
                    matmul_f32(score_grads.data(), 1, range.count, query.data(), s.padded_width(),
                               dkeys.data() + first_at, s.padded_width(), count, rows,
                               s.padded_width());
                }
            write(s, dkeys.data(), 0, s.tokens, 1, dtext + key_at);
            write(s, dvalues.data(), 0, s.tokens, 1, dtext + value_at);
        }
    });
}

}  // namespace
}  // namespace ownwords

int ownwords_attention(int dtype, const void *x, void *y, float *log_sums,
                       const int32_t *first_token, int64_t first_stride, int64_t batch,
                       int64_t tokens, int64_t query_heads, int64_t kv_heads, int64_t head_dim,
                       float scale) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::forward<T>(
            {batch, tokens, query_heads, kv_heads, head_dim, scale, first_token, first_stride},
            (const T *)x, (T *)y, log_sums);
    });
}

int ownwords_attention_backward(int dtype, const void *x, const void *dy, float *log_sums, void *dx,
                                const int32_t *first_token, int64_t first_stride, int64_t batch,
                                int64_t tokens, int64_t query_heads, int64_t kv_heads,
                                int64_t head_dim, float scale) {
    return ownwords::run_kernel(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::backward<T>(
            {batch, tokens, query_heads, kv_heads, head_dim, scale, first_token, first_stride},
            (const T *)x, (const T *)dy, log_sums, (T *)dx);
    });
}
