// Causal attention by tiles: all that one key head of one text takes part in, forward and back.
// Each token looks at those from `first` to itself; blocks that nobody looks at are left out.
#pragma once

#include <algorithm>
#include <cmath>

#include "room.h"
#include "tiles.h"

namespace ownwords {

// x: rows of queries + 2 * keys heads, as many rows as tokens; `first` of each, or null.
struct Focus {
    Long tokens, queries, keys, width;
    Long stride, seen_stride;  // between rows of x, and of what the queries saw
    float scale;
    const int32_t *first;

    Long span() const { return (tokens + PANEL - 1) / PANEL * PANEL; }
    Long blocks() const { return span() / PANEL; }
    Long deep() const { return width / DEPTH; }  // in steps
    Long shared() const { return queries / keys; }
    Long key_at(Long key) const { return (queries + key) * width; }
    Long value_at(Long key) const { return (queries + keys + key) * width; }
    // The first block of keys that some query of a block sees.
    Long low(Long block) const { return first ? first[block * PANEL] / PANEL : 0; }
};

// Of all blocks of tokens of one head, B's tiles: tokens are columns, or they are added up.
inline void tokens_across(const Focus &s, const Bf16 *from, Long stride, Bf16 *to) {
    for (Long block = 0; block < s.blocks(); ++block)
        for (Long step = 0; step < s.deep(); ++step)
            for (Long half = 0; half < 2; ++half) {
                const Long token = block * PANEL + half * SIDE;
                across(from + token * stride + step * DEPTH, stride,
                       std::max<Long>(0, s.tokens - token), DEPTH,
                       to + (block * s.deep() + step) * LINES + half * TILE);
            }
}

inline void tokens_along(const Focus &s, const Bf16 *from, Long stride, Bf16 *to) {
    for (Long panel = 0; panel < s.deep(); ++panel)
        for (Long block = 0; block < s.blocks(); ++block) {
            Bf16 *tiles = to + (panel * s.blocks() + block) * LINES;
            along(from + block * PANEL * stride + panel * DEPTH, stride,
                  s.tokens - block * PANEL, DEPTH, tiles, tiles + TILE);
        }
}

// A's tiles of a head whose rows are its dimensions.
inline void tokens_turned(const Focus &s, const Bf16 *from, Long stride, Bf16 *to) {
    for (Long panel = 0; panel < s.deep(); ++panel)
        for (Long block = 0; block < s.blocks(); ++block) {
            Bf16 *upper = to + (2 * panel * s.blocks() + block) * TILE;
            turned(from + block * PANEL * stride + panel * DEPTH, stride,
                   s.tokens - block * PANEL, DEPTH, upper, upper + s.blocks() * TILE);
        }
}

// Logits of one query, `count` of them, to powers as bfloat16; those outside [from, to) to 0.
// The largest score and the sum of the powers.
struct Softened {
    float top, sum;
};

inline Softened soften(float *scores, Long from, Long to, Long count, Bf16 *powers) {
    const Long start = from / LANES * LANES, stop = (to + LANES - 1) / LANES * LANES;
    const auto sees = [=](Long k, Vector x, float others) {
        const Whole at = NUMBERS + int32_t(k);
        return ((at >= int32_t(from)) & (at < int32_t(to))) ? x : every(others);
    };
    Vector tops = every(-INFINITY), sums{};
    for (Long k = start; k < stop; k += LANES) {
        const Vector score = sees(k, load(scores + k), -INFINITY);
        store(scores + k, score);
        tops = larger(tops, score);
    }
    const float top = largest(tops);
    for (Long k = 0; k < start; k += LANES) store(powers + k, Vector{});
    for (Long k = start; k < stop; k += LANES) {
        const Vector power = sees(k, exp<true>(load(scores + k) - top), 0);
        store(powers + k, power);
        sums += power;
    }
    for (Long k = stop; k < count; k += LANES) store(powers + k, Vector{});
    return {top, summed(sums)};
}

// y: rows of queries heads; log_sums [queries, tokens].
inline void focus(const Focus &s, Long key, const Bf16 *x, Bf16 *y, float *log_sums) {
    const Long size = s.span() * s.width;
    Room<Bf16> keys(size), values(size), powers(PANEL * s.span());
    Room<float> scores(PANEL * s.span());
    tokens_across(s, x + s.key_at(key), s.stride, keys);
    tokens_along(s, x + s.value_at(key), s.stride, values);
    for (Long head = key * s.shared(); head < (key + 1) * s.shared(); ++head)
        for (Long block = 0; block < s.blocks(); ++block) {
            const Long begin = block * PANEL, rows = std::min(PANEL, s.tokens - begin);
            const Long low = s.low(block), seen = block + 1 - low, count = seen * PANEL;
            float shares[PANEL];
            product(as_it_lies(x + begin * s.stride + head * s.width, s.stride),
                    keys + low * s.deep() * LINES, s.deep() * LINES, rows, seen, s.deep(),
                    [&](Long row, Long panel, const float *line) {
                        float *to = scores + row * count + panel * PANEL;
                        for (Long k = 0; k < PANEL; k += LANES)
                            store(to + k, load(line + k) * s.scale);
                    });
            for (Long row = 0; row < rows; ++row) {
                const Long t = begin + row, skipped = low * PANEL;
                const Softened made =
                    soften(scores + row * count, s.first ? s.first[t] - skipped : 0,
                           t + 1 - skipped, count, powers + row * count);
                shares[row] = 1.0f / made.sum;
                log_sums[head * s.tokens + t] = made.top + std::log(made.sum);
            }
            product(as_it_lies(powers, count), values + low * LINES, s.blocks() * LINES, rows,
                    s.deep(), seen, [&](Long row, Long panel, const float *line) {
                        Bf16 *to = y + (begin + row) * s.seen_stride + head * s.width;
                        to += panel * PANEL;
                        for (Long d = 0; d < PANEL; d += LANES)
                            store(to + d, load(line + d) * shares[row]);
                    });
        }
}

// 32 rows of `columns` numbers, from the columns of as many rows of 32.
inline void written_turned(const float *from, Long columns, Long rows, Long stride, Bf16 *to) {
    for (Long d = 0; d < columns; d += SIDE)
        for (Long begin = 0; begin < rows; begin += SIDE) {
            const Long end = std::min(rows, begin + SIDE);
#if defined(__AVX512F__)
            __m512i x[16];
            for (int i = 0; i < 16; ++i) x[i] = _mm512_loadu_si512(from + (d + i) * PANEL + begin);
            turn(x);
            for (Long t = begin; t < end; ++t) store(to + t * stride + d, (Vector)x[t - begin]);
#else
            for (Long t = begin; t < end; ++t)
                for (Long i = 0; i < SIDE; ++i)
                    put(to[t * stride + d + i], from[(d + i) * PANEL + t]);
#endif
        }
}

// What the slopes of y mean for x. Keys are rows here and queries columns, so that what belongs to
// a query is a vector's lane, and the powers are already in the order in which they multiply.
inline void focus_back(const Focus &s, Long key, const Bf16 *x, const Bf16 *y, const Bf16 *dy,
                       const float *log_sums, Bf16 *dx) {
    const Long size = s.span() * s.width, heads = s.seen_stride;
    Room<Bf16> keys(size), query_across(size), query_along(size), slope_across(size);
    Room<Bf16> slope_along(size), powers(PANEL * s.span()), changes(PANEL * s.span());
    Room<Bf16> changes_along(s.span() * s.span());
    Room<float> scores(PANEL * s.span()), sums(s.span()), along_y(s.span());
    Room<float> dkeys(size), dvalues(size), turned_query(PANEL * s.width);
    Room<int32_t> firsts(s.span());
    const Bf16 *key_rows = x + s.key_at(key), *value_rows = x + s.value_at(key);
    tokens_turned(s, key_rows, s.stride, keys);
    std::fill_n((float *)dkeys, size, 0.0f);
    std::fill_n((float *)dvalues, size, 0.0f);
    for (Long t = 0; t < s.span(); ++t)
        firsts[t] = t >= s.tokens ? INT32_MAX : s.first ? s.first[t] : 0;
    for (Long head = key * s.shared(); head < (key + 1) * s.shared(); ++head) {
        const Bf16 *query = x + head * s.width, *slope = dy + head * s.width;
        tokens_across(s, query, s.stride, query_across);
        tokens_along(s, query, s.stride, query_along);
        tokens_across(s, slope, heads, slope_across);
        tokens_along(s, slope, heads, slope_along);
        for (Long t = 0; t < s.span(); ++t) {
            Vector both{};
            if (t < s.tokens)
                for (Long d = 0; d < s.width; d += LANES)
                    both += load(slope + t * heads + d) * load(y + t * heads + head * s.width + d);
            along_y[t] = summed(both);
            sums[t] = t < s.tokens ? log_sums[head * s.tokens + t] : 0.0f;
        }
        for (Long block = 0; block < s.blocks(); ++block) {
            // Queries from these keys on, up to the first that no longer sees any of them.
            Long ends = block + 1;
            while (ends < s.blocks() && s.low(ends) <= block) ++ends;
            const Long begin = block * PANEL, seen = ends - block, count = seen * PANEL;
            const Long at = block * s.deep() * LINES;
            product(as_it_lies(key_rows + begin * s.stride, s.stride), query_across + at,
                    s.deep() * LINES, PANEL, seen, s.deep(),
                    [&](Long row, Long panel, const float *line) {
                        std::memcpy(scores + row * count + panel * PANEL, line,
                                    PANEL * sizeof(float));
                    });
            product(as_it_lies(value_rows + begin * s.stride, s.stride), slope_across + at,
                    s.deep() * LINES, PANEL, seen, s.deep(),
                    [&](Long row, Long panel, const float *line) {
                        const Long place = row * count + panel * PANEL;
                        for (Long q = 0; q < PANEL; q += LANES) {
                            const Long t = begin + panel * PANEL + q;
                            Whole since;
                            std::memcpy(&since, firsts + t, sizeof since);
                            const int32_t self = int32_t(begin + row);
                            const Whole sees = (NUMBERS + int32_t(t) >= self) & (since <= self);
                            const Vector power = exp<true>(load(scores + place + q) * s.scale -
                                                           load(sums + t));
                            const Vector change =
                                power * (load(line + q) - load(along_y + t)) * s.scale;
                            store(powers + place + q, sees ? power : Vector{});
                            store(changes + place + q, sees ? change : Vector{});
                        }
                        if (row % 2 == 0) return;
                        const Line one = line_of(changes + place - count, PANEL);
                        const Line other = line_of(changes + place, PANEL);
                        Bf16 *to = changes_along + ((block + panel) * s.blocks() + block) * LINES +
                                   row / 2 * DEPTH;
                        paired(one, other, to, to + TILE);
                    });
            const auto add_to = [&](float *totals) {
                return [=](Long row, Long panel, const float *line) {
                    float *to = totals + (begin + row) * s.width + panel * PANEL;
                    for (Long d = 0; d < PANEL; d += LANES)
                        store(to + d, load(to + d) + load(line + d));
                };
            };
            product(as_it_lies(powers, count), slope_along + block * LINES, s.blocks() * LINES,
                    PANEL, s.deep(), seen, add_to(dvalues));
            product(as_it_lies(changes, count), query_along + block * LINES, s.blocks() * LINES,
                    PANEL, s.deep(), seen, add_to(dkeys));
        }
        for (Long block = 0; block < s.blocks(); ++block) {
            const Long low = s.low(block), begin = block * PANEL;
            product(in_tiles(keys, s.blocks()).from(0, low),
                    changes_along + (block * s.blocks() + low) * LINES, 0, s.width, 1,
                    block + 1 - low, [&](Long row, Long, const float *line) {
                        std::memcpy(turned_query + row * PANEL, line, PANEL * sizeof(float));
                    });
            written_turned(turned_query, s.width, std::min(PANEL, s.tokens - begin), s.stride,
                           dx + begin * s.stride + head * s.width);
        }
    }
    for (Long t = 0; t < s.tokens; ++t)
        for (Long d = 0; d < s.width; d += LANES) {
            store(dx + t * s.stride + s.key_at(key) + d, load(dkeys + t * s.width + d));
            store(dx + t * s.stride + s.value_at(key) + d, load(dvalues + t * s.width + d));
        }
}

}  // namespace ownwords
