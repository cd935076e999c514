// Keys and values of the tokens read, laid out so that neither is ever summed across a vector.
//
// A head's keys stand in blocks of sixteen positions, laid out as a panel of weights is: lines of
// all sixteen, each with one dimension of them (float) or two (bfloat16). Its values stand position
// after position, those of bfloat16 two positions interleaved. Heads are padded to 16 dimensions
// with zeros. Windows are a matter of what is looked at: all positions are kept.
#pragma once

#include <utility>
#include <vector>

#include "engine/memory.h"
#include "vectors.h"

namespace ownwords::engine {

constexpr Long BLOCK = 16;    // positions
constexpr Long SEGMENT = 64;  // positions whose scores are made at once

inline Long rounded_up(Long count, Long to) { return (count + to - 1) / to * to; }

// How many numbers lie together in a layout: of a line's key dimensions, and of positions.
template <typename Cell>
constexpr Long PAIR = Long(sizeof(float) / sizeof(Cell));

struct CacheShape {
    Long layers, rows, heads, length;
    Long width;      // of a head, padded
    bool narrow;     // bfloat16, not float
    Long cuts, fan;  // of attention that several threads share: see attention.h
};

class Cache {
  public:
    explicit Cache(const CacheShape &shape);

    const CacheShape shape;
    std::vector<Long> held;  // by row

    template <typename Cell>
    Cell *keys(Long layer, Long row, Long head) const {
        return cells<Cell>(layer, row, head, 0);
    }

    template <typename Cell>
    Cell *values(Long layer, Long row, Long head) const {
        return cells<Cell>(layer, row, head, 1);
    }

    // Segments of tasks that several threads share: largest score, sum of shares, what they made.
    float *part(Long cut, Long segment) const {
        return parts_ + (cut * segments() + segment) * shape.fan * (shape.width + 2);
    }

    // Whether a row is named for the first time since a call began.
    void begin_call() { ++call_; }
    bool first_time(Long row) { return std::exchange(named_[size_t(row)], call_) != call_; }

    // Row `to` begins with the first `length` positions of row `from`.
    void copy(Long from, Long to, Long length);

  private:
    Long positions() const { return rounded_up(shape.length, SEGMENT); }
    Long segments() const { return positions() / SEGMENT; }

    template <typename Cell>
    Cell *cells(Long layer, Long row, Long head, Long which) const {
        const Long at = ((layer * shape.rows + row) * shape.heads + head) * 2 + which;
        return reinterpret_cast<Cell *>(memory_.start()) + at * positions() * shape.width;
    }

    std::vector<Long> named_;
    Long call_ = 0;
    Memory memory_, parts_memory_;
    float *parts_ = nullptr;
};

// What is stored stays finite, so that a share of zero makes zero of it even where it is stale.
inline Vector finite(Vector x) {
    constexpr float MOST = 3.38e38f;  // of bfloat16
    return larger(smaller(x, every(MOST)), every(-MOST));
}

// A head's key at a position, padded to `width`.
inline void store_key(float *keys, Long width, Long position, const float *from) {
    float *to = keys + position / BLOCK * BLOCK * width + position % BLOCK;
    for (Long d = 0; d < width; d += LANES) {
        float some[LANES];
        store(some, finite(load(from + d)));
        for (Long i = 0; i < LANES; ++i) to[(d + i) * BLOCK] = some[i];
    }
}

inline void store_key(Bf16 *keys, Long width, Long position, const float *from) {
    Bf16 *to = keys + position / BLOCK * BLOCK * width + position % BLOCK * 2;
    for (Long d = 0; d < width; d += LANES) {
        Bf16 some[LANES];
        store(some, finite(load(from + d)));
        for (Long i = 0; i < LANES; i += 2)
            std::memcpy(to + (d + i) * BLOCK, some + i, 2 * sizeof(Bf16));
    }
}

inline void store_value(float *values, Long width, Long position, const float *from) {
    for (Long d = 0; d < width; d += LANES)
        store(values + position * width + d, finite(load(from + d)));
}

inline void store_value(Bf16 *values, Long width, Long position, const float *from) {
    Bf16 *to = values + position / 2 * 2 * width;
    const int shift = position % 2 * 16;
    for (Long d = 0; d < width; d += LANES) {
        Halves some;
        store(reinterpret_cast<Bf16 *>(&some), finite(load(from + d)));
        Bits both;
        std::memcpy(&both, to + d * 2, sizeof both);
        both = (both & (0xffff0000u >> shift)) | (__builtin_convertvector(some, Bits) << shift);
        std::memcpy(to + d * 2, &both, sizeof both);
    }
}

}  // namespace ownwords::engine
