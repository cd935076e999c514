#include "engine/cache.h"

#include <initializer_list>
#include <limits>

namespace ownwords::engine {
namespace {

// The product, or more than there can be.
size_t room(std::initializer_list<Long> sizes) {
    size_t made = 1;
    for (const Long size : sizes) {
        if (size < 0) throw std::bad_alloc();
        if (size > 0 && made > std::numeric_limits<size_t>::max() / 4 / size_t(size))
            throw std::bad_alloc();
        made *= size_t(size);
    }
    return made;
}

}  // namespace

Cache::Cache(const CacheShape &made)
    : shape(made),
      held(size_t(made.rows), 0),
      named_(size_t(made.rows), 0),
      memory_(room({made.layers, made.rows, made.heads, 2, positions(), made.width,
                    made.narrow ? 2 : 4})),
      parts_memory_(room({made.cuts, segments(), made.fan, made.width + 2, 4})),
      parts_(reinterpret_cast<float *>(parts_memory_.start())) {}

void Cache::copy(Long from, Long to, Long length) {
    const size_t bytes = size_t(rounded_up(length, BLOCK) * shape.width) * (shape.narrow ? 2 : 4);
    const size_t cell = shape.narrow ? 2 : 4;
    const auto start = [&](Long layer, Long row, Long head, Long which) {
        const Long at = ((layer * shape.rows + row) * shape.heads + head) * 2 + which;
        return memory_.start() + size_t(at * positions() * shape.width) * cell;
    };
    if (from != to)
        for (Long layer = 0; layer < shape.layers; ++layer)
            for (Long head = 0; head < shape.heads; ++head)
                for (Long which = 0; which < 2; ++which)
                    std::memcpy(start(layer, to, head, which), start(layer, from, head, which),
                                bytes);
    held[size_t(to)] = length;
}

}  // namespace ownwords::engine
