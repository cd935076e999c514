// C += A B for small float matrices: vectors along rows of B, broadcast numbers of A.
#pragma once

#include <cstring>

#include "simd/vec.h"

namespace ownwords {

constexpr int MATMUL_ROWS = LANES == 16 ? 8 : LANES == 8 ? 6 : 4;
constexpr int MATMUL_VECS = 2;
constexpr i64 MATMUL_COLS = i64(LANES) * MATMUL_VECS;  // columns come in multiples of this

inline i64 padded(i64 width) { return (width + MATMUL_COLS - 1) / MATMUL_COLS * MATMUL_COLS; }

// A(i, k) = a[i * row_stride + k * k_stride]
template <int ROWS>
inline void tile(const float *a, i64 row_stride, i64 k_stride, const float *b, i64 b_stride,
                 float *c, i64 c_stride, i64 depth) {
    VecF32 sum[ROWS][MATMUL_VECS];
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < MATMUL_VECS; ++j)
            std::memcpy(&sum[i][j], c + i * c_stride + j * LANES, sizeof(VecF32));
    for (i64 k = 0; k < depth; ++k) {
        VecF32 b_vecs[MATMUL_VECS];
        for (int j = 0; j < MATMUL_VECS; ++j)
            std::memcpy(&b_vecs[j], b + k * b_stride + j * LANES, sizeof(VecF32));
        for (int i = 0; i < ROWS; ++i) {
            const float a_value = a[i * row_stride + k * k_stride];
            for (int j = 0; j < MATMUL_VECS; ++j) sum[i][j] += a_value * b_vecs[j];
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < MATMUL_VECS; ++j)
            std::memcpy(c + i * c_stride + j * LANES, &sum[i][j], sizeof(VecF32));
}

inline void matmul_f32(const float *a, i64 row_stride, i64 k_stride, const float *b, i64 b_stride,
                       float *c, i64 c_stride, i64 rows, i64 depth, i64 width) {
    for (i64 j = 0; j < width; j += MATMUL_COLS) {
        i64 i = 0;
        for (; i + MATMUL_ROWS <= rows; i += MATMUL_ROWS)
            tile<MATMUL_ROWS>(a + i * row_stride, row_stride, k_stride, b + j, b_stride,
                              c + i * c_stride + j, c_stride, depth);
        for (; i < rows; ++i)
            tile<1>(a + i * row_stride, row_stride, k_stride, b + j, b_stride, c + i * c_stride + j,
                    c_stride, depth);
    }
}

}  // namespace ownwords
