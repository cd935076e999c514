// How the work of attention is shared out: each thread gets as many segments as the others.
#include "engine/attention.h"

namespace ownwords::engine {

void Plan::reserve(int threads) {
    starts.resize(size_t(threads) + 1);
    slots.resize(size_t(threads) + 1);
    cuts.resize(size_t(threads));
}

// The segment of the first position that the block's first token sees.
Long Plan::first_segment(const Block &block) const {
    return window == 0 || block.position < window ? 0 : (block.position - window + 1) / SEGMENT;
}

Long Plan::segments(const Block &block) const {
    return (block.position + block.count - 1) / SEGMENT - first_segment(block) + 1;
}

void Plan::share_out(const Block *these, Long how_many, Long wide, const Heads &heads,
                     int threads) {
    blocks = these;
    count = how_many;
    window = wide;
    cut_count = 0;
    const Long tasks = heads.tasks();
    Long work = 0;
    for (Long b = 0; b < count; ++b) work += segments(blocks[b]) * blocks[b].count * tasks;
    Long before = 0, b = 0;
    starts[0] = {0, 0, 0};
    slots[0] = -1;
    for (int thread = 1; thread <= threads; ++thread) {
        const Long goal = work * thread / threads;
        const auto cost = [&] { return segments(blocks[b]) * blocks[b].count * tasks; };
        while (b < count && before + cost() <= goal) before += cost(), ++b;
        Place &start = starts[size_t(thread)];
        slots[size_t(thread)] = -1;
        if (b == count) {
            start = {count, 0, 0};
            continue;
        }
        const Long each = segments(blocks[b]) * blocks[b].count, left = goal - before;
        start = {b, left / each, left % each};
        if (blocks[b].count > 1) {  // tokens that attend together stay together
            start.task += 2 * start.segment >= each;
            start.segment = 0;
            if (start.task == tasks) start = {b + 1, 0, 0};
        }
        if (start.segment == 0) continue;
        const Cut *last = cut_count > 0 ? &cuts[size_t(cut_count) - 1] : nullptr;
        if (last == nullptr || last->block != start.block || last->task != start.task) {
            cuts[size_t(cut_count)] = {start.block, start.task, cut_count, each};
            ++cut_count;
        }
        slots[size_t(thread)] = cut_count - 1;
    }
}

}  // namespace ownwords::engine
