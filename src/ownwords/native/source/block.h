// A whole block of a transformer, as fused_block.py describes it: what comes in, its weights, and
// where what is kept for the way back lies.
//
//     middle = x + dropped(output(attention(turned(query, key, value of norm(x)))))
//     y = middle + dropped(down(activation of up (and gate) of norm(middle)))
//
// Weights, x and y are float or bfloat16; all that is multiplied is bfloat16, all that is added up
// float. A tile of tokens goes through everything between two attentions while it is in the cache.
// No sum depends on how many threads there are.
#pragma once

#include "focus.h"
#include "heads.h"
#include "norm.h"
#include "room.h"
#include "threads.h"
#include "tiles.h"

namespace ownwords {

// In the order of fused_block.py; those that a model lacks are null.
enum Weight {
    ATTENTION_NORM, ATTENTION_NORM_BIAS,
    QUERY, KEY, VALUE, QUERY_BIAS, KEY_BIAS, VALUE_BIAS, QUERY_NORM, KEY_NORM,
    OUTPUT, OUTPUT_BIAS,
    MLP_NORM, MLP_NORM_BIAS,
    GATE, UP, UP_BIAS, DOWN, DOWN_BIAS,
    WEIGHTS
};

struct Block {
    int64_t kind;                                         // of x and of the weights
    int64_t batch, tokens, width, queries, keys, head, hidden;
    int64_t centred;                                      // LayerNorm, not RMSNorm
    int64_t gelu;                                         // not silu
    int64_t period, first_step;                           // of the angles, of `first`
    uint64_t seed;                                        // of what dropout leaves out
    float dropout, norm_eps, norm_offset, head_eps, head_offset, scale;
    const void *weights[WEIGHTS];
    void *slopes[WEIGHTS];
    const void *cosine, *sine;                            // rows of `head` numbers, or null
    const int32_t *first;                                 // or null
    const void *x, *dy;
    void *y, *dx, *kept, *work;
    int64_t kept_bytes, forward_bytes, backward_bytes;    // what `kept` and `work` must have

    Long rows() const { return batch * tokens; }
    Long attended() const { return queries * head; }
    Long joined() const { return (queries + 2 * keys) * head; }  // queries, keys and values
    bool gated() const { return weights[GATE] != nullptr; }
    Long inner() const { return gated() ? 2 * hidden : hidden; }
    bool turns() const { return cosine != nullptr; }
    Heads heads() const { return {queries, keys, head, head_eps, head_offset}; }
};

constexpr Long TOKENS = 64;  // of a tile

inline Long tiles_of(const Block &b) { return (b.rows() + TOKENS - 1) / TOKENS; }

// Of all that lies in rows, what one text's attention needs to know.
inline Focus focus_of(const Block &b, Long text) {
    const int32_t *first = b.first ? b.first + text * b.first_step : nullptr;
    const Long joined = apart(b.joined()), attended = apart(b.attended());
    return {b.tokens, b.queries, b.keys, b.head, joined, attended, b.scale, first};
}

// Hands out the parts of one piece of memory, or only counts them where there is none.
class Layout {
  public:
    explicit Layout(void *at) : at_(static_cast<char *>(at)) {}

    template <typename T>
    T *next(Long count) {
        T *made = at_ == nullptr ? nullptr : reinterpret_cast<T *>(at_ + used_);
        used_ += (count * Long(sizeof(T)) + 63) / 64 * 64;
        return made;
    }
    Long used() const { return used_; }

  private:
    char *at_;
    Long used_ = 0;
};

// The weights as B's tiles.
struct Packed {
    Bf16 *joined, *output, *up, *down;

    Packed(const Block &b, Layout &layout)
        : joined(layout.next<Bf16>(b.width * b.joined())),
          output(layout.next<Bf16>(b.width * b.attended())),
          up(layout.next<Bf16>(b.width * b.inner())),
          down(layout.next<Bf16>(b.width * b.hidden)) {}
};

// Kept for the way back; rows of bfloat16 are `apart` of their width. Those beyond the last are
// read, and never used.
template <typename T>
struct Kept {
    Bf16 *raw, *turned, *seen;
    Bf16 *active;   // what `down` reads
    Bf16 *steep;    // what its slopes are multiplied by: those of gate, if there is one, then of up
    T *middle;
    float *log_sums;
    Spread *spreads;  // of each row the first norm's, then of each the other's
    Long bytes;

    explicit Kept(const Block &b, void *at) {
        Layout layout(at);
        const Long rows = tiles_of(b) * TOKENS + PANEL;
        raw = layout.next<Bf16>(rows * apart(b.joined()));
        turned = b.turns() ? layout.next<Bf16>(rows * apart(b.joined())) : raw;
        seen = layout.next<Bf16>(rows * apart(b.attended()));
        active = layout.next<Bf16>(rows * apart(b.hidden));
        steep = layout.next<Bf16>(rows * apart(b.inner()));
        middle = layout.next<T>(b.rows() * b.width);
        log_sums = layout.next<float>(b.rows() * b.queries);
        spreads = layout.next<Spread>(2 * b.rows());
        bytes = layout.used();
    }
};

// What dropout multiplies by, which follows from the seed and the place alone.
struct Dropout {
    uint32_t low, high, limit;
    float scale;

    Dropout(const Block &b, uint32_t which)
        : low(uint32_t(b.seed) + which * 0x9e3779b9u), high(uint32_t(b.seed >> 32)),
          limit(uint32_t(double(b.dropout) * 16777216.0)), scale(1.0f / (1.0f - b.dropout)) {}

    explicit operator bool() const { return limit > 0; }

    static Bits mixed(Bits x) {
        x = (x ^ (x >> 16)) * 0x7feb352du;
        x = (x ^ (x >> 15)) * 0x846ca68bu;
        return x ^ (x >> 16);
    }

    Vector at(Long place) const {
        const Bits places = (Bits)NUMBERS + uint32_t(place);
        const Bits drawn = mixed(mixed(places ^ low) + high) >> 8;
        return (Whole)drawn >= int32_t(limit) ? every(scale) : Vector{};
    }
};

}  // namespace ownwords
