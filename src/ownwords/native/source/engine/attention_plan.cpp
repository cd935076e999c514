// Splits the work of attention between threads, evenly by segments.
#include "engine/cached_attention.h"

namespace ownwords::engine {

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
    return (block.position + block.count - 1) / SEGMENT - first_segment(block) + 1;
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

}  // namespace ownwords::engine
