// AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101), Muon, and the norm of gradients.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "simd/tile_matmul.h"
#include "simd/scratch.h"
#include "simd/vec.h"
#include "train/parallel.h"

namespace ownwords {
namespace {

// Weights updated at a time; they stay in the first-level cache until their copy is written.
constexpr i64 BLOCK = 2048;

struct AdamWStep {
    float learning_rate, beta1, beta2, eps, weight_decay, correction1, correction2;
};

// noinline: inlined into the thread's closure, the loop is not vectorized.
template <typename Gradient>
__attribute__((noinline)) void update(const AdamWStep s, float *weight, const Gradient *gradient,
                                      float *mean, float *square, i64 count, float scale) {
    const float step_size = s.learning_rate / s.correction1,
                inverse_root = 1.0f / std::sqrt(s.correction2);
    const float decay_factor = 1.0f - s.learning_rate * s.weight_decay,
                one_minus_beta1 = 1.0f - s.beta1, one_minus_beta2 = 1.0f - s.beta2;
#pragma omp simd
    for (i64 i = 0; i < count; ++i) {
        const float g = to_float(gradient[i]) * scale;
        const float m = mean[i] + (g - mean[i]) * one_minus_beta1;
        const float v = square[i] * s.beta2 + g * g * one_minus_beta2;
        mean[i] = m;
        square[i] = v;
        weight[i] =
            weight[i] * decay_factor - step_size * m / (std::sqrt(v) * inverse_root + s.eps);
    }
}

__attribute__((noinline)) void round_to_bf16(const float *weight, Bf16 *bf16_copy, i64 count) {
#pragma omp simd
    for (i64 i = 0; i < count; ++i) store(bf16_copy[i], weight[i]);
}

template <typename Gradient>
void adamw(const AdamWStep s, float *weight, Bf16 *bf16_copy, const Gradient *gradient, float *mean,
           float *square, i64 count, float scale) {
    parallel_for(count, 32768, [=](i64 begin, i64 end, i64) {
        for (i64 at = begin; at < end; at += BLOCK) {
            const i64 size = std::min(BLOCK, end - at);
            update(s, weight + at, gradient + at, mean + at, square + at, size, scale);
            if (bf16_copy != nullptr) round_to_bf16(weight + at, bf16_copy + at, size);
        }
    });
}

template <typename T>
double square_sum(const T *x, i64 count) {
    double sum = 0;
    for (i64 at = 0; at < count; at += BLOCK) {
        VecF32 squares{};
        for_each_vec(std::min(BLOCK, count - at), [&](i64 i, auto lanes) {
            const VecF32 part = mask_tail(load(x + at + i, lanes), lanes, 0.0f);
            squares += part * part;
        });
        sum += reduce_add(squares);
    }
    return sum;
}

// Muon (Jordan et al. 2024): Newton-Schulz iterations X <- A X + (B S + C S S) X, where half of the
// symmetric S = X X' is computed. One thread does all iterations of a matrix.

constexpr float A = 3.4445f, B = -4.7750f, C = 2.0315f;
constexpr float EPS = 1e-7f;

// Nesterov momentum of the gradient times `factor`; returns the norm of the update.
template <typename Gradient>
float update_momentum(const MuonMatrix &m, const Gradient *gradient, float *update, float factor,
                      float momentum) {
    VecF32 squares{};
    for (i64 at = 0; at < m.rows * m.columns; at += LANES) {
        const VecF32 g = load(gradient + at) * factor, old = load(m.momentum + at);
        const VecF32 mean = old + (g - old) * (1.0f - momentum);
        const VecF32 result = g + (mean - g) * momentum;
        store(m.momentum + at, mean);
        store(update + at, result);
        squares += result * result;
    }
    return std::sqrt(reduce_add(squares));
}

// [rows, columns] -> [columns, rows], each with its stride
template <typename From, typename To, typename Map>
void transpose(const From *from, i64 stride, i64 rows, i64 columns, To *to, i64 to_stride,
               const Map &map) {
    for (i64 i = 0; i < rows; i += TILE_ROWS)
        for (i64 j = 0; j < columns; j += TILE_ROWS) {
            alignas(64) float block[TILE_ROWS * TILE_ROWS];
            for (i64 k = 0; k < TILE_ROWS; ++k)
                for (i64 c = 0; c < TILE_ROWS; c += LANES)
                    store(block + k * TILE_ROWS + c, load(from + (i + k) * stride + j + c));
            transpose16(block, TILE_ROWS, block, TILE_ROWS);
            for (i64 k = 0; k < TILE_ROWS; ++k)
                for (i64 c = 0; c < TILE_ROWS; c += LANES)
                    store(to + (j + k) * to_stride + i + c, map(load(block + k * TILE_ROWS + c)));
        }
}

constexpr auto SAME = [](VecF32 x) { return x; };

// C [rows, rows] = map(place in C, A B) for a symmetric product: its lower half is computed and
// mirrored.
template <typename P, typename Map>
void matmul_symmetric(const P *a, const P *packed, i64 rows, i64 depth, P *c, const Map &map) {
    const i64 steps = depth / TILE_K;
    for (i64 first = 0; first < rows; first += PANEL) {
        matmul(row_major(a + first * depth, depth), packed + first / PANEL * steps * TILE_PAIR, 0,
               rows - first, 1, steps, [&](i64 row, i64, const float *line) {
                   const i64 at = (first + row) * rows + first;
                   for (i64 k = 0; k < PANEL; k += LANES)
                       store(c + at + k, map(at + k, load(line + k)));
               });
        const i64 below = first + PANEL;
        transpose(c + below * rows + first, rows, rows - below, PANEL, c + first * rows + below,
                  rows, SAME);
    }
}

// [rows, columns] as tiles of B.
template <typename P>
void pack_b_panels(const P *from, i64 rows, i64 columns, P *to) {
    for (i64 panel = 0; panel < columns / PANEL; ++panel)
        for (i64 step = 0; step < rows / TILE_K; ++step, to += TILE_PAIR)
            pack_b(from + step * TILE_K * columns + panel * PANEL, columns, TILE_K, PANEL, to,
                   to + TILE_SIZE);
}

// The transpose of [rows, columns] as tiles of B.
template <typename P>
void pack_b_t_panels(const P *from, i64 rows, i64 columns, P *to) {
    for (i64 row = 0; row < rows; row += PANEL)
        for (i64 step = 0; step < columns / TILE_K; ++step, to += TILE_PAIR)
            for (i64 half = 0; half < 2; ++half)
                pack_b_t(from + (row + half * TILE_ROWS) * columns + step * TILE_K, columns,
                         TILE_ROWS, TILE_K, to + half * TILE_SIZE);
}

// x [rows, columns] with rows <= columns; `other` is as large. Returns one of the two.
template <typename P>
P *newton_schulz(P *x, P *other, i64 rows, i64 columns, i64 rounds) {
    ScratchBuffer<P> packed(rows * columns), gram(rows * rows), factor(rows * rows);
    ScratchBuffer<P> packed_gram(rows * rows);
    for (i64 round = 0; round < rounds; ++round) {
        pack_b_t_panels<P>(x, rows, columns, packed);
        matmul_symmetric<P>(x, packed, rows, columns, gram,
                         [](i64, VecF32 product) { return product; });
        pack_b_panels<P>(gram, rows, rows, packed_gram);
        matmul_symmetric<P>(gram, packed_gram, rows, rows, factor, [&](i64 at, VecF32 product) {
            return B * load(gram + at) + C * product;
        });
        pack_b_panels<P>(x, rows, columns, packed);
        matmul(row_major<P>(factor, rows), packed, rows / TILE_K * TILE_PAIR, rows, columns / PANEL,
               rows / TILE_K, [&](i64 row, i64 panel, const float *line) {
                   const i64 at = row * columns + panel * PANEL;
                   for (i64 c = 0; c < PANEL; c += LANES)
                       store(other + at + c, A * load(x + at + c) + load(line + c));
               });
        std::swap(x, other);
    }
    return x;
}

template <typename Gradient, typename P>
void update_matrix(const MuonMatrix &m, float factor, float momentum, float decay_factor,
                   i64 rounds) {
    const i64 size = m.rows * m.columns;
    ScratchBuffer<float> update(size);
    ScratchBuffer<P> x(size), other(size);
    const float norm = update_momentum(m, static_cast<const Gradient *>(m.gradient), update, factor,
                                       momentum);
    const float scale = 1.0f / (norm + EPS);
    // Tall matrices are transposed.
    const bool is_tall = m.rows > m.columns;
    const auto scaled = [=](VecF32 x) { return x * scale; };
    if (is_tall)
        transpose((const float *)update, m.columns, m.rows, m.columns, (P *)x, m.rows, scaled);
    else
        for (i64 at = 0; at < size; at += LANES) store(x + at, scaled(load(update + at)));
    const i64 rows = std::min(m.rows, m.columns), columns = std::max(m.rows, m.columns);
    const P *result = newton_schulz<P>(x, other, rows, columns, rounds);
    if (is_tall)
        transpose(result, columns, rows, columns, (float *)update, rows, SAME);
    else
        for (i64 at = 0; at < size; at += LANES) store(update + at, load(result + at));
    for (i64 at = 0; at < size; at += LANES) {
        const VecF32 weight =
            load(m.weight + at) * decay_factor - load(update + at) * m.learning_rate;
        store(m.weight + at, weight);
        if (m.bf16_copy != nullptr) store(static_cast<Bf16 *>(m.bf16_copy) + at, weight);
    }
}

}  // namespace
}  // namespace ownwords

int ownwords_adamw(int dtype, float *weight, void *bf16_copy, const void *gradient, float *mean,
                   float *square, int64_t count, float scale, float learning_rate, float beta1,
                   float beta2, float eps, float weight_decay, float correction1,
                   float correction2) {
    using namespace ownwords;
    return run_kernel(dtype, [&](auto type) {
        const AdamWStep step{learning_rate, beta1,       beta2,      eps,
                             weight_decay,  correction1, correction2};
        adamw(step, weight, static_cast<Bf16 *>(bf16_copy),
              static_cast<const decltype(type) *>(gradient), mean, square, count, scale);
    });
}

int ownwords_muon(int dtype, int product_dtype, const MuonMatrix *matrices, int64_t count,
                  float scale, float momentum, float decay_factor, int64_t newton_schulz_steps) {
    using namespace ownwords;
    return run_kernel(dtype, [&](auto type) {
        dispatch_dtype(product_dtype, [&](auto product) {
            parallel_tasks(count, [&](i64 i) {
                update_matrix<decltype(type), decltype(product)>(
                    matrices[i], scale, momentum, decay_factor, newton_schulz_steps);
            });
        });
    });
}

int ownwords_square_sum(int dtype, const TensorPart *parts, int64_t count, double *sum) {
    using namespace ownwords;
    return run_kernel(dtype, [&](auto type) {
        std::vector<double> sums(static_cast<size_t>(count));
        parallel_tasks(count, [&](i64 i) {
            sums[size_t(i)] =
                square_sum(static_cast<decltype(type) *>(parts[i].data), parts[i].size);
        });
        *sum = std::accumulate(sums.begin(), sums.end(), 0.0);
    });
}

int ownwords_set_threads(int64_t threads) {
    using namespace ownwords;
    if (threads < 1 || threads > 1024) return STATUS_BAD_COUNT;
    return with_status([&] {
        training_pool = std::make_unique<engine::ThreadPool>(int(threads));
        return STATUS_OK;
    });
}
