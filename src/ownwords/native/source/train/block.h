// What the forward and the backward pass of a transformer block share; api.h describes the block.
// Weights, x and y are float or bfloat16; products are of bfloat16, summed in float. A tile of
// tokens passes through everything between two attentions while it is in the cache. No sum depends
// on the number of threads.
#pragma once

#include "train/flash_attention.h"
#include "train/norm_and_rope.h"
#include "train/norm.h"
#include "simd/scratch.h"
#include "train/parallel.h"
#include "simd/bf16_matmul.h"

namespace ownwords {

struct Block : BlockArgs {
    explicit Block(const BlockArgs &args) : BlockArgs(args) {}

    i64 rows() const { return batch * tokens; }
    i64 attn_width() const { return query_heads * head_dim; }
    i64 qkv_width() const { return (query_heads + 2 * kv_heads) * head_dim; }
    bool is_gated() const { return weights[ROLE_GATE] != nullptr; }
    i64 mlp_width() const { return is_gated() ? 2 * hidden : hidden; }
    bool has_rope() const { return cos != nullptr; }
    HeadShape head_shape() const {
        return {query_heads, kv_heads, head_dim, head_eps, head_offset};
    }
};

constexpr i64 TILE_TOKENS = 64;

inline i64 tiles_of(const Block &b) { return (b.rows() + TILE_TOKENS - 1) / TILE_TOKENS; }

// The attention of one sequence.
inline FlashShape flash_shape(const Block &b, i64 text) {
    const int32_t *first = b.first_token ? b.first_token + text * b.first_stride : nullptr;
    const i64 qkv = padded_stride(b.qkv_width()), out_stride = padded_stride(b.attn_width());
    return {b.tokens, b.query_heads, b.kv_heads, b.head_dim, qkv, out_stride, b.scale, first};
}

// body(matrix, first, last) for all matrices' units, of which each thread gets an equal share.
template <typename Matrices, typename Body>
void parallel_over(const Matrices &matrices, i64 grain, const Body &body) {
    i64 total = 0;
    for (const auto &matrix : matrices) total += matrix.units();
    parallel_for(total, grain, [&](i64 begin, i64 end, int) {
        i64 skipped = 0;
        for (const auto &matrix : matrices) {
            const i64 first = std::max<i64>(0, begin - skipped);
            const i64 last = std::min(matrix.units(), end - skipped);
            if (first < last) body(matrix, first, last);
            skipped += matrix.units();
        }
    });
}

// Assigns consecutive parts of a buffer; with null it only measures.
class MemoryLayout {
  public:
    explicit MemoryLayout(void *at) : base_(static_cast<char *>(at)) {}

    template <typename T>
    T *next(i64 count) {
        T *result = base_ == nullptr ? nullptr : reinterpret_cast<T *>(base_ + used_);
        used_ += (count * i64(sizeof(T)) + 63) / 64 * 64;
        return result;
    }
    i64 used() const { return used_; }

  private:
    char *base_;
    i64 used_ = 0;
};

// The weights as tiles of B.
struct PackedWeights {
    Bf16 *qkv, *output, *up, *down;

    PackedWeights(const Block &b, MemoryLayout &layout)
        : qkv(layout.next<Bf16>(b.width * b.qkv_width())),
          output(layout.next<Bf16>(b.width * b.attn_width())),
          up(layout.next<Bf16>(b.width * b.mlp_width())),
          down(layout.next<Bf16>(b.width * b.hidden)) {}
};

// Saved for the backward pass. Rows of bfloat16 are padded_stride apart. Rows beyond the last token
// are read, and their results ignored.
template <typename T>
struct SavedActivations {
    Bf16 *qkv, *qkv_rope, *attn_out;
    Bf16 *act;  // input of `down`
    Bf16
        // derivatives that its gradient is multiplied with: by gate, if there is one, then by up
        *act_grad;
    T *resid_mid;
    float *log_sums;
    NormStats *stats;  // of each row's first norm, then of each row's second
    i64 bytes;

    explicit SavedActivations(const Block &b, void *at) {
        MemoryLayout layout(at);
        const i64 rows = tiles_of(b) * TILE_TOKENS + PANEL;
        qkv = layout.next<Bf16>(rows * padded_stride(b.qkv_width()));
        qkv_rope = b.has_rope() ? layout.next<Bf16>(rows * padded_stride(b.qkv_width())) : qkv;
        attn_out = layout.next<Bf16>(rows * padded_stride(b.attn_width()));
        act = layout.next<Bf16>(rows * padded_stride(b.hidden));
        act_grad = layout.next<Bf16>(rows * padded_stride(b.mlp_width()));
        resid_mid = layout.next<T>(b.rows() * b.width);
        log_sums = layout.next<float>(b.rows() * b.query_heads);
        stats = layout.next<NormStats>(2 * b.rows());
        bytes = layout.used();
    }
};

// Dropout's factors, a function of seed and position alone.
struct Dropout {
    uint32_t low, high, limit;
    float scale;

    Dropout(const Block &b, uint32_t stream)
        : low(uint32_t(b.dropout_seed) + stream * 0x9e3779b9u),
          high(uint32_t(b.dropout_seed >> 32)),
          limit(uint32_t(double(b.dropout) * 16777216.0)),
          scale(1.0f / (1.0f - b.dropout)) {}

    explicit operator bool() const { return limit > 0; }

    static VecU32 mix(VecU32 x) {
        x = (x ^ (x >> 16)) * 0x7feb352du;
        x = (x ^ (x >> 15)) * 0x846ca68bu;
        return x ^ (x >> 16);
    }

    VecF32 at(i64 place) const {
        const VecU32 places = (VecU32)kIota + uint32_t(place);
        const VecU32 random = mix(mix(places ^ low) + high) >> 8;
        return (VecI32)random >= int32_t(limit) ? splat(scale) : VecF32{};
    }
};

}  // namespace ownwords
