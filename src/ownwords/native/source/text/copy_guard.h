// Which ids the copy guard forbids.
#pragma once

#include <vector>

#include "api.h"

namespace ownwords::text {

// The ids that must not follow this complete history, in ascending order.
void banned_ids(const NgramIndex &index, const int32_t *history, int64_t length,
                std::vector<int32_t> &ids);

}  // namespace ownwords::text
