// The backward pass of a transformer block.
#include <initializer_list>
#include <utility>
#include <vector>

#include "train/block.h"

namespace ownwords {

// Steps of tokens, odd so that rows of tiles are not a power of two apart.
inline i64 steps_of(const Block &b) { return tiles_of(b) * (TILE_TOKENS / TILE_K) | 1; }

// The layout of a tile's part of the gradients of norms and biases. A norm is followed by its bias,
// a query's norm or bias by those of key and value.
struct VectorGrads {
    struct Part {
        Role role;
        i64 at, count;
    };
    std::vector<Part> parts;
    i64 count = 0;

    explicit VectorGrads(const Block &b) {
        const i64 width = b.width, kv_width = b.kv_heads * b.head_dim;
        for (const auto &[role, size] : std::initializer_list<std::pair<Role, i64>>{
                 {ROLE_ATTENTION_NORM, width},
                 {ROLE_ATTENTION_NORM_BIAS, width},
                 {ROLE_QUERY_NORM, b.head_dim},
                 {ROLE_KEY_NORM, b.head_dim},
                 {ROLE_QUERY_BIAS, b.attn_width()},
                 {ROLE_KEY_BIAS, kv_width},
                 {ROLE_VALUE_BIAS, kv_width},
                 {ROLE_OUTPUT_BIAS, width},
                 {ROLE_ATTENTION_OUTPUT_NORM, width},
                 {ROLE_MLP_NORM, width},
                 {ROLE_MLP_NORM_BIAS, width},
                 {ROLE_UP_BIAS, b.mlp_width()},
                 {ROLE_DOWN_BIAS, width},
                 {ROLE_MLP_OUTPUT_NORM, width}}) {
            parts.push_back({role, count, size});
            count += size;
        }
    }

    i64 at(Role role) const {
        i64 i = 0;
        while (parts[size_t(i)].role != role) ++i;
        return parts[size_t(i)].at;
    }
};

// The memory that the backward pass works in.
template <typename P>
struct BackwardScratch {
    MemoryLayout layout;
    const PackedWeights<P> packed;
    // Operands of the weight gradients, which sum over tokens: gradients of the products' outputs as
    // tiles of A, the products' inputs as tiles of B.
    P *grads[PRODUCT_COUNT], *inputs[PRODUCT_COUNT];
    // Gradients of activations, a row per token.
    P *attn_grad;
    P *qkv_grad;  // with rotary positions, first the rotated queries, keys and values
    P *kv_grads;  // of each query head's keys and values
    float *resid_grad;
    // Each tile's part of the gradients of norms and biases.
    float *vector_grads;

    explicit BackwardScratch(const Block &b, void *at)
        : layout(at), packed(b, false, layout) {
        const i64 padded = steps_of(b) * TILE_K, rows = padded_rows(b);
        for (int of = 0; of < PRODUCT_COUNT; ++of) {
            const ProductShape shape = b.product(of);
            grads[of] = layout.next<P>(padded * shape.wide_outputs());
            inputs[of] = layout.next<P>(padded * shape.wide_inputs());
        }
        attn_grad = layout.next<P>(rows * b.in_stride(PRODUCT_OUTPUT));
        qkv_grad = layout.next<P>(rows * b.out_stride(PRODUCT_QKV));
        resid_grad = layout.next<float>(b.rows() * b.width);
        kv_grads = layout.next<P>(2 * b.rows() * b.attn_width());
        vector_grads = layout.next<float>(tiles_of(b) * VectorGrads(b).count);
    }
};

namespace {

template <typename T, typename P>
class BlockBackward {
  public:
    explicit BlockBackward(const BlockArgs &args)
        : b(args), scratch(b, b.scratch), saved(b, b.saved), vector_grads(b), steps(steps_of(b)) {}

    void run() const {
        pack();
        parallel_tasks(tiles_of(b), [this](i64 tile) { mlp_and_output_backward(tile); });
        parallel_tasks(b.batch * b.query_heads, [this](i64 task) {
            attention_backward(task / b.query_heads, task % b.query_heads);
        });
        parallel_tasks(tiles_of(b), [this](i64 tile) { qkv_backward(tile); });
        weight_grads();
        sum_vector_grads();
    }

  private:
    const Block b;
    const BackwardScratch<P> scratch;
    const PackedWeights<P> &packed = scratch.packed;
    const SavedActivations<T, P> saved;
    const VectorGrads vector_grads;
    const i64 steps;  // between rows of tiles, and between panels

    const T *weight(Role part) const { return static_cast<const T *>(b.weights[part]); }
    i64 rows_from(i64 begin) const { return std::min(TILE_TOKENS, b.rows() - begin); }
    float *vector_grad(i64 tile, Role role) const {
        return scratch.vector_grads + tile * vector_grads.count + vector_grads.at(role);
    }

    // Rows of the inner dimension, from `first` of `inner` on.
    template <typename W>
    struct PackedPart {
        P *to;
        i64 first, inner;
        const W *from;
        i64 rows, columns;

        i64 units() const { return rows / TILE_K; }
    };

    template <typename W>
    static void pack_bands(const PackedPart<W> &part, i64 begin, i64 end) {
        for (i64 band = begin; band < end; ++band)
            for (i64 panel = 0; panel < part.columns / PANEL; ++panel) {
                const i64 step = panel * (part.inner / TILE_K) + part.first / TILE_K + band;
                P *to = part.to + step * TILE_PAIR;
                pack_b<P>(part.from + band * TILE_K * part.columns + panel * PANEL, part.columns,
                       TILE_K, PANEL, to, to + TILE_SIZE);
            }
    }

    // The columns of all matrices of a product.
    struct RoundedColumns {
        Product product;
        i64 columns;

        i64 units() const { return (columns + COLUMN_BAND - 1) / COLUMN_BAND; }
    };

    void round_band(const RoundedColumns &part, i64 band) const {
        const ProductShape shape = b.product(part.product);
        const i64 first = band * COLUMN_BAND,
                  columns = std::min(COLUMN_BAND, part.columns - first);
        round_columns(shape.outputs, columns, packed.rounded[part.product] + first * shape.outputs,
                      packed.scales[part.product] + first, [&](const auto &body) {
                          for (const Block::ProductMatrix &m : b.matrices())
                              for (i64 row = 0; m.product == part.product && row < m.rows; ++row)
                                  body(m.first + row, weight(m.role) + row * shape.inputs + first);
                      });
    }

    void pack() const {
        std::vector<PackedPart<T>> weights;
        std::vector<PackedPart<float>> adapters;
        std::vector<RoundedColumns> rounded;
        for (const Block::ProductMatrix &m : b.matrices()) {
            const ProductShape shape = b.product(m.product);
            if (!b.uses_int16())
                weights.push_back({packed.wide[m.product], m.first, shape.wide_outputs(),
                                   weight(m.role), m.rows, shape.inputs});
        }
        for (const Product of : {PRODUCT_QKV, PRODUCT_OUTPUT, PRODUCT_UP, PRODUCT_DOWN})
            if (b.uses_int16()) rounded.push_back({of, b.product(of).inputs});
        for (int of = 0; of < PRODUCT_COUNT; ++of) {
            const ProductShape shape = b.product(of);
            const Adapter &adapter = b.adapters[of];
            if (shape.rank == 0) continue;
            adapters.push_back(
                {packed.low[of], 0, shape.outputs, adapter.up, shape.outputs, shape.rank});
            const i64 low_at = b.low_at(shape.outputs);
            adapters.push_back({packed.wide[of], low_at, low_at + shape.rank, adapter.down,
                                shape.rank, shape.inputs});
        }
        parallel_over(weights, 4, pack_bands<T>);
        parallel_over(rounded, 1, [this](const RoundedColumns &part, i64 band, i64) {
            round_band(part, band);
        });
        parallel_over(adapters, 4, pack_bands<float>);
    }

    void mlp_and_output_backward(i64 tile) const {
        const i64 begin = tile * TILE_TOKENS, count = rows_from(begin);
        const ProductShape output = b.product(PRODUCT_OUTPUT), up = b.product(PRODUCT_UP);
        ScratchBuffer<P> half_grads(
            TILE_TOKENS * std::max(output.out_stride(), b.out_stride(PRODUCT_DOWN)));
        ScratchBuffer<P> mlp_grads(TILE_TOKENS * up.out_stride()),
            act(TILE_TOKENS * b.in_stride(PRODUCT_DOWN)), normed(TILE_TOKENS * up.in_stride());
        ScratchBuffer<T> resid_mid_rows(b.has_output_norms() ? TILE_TOKENS * b.width : 0);
        ScratchBuffer<float> dnormed(TILE_TOKENS * padded_stride(b.width));
        std::fill_n(scratch.vector_grads + tile * vector_grads.count, vector_grads.count, 0.0f);
        const T *dy = static_cast<const T *>(b.dy) + begin * b.width;
        float *resid_grad = scratch.resid_grad + begin * b.width;

        half_back(1, tile, dy, half_grads);
        pack_grads(PRODUCT_DOWN, tile, half_grads, ROLE_DOWN_BIAS);
        if (b.gelu)
            activate_back<Gelu>(begin, count, half_grads, mlp_grads, act);
        else
            activate_back<Silu>(begin, count, half_grads, mlp_grads, act);
        restore_low(PRODUCT_DOWN, begin, act);
        pack_inputs(PRODUCT_DOWN, tile, act);
        append_low(PRODUCT_UP, count, mlp_grads);
        pack_grads(PRODUCT_UP, tile, mlp_grads, ROLE_UP_BIAS);
        const T *resid_mid = saved.resid_mid + begin * b.width;
        if (b.has_output_norms()) {
            const T *x = static_cast<const T *>(b.x) + begin * b.width;
            for (i64 row = 0; row < count; ++row)
                add_half(b, saved, 0, begin + row, x + row * b.width, (float *)dnormed,
                         resid_mid_rows + row * b.width);
            resid_mid = resid_mid_rows;
        }
        multiply(PRODUCT_UP, count, mlp_grads, store_floats(b, dnormed));
        norm_back(resid_mid, saved.stats[1] + begin, ROLE_MLP_NORM, tile, dnormed, dy, resid_grad,
                  up.in_stride(), normed);
        restore_low(PRODUCT_UP, begin, normed);
        pack_inputs(PRODUCT_UP, tile, normed);

        half_back(0, tile, resid_grad, half_grads);
        pack_grads(PRODUCT_OUTPUT, tile, half_grads, ROLE_OUTPUT_BIAS);
        const i64 attn_stride = output.in_stride();
        pack_inputs(PRODUCT_OUTPUT, tile, saved.attn_out + begin * attn_stride);
        P *attn_grad = scratch.attn_grad + begin * attn_stride;
        multiply(PRODUCT_OUTPUT, count, half_grads, [&](i64 row, i64 panel, const float *line) {
            P *to = attn_grad + row * attn_stride + panel * PANEL;
            for (i64 c = 0; c < PANEL; c += LANES) store(to + c, load(line + c));
        });
        // The attention's gradient needs rotated queries and keys again.
        if (b.has_rope()) rotate_qkv<T>(b, begin, count, saved.qkv, scratch.qkv_grad);
    }

    // The gradients of gate and up, and the activation.
    template <typename Activation>
    void activate_back(i64 begin, i64 count, const P *grads, P *mlp_grads, P *act) const {
        const i64 hidden = b.hidden, up_at = b.mlp_width() - hidden,
                  stride = b.gate_up_stride(), grad_stride = b.out_stride(PRODUCT_UP),
                  act_stride = b.in_stride(PRODUCT_DOWN);
        const bool is_gated = b.is_gated();
        const P *gate_up = saved.gate_up + begin * stride;
        multiply(PRODUCT_DOWN, count, grads, [=](i64 row, i64 panel, const float *line) {
            const P *from = gate_up + row * stride + panel * PANEL;
            P *to = mlp_grads + row * grad_stride + panel * PANEL,
                 *inner = act + row * act_stride + panel * PANEL;
            prefetch(from + PANEL);
            prefetch(from + up_at + PANEL);
            for (i64 c = 0; c < PANEL; c += LANES) {
                const ActGrad item = Activation::template at<FAST_MATH<P>>(load(from + c));
                const VecF32 grad = load(line + c);
                if (!is_gated) {
                    store(to + c, grad * item.grad);
                    store(inner + c, item.value);
                    continue;
                }
                const VecF32 up = load(from + up_at + c);
                store(to + c, grad * item.grad * up);
                store(to + up_at + c, grad * item.value);
                store(inner + c, item.value * up);
            }
        });
    }

    // With rotary positions the gradient replaces the queries that it is computed from.
    void attention_backward(i64 text, i64 head) const {
        const FlashShape shape = flash_shape(b, text);
        const i64 row = text * b.tokens;
        const P *qkv = b.has_rope() ? scratch.qkv_grad : saved.qkv;
        flash_attention_backward(
            shape, head, qkv + row * shape.stride,
            saved.attn_out + row * shape.out_stride, scratch.attn_grad + row * shape.out_stride,
            saved.log_sums + row * b.query_heads, scratch.qkv_grad + row * shape.stride,
            scratch.kv_grads + 2 * row * b.attn_width());
    }

    // The gradients of a token's keys and values: the sum over the query heads that share them.
    void sum_kv_grads(i64 row, P *to) const {
        const i64 group_width = b.attn_width() / b.kv_heads;
        const P *from = scratch.kv_grads + 2 * row * b.attn_width();
        for (i64 head = 0; head < 2 * b.kv_heads; ++head, from += group_width, to += b.head_dim)
            for (i64 d = 0; d < b.head_dim; d += LANES) {
                VecF32 sum{};
                for (i64 at = d; at < group_width; at += b.head_dim) sum += load(from + at);
                store(to + d, sum);
            }
    }

    void qkv_backward(i64 tile) const {
        const ProductShape qkv = b.product(PRODUCT_QKV);
        const i64 begin = tile * TILE_TOKENS, count = rows_from(begin),
                  qkv_stride = qkv.out_stride();
        ScratchBuffer<P> normed(TILE_TOKENS * qkv.in_stride());
        ScratchBuffer<float> dnormed(TILE_TOKENS * padded_stride(b.width)), grad(b.head_dim);
        P *qkv_grad = scratch.qkv_grad + begin * qkv_stride;
        for (i64 row = 0; row < count; ++row)
            sum_kv_grads(begin + row, qkv_grad + row * qkv_stride + b.attn_width());
        if (b.has_rope())
            for (i64 row = 0; row < count; ++row) {
                const i64 angle = (begin + row) % b.rope_period * b.head_dim;
                norm_and_rope_backward(b.head_shape(), saved.qkv + (begin + row) * qkv_stride,
                                       weight(ROLE_QUERY_NORM), weight(ROLE_KEY_NORM),
                                       static_cast<const T *>(b.cos) + angle,
                                       static_cast<const T *>(b.sin) + angle,
                                       qkv_grad + row * qkv_stride, qkv_grad + row * qkv_stride,
                                       vector_grad(tile, ROLE_QUERY_NORM), grad);
            }
        append_low(PRODUCT_QKV, count, qkv_grad);
        pack_grads(PRODUCT_QKV, tile, qkv_grad, ROLE_QUERY_BIAS);
        multiply(PRODUCT_QKV, count, qkv_grad, store_floats(b, dnormed));
        norm_back(static_cast<const T *>(b.x) + begin * b.width, saved.stats[0] + begin,
                  ROLE_ATTENTION_NORM, tile, dnormed, scratch.resid_grad + begin * b.width,
                  static_cast<T *>(b.dx) + begin * b.width, qkv.in_stride(), normed);
        restore_low(PRODUCT_QKV, begin, normed);
        pack_inputs(PRODUCT_QKV, tile, normed);
    }

    // The gradient of a matrix: rows [first, first + rows) of the gradients of a product's outputs,
    // times `columns` of its inputs from a column on. `to` is null if the matrix is frozen.
    template <typename D>
    struct WeightGrad {
        D *to;
        Product product;
        i64 first, rows, from_column, columns;

        i64 panel_blocks() const { return (columns / PANEL + BLOCK_PANELS - 1) / BLOCK_PANELS; }
        i64 units() const {
            return to ? (rows + BLOCK_ROWS - 1) / BLOCK_ROWS * panel_blocks() : 0;
        }
    };

    void weight_grads() const {
        std::vector<WeightGrad<T>> weights;
        std::vector<WeightGrad<float>> adapters;
        for (const Block::ProductMatrix &m : b.matrices())
            weights.push_back({static_cast<T *>(b.grads[m.role]), m.product, m.first, m.rows, 0,
                               b.product(m.product).inputs});
        for (const Product of : {PRODUCT_QKV, PRODUCT_OUTPUT, PRODUCT_UP, PRODUCT_DOWN}) {
            const auto [inputs, outputs, rank] = b.product(of);
            adapters.push_back({b.adapters[of].up_grad, of, 0, outputs, inputs, rank});
            adapters.push_back({b.adapters[of].down_grad, of, outputs, rank, 0, inputs});
        }
        compute_weight_grads(weights);
        compute_weight_grads(adapters);
    }

    // A block of rows and panels at a time.
    template <typename Matrices>
    void compute_weight_grads(const Matrices &matrices) const {
        parallel_over(matrices, 1, [&](const auto &matrix, i64 at, i64) {
            const i64 columns = matrix.columns, row = at / matrix.panel_blocks() * BLOCK_ROWS,
                      panel = at % matrix.panel_blocks() * BLOCK_PANELS;
            auto *to = matrix.to + row * columns + panel * PANEL;
            const TilesA<P> grads = tiled(scratch.grads[matrix.product], steps);
            const P *inputs = scratch.inputs[matrix.product] +
                                 (matrix.from_column / PANEL + panel) * steps * TILE_PAIR;
            matmul_deep(grads.from((matrix.first + row) / TILE_ROWS, 0), inputs, steps * TILE_PAIR,
                        std::min(BLOCK_ROWS, matrix.rows - row),
                        std::min(BLOCK_PANELS, columns / PANEL - panel),
                        tiles_of(b) * (TILE_TOKENS / TILE_K),
                        [=](i64 i, i64 j, const float *line) {
                            for (i64 c = 0; c < PANEL; c += LANES)
                                store(to + i * columns + j * PANEL + c, load(line + c));
                        });
        });
    }

    // The gradients of norms and biases: the sum over tiles, always in the same order.
    void sum_vector_grads() const {
        for (const VectorGrads::Part &part : vector_grads.parts) {
            T *to = static_cast<T *>(b.grads[part.role]);
            if (to == nullptr) continue;
            for_each_vec(part.count, [&](i64 c, auto lanes) {
                VecF32 sum{};
                for (i64 tile = 0; tile < tiles_of(b); ++tile)
                    sum += load(scratch.vector_grads + tile * vector_grads.count + part.at + c, lanes);
                store(to + c, sum, lanes);
            });
        }
    }

    // --- one tile of tokens ---

    // The gradient of what a half of the block adds, from the gradient of the sum: through dropout and
    // the norm, if there is one; with the adapter's columns.
    template <typename S>
    void half_back(int half, i64 tile, const S *from, P *to) const {
        const Product of = half == 0 ? PRODUCT_OUTPUT : PRODUCT_DOWN;
        const i64 begin = tile * TILE_TOKENS, count = rows_from(begin), stride = b.out_stride(of);
        const T *norm_weight = weight(OUTPUT_NORMS[half]);
        const Dropout dropout(b, uint32_t(half));
        ScratchBuffer<float> grads(b.width);
        float *total = vector_grad(tile, OUTPUT_NORMS[half]);
        for (i64 row = 0; row < count; ++row) {
            const i64 at = (begin + row) * b.width;
            for (i64 c = 0; c < b.width; c += LANES) {
                const VecF32 g = load(from + row * b.width + c);
                store(grads + c, dropout ? g * dropout.at(at + c) : g);
            }
            P *grad = to + row * stride;
            if (norm_weight == nullptr)
                for (i64 c = 0; c < b.width; c += LANES) store(grad + c, load(grads + c));
            else
                norm_row_backward(saved.half_output[half] + at,
                                  saved.output_stats[half][begin + row], norm_weight,
                                  (const T *)nullptr, b.norm_offset, (const float *)grads,
                                  (const float *)nullptr, b.width, false, grad, total,
                                  (float *)nullptr, (P *)nullptr);
        }
        append_low(of, count, to);
    }

    void append_low(Product of, i64 count, P *grads) const {
        const ProductShape shape = b.product(of);
        ownwords::append_low(grads, shape.out_stride(), shape.outputs, shape.rank, packed.low[of],
                             count);
    }

    void restore_low(Product of, i64 begin, P *normed) const {
        const ProductShape shape = b.product(of);
        for (i64 row = 0; row < rows_from(begin); ++row)
            std::memcpy(normed + row * shape.in_stride() + shape.inputs,
                        saved.low[of] + (begin + row) * shape.rank,
                        size_t(shape.rank) * sizeof(P));
    }

    // The gradient of a product's inputs.
    template <typename Epilogue>
    void multiply(Product of, i64 count, const P *grads, const Epilogue &epilogue) const {
        const ProductShape shape = b.product(of);
        multiply_weights(b, packed, of, grads, shape.out_stride(), shape.outputs, count,
                         shape.inputs / PANEL, epilogue);
    }

    // Whether a matrix of the product is trained, or its adapter.
    bool is_trained(Product of) const {
        for (const Block::ProductMatrix &m : b.matrices())
            if (m.product == of && b.grads[m.role] != nullptr) return true;
        return b.adapters[of].up_grad != nullptr;
    }

    void pack_grads(Product of, i64 tile, const P *rows, Role bias) const {
        const ProductShape shape = b.product(of);
        const i64 count = rows_from(tile * TILE_TOKENS), stride = shape.out_stride();
        float *total = vector_grad(tile, bias);
        if (b.grads[bias] != nullptr)
            for (i64 row = 0; row < count; ++row)
                for (i64 c = 0; c < shape.outputs; c += LANES)
                    store(total + c, load(total + c) + load(rows + row * stride + c));
        if (!is_trained(of)) return;
        for (i64 half = 0; half < TILE_TOKENS / TILE_K; ++half)
            for (i64 c = 0; c < shape.wide_outputs(); c += TILE_K) {
                const i64 step = tile * (TILE_TOKENS / TILE_K) + half;
                P *upper = scratch.grads[of] + (c / TILE_ROWS * steps + step) * TILE_SIZE;
                pack_a_t(rows + half * TILE_K * stride + c, stride, count - half * TILE_K, TILE_K,
                         upper, upper + steps * TILE_SIZE);
            }
    }

    void pack_inputs(Product of, i64 tile, const P *rows) const {
        if (!is_trained(of)) return;
        const ProductShape shape = b.product(of);
        const i64 count = rows_from(tile * TILE_TOKENS), stride = shape.in_stride();
        for (i64 half = 0; half < TILE_TOKENS / TILE_K; ++half)
            for (i64 c = 0; c < shape.wide_inputs(); c += PANEL) {
                const i64 step = tile * (TILE_TOKENS / TILE_K) + half;
                P *tiles = scratch.inputs[of] + (c / PANEL * steps + step) * TILE_PAIR;
                pack_b(rows + half * TILE_K * stride + c, stride, count - half * TILE_K, PANEL,
                       tiles, tiles + TILE_SIZE);
            }
    }

    // Gradient of a norm's input plus that of the residual; recomputes the norm's output.
    template <typename O, typename D>
    void norm_back(const T *x, const NormStats *stats, Role norm, i64 tile, const float *grads,
                   const O *residual_grad, D *dx, i64 normed_stride, P *normed) const {
        const T *norm_weight = weight(norm), *bias = weight(Role(norm + 1));
        const i64 stride = padded_stride(b.width), count = rows_from(tile * TILE_TOKENS);
        float *total = vector_grad(tile, norm);
        for (i64 row = 0; row < count; ++row) {
            const i64 at = row * b.width;
            norm_row_backward(x + at, stats[row], norm_weight, bias, b.norm_offset,
                              grads + row * stride, residual_grad + at, b.width, b.layer_norm != 0,
                              dx + at, total, bias == nullptr ? nullptr : total + b.width,
                              normed + row * normed_stride);
        }
    }
};

template <typename T, typename P>
void measure(BlockArgs &args) {
    const Block b(args);
    args.saved_bytes = SavedActivations<T, P>(b, nullptr).bytes;
    args.backward_scratch_bytes = BackwardScratch<P>(b, nullptr).layout.used();
    args.forward_scratch_bytes = ForwardScratch<P>(b, nullptr).layout.used();
}

}  // namespace
}  // namespace ownwords

int ownwords_block_sizes(BlockArgs *args) {
    return ownwords::run_block(*args, [&](auto type, auto product) {
        ownwords::measure<decltype(type), decltype(product)>(*args);
    });
}

int ownwords_block_backward(const BlockArgs *args) {
    return ownwords::run_block(*args, [&](auto type, auto product) {
        ownwords::BlockBackward<decltype(type), decltype(product)>(*args).run();
    });
}
