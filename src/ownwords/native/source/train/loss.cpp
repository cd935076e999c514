// Cross entropy of a large vocabulary from hidden states, with the gradients of head and hidden
// states. The logits of one chunk of rows exist at a time. No sum depends on the number of threads.
#include <algorithm>
#include <cmath>

#include "simd/int16_rows.h"
#include "train/parallel.h"

namespace ownwords {
namespace {

constexpr i64 SOFTMAX_ROWS = 16;
// The head is packed in parts of so many numbers, which fit one thread's second-level cache for the
// logits, and the third-level cache for the gradient of the hidden states.
constexpr i64 LOGITS_PART = 128 << 10, GRADIENT_PART = 4 << 20;

i64 panels_of(i64 numbers) { return (numbers + PANEL - 1) / PANEL; }

// T is the type of the hidden states, the head, and the hidden states' gradient; G of the head's
// gradient, P of the operands of products.
template <typename T, typename G, typename P>
class HeadLoss {
  public:
    explicit HeadLoss(const HeadLossArgs &args, void *scratch)
        : a(args),
          is_int16(a.product_dtype == PRODUCTS_INT16),
          vocabulary_panels(panels_of(a.vocabulary)),
          steps(a.width / TILE_K),
          hidden_stride(padded_stride(a.width)),
          logits_stride(padded_stride(vocabulary_panels * PANEL)),
          part_panels(std::clamp<i64>(GRADIENT_PART / (PANEL * a.width), 1, vocabulary_panels)) {
        MemoryLayout layout(scratch);
        const i64 rows = panels_of(std::min(a.rows, a.chunk_rows)) * PANEL;
        hidden_rows = layout.next<P>(rows * hidden_stride);
        logits = layout.next<P>(rows * logits_stride);
        hidden_tiles = layout.next<P>(a.head_grad ? rows * a.width : 0);
        const i64 part = a.hidden_grad ? part_panels * PANEL : 0;
        head_tiles = layout.next<P>(is_int16 ? 0 : part * a.width);
        rounded_hidden = layout.next<int16_t>(is_int16 ? rows * hidden_stride : 0);
        rounded_head = layout.next<int16_t>(is_int16 ? part * a.width : 0);
        rounded_grads = layout.next<int16_t>(is_int16 ? rows * padded_stride(part) : 0);
        row_scales = layout.next<float>(rows);
        column_scales = layout.next<float>(a.width);
        sums = layout.next<float>(
            a.hidden_grad && part_panels < vocabulary_panels ? rows * a.width : 0);
        losses = layout.next<double>(rows);
        bytes = layout.used();
    }

    void run() const {
        for (i64 first = 0; first < a.rows; first += a.chunk_rows) {
            const i64 count = std::min(a.chunk_rows, a.rows - first);
            pack_hidden(first, count);
            compute_logits(count);
            parallel_tasks((count + SOFTMAX_ROWS - 1) / SOFTMAX_ROWS, [&](i64 task) {
                const i64 begin = task * SOFTMAX_ROWS;
                for (i64 row = begin; row < std::min(count, begin + SOFTMAX_ROWS); ++row)
                    losses[row] = softmax(logits + row * logits_stride, first + row);
            });
            for (i64 row = 0; row < count; ++row) *a.sum += losses[row];
            if (a.hidden_grad != nullptr)
                for (i64 panel = 0; panel < vocabulary_panels; panel += part_panels)
                    add_hidden_grad(first, count, panel);
            if (a.head_grad != nullptr) add_head_grad(first, count);
        }
    }

    i64 bytes;

  private:
    const HeadLossArgs a;
    const bool is_int16;
    const i64 vocabulary_panels, steps, hidden_stride, logits_stride;
    const i64 part_panels;  // of the head, at a time for the hidden states' gradient
    P *hidden_rows, *logits, *hidden_tiles, *head_tiles;
    int16_t *rounded_hidden, *rounded_head, *rounded_grads;  // of int16 products
    float *row_scales, *column_scales;
    float *sums;
    double *losses;

    const T *head(i64 row) const { return static_cast<const T *>(a.head) + row * a.width; }

    // Rows of P, zero up to a multiple of PANEL, also in int16, and as tiles of B.
    void pack_hidden(i64 first, i64 count) const {
        parallel_tasks(panels_of(count), [&](i64 block) {
            const T *from = static_cast<const T *>(a.hidden) + (first + block * PANEL) * a.width;
            const i64 rows = std::min(PANEL, count - block * PANEL);
            for (i64 row = 0; row < PANEL; ++row) {
                P *to = hidden_rows + (block * PANEL + row) * hidden_stride;
                for (i64 c = 0; c < a.width; c += LANES)
                    store(to + c, row < rows ? load(from + row * a.width + c) : VecF32{});
                if (is_int16)
                    row_scales[block * PANEL + row] = round_row(
                        to, a.width, rounded_hidden + (block * PANEL + row) * hidden_stride);
            }
            if (a.head_grad == nullptr) return;
            for (i64 panel = 0; panel < steps; ++panel) {
                P *to = hidden_tiles + (panel * panels_of(count) + block) * TILE_PAIR;
                pack_b(from + panel * PANEL, a.width, rows, PANEL, to, to + TILE_SIZE);
            }
        });
    }

    // A part of the vocabulary for all rows at a time.
    void compute_logits(i64 count) const {
        const i64 panels_at_once =
            std::clamp<i64>(LOGITS_PART / (PANEL * a.width), 1, vocabulary_panels);
        parallel_tasks((vocabulary_panels + panels_at_once - 1) / panels_at_once, [&](i64 task) {
            const i64 first = task * panels_at_once,
                      panels = std::min(panels_at_once, vocabulary_panels - first);
            if (is_int16) return compute_rounded_logits(count, first, panels);
            ScratchBuffer<P> packed(panels * PANEL * a.width);
            for (i64 half = 0; half < 2 * panels; ++half) {
                const i64 row = first * PANEL + half * TILE_ROWS;
                P *to = packed + half / 2 * steps * TILE_PAIR + half % 2 * TILE_SIZE;
                for (i64 step = 0; step < steps; ++step, to += TILE_PAIR)
                    pack_b_t(head(std::min(row, a.vocabulary - 1)) + step * TILE_K, a.width,
                             std::max<i64>(0, a.vocabulary - row), TILE_K, to);
            }
            matmul(row_major(hidden_rows, hidden_stride), packed, steps * TILE_PAIR, count, panels,
                   steps, [&](i64 row, i64 panel, const float *line) {
                       P *to = logits + row * logits_stride + (first + panel) * PANEL;
                       for (i64 c = 0; c < PANEL; c += LANES) store(to + c, load(line + c));
                   });
        });
    }

    void compute_rounded_logits(i64 count, i64 first, i64 panels) const {
        ScratchBuffer<int16_t> packed(panels * PANEL * a.width);
        ScratchBuffer<float> scales(panels * PANEL);
        for (i64 half = 0; half < 2 * panels; ++half) {
            const i64 row = first * PANEL + half * TILE_ROWS;
            round_rows_b_t(head(row), a.width, std::clamp<i64>(a.vocabulary - row, 0, TILE_ROWS),
                           packed + half / 2 * steps * TILE_PAIR + half % 2 * TILE_SIZE,
                           scales + half * TILE_ROWS);
        }
        matmul(row_major(rounded_hidden, hidden_stride), packed, steps * TILE_PAIR, count, panels,
               steps, [&](i64 row, i64 panel, const int32_t *line) {
                   P *to = logits + row * logits_stride + (first + panel) * PANEL;
                   for (i64 c = 0; c < PANEL; c += LANES)
                       store(to + c, to_float(load(line + c)) *
                                         (load(scales + panel * PANEL + c) * row_scales[row]));
               });
    }

    // Return the weighted loss of a row, and replace its logits by their gradient.
    double softmax(P *line, i64 row) const {
        const float weight = a.weights[row], target = to_float(line[a.targets[row]]);
        VecF32 maxima = splat(target), totals{};
        for_each_vec(a.vocabulary, [&](i64 c, auto lanes) {
            maxima = max(maxima, mask_tail(load(line + c, lanes), lanes, target));
        });
        const float max_logit = reduce_max(maxima);
        for_each_vec(a.vocabulary, [&](i64 c, auto lanes) {
            totals += mask_tail(exp<FAST_MATH<P>>(load(line + c, lanes) - max_logit), lanes, 0.0f);
        });
        const float total = reduce_add(totals), log_sum = max_logit + std::log(total);
        if (a.hidden_grad != nullptr || a.head_grad != nullptr) {
            const float scale = weight / total;
            for_each_vec(a.vocabulary, [=](i64 c, auto lanes) {
                store(line + c, exp<FAST_MATH<P>>(load(line + c, lanes) - max_logit) * scale, lanes);
            });
            const float prob = reduce_max(exp<FAST_MATH<P>>(splat(target - max_logit)));
            store(line[a.targets[row]], prob * scale - weight);
            std::fill(line + a.vocabulary, line + vocabulary_panels * PANEL, P{});
        }
        return double(weight) * (log_sum - target);
    }

    // Add a part of the vocabulary to the gradient of these hidden states.
    void add_hidden_grad(i64 first, i64 count, i64 first_panel) const {
        const i64 panels = std::min(part_panels, vocabulary_panels - first_panel);
        const bool is_first = first_panel == 0, is_last = first_panel + panels == vocabulary_panels;
        if (is_int16)
            round_for_hidden_grad(count, first_panel, panels);
        else
            parallel_tasks(panels, [&](i64 step) {
                const i64 row = (first_panel + step) * PANEL;
                for (i64 panel = 0; panel < steps; ++panel) {
                    P *to = head_tiles + (panel * panels + step) * TILE_PAIR;
                    pack_b(head(row) + panel * PANEL, a.width, a.vocabulary - row, PANEL, to,
                           to + TILE_SIZE);
                }
            });
        const i64 panel_blocks = (steps + BLOCK_PANELS - 1) / BLOCK_PANELS,
                  row_blocks = (count + BLOCK_ROWS - 1) / BLOCK_ROWS;
        parallel_tasks(row_blocks * panel_blocks, [&](i64 task) {
            const i64 row = task / panel_blocks * BLOCK_ROWS,
                      panel = task % panel_blocks * BLOCK_PANELS,
                      rows = std::min(BLOCK_ROWS, count - row),
                      columns = std::min(BLOCK_PANELS, steps - panel);
            T *grads = static_cast<T *>(a.hidden_grad) + (first + row) * a.width + panel * PANEL;
            float *partial = sums + row * a.width + panel * PANEL;
            const auto add = [=](i64 at, VecF32 sum) {
                if (!is_first) sum += load(partial + at);
                if (is_last)
                    store(grads + at, sum);
                else
                    store(partial + at, sum);
            };
            const i64 part = panel * panels * TILE_PAIR;
            if (is_int16) {
                const i64 stride = padded_stride(panels * PANEL);
                matmul_deep(row_major(rounded_grads + row * stride, stride), rounded_head + part,
                            panels * TILE_PAIR, rows, columns, panels,
                            [=](i64 i, i64 j, const int32_t *line) {
                                const float *scales = column_scales + (panel + j) * PANEL;
                                for (i64 c = 0; c < PANEL; c += LANES)
                                    add(i * a.width + j * PANEL + c,
                                        to_float(load(line + c)) *
                                            (load(scales + c) * row_scales[row + i]));
                            });
                return;
            }
            matmul_deep(row_major(logits + row * logits_stride + first_panel * PANEL, logits_stride),
                        head_tiles + part, panels * TILE_PAIR, rows, columns, panels,
                        [=](i64 i, i64 j, const float *line) {
                            for (i64 c = 0; c < PANEL; c += LANES)
                                add(i * a.width + j * PANEL + c, load(line + c));
                        });
        });
    }

    // Each part has scales of its own, because that of the target has by far the largest gradient.
    void round_for_hidden_grad(i64 count, i64 first_panel, i64 panels) const {
        const i64 first = first_panel * PANEL, rows = std::min(panels * PANEL, a.vocabulary - first);
        parallel_tasks((a.width + COLUMN_BAND - 1) / COLUMN_BAND, [&](i64 band) {
            const i64 column = band * COLUMN_BAND;
            round_columns(rows, std::min(COLUMN_BAND, a.width - column),
                          rounded_head + column * panels * PANEL, column_scales + column,
                          [&](const auto &body) {
                              for (i64 row = 0; row < rows; ++row)
                                  body(row, head(first + row) + column);
                          });
        });
        parallel_tasks(panels_of(count), [&](i64 block) {
            for (i64 row = block * PANEL; row < std::min(count, (block + 1) * PANEL); ++row)
                row_scales[row] = round_row(logits + row * logits_stride + first, panels * PANEL,
                                            rounded_grads + row * padded_stride(panels * PANEL));
        });
    }

    // Add these rows to the gradient of the head.
    void add_head_grad(i64 first, i64 count) const {
        const i64 blocks = panels_of(count);
        parallel_tasks((a.vocabulary + BLOCK_ROWS - 1) / BLOCK_ROWS, [&](i64 task) {
            const i64 row = task * BLOCK_ROWS, rows = std::min(BLOCK_ROWS, a.vocabulary - row);
            ScratchBuffer<P> grads(panels_of(rows) * PANEL * blocks * PANEL);
            for (i64 panel = 0; panel < panels_of(rows); ++panel)
                for (i64 block = 0; block < blocks; ++block) {
                    P *upper = grads + (2 * panel * blocks + block) * TILE_SIZE;
                    pack_a_t(logits + block * PANEL * logits_stride + row + panel * PANEL,
                             logits_stride, count - block * PANEL, PANEL, upper,
                             upper + blocks * TILE_SIZE);
                }
            G *to = static_cast<G *>(a.head_grad) + row * a.width;
            matmul_deep(tiled<P>(grads, blocks), hidden_tiles, blocks * TILE_PAIR, rows, steps, blocks,
                        [=](i64 i, i64 j, const float *line) {
                            G *sum = to + i * a.width + j * PANEL;
                            for (i64 c = 0; c < PANEL; c += LANES)
                                store(sum + c,
                                      first ? load(sum + c) + load(line + c) : load(line + c));
                        });
        });
    }
};

// body(HeadLoss) of these types.
template <typename Body>
int with_head_loss(const HeadLossArgs &args, void *scratch, const Body &body) {
    return run_kernel(args.dtype, [&](auto type) {
        dispatch_dtype(args.product_dtype % PRODUCTS_INT16, [&](auto product) {
            using T = decltype(type);
            using P = decltype(product);
            if (args.rows > args.chunk_rows)
                body(HeadLoss<T, float, P>(args, scratch));
            else
                body(HeadLoss<T, T, P>(args, scratch));
        });
    });
}

}  // namespace
}  // namespace ownwords

int ownwords_head_loss_size(HeadLossArgs *args) {
    return ownwords::with_head_loss(
        *args, nullptr, [&](const auto &loss) { args->scratch_bytes = loss.bytes; });
}

int ownwords_head_loss(const HeadLossArgs *args) {
    for (int64_t row = 0; row < args->rows; ++row)
        if (args->targets[row] < 0 || args->targets[row] >= args->vocabulary) return STATUS_BAD_ID;
    return ownwords::with_head_loss(*args, args->scratch,
                                    [](const auto &loss) { loss.run(); });
}
