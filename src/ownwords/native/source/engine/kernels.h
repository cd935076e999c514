// The matrix products by weight type, each in a file of its own.
#pragma once

#include "engine/matmul.h"

namespace ownwords::engine {

struct SplitHead;

struct MatmulArgs {
    const Matrix &matrix;
    const MatmulInput &input;
    i64 rows;
    const float *bias;
    float *out;
    i64 stride;
    const SplitHead *split_head = nullptr;  // the matrix has no lines then
};

// Store a panel's sums of some rows, plus bias. Not inlined into the kernels, where compilers would
// add the bias before rounding in one and after it in another.
void store_sums(const MatmulArgs &work, i64 panel, i64 row, i64 rows, const float *sums);

// Panels [first, last) times all rows.
void matmul_f32(const MatmulArgs &work, i64 first, i64 last);
void matmul_bf16(const MatmulArgs &work, i64 first, i64 last);
void matmul_int8(const MatmulArgs &work, i64 first, i64 last);
void matmul_int4(const MatmulArgs &work, i64 first, i64 last);

// The scales of an int8 panel.
const float *scales_of(const MatmulArgs &work, i64 panel);

#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
#define OWNWORDS_AMX 1
void amx_bf16(const MatmulArgs &work, i64 first, i64 last);
void amx_int8(const MatmulArgs &work, i64 first, i64 last);
void amx_int4(const MatmulArgs &work, i64 first, i64 last);
#endif

#if defined(__AVX512VNNI__)
// Products of int8 weights are of 15-bit activations, with AMX and without it, to the bit.
#define OWNWORDS_INT15 1
void matmul_int15(const MatmulArgs &work, i64 first, i64 last);

// See input_int15.cpp.
void prepare_int15(const Matrix &matrix, const float *in, i64 rows, i64 row, MatmulInput &input);
void store_int15_sums(const MatmulArgs &work, i64 panel, i64 row, i64 rows, const int32_t *high,
                      const int32_t *low);
#endif

}  // namespace ownwords::engine
