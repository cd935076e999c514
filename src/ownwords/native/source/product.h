// C += A B for small matrices of float: rows of B are vectors, numbers of A are spread over them.
#pragma once

#include <cstring>

#include "vectors.h"

namespace ownwords {

constexpr int TALL = LANES == 16 ? 8 : LANES == 8 ? 6 : 4;
constexpr int BROAD = 2;                      // vectors beside one another
constexpr Long STRIP = Long(LANES) * BROAD;  // widths are multiples of this

inline Long padded(Long width) { return (width + STRIP - 1) / STRIP * STRIP; }

// A's number at (i, k) is a[i * down + k * along].
template <int ROWS>
inline void tile(const float *a, Long down, Long along, const float *b, Long b_width, float *c,
                 Long c_width, Long depth) {
    Vector sum[ROWS][BROAD];
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < BROAD; ++j)
            std::memcpy(&sum[i][j], c + i * c_width + j * LANES, sizeof(Vector));
    for (Long k = 0; k < depth; ++k) {
        Vector right[BROAD];
        for (int j = 0; j < BROAD; ++j)
            std::memcpy(&right[j], b + k * b_width + j * LANES, sizeof(Vector));
        for (int i = 0; i < ROWS; ++i) {
            const float left = a[i * down + k * along];
            for (int j = 0; j < BROAD; ++j) sum[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < BROAD; ++j)
            std::memcpy(c + i * c_width + j * LANES, &sum[i][j], sizeof(Vector));
}

inline void product(const float *a, Long down, Long along, const float *b, Long b_width, float *c,
                    Long c_width, Long rows, Long depth, Long width) {
    for (Long j = 0; j < width; j += STRIP) {
        Long i = 0;
        for (; i + TALL <= rows; i += TALL)
            tile<TALL>(a + i * down, down, along, b + j, b_width, c + i * c_width + j, c_width,
                       depth);
        for (; i < rows; ++i)
            tile<1>(a + i * down, down, along, b + j, b_width, c + i * c_width + j, c_width,
                    depth);
    }
}

}  // namespace ownwords
