// The cache of keys and values, and attention over it.
#include "engine/cached_attention.h"

#include <initializer_list>
#include <limits>
#include <tuple>

#include "simd/status.h"

namespace ownwords::engine {
namespace {

// The product of the sizes; throws std::bad_alloc on overflow.
size_t checked_size(std::initializer_list<i64> sizes) {
    size_t given = 1;
    for (const i64 size : sizes) {
        if (size < 0) throw std::bad_alloc();
        if (size > 0 && given > std::numeric_limits<size_t>::max() / 4 / size_t(size))
            throw std::bad_alloc();
        given *= size_t(size);
    }
    return given;
}

}  // namespace

KvCache::KvCache(const KvCacheShape &given)
    : shape(given),
      lengths(size_t(given.rows), 0),
      last_call_(size_t(given.rows), 0),
      buffer_(checked_size({given.layers, given.rows, given.heads, 2, positions(), given.width,
                            given.kv_bf16 ? 2 : 4})),
      split_buffer_(
          checked_size({given.splits, segments(), given.heads_per_task, given.width + 2, 4})),
      split_parts_(reinterpret_cast<float *>(split_buffer_.start())) {}

void KvCache::copy(i64 from, i64 to, i64 length) {
    if (from != to)
        dispatch_dtype(shape.kv_bf16, [&](auto cell) {
            using Cell = decltype(cell);
            const size_t bytes = size_t(round_up(length, BLOCK) * shape.width) * sizeof(Cell);
            for (i64 layer = 0; layer < shape.layers; ++layer)
                for (i64 head = 0; head < shape.heads; ++head)
                    for (i64 kv = 0; kv < 2; ++kv)
                        std::memcpy(cells<Cell>(layer, to, head, kv),
                                    cells<Cell>(layer, from, head, kv), bytes);
        });
    lengths[size_t(to)] = length;
}

// Splits the work of attention between threads, evenly by segments.

void AttentionPlan::reserve(int threads) {
    starts.resize(size_t(threads) + 1);
    slots.resize(size_t(threads) + 1);
    splits.resize(size_t(threads));
}

// The segment of the first position that the block's first token sees.
i64 AttentionPlan::first_segment(const QueryBlock &block) const {
    return window == 0 || block.position < window ? 0 : (block.position - window + 1) / SEGMENT;
}

i64 AttentionPlan::segments(const QueryBlock &block) const {
    return last_position(block, block.count - 1) / SEGMENT - first_segment(block) + 1;
}

void AttentionPlan::split_work(const QueryBlock *new_blocks, i64 new_count, i64 new_window,
                               const AttentionHeads &heads, int threads) {
    blocks = new_blocks;
    count = new_count;
    window = new_window;
    split_count = 0;
    const i64 tasks = heads.tasks();
    i64 total_cost = 0;
    for (i64 b = 0; b < count; ++b) total_cost += segments(blocks[b]) * blocks[b].count * tasks;
    i64 cost_before = 0, b = 0;
    starts[0] = {0, 0, 0};
    slots[0] = -1;
    for (int thread = 1; thread <= threads; ++thread) {
        const i64 target = total_cost * thread / threads;
        const auto cost = [&] { return segments(blocks[b]) * blocks[b].count * tasks; };
        while (b < count && cost_before + cost() <= target) cost_before += cost(), ++b;
        WorkPosition &start = starts[size_t(thread)];
        slots[size_t(thread)] = -1;
        if (b == count) {
            start = {count, 0, 0};
            continue;
        }
        const i64 task_cost = segments(blocks[b]) * blocks[b].count,
                  cost_left = target - cost_before;
        start = {b, cost_left / task_cost, cost_left % task_cost};
        if (blocks[b].count > 1) {  // blocks of several tokens are not split
            start.task += 2 * start.segment >= task_cost;
            start.segment = 0;
            if (start.task == tasks) start = {b + 1, 0, 0};
        }
        if (start.segment == 0) continue;
        const SplitTask *last = split_count > 0 ? &splits[size_t(split_count) - 1] : nullptr;
        if (last == nullptr || last->block != start.block || last->task != start.task) {
            splits[size_t(split_count)] = {start.block, start.task, split_count, task_cost};
            ++split_count;
        }
        slots[size_t(thread)] = split_count - 1;
    }
}

namespace {

constexpr float LOWEST = -1e30f;  // below all scores
constexpr int VECS_PER_BLOCK = int(BLOCK) / LANES;
// Two chains of sums hide the latency of an addition.
constexpr int CHAINS = LANES == 16 ? 2 : 1;
constexpr int SUMS = (LANES == 16 ? 16 : 8) / CHAINS;  // vectors of sums that fit into registers
constexpr int MAX_ROWS_AT_ONCE = LANES == 16 ? 8 : LANES == 8 ? 4 : 2;

// A line of the cache, and its product with an operand: a float, or two bfloat16 numbers.
template <typename Cell>
struct KvLine {
    using Operand = float;
    VecF32 values;

    explicit KvLine(const float *from) : values(load(from)) {}
    VecF32 plus(VecF32 sum, const Operand *with) const { return sum + values * *with; }
};

#if defined(__AVX512BF16__)
template <>
struct KvLine<Bf16> {
    using Operand = Bf16;
    __m512bh values;

    explicit KvLine(const Bf16 *from) { std::memcpy(&values, from, sizeof values); }
    VecF32 plus(VecF32 sum, const Operand *with) const {
        int32_t pair;
        std::memcpy(&pair, with, sizeof pair);
        return (VecF32)_mm512_dpbf16_ps((__m512)sum, values, (__m512bh)_mm512_set1_epi32(pair));
    }
};
#else
template <>
struct KvLine<Bf16> {
    using Operand = float;
    VecF32 even, odd;

    explicit KvLine(const Bf16 *from) {
        VecU32 bits;
        std::memcpy(&bits, from, sizeof bits);
        even = (VecF32)(bits << 16);
        odd = (VecF32)(bits & 0xffff0000u);
    }
    VecF32 plus(VecF32 sum, const Operand *with) const {
        return sum + even * with[0] + odd * with[1];
    }
};
#endif

template <typename Cell>
using Operand = typename KvLine<Cell>::Operand;

// Scores of ROWS queries with BLOCKS blocks of keys; prefetches `ahead`.
template <typename Cell, int ROWS, int BLOCKS>
void score(const Operand<Cell> *query, i64 padded_width, const Cell *keys, const Cell *ahead,
           float *scores) {
    constexpr int P = int(PACKED<Cell>);
    VecF32 sums[CHAINS][ROWS][BLOCKS * VECS_PER_BLOCK] = {};
    for (i64 d = 0; d < padded_width; d += P * CHAINS)
        for (int c = 0; c < CHAINS; ++c)
            for (int k = 0; k < BLOCKS * VECS_PER_BLOCK; ++k) {
                const i64 offset = k % VECS_PER_BLOCK * LANES * P;
                const i64 at =
                    k / VECS_PER_BLOCK * BLOCK * padded_width + (d + c * P) * BLOCK + offset;
                if (offset == 0) __builtin_prefetch(ahead + at, 0, 2);
                const KvLine<Cell> line(keys + at);
                for (int row = 0; row < ROWS; ++row)
                    sums[c][row][k] =
                        line.plus(sums[c][row][k], query + row * padded_width + d + c * P);
            }
    for (int row = 0; row < ROWS; ++row)
        for (int k = 0; k < BLOCKS * VECS_PER_BLOCK; ++k)
            store(scores + row * SEGMENT + k * LANES,
                  CHAINS == 1 ? sums[0][row][k] : sums[0][row][k] + sums[CHAINS - 1][row][k]);
}

template <typename Cell, int ROWS>
void score_blocks(const Operand<Cell> *query, i64 padded_width, const Cell *keys, const Cell *ahead,
                  float *scores, i64 begin, i64 end) {
    constexpr int FIT = SUMS / (ROWS * VECS_PER_BLOCK) < 1 ? 1 : SUMS / (ROWS * VECS_PER_BLOCK);
    constexpr int BLOCKS = FIT > int(SEGMENT / BLOCK) ? int(SEGMENT / BLOCK) : FIT;
    i64 block = begin;
    for (; block + BLOCKS <= end; block += BLOCKS)
        score<Cell, ROWS, BLOCKS>(query, padded_width, keys + block * BLOCK * padded_width,
                                  ahead + block * BLOCK * padded_width, scores + block * BLOCK);
    for (; block < end; ++block)
        score<Cell, ROWS, 1>(query, padded_width, keys + block * BLOCK * padded_width,
                             ahead + block * BLOCK * padded_width, scores + block * BLOCK);
}

// The sum of the values of positions [begin, end) weighted by `probs`, for ROWS queries and VECS
// vectors.
template <typename Cell, int ROWS, int VECS>
void weighted_sum(const Operand<Cell> *probs, const Cell *values, const Cell *ahead,
                  i64 padded_width, i64 begin, i64 end, float *out) {
    constexpr int P = int(PACKED<Cell>);
    VecF32 sums[CHAINS][ROWS][VECS] = {};
    for (i64 s = begin; s < end; s += P * CHAINS)
        for (int c = 0; c < CHAINS; ++c)
            for (int w = 0; w < VECS; ++w) {
                const i64 at = (s + c * P) * padded_width + w * LANES * P;
                if (w % VECS_PER_BLOCK == 0) __builtin_prefetch(ahead + at, 0, 2);
                const KvLine<Cell> line(values + at);
                for (int row = 0; row < ROWS; ++row)
                    sums[c][row][w] = line.plus(sums[c][row][w], probs + row * SEGMENT + s + c * P);
            }
    for (int row = 0; row < ROWS; ++row)
        for (int w = 0; w < VECS; ++w)
            store(out + row * padded_width + w * LANES,
                  CHAINS == 1 ? sums[0][row][w] : sums[0][row][w] + sums[CHAINS - 1][row][w]);
}

template <typename Cell, int ROWS>
void weighted_sums(const Operand<Cell> *probs, const Cell *values, const Cell *ahead,
                   i64 padded_width, i64 begin, i64 end, float *out) {
    constexpr int VECS = SUMS / ROWS > 4 ? 4 : SUMS / ROWS;
    constexpr i64 P = PACKED<Cell>;
    i64 d = 0;
    for (; d + VECS * LANES <= padded_width; d += VECS * LANES)
        weighted_sum<Cell, ROWS, VECS>(probs, values + d * P, ahead + d * P, padded_width, begin,
                                       end, out + d);
    for (; d < padded_width; d += LANES)
        weighted_sum<Cell, ROWS, 1>(probs, values + d * P, ahead + d * P, padded_width, begin, end,
                                    out + d);
}

// Call body(row, std::integral_constant<int, R>) for rows in groups of R = ROWS, ROWS / 2, ... 1.
template <int ROWS, typename Body>
void for_row_groups(i64 row, i64 rows, const Body &body) {
    for (; row + ROWS <= rows; row += ROWS) body(row, std::integral_constant<int, ROWS>{});
    if constexpr (ROWS > 1) for_row_groups<ROWS / 2>(row, rows, body);
}

// Compute the softmax over positions [from, to) of [begin, end), without the division; 0 elsewhere.
// `probs` may overwrite `scores`.
template <typename T>
void softmax_row(const float *scores, i64 begin, i64 end, i64 from, i64 to, T *probs,
                 float &max_score, float &sum) {
    VecF32 maxima = splat(LOWEST), sums{};
    for (i64 k = begin; k < end; k += LANES)
        maxima = max(maxima, mask_range(load(scores + k), k, from, to, LOWEST));
    max_score = reduce_max(maxima);
    for (i64 k = begin; k < end; k += LANES) {
        store(probs + k, mask_range(exp<false>(load(scores + k) - max_score), k, from, to, 0));
        sums += load(probs + k);  // as rounded
    }
    sum = reduce_add(sums);
}

// Merge a segment into the running softmax (online softmax: Milakov & Gimelshein 2018, arXiv
// 1805.02867). noinline: inlined copies might round differently.
__attribute__((noinline)) void merge_segment(const float *out, float max_score, float sum,
                                             i64 width, float *total, float &total_max,
                                             float &total_sum) {
    const float new_max = max_score > total_max ? max_score : total_max;
    VecF32 scales = splat(max_score - new_max);
    scales[0] = total_max - new_max;
    scales = exp<false>(scales);
    const float old_scale = scales[0], new_scale = scales[1];
    for_each_vec(width, [=](i64 d, auto part) {
        store(total + d, load(total + d, part) * old_scale + load(out + d, part) * new_scale, part);
    });
    total_max = new_max;
    total_sum = total_sum * old_scale + sum * new_scale;
}

// One key head, some of its query heads, and the tokens of a block.
struct Task {
    const QueryBlock &block;
    i64 key, first_head, heads;  // first_head counts among all query heads

    i64 rows() const { return block.count * heads; }
};

Task task_of(const AttentionHeads &heads, const QueryBlock &block, i64 task) {
    const i64 key = task / heads.tasks_per_kv_head(), piece = task % heads.tasks_per_kv_head();
    const i64 from = piece * heads.heads_per_task();
    return {block, key, key * heads.group_size() + from,
            std::min(heads.heads_per_task(), heads.group_size() - from)};
}

// Write the task's queries, padded, in the type of the operand.
template <typename T>
void prepare_queries(const AttentionHeads &heads, const Task &task, AttentionScratch &scratch) {
    const i64 padded_width = heads.padded_width();
    auto *queries = reinterpret_cast<T *>(scratch.query);
    for (i64 row = 0; row < task.rows(); ++row) {
        const i64 token = task.block.token + row / task.heads;
        const i64 head = task.first_head + row % task.heads;
        float *to = std::is_same_v<T, float> ? scratch.query + row * padded_width : scratch.made;
        norm_and_rope_head(heads.qkv + token * heads.qkv_stride + head * heads.width,
                           heads.query_norm, heads.cosines(token), heads.sines(token), heads.scale,
                           heads.width, to);
        std::fill(to + heads.width, to + padded_width, 0.0f);
        if constexpr (!std::is_same_v<T, float>)
            for (i64 d = 0; d < padded_width; d += LANES)
                store(queries + row * padded_width + d, load(to + d));
    }
}

// Compute the attention of the task's queries to one segment: scratch.made, max and sum, by row.
// Prefetches `next`.
template <typename Cell>
void read_segment(const AttentionHeads &heads, const Task &task, const AttentionPlan &plan,
                  const Cell *keys, const Cell *values, const Cell *next, i64 start,
                  AttentionScratch &scratch) {
    const i64 padded_width = heads.padded_width(), rows = task.rows();
    const QueryBlock &block = task.block;
    const auto first_visible = [&](i64 position) {
        return plan.window == 0 ? 0 : std::max<i64>(position - plan.window + 1 - start, 0);
    };
    const auto end_visible = [&](i64 position) { return std::min(position + 1 - start, SEGMENT); };
    const i64 begin = first_visible(block.position) / BLOCK;
    const i64 end = (end_visible(plan.last_position(block, block.count - 1)) + BLOCK - 1) / BLOCK;
    const auto *queries = reinterpret_cast<const Operand<Cell> *>(scratch.query);
    auto *probs = reinterpret_cast<Operand<Cell> *>(scratch.scores);  // the rows stay SEGMENT apart
    for_row_groups<MAX_ROWS_AT_ONCE>(0, rows, [&](i64 row, auto group) {
        score_blocks<Cell, decltype(group)::value>(queries + row * padded_width, padded_width, keys,
                                                   row == 0 ? values : keys,
                                                   scratch.scores + row * SEGMENT, begin, end);
    });
    for (i64 row = 0; row < rows; ++row) {
        const i64 position = plan.last_position(block, row / task.heads);
        softmax_row(scratch.scores + row * SEGMENT, begin * BLOCK, end * BLOCK,
                    first_visible(position), end_visible(position), probs + row * SEGMENT,
                    scratch.max[row], scratch.sum[row]);
    }
    for_row_groups<MAX_ROWS_AT_ONCE>(0, rows, [&](i64 row, auto group) {
        weighted_sums<Cell, decltype(group)::value>(
            probs + row * SEGMENT, values, row == 0 ? next : values, padded_width, begin * BLOCK,
            end * BLOCK, scratch.made + row * padded_width);
    });
}

// Compute segments [from, to) of a task: into the output if these are all, else into its split parts.
template <typename Cell>
void run_task(const AttentionHeads &heads, KvCache &cache, i64 layer, const AttentionPlan &plan,
              const Task &task, i64 from, i64 to, i64 slot, AttentionScratch &scratch) {
    const QueryBlock &block = task.block;
    const i64 padded_width = heads.padded_width(), rows = task.rows(),
              first = plan.first_segment(block);
    const Cell *keys = cache.keys<Cell>(layer, block.row, task.key);
    const Cell *values = cache.values<Cell>(layer, block.row, task.key);
    const Cell *next_head =
        task.key + 1 < heads.kv_heads
            ? cache.keys<Cell>(layer, block.row, task.key + 1) + first * SEGMENT * padded_width
            : keys;
    prepare_queries<Operand<Cell>>(heads, task, scratch);
    const bool is_complete = to - from == plan.segments(block);
    for (i64 row = 0; row < rows; ++row) {
        scratch.total_max[row] = LOWEST;
        scratch.total_sum[row] = 0;
        std::fill_n(scratch.total + row * padded_width, padded_width, 0.0f);
    }
    for (i64 segment = from; segment < to; ++segment) {
        const i64 start = (first + segment) * SEGMENT;
        const Cell *next = segment + 1 < to ? keys + (start + SEGMENT) * padded_width : next_head;
        read_segment(heads, task, plan, keys + start * padded_width, values + start * padded_width,
                     next, start, scratch);
        float *part = is_complete ? nullptr : cache.split_part(slot, segment);
        for (i64 row = 0; row < rows; ++row) {
            const float *out = scratch.made + row * padded_width;
            if (is_complete) {
                merge_segment(out, scratch.max[row], scratch.sum[row], heads.width,
                              scratch.total + row * padded_width, scratch.total_max[row],
                              scratch.total_sum[row]);
                continue;
            }
            float *row_part = part + row * (padded_width + 2);
            std::memcpy(row_part, out, size_t(padded_width) * sizeof(float));
            row_part[padded_width] = scratch.max[row];
            row_part[padded_width + 1] = scratch.sum[row];
        }
    }
    if (!is_complete) return;
    for (i64 row = 0; row < rows; ++row) {
        const i64 head = task.first_head + row % task.heads;
        float *out =
            heads.out + (block.out + row / task.heads) * heads.out_stride + head * heads.width;
        const float *total = scratch.total + row * padded_width,
                    scale = 1.0f / scratch.total_sum[row];
        for_each_vec(heads.width, [=](i64 d, auto part) {
            store(out + d, load(total + d, part) * scale, part);
        });
    }
}

template <typename Cell>
void store_kv_head(const AttentionHeads &heads, KvCache &cache, i64 layer, i64 row, i64 position,
                   i64 token, i64 key, AttentionScratch &scratch) {
    const i64 padded_width = heads.padded_width();
    const float *from =
        heads.qkv + token * heads.qkv_stride + (heads.query_heads + key) * heads.width;
    const float *value = from + heads.kv_heads * heads.width;
    float *padded = scratch.made;
    std::fill(padded + heads.width, padded + padded_width, 0.0f);
    norm_and_rope_head(from, heads.key_norm, heads.cosines(token), heads.sines(token), 1,
                       heads.width, padded);
    store_key(cache.keys<Cell>(layer, row, key), padded_width, position, padded);
    std::memcpy(padded, value, size_t(heads.width) * sizeof(float));
    store_value(cache.values<Cell>(layer, row, key), padded_width, position, padded);
}

template <typename Cell>
void run_range(const AttentionHeads &heads, KvCache &cache, i64 layer, const AttentionPlan &plan,
               int thread, bool store_new_kv, AttentionScratch &scratch) {
    const WorkPosition end = plan.starts[size_t(thread) + 1];
    WorkPosition at = plan.starts[size_t(thread)];
    i64 slot = plan.slots[size_t(thread)];
    while (std::tie(at.block, at.task, at.segment) < std::tie(end.block, end.task, end.segment)) {
        const QueryBlock &block = plan.blocks[at.block];
        const bool is_last = at.block == end.block && at.task == end.task;
        const i64 to = is_last ? end.segment : plan.segments(block);
        if (is_last && slot < 0) slot = plan.slots[size_t(thread) + 1];
        const Task task = task_of(heads, block, at.task);
        if (store_new_kv && to == plan.segments(block))
            store_kv_head<Cell>(heads, cache, layer, block.row, block.position, block.token,
                                task.key, scratch);
        run_task<Cell>(heads, cache, layer, plan, task, at.segment, to, slot, scratch);
        slot = -1;
        at = {at.block, at.task + 1, 0};
        if (at.task == heads.tasks()) at = {at.block + 1, 0, 0};
        if (is_last) break;
    }
}

}  // namespace

AttentionScratch::AttentionScratch(i64 padded_width)
    : buffer_(size_t(MAX_QUERIES * (3 * padded_width + SEGMENT)) * sizeof(float)) {
    query = reinterpret_cast<float *>(buffer_.start());
    scores = query + MAX_QUERIES * padded_width;
    made = scores + MAX_QUERIES * SEGMENT;
    total = made + MAX_QUERIES * padded_width;
}

void store_kv(const AttentionHeads &heads, KvCache &cache, i64 layer, const i64 *rows,
              const i64 *positions, i64 begin, i64 end, AttentionScratch &scratch) {
    dispatch_dtype(cache.shape.kv_bf16, [&](auto cell) {
        using Cell = decltype(cell);
        // Positions that share a pair of bfloat16 values are stored by one thread.
        const auto is_mid_pair = [&](i64 token) {
            return token > 0 && token < heads.tokens && rows[token] == rows[token - 1] &&
                   positions[token] % PACKED<Cell> != 0;
        };
        begin += is_mid_pair(begin);
        end += is_mid_pair(end);
        // Head by head, for locality.
        for (i64 key = 0; key < heads.kv_heads; ++key)
            for (i64 token = begin; token < end; ++token)
                store_kv_head<Cell>(heads, cache, layer, rows[token], positions[token], token, key,
                                    scratch);
    });
}

void attend(const AttentionHeads &heads, KvCache &cache, i64 layer, const AttentionPlan &plan,
            int thread, bool store_new_kv, AttentionScratch &scratch) {
    dispatch_dtype(cache.shape.kv_bf16, [&](auto cell) {
        run_range<decltype(cell)>(heads, cache, layer, plan, thread, store_new_kv, scratch);
    });
}

bool merge_splits(const AttentionHeads &heads, const KvCache &cache, const AttentionPlan &plan,
                  i64 out, float *row) {
    const i64 padded_width = heads.padded_width();
    bool merged = false;
    for (i64 c = 0; c < plan.split_count; ++c) {
        const SplitTask &split = plan.splits[size_t(c)];
        if (plan.blocks[split.block].out != out) continue;
        const Task task = task_of(heads, plan.blocks[split.block], split.task);
        for (i64 head = 0; head < task.heads; ++head) {
            float *total = row + (task.first_head + head) * heads.width;
            std::fill_n(total, heads.width, 0.0f);
            float max_score = LOWEST, sum = 0;
            for (i64 segment = 0; segment < split.segments; ++segment) {
                const float *part =
                    cache.split_part(split.slot, segment) + head * (padded_width + 2);
                merge_segment(part, part[padded_width], part[padded_width + 1], heads.width, total,
                              max_score, sum);
            }
            const float scale = 1.0f / sum;
            for_each_vec(heads.width, [=](i64 d, auto part) {
                store(total + d, load(total + d, part) * scale, part);
            });
        }
        merged = true;
    }
    return merged;
}

}  // namespace ownwords::engine
