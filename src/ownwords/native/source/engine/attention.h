// Attention over the cache: some tokens of a text, with the query heads that share a key head, over
// segments of 64 positions. Each segment is softened by itself and segments are folded in their
// order, so that the result is the same, to the last bit, whichever tokens are read together and
// however the work is shared out.
#pragma once

#include <vector>

#include "engine/cache.h"
#include "engine/parts.h"

namespace ownwords::engine {

constexpr Long FAN = 16;   // query heads of a task, at most
constexpr Long TALL = 32;  // queries of a task, at most: heads times tokens

// The heads of one layer, and where its numbers are.
struct Heads {
    Long queries = 0, keys = 0, width = 0, tokens = 0;
    float scale = 1;
    Norm query_norm, key_norm;
    const float *angles = nullptr;  // [tokens, 2, width / 2], null: not turned
    float *made = nullptr;          // [tokens, queries, keys, values]: what the product made
    Long made_stride = 0;
    float *out = nullptr;  // [rows, queries * width]
    Long out_stride = 0;

    Long deep() const { return rounded_up(width, BLOCK); }
    Long shared() const { return queries / keys; }
    Long fan() const { return shared() < FAN ? shared() : FAN; }
    Long pieces() const { return (shared() + fan() - 1) / fan(); }
    Long tasks() const { return keys * pieces(); }  // of a block
    const float *cosines(Long token) const {
        return angles == nullptr ? nullptr : angles + token * width;
    }
    const float *sines(Long token) const {
        return angles == nullptr ? nullptr : angles + token * width + width / 2;
    }
};

// Tokens that follow one another in a row of the cache and attend together.
struct Block {
    Long row, token, out, count, position;
};

// A place in the work: a block, a task of it, a segment of that (from the first it sees).
struct Place {
    Long block, task, segment;
};

// A task of one token that threads share: where its parts are, and how many.
struct Cut {
    Long block, task, slot, segments;
};

// Who attends to what, for one window; room is made once.
struct Plan {
    const Block *blocks = nullptr;
    Long count = 0, window = 0;  // 0: everything
    std::vector<Place> starts;   // by thread, and the end
    std::vector<Long> slots;     // by thread: of the task it begins amid, -1 if it does not
    std::vector<Cut> cuts;
    Long cut_count = 0;

    void reserve(int threads);
    void share_out(const Block *blocks, Long count, Long window, const Heads &heads, int threads);
    Long first_segment(const Block &block) const;
    Long segments(const Block &block) const;
};

// A thread's own room.
class AttentionRoom {
  public:
    explicit AttentionRoom(Long deep);
    float *query, *made, *total;  // [TALL, deep]
    float *scores;                // [TALL, SEGMENT]
    float top[TALL], sum[TALL], total_top[TALL], total_sum[TALL];

  private:
    Memory memory_;
};

// Norm, turn and store the keys of tokens [begin, end), and store their values; `rows` and
// `positions` are by token.
void remember(const Heads &heads, Cache &cache, Long layer, const Long *rows, const Long *positions,
              Long begin, Long end, AttentionRoom &room);

// This thread's part of the plan. With `storing` each task stores its token's key and value first,
// which suits tokens that all are of different rows where there is one task a key head.
void attend(const Heads &heads, Cache &cache, Long layer, const Plan &plan, int thread,
            bool storing, AttentionRoom &room);

// What the threads that share its tasks made of one row, into that row of the output, which may be
// a copy. False where there was nothing to do.
bool join(const Heads &heads, const Cache &cache, const Plan &plan, Long out, float *row);

}  // namespace ownwords::engine
