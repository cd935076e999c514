// A block's way forward.
#include "activation.h"
#include "block.h"

namespace ownwords {
namespace {

template <typename T>
class Forward {
  public:
    explicit Forward(const Block &block)
        : b(block), layout(b.work), packed(b, layout), kept(b, b.kept) {}

    void run() const {
        pack();
        parallel(tiles_of(b), 1, [this](Long begin, Long end, int) {
            const Units units;
            for (Long tile = begin; tile < end; ++tile) before_attention(tile * TOKENS);
        });
        parallel(b.batch * b.keys, 1, [this](Long begin, Long end, int) {
            const Units units;
            for (Long task = begin; task < end; ++task) attend(task / b.keys, task % b.keys);
        });
        parallel(tiles_of(b), 1, [this](Long begin, Long end, int) {
            const Units units;
            for (Long tile = begin; tile < end; ++tile) after_attention(tile * TOKENS);
        });
    }

  private:
    const Block &b;
    Layout layout;
    const Packed packed;
    const Kept<T> kept;

    const T *const cosine = static_cast<const T *>(b.cosine);
    const T *const sine = static_cast<const T *>(b.sine);

    const T *weight(Weight part) const { return static_cast<const T *>(b.weights[part]); }
    Long rows_from(Long begin) const { return std::min(TOKENS, b.rows() - begin); }

    // The columns of the tiles are the weights' rows. Of gate and up, if there is a gate, every
    // panel has 16 columns each.
    void pack() const {
        const Long queries = b.attended(), keys = b.keys * b.head;
        struct Matrix {
            Bf16 *to;
            Long first, rows, columns, every;  // bands of 16 rows of `to`: first, first + every ...
            const T *from;
        };
        const Long gates = b.gated() ? 1 : 0;
        const Matrix all[] = {
            {packed.joined, 0, queries, b.width, 1, weight(QUERY)},
            {packed.joined, queries / SIDE, keys, b.width, 1, weight(KEY)},
            {packed.joined, (queries + keys) / SIDE, keys, b.width, 1, weight(VALUE)},
            {packed.output, 0, b.width, queries, 1, weight(OUTPUT)},
            {packed.up, 0, gates * b.hidden, b.width, 2, weight(GATE)},
            {packed.up, gates, b.hidden, b.width, 1 + gates, weight(UP)},
            {packed.down, 0, b.width, b.hidden, 1, weight(DOWN)},
        };
        Long bands = 0;
        for (const Matrix &one : all) bands += one.rows / SIDE;
        parallel(bands, 8, [&](Long begin, Long end, int) {
            Long before = 0;
            for (const Matrix &one : all) {
                const Long count = one.rows / SIDE, steps = one.columns / DEPTH;
                const Long stop = std::min(count, end - before);
                for (Long band = std::max<Long>(0, begin - before); band < stop; ++band) {
                    const Long at = one.first + band * one.every;
                    Bf16 *to = one.to + at / 2 * steps * LINES + at % 2 * TILE;
                    for (Long step = 0; step < steps; ++step)
                        across(one.from + band * SIDE * one.columns + step * DEPTH, one.columns,
                               SIDE, DEPTH, to + step * LINES);
                }
                before += count;
            }
        });
    }

    void before_attention(Long begin) const {
        const Long count = rows_from(begin), width = apart(b.width), joined = apart(b.joined());
        Room<Bf16> normed(TOKENS * width);
        const T *x = static_cast<const T *>(b.x) + begin * b.width;
        for (Long row = 0; row < count; ++row)
            norm(x + row * b.width, ATTENTION_NORM, kept.spreads + begin + row,
                 normed + row * width);
        const T *biases[] = {weight(QUERY_BIAS), weight(KEY_BIAS), weight(VALUE_BIAS)};
        const Long queries = b.attended() / PANEL, keys = b.keys * b.head / PANEL;
        Bf16 *raw = kept.raw + begin * joined;
        product(as_it_lies(normed, width), packed.joined, b.width / DEPTH * LINES, count,
                b.joined() / PANEL, b.width / DEPTH, [&](Long row, Long panel, const float *line) {
                    const Long which = (panel >= queries) + (panel >= queries + keys);
                    const Long first = which == 0 ? 0 : queries + (which - 1) * keys;
                    const T *bias = biases[which];
                    if (bias != nullptr) bias += (panel - first) * PANEL;
                    Bf16 *to = raw + row * joined + panel * PANEL;
                    for (Long c = 0; c < PANEL; c += LANES)
                        store(to + c, biased(load(line + c), bias, c));
                });
        if (!b.turns()) return;
        for (Long row = 0; row < count; ++row) {
            const Long angle = (begin + row) % b.period * b.head;
            turn_heads(b.heads(), raw + row * joined, weight(QUERY_NORM), weight(KEY_NORM),
                       cosine + angle, sine + angle, kept.turned + (begin + row) * joined);
        }
    }

    void attend(Long text, Long key) const {
        const Focus focused = focus_of(b, text);
        const Long row = text * b.tokens;
        focus(focused, key, kept.turned + row * focused.stride,
              kept.seen + row * focused.seen_stride, kept.log_sums + row * b.queries);
    }

    void after_attention(Long begin) const {
        const Long count = rows_from(begin), width = apart(b.width);
        const Long attended = apart(b.attended()), hidden = apart(b.hidden);
        Room<Bf16> normed(TOKENS * width);
        Room<float> made(TOKENS * width);
        const auto make = [&](const Bf16 *rows, Long stride, const Bf16 *by, Long depth) {
            product(as_it_lies(rows, stride), by, depth / DEPTH * LINES, count, b.width / PANEL,
                    depth / DEPTH, [&](Long row, Long panel, const float *line) {
                        std::memcpy(made + row * width + panel * PANEL, line,
                                    PANEL * sizeof(float));
                    });
        };
        make(kept.seen + begin * attended, attended, packed.output, b.attended());
        for (Long row = 0; row < count; ++row) {
            const Long at = begin + row;
            T *middle = kept.middle + at * b.width;
            add(static_cast<const T *>(b.x) + at * b.width, made + row * width, OUTPUT_BIAS, 0, at,
                middle);
            norm(middle, MLP_NORM, kept.spreads + b.rows() + at, normed + row * width);
        }
        if (b.gelu)
            activate<Gelu>(begin, count, normed);
        else
            activate<Silu>(begin, count, normed);
        make(kept.active + begin * hidden, hidden, packed.down, b.hidden);
        for (Long row = 0; row < count; ++row) {
            const Long at = begin + row;
            add(kept.middle + at * b.width, made + row * width, DOWN_BIAS, 1, at,
                static_cast<T *>(b.y) + at * b.width);
        }
    }

    template <typename Activation>
    void activate(Long begin, Long count, const Bf16 *normed) const {
        const Long width = apart(b.hidden), wide = apart(b.inner()), hidden = b.hidden;
        const Long steps = b.width / DEPTH;
        const T *bias = weight(UP_BIAS);
        Bf16 *active = kept.active + begin * width, *steep = kept.steep + begin * wide;
        const Left rows = as_it_lies(normed, apart(b.width));
        if (!b.gated()) {
            product(rows, packed.up, steps * LINES, count, hidden / PANEL, steps,
                    [=](Long row, Long panel, const float *line) {
                        for (Long c = 0, at = panel * PANEL; c < PANEL; c += LANES) {
                            const Slope one = Activation::template at<true>(
                                biased(load(line + c), bias, at + c));
                            store(active + row * width + at + c, one.value);
                            store(steep + row * wide + at + c, one.slope);
                        }
                    });
            return;
        }
        product(rows, packed.up, steps * LINES, count, 2 * hidden / PANEL, steps,
                [=](Long row, Long panel, const float *line) {
                    for (Long c = 0, at = panel * SIDE; c < SIDE; c += LANES) {
                        const Slope one = Activation::template at<true>(load(line + c));
                        const Vector up = load(line + SIDE + c);
                        store(active + row * width + at + c, one.value * up);
                        store(steep + row * wide + at + c, one.slope * up);
                        store(steep + row * wide + hidden + at + c, one.value);
                    }
                });
    }

    void norm(const T *x, Weight part, Spread *spread, Bf16 *normed) const {
        *spread = b.centred ? deviation_of(x, b.width, b.norm_eps)
                            : rms_of(x, b.width, b.norm_eps);
        norm_row(x, *spread, weight(part), weight(Weight(part + 1)), b.norm_offset, b.width,
                 normed);
    }

    // What was made for a row is added to what came in, less what dropout takes.
    void add(const T *before, const float *made, Weight part, uint32_t which, Long row,
             T *to) const {
        const T *bias = weight(part);
        const Dropout dropout(b, which);
        for (Long c = 0; c < b.width; c += LANES) {
            Vector more = biased(load(made + c), bias, c);
            if (dropout) more *= dropout.at(row * b.width + c);
            store(to + c, load(before + c) + more);
        }
    }

    static Vector biased(Vector x, const T *bias, Long at) {
        return bias == nullptr ? x : x + load(bias + at);
    }
};

}  // namespace
}  // namespace ownwords

OWNWORDS_API void ownwords_block(const ownwords::Block *block) {
    ownwords::with_kind(int(block->kind), [&](auto *type) {
        ownwords::Forward<std::remove_pointer_t<decltype(type)>>(*block).run();
    });
}
