// Small problems for every kind of kernel. All libraries compute the same figures, up to rounding; a
// library that does not is not used.
#include <vector>

#include "api.h"
#include "engine/matmul.h"
#include "simd/int16_rows.h"
#include "simd/status.h"
#include "train/flash_attention.h"

namespace ownwords {
namespace {

// From -1 to 1, the same on every machine.
std::vector<float> some_numbers(i64 count) {
    std::vector<float> numbers(static_cast<size_t>(count));
    uint32_t state = 1;
    for (float &number : numbers) {
        state = state * 1664525u + 1013904223u;
        number = float(int32_t(state)) * 0x1p-31f;
    }
    return numbers;
}

// Products with each type of weights, of a single row and of many.
float *check_products(float *to) {
    using namespace engine;
    constexpr i64 OUTPUTS = 40, INPUTS = 96, MANY = 20;
    const std::vector<float> weights = some_numbers(OUTPUTS * INPUTS);
    const std::vector<float> x = some_numbers(MANY * INPUTS);
    MatmulInput input(MANY, INPUTS);
    for (const WeightType type : {WeightType::F32, WeightType::BF16, WeightType::INT8}) {
        Matrix matrix{type, OUTPUTS, INPUTS};
        const PageBuffer lines(matrix.bytes());
        matrix.lines = lines.start();
        const WeightSource source{SourceType::F32, weights.data(), nullptr, OUTPUTS, INPUTS};
        pack(matrix, &source, 1, 0, matrix.panels());
        for (const i64 rows : {i64(1), MANY}) {
            prepare_input(matrix, x.data(), rows, INPUTS, input, 0, rows);
            matmul(matrix, input, rows, nullptr, to, OUTPUTS, 0, matrix.panels());
            to += rows * OUTPUTS;
        }
    }
    return to;
}

// A product of rows and columns that are rounded to int16.
float *check_int16(float *to) {
    constexpr i64 COLUMNS = 64, INNER = 96, STEPS = INNER / TILE_K;
    static_assert(3 * 21 * 40 + PANEL * COLUMNS == CHECK_PRODUCTS);
    const std::vector<float> weights = some_numbers(INNER * COLUMNS), x = some_numbers(PANEL * INNER);
    std::vector<int16_t> rows(x.size()), tiles(weights.size());
    float row_scales[PANEL], scales[COLUMNS];
    for (i64 row = 0; row < PANEL; ++row)
        row_scales[row] = round_row(x.data() + row * INNER, INNER, rows.data() + row * INNER);
    round_columns(INNER, COLUMNS, tiles.data(), scales, [&](const auto &body) {
        for (i64 row = 0; row < INNER; ++row) body(row, weights.data() + row * COLUMNS);
    });
    matmul(row_major<int16_t>(rows.data(), INNER), tiles.data(), STEPS * TILE_PAIR, PANEL,
           COLUMNS / PANEL, STEPS, [&](i64 row, i64 panel, const int32_t *line) {
               for (i64 c = 0, at = panel * PANEL; c < PANEL; ++c)
                   to[row * COLUMNS + at + c] = float(line[c]) * (row_scales[row] * scales[at + c]);
           });
    return to + PANEL * COLUMNS;
}

// Attention in tiles of P.
template <typename P>
float *check_attention(float *to) {
    constexpr i64 TOKENS = 64, HEADS = 2, WIDTH = 32, STRIDE = (HEADS + 2) * WIDTH;
    static_assert(CHECK_PRODUCTS + 2 * TOKENS * HEADS * WIDTH == CHECK_FIGURES);
    const std::vector<float> x = some_numbers(TOKENS * STRIDE);
    std::vector<P> tiles_x(x.size()), y(size_t(TOKENS * HEADS * WIDTH));
    for (size_t i = 0; i < x.size(); ++i) store(tiles_x[i], x[i]);
    std::vector<float> log_sums(size_t(HEADS * TOKENS));
    const FlashShape shape{TOKENS, HEADS, 1, WIDTH, STRIDE, HEADS * WIDTH, 1.0f, nullptr};
    const AmxTileConfig tiles;
    for (i64 head = 0; head < HEADS; ++head)
        flash_attention<P>(shape, head, tiles_x.data(), y.data(), log_sums.data());
    for (const P number : y) *to++ = to_float(number);
    return to;
}

}  // namespace
}  // namespace ownwords

int ownwords_check(float *figures) {
    return ownwords::with_status([&] {
        using namespace ownwords;
        check_attention<float>(check_attention<Bf16>(check_int16(check_products(figures))));
        return STATUS_OK;
    });
}
