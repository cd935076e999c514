// Muon (Jordan et al. 2024): Newton-Schulz iterations in bfloat16, X <- A X + (B S + C S S) X with
// S = X X'. A thread takes one matrix through all iterations.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "simd/scratch.h"
#include "train/parallel.h"
#include "simd/bf16_matmul.h"

namespace ownwords {

namespace {

constexpr float A = 3.4445f, B = -4.7750f, C = 2.0315f;
constexpr float EPS = 1e-7f;

// Nesterov momentum; returns the norm of the update.
float update_momentum(const MuonMatrix &m, float factor, float momentum) {
    VecF32 squares{};
    for (i64 at = 0; at < m.rows * m.columns; at += LANES) {
        const VecF32 gradient = load(m.update + at) * factor, old = load(m.momentum + at);
        const VecF32 mean = old + (gradient - old) * (1.0f - momentum);
        const VecF32 result = gradient + (mean - gradient) * momentum;
        store(m.momentum + at, mean);
        store(m.update + at, result);
        squares += result * result;
    }
    return std::sqrt(reduce_add(squares));
}

// [rows, columns] -> [columns, rows]
template <typename From, typename To, typename Map>
void transpose(const From *from, i64 rows, i64 columns, To *to, const Map &update_matrix) {
    for (i64 i = 0; i < rows; i += TILE_ROWS)
        for (i64 j = 0; j < columns; j += TILE_ROWS) {
            alignas(64) float block[TILE_ROWS * TILE_ROWS];
            for (i64 k = 0; k < TILE_ROWS; ++k)
                for (i64 c = 0; c < TILE_ROWS; c += LANES)
                    store(block + k * TILE_ROWS + c, load(from + (i + k) * columns + j + c));
            transpose16(reinterpret_cast<Bf16 *>(block));  // 16 x 16 numbers of 32 bits
            for (i64 k = 0; k < TILE_ROWS; ++k)
                for (i64 c = 0; c < TILE_ROWS; c += LANES)
                    store(to + (j + k) * rows + i + c,
                          update_matrix(load(block + k * TILE_ROWS + c)));
        }
}

// [rows, columns] as tiles of B.
void pack_b_panels(const Bf16 *from, i64 rows, i64 columns, Bf16 *to) {
    for (i64 panel = 0; panel < columns / PANEL; ++panel)
        for (i64 step = 0; step < rows / TILE_K; ++step, to += TILE_PAIR)
            pack_b(from + step * TILE_K * columns + panel * PANEL, columns, TILE_K, PANEL, to,
                   to + TILE_SIZE);
}

// The transpose of [rows, columns] as tiles of B.
void pack_b_t_panels(const Bf16 *from, i64 rows, i64 columns, Bf16 *to) {
    for (i64 row = 0; row < rows; row += PANEL)
        for (i64 step = 0; step < columns / TILE_K; ++step, to += TILE_PAIR)
            for (i64 half = 0; half < 2; ++half)
                pack_b_t(from + (row + half * TILE_ROWS) * columns + step * TILE_K, columns,
                         TILE_ROWS, TILE_K, to + half * TILE_SIZE);
}

// x [rows, columns] with rows <= columns; `other` is as large. Returns one of the two.
Bf16 *newton_schulz(Bf16 *x, Bf16 *other, i64 rows, i64 columns, i64 rounds) {
    ScratchBuffer<Bf16> packed(rows * columns), gram(rows * rows), factor(rows * rows);
    ScratchBuffer<Bf16> packed_gram(rows * rows);
    for (i64 round = 0; round < rounds; ++round) {
        pack_b_t_panels(x, rows, columns, packed);
        matmul(row_major(x, columns), packed, columns / TILE_K * TILE_PAIR, rows, rows / PANEL,
               columns / TILE_K, [&](i64 row, i64 panel, const float *line) {
                   Bf16 *to = gram + row * rows + panel * PANEL;
                   for (i64 c = 0; c < PANEL; c += LANES) store(to + c, load(line + c));
               });
        pack_b_panels(gram, rows, rows, packed_gram);
        matmul(row_major(gram, rows), packed_gram, rows / TILE_K * TILE_PAIR, rows, rows / PANEL,
               rows / TILE_K, [&](i64 row, i64 panel, const float *line) {
                   const i64 at = row * rows + panel * PANEL;
                   for (i64 c = 0; c < PANEL; c += LANES)
                       store(factor + at + c, B * load(gram + at + c) + C * load(line + c));
               });
        pack_b_panels(x, rows, columns, packed);
        matmul(row_major(factor, rows), packed, rows / TILE_K * TILE_PAIR, rows, columns / PANEL,
               rows / TILE_K, [&](i64 row, i64 panel, const float *line) {
                   const i64 at = row * columns + panel * PANEL;
                   for (i64 c = 0; c < PANEL; c += LANES)
                       store(other + at + c, A * load(x + at + c) + load(line + c));
               });
        std::swap(x, other);
    }
    return x;
}

void update_matrix(const MuonMatrix &m, float factor, float momentum, i64 rounds) {
    const float scale = 1.0f / (update_momentum(m, factor, momentum) + EPS);
    const i64 size = m.rows * m.columns;
    ScratchBuffer<Bf16> x(size), other(size);
    // Tall matrices are transposed.
    const bool is_tall = m.rows > m.columns;
    const auto scaled = [=](VecF32 x) { return x * scale; };
    if (is_tall)
        transpose(m.update, m.rows, m.columns, (Bf16 *)x, scaled);
    else
        for (i64 at = 0; at < size; at += LANES) store(x + at, scaled(load(m.update + at)));
    const i64 rows = std::min(m.rows, m.columns), columns = std::max(m.rows, m.columns);
    const Bf16 *result = newton_schulz(x, other, rows, columns, rounds);
    if (is_tall)
        transpose(result, rows, columns, m.update, [](VecF32 x) { return x; });
    else
        for (i64 at = 0; at < size; at += LANES) store(m.update + at, load(result + at));
}

}  // namespace
}  // namespace ownwords

int ownwords_muon(const MuonMatrix *matrices, int64_t count, float scale, float momentum,
                  int64_t newton_schulz_steps) {
    using namespace ownwords;
    return with_status([&] {
        std::atomic<i64> next{0};
        parallel_for(count, 1, [&](i64, i64, int) {
            const AmxTileConfig tiles;
            for (i64 i = next++; i < count; i = next++)
                update_matrix(matrices[i], scale, momentum, newton_schulz_steps);
        });
        return STATUS_OK;
    });
}
