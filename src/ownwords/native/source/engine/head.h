// The head of a large vocabulary in int8, kept so that most of its scores take half of its bytes.
//
// Who takes the likeliest token, or draws among those that are nearly as likely, wants few scores
// of many. So the codes stand in two planes, one behind the other: their high halves as a matrix of
// int4 whose steps are all 1, then their low halves in the same order, then the scales. Of a code
// 16 h + l the first plane alone gives a score to within the sum of (l - 7.5) x; only panels in
// which a wanted score may be are put together and multiplied as any matrix of int8.
//
// What that sum can be is a judgement, not a proof: 12 times its standard deviation if low halves
// have nothing to do with activations, which would be exceeded once in 1e31. They have nothing to do
// with them where a code is many steps, as rounding to 16 of them leaves what a coin would. Where a
// row's low halves are a large part of it, the bound is that of Cauchy and Schwarz, which is sure.
#pragma once

#include "engine/product.h"

namespace ownwords::engine {

struct Planes {
    Long outputs = 0, inputs = 0;
    unsigned char *lines = nullptr;

    // Whether a matrix is so large that memory is what it is waited for.
    static bool pay(const Matrix &matrix);

    size_t bytes() const;
    size_t room() const;  // that the others need to work in
    Matrix whole(unsigned char *at = nullptr) const { return {Kind::INT8, outputs, inputs, at}; }
    Matrix rough() const { return {Kind::INT4, outputs, inputs, lines}; }

    // As the functions of these names do it with a matrix of int8, to the last bit.
    bool pack(const Source *sources, Long count, Long first, Long last) const;
    void row(Long output, float *into, unsigned char *room) const;
    void multiply(const Input &input, Long rows, float *out, Long stride, Long first, Long last,
                  unsigned char *room) const;

    // Of one row, made ready for the rough matrix, what the scores of panels [first, last) can be at
    // most; the panel in which the highest seems to be.
    Long guess(const Input &ready, const float *row, Long first, Long last, float *most) const;

    unsigned char *low(Long panel) const;
    float *ends(Long panel) const;  // scales, then how far off rough scores can be for |x| = 1

  private:
    Matrix joined(Long first, Long last, unsigned char *room) const;
};

}  // namespace ownwords::engine
