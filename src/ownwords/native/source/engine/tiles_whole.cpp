// Products with weights kept as bfloat16 or int8, on AMX.
//
// The activations for int8 are whole numbers of 15 bits: 128 times a high byte, plus a low one. The
// rows of low bytes come after those of high ones. One scale does for a whole row, so the sums stay
// whole numbers to its end.
#include "engine/blocks.h"
#if defined(OWNWORDS_TILES)
#include "engine/tiles.h"

namespace ownwords::engine {
namespace {

constexpr Long TILE = 16 * LINE;

struct Halves {
    static constexpr Long BYTES = 2;  // of a number
    static constexpr int ROWS = 1;    // of a tile, for one of the input
};

struct Bytes {
    static constexpr Long BYTES = 1;
    static constexpr int ROWS = 2;
};

// Sums += activations (tile A) times weights (tile B). The names of tiles are part of instructions.
#define OWNWORDS_PRODUCT(C, A, B)               \
    if constexpr (std::is_same_v<K, Halves>)    \
        _tile_dpbf16ps(C, A, B);                \
    else                                        \
        _tile_dpbsud(C, A, B)

template <int T>
inline void store_tile(void *to, Long step) {
    if constexpr (T == 0) _tile_stored(0, to, step);
    if constexpr (T == 1) _tile_stored(1, to, step);
    if constexpr (T == 2) _tile_stored(2, to, step);
    if constexpr (T == 3) _tile_stored(3, to, step);
}

inline void start_tiles(const float *one, const float *two, const float *three, const float *four) {
    _tile_loadd(0, one, 0);
    _tile_loadd(1, two, 0);
    _tile_loadd(2, three, 0);
    _tile_loadd(3, four, 0);
}

// The sums of a tile as they are: rows from n on, of a panel.
template <int T>
void put_floats(const Work &w, Long panel, Long n) {
    const Long first = panel * PANEL, there = std::min(PANEL, w.matrix.outputs - first);
    const Long rows = std::min(TALL, w.rows - n);
    float *to = w.out + n * w.stride + first;
    if (there == PANEL && (rows == TALL || w.rows <= TALL))
        return store_tile<T>(to, w.stride * Long(sizeof(float)));
    alignas(64) float sums[TALL][PANEL];
    store_tile<T>(sums[0], LINE);
    for (Long r = 0; r < rows; ++r) std::copy_n(sums[r], there, to + r * w.stride);
}

// A tile's rows are then high ones and low ones.
template <int T>
void put_both(const Work &w, Long panel) {
    alignas(64) int32_t sums[TALL][PANEL];
    store_tile<T>(sums[0], LINE);
    put_bytes(w, panel, 0, w.rows, sums[0], sums[w.rows]);
}

template <int High, int Low>
void put_pair(const Work &w, Long panel, Long n) {
    alignas(64) int32_t high[TALL][PANEL], low[TALL][PANEL];
    store_tile<High>(high[0], LINE);
    store_tile<Low>(low[0], LINE);
    put_bytes(w, panel, n, std::min(TALL, w.rows - n), high[0], low[0]);
}

const unsigned char *activations(const Work &w) {
    return reinterpret_cast<const unsigned char *>(w.input.codes);
}

inline void ask_behind_tile(const unsigned char *tile) {
    for (Long at = 0; at < TILE; at += LINE) __builtin_prefetch(tile + at + 2048);  // into the first cache
}

// So few rows that one tile holds them: what is waited for is memory, so four panels are read side
// by side.
template <class K>
void few_rows(const Work &w, Long first, Long last) {
    TileShapes shapes;
    for (int tile = 0; tile < 5; ++tile) shapes.set(tile, w.rows * K::ROWS, LINE);
    for (int tile = 5; tile < 8; ++tile) shapes.set(tile, 16, LINE);
    const Tiles tiles(shapes);
    const Long panel_bytes = Long(w.matrix.panel_bytes()), step = w.matrix.depth() * K::BYTES;
    const unsigned char *in = activations(w);
    const auto four = [&](Long p, Long apart) {
        // Where there are fewer the last one is read again.
        const Long places[4] = {p, std::min(p + apart, last - 1), std::min(p + 2 * apart, last - 1),
                                std::min(p + 3 * apart, last - 1)};
        const unsigned char *panels[4];
        for (int i = 0; i < 4; ++i) panels[i] = w.matrix.lines + places[i] * panel_bytes;
        const Start starts[4] = {{w, places[0]}, {w, places[1]}, {w, places[2]}, {w, places[3]}};
        start_tiles(starts[0].line(), starts[1].line(), starts[2].line(), starts[3].line());
        for (Long at = 0; at < step * 16; at += TILE) {
            _tile_loadd(4, in + at / 16, step);
            ask_behind_tile(panels[0] + at);
            _tile_loadd(5, panels[0] + at, LINE);
            OWNWORDS_PRODUCT(0, 4, 5);
            ask_behind_tile(panels[1] + at);
            _tile_loadd(6, panels[1] + at, LINE);
            OWNWORDS_PRODUCT(1, 4, 6);
            ask_behind_tile(panels[2] + at);
            _tile_loadd(7, panels[2] + at, LINE);
            OWNWORDS_PRODUCT(2, 4, 7);
            ask_behind_tile(panels[3] + at);
            _tile_loadd(5, panels[3] + at, LINE);
            OWNWORDS_PRODUCT(3, 4, 5);
        }
        if constexpr (K::ROWS == 2) {
            put_both<0>(w, places[0]);
            put_both<1>(w, places[1]);
            put_both<2>(w, places[2]);
            put_both<3>(w, places[3]);
        } else {
            put_floats<0>(w, places[0], 0);
            put_floats<1>(w, places[1], 0);
            put_floats<2>(w, places[2], 0);
            put_floats<3>(w, places[3], 0);
        }
    };
    const Long left = side_by_side<4>(first, last, four);
    if (left < last) four(left, 1);
}

// Two panels times two tiles of rows; where rows end within a tile, the input has room to read on.
template <class K>
void many_rows(const Work &w, Long first, Long last) {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.set(tile, TALL, LINE);
    const Tiles tiles(shapes);
    const Long panel_bytes = Long(w.matrix.panel_bytes()), step = w.matrix.depth() * K::BYTES;
    constexpr Long AT_ONCE = 2 * TALL / K::ROWS;
    // While two panels are multiplied the next two come nearer, some lines at each step.
    const Long blocks = (w.rows + AT_ONCE - 1) / AT_ONCE, lines = (2 * 16 + blocks - 1) / blocks;
    for (Long p = first; p < last; p += 2) {
        const Long q = std::min(p + 1, last - 1);
        const unsigned char *one = w.matrix.lines + p * panel_bytes;
        const unsigned char *two = w.matrix.lines + q * panel_bytes;
        const unsigned char *next = one + 2 * panel_bytes;
        const unsigned char *end = p + 4 <= last ? next + 2 * panel_bytes : next;
        const Start start_one(w, p), start_two(w, q);
        for (Long n = 0; n < w.rows; n += AT_ONCE) {
            // Of the last rows, perhaps, there is only one tile; it is then read twice.
            const Long m = n + TALL < w.rows ? n + TALL : n;
            const unsigned char *above = activations(w) + n * step;
            const unsigned char *below = activations(w) + (K::ROWS == 2 ? w.rows + n : m) * step;
            start_tiles(start_one.line(), start_two.line(), start_one.line(), start_two.line());
            for (Long at = 0; at < step * 16; at += TILE) {
                for (Long i = 0; i < lines && next < end; ++i, next += LINE)
                    __builtin_prefetch(next, 0, 2);
                _tile_loadd(4, above + at / 16, step);
                _tile_loadd(6, one + at, LINE);
                OWNWORDS_PRODUCT(0, 4, 6);
                _tile_loadd(7, two + at, LINE);
                OWNWORDS_PRODUCT(1, 4, 7);
                _tile_loadd(5, below + at / 16, step);
                OWNWORDS_PRODUCT(2, 5, 6);
                OWNWORDS_PRODUCT(3, 5, 7);
            }
            if constexpr (K::ROWS == 2) {
                put_pair<0, 2>(w, p, n);
                put_pair<1, 3>(w, q, n);
            } else {
                put_floats<0>(w, p, n);
                put_floats<1>(w, q, n);
                put_floats<2>(w, p, m);
                put_floats<3>(w, q, m);
            }
        }
    }
}

template <class K>
void multiply_tiles(const Work &w, Long first, Long last) {
    if (w.rows * K::ROWS <= TALL)
        few_rows<K>(w, first, last);
    else
        many_rows<K>(w, first, last);
}

}  // namespace

void tile_halves(const Work &work, Long first, Long last) {
    multiply_tiles<Halves>(work, first, last);
}

void tile_bytes(const Work &work, Long first, Long last) {
    multiply_tiles<Bytes>(work, first, last);
}

}  // namespace ownwords::engine
#undef OWNWORDS_PRODUCT
#endif
