// A block's way back: the slopes of what came in and of all weights, from those of what came out.
#include "block.h"

namespace ownwords {
namespace {

// Steps in which tokens are added up, and one that is not used where their number is even: rows of
// tiles are then not a power of two apart.
Long steps_of(const Block &b) { return tiles_of(b) * (TOKENS / DEPTH) | 1; }

struct Work {
    Layout layout;
    const Packed packed;
    // For the slopes of the weights, which add up over tokens: slopes of what the four products
    // made, as A's tiles; what they read, as B's.
    Bf16 *joined_slopes, *output_slopes, *up_slopes, *down_slopes;
    Bf16 *joined_inputs, *output_inputs, *up_inputs, *down_inputs;
    // Slopes on the way, a row a token.
    Bf16 *seen, *heads;
    float *middle;
    // Of each tile of tokens its share of the slopes of norms and biases.
    float *sums;

    explicit Work(const Block &b, void *at) : layout(at), packed(b, layout) {
        const Long padded = steps_of(b) * DEPTH, rows = tiles_of(b) * TOKENS + PANEL;
        joined_slopes = layout.next<Bf16>(padded * b.joined());
        output_slopes = layout.next<Bf16>(padded * b.width);
        up_slopes = layout.next<Bf16>(padded * b.inner());
        down_slopes = layout.next<Bf16>(padded * b.width);
        joined_inputs = layout.next<Bf16>(padded * b.width);
        output_inputs = layout.next<Bf16>(padded * b.attended());
        up_inputs = layout.next<Bf16>(padded * b.width);
        down_inputs = layout.next<Bf16>(padded * b.hidden);
        seen = layout.next<Bf16>(rows * apart(b.attended()));
        heads = layout.next<Bf16>(rows * apart(b.joined()));
        middle = layout.next<float>(b.rows() * b.width);
        sums = layout.next<float>(tiles_of(b) * Sums(b).count);
    }

    // Where in a tile's sums each part begins.
    struct Sums {
        Long attention_norm, mlp_norm, head_norms, joined, output, up, down, count;

        explicit Sums(const Block &b) {
            attention_norm = 0;
            mlp_norm = attention_norm + 2 * b.width;
            head_norms = mlp_norm + 2 * b.width;
            joined = head_norms + 2 * b.head;
            output = joined + b.joined();
            up = output + b.width;
            down = up + b.inner();
            count = down + b.width;
        }
    };
};

template <typename T>
class Backward {
  public:
    explicit Backward(const Block &block)
        : b(block), work(b, b.work), kept(b, b.kept), sums(b), steps(steps_of(b)) {}

    void run() const {
        pack();
        parallel(tiles_of(b), 1, [this](Long begin, Long end, int) {
            const Units units;
            for (Long tile = begin; tile < end; ++tile) after_attention(tile);
        });
        parallel(b.batch * b.keys, 1, [this](Long begin, Long end, int) {
            const Units units;
            for (Long task = begin; task < end; ++task) attend(task / b.keys, task % b.keys);
        });
        parallel(tiles_of(b), 1, [this](Long begin, Long end, int) {
            const Units units;
            for (Long tile = begin; tile < end; ++tile) before_attention(tile);
        });
        weights();
        vectors();
    }

  private:
    const Block &b;
    const Work work;
    const Packed &packed = work.packed;
    const Kept<T> kept;
    const Work::Sums sums;
    const Long steps;  // between rows of tiles, and between panels

    const T *const cosine = static_cast<const T *>(b.cosine);
    const T *const sine = static_cast<const T *>(b.sine);

    const T *weight(Weight part) const { return static_cast<const T *>(b.weights[part]); }
    Long rows_from(Long begin) const { return std::min(TOKENS, b.rows() - begin); }
    float *sums_of(Long tile) const { return work.sums + tile * sums.count; }

    // The rows of the tiles are the weights' rows: those that the way back adds up.
    void pack() const {
        const Long queries = b.attended(), keys = b.keys * b.head, gates = b.gated() ? b.hidden : 0;
        struct Matrix {
            Bf16 *to;
            Long first, all, rows, columns;  // its first row among all that are added up together
            const T *from;
        };
        const Matrix each[] = {
            {packed.joined, 0, b.joined(), queries, b.width, weight(QUERY)},
            {packed.joined, queries, b.joined(), keys, b.width, weight(KEY)},
            {packed.joined, queries + keys, b.joined(), keys, b.width, weight(VALUE)},
            {packed.output, 0, b.width, b.width, queries, weight(OUTPUT)},
            {packed.up, 0, b.inner(), gates, b.width, weight(GATE)},
            {packed.up, gates, b.inner(), b.hidden, b.width, weight(UP)},
            {packed.down, 0, b.width, b.width, b.hidden, weight(DOWN)},
        };
        Long bands = 0;
        for (const Matrix &one : each) bands += one.rows / DEPTH;
        parallel(bands, 4, [&](Long begin, Long end, int) {
            Long before = 0;
            for (const Matrix &one : each) {
                const Long count = one.rows / DEPTH;
                const Long stop = std::min(count, end - before);
                for (Long band = std::max<Long>(0, begin - before); band < stop; ++band)
                    for (Long panel = 0; panel < one.columns / PANEL; ++panel) {
                        Bf16 *to = one.to + (panel * (one.all / DEPTH) + one.first / DEPTH + band) *
                                                LINES;
                        along(one.from + band * DEPTH * one.columns + panel * PANEL, one.columns,
                              DEPTH, PANEL, to, to + TILE);
                    }
                before += count;
            }
        });
    }

    void after_attention(Long tile) const {
        const Long begin = tile * TOKENS, count = rows_from(begin), width = apart(b.width);
        const Long attended = apart(b.attended()), hidden = apart(b.hidden);
        const Long inner = apart(b.inner());
        Room<Bf16> slopes(TOKENS * width), both(TOKENS * inner), normed(TOKENS * width);
        Room<float> dnormed(TOKENS * width);
        float *total = sums_of(tile);
        std::fill_n(total, sums.count, 0.0f);
        const T *dy = static_cast<const T *>(b.dy) + begin * b.width;
        float *dmiddle = work.middle + begin * b.width;

        dropped(begin, count, dy, 1, slopes);
        keep_slopes(slopes, b.width, tile, count, DOWN_BIAS, total + sums.down, work.down_slopes);
        activate_back(begin, count, slopes, both);
        keep_inputs(kept.active + begin * hidden, b.hidden, tile, count, work.down_inputs);
        keep_slopes(both, b.inner(), tile, count, UP_BIAS, total + sums.up, work.up_slopes);
        product(as_it_lies(both, inner), packed.up, b.inner() / DEPTH * LINES, count,
                b.width / PANEL, b.inner() / DEPTH, to_floats(dnormed));
        norm_back(kept.middle + begin * b.width, kept.spreads + b.rows() + begin, MLP_NORM, count,
                  dnormed, dy, dmiddle, normed, total + sums.mlp_norm);
        keep_inputs(normed, b.width, tile, count, work.up_inputs);

        dropped(begin, count, dmiddle, 0, slopes);
        keep_slopes(slopes, b.width, tile, count, OUTPUT_BIAS, total + sums.output,
                    work.output_slopes);
        keep_inputs(kept.seen + begin * attended, b.attended(), tile, count, work.output_inputs);
        Bf16 *seen = work.seen + begin * attended;
        product(as_it_lies(slopes, width), packed.output, b.width / DEPTH * LINES, count,
                b.attended() / PANEL, b.width / DEPTH,
                [&](Long row, Long panel, const float *line) {
                    Bf16 *to = seen + row * attended + panel * PANEL;
                    for (Long c = 0; c < PANEL; c += LANES) store(to + c, load(line + c));
                });
    }

    void activate_back(Long begin, Long count, const Bf16 *slopes, Bf16 *both) const {
        const Long hidden = b.hidden, inner = b.inner(), width = apart(inner);
        const Bf16 *steep = kept.steep + begin * width;
        product(as_it_lies(slopes, apart(b.width)), packed.down, b.width / DEPTH * LINES, count,
                hidden / PANEL, b.width / DEPTH, [=](Long row, Long panel, const float *line) {
                    for (Long part = 0; part < inner; part += hidden) {
                        const Long at = row * width + part + panel * PANEL;
                        fetch(steep + at + PANEL);
                        for (Long c = 0; c < PANEL; c += LANES)
                            store(both + at + c, load(line + c) * load(steep + at + c));
                    }
                });
    }

    void attend(Long text, Long key) const {
        const Focus focused = focus_of(b, text);
        const Long row = text * b.tokens;
        focus_back(focused, key, kept.turned + row * focused.stride,
                   kept.seen + row * focused.seen_stride, work.seen + row * focused.seen_stride,
                   kept.log_sums + row * b.queries, work.heads + row * focused.stride);
    }

    void before_attention(Long tile) const {
        const Long begin = tile * TOKENS, count = rows_from(begin), joined = apart(b.joined());
        Room<Bf16> normed(TOKENS * apart(b.width));
        Room<float> dnormed(TOKENS * apart(b.width)), slope(b.head);
        float *total = sums_of(tile);
        Bf16 *heads = work.heads + begin * joined;
        if (b.turns())
            for (Long row = 0; row < count; ++row) {
                const Long angle = (begin + row) % b.period * b.head;
                turn_heads_back(b.heads(), kept.raw + (begin + row) * joined, weight(QUERY_NORM),
                                weight(KEY_NORM), cosine + angle, sine + angle,
                                heads + row * joined, heads + row * joined,
                                total + sums.head_norms, slope);
            }
        keep_slopes(heads, b.joined(), tile, count, QUERY_BIAS, total + sums.joined,
                    work.joined_slopes);
        product(as_it_lies(heads, joined), packed.joined, b.joined() / DEPTH * LINES, count,
                b.width / PANEL, b.joined() / DEPTH, to_floats(dnormed));
        norm_back(static_cast<const T *>(b.x) + begin * b.width, kept.spreads + begin,
                  ATTENTION_NORM, count, dnormed, work.middle + begin * b.width,
                  static_cast<T *>(b.dx) + begin * b.width, normed, total + sums.attention_norm);
        keep_inputs(normed, b.width, tile, count, work.joined_inputs);
    }

    // The slopes of all matrices, some rows of one at a time: a panel of inputs is then read once
    // for all of them.
    void weights() const {
        constexpr Long MOST = 4 * PANEL;
        const Long queries = b.attended(), keys = b.keys * b.head, gates = b.gated() ? b.hidden : 0;
        struct Matrix {
            Weight part;
            Long rows, columns;
            const Bf16 *slopes, *inputs;
            Long first;  // its first row among all of `slopes`

            Long groups() const { return (rows + MOST - 1) / MOST; }
            Long count() const { return groups() * (columns / PANEL); }
        };
        const Matrix each[] = {
            {QUERY, queries, b.width, work.joined_slopes, work.joined_inputs, 0},
            {KEY, keys, b.width, work.joined_slopes, work.joined_inputs, queries},
            {VALUE, keys, b.width, work.joined_slopes, work.joined_inputs, queries + keys},
            {OUTPUT, b.width, queries, work.output_slopes, work.output_inputs, 0},
            {GATE, gates, b.width, work.up_slopes, work.up_inputs, 0},
            {UP, b.hidden, b.width, work.up_slopes, work.up_inputs, gates},
            {DOWN, b.width, b.hidden, work.down_slopes, work.down_inputs, 0},
        };
        Long all = 0;
        for (const Matrix &one : each) all += one.count();
        parallel(all, 1, [&](Long begin, Long end, int) {
            const Units units;
            Long before = 0;
            for (const Matrix &one : each) {
                const Long panels = one.columns / PANEL;
                const Long stop = std::min(one.count(), end - before);
                for (Long at = std::max<Long>(0, begin - before); at < stop;) {
                    const Long row = at / panels * MOST, panel = at % panels;
                    const Long many = std::min(panels - panel, stop - at);
                    T *to = static_cast<T *>(b.slopes[one.part]) + row * one.columns +
                            panel * PANEL;
                    product(in_tiles(one.slopes, steps).from((one.first + row) / SIDE, 0),
                            one.inputs + panel * steps * LINES, steps * LINES,
                            std::min(MOST, one.rows - row), many, tiles_of(b) * (TOKENS / DEPTH),
                            [=](Long i, Long j, const float *line) {
                                for (Long c = 0; c < PANEL; c += LANES)
                                    store(to + i * one.columns + j * PANEL + c, load(line + c));
                            });
                    at += many;
                }
                before += one.count();
            }
        });
    }

    // Slopes of norms and biases: the tiles' shares added up, always in the same order.
    void vectors() const {
        const Long keys = b.keys * b.head;
        add_up(ATTENTION_NORM, sums.attention_norm, b.width);
        add_up(ATTENTION_NORM_BIAS, sums.attention_norm + b.width, b.width);
        add_up(QUERY_BIAS, sums.joined, b.attended());
        add_up(KEY_BIAS, sums.joined + b.attended(), keys);
        add_up(VALUE_BIAS, sums.joined + b.attended() + keys, keys);
        add_up(QUERY_NORM, sums.head_norms, b.head);
        add_up(KEY_NORM, sums.head_norms + b.head, b.head);
        add_up(OUTPUT_BIAS, sums.output, b.width);
        add_up(MLP_NORM, sums.mlp_norm, b.width);
        add_up(MLP_NORM_BIAS, sums.mlp_norm + b.width, b.width);
        add_up(UP_BIAS, sums.up, b.inner());
        add_up(DOWN_BIAS, sums.down, b.width);
    }

    void add_up(Weight part, Long at, Long count) const {
        T *to = static_cast<T *>(b.slopes[part]);
        if (to == nullptr) return;
        const Long tiles = tiles_of(b);
        each_vector(count, [&](Long c, auto here) {
            Vector all{};
            for (Long tile = 0; tile < tiles; ++tile) all += load(sums_of(tile) + at + c, here);
            store(to + c, all, here);
        });
    }

    // --- of a tile of tokens -------------------------------------------------------------------

    template <typename S>
    void dropped(Long begin, Long count, const S *from, uint32_t which, Bf16 *to) const {
        const Dropout dropout(b, which);
        for (Long row = 0; row < count; ++row, from += b.width, to += apart(b.width))
            for (Long c = 0; c < b.width; c += LANES) {
                const Vector g = load(from + c);
                store(to + c, dropout ? g * dropout.at((begin + row) * b.width + c) : g);
            }
    }

    void keep_slopes(const Bf16 *rows, Long width, Long tile, Long count, Weight bias,
                     float *total, Bf16 *to) const {
        const Long stride = apart(width);
        if (b.weights[bias] != nullptr)
            for (Long row = 0; row < count; ++row)
                for (Long c = 0; c < width; c += LANES)
                    store(total + c, load(total + c) + load(rows + row * stride + c));
        for (Long half = 0; half < TOKENS / DEPTH; ++half)
            for (Long c = 0; c < width; c += DEPTH) {
                Bf16 *upper = to + (c / SIDE * steps + tile * (TOKENS / DEPTH) + half) * TILE;
                turned(rows + half * DEPTH * stride + c, stride, count - half * DEPTH, DEPTH, upper,
                       upper + steps * TILE);
            }
    }

    void keep_inputs(const Bf16 *rows, Long width, Long tile, Long count, Bf16 *to) const {
        const Long stride = apart(width);
        for (Long half = 0; half < TOKENS / DEPTH; ++half)
            for (Long c = 0; c < width; c += PANEL) {
                Bf16 *tiles = to + (c / PANEL * steps + tile * (TOKENS / DEPTH) + half) * LINES;
                along(rows + half * DEPTH * stride + c, stride, count - half * DEPTH, PANEL, tiles,
                      tiles + TILE);
            }
    }

    auto to_floats(float *to) const {
        const Long width = apart(b.width);
        return [=](Long row, Long panel, const float *line) {
            std::memcpy(to + row * width + panel * PANEL, line, PANEL * sizeof(float));
        };
    }

    // The norm's slopes, with those that go past it; and once more what it made.
    template <typename O, typename D>
    void norm_back(const T *x, const Spread *spreads, Weight part, Long count, const float *slopes,
                   const O *past, D *dx, Bf16 *normed, float *total) const {
        const T *by = weight(part), *bias = weight(Weight(part + 1));
        const Long stride = apart(b.width);
        for (Long row = 0; row < count; ++row) {
            const Long at = row * b.width;
            norm_row_back(x + at, spreads[row], by, bias, b.norm_offset, slopes + row * stride,
                          past + at, b.width, b.centred != 0, dx + at, total,
                          bias == nullptr ? nullptr : total + b.width, normed + row * stride);
        }
    }
};

template <typename T>
void count(Block &b) {
    b.kept_bytes = Kept<T>(b, nullptr).bytes;
    b.backward_bytes = Work(b, nullptr).layout.used();
    Layout forward(nullptr);
    Packed(b, forward);
    b.forward_bytes = forward.used();
}

}  // namespace
}  // namespace ownwords

// How much memory `kept` and `work` must have.
OWNWORDS_API void ownwords_block_sizes(ownwords::Block *block) {
    ownwords::with_kind(int(block->kind), [&](auto *type) {
        ownwords::count<std::remove_pointer_t<decltype(type)>>(*block);
    });
}

OWNWORDS_API void ownwords_block_back(const ownwords::Block *block) {
    ownwords::with_kind(int(block->kind), [&](auto *type) {
        ownwords::Backward<std::remove_pointer_t<decltype(type)>>(*block).run();
    });
}
