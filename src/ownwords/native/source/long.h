// Counts and offsets: of 64 bits everywhere, as a long of Windows is not.
#pragma once

#include <cstdint>

using Long = int64_t;
