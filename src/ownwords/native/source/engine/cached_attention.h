// Attention over the cache: the tokens of a block, with the query heads that share a key head, over
// segments of 64 positions. Each segment has its own softmax, and segments are merged in order, so
// that the result is bit-identical however tokens are batched and work is split between threads.
//
// Keys and values are laid out so that nothing is summed across a vector. Keys: blocks of 16
// positions, laid out like a panel of weights: each line has one dimension (float) or two (bfloat16)
// of all positions. Values: position by position, in bfloat16 two positions interleaved. Heads are
// padded to 16 dimensions with zeros. All positions are kept, even beyond the window.
#pragma once

#include <utility>
#include <vector>

#include "engine/layer_ops.h"
#include "engine/os.h"
#include "simd/vec.h"

namespace ownwords::engine {

constexpr i64 BLOCK = 16;    // positions
constexpr i64 SEGMENT = 64;  // positions with a softmax of their own

inline i64 round_up(i64 count, i64 to) { return (count + to - 1) / to * to; }

// How many numbers are interleaved: dimensions of keys, positions of values.
template <typename Cell>
constexpr i64 PACKED = i64(sizeof(float) / sizeof(Cell));

struct KvCacheShape {
    i64 layers, rows, heads, length;
    i64 width;  // of a head, padded
    bool kv_bf16;
    i64 splits, heads_per_task;  // sizes of split_part
};

class KvCache {
  public:
    explicit KvCache(const KvCacheShape &shape);

    const KvCacheShape shape;
    std::vector<i64> lengths;  // by row

    template <typename Cell>
    Cell *keys(i64 layer, i64 row, i64 head) const {
        return cells<Cell>(layer, row, head, 0);
    }

    template <typename Cell>
    Cell *values(i64 layer, i64 row, i64 head) const {
        return cells<Cell>(layer, row, head, 1);
    }

    // A task's results that several threads share, by segment: the sum, and the maximum and
    // denominator of its softmax.
    float *split_part(i64 slot, i64 segment) const {
        return split_parts_ +
               (slot * segments() + segment) * shape.heads_per_task * (shape.width + 2);
    }

    // Whether this is the row's first mention since begin_call.
    void begin_call() { ++call_; }
    bool first_time(i64 row) { return std::exchange(last_call_[size_t(row)], call_) != call_; }

    // Replace row `to` by the first `length` positions of row `from`.
    void copy(i64 from, i64 to, i64 length);

  private:
    i64 positions() const { return round_up(shape.length, SEGMENT); }
    i64 segments() const { return positions() / SEGMENT; }

    template <typename Cell>
    Cell *cells(i64 layer, i64 row, i64 head, i64 kv) const {
        const i64 at = ((layer * shape.rows + row) * shape.heads + head) * 2 + kv;
        return reinterpret_cast<Cell *>(buffer_.start()) + at * positions() * shape.width;
    }

    std::vector<i64> last_call_;
    i64 call_ = 0;
    PageBuffer buffer_, split_buffer_;
    float *split_parts_ = nullptr;
};

// Stored numbers are finite, so that a weight of 0 cancels stale numbers.
inline VecF32 finite(VecF32 x) {
    constexpr float MOST = 3.38e38f;  // the largest bfloat16
    return max(min(x, splat(MOST)), splat(-MOST));
}

template <typename Cell>
inline void store_key(Cell *keys, i64 width, i64 position, const float *from) {
    constexpr i64 P = PACKED<Cell>;
    Cell *to = keys + position / BLOCK * BLOCK * width + position % BLOCK * P;
    for (i64 d = 0; d < width; d += LANES) {
        Cell numbers[LANES];
        store(numbers, finite(load(from + d)));
        for (i64 i = 0; i < LANES; i += P)
            std::memcpy(to + (d + i) * BLOCK, numbers + i, sizeof(float));
    }
}

inline void store_value(float *values, i64 width, i64 position, const float *from) {
    for (i64 d = 0; d < width; d += LANES)
        store(values + position * width + d, finite(load(from + d)));
}

inline void store_value(Bf16 *values, i64 width, i64 position, const float *from) {
    Bf16 *to = values + position / 2 * 2 * width;
    const int shift = position % 2 * 16;
    for (i64 d = 0; d < width; d += LANES) {
        VecU16 numbers;
        store(reinterpret_cast<Bf16 *>(&numbers), finite(load(from + d)));
        VecU32 both;
        std::memcpy(&both, to + d * 2, sizeof both);
        both =
            (both & (0xffff0000u >> shift)) | (__builtin_convertvector(numbers, VecU32) << shift);
        std::memcpy(to + d * 2, &both, sizeof both);
    }
}

constexpr i64 MAX_HEADS = 16;    // query heads of a task, at most
constexpr i64 MAX_QUERIES = 32;  // queries of a task, at most: heads times tokens

// The heads of one layer, and its activations.
struct AttentionHeads {
    i64 query_heads = 0, kv_heads = 0, width = 0, tokens = 0;
    float scale = 1;
    NormWeights query_norm, key_norm;
    const float *angles = nullptr;  // [tokens, 2, width / 2], or null without rotary positions
    float *qkv = nullptr;           // [tokens, query_heads + 2 * kv_heads, width]
    i64 qkv_stride = 0;
    float *out = nullptr;  // [rows, query_heads * width]
    i64 out_stride = 0;

    i64 padded_width() const { return round_up(width, BLOCK); }
    i64 group_size() const { return query_heads / kv_heads; }
    i64 heads_per_task() const { return group_size() < MAX_HEADS ? group_size() : MAX_HEADS; }
    i64 tasks_per_kv_head() const {
        return (group_size() + heads_per_task() - 1) / heads_per_task();
    }
    i64 tasks() const { return kv_heads * tasks_per_kv_head(); }  // of a block
    const float *cosines(i64 token) const {
        return angles == nullptr ? nullptr : angles + token * width;
    }
    const float *sines(i64 token) const {
        return angles == nullptr ? nullptr : angles + token * width + width / 2;
    }
};

// Consecutive tokens of a cache row that attend together.
struct QueryBlock {
    i64 row, token, out, count, position;
};

// A segment of a task of a block; segments count from the first that the block sees.
struct WorkPosition {
    i64 block, task, segment;
};

// A task that several threads share: its slot of KvCache::split_part.
struct SplitTask {
    i64 block, task, slot, segments;
};

// How threads share the attention of one window size.
struct AttentionPlan {
    const QueryBlock *blocks = nullptr;
    i64 count = 0, window = 0;         // 0: unlimited
    bool causal = true;                // else all tokens of a block see up to its position
    std::vector<WorkPosition> starts;  // by thread, and the end
    // by thread: the slot of the split task it begins in, -1 if it begins a task
    std::vector<i64> slots;
    std::vector<SplitTask> splits;
    i64 split_count = 0;

    void reserve(int threads);
    void split_work(const QueryBlock *blocks, i64 count, i64 window, const AttentionHeads &heads,
                    int threads);
    i64 last_position(const QueryBlock &block, i64 token) const {
        return block.position + (causal ? token : 0);
    }
    i64 first_segment(const QueryBlock &block) const;
    i64 segments(const QueryBlock &block) const;
};

// One thread's scratch memory.
class AttentionScratch {
  public:
    explicit AttentionScratch(i64 padded_width);
    float *query, *made, *total;  // [MAX_QUERIES, padded_width]
    float *scores;                // [MAX_QUERIES, SEGMENT]
    float max[MAX_QUERIES], sum[MAX_QUERIES], total_max[MAX_QUERIES], total_sum[MAX_QUERIES];

  private:
    PageBuffer buffer_;
};

// Apply norm and rotary positions to the keys of tokens [begin, end), and store keys and values.
// `rows` and `positions` are by token.
void store_kv(const AttentionHeads &heads, KvCache &cache, i64 layer, const i64 *rows,
              const i64 *positions, i64 begin, i64 end, AttentionScratch &scratch);

// Compute this thread's part of the plan. With store_new_kv each task first stores its token's key
// and value: for tokens of distinct rows, if a key head has one task.
void attend(const AttentionHeads &heads, KvCache &cache, i64 layer, const AttentionPlan &plan,
            int thread, bool store_new_kv, AttentionScratch &scratch);

// Merge the split parts of output row `out` into `row`. False if it has none.
bool merge_splits(const AttentionHeads &heads, const KvCache &cache, const AttentionPlan &plan,
                  i64 out, float *row);

}  // namespace ownwords::engine
