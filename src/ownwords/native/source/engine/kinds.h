// The products by the kind of their weights, each in a file of its own.
#pragma once

#include "engine/product.h"

namespace ownwords::engine {

struct Planes;

struct Work {
    const Matrix &matrix;
    const Input &input;
    Long rows;
    const float *bias;
    float *out;
    Long stride;
    const Planes *planes = nullptr;  // of a head in two: the matrix has no lines then
};

// A panel's sums of some rows, with the bias, into their place. Apart from what makes the sums, or
// compilers add the bias before they round here and after it there.
void put_out(const Work &work, Long panel, Long row, Long rows, const float *sums);

// Panels [first, last) times all rows.
void multiply_floats(const Work &work, Long first, Long last);
void multiply_halves(const Work &work, Long first, Long last);
void multiply_codes8(const Work &work, Long first, Long last);
void multiply_codes4(const Work &work, Long first, Long last);

// Of int8, the scales of a panel.
const float *scales_of(const Work &work, Long panel);

// On AMX, where a few rows cost what many do.
#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
#define OWNWORDS_TILES 1
void tile_halves(const Work &work, Long first, Long last);
void tile_bytes(const Work &work, Long first, Long last);
void tile_codes4(const Work &work, Long first, Long last);
void multiply_wide(const Work &work, Long first, Long last);  // of 1 to 3 rows, int8

// A row made ready for int8, and its sums of products put together; see input_wide.cpp.
void ready_wide(const Matrix &matrix, const float *in, Long rows, Long row, Input &input);
void put_bytes(const Work &work, Long panel, Long row, Long rows, const int32_t *high,
               const int32_t *low);
#endif

}  // namespace ownwords::engine
