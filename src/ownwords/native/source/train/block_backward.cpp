// The backward pass of a transformer block.
#include "train/block.h"

namespace ownwords {
namespace {

// Steps of tokens, odd so that rows of tiles are not a power of two apart.
i64 steps_of(const Block &b) { return tiles_of(b) * (TILE_TOKENS / TILE_K) | 1; }

struct BackwardScratch {
    MemoryLayout layout;
    const PackedWeights packed;
    // Operands of the weights' gradients, which sum over tokens: gradients of the four products'
    // outputs as tiles of A, their inputs as tiles of B.
    Bf16 *qkv_grads, *output_grads, *up_grads, *down_grads;
    Bf16 *qkv_inputs, *output_inputs, *up_inputs, *down_inputs;
    // Gradients of activations, a row per token.
    Bf16 *attn_grad, *qkv_grad;
    float *resid_grad;
    // Each tile's part of the gradients of norms and biases.
    float *vector_grads;

    explicit BackwardScratch(const Block &b, void *at) : layout(at), packed(b, layout) {
        const i64 padded = steps_of(b) * TILE_K, rows = tiles_of(b) * TILE_TOKENS + PANEL;
        qkv_grads = layout.next<Bf16>(padded * b.qkv_width());
        output_grads = layout.next<Bf16>(padded * b.width);
        up_grads = layout.next<Bf16>(padded * b.mlp_width());
        down_grads = layout.next<Bf16>(padded * b.width);
        qkv_inputs = layout.next<Bf16>(padded * b.width);
        output_inputs = layout.next<Bf16>(padded * b.attn_width());
        up_inputs = layout.next<Bf16>(padded * b.width);
        down_inputs = layout.next<Bf16>(padded * b.hidden);
        attn_grad = layout.next<Bf16>(rows * padded_stride(b.attn_width()));
        qkv_grad = layout.next<Bf16>(rows * padded_stride(b.qkv_width()));
        resid_grad = layout.next<float>(b.rows() * b.width);
        vector_grads = layout.next<float>(tiles_of(b) * VectorGradOffsets(b).count);
    }

    // Offsets in a tile's part.
    struct VectorGradOffsets {
        i64 attention_norm, mlp_norm, head_norms, qkv, output, up, down, count;

        explicit VectorGradOffsets(const Block &b) {
            attention_norm = 0;
            mlp_norm = attention_norm + 2 * b.width;
            head_norms = mlp_norm + 2 * b.width;
            qkv = head_norms + 2 * b.head_dim;
            output = qkv + b.qkv_width();
            up = output + b.width;
            down = up + b.mlp_width();
            count = down + b.width;
        }
    };
};

template <typename T>
class BlockBackward {
  public:
    explicit BlockBackward(const BlockArgs &args)
        : b(args), scratch(b, b.scratch), saved(b, b.saved), vector_grads(b), steps(steps_of(b)) {}

    void run() const {
        pack();
        parallel_for(tiles_of(b), 1, [this](i64 begin, i64 end, int) {
            const AmxTileConfig units;
            for (i64 tile = begin; tile < end; ++tile) mlp_and_output_backward(tile);
        });
        parallel_for(b.batch * b.kv_heads, 1, [this](i64 begin, i64 end, int) {
            const AmxTileConfig units;
            for (i64 task = begin; task < end; ++task)
                attention_backward(task / b.kv_heads, task % b.kv_heads);
        });
        parallel_for(tiles_of(b), 1, [this](i64 begin, i64 end, int) {
            const AmxTileConfig units;
            for (i64 tile = begin; tile < end; ++tile) qkv_backward(tile);
        });
        weight_grads();
        vector_grads_total();
    }

  private:
    const Block b;
    const BackwardScratch scratch;
    const PackedWeights &packed = scratch.packed;
    const SavedActivations<T> saved;
    const BackwardScratch::VectorGradOffsets vector_grads;
    const i64 steps;  // between rows of tiles, and between panels

    const T *const cosine = static_cast<const T *>(b.cos);
    const T *const sine = static_cast<const T *>(b.sin);

    const T *weight(Role part) const { return static_cast<const T *>(b.weights[part]); }
    i64 rows_from(i64 begin) const { return std::min(TILE_TOKENS, b.rows() - begin); }
    float *vector_grads_of(i64 tile) const {
        return scratch.vector_grads + tile * vector_grads.count;
    }

    // Rows of the weights are the inner dimension here.
    void pack() const {
        const i64 q_width = b.attn_width(), kv_width = b.kv_heads * b.head_dim,
                  gate_width = b.is_gated() ? b.hidden : 0;
        struct PackedPart {
            Bf16 *to;
            i64 first, all, rows, columns;  // the first of `rows` rows among all of the operand
            const T *from;

            i64 units() const { return rows / TILE_K; }
        };
        const PackedPart parts[] = {
            {packed.qkv, 0, b.qkv_width(), q_width, b.width, weight(ROLE_QUERY)},
            {packed.qkv, q_width, b.qkv_width(), kv_width, b.width, weight(ROLE_KEY)},
            {packed.qkv, q_width + kv_width, b.qkv_width(), kv_width, b.width, weight(ROLE_VALUE)},
            {packed.output, 0, b.width, b.width, q_width, weight(ROLE_OUTPUT)},
            {packed.up, 0, b.mlp_width(), gate_width, b.width, weight(ROLE_GATE)},
            {packed.up, gate_width, b.mlp_width(), b.hidden, b.width, weight(ROLE_UP)},
            {packed.down, 0, b.width, b.width, b.hidden, weight(ROLE_DOWN)},
        };
        parallel_over(parts, 4, [](const PackedPart &part, i64 begin, i64 end) {
            for (i64 band = begin; band < end; ++band)
                for (i64 panel = 0; panel < part.columns / PANEL; ++panel) {
                    const i64 step = panel * (part.all / TILE_K) + part.first / TILE_K + band;
                    Bf16 *to = part.to + step * TILE_PAIR;
                    pack_b(part.from + band * TILE_K * part.columns + panel * PANEL, part.columns,
                           TILE_K, PANEL, to, to + TILE_SIZE);
                }
        });
    }

    void mlp_and_output_backward(i64 tile) const {
        const i64 begin = tile * TILE_TOKENS, count = rows_from(begin),
                  width = padded_stride(b.width);
        const i64 attn_stride = padded_stride(b.attn_width()), hidden = padded_stride(b.hidden);
        const i64 mlp_stride = padded_stride(b.mlp_width());
        ScratchBuffer<Bf16> grads(TILE_TOKENS * width), mlp_grads(TILE_TOKENS * mlp_stride),
            normed(TILE_TOKENS * width);
        ScratchBuffer<float> dnormed(TILE_TOKENS * width);
        float *total = vector_grads_of(tile);
        std::fill_n(total, vector_grads.count, 0.0f);
        const T *dy = static_cast<const T *>(b.dy) + begin * b.width;
        float *resid_grad = scratch.resid_grad + begin * b.width;

        apply_dropout(begin, count, dy, 1, grads);
        pack_grads(grads, b.width, tile, count, ROLE_DOWN_BIAS, total + vector_grads.down,
                   scratch.down_grads);
        activate_back(begin, count, grads, mlp_grads);
        pack_inputs(saved.act + begin * hidden, b.hidden, tile, count, scratch.down_inputs);
        pack_grads(mlp_grads, b.mlp_width(), tile, count, ROLE_UP_BIAS, total + vector_grads.up,
                   scratch.up_grads);
        matmul(row_major(mlp_grads, mlp_stride), packed.up, b.mlp_width() / TILE_K * TILE_PAIR,
               count, b.width / PANEL, b.mlp_width() / TILE_K, to_floats(dnormed));
        norm_back(saved.resid_mid + begin * b.width, saved.stats + b.rows() + begin, ROLE_MLP_NORM,
                  count, dnormed, dy, resid_grad, normed, total + vector_grads.mlp_norm);
        pack_inputs(normed, b.width, tile, count, scratch.up_inputs);

        apply_dropout(begin, count, resid_grad, 0, grads);
        pack_grads(grads, b.width, tile, count, ROLE_OUTPUT_BIAS, total + vector_grads.output,
                   scratch.output_grads);
        pack_inputs(saved.attn_out + begin * attn_stride, b.attn_width(), tile, count,
                    scratch.output_inputs);
        Bf16 *attn_grad = scratch.attn_grad + begin * attn_stride;
        matmul(row_major(grads, width), packed.output, b.width / TILE_K * TILE_PAIR, count,
               b.attn_width() / PANEL, b.width / TILE_K,
               [&](i64 row, i64 panel, const float *line) {
                   Bf16 *to = attn_grad + row * attn_stride + panel * PANEL;
                   for (i64 c = 0; c < PANEL; c += LANES) store(to + c, load(line + c));
               });
    }

    void activate_back(i64 begin, i64 count, const Bf16 *grads, Bf16 *mlp_grads) const {
        const i64 hidden = b.hidden, mlp_stride = b.mlp_width(), width = padded_stride(mlp_stride);
        const Bf16 *act_grad = saved.act_grad + begin * width;
        matmul(row_major(grads, padded_stride(b.width)), packed.down, b.width / TILE_K * TILE_PAIR,
               count, hidden / PANEL, b.width / TILE_K, [=](i64 row, i64 panel, const float *line) {
                   for (i64 part = 0; part < mlp_stride; part += hidden) {
                       const i64 at = row * width + part + panel * PANEL;
                       prefetch(act_grad + at + PANEL);
                       for (i64 c = 0; c < PANEL; c += LANES)
                           store(mlp_grads + at + c, load(line + c) * load(act_grad + at + c));
                   }
               });
    }

    void attention_backward(i64 text, i64 key) const {
        const FlashShape shape = flash_shape(b, text);
        const i64 row = text * b.tokens;
        flash_attention_backward(
            shape, key, saved.qkv_rope + row * shape.stride,
            saved.attn_out + row * shape.out_stride, scratch.attn_grad + row * shape.out_stride,
            saved.log_sums + row * b.query_heads, scratch.qkv_grad + row * shape.stride);
    }

    void qkv_backward(i64 tile) const {
        const i64 begin = tile * TILE_TOKENS, count = rows_from(begin),
                  qkv_stride = padded_stride(b.qkv_width());
        ScratchBuffer<Bf16> normed(TILE_TOKENS * padded_stride(b.width));
        ScratchBuffer<float> dnormed(TILE_TOKENS * padded_stride(b.width)), grad(b.head_dim);
        float *total = vector_grads_of(tile);
        Bf16 *qkv_grad = scratch.qkv_grad + begin * qkv_stride;
        if (b.has_rope())
            for (i64 row = 0; row < count; ++row) {
                const i64 angle = (begin + row) % b.rope_period * b.head_dim;
                norm_and_rope_backward(b.head_shape(), saved.qkv + (begin + row) * qkv_stride,
                                       weight(ROLE_QUERY_NORM), weight(ROLE_KEY_NORM),
                                       cosine + angle, sine + angle, qkv_grad + row * qkv_stride,
                                       qkv_grad + row * qkv_stride, total + vector_grads.head_norms,
                                       grad);
            }
        pack_grads(qkv_grad, b.qkv_width(), tile, count, ROLE_QUERY_BIAS,
                   total + vector_grads.qkv, scratch.qkv_grads);
        matmul(row_major(qkv_grad, qkv_stride), packed.qkv, b.qkv_width() / TILE_K * TILE_PAIR,
               count, b.width / PANEL, b.qkv_width() / TILE_K, to_floats(dnormed));
        norm_back(static_cast<const T *>(b.x) + begin * b.width, saved.stats + begin,
                  ROLE_ATTENTION_NORM, count, dnormed, scratch.resid_grad + begin * b.width,
                  static_cast<T *>(b.dx) + begin * b.width, normed,
                  total + vector_grads.attention_norm);
        pack_inputs(normed, b.width, tile, count, scratch.qkv_inputs);
    }

    // The gradients of all matrices, a block of rows at a time.
    void weight_grads() const {
        const i64 q_width = b.attn_width(), kv_width = b.kv_heads * b.head_dim,
                  gate_width = b.is_gated() ? b.hidden : 0;
        struct WeightGrad {
            Role role;
            i64 rows, columns;
            const Bf16 *grads, *inputs;
            i64 first;  // row of `grads`

            i64 units() const { return (rows + BLOCK_ROWS - 1) / BLOCK_ROWS * (columns / PANEL); }
        };
        const BackwardScratch &s = scratch;
        const WeightGrad weights[] = {
            {ROLE_QUERY, q_width, b.width, s.qkv_grads, s.qkv_inputs, 0},
            {ROLE_KEY, kv_width, b.width, s.qkv_grads, s.qkv_inputs, q_width},
            {ROLE_VALUE, kv_width, b.width, s.qkv_grads, s.qkv_inputs, q_width + kv_width},
            {ROLE_OUTPUT, b.width, q_width, s.output_grads, s.output_inputs, 0},
            {ROLE_GATE, gate_width, b.width, s.up_grads, s.up_inputs, 0},
            {ROLE_UP, b.hidden, b.width, s.up_grads, s.up_inputs, gate_width},
            {ROLE_DOWN, b.width, b.hidden, s.down_grads, s.down_inputs, 0},
        };
        parallel_over(weights, 1, [&](const WeightGrad &weight, i64 at, i64 end) {
            const AmxTileConfig tiles;
            const i64 columns = weight.columns, panels = columns / PANEL;
            while (at < end) {
                const i64 row = at / panels * BLOCK_ROWS, panel = at % panels;
                const i64 panels_here = std::min(panels - panel, end - at);
                T *to = static_cast<T *>(b.grads[weight.role]) + row * columns + panel * PANEL;
                matmul_deep(tiled(weight.grads, steps).from((weight.first + row) / TILE_ROWS, 0),
                            weight.inputs + panel * steps * TILE_PAIR, steps * TILE_PAIR,
                            std::min(BLOCK_ROWS, weight.rows - row), panels_here,
                            tiles_of(b) * (TILE_TOKENS / TILE_K),
                            [=](i64 i, i64 j, const float *line) {
                                for (i64 c = 0; c < PANEL; c += LANES)
                                    store(to + i * columns + j * PANEL + c, load(line + c));
                            });
                at += panels_here;
            }
        });
    }

    // The gradients of norms and biases: the sum over tiles, always in the same order.
    void vector_grads_total() const {
        const i64 kv_width = b.kv_heads * b.head_dim;
        reduce_over_tiles(ROLE_ATTENTION_NORM, vector_grads.attention_norm, b.width);
        reduce_over_tiles(ROLE_ATTENTION_NORM_BIAS, vector_grads.attention_norm + b.width, b.width);
        reduce_over_tiles(ROLE_QUERY_BIAS, vector_grads.qkv, b.attn_width());
        reduce_over_tiles(ROLE_KEY_BIAS, vector_grads.qkv + b.attn_width(), kv_width);
        reduce_over_tiles(ROLE_VALUE_BIAS, vector_grads.qkv + b.attn_width() + kv_width,
                          kv_width);
        reduce_over_tiles(ROLE_QUERY_NORM, vector_grads.head_norms, b.head_dim);
        reduce_over_tiles(ROLE_KEY_NORM, vector_grads.head_norms + b.head_dim, b.head_dim);
        reduce_over_tiles(ROLE_OUTPUT_BIAS, vector_grads.output, b.width);
        reduce_over_tiles(ROLE_MLP_NORM, vector_grads.mlp_norm, b.width);
        reduce_over_tiles(ROLE_MLP_NORM_BIAS, vector_grads.mlp_norm + b.width, b.width);
        reduce_over_tiles(ROLE_UP_BIAS, vector_grads.up, b.mlp_width());
        reduce_over_tiles(ROLE_DOWN_BIAS, vector_grads.down, b.width);
    }

    void reduce_over_tiles(Role part, i64 at, i64 count) const {
        T *to = static_cast<T *>(b.grads[part]);
        if (to == nullptr) return;
        const i64 tiles = tiles_of(b);
        for_each_vec(count, [&](i64 c, auto here) {
            VecF32 sum{};
            for (i64 tile = 0; tile < tiles; ++tile)
                sum += load(vector_grads_of(tile) + at + c, here);
            store(to + c, sum, here);
        });
    }

    // --- one tile of tokens ---

    template <typename S>
    void apply_dropout(i64 begin, i64 count, const S *from, uint32_t stream, Bf16 *to) const {
        const Dropout dropout(b, stream);
        for (i64 row = 0; row < count; ++row, from += b.width, to += padded_stride(b.width))
            for (i64 c = 0; c < b.width; c += LANES) {
                const VecF32 g = load(from + c);
                store(to + c, dropout ? g * dropout.at((begin + row) * b.width + c) : g);
            }
    }

    void pack_grads(const Bf16 *rows, i64 width, i64 tile, i64 count, Role bias, float *total,
                    Bf16 *to) const {
        const i64 stride = padded_stride(width);
        if (b.weights[bias] != nullptr)
            for (i64 row = 0; row < count; ++row)
                for (i64 c = 0; c < width; c += LANES)
                    store(total + c, load(total + c) + load(rows + row * stride + c));
        for (i64 half = 0; half < TILE_TOKENS / TILE_K; ++half)
            for (i64 c = 0; c < width; c += TILE_K) {
                Bf16 *upper =
                    to + (c / TILE_ROWS * steps + tile * (TILE_TOKENS / TILE_K) + half) * TILE_SIZE;
                pack_a_t(rows + half * TILE_K * stride + c, stride, count - half * TILE_K, TILE_K,
                         upper, upper + steps * TILE_SIZE);
            }
    }

    void pack_inputs(const Bf16 *rows, i64 width, i64 tile, i64 count, Bf16 *to) const {
        const i64 stride = padded_stride(width);
        for (i64 half = 0; half < TILE_TOKENS / TILE_K; ++half)
            for (i64 c = 0; c < width; c += PANEL) {
                Bf16 *tiles =
                    to + (c / PANEL * steps + tile * (TILE_TOKENS / TILE_K) + half) * TILE_PAIR;
                pack_b(rows + half * TILE_K * stride + c, stride, count - half * TILE_K, PANEL,
                       tiles, tiles + TILE_SIZE);
            }
    }

    auto to_floats(float *to) const {
        const i64 width = padded_stride(b.width);
        return [=](i64 row, i64 panel, const float *line) {
            std::memcpy(to + row * width + panel * PANEL, line, PANEL * sizeof(float));
        };
    }

    // Gradient of a norm's input plus that of the residual; recomputes the norm's output.
    template <typename O, typename D>
    void norm_back(const T *x, const NormStats *stats, Role part, i64 count, const float *grads,
                   const O *residual_grad, D *dx, Bf16 *normed, float *total) const {
        const T *norm_weight = weight(part), *bias = weight(Role(part + 1));
        const i64 stride = padded_stride(b.width);
        for (i64 row = 0; row < count; ++row) {
            const i64 at = row * b.width;
            norm_row_backward(x + at, stats[row], norm_weight, bias, b.norm_offset,
                              grads + row * stride, residual_grad + at, b.width, b.layer_norm != 0,
                              dx + at, total, bias == nullptr ? nullptr : total + b.width,
                              normed + row * stride);
        }
    }
};

template <typename T>
void measure(BlockArgs &args) {
    const Block b(args);
    args.saved_bytes = SavedActivations<T>(b, nullptr).bytes;
    args.backward_scratch_bytes = BackwardScratch(b, nullptr).layout.used();
    MemoryLayout forward(nullptr);
    PackedWeights(b, forward);
    args.forward_scratch_bytes = forward.used();
}

}  // namespace
}  // namespace ownwords

int ownwords_block_sizes(BlockArgs *args) {
    return ownwords::run_kernel(args->dtype, [&](auto *type) {
        ownwords::measure<std::remove_pointer_t<decltype(type)>>(*args);
    });
}

int ownwords_block_backward(const BlockArgs *args) {
    return ownwords::run_kernel(args->dtype, [&](auto *type) {
        ownwords::BlockBackward<std::remove_pointer_t<decltype(type)>>(*args).run();
    });
}
