// Causal attention by tiles of P, float or bfloat16 (FlashAttention: Dao et al. 2022, arXiv
// 2205.14135), for one query head of one sequence. Each token sees those from `first` to itself;
// blocks of keys that no query of a block sees are skipped.
#pragma once

#include <algorithm>
#include <cmath>

#include "simd/scratch.h"
#include "simd/tile_matmul.h"

namespace ownwords {

// x [tokens, query_heads + 2 * kv_heads, width]; `first` [tokens], or null for 0.
struct FlashShape {
    i64 tokens, query_heads, kv_heads, width;
    i64 stride, out_stride;  // of rows of x, and of the output
    float scale;
    const int32_t *first;

    i64 padded_tokens() const { return (tokens + PANEL - 1) / PANEL * PANEL; }
    i64 blocks() const { return padded_tokens() / PANEL; }
    i64 k_steps() const { return width / TILE_K; }
    i64 group_size() const { return query_heads / kv_heads; }
    i64 key_at(i64 kv_head) const { return (query_heads + kv_head) * width; }
    i64 value_at(i64 kv_head) const { return (query_heads + kv_heads + kv_head) * width; }
    // The first block of keys that some query of a block sees.
    i64 first_block(i64 block) const { return first ? first[block * PANEL] / PANEL : 0; }
};

// All tokens of one head as tiles of B: as its columns, or as its rows.
template <typename P>
void pack_tokens_b_t(const FlashShape &s, const P *from, i64 stride, Same<P> *to) {
    for (i64 block = 0; block < s.blocks(); ++block)
        for (i64 step = 0; step < s.k_steps(); ++step)
            for (i64 half = 0; half < 2; ++half) {
                const i64 token = block * PANEL + half * TILE_ROWS;
                pack_b_t(from + token * stride + step * TILE_K, stride,
                         std::max<i64>(0, s.tokens - token), TILE_K,
                         to + (block * s.k_steps() + step) * TILE_PAIR + half * TILE_SIZE);
            }
}

template <typename P>
void pack_tokens_b(const FlashShape &s, const P *from, i64 stride, Same<P> *to) {
    for (i64 panel = 0; panel < s.k_steps(); ++panel)
        for (i64 block = 0; block < s.blocks(); ++block) {
            P *tiles = to + (panel * s.blocks() + block) * TILE_PAIR;
            pack_b(from + block * PANEL * stride + panel * TILE_K, stride, s.tokens - block * PANEL,
                   TILE_K, tiles, tiles + TILE_SIZE);
        }
}

// All tokens of one head as tiles of A whose rows are the head's dimensions.
template <typename P>
void pack_tokens_a_t(const FlashShape &s, const P *from, i64 stride, Same<P> *to) {
    for (i64 panel = 0; panel < s.k_steps(); ++panel)
        for (i64 block = 0; block < s.blocks(); ++block) {
            P *upper = to + (2 * panel * s.blocks() + block) * TILE_SIZE;
            pack_a_t(from + block * PANEL * stride + panel * TILE_K, stride,
                     s.tokens - block * PANEL, TILE_K, upper, upper + s.blocks() * TILE_SIZE);
        }
}

// Softmax of `count` scores of one query over [from, to), without the division; 0 elsewhere.
struct SoftmaxStats {
    float max, sum;
};

template <typename P>
SoftmaxStats softmax_row(float *scores, i64 from, i64 to, i64 count, P *probs) {
    const i64 start = from / LANES * LANES, stop = (to + LANES - 1) / LANES * LANES;
    VecF32 maxima = splat(-INFINITY), sums{};
    for (i64 k = start; k < stop; k += LANES) {
        const VecF32 score = mask_range(load(scores + k), k, from, to, -INFINITY);
        store(scores + k, score);
        maxima = max(maxima, score);
    }
    const float max_score = reduce_max(maxima);
    for (i64 k = 0; k < start; k += LANES) store(probs + k, VecF32{});
    for (i64 k = start; k < stop; k += LANES) {
        const VecF32 prob = mask_range(exp<FAST_MATH<P>>(load(scores + k) - max_score), k, from, to, 0);
        store(probs + k, prob);
        sums += prob;
    }
    for (i64 k = stop; k < count; k += LANES) store(probs + k, VecF32{});
    return {max_score, reduce_add(sums)};
}

// y [tokens, query_heads * width]; log_sums [query_heads, tokens].
template <typename P>
void flash_attention(const FlashShape &s, i64 head, const P *x, P *y,
                            float *log_sums) {
    const i64 size = s.padded_tokens() * s.width, kv_head = head / s.group_size();
    ScratchBuffer<P> keys(size), values(size), probs(PANEL * s.padded_tokens());
    ScratchBuffer<float> scores(PANEL * s.padded_tokens());
    pack_tokens_b_t(s, x + s.key_at(kv_head), s.stride, keys);
    pack_tokens_b(s, x + s.value_at(kv_head), s.stride, values);
    for (i64 block = 0; block < s.blocks(); ++block) {
        const i64 begin = block * PANEL, rows = std::min(PANEL, s.tokens - begin);
        const i64 first_block = s.first_block(block), visible = block + 1 - first_block,
                  count = visible * PANEL;
        float inverse_sums[PANEL];
        matmul(row_major(x + begin * s.stride + head * s.width, s.stride),
               keys + first_block * s.k_steps() * TILE_PAIR, s.k_steps() * TILE_PAIR, rows,
               visible, s.k_steps(), [&](i64 row, i64 panel, const float *line) {
                   float *to = scores + row * count + panel * PANEL;
                   for (i64 k = 0; k < PANEL; k += LANES)
                       store(to + k, load(line + k) * s.scale);
               });
        for (i64 row = 0; row < rows; ++row) {
            const i64 t = begin + row, first_key = first_block * PANEL;
            const SoftmaxStats softmax =
                softmax_row(scores + row * count, s.first ? s.first[t] - first_key : 0,
                            t + 1 - first_key, count, probs + row * count);
            inverse_sums[row] = 1.0f / softmax.sum;
            log_sums[head * s.tokens + t] = softmax.max + std::log(softmax.sum);
        }
        matmul(row_major<P>(probs, count), values + first_block * TILE_PAIR,
               s.blocks() * TILE_PAIR, rows, s.k_steps(), visible,
               [&](i64 row, i64 panel, const float *line) {
                   P *to = y + (begin + row) * s.out_stride + head * s.width;
                   to += panel * PANEL;
                   for (i64 d = 0; d < PANEL; d += LANES)
                       store(to + d, load(line + d) * inverse_sums[row]);
               });
    }
}

// Store the transpose of `columns` rows of 32 numbers.
template <typename P>
void store_transposed(const float *from, i64 columns, i64 rows, i64 stride, P *to) {
    for (i64 d = 0; d < columns; d += TILE_ROWS)
        for (i64 begin = 0; begin < rows; begin += TILE_ROWS) {
            alignas(64) float block[TILE_ROWS * TILE_ROWS];
            transpose16(from + d * PANEL + begin, PANEL, block, TILE_ROWS);
            for (i64 t = begin; t < std::min(rows, begin + TILE_ROWS); ++t)
                for (i64 c = 0; c < TILE_ROWS; c += LANES)
                    store(to + t * stride + d + c, load(block + (t - begin) * TILE_ROWS + c));
        }
}

// Blocks of queries whose score gradients are held at once.
constexpr i64 QUERY_CHUNK = 1024 / PANEL;

// Write the gradient of one head's queries to dx, and its part of the gradients of keys and values to
// kv_grads [tokens, 2, query_heads, width]. Scores are [keys, queries] here: each lane is a query, and
// probabilities are already in the order of the products over queries.
template <typename P>
void flash_attention_backward(const FlashShape &s, i64 head, const P *x, const P *y,
                                     const P *dy, const float *log_sums, P *dx,
                                     P *kv_grads) {
    const i64 size = s.padded_tokens() * s.width, out_stride = s.out_stride;
    const i64 kv_head = head / s.group_size();
    ScratchBuffer<P> keys(size), query_b_t(size), query_b(size), grad_b_t(size);
    const i64 at_once = std::min(QUERY_CHUNK, s.blocks()) * PANEL;
    ScratchBuffer<P> grad_b(size), probs(PANEL * at_once), score_grads(PANEL * at_once);
    ScratchBuffer<P> packed_score_grads(at_once * s.padded_tokens());
    ScratchBuffer<float> scores(PANEL * at_once), log_sum(s.padded_tokens()),
        grad_dot_out(s.padded_tokens());
    ScratchBuffer<float> dkeys(size), dvalues(size), query_grad_t(PANEL * s.width);
    ScratchBuffer<int32_t> first_tokens(s.padded_tokens());
    const P *key_rows = x + s.key_at(kv_head), *value_rows = x + s.value_at(kv_head);
    pack_tokens_a_t(s, key_rows, s.stride, keys);
    std::fill_n((float *)dkeys, size, 0.0f);
    std::fill_n((float *)dvalues, size, 0.0f);
    for (i64 t = 0; t < s.padded_tokens(); ++t)
        first_tokens[t] = t >= s.tokens ? INT32_MAX : s.first ? s.first[t] : 0;
    const P *query = x + head * s.width, *grad = dy + head * s.width;
    pack_tokens_b_t(s, query, s.stride, query_b_t);
    pack_tokens_b(s, query, s.stride, query_b);
    pack_tokens_b_t(s, grad, out_stride, grad_b_t);
    pack_tokens_b(s, grad, out_stride, grad_b);
    for (i64 t = 0; t < s.padded_tokens(); ++t) {
        VecF32 dot{};
        if (t < s.tokens)
            for (i64 d = 0; d < s.width; d += LANES)
                dot += load(grad + t * out_stride + d) *
                       load(y + t * out_stride + head * s.width + d);
        grad_dot_out[t] = reduce_add(dot);
        log_sum[t] = t < s.tokens ? log_sums[head * s.tokens + t] : 0.0f;
    }
    for (i64 chunk = 0; chunk < s.blocks(); chunk += QUERY_CHUNK) {
        const i64 chunk_end = std::min(chunk + QUERY_CHUNK, s.blocks());
        for (i64 block = 0; block < chunk_end; ++block) {
            // The chunk's queries from these keys on, up to the first block that sees none.
            const i64 first_query = std::max(block, chunk);
            i64 end_block = first_query;
            while (end_block < chunk_end && s.first_block(end_block) <= block) ++end_block;
            if (end_block == first_query) continue;
            const i64 begin = block * PANEL, visible = end_block - first_query;
            const i64 count = visible * PANEL, at = first_query * s.k_steps() * TILE_PAIR;
            matmul(row_major(key_rows + begin * s.stride, s.stride), query_b_t + at,
                   s.k_steps() * TILE_PAIR, PANEL, visible, s.k_steps(),
                   [&](i64 row, i64 panel, const float *line) {
                       std::memcpy(scores + row * count + panel * PANEL, line,
                                   PANEL * sizeof(float));
                   });
            matmul(row_major(value_rows + begin * s.stride, s.stride), grad_b_t + at,
                   s.k_steps() * TILE_PAIR, PANEL, visible, s.k_steps(),
                   [&](i64 row, i64 panel, const float *line) {
                       const i64 place = row * count + panel * PANEL;
                       for (i64 q = 0; q < PANEL; q += LANES) {
                           const i64 t = (first_query + panel) * PANEL + q;
                           VecI32 first_visible;
                           std::memcpy(&first_visible, first_tokens + t, sizeof first_visible);
                           const int32_t key_token = int32_t(begin + row);
                           const VecI32 mask = (kIota + int32_t(t) >= key_token) &
                                               (first_visible <= key_token);
                           const VecF32 prob = exp<FAST_MATH<P>>(load(scores + place + q) * s.scale -
                                                         load(log_sum + t));
                           const VecF32 score_grad =
                               prob * (load(line + q) - load(grad_dot_out + t)) * s.scale;
                           store(probs + place + q, mask ? prob : VecF32{});
                           store(score_grads + place + q, mask ? score_grad : VecF32{});
                       }
                       if (row % 2 == 0) return;
                       const Line<P> even = load_line<P>(score_grads + place - count, PANEL);
                       const Line<P> odd = load_line<P>(score_grads + place, PANEL);
                       const i64 query = first_query + panel - chunk;
                       P *to = packed_score_grads + (query * s.blocks() + block) * TILE_PAIR;
                       pack_rows(even, odd, row / 2, to, to + TILE_SIZE);
                   });
            const auto add_to = [&](float *totals) {
                return [=](i64 row, i64 panel, const float *line) {
                    float *to = totals + (begin + row) * s.width + panel * PANEL;
                    for (i64 d = 0; d < PANEL; d += LANES)
                        store(to + d, load(to + d) + load(line + d));
                };
            };
            matmul(row_major<P>(probs, count), grad_b + first_query * TILE_PAIR,
                   s.blocks() * TILE_PAIR, PANEL, s.k_steps(), visible, add_to(dvalues));
            matmul(row_major<P>(score_grads, count), query_b + first_query * TILE_PAIR,
                   s.blocks() * TILE_PAIR, PANEL, s.k_steps(), visible, add_to(dkeys));
        }
        for (i64 block = chunk; block < chunk_end; ++block) {
            const i64 first_block = s.first_block(block), begin = block * PANEL;
            const i64 at = (block - chunk) * s.blocks() + first_block;
            matmul(tiled<P>(keys, s.blocks()).from(0, first_block),
                   packed_score_grads + at * TILE_PAIR, 0, s.width, 1, block + 1 - first_block,
                   [&](i64 row, i64, const float *line) {
                       std::memcpy(query_grad_t + row * PANEL, line, PANEL * sizeof(float));
                   });
            store_transposed(query_grad_t, s.width, std::min(PANEL, s.tokens - begin), s.stride,
                             dx + begin * s.stride + head * s.width);
        }
    }
    for (i64 t = 0; t < s.tokens; ++t)
        for (i64 d = 0; d < s.width; d += LANES) {
            P *to = kv_grads + (2 * t * s.query_heads + head) * s.width + d;
            store(to, load(dkeys + t * s.width + d));
            store(to + s.query_heads * s.width, load(dvalues + t * s.width + d));
        }
}

}  // namespace ownwords
