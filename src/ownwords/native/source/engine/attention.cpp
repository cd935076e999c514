#include "engine/attention.h"

namespace ownwords::engine {
namespace {

constexpr float NOTHING = -1e30f;              // a score below all others
constexpr int ACROSS = int(BLOCK) / LANES;     // vectors of a block's positions
// One sum would wait for each addition: every other one goes to another.
constexpr int CHAINS = LANES == 16 ? 2 : 1;
constexpr int SUMS = (LANES == 16 ? 16 : 8) / CHAINS;  // vectors of sums that registers hold
constexpr int MOST = LANES == 16 ? 8 : LANES == 8 ? 4 : 2;  // queries at once

// What a line is multiplied with, and how: of bfloat16 two numbers each.
template <typename Cell>
struct Line {
    using With = float;
    Vector numbers;

    explicit Line(const float *from) : numbers(load(from)) {}
    Vector plus(Vector sum, const With *with) const { return sum + numbers * *with; }
};

#if defined(__AVX512BF16__)
template <>
struct Line<Bf16> {
    using With = Bf16;
    __m512bh numbers;

    explicit Line(const Bf16 *from) { std::memcpy(&numbers, from, sizeof numbers); }
    Vector plus(Vector sum, const With *with) const {
        int32_t pair;
        std::memcpy(&pair, with, sizeof pair);
        return (Vector)_mm512_dpbf16_ps((__m512)sum, numbers, (__m512bh)_mm512_set1_epi32(pair));
    }
};
#else
template <>
struct Line<Bf16> {
    using With = float;
    Vector even, odd;

    explicit Line(const Bf16 *from) {
        Bits bits;
        std::memcpy(&bits, from, sizeof bits);
        even = (Vector)(bits << 16);
        odd = (Vector)(bits & 0xffff0000u);
    }
    Vector plus(Vector sum, const With *with) const { return sum + even * with[0] + odd * with[1]; }
};
#endif

template <typename Cell>
using With = typename Line<Cell>::With;

// Logits of ROWS queries with BLOCKS blocks of keys; what is read next is fetched meanwhile.
template <typename Cell, int ROWS, int BLOCKS>
void score(const With<Cell> *query, Long deep, const Cell *keys, const Cell *ahead, float *scores) {
    constexpr int P = int(PAIR<Cell>);
    Vector sums[CHAINS][ROWS][BLOCKS * ACROSS] = {};
    for (Long d = 0; d < deep; d += P * CHAINS)
        for (int c = 0; c < CHAINS; ++c)
            for (int k = 0; k < BLOCKS * ACROSS; ++k) {
                const Long across = k % ACROSS * LANES * P;
                const Long at = k / ACROSS * BLOCK * deep + (d + c * P) * BLOCK + across;
                if (across == 0) __builtin_prefetch(ahead + at, 0, 2);
                const Line<Cell> line(keys + at);
                for (int row = 0; row < ROWS; ++row)
                    sums[c][row][k] =
                        line.plus(sums[c][row][k], query + row * deep + d + c * P);
            }
    for (int row = 0; row < ROWS; ++row)
        for (int k = 0; k < BLOCKS * ACROSS; ++k)
            store(scores + row * SEGMENT + k * LANES,
                  CHAINS == 1 ? sums[0][row][k] : sums[0][row][k] + sums[CHAINS - 1][row][k]);
}

template <typename Cell, int ROWS>
void score_blocks(const With<Cell> *query, Long deep, const Cell *keys, const Cell *ahead,
                  float *scores, Long begin, Long end) {
    constexpr int MANY = SUMS / (ROWS * ACROSS) < 1 ? 1 : SUMS / (ROWS * ACROSS);
    constexpr int BLOCKS = MANY > int(SEGMENT / BLOCK) ? int(SEGMENT / BLOCK) : MANY;
    Long block = begin;
    for (; block + BLOCKS <= end; block += BLOCKS)
        score<Cell, ROWS, BLOCKS>(query, deep, keys + block * BLOCK * deep,
                                  ahead + block * BLOCK * deep, scores + block * BLOCK);
    for (; block < end; ++block)
        score<Cell, ROWS, 1>(query, deep, keys + block * BLOCK * deep, ahead + block * BLOCK * deep,
                             scores + block * BLOCK);
}

// What ROWS queries make of the values of positions [begin, end): WIDE vectors of dimensions.
template <typename Cell, int ROWS, int WIDE>
void gather(const With<Cell> *shares, const Cell *values, const Cell *ahead, Long deep, Long begin,
            Long end, float *made) {
    constexpr int P = int(PAIR<Cell>);
    Vector sums[CHAINS][ROWS][WIDE] = {};
    for (Long s = begin; s < end; s += P * CHAINS)
        for (int c = 0; c < CHAINS; ++c)
            for (int w = 0; w < WIDE; ++w) {
                const Long at = (s + c * P) * deep + w * LANES * P;
                if (w % ACROSS == 0) __builtin_prefetch(ahead + at, 0, 2);
                const Line<Cell> line(values + at);
                for (int row = 0; row < ROWS; ++row)
                    sums[c][row][w] =
                        line.plus(sums[c][row][w], shares + row * SEGMENT + s + c * P);
            }
    for (int row = 0; row < ROWS; ++row)
        for (int w = 0; w < WIDE; ++w)
            store(made + row * deep + w * LANES,
                  CHAINS == 1 ? sums[0][row][w] : sums[0][row][w] + sums[CHAINS - 1][row][w]);
}

template <typename Cell, int ROWS>
void gather_all(const With<Cell> *shares, const Cell *values, const Cell *ahead, Long deep,
                Long begin, Long end, float *made) {
    constexpr int WIDE = SUMS / ROWS > 4 ? 4 : SUMS / ROWS;
    constexpr Long P = PAIR<Cell>;
    Long d = 0;
    for (; d + WIDE * LANES <= deep; d += WIDE * LANES)
        gather<Cell, ROWS, WIDE>(shares, values + d * P, ahead + d * P, deep, begin, end, made + d);
    for (; d < deep; d += LANES)
        gather<Cell, ROWS, 1>(shares, values + d * P, ahead + d * P, deep, begin, end, made + d);
}

// body(row, std::integral_constant<int, how many>) for all rows, as many at once as there can be.
template <int ROWS, typename Body>
void each_rows(Long row, Long rows, const Body &body) {
    for (; row + ROWS <= rows; row += ROWS) body(row, std::integral_constant<int, ROWS>{});
    if constexpr (ROWS > 1) each_rows<ROWS / 2>(row, rows, body);
}

// Logits of positions [begin, end) to shares of the largest among [from, to), 0 for the others;
// these may take the place of the scores.
template <typename T>
void soften(const float *scores, Long begin, Long end, Long from, Long to, T *shares, float &top,
            float &sum) {
    const auto sees = [=](Long k, Vector x, float others) {
        const Whole at = NUMBERS + int32_t(k);
        return ((at >= int32_t(from)) & (at < int32_t(to))) ? x : every(others);
    };
    Vector tops = every(NOTHING), sums{};
    for (Long k = begin; k < end; k += LANES)
        tops = larger(tops, sees(k, load(scores + k), NOTHING));
    top = largest(tops);
    for (Long k = begin; k < end; k += LANES) {
        store(shares + k, sees(k, exp<false>(load(scores + k) - top), 0));
        sums += load(shares + k);  // as they are kept
    }
    sum = summed(sums);
}

// One more segment to those before. Kept in one piece, or copies of it might round in other ways.
__attribute__((noinline)) void fold(const float *made, float top, float sum, Long width,
                                    float *total, float &total_top, float &total_sum) {
    const float larger_top = top > total_top ? top : total_top;
    Vector both = every(top - larger_top);
    both[0] = total_top - larger_top;
    both = exp<false>(both);
    const float before = both[0], now = both[1];
    each_vector(width, [=](Long d, auto part) {
        store(total + d, load(total + d, part) * before + load(made + d, part) * now, part);
    });
    total_top = larger_top;
    total_sum = total_sum * before + sum * now;
}

// The task at hand: one key head, some of its query heads, the tokens of a block.
struct Task {
    const Block &block;
    Long key, first_head, heads;  // the heads are numbered among all

    Long rows() const { return block.count * heads; }
};

Task task_of(const Heads &heads, const Block &block, Long task) {
    const Long key = task / heads.pieces(), piece = task % heads.pieces();
    const Long from = piece * heads.fan();
    return {block, key, key * heads.shared() + from, std::min(heads.fan(), heads.shared() - from)};
}

// The task's queries, padded; as narrow as what they are multiplied with.
template <typename T>
void prepare_queries(const Heads &heads, const Task &task, AttentionRoom &room) {
    const Long deep = heads.deep();
    auto *queries = reinterpret_cast<T *>(room.query);
    for (Long row = 0; row < task.rows(); ++row) {
        const Long token = task.block.token + row / task.heads;
        const Long head = task.first_head + row % task.heads;
        float *to = std::is_same_v<T, float> ? room.query + row * deep : room.made;
        prepare(heads.made + token * heads.made_stride + head * heads.width, heads.query_norm,
                heads.cosines(token), heads.sines(token), heads.scale, heads.width, to);
        std::fill(to + heads.width, to + deep, 0.0f);
        if constexpr (!std::is_same_v<T, float>)
            for (Long d = 0; d < deep; d += LANES) store(queries + row * deep + d, load(to + d));
    }
}

// What the task's queries make of one segment, in `room.made`, `top` and `sum`, by row; meanwhile
// what is at `next` is fetched.
template <typename Cell>
void read_segment(const Heads &heads, const Task &task, const Plan &plan, const Cell *keys,
                  const Cell *values, const Cell *next, Long start, AttentionRoom &room) {
    const Long deep = heads.deep(), rows = task.rows();
    const Block &block = task.block;
    const auto low = [&](Long position) {
        return plan.window == 0 ? 0 : std::max<Long>(position - plan.window + 1 - start, 0);
    };
    const auto high = [&](Long position) { return std::min(position + 1 - start, SEGMENT); };
    const Long begin = low(block.position) / BLOCK;
    const Long end = (high(block.position + block.count - 1) + BLOCK - 1) / BLOCK;
    const auto *queries = reinterpret_cast<const With<Cell> *>(room.query);
    auto *shares = reinterpret_cast<With<Cell> *>(room.scores);  // in rows as long as the scores'
    each_rows<MOST>(0, rows, [&](Long row, auto many) {
        score_blocks<Cell, decltype(many)::value>(queries + row * deep, deep, keys,
                                                  row == 0 ? values : keys,
                                                  room.scores + row * SEGMENT, begin, end);
    });
    for (Long row = 0; row < rows; ++row) {
        const Long position = block.position + row / task.heads;
        soften(room.scores + row * SEGMENT, begin * BLOCK, end * BLOCK, low(position),
               high(position), shares + row * SEGMENT, room.top[row], room.sum[row]);
    }
    each_rows<MOST>(0, rows, [&](Long row, auto many) {
        gather_all<Cell, decltype(many)::value>(shares + row * SEGMENT, values,
                                                row == 0 ? next : values, deep, begin * BLOCK,
                                                end * BLOCK, room.made + row * deep);
    });
}

// Segments [from, to) of a task, to the output if these are all of it, else to its parts.
template <typename Cell>
void do_task(const Heads &heads, Cache &cache, Long layer, const Plan &plan, const Task &task,
             Long from, Long to, Long slot, AttentionRoom &room) {
    const Block &block = task.block;
    const Long deep = heads.deep(), rows = task.rows(), first = plan.first_segment(block);
    const Cell *keys = cache.keys<Cell>(layer, block.row, task.key);
    const Cell *values = cache.values<Cell>(layer, block.row, task.key);
    const Cell *after = task.key + 1 < heads.keys
                            ? cache.keys<Cell>(layer, block.row, task.key + 1) +
                                  first * SEGMENT * deep
                            : keys;
    prepare_queries<With<Cell>>(heads, task, room);
    const bool whole = to - from == plan.segments(block);
    for (Long row = 0; row < rows; ++row) {
        room.total_top[row] = NOTHING;
        room.total_sum[row] = 0;
        std::fill_n(room.total + row * deep, deep, 0.0f);
    }
    for (Long segment = from; segment < to; ++segment) {
        const Long start = (first + segment) * SEGMENT;
        const Cell *next = segment + 1 < to ? keys + (start + SEGMENT) * deep : after;
        read_segment(heads, task, plan, keys + start * deep, values + start * deep, next, start,
                     room);
        float *part = whole ? nullptr : cache.part(slot, segment);
        for (Long row = 0; row < rows; ++row) {
            const float *made = room.made + row * deep;
            if (whole) {
                fold(made, room.top[row], room.sum[row], heads.width, room.total + row * deep,
                     room.total_top[row], room.total_sum[row]);
                continue;
            }
            float *kept = part + row * (deep + 2);
            std::memcpy(kept, made, size_t(deep) * sizeof(float));
            kept[deep] = room.top[row];
            kept[deep + 1] = room.sum[row];
        }
    }
    if (!whole) return;
    for (Long row = 0; row < rows; ++row) {
        const Long head = task.first_head + row % task.heads;
        float *out = heads.out + (block.out + row / task.heads) * heads.out_stride +
                     head * heads.width;
        const float *total = room.total + row * deep, by = 1.0f / room.total_sum[row];
        each_vector(heads.width,
                    [=](Long d, auto part) { store(out + d, load(total + d, part) * by, part); });
    }
}

template <typename Cell>
void remember_head(const Heads &heads, Cache &cache, Long layer, Long row, Long position,
                   Long token, Long key, AttentionRoom &room) {
    const Long deep = heads.deep();
    const float *from =
        heads.made + token * heads.made_stride + (heads.queries + key) * heads.width;
    const float *value = from + heads.keys * heads.width;
    float *padded = room.made;
    std::fill(padded + heads.width, padded + deep, 0.0f);
    prepare(from, heads.key_norm, heads.cosines(token), heads.sines(token), 1, heads.width, padded);
    store_key(cache.keys<Cell>(layer, row, key), deep, position, padded);
    std::memcpy(padded, value, size_t(heads.width) * sizeof(float));
    store_value(cache.values<Cell>(layer, row, key), deep, position, padded);
}

template <typename Cell>
void do_share(const Heads &heads, Cache &cache, Long layer, const Plan &plan, int thread,
              bool storing, AttentionRoom &room) {
    const Place end = plan.starts[size_t(thread) + 1];
    Place at = plan.starts[size_t(thread)];
    Long slot = plan.slots[size_t(thread)];
    while (at.block < end.block || (at.block == end.block && at.task < end.task) ||
           (at.block == end.block && at.task == end.task && at.segment < end.segment)) {
        const Block &block = plan.blocks[at.block];
        const bool last = at.block == end.block && at.task == end.task;
        const Long to = last ? end.segment : plan.segments(block);
        if (last && slot < 0) slot = plan.slots[size_t(thread) + 1];
        const Task task = task_of(heads, block, at.task);
        if (storing && to == plan.segments(block))
            remember_head<Cell>(heads, cache, layer, block.row, block.position, block.token,
                                task.key, room);
        do_task<Cell>(heads, cache, layer, plan, task, at.segment, to, slot, room);
        slot = -1;
        at = {at.block, at.task + 1, 0};
        if (at.task == heads.tasks()) at = {at.block + 1, 0, 0};
        if (last) break;
    }
}

}  // namespace

AttentionRoom::AttentionRoom(Long deep)
    : memory_(size_t(TALL * (3 * deep + SEGMENT)) * sizeof(float)) {
    query = reinterpret_cast<float *>(memory_.start());
    scores = query + TALL * deep;
    made = scores + TALL * SEGMENT;
    total = made + TALL * deep;
}

void remember(const Heads &heads, Cache &cache, Long layer, const Long *rows, const Long *positions,
              Long begin, Long end, AttentionRoom &room) {
    with_kind(cache.shape.narrow, [&](auto *cell) {
        using Cell = std::remove_pointer_t<decltype(cell)>;
        // Positions whose values lie together are stored by one thread.
        const auto amid = [&](Long token) {
            return token > 0 && token < heads.tokens && rows[token] == rows[token - 1] &&
                   positions[token] % PAIR<Cell> != 0;
        };
        begin += amid(begin);
        end += amid(end);
        // Head by head: the lines that tokens share stay near.
        for (Long key = 0; key < heads.keys; ++key)
            for (Long token = begin; token < end; ++token)
                remember_head<Cell>(heads, cache, layer, rows[token], positions[token], token, key,
                                    room);
    });
}

void attend(const Heads &heads, Cache &cache, Long layer, const Plan &plan, int thread,
            bool storing, AttentionRoom &room) {
    with_kind(cache.shape.narrow, [&](auto *cell) {
        do_share<std::remove_pointer_t<decltype(cell)>>(heads, cache, layer, plan, thread, storing,
                                                        room);
    });
}

bool join(const Heads &heads, const Cache &cache, const Plan &plan, Long out, float *row) {
    const Long deep = heads.deep();
    bool any = false;
    for (Long c = 0; c < plan.cut_count; ++c) {
        const Cut &cut = plan.cuts[size_t(c)];
        if (plan.blocks[cut.block].out != out) continue;
        const Task task = task_of(heads, plan.blocks[cut.block], cut.task);
        for (Long head = 0; head < task.heads; ++head) {
            float *total = row + (task.first_head + head) * heads.width;
            std::fill_n(total, heads.width, 0.0f);
            float top = NOTHING, sum = 0;
            for (Long segment = 0; segment < cut.segments; ++segment) {
                const float *part = cache.part(cut.slot, segment) + head * (deep + 2);
                fold(part, part[deep], part[deep + 1], heads.width, total, top, sum);
            }
            const float by = 1.0f / sum;
            each_vector(heads.width, [=](Long d, auto part) {
                store(total + d, load(total + d, part) * by, part);
            });
        }
        any = true;
    }
    return any;
}

}  // namespace ownwords::engine
