// The memory that the backward pass of a transformer block works in.
#pragma once

#include "train/block.h"

namespace ownwords {

// Steps of tokens, odd so that rows of tiles are not a power of two apart.
inline i64 steps_of(const Block &b) { return tiles_of(b) * (TILE_TOKENS / TILE_K) | 1; }

struct BackwardScratch {
    MemoryLayout layout;
    const PackedWeights packed;
    // Operands of the weights' gradients, which sum over tokens: gradients of the products' outputs
    // as tiles of A, their inputs as tiles of B.
    Bf16 *grads[PRODUCT_COUNT], *inputs[PRODUCT_COUNT];
    // Gradients of activations, a row per token.
    Bf16 *attn_grad;
    Bf16 *qkv_grad;  // first the rotated queries, keys and values, if there are any
    Bf16 *kv_grads;  // of each query head's keys and values
    float *resid_grad;
    // Each tile's part of the gradients of norms and biases.
    float *vector_grads;

    explicit BackwardScratch(const Block &b, void *at)
        : layout(at), packed(b, false, layout) {
        const i64 padded = steps_of(b) * TILE_K, rows = padded_rows(b);
        for (int of = 0; of < PRODUCT_COUNT; ++of) {
            const ProductShape shape = b.product(of);
            grads[of] = layout.next<Bf16>(padded * shape.wide_outputs());
            inputs[of] = layout.next<Bf16>(padded * shape.wide_inputs());
        }
        attn_grad = layout.next<Bf16>(rows * b.in_stride(PRODUCT_OUTPUT));
        qkv_grad = layout.next<Bf16>(rows * b.out_stride(PRODUCT_QKV));
        resid_grad = layout.next<float>(b.rows() * b.width);
        kv_grads = layout.next<Bf16>(2 * b.rows() * b.attn_width());
        vector_grads = layout.next<float>(tiles_of(b) * VectorGradOffsets(b).count);
    }

    // Offsets in a tile's part.
    struct VectorGradOffsets {
        i64 attention_norm, mlp_norm, output_norms[2], head_norms, qkv, output, up, down, count;

        explicit VectorGradOffsets(const Block &b) {
            attention_norm = 0;
            mlp_norm = attention_norm + 2 * b.width;
            output_norms[0] = mlp_norm + 2 * b.width;
            output_norms[1] = output_norms[0] + b.width;
            head_norms = output_norms[1] + b.width;
            qkv = head_norms + 2 * b.head_dim;
            output = qkv + b.qkv_width();
            up = output + b.width;
            down = up + b.mlp_width();
            count = down + b.width;
        }
    };
};

}  // namespace ownwords
