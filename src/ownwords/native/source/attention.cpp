// Causal attention of short texts: each token looks at those from `first` to itself. Blocks of
// queries take only the keys that some query of the block may see, so that neither what lies above
// the diagonal nor other documents are computed.
#include <algorithm>
#include <cmath>
#include <vector>

#include "product.h"
#include "threads.h"
#include "vectors.h"

namespace ownwords {
namespace {

constexpr Long BLOCK = 48;  // queries at once: a multiple of every TALL

// x [batch, tokens, queries + 2 * keys, width]; first [batch or 1, tokens] or null.
struct Shape {
    Long batch, tokens, queries, keys, width;
    float scale;
    const int32_t *first;
    Long first_step;

    Long stride() const { return (queries + 2 * keys) * width; }
    Long span() const { return padded(tokens); }
    Long deep() const { return padded(width); }
};

// One head of [tokens, ...] as floats, rows padded with zeros.
template <typename T>
void read(const Shape &s, const T *from, Long begin, Long end, Long step, float by, float *to) {
    for (Long t = begin; t < end; ++t) {
        float *row = to + (t - begin) * s.deep();
        each_vector(s.width, [=](Long d, auto part) {
            store(row + d, load(from + t * step + d, part) * by, part);
        });
        for (Long d = s.width; d < s.deep(); ++d) row[d] = 0;
    }
}

// [tokens, deep] -> [width, span], a few tokens at a time: what is read stays near.
void turn(const Shape &s, const float *from, float *to) {
    for (Long begin = 0; begin < s.span(); begin += LANES) {
        const Long end = std::min(begin + LANES, s.tokens);
        for (Long d = 0; d < s.width; ++d) {
            Vector column{};
            for (Long t = begin; t < end; ++t) column[t - begin] = from[t * s.deep() + d];
            store(to + d * s.span() + begin, column);
        }
    }
}

// The keys that the queries of [begin, end) may see: from `low`, `count` of them, padded.
struct Range {
    Long low, count;
};

Range seen(const int32_t *first, Long begin, Long end) {
    const Long low = first == nullptr ? 0 : first[begin] / STRIP * STRIP;
    return {low, padded(end - low)};
}

// Logits of a block to probabilities, zero where a query may not look; the log of their sum.
template <bool rough>
void soften(const int32_t *first, Range range, Long begin, Long end, float *scores, float *log_sum,
            bool known) {
    for (Long t = begin; t < end; ++t) {
        float *row = scores + (t - begin) * range.count;
        const Long from = first == nullptr ? 0 : first[t] - range.low, to = t + 1 - range.low;
        // Whole vectors around what is seen.
        const Long start = from / LANES * LANES, stop = (to + LANES - 1) / LANES * LANES;
        const auto sees = [=](Long k, Vector x, float others) {
            const Whole at = NUMBERS + int32_t(k);
            return ((at >= int32_t(from)) & (at < int32_t(to))) ? x : every(others);
        };
        float less = log_sum[t], share = 1;
        if (!known) {
            Vector tops = every(-INFINITY), totals{};
            for (Long k = start; k < stop; k += LANES)
                tops = larger(tops, sees(k, load(row + k), -INFINITY));
            less = largest(tops);
            for (Long k = start; k < stop; k += LANES) {
                const Vector power = sees(k, exp<rough>(load(row + k) - less), 0);
                store(row + k, power);
                totals += power;
            }
            const float total = summed(totals);
            share = 1.0f / total;
            log_sum[t] = less + std::log(total);
        }
        for (Long k = 0; k < start; k += LANES) store(row + k, Vector{});
        for (Long k = start; k < stop; k += LANES)
            store(row + k, known ? sees(k, exp<rough>(load(row + k) - less), 0)
                                 : load(row + k) * share);
        for (Long k = stop; k < range.count; k += LANES) store(row + k, Vector{});
    }
}

template <typename T>
void forward(const Shape s, const T *x, T *y, float *log_sums) {
    const Long shared = s.queries / s.keys;
    parallel(s.batch * s.keys, 1, [=](Long start, Long stop, int) {
        std::vector<float> plain(s.span() * s.deep()), keys(s.deep() * s.span());
        std::vector<float> values(s.span() * s.deep(), 0.0f), query(BLOCK * s.deep());
        std::vector<float> scores(BLOCK * s.span()), made(BLOCK * s.deep());
        for (Long task = start; task < stop; ++task) {
            const Long row = task / s.keys, key = task % s.keys;
            const T *base = x + row * s.tokens * s.stride();
            const int32_t *first = s.first ? s.first + row * s.first_step : nullptr;
            read(s, base + (s.queries + key) * s.width, 0, s.tokens, s.stride(), 1, plain.data());
            turn(s, plain.data(), keys.data());
            read(s, base + (s.queries + s.keys + key) * s.width, 0, s.tokens, s.stride(), 1,
                 values.data());
            for (Long head = key * shared; head < (key + 1) * shared; ++head)
                for (Long begin = 0; begin < s.tokens; begin += BLOCK) {
                    const Long end = std::min(begin + BLOCK, s.tokens), rows = end - begin;
                    const Range range = seen(first, begin, end);
                    read(s, base + head * s.width, begin, end, s.stride(), s.scale, query.data());
                    std::fill_n(scores.data(), rows * range.count, 0.0f);
                    product(query.data(), s.deep(), 1, keys.data() + range.low, s.span(),
                            scores.data(), range.count, rows, s.width, range.count);
                    soften<ROUGH<T>>(first, range, begin, end, scores.data(),
                           log_sums + (row * s.queries + head) * s.tokens, false);
                    std::fill_n(made.data(), rows * s.deep(), 0.0f);
                    product(scores.data(), range.count, 1, values.data() + range.low * s.deep(),
                            s.deep(), made.data(), s.deep(), rows, end - range.low, s.deep());
                    for (Long t = begin; t < end; ++t) {
                        T *to = y + ((row * s.tokens + t) * s.queries + head) * s.width;
                        const float *from = made.data() + (t - begin) * s.deep();
                        each_vector(s.width, [=](Long d, auto part) {
                            store(to + d, load(from + d, part), part);
                        });
                    }
                }
        }
    });
}

template <typename T>
void write(const Shape &s, const float *from, Long begin, Long end, float by, T *to) {
    for (Long t = begin; t < end; ++t)
        each_vector(s.width, [=](Long d, auto part) {
            store(to + t * s.stride() + d, load(from + (t - begin) * s.deep() + d, part) * by,
                  part);
        });
}

template <typename T>
void backward(const Shape s, const T *x, const T *dy, float *log_sums, T *dx) {
    const Long shared = s.queries / s.keys, size = s.span() * s.deep();
    parallel(s.batch * s.keys, 1, [=](Long start, Long stop, int) {
        std::vector<float> keys(size), keys_turned(size), values(size), values_turned(size);
        std::vector<float> dkeys(size), dvalues(size);
        std::vector<float> query(BLOCK * s.deep()), dmade(BLOCK * s.deep());
        std::vector<float> dquery(BLOCK * s.deep());
        std::vector<float> shares(BLOCK * s.span()), slopes(BLOCK * s.span());
        for (Long task = start; task < stop; ++task) {
            const Long row = task / s.keys, key = task % s.keys;
            const Long key_at = (s.queries + key) * s.width;
            const Long value_at = key_at + s.keys * s.width;
            const T *base = x + row * s.tokens * s.stride();
            T *dbase = dx + row * s.tokens * s.stride();
            const int32_t *first = s.first ? s.first + row * s.first_step : nullptr;
            read(s, base + key_at, 0, s.tokens, s.stride(), 1, keys.data());
            turn(s, keys.data(), keys_turned.data());
            read(s, base + value_at, 0, s.tokens, s.stride(), 1, values.data());
            turn(s, values.data(), values_turned.data());
            std::fill(dkeys.begin(), dkeys.end(), 0.0f);
            std::fill(dvalues.begin(), dvalues.end(), 0.0f);
            for (Long head = key * shared; head < (key + 1) * shared; ++head)
                for (Long begin = 0; begin < s.tokens; begin += BLOCK) {
                    const Long end = std::min(begin + BLOCK, s.tokens), rows = end - begin;
                    const Range range = seen(first, begin, end);
                    const Long low = range.low * s.deep(), count = end - range.low;
                    read(s, base + head * s.width, begin, end, s.stride(), s.scale, query.data());
                    read(s, dy + row * s.tokens * s.queries * s.width + head * s.width, begin, end,
                         s.queries * s.width, 1, dmade.data());
                    std::fill_n(shares.data(), rows * range.count, 0.0f);
                    product(query.data(), s.deep(), 1, keys_turned.data() + range.low, s.span(),
                            shares.data(), range.count, rows, s.width, range.count);
                    soften<ROUGH<T>>(first, range, begin, end, shares.data(),
                           log_sums + (row * s.queries + head) * s.tokens, true);
                    product(shares.data(), 1, range.count, dmade.data(), s.deep(),
                            dvalues.data() + low, s.deep(), count, rows, s.deep());
                    std::fill_n(slopes.data(), rows * range.count, 0.0f);
                    product(dmade.data(), s.deep(), 1, values_turned.data() + range.low, s.span(),
                            slopes.data(), range.count, rows, s.width, range.count);
                    for (Long t = 0; t < rows; ++t) {
                        const float *share = shares.data() + t * range.count;
                        float *slope = slopes.data() + t * range.count;
                        Vector both{};
                        for (Long k = 0; k < range.count; k += LANES)
                            both += load(share + k) * load(slope + k);
                        const float along = summed(both);
                        for (Long k = 0; k < range.count; k += LANES)
                            store(slope + k, load(share + k) * (load(slope + k) - along));
                    }
                    std::fill_n(dquery.data(), rows * s.deep(), 0.0f);
                    product(slopes.data(), range.count, 1, keys.data() + low, s.deep(),
                            dquery.data(), s.deep(), rows, count, s.deep());
                    write(s, dquery.data(), begin, end, s.scale, dbase + head * s.width);
                    product(slopes.data(), 1, range.count, query.data(), s.deep(),
                            dkeys.data() + low, s.deep(), count, rows, s.deep());
                }
            write(s, dkeys.data(), 0, s.tokens, 1, dbase + key_at);
            write(s, dvalues.data(), 0, s.tokens, 1, dbase + value_at);
        }
    });
}

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_attention(int kind, const void *x, void *y, float *log_sums,
                                     const int32_t *first, Long first_step, Long batch, Long tokens,
                                     Long queries, Long keys, Long width, float scale) {
    const ownwords::Shape shape{batch, tokens, queries, keys, width, scale, first, first_step};
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::forward(shape, (const T *)x, (T *)y, log_sums);
    });
}

OWNWORDS_API void ownwords_attention_back(int kind, const void *x, const void *dy, float *log_sums,
                                          void *dx, const int32_t *first, Long first_step,
                                          Long batch, Long tokens, Long queries, Long keys,
                                          Long width, float scale) {
    const ownwords::Shape shape{batch, tokens, queries, keys, width, scale, first, first_step};
    ownwords::with_kind(kind, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        ownwords::backward(shape, (const T *)x, (const T *)dy, log_sums, (T *)dx);
    });
}
