// A weight matrix as the products read it.
//
// Sixteen outputs are a panel; a panel is lines of 64 bytes, each holding the weights of all its
// outputs for the next 1 (float), 2 (bfloat16), 4 (int8) or 8 (int4) inputs, output after output.
// So a line is one vector of a dot product, and sixteen lines are a tile. Outputs are padded to 16
// and inputs to 64. Codes are stored from 0: int8 plus 128, int4 plus 8.
//
//   INT8: at a panel's end stands one more line, the scales of its outputs.
//   INT4: every 64 inputs are 9 lines: 4 of the first 32 inputs, 4 of the others, and one of each
//         output's two scales in bfloat16. Of 32 inputs, input i is in line i / 4 % 4, byte i % 4
//         of its output, in the low half for i < 16 and in the high half for the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "long.h"

namespace ownwords::engine {

enum class Kind : int { F32 = 0, BF16 = 1, INT8 = 2, INT4 = 3 };

constexpr Long PANEL = 16;  // outputs
constexpr Long GROUP = 32;  // inputs that share a scale
constexpr Long LINE = 64;   // bytes

struct Matrix {
    Kind kind = Kind::F32;
    Long outputs = 0, inputs = 0;
    unsigned char *lines = nullptr;  // aligned to 64 bytes, owned by whoever made the room

    Long panels() const { return (outputs + PANEL - 1) / PANEL; }
    Long depth() const { return (inputs + 63) / 64 * 64; }  // inputs, padded
    size_t panel_bytes() const;
    size_t bytes() const { return size_t(panels()) * panel_bytes(); }
};

enum class Stored : int { F32 = 0, BF16 = 1, F16 = 2, CODES8 = 3, CODES4 = 4 };

// Some rows of a matrix as a file holds them: numbers, or codes with their scales (int8 codes one
// float a row; int4 codes two in a byte, a bfloat16 every `group` inputs), as models/quantize.py
// writes them. `transposed` numbers are stored [inputs, rows].
struct Source {
    Stored type = Stored::F32;
    const void *data = nullptr;
    const void *scales = nullptr;
    Long rows = 0, inputs = 0;
    Long group = 0;
    bool transposed = false;
};

// Write panels [first, last) of a matrix whose `lines` have room; its rows are those of the
// sources, one source after another. Numbers are rounded as models/quantize.py rounds them, codes
// of the own kind are taken as they are. False, the rest left, where a number is not finite.
bool pack(const Matrix &matrix, const Source *sources, Long count, Long first, Long last);

// The same to where panel `first` is to begin.
bool pack_into(const Matrix &matrix, const Source *sources, Long count, Long first, Long last,
               unsigned char *to);

// The weights of one output as floats: the embedding of a token.
void row(const Matrix &matrix, Long output, float *into);

}  // namespace ownwords::engine
