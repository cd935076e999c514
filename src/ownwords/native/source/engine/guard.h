// The copy guard as it is asked; guard.cpp knows what an index is.
#pragma once

#include <cstdint>
#include <vector>

namespace ownwords::engine {

// The ids that must not follow this whole history, in order.
void forbidden(const void *index, const int32_t *history, int64_t length,
               std::vector<int32_t> &ids);

}  // namespace ownwords::engine
