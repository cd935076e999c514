#include "engine/kv_cache.h"

#include <initializer_list>
#include <limits>

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
    const size_t bytes = size_t(round_up(length, BLOCK) * shape.width) * (shape.kv_bf16 ? 2 : 4);
    const size_t cell_bytes = shape.kv_bf16 ? 2 : 4;
    const auto cells = [&](i64 layer, i64 row, i64 head, i64 kv) {
        const i64 at = ((layer * shape.rows + row) * shape.heads + head) * 2 + kv;
        return buffer_.start() + size_t(at * positions() * shape.width) * cell_bytes;
    };
    if (from != to)
        for (i64 layer = 0; layer < shape.layers; ++layer)
            for (i64 head = 0; head < shape.heads; ++head)
                for (i64 kv = 0; kv < 2; ++kv)
                    std::memcpy(cells(layer, to, head, kv), cells(layer, from, head, kv), bytes);
    lengths[size_t(to)] = length;
}

}  // namespace ownwords::engine
