// The forward pass of a transformer block.
#include <vector>

#include "train/block.h"

namespace ownwords {
namespace {

template <typename T, typename P>
class BlockForward {
  public:
    explicit BlockForward(const BlockArgs &args)
        : b(args), scratch(b, b.scratch), saved(b, b.saved) {}

    void run() const {
        pack();
        parallel_tasks(tiles_of(b), [this](i64 tile) { norm_and_qkv(tile * TILE_TOKENS); });
        parallel_tasks(b.batch * b.query_heads, [this](i64 task) {
            attend(task / b.query_heads, task % b.query_heads);
        });
        parallel_tasks(tiles_of(b), [this](i64 tile) { project_and_mlp(tile * TILE_TOKENS); });
    }

  private:
    const Block b;
    const ForwardScratch<P> scratch;
    const PackedWeights<P> &packed = scratch.packed;
    const SavedActivations<T, P> saved;
    P *const qkv_rope = b.has_rope() ? scratch.qkv_rope : saved.qkv;

    const T *weight(Role part) const { return static_cast<const T *>(b.weights[part]); }
    i64 rows_from(i64 begin) const { return std::min(TILE_TOKENS, b.rows() - begin); }

    // A matrix whose rows become columns of B: in bands of 16 rows, first, first + interval, ...
    template <typename W>
    struct PackedPart {
        P *to;
        i64 first, interval;
        const W *from;
        i64 rows, columns;
        i64 inner, at;  // of all of B; where these columns begin

        i64 units() const { return rows / TILE_ROWS; }
    };

    template <typename W>
    static void pack_bands(const PackedPart<W> &part, i64 begin, i64 end) {
        for (i64 band = begin; band < end; ++band) {
            const i64 at = part.first + band * part.interval, steps = part.inner / TILE_K;
            const W *from = part.from + band * TILE_ROWS * part.columns;
            P *to = part.to + (at / 2 * steps + part.at / TILE_K) * TILE_PAIR;
            for (i64 c = 0; c < part.columns; c += TILE_K, to += TILE_PAIR)
                pack_b_t<P>(from + c, part.columns, TILE_ROWS, TILE_K, to + at % 2 * TILE_SIZE);
        }
    }

    // The same in int16.
    struct RoundedPart {
        int16_t *to;
        float *scales;  // of B's columns
        i64 first, interval;
        const T *from;
        i64 rows, columns;

        i64 units() const { return rows / TILE_ROWS; }
    };

    static void round_bands(const RoundedPart &part, i64 begin, i64 end) {
        for (i64 band = begin; band < end; ++band) {
            const i64 at = part.first + band * part.interval, steps = part.columns / TILE_K;
            round_rows_b_t(part.from + band * TILE_ROWS * part.columns, part.columns, TILE_ROWS,
                           part.to + at / 2 * steps * TILE_PAIR + at % 2 * TILE_SIZE,
                           part.scales + at * TILE_ROWS);
        }
    }

    void pack() const {
        std::vector<PackedPart<T>> weights;
        std::vector<RoundedPart> rounded;
        std::vector<PackedPart<float>> adapters;
        for (const Block::ProductMatrix &m : b.matrices()) {
            const ProductShape shape = b.product(m.product);
            // Panels of a gated `up` have 16 columns of gate and of up each.
            const bool is_interleaved = m.product == PRODUCT_UP && b.is_gated();
            const i64 first = is_interleaved ? m.role == ROLE_UP : m.first / TILE_ROWS,
                      interval = is_interleaved ? 2 : 1;
            if (b.uses_int16())
                rounded.push_back({packed.rounded[m.product], packed.scales[m.product], first,
                                   interval, weight(m.role), m.rows, shape.inputs});
            else
                weights.push_back({packed.wide[m.product], first, interval, weight(m.role), m.rows,
                                   shape.inputs, shape.wide_inputs(), 0});
            const i64 low_at = b.low_at(shape.inputs);
            if (shape.rank > 0)
                adapters.push_back({packed.wide[m.product], first, interval,
                                    b.adapters[m.product].up + m.first * shape.rank, m.rows,
                                    shape.rank, low_at + shape.rank, low_at});
        }
        for (int of = 0; of < PRODUCT_COUNT; ++of) {
            const ProductShape shape = b.product(of);
            adapters.push_back({packed.low[of], 0, 1, b.adapters[of].down, shape.rank,
                                shape.inputs, shape.inputs, 0});
        }
        parallel_over(weights, 8, pack_bands<T>);
        parallel_over(rounded, 8, round_bands);
        parallel_over(adapters, 8, pack_bands<float>);
    }

    void norm_and_qkv(i64 begin) const {
        const ProductShape shape = b.product(PRODUCT_QKV);
        const i64 count = rows_from(begin), qkv_stride = shape.out_stride();
        ScratchBuffer<P> normed(TILE_TOKENS * shape.in_stride());
        const T *x = static_cast<const T *>(b.x) + begin * b.width;
        for (i64 row = 0; row < count; ++row)
            norm(x + row * b.width, ROLE_ATTENTION_NORM, saved.stats[0] + begin + row,
                 normed + row * shape.in_stride());
        append_and_save_low(PRODUCT_QKV, begin, normed);
        const T *biases[] = {weight(ROLE_QUERY_BIAS), weight(ROLE_KEY_BIAS),
                             weight(ROLE_VALUE_BIAS)};
        const i64 query_panels = b.attn_width() / PANEL,
                  kv_panels = b.kv_heads * b.head_dim / PANEL;
        P *qkv = saved.qkv + begin * qkv_stride;
        multiply(PRODUCT_QKV, count, normed, [&](i64 row, i64 panel, const float *line) {
            const i64 projection = (panel >= query_panels) + (panel >= query_panels + kv_panels);
            const i64 first = projection == 0 ? 0 : query_panels + (projection - 1) * kv_panels;
            const T *bias = biases[projection];
            if (bias != nullptr) bias += (panel - first) * PANEL;
            P *to = qkv + row * qkv_stride + panel * PANEL;
            for (i64 c = 0; c < PANEL; c += LANES) store(to + c, biased(load(line + c), bias, c));
        });
        if (b.has_rope()) rotate_qkv<T>(b, begin, count, saved.qkv, qkv_rope);
    }

    // The backward pass recomputes these rows, but not the adapter's columns.
    void append_and_save_low(Product of, i64 begin, P *rows) const {
        const ProductShape shape = b.product(of);
        const i64 count = rows_from(begin);
        append_low(of, count, rows);
        for (i64 row = 0; row < count; ++row)
            std::memcpy(saved.low[of] + (begin + row) * shape.rank,
                        rows + row * shape.in_stride() + shape.inputs,
                        size_t(shape.rank) * sizeof(P));
    }

    void attend(i64 text, i64 head) const {
        const FlashShape shape = flash_shape(b, text);
        const i64 row = text * b.tokens;
        flash_attention(shape, head, qkv_rope + row * shape.stride,
                        saved.attn_out + row * shape.out_stride,
                        saved.log_sums + row * b.query_heads);
    }

    void project_and_mlp(i64 begin) const {
        const i64 count = rows_from(begin), normed_stride = b.in_stride(PRODUCT_UP),
                  attn_stride = b.in_stride(PRODUCT_OUTPUT), act_stride = b.in_stride(PRODUCT_DOWN);
        ScratchBuffer<P> normed(TILE_TOKENS * normed_stride), act(TILE_TOKENS * act_stride);
        ScratchBuffer<float> out(TILE_TOKENS * padded_stride(b.width));
        ScratchBuffer<T> resid_mid_rows(b.has_output_norms() ? TILE_TOKENS * b.width : 0);
        T *resid_mid =
            b.has_output_norms() ? (T *)resid_mid_rows : saved.resid_mid + begin * b.width;
        P *attn_out = saved.attn_out + begin * attn_stride;
        append_low(PRODUCT_OUTPUT, count, attn_out);
        multiply(PRODUCT_OUTPUT, count, attn_out, store_floats(b, out));
        add(0, begin, static_cast<const T *>(b.x) + begin * b.width, out, resid_mid);
        for (i64 row = 0; row < count; ++row)
            norm(resid_mid + row * b.width, ROLE_MLP_NORM, saved.stats[1] + begin + row,
                 normed + row * normed_stride);
        append_and_save_low(PRODUCT_UP, begin, normed);
        if (b.gelu)
            activate<Gelu>(begin, count, normed, act);
        else
            activate<Silu>(begin, count, normed, act);
        append_and_save_low(PRODUCT_DOWN, begin, act);
        multiply(PRODUCT_DOWN, count, act, store_floats(b, out));
        add(1, begin, resid_mid, out, static_cast<T *>(b.y) + begin * b.width);
    }

    void append_low(Product of, i64 count, P *rows) const {
        const ProductShape shape = b.product(of);
        ownwords::append_low(rows, shape.in_stride(), shape.inputs, shape.rank, packed.low[of],
                             count);
    }

    template <typename Epilogue>
    void multiply(Product of, i64 count, const P *rows, const Epilogue &epilogue) const {
        const ProductShape shape = b.product(of);
        multiply_weights(b, packed, of, rows, shape.in_stride(), shape.inputs, count,
                         shape.outputs / PANEL, epilogue);
    }

    template <typename Activation>
    void activate(i64 begin, i64 count, const P *normed, P *act) const {
        const i64 act_stride = b.in_stride(PRODUCT_DOWN), stride = b.gate_up_stride(),
                  hidden = b.hidden;
        const T *bias = weight(ROLE_UP_BIAS);
        P *gate_up = saved.gate_up + begin * stride;
        if (!b.is_gated()) {
            multiply(PRODUCT_UP, count, normed, [=](i64 row, i64 panel, const float *line) {
                for (i64 c = 0, at = panel * PANEL; c < PANEL; c += LANES) {
                    const VecF32 up = biased(load(line + c), bias, at + c);
                    store(gate_up + row * stride + at + c, up);
                    store(act + row * act_stride + at + c,
                          Activation::template at<FAST_MATH<P>>(up).value);
                }
            });
            return;
        }
        multiply(PRODUCT_UP, count, normed, [=](i64 row, i64 panel, const float *line) {
            for (i64 c = 0, at = panel * TILE_ROWS; c < TILE_ROWS; c += LANES) {
                const VecF32 gate = load(line + c), up = load(line + TILE_ROWS + c);
                store(gate_up + row * stride + at + c, gate);
                store(gate_up + row * stride + hidden + at + c, up);
                store(act + row * act_stride + at + c,
                      Activation::template at<FAST_MATH<P>>(gate).value * up);
            }
        });
    }

    void norm(const T *x, Role part, NormStats *stats, P *normed) const {
        *stats = norm_stats(x, b.width, b.norm_eps, b.layer_norm != 0);
        norm_row(x, *stats, weight(part), weight(Role(part + 1)), b.norm_offset, b.width, normed);
    }

    // A tile of to = residual + dropout(norm(out + bias)), with a norm only if the model has it.
    void add(int half, i64 begin, const T *residual, float *out, T *to) const {
        const T *bias = weight(half == 0 ? ROLE_OUTPUT_BIAS : ROLE_DOWN_BIAS);
        for (i64 i = 0; i < rows_from(begin); ++i) {
            const i64 row = begin + i;
            float *line = out + i * padded_stride(b.width);
            if (bias != nullptr)
                for (i64 c = 0; c < b.width; c += LANES)
                    store(line + c, biased(load(line + c), bias, c));
            if (b.has_output_norms()) {
                P *input = saved.half_output[half] + row * b.width;
                for (i64 c = 0; c < b.width; c += LANES) store(input + c, load(line + c));
                saved.output_stats[half][row] = norm_stats(input, b.width, b.norm_eps);
            }
            add_half(b, saved, half, row, residual + i * b.width, line, to + i * b.width);
        }
    }

    static VecF32 biased(VecF32 x, const T *bias, i64 at) {
        return bias == nullptr ? x : x + load(bias + at);
    }
};

}  // namespace
}  // namespace ownwords

int ownwords_block_forward(const BlockArgs *args) {
    return ownwords::run_block(*args, [&](auto type, auto product) {
        ownwords::BlockForward<decltype(type), decltype(product)>(*args).run();
    });
}
