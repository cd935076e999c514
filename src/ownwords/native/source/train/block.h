// Shared by the forward and the backward pass of a transformer block, which api.h describes.
// Weights, x and y have type T, operands of products type P, either float or bfloat16; sums are
// float. Products with weights may be of int16, exact in int32, while P is float. A tile of tokens passes through everything between two attentions while it is in the cache.
// No sum depends on the number of threads.
#pragma once

#include <array>

#include "simd/int16_rows.h"
#include "simd/scratch.h"
#include "train/flash_attention.h"
#include "train/layers.h"
#include "train/parallel.h"
#include "simd/tile_matmul.h"

namespace ownwords {

// One of a block's matrix products. An adapter is computed with it, as if it made both sides wider
// by its rank: [x, x down^T] [W, up]^T forward, [dy, dy up] [W, down^T]^T backward. Activations are
// stored in rows of that width; the columns after `inputs` or `outputs` are called `low`.
struct ProductShape {
    i64 inputs, outputs, rank;

    i64 wide_inputs() const { return inputs + rank; }
    i64 wide_outputs() const { return outputs + rank; }
    i64 in_stride() const { return padded_stride(wide_inputs()); }
    i64 out_stride() const { return padded_stride(wide_outputs()); }
};

struct Block : BlockArgs {
    explicit Block(const BlockArgs &args) : BlockArgs(args) {}

    i64 rows() const { return batch * tokens; }
    i64 attn_width() const { return query_heads * head_dim; }
    i64 qkv_width() const { return (query_heads + 2 * kv_heads) * head_dim; }
    bool is_gated() const { return weights[ROLE_GATE] != nullptr; }
    i64 mlp_width() const { return is_gated() ? 2 * hidden : hidden; }
    bool has_rope() const { return cos != nullptr; }
    bool uses_int16() const { return product_dtype == PRODUCTS_INT16; }
    // Where an adapter's part of the packed floats begins; rounded weights are packed separately.
    i64 low_at(i64 inner) const { return uses_int16() ? 0 : inner; }
    bool has_output_norms() const { return weights[ROLE_MLP_OUTPUT_NORM] != nullptr; }
    ProductShape product(int of) const {
        const i64 inputs[] = {width, attn_width(), width, hidden};
        const i64 outputs[] = {qkv_width(), width, mlp_width(), width};
        return {inputs[of], outputs[of], adapters[of].rank};
    }
    i64 in_stride(Product of) const { return product(of).in_stride(); }
    i64 out_stride(Product of) const { return product(of).out_stride(); }
    i64 gate_up_stride() const { return padded_stride(mlp_width()); }
    HeadShape head_shape() const {
        return {query_heads, kv_heads, head_dim, head_eps, head_offset};
    }

    // A matrix of outputs [first, first + rows) of a product; a missing gate has no rows.
    struct ProductMatrix {
        Product product;
        Role role;
        i64 first, rows;
    };
    std::array<ProductMatrix, 7> matrices() const {
        const i64 q_width = attn_width(), kv_width = kv_heads * head_dim,
                  gate_width = is_gated() ? hidden : 0;
        return {{{PRODUCT_QKV, ROLE_QUERY, 0, q_width},
                 {PRODUCT_QKV, ROLE_KEY, q_width, kv_width},
                 {PRODUCT_QKV, ROLE_VALUE, q_width + kv_width, kv_width},
                 {PRODUCT_OUTPUT, ROLE_OUTPUT, 0, width},
                 {PRODUCT_UP, ROLE_GATE, 0, gate_width},
                 {PRODUCT_UP, ROLE_UP, gate_width, hidden},
                 {PRODUCT_DOWN, ROLE_DOWN, 0, width}}};
    }
};

constexpr i64 TILE_TOKENS = 64;

inline i64 tiles_of(const Block &b) { return (b.rows() + TILE_TOKENS - 1) / TILE_TOKENS; }

// The attention of one sequence.
inline FlashShape flash_shape(const Block &b, i64 text) {
    const int32_t *first = b.first_token ? b.first_token + text * b.first_stride : nullptr;
    return {b.tokens,
            b.query_heads,
            b.kv_heads,
            b.head_dim,
            b.out_stride(PRODUCT_QKV),
            b.in_stride(PRODUCT_OUTPUT),
            b.scale,
            first};
}

// Call body(matrix, first, last) for all units of the matrices, `grain` at a time.
template <typename Matrices, typename Body>
void parallel_over(const Matrices &matrices, i64 grain, const Body &body) {
    i64 total = 0;
    for (const auto &matrix : matrices) total += matrix.units();
    parallel_tasks((total + grain - 1) / grain, [&](i64 task) {
        const i64 begin = task * grain, end = std::min(begin + grain, total);
        i64 skipped = 0;
        for (const auto &matrix : matrices) {
            const i64 first = std::max<i64>(0, begin - skipped);
            const i64 last = std::min(matrix.units(), end - skipped);
            if (first < last) body(matrix, first, last);
            skipped += matrix.units();
        }
    });
}

// The weights as tiles of B, for the forward or the backward pass.
template <typename P>
struct PackedWeights {
    P *wide[PRODUCT_COUNT];  // with the adapter's second factor in that direction
    P *low[PRODUCT_COUNT];   // its first factor
    // Instead of the weights in `wide`, if products are of int16, with the scale of each column.
    int16_t *rounded[PRODUCT_COUNT];
    float *scales[PRODUCT_COUNT];

    PackedWeights(const Block &b, bool is_forward, MemoryLayout &layout) {
        for (int of = 0; of < PRODUCT_COUNT; ++of) {
            const ProductShape shape = b.product(of);
            const i64 from = is_forward ? shape.inputs : shape.outputs;
            const i64 to = is_forward ? shape.outputs : shape.inputs;
            wide[of] = layout.next<P>((b.low_at(from) + shape.rank) * to);
            low[of] = layout.next<P>(from * shape.rank);
            rounded[of] = layout.next<int16_t>(b.uses_int16() ? from * to : 0);
            scales[of] = layout.next<float>(b.uses_int16() ? to : 0);
        }
    }
};

// Append to each of `count` rows of `width` numbers their product with an adapter's first factor.
template <typename P>
void append_low(P *rows, i64 stride, i64 width, i64 rank, const P *factor, i64 count) {
    matmul(row_major(rows, stride), factor, width / TILE_K * TILE_PAIR, count, rank / PANEL,
           width / TILE_K, [=](i64 row, i64 panel, const float *line) {
               P *to = rows + row * stride + width + panel * PANEL;
               for (i64 c = 0; c < PANEL; c += LANES) store(to + c, load(line + c));
           });
}

// Multiply `count` rows of `inner` numbers, followed by an adapter's, with packed weights.
template <typename P, typename Epilogue>
void multiply_weights(const Block &b, const PackedWeights<P> &packed, int of, const P *rows,
                      i64 stride, i64 inner, i64 count, i64 panels, const Epilogue &epilogue) {
    const i64 rank = b.product(of).rank, low_steps = rank / TILE_K, steps = inner / TILE_K;
    if (!b.uses_int16()) {
        matmul(row_major(rows, stride), packed.wide[of], (steps + low_steps) * TILE_PAIR, count,
               panels, steps + low_steps, epilogue);
        return;
    }
    if constexpr (std::is_same_v<P, float>) {
        const i64 rounded_stride = padded_stride(inner);
        ScratchBuffer<int16_t> rounded(TILE_TOKENS * rounded_stride);
        float scales[TILE_TOKENS];
        for (i64 row = 0; row < count; ++row)
            scales[row] = round_row(rows + row * stride, inner, rounded + row * rounded_stride);
        alignas(64) float adapted[PANEL * PANEL] = {}, sums[PANEL];
        const auto add_adapter = [&](i64 row, i64 panel, const int32_t *line) {
            if (rank > 0 && row % PANEL == 0) {
                const P *factor = packed.wide[of] + panel * low_steps * TILE_PAIR;
                matmul_tile<false>(row_major(rows + row * stride + inner, stride), true, factor,
                                   low_steps, adapted, factor);
            }
            for (i64 c = 0; c < PANEL; c += LANES) {
                const VecF32 scale = load(packed.scales[of] + panel * PANEL + c) * scales[row];
                store(sums + c, to_float(load(line + c)) * scale +
                                    load(adapted + row % PANEL * PANEL + c));
            }
            epilogue(row, panel, sums);
        };
        matmul(row_major<int16_t>(rounded, rounded_stride), packed.rounded[of], steps * TILE_PAIR,
               count, panels, steps, add_adapter);
    }
}

// The rows of an activation that tiles of tokens read; results beyond the last token are ignored.
inline i64 padded_rows(const Block &b) { return tiles_of(b) * TILE_TOKENS + PANEL; }

// The memory that the forward pass works in.
template <typename P>
struct ForwardScratch {
    MemoryLayout layout;
    const PackedWeights<P> packed;
    P *qkv_rope;  // only with rotary positions

    ForwardScratch(const Block &b, void *at) : layout(at), packed(b, true, layout) {
        qkv_rope = layout.next<P>(
            b.has_rope() ? padded_rows(b) * b.out_stride(PRODUCT_QKV) : 0);
    }
};

// Saved for the backward pass, which recomputes what needs no matrix product: normalized and rotated
// rows, and the activation. Rows of P are padded_stride apart, and as wide as the product that reads
// or writes them.
template <typename T, typename P>
struct SavedActivations {
    P *qkv, *attn_out;
    P *gate_up;             // inputs of the activation: of gate, if there is one, then of up
    P *low[PRODUCT_COUNT];  // adapters' columns of inputs that are not saved: all but attn_out
    P *half_output[2];      // inputs of the norms after each half, if there are any
    T *resid_mid;              // only without these norms, from which it is recomputed
    float *log_sums;
    NormStats *stats[2], *output_stats[2];  // of the norms before and after each half
    i64 bytes;

    explicit SavedActivations(const Block &b, void *at) : low{} {
        MemoryLayout layout(at);
        const i64 rows = padded_rows(b);
        qkv = layout.next<P>(rows * b.out_stride(PRODUCT_QKV));
        attn_out = layout.next<P>(rows * b.in_stride(PRODUCT_OUTPUT));
        gate_up = layout.next<P>(b.rows() * b.gate_up_stride());
        for (const Product of : {PRODUCT_QKV, PRODUCT_UP, PRODUCT_DOWN})
            low[of] = layout.next<P>(b.rows() * b.product(of).rank);
        resid_mid = layout.next<T>(b.has_output_norms() ? 0 : b.rows() * b.width);
        log_sums = layout.next<float>(b.rows() * b.query_heads);
        const i64 normed_rows = b.has_output_norms() ? b.rows() : 0;
        for (int half = 0; half < 2; ++half) {
            stats[half] = layout.next<NormStats>(b.rows());
            output_stats[half] = layout.next<NormStats>(normed_rows);
            half_output[half] = layout.next<P>(normed_rows * b.width);
        }
        bytes = layout.used();
    }
};

// The norms after the attention and after the MLP.
constexpr Role OUTPUT_NORMS[] = {ROLE_ATTENTION_OUTPUT_NORM, ROLE_MLP_OUTPUT_NORM};

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

// Compute a row of to = residual + dropout(norm(output)), with the saved input and statistics of the
// norm if there is one. Overwrites `output`.
template <typename T, typename P>
void add_half(const Block &b, const SavedActivations<T, P> &saved, int half, i64 row,
              const T *residual, float *output, T *to) {
    const T *norm_weight = static_cast<const T *>(b.weights[OUTPUT_NORMS[half]]);
    const Dropout dropout(b, uint32_t(half));
    if (norm_weight != nullptr)
        norm_row(saved.half_output[half] + row * b.width, saved.output_stats[half][row],
                 norm_weight, (const T *)nullptr, b.norm_offset, b.width, output);
    for (i64 c = 0; c < b.width; c += LANES) {
        const VecF32 delta = load(output + c);
        store(to + c,
              load(residual + c) + (dropout ? delta * dropout.at(row * b.width + c) : delta));
    }
}

// Apply norms and rotary positions to the queries and keys of rows [begin, begin + count), in rows
// of a qkv's stride.
template <typename T, typename P>
void rotate_qkv(const Block &b, i64 begin, i64 count, const P *qkv, P *to) {
    const i64 stride = b.out_stride(PRODUCT_QKV);
    const auto weight = [&](Role role) { return static_cast<const T *>(b.weights[role]); };
    for (i64 row = begin; row < begin + count; ++row) {
        const i64 angle = row % b.rope_period * b.head_dim;
        norm_and_rope(b.head_shape(), qkv + row * stride, weight(ROLE_QUERY_NORM),
                      weight(ROLE_KEY_NORM), static_cast<const T *>(b.cos) + angle,
                      static_cast<const T *>(b.sin) + angle, to + row * stride);
    }
}

// An epilogue that stores a product in rows of floats, padded_stride(width) apart.
inline auto store_floats(const Block &b, float *to) {
    return [=, stride = padded_stride(b.width)](i64 row, i64 panel, const float *line) {
        std::memcpy(to + row * stride + panel * PANEL, line, PANEL * sizeof(float));
    };
}

// Call body(T{}, P{}) with the types that the block's dtype and product_dtype name.
template <typename Body>
int run_block(const BlockArgs &args, const Body &body) {
    return run_kernel(args.dtype, [&](auto type) {
        dispatch_dtype(args.product_dtype % PRODUCTS_INT16, [&](auto product) { body(type, product); });
    });
}

}  // namespace ownwords
