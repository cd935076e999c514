// The tile configuration of AMX; empty without AMX.
#pragma once

#include "simd/vec.h"

namespace ownwords {

constexpr i64 TILE_ROWS = 16;

// The rows of each tile and their bytes: by default the largest.
struct AmxTileShapes {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};

    void set(int tile, i64 row_count, i64 row_bytes) {
        rows[tile] = uint8_t(row_count);
        bytes[tile] = uint16_t(row_bytes);
    }
};

// Configures the calling thread's tiles while it lives.
class AmxTileConfig {
  public:
#if defined(__AMX_BF16__)
    // Not _tile_loadconfig: GCC 12 assumes that most of the shapes are unread, and drops them.
    explicit AmxTileConfig(const AmxTileShapes &shapes = {}) {
        asm volatile("ldtilecfg %0" ::"m"(shapes));
    }
    ~AmxTileConfig() { _tile_release(); }
#else
    AmxTileConfig() {}
#endif
    AmxTileConfig(const AmxTileConfig &) = delete;
    AmxTileConfig &operator=(const AmxTileConfig &) = delete;
};

}  // namespace ownwords
