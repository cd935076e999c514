// The forward pass of a transformer block.
#include "train/activation.h"
#include "train/block.h"

namespace ownwords {
namespace {

template <typename T>
class BlockForward {
  public:
    explicit BlockForward(const BlockArgs &args)
        : b(args), layout(b.scratch), packed(b, layout), saved(b, b.saved) {}

    void run() const {
        pack();
        parallel_for(tiles_of(b), 1, [this](i64 begin, i64 end, int) {
            const AmxTileConfig units;
            for (i64 tile = begin; tile < end; ++tile) norm_and_qkv(tile * TILE_TOKENS);
        });
        parallel_for(b.batch * b.kv_heads, 1, [this](i64 begin, i64 end, int) {
            const AmxTileConfig units;
            for (i64 task = begin; task < end; ++task) attend(task / b.kv_heads, task % b.kv_heads);
        });
        parallel_for(tiles_of(b), 1, [this](i64 begin, i64 end, int) {
            const AmxTileConfig units;
            for (i64 tile = begin; tile < end; ++tile) project_and_mlp(tile * TILE_TOKENS);
        });
    }

  private:
    const Block b;
    MemoryLayout layout;
    const PackedWeights packed;
    const SavedActivations<T> saved;

    const T *const cosine = static_cast<const T *>(b.cos);
    const T *const sine = static_cast<const T *>(b.sin);

    const T *weight(Role part) const { return static_cast<const T *>(b.weights[part]); }
    i64 rows_from(i64 begin) const { return std::min(TILE_TOKENS, b.rows() - begin); }

    // Rows of the weights are columns of B. Panels of a gated `up` have 16 columns of gate and of
    // up each.
    void pack() const {
        const i64 q_width = b.attn_width(), kv_width = b.kv_heads * b.head_dim;
        struct PackedPart {
            Bf16 *to;
            i64 first, rows, columns, interval;  // bands of 16 rows: first, first + interval, ...
            const T *from;

            i64 units() const { return rows / TILE_ROWS; }
        };
        const i64 gates = b.is_gated() ? 1 : 0;
        const PackedPart parts[] = {
            {packed.qkv, 0, q_width, b.width, 1, weight(ROLE_QUERY)},
            {packed.qkv, q_width / TILE_ROWS, kv_width, b.width, 1, weight(ROLE_KEY)},
            {packed.qkv, (q_width + kv_width) / TILE_ROWS, kv_width, b.width, 1,
             weight(ROLE_VALUE)},
            {packed.output, 0, b.width, q_width, 1, weight(ROLE_OUTPUT)},
            {packed.up, 0, gates * b.hidden, b.width, 2, weight(ROLE_GATE)},
            {packed.up, gates, b.hidden, b.width, 1 + gates, weight(ROLE_UP)},
            {packed.down, 0, b.width, b.hidden, 1, weight(ROLE_DOWN)},
        };
        parallel_over(parts, 8, [](const PackedPart &part, i64 begin, i64 end) {
            const i64 steps = part.columns / TILE_K;
            for (i64 band = begin; band < end; ++band) {
                const i64 at = part.first + band * part.interval;
                const T *from = part.from + band * TILE_ROWS * part.columns;
                Bf16 *to = part.to + at / 2 * steps * TILE_PAIR + at % 2 * TILE_SIZE;
                for (i64 step = 0; step < steps; ++step)
                    pack_b_t(from + step * TILE_K, part.columns, TILE_ROWS, TILE_K,
                             to + step * TILE_PAIR);
            }
        });
    }

    void norm_and_qkv(i64 begin) const {
        const i64 count = rows_from(begin), width = padded_stride(b.width),
                  qkv_stride = padded_stride(b.qkv_width());
        ScratchBuffer<Bf16> normed(TILE_TOKENS * width);
        const T *x = static_cast<const T *>(b.x) + begin * b.width;
        for (i64 row = 0; row < count; ++row)
            norm(x + row * b.width, ROLE_ATTENTION_NORM, saved.stats + begin + row,
                 normed + row * width);
        const T *biases[] = {weight(ROLE_QUERY_BIAS), weight(ROLE_KEY_BIAS),
                             weight(ROLE_VALUE_BIAS)};
        const i64 query_panels = b.attn_width() / PANEL,
                  kv_panels = b.kv_heads * b.head_dim / PANEL;
        Bf16 *qkv = saved.qkv + begin * qkv_stride;
        matmul(row_major(normed, width), packed.qkv, b.width / TILE_K * TILE_PAIR, count,
               b.qkv_width() / PANEL, b.width / TILE_K, [&](i64 row, i64 panel, const float *line) {
                   const i64 projection =
                       (panel >= query_panels) + (panel >= query_panels + kv_panels);
                   const i64 first =
                       projection == 0 ? 0 : query_panels + (projection - 1) * kv_panels;
                   const T *bias = biases[projection];
                   if (bias != nullptr) bias += (panel - first) * PANEL;
                   Bf16 *to = qkv + row * qkv_stride + panel * PANEL;
                   for (i64 c = 0; c < PANEL; c += LANES)
                       store(to + c, biased(load(line + c), bias, c));
               });
        if (!b.has_rope()) return;
        for (i64 row = 0; row < count; ++row) {
            const i64 angle = (begin + row) % b.rope_period * b.head_dim;
            norm_and_rope(b.head_shape(), qkv + row * qkv_stride, weight(ROLE_QUERY_NORM),
                          weight(ROLE_KEY_NORM), cosine + angle, sine + angle,
                          saved.qkv_rope + (begin + row) * qkv_stride);
        }
    }

    void attend(i64 text, i64 key) const {
        const FlashShape shape = flash_shape(b, text);
        const i64 row = text * b.tokens;
        flash_attention(shape, key, saved.qkv_rope + row * shape.stride,
                        saved.attn_out + row * shape.out_stride,
                        saved.log_sums + row * b.query_heads);
    }

    void project_and_mlp(i64 begin) const {
        const i64 count = rows_from(begin), width = padded_stride(b.width);
        const i64 attn_stride = padded_stride(b.attn_width()), hidden = padded_stride(b.hidden);
        ScratchBuffer<Bf16> normed(TILE_TOKENS * width);
        ScratchBuffer<float> out(TILE_TOKENS * width);
        const auto project = [&](const Bf16 *rows, i64 stride, const Bf16 *weights, i64 depth) {
            matmul(row_major(rows, stride), weights, depth / TILE_K * TILE_PAIR, count,
                   b.width / PANEL, depth / TILE_K, [&](i64 row, i64 panel, const float *line) {
                       std::memcpy(out + row * width + panel * PANEL, line, PANEL * sizeof(float));
                   });
        };
        project(saved.attn_out + begin * attn_stride, attn_stride, packed.output, b.attn_width());
        for (i64 row = 0; row < count; ++row) {
            const i64 at = begin + row;
            T *resid_mid = saved.resid_mid + at * b.width;
            add(static_cast<const T *>(b.x) + at * b.width, out + row * width, ROLE_OUTPUT_BIAS, 0,
                at, resid_mid);
            norm(resid_mid, ROLE_MLP_NORM, saved.stats + b.rows() + at, normed + row * width);
        }
        if (b.gelu)
            activate<Gelu>(begin, count, normed);
        else
            activate<Silu>(begin, count, normed);
        project(saved.act + begin * hidden, hidden, packed.down, b.hidden);
        for (i64 row = 0; row < count; ++row) {
            const i64 at = begin + row;
            add(saved.resid_mid + at * b.width, out + row * width, ROLE_DOWN_BIAS, 1, at,
                static_cast<T *>(b.y) + at * b.width);
        }
    }

    template <typename Activation>
    void activate(i64 begin, i64 count, const Bf16 *normed) const {
        const i64 width = padded_stride(b.hidden), grad_stride = padded_stride(b.mlp_width()),
                  hidden = b.hidden;
        const i64 steps = b.width / TILE_K;
        const T *bias = weight(ROLE_UP_BIAS);
        Bf16 *act = saved.act + begin * width, *act_grad = saved.act_grad + begin * grad_stride;
        const TilesA rows = row_major(normed, padded_stride(b.width));
        if (!b.is_gated()) {
            matmul(rows, packed.up, steps * TILE_PAIR, count, hidden / PANEL, steps,
                   [=](i64 row, i64 panel, const float *line) {
                       for (i64 c = 0, at = panel * PANEL; c < PANEL; c += LANES) {
                           const ActGrad item =
                               Activation::template at<true>(biased(load(line + c), bias, at + c));
                           store(act + row * width + at + c, item.value);
                           store(act_grad + row * grad_stride + at + c, item.grad);
                       }
                   });
            return;
        }
        matmul(rows, packed.up, steps * TILE_PAIR, count, 2 * hidden / PANEL, steps,
               [=](i64 row, i64 panel, const float *line) {
                   for (i64 c = 0, at = panel * TILE_ROWS; c < TILE_ROWS; c += LANES) {
                       const ActGrad item = Activation::template at<true>(load(line + c));
                       const VecF32 up = load(line + TILE_ROWS + c);
                       store(act + row * width + at + c, item.value * up);
                       store(act_grad + row * grad_stride + at + c, item.grad * up);
                       store(act_grad + row * grad_stride + hidden + at + c, item.value);
                   }
               });
    }

    void norm(const T *x, Role part, NormStats *stats, Bf16 *normed) const {
        *stats = b.layer_norm ? layer_norm_stats(x, b.width, b.norm_eps)
                              : rms_stats(x, b.width, b.norm_eps);
        norm_row(x, *stats, weight(part), weight(Role(part + 1)), b.norm_offset, b.width, normed);
    }

    // to = residual + dropout(out + bias)
    void add(const T *residual, const float *out, Role part, uint32_t projection, i64 row,
             T *to) const {
        const T *bias = weight(part);
        const Dropout dropout(b, projection);
        for (i64 c = 0; c < b.width; c += LANES) {
            VecF32 delta = biased(load(out + c), bias, c);
            if (dropout) delta *= dropout.at(row * b.width + c);
            store(to + c, load(residual + c) + delta);
        }
    }

    static VecF32 biased(VecF32 x, const T *bias, i64 at) {
        return bias == nullptr ? x : x + load(bias + at);
    }
};

}  // namespace
}  // namespace ownwords

int ownwords_block_forward(const BlockArgs *args) {
    return ownwords::run_kernel(args->dtype, [&](auto *type) {
        ownwords::BlockForward<std::remove_pointer_t<decltype(type)>>(*args).run();
    });
}
