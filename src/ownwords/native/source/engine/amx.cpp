// Matrix products with bfloat16 and int8 weights on AMX. For int8 the activations are 15-bit
// integers, split by prepare_int15 into high and low bytes, and sums stay integers over a whole
// row.
#include "engine/kernels.h"
#if defined(OWNWORDS_AMX)
#include "simd/amx.h"

namespace ownwords::engine {
namespace {

constexpr i64 TILE_BYTES = 16 * LINE;

// The initial sums of a tile, one line that all its rows share: the bias for bfloat16, 0 for int8.
class SumStart {
  public:
    SumStart(const MatmulArgs &w, i64 panel) {
        if (w.bias == nullptr || w.matrix.type != WeightType::BF16) return;
        const i64 first = panel * PANEL;
        if (first + PANEL <= w.matrix.outputs) {
            from_ = w.bias + first;
        } else {
            std::copy(w.bias + first, w.bias + w.matrix.outputs, line_);
        }
    }

    const float *line() const { return from_ == nullptr ? line_ : from_; }

  private:
    alignas(64) float line_[PANEL] = {};
    const float *from_ = nullptr;
};

struct Bf16Tiles {
    static constexpr i64 BYTES = 2;  // bytes of an activation
    static constexpr int ROWS = 1;   // tile rows of an input row: high and low bytes are separate
};

struct Int8Tiles {
    static constexpr i64 BYTES = 1;
    static constexpr int ROWS = 2;
};

// C += A (activations) * B (weights). Tile numbers are part of the instructions.
#define OWNWORDS_TILE_DOT(C, A, B)              \
    if constexpr (std::is_same_v<K, Bf16Tiles>) \
        _tile_dpbf16ps(C, A, B);                \
    else                                        \
        _tile_dpbsud(C, A, B)

template <int T>
inline void store_tile(void *to, i64 step) {
    if constexpr (T == 0) _tile_stored(0, to, step);
    if constexpr (T == 1) _tile_stored(1, to, step);
    if constexpr (T == 2) _tile_stored(2, to, step);
    if constexpr (T == 3) _tile_stored(3, to, step);
}

inline void start_tiles(const float *a, const float *b, const float *c, const float *d) {
    _tile_loadd(0, a, 0);
    _tile_loadd(1, b, 0);
    _tile_loadd(2, c, 0);
    _tile_loadd(3, d, 0);
}

// Store tile T as output rows [n, n + 16) of a panel.
template <int T>
void store_f32_tile(const MatmulArgs &w, i64 panel, i64 n) {
    const i64 first = panel * PANEL, columns = std::min(PANEL, w.matrix.outputs - first);
    const i64 rows = std::min(TILE_ROWS, w.rows - n);
    float *to = w.out + n * w.stride + first;
    if (columns == PANEL && (rows == TILE_ROWS || w.rows <= TILE_ROWS))
        return store_tile<T>(to, w.stride * i64(sizeof(float)));
    alignas(64) float sums[TILE_ROWS][PANEL];
    store_tile<T>(sums[0], LINE);
    for (i64 r = 0; r < rows; ++r) std::copy_n(sums[r], columns, to + r * w.stride);
}

// Tile T holds high bytes in its first rows and low bytes in the others.
template <int T>
void store_int15_tile(const MatmulArgs &w, i64 panel) {
    alignas(64) int32_t sums[TILE_ROWS][PANEL];
    store_tile<T>(sums[0], LINE);
    store_int15_sums(w, panel, 0, w.rows, sums[0], sums[w.rows]);
}

template <int High, int Low>
void store_int15_tiles(const MatmulArgs &w, i64 panel, i64 n) {
    alignas(64) int32_t high[TILE_ROWS][PANEL], low[TILE_ROWS][PANEL];
    store_tile<High>(high[0], LINE);
    store_tile<Low>(low[0], LINE);
    store_int15_sums(w, panel, n, std::min(TILE_ROWS, w.rows - n), high[0], low[0]);
}

const unsigned char *activations(const MatmulArgs &w) {
    return reinterpret_cast<const unsigned char *>(w.input.codes);
}

inline void prefetch_tile_ahead(const unsigned char *tile) {
    for (i64 at = 0; at < TILE_BYTES; at += LINE) __builtin_prefetch(tile + at + 2048);
}

// For few rows, one tile of activations: limited by memory, so four panels are read side by side.
template <class K>
void matmul_few_rows(const MatmulArgs &w, i64 first, i64 last) {
    AmxTileShapes shapes;
    for (int tile = 0; tile < 5; ++tile) shapes.set(tile, w.rows * K::ROWS, LINE);
    for (int tile = 5; tile < 8; ++tile) shapes.set(tile, 16, LINE);
    const AmxTileConfig tiles(shapes);
    const i64 panel_bytes = i64(w.matrix.panel_bytes()), step = w.matrix.depth() * K::BYTES;
    const unsigned char *in = activations(w);
    const auto run_four = [&](i64 p, i64 stride) {
        // If fewer than four are left, repeat the last one.
        const i64 panel_ids[4] = {p, std::min(p + stride, last - 1),
                                  std::min(p + 2 * stride, last - 1),
                                  std::min(p + 3 * stride, last - 1)};
        const unsigned char *panels[4];
        for (int i = 0; i < 4; ++i) panels[i] = w.matrix.lines + panel_ids[i] * panel_bytes;
        const SumStart starts[4] = {
            {w, panel_ids[0]}, {w, panel_ids[1]}, {w, panel_ids[2]}, {w, panel_ids[3]}};
        start_tiles(starts[0].line(), starts[1].line(), starts[2].line(), starts[3].line());
        for (i64 at = 0; at < step * 16; at += TILE_BYTES) {
            _tile_loadd(4, in + at / 16, step);
            prefetch_tile_ahead(panels[0] + at);
            _tile_loadd(5, panels[0] + at, LINE);
            OWNWORDS_TILE_DOT(0, 4, 5);
            prefetch_tile_ahead(panels[1] + at);
            _tile_loadd(6, panels[1] + at, LINE);
            OWNWORDS_TILE_DOT(1, 4, 6);
            prefetch_tile_ahead(panels[2] + at);
            _tile_loadd(7, panels[2] + at, LINE);
            OWNWORDS_TILE_DOT(2, 4, 7);
            prefetch_tile_ahead(panels[3] + at);
            _tile_loadd(5, panels[3] + at, LINE);
            OWNWORDS_TILE_DOT(3, 4, 5);
        }
        if constexpr (K::ROWS == 2) {
            store_int15_tile<0>(w, panel_ids[0]);
            store_int15_tile<1>(w, panel_ids[1]);
            store_int15_tile<2>(w, panel_ids[2]);
            store_int15_tile<3>(w, panel_ids[3]);
        } else {
            store_f32_tile<0>(w, panel_ids[0], 0);
            store_f32_tile<1>(w, panel_ids[1], 0);
            store_f32_tile<2>(w, panel_ids[2], 0);
            store_f32_tile<3>(w, panel_ids[3], 0);
        }
    };
    const i64 left = for_panel_streams<4>(first, last, run_four);
    if (left < last) run_four(left, 1);
}

// Two panels times two tiles of rows. The last tile of rows may extend into the input's padding.
template <class K>
void matmul_many_rows(const MatmulArgs &w, i64 first, i64 last) {
    const AmxTileConfig tiles;
    const i64 panel_bytes = i64(w.matrix.panel_bytes()), step = w.matrix.depth() * K::BYTES;
    constexpr i64 ROWS_AT_ONCE = 2 * TILE_ROWS / K::ROWS;
    // Prefetch the next two panels, some lines at each step.
    const i64 blocks = (w.rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE,
              lines = (2 * 16 + blocks - 1) / blocks;
    for (i64 p = first; p < last; p += 2) {
        const i64 q = std::min(p + 1, last - 1);
        const unsigned char *panel_a = w.matrix.lines + p * panel_bytes;
        const unsigned char *panel_b = w.matrix.lines + q * panel_bytes;
        const unsigned char *next = panel_a + 2 * panel_bytes;
        const unsigned char *end = p + 4 <= last ? next + 2 * panel_bytes : next;
        const SumStart start_one(w, p), start_two(w, q);
        for (i64 n = 0; n < w.rows; n += ROWS_AT_ONCE) {
            // If only one tile of rows is left, it is computed twice.
            const i64 m = n + TILE_ROWS < w.rows ? n + TILE_ROWS : n;
            const unsigned char *upper = activations(w) + n * step;
            const unsigned char *lower = activations(w) + (K::ROWS == 2 ? w.rows + n : m) * step;
            start_tiles(start_one.line(), start_two.line(), start_one.line(), start_two.line());
            for (i64 at = 0; at < step * 16; at += TILE_BYTES) {
                for (i64 i = 0; i < lines && next < end; ++i, next += LINE)
                    __builtin_prefetch(next, 0, 2);
                _tile_loadd(4, upper + at / 16, step);
                _tile_loadd(6, panel_a + at, LINE);
                OWNWORDS_TILE_DOT(0, 4, 6);
                _tile_loadd(7, panel_b + at, LINE);
                OWNWORDS_TILE_DOT(1, 4, 7);
                _tile_loadd(5, lower + at / 16, step);
                OWNWORDS_TILE_DOT(2, 5, 6);
                OWNWORDS_TILE_DOT(3, 5, 7);
            }
            if constexpr (K::ROWS == 2) {
                store_int15_tiles<0, 2>(w, p, n);
                store_int15_tiles<1, 3>(w, q, n);
            } else {
                store_f32_tile<0>(w, p, n);
                store_f32_tile<1>(w, q, n);
                store_f32_tile<2>(w, p, m);
                store_f32_tile<3>(w, q, m);
            }
        }
    }
}

template <class K>
void matmul_tiles(const MatmulArgs &w, i64 first, i64 last) {
    if (w.rows * K::ROWS <= TILE_ROWS)
        matmul_few_rows<K>(w, first, last);
    else
        matmul_many_rows<K>(w, first, last);
}

}  // namespace

void amx_bf16(const MatmulArgs &work, i64 first, i64 last) {
    matmul_tiles<Bf16Tiles>(work, first, last);
}

void amx_int8(const MatmulArgs &work, i64 first, i64 last) {
    matmul_tiles<Int8Tiles>(work, first, last);
}

}  // namespace ownwords::engine
#undef OWNWORDS_TILE_DOT
#endif
