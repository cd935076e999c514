// Products of activations with packed matrices: out[n, o] = sum over k of in[n, k] * W[o, k].
// Results are bit-identical however many rows are multiplied at once and however panels are split
// between threads.
#pragma once

#include "engine/packed_matrix.h"
#include "engine/os.h"

namespace ownwords::engine {

// Activations in the type that a matrix is multiplied with. Allocated once for any type.
class MatmulInput {
  public:
    MatmulInput() = default;
    MatmulInput(i64 rows, i64 inputs);  // the largest numbers of both

    float *f32 = nullptr;  // [rows, depth], or:
    uint16_t *bf16 = nullptr;
    int8_t *codes = nullptr;         // [rows, depth], with for each 32:
    float *scales = nullptr;         // the scale,
    int32_t *corrections = nullptr;  // and the sum of products with the offset of unsigned weights

  private:
    PageBuffer buffer_;
};

// Prepare rows [begin, end) of the `rows` of `in`. Threads may share the rows, followed by a barrier.
void prepare_input(const Matrix &matrix, const float *in, i64 rows, i64 stride, MatmulInput &input,
                   i64 begin, i64 end);

// Multiply rows [0, rows) of a prepared input by panels [first, last). `bias` is null or has a number
// per output.
void matmul(const Matrix &matrix, const MatmulInput &input, i64 rows, const float *bias, float *out,
            i64 stride, i64 first, i64 last);

}  // namespace ownwords::engine
