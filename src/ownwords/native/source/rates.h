// How fast this library multiplies on this processor: an instruction set says what there is, not
// what is fast. Some processors with a dot product of bfloat16 multiply float32 faster.
#pragma once

#include "api.h"

namespace ownwords {

// By Rate, in GFLOP/s of one core. Measured at the first call, in a few milliseconds.
const double *rates();

// Whether bfloat16 is multiplied faster than float32: in vectors, or in vectors or tiles.
bool has_fast_bf16_vectors();
bool has_fast_bf16();

}  // namespace ownwords
