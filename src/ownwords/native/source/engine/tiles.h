// Tiles of AMX: up to 16 rows of 64 bytes. A tile of weights is sixteen lines as they are stored.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "engine/kinds.h"

namespace ownwords::engine {

constexpr Long TALL = 16;  // rows of a tile

struct TileShapes {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    void set(int tile, Long tall, Long wide) {
        rows[tile] = uint8_t(tall);
        bytes[tile] = uint16_t(wide);
    }
};

// This thread's tiles, for as long as it lives; other libraries shape them in their own way.
class Tiles {
  public:
    // Not _tile_loadconfig, with which GCC 12 holds most of the shapes for unread and drops them.
    explicit Tiles(const TileShapes &shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
    Tiles(const Tiles &) = delete;
    Tiles &operator=(const Tiles &) = delete;
    ~Tiles() { _tile_release(); }
};

// What sums start from, as one line that is read for all rows of a tile: floats from the bias,
// whole numbers from zero.
class Start {
  public:
    Start(const Work &w, Long panel) {
        if (w.bias == nullptr || w.matrix.kind != Kind::BF16) return;
        const Long first = panel * PANEL;
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

}  // namespace ownwords::engine
