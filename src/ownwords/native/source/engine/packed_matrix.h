// A weight matrix, packed for the products.
// A panel is 16 outputs, in lines of 64 bytes. A line holds the weights of all outputs for the next 1
// (float), 2 (bfloat16) or 4 (int8) inputs, output by output: one vector of a dot product. Outputs
// are padded to 16, inputs to 64. int8 codes are stored unsigned, plus 128, and a panel of them ends
// with a line of its outputs' scales.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/vec.h"

namespace ownwords::engine {

enum class WeightType : int { F32 = 0, BF16 = 1, INT8 = 2 };

constexpr i64 PANEL = 16;  // outputs
constexpr i64 GROUP = 32;  // activations that share a scale
constexpr i64 LINE = 64;   // bytes

struct Matrix {
    WeightType type = WeightType::F32;
    i64 outputs = 0, inputs = 0;
    unsigned char *lines = nullptr;  // aligned to 64 bytes, not owned
    // Multiply INT8 by bytes with a scale per 32, instead of 15 bits where these are the default: half
    // as many dot products.
    bool int8_input = false;

    i64 panels() const { return (outputs + PANEL - 1) / PANEL; }
    i64 depth() const { return (inputs + 63) / 64 * 64; }  // padded inputs
    size_t panel_bytes() const;
    size_t bytes() const { return size_t(panels()) * panel_bytes(); }
};

enum class SourceType : int { F32 = 0, BF16 = 1, F16 = 2, CODES = 3 };

// Convert numbers (not codes) from the one at `first` on.
void load_as_float(SourceType type, const void *data, i64 first, i64 count, float *into);

// Rows of a matrix as a file stores them: numbers, or the int8 codes that models/quantize.py writes,
// with a scale per row. Transposed numbers are stored [inputs, rows].
struct WeightSource {
    SourceType type = SourceType::F32;
    const void *data = nullptr;
    const float *scales = nullptr;
    i64 rows = 0, inputs = 0;
    bool transposed = false;
};

// Write panels [first, last) of a matrix to its `lines`. Its rows are those of the sources, one
// after another. Numbers are rounded as in models/quantize.py; codes, only for INT8, are copied. False, with the rest left out, if a number is not finite.
bool pack(const Matrix &matrix, const WeightSource *sources, i64 count, i64 first, i64 last);

// The weights of one output as floats: a token's embedding.
void read_row(const Matrix &matrix, i64 output, float *into);

}  // namespace ownwords::engine
