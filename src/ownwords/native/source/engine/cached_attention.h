// Attention over the cache: the tokens of a block, with the query heads that share a key head, over
// segments of 64 positions. Each segment has its own softmax, and segments are merged in order, so
// that the result is bit-identical however tokens are batched and work is split between threads.
#pragma once

#include <vector>

#include "engine/kv_cache.h"
#include "engine/layer_ops.h"

namespace ownwords::engine {

constexpr i64 MAX_HEADS = 16;    // query heads of a task, at most
constexpr i64 MAX_QUERIES = 32;  // queries of a task, at most: heads times tokens

// The heads of one layer, and where its activations are.
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

// Consecutive tokens of a row of the cache that attend together.
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
    std::vector<WorkPosition> starts;  // by thread, and the end
    // by thread: the slot of the split task it begins in, -1 if it begins a task
    std::vector<i64> slots;
    std::vector<SplitTask> splits;
    i64 split_count = 0;

    void reserve(int threads);
    void split_work(const QueryBlock *blocks, i64 count, i64 window, const AttentionHeads &heads,
                    int threads);
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

// This thread's part of the plan. With store_new_kv each task first stores its token's key and
// value: for tokens of distinct rows where a key head has one task.
void attend(const AttentionHeads &heads, KvCache &cache, i64 layer, const AttentionPlan &plan,
            int thread, bool store_new_kv, AttentionScratch &scratch);

// Merge the split parts of output row `out` into `row`. False if it has none.
bool merge_splits(const AttentionHeads &heads, const KvCache &cache, const AttentionPlan &plan,
                  i64 out, float *row);

}  // namespace ownwords::engine
