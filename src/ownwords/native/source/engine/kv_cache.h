// Keys and values of the tokens read, laid out so that nothing is summed across a vector. Keys:
// blocks of 16 positions, laid out like a panel of weights: lines of all positions, with one
// dimension (float) or two (bfloat16). Values: position after position, in bfloat16 two positions
// interleaved. Heads are padded to 16 dimensions with zeros. All positions are kept, whatever the
// window.
#pragma once

#include <utility>
#include <vector>

#include "engine/page_buffer.h"
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

    // Results of a task that several threads share, by segment: sum, and its softmax's maximum and
    // denominator.
    float *split_part(i64 slot, i64 segment) const {
        return split_parts_ +
               (slot * segments() + segment) * shape.heads_per_task * (shape.width + 2);
    }

    // Whether this is the row's first mention since begin_call.
    void begin_call() { ++call_; }
    bool first_time(i64 row) { return std::exchange(last_call_[size_t(row)], call_) != call_; }

    // Row `to` begins with the first `length` positions of row `from`.
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

// Stored numbers are finite, so that a weight of 0 cancels stale ones.
inline VecF32 finite(VecF32 x) {
    constexpr float MOST = 3.38e38f;  // the largest bfloat16
    return max(min(x, splat(MOST)), splat(-MOST));
}

inline void store_key(float *keys, i64 width, i64 position, const float *from) {
    float *to = keys + position / BLOCK * BLOCK * width + position % BLOCK;
    for (i64 d = 0; d < width; d += LANES) {
        float numbers[LANES];
        store(numbers, finite(load(from + d)));
        for (i64 i = 0; i < LANES; ++i) to[(d + i) * BLOCK] = numbers[i];
    }
}

inline void store_key(Bf16 *keys, i64 width, i64 position, const float *from) {
    Bf16 *to = keys + position / BLOCK * BLOCK * width + position % BLOCK * 2;
    for (i64 d = 0; d < width; d += LANES) {
        Bf16 numbers[LANES];
        store(numbers, finite(load(from + d)));
        for (i64 i = 0; i < LANES; i += 2)
            std::memcpy(to + (d + i) * BLOCK, numbers + i, 2 * sizeof(Bf16));
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

}  // namespace ownwords::engine
