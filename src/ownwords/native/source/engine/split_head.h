// The output head of a large vocabulary in int8, stored so that most logits read only half of its
// bytes.
// Greedy decoding, and sampling with min_p, need only the logits near the maximum. So the codes are
// split into two planes: their high halves as an int4 matrix with scales of 1, and their low halves
// in the same order; then the scales. Of a code 16 h + l the high plane alone gives a score to
// within the sum of (l - 7.5) x. Only panels that may hold a wanted logit are joined and multiplied
// as int8.
// That sum is bounded by judgement, not by proof: 12 times its standard deviation, if low halves
// are independent of activations, is exceeded once in 1e31. They are where a code spans many steps,
// since rounding leaves random low halves. Where a row's low halves are a large part of it, the
// Cauchy-Schwarz bound is used.
#pragma once

#include "engine/matmul.h"

namespace ownwords::engine {

struct SplitHead {
    i64 outputs = 0, inputs = 0;
    unsigned char *lines = nullptr;

    // Whether the matrix is so large that products wait for memory.
    static bool is_worthwhile(const Matrix &matrix);

    size_t bytes() const;
    size_t scratch_bytes() const;  // of the functions below
    Matrix full(unsigned char *at = nullptr) const {
        return {WeightType::INT8, outputs, inputs, at};
    }
    Matrix coarse() const { return {WeightType::INT4, outputs, inputs, lines}; }

    // As for an int8 matrix, bit-identical.
    bool pack(const WeightSource *sources, i64 count, i64 first, i64 last) const;
    void read_row(i64 output, float *into, unsigned char *scratch_bytes) const;
    void matmul(const MatmulInput &input, i64 rows, float *out, i64 stride, i64 first, i64 last,
                unsigned char *scratch_bytes) const;

    // Upper bounds of the logits of panels [first, last), for one row prepared for the coarse
    // matrix. Returns the panel of the highest coarse score.
    i64 estimate(const MatmulInput &ready, const float *row, i64 first, i64 last,
                 float *upper_bounds) const;

    unsigned char *low_plane(i64 panel) const;
    float *scales(i64 panel) const;  // and then the error bounds for |x| = 1

  private:
    Matrix joined(i64 first, i64 last, unsigned char *scratch_bytes) const;
};

}  // namespace ownwords::engine
