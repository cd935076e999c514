// Products of activations with packed matrices: out[n, o] = sum over k of in[n, k] * W[o, k].
//
// Every number comes out the same, to the last bit, however many rows are multiplied at once and
// however the panels are shared out among threads.
#pragma once

#include "engine/matrix.h"
#include "engine/memory.h"

namespace ownwords::engine {

// Activations as the product with a matrix of some kind wants them. Room is made once, for any.
class Input {
   public:
    Input() = default;
    Input(Long rows, Long inputs);  // the most there will be

    float *numbers = nullptr;  // [rows, depth], or as bfloat16:
    uint16_t *halves = nullptr;
    int8_t *codes = nullptr;    // [rows, depth], with, for each 32:
    float *scales = nullptr;    // what a code of 1 stands for,
    int32_t *shifts = nullptr;  // and what takes the weights' +128 or +8 out of a sum of products

   private:
    Memory memory_;
};

// Make rows [begin, end) of the `rows` of `in` ready for products with `matrix`; they may be shared
// out among threads, with a barrier after.
void ready(const Matrix &matrix, const float *in, Long rows, Long stride, Input &input, Long begin,
           Long end);

// Rows [0, rows) of a ready input times panels [first, last); `bias`: null or a number an output.
void multiply(const Matrix &matrix, const Input &input, Long rows, const float *bias, float *out,
              Long stride, Long first, Long last);

}  // namespace ownwords::engine
