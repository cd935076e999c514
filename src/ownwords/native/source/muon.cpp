// Muon's momenta, made orthogonal by Newton and Schulz's iteration in bfloat16: each round a matrix
// X becomes A X + (B S + C S S) X, where S is X X'. A thread takes one matrix through all rounds.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "room.h"
#include "threads.h"
#include "tiles.h"

namespace ownwords {

// As fused_muon.py's Structure has it. `update` is the gradient, and becomes what the weights
// change by.
struct Momentum {
    float *update, *momentum;
    int64_t rows, columns;
};

namespace {

constexpr float A = 3.4445f, B = -4.7750f, C = 2.0315f;
constexpr float EPS = 1e-7f;

// update := factor * update; momentum := its average; update := nearer to it. The update's norm.
float advance(const Momentum &m, float factor, float share) {
    Vector squares{};
    for (Long at = 0; at < m.rows * m.columns; at += LANES) {
        const Vector gradient = load(m.update + at) * factor, old = load(m.momentum + at);
        const Vector mean = old + (gradient - old) * (1.0f - share);
        const Vector made = gradient + (mean - gradient) * share;
        store(m.momentum + at, mean);
        store(m.update + at, made);
        squares += made * made;
    }
    return std::sqrt(summed(squares));
}

// Columns to rows: [rows, columns] -> [columns, rows].
template <typename From, typename To, typename Change>
void transpose(const From *from, Long rows, Long columns, To *to, const Change &change) {
    for (Long i = 0; i < rows; i += SIDE)
        for (Long j = 0; j < columns; j += SIDE) {
            alignas(64) float block[SIDE * SIDE];
            for (Long k = 0; k < SIDE; ++k)
                for (Long c = 0; c < SIDE; c += LANES)
                    store(block + k * SIDE + c, load(from + (i + k) * columns + j + c));
            turn(reinterpret_cast<Bf16 *>(block));  // which are 16 x 16 numbers of 32 bits
            for (Long k = 0; k < SIDE; ++k)
                for (Long c = 0; c < SIDE; c += LANES)
                    store(to + (j + k) * rows + i + c, change(load(block + k * SIDE + c)));
        }
}

// [rows, columns] as B's tiles; its columns are those of B.
void pack_along(const Bf16 *from, Long rows, Long columns, Bf16 *to) {
    for (Long panel = 0; panel < columns / PANEL; ++panel)
        for (Long step = 0; step < rows / DEPTH; ++step, to += LINES)
            along(from + step * DEPTH * columns + panel * PANEL, columns, DEPTH, PANEL, to,
                  to + TILE);
}

// The same; its rows are B's columns.
void pack_across(const Bf16 *from, Long rows, Long columns, Bf16 *to) {
    for (Long row = 0; row < rows; row += PANEL)
        for (Long step = 0; step < columns / DEPTH; ++step, to += LINES)
            for (Long half = 0; half < 2; ++half)
                across(from + (row + half * SIDE) * columns + step * DEPTH, columns, SIDE, DEPTH,
                       to + half * TILE);
}

// x [rows, columns], no more rows than columns; `other` has room for as much.
Bf16 *orthogonalized(Bf16 *x, Bf16 *other, Long rows, Long columns, Long rounds) {
    Room<Bf16> packed(rows * columns), square(rows * rows), factor(rows * rows);
    Room<Bf16> packed_square(rows * rows);
    for (Long round = 0; round < rounds; ++round) {
        pack_across(x, rows, columns, packed);
        product(as_it_lies(x, columns), packed, columns / DEPTH * LINES, rows, rows / PANEL,
                columns / DEPTH, [&](Long row, Long panel, const float *line) {
                    Bf16 *to = square + row * rows + panel * PANEL;
                    for (Long c = 0; c < PANEL; c += LANES) store(to + c, load(line + c));
                });
        pack_along(square, rows, rows, packed_square);
        product(as_it_lies(square, rows), packed_square, rows / DEPTH * LINES, rows, rows / PANEL,
                rows / DEPTH, [&](Long row, Long panel, const float *line) {
                    const Long at = row * rows + panel * PANEL;
                    for (Long c = 0; c < PANEL; c += LANES)
                        store(factor + at + c, B * load(square + at + c) + C * load(line + c));
                });
        pack_along(x, rows, columns, packed);
        product(as_it_lies(factor, rows), packed, rows / DEPTH * LINES, rows, columns / PANEL,
                rows / DEPTH, [&](Long row, Long panel, const float *line) {
                    const Long at = row * columns + panel * PANEL;
                    for (Long c = 0; c < PANEL; c += LANES)
                        store(other + at + c, A * load(x + at + c) + load(line + c));
                });
        std::swap(x, other);
    }
    return x;
}

void change(const Momentum &m, float factor, float share, Long rounds) {
    const float scale = 1.0f / (advance(m, factor, share) + EPS);
    const Long size = m.rows * m.columns;
    Room<Bf16> one(size), other(size);
    // Standing matrices are laid down.
    const bool stands = m.rows > m.columns;
    const auto scaled = [=](Vector x) { return x * scale; };
    if (stands)
        transpose(m.update, m.rows, m.columns, (Bf16 *)one, scaled);
    else
        for (Long at = 0; at < size; at += LANES) store(one + at, scaled(load(m.update + at)));
    const Long rows = std::min(m.rows, m.columns), columns = std::max(m.rows, m.columns);
    const Bf16 *made = orthogonalized(one, other, rows, columns, rounds);
    if (stands)
        transpose(made, rows, columns, m.update, [](Vector x) { return x; });
    else
        for (Long at = 0; at < size; at += LANES) store(m.update + at, load(made + at));
}

}  // namespace
}  // namespace ownwords

// Sides are multiples of 32. Which thread takes which matrix changes nothing.
OWNWORDS_API void ownwords_muon(const ownwords::Momentum *all, Long count, float factor,
                                float momentum, Long rounds) {
    using namespace ownwords;
    std::atomic<Long> next{0};
    parallel(count, 1, [&](Long, Long, int) {
        const Units units;
        for (Long i = next++; i < count; i = next++) change(all[i], factor, momentum, rounds);
    });
}
