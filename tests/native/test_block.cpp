// A whole block of a transformer, forward and back, of both kinds there are: to be run under
// sanitizers.
#include "block.h"

#include "plain.h"

using namespace plain;

extern "C" {
void ownwords_block_sizes(Block *);
void ownwords_block(const Block *);
void ownwords_block_back(const Block *);
}

namespace {

// A block with all there can be, in numbers of double.
struct Plain {
    Long texts = 2, tokens = 37, width = 64, queries = 4, keys = 2, head = 32, hidden = 96;
    bool centred, gelu, gated, turns;
    double dropout, norm_eps = 1e-5, head_eps = 1e-6, offset = 0, scale = 0.2;
    std::vector<int32_t> first;
    Wide cosine, sine, x, dy, masks[2];
    Wide weights[WEIGHTS];

    // As Qwen3 and Gemma have it, or as GPT-2 does.
    explicit Plain(bool modern)
        : centred(!modern), gelu(!modern), gated(modern), turns(modern), dropout(modern ? 0.3 : 0) {
        const Long attended = queries * head, others = keys * head;
        const auto matrix = [&](Weight part, Long rows, Long columns) {
            weights[part] = drawn(rows * columns, 0, 1 / std::sqrt(double(columns)));
        };
        matrix(QUERY, attended, width), matrix(KEY, others, width), matrix(VALUE, others, width);
        matrix(OUTPUT, width, attended), matrix(UP, hidden, width), matrix(DOWN, width, hidden);
        if (gated) matrix(GATE, hidden, width);
        weights[ATTENTION_NORM] = drawn(width, 1, 0.2), weights[MLP_NORM] = drawn(width, 1, 0.2);
        if (modern) {
            weights[QUERY_NORM] = drawn(head, 1, 0.2), weights[KEY_NORM] = drawn(head, 1, 0.2);
            first = documents(texts, tokens);
        } else {
            for (const Weight part : {ATTENTION_NORM_BIAS, MLP_NORM_BIAS, OUTPUT_BIAS, DOWN_BIAS})
                weights[part] = drawn(width, 0, 0.2);
            weights[QUERY_BIAS] = drawn(attended, 0, 0.2);
            weights[KEY_BIAS] = drawn(others, 0, 0.2), weights[VALUE_BIAS] = drawn(others, 0, 0.2);
            weights[UP_BIAS] = drawn(hidden, 0, 0.2);
        }
        for (Long t = 0; turns && t < tokens; ++t)
            for (Long d = 0; d < head; ++d) {
                const double angle = double(t) * std::pow(0.7, double(d % (head / 2)));
                cosine.push_back(std::cos(angle)), sine.push_back(std::sin(angle));
            }
        if (turns) cosine = back(as<Bf16>(cosine)), sine = back(as<Bf16>(sine));
        x = drawn(texts * tokens * width), dy = drawn(texts * tokens * width);
    }

    Wide times(const Wide &from, Weight part, Weight bias) const {
        const Wide &by = weights[part], &more = weights[bias];
        const Long inner = part == OUTPUT ? queries * head : part == DOWN ? hidden : width;
        const Long rows = Long(from.size()) / inner, columns = Long(by.size()) / inner;
        Wide made(static_cast<size_t>(rows * columns));
        for (Long row = 0; row < rows; ++row)
            for (Long c = 0; c < columns; ++c) {
                double sum = more.empty() ? 0 : more[c];
                for (Long k = 0; k < inner; ++k) sum += from[row * inner + k] * by[c * inner + k];
                made[row * columns + c] = sum;
            }
        return made;
    }

    Wide added(const Wide &before, const Wide &made, int which) const {
        Wide sum = before;
        for (size_t i = 0; i < sum.size(); ++i)
            sum[i] += made[i] * (masks[which].empty() ? 1 : masks[which][i]);
        return sum;
    }

    Wide forward() const {
        const Long rows = texts * tokens, all = queries + 2 * keys;
        Wide one = normed(x, weights[ATTENTION_NORM], weights[ATTENTION_NORM_BIAS], norm_eps,
                          offset, centred);
        const Wide parts[] = {times(one, QUERY, QUERY_BIAS), times(one, KEY, KEY_BIAS),
                              times(one, VALUE, VALUE_BIAS)};
        const Long counts[] = {queries, keys, keys};
        Wide joined(static_cast<size_t>(rows * all * head));
        for (Long row = 0; row < rows; ++row)
            for (Long part = 0, at = row * all * head; part < 3; ++part)
                for (Long d = 0; d < counts[part] * head; ++d)
                    joined[at++] = parts[part][row * counts[part] * head + d];
        if (turns)
            joined = turned_heads(joined, queries, keys, head, weights[QUERY_NORM],
                                  weights[KEY_NORM], head_eps, offset, cosine, sine, tokens, head);
        const Wide seen = attended(joined, texts, tokens, queries, keys, head, scale, first);
        const Wide middle = added(x, times(seen, OUTPUT, OUTPUT_BIAS), 0);
        one = normed(middle, weights[MLP_NORM], weights[MLP_NORM_BIAS], norm_eps, offset, centred);
        Wide inner = times(one, UP, UP_BIAS);
        const Wide gate = gated ? times(one, GATE, WEIGHTS_NONE) : Wide{};
        for (size_t i = 0; i < inner.size(); ++i)
            inner[i] = gated ? activated(gate[i], gelu) * inner[i] : activated(inner[i], gelu);
        return added(middle, times(inner, DOWN, DOWN_BIAS), 1);
    }

    static constexpr Weight WEIGHTS_NONE = ATTENTION_NORM_BIAS;  // which no gated block here has
};

// Memory that vectors and tiles may take for theirs, of just so many bytes.
struct Memory {
    explicit Memory(Long bytes)
        : at(::operator new(size_t(bytes), std::align_val_t(64))) {}
    ~Memory() { ::operator delete(at, std::align_val_t(64)); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    void *at;
};

template <typename T>
struct TrainedModel {
    std::vector<T> y, dx, slopes[WEIGHTS];
};

template <typename T>
TrainedModel<T> computed(Plain &plain) {
    Block b{};
    b.kind = KIND<T>, b.batch = plain.texts, b.tokens = plain.tokens, b.width = plain.width;
    b.queries = plain.queries, b.keys = plain.keys, b.head = plain.head, b.hidden = plain.hidden;
    b.centred = plain.centred, b.gelu = plain.gelu, b.period = plain.tokens;
    b.first_step = plain.first.empty() ? 0 : plain.tokens;
    b.seed = 0x123456789abcdefu;
    b.dropout = float(plain.dropout), b.norm_eps = float(plain.norm_eps);
    b.norm_offset = b.head_offset = float(plain.offset), b.head_eps = float(plain.head_eps);
    b.scale = float(plain.scale);
    b.first = plain.first.empty() ? nullptr : plain.first.data();
    const auto x = as<T>(plain.x), dy = as<T>(plain.dy);
    const auto cosine = as<T>(plain.cosine), sine = as<T>(plain.sine);
    b.x = x.data(), b.dy = dy.data();
    if (plain.turns) b.cosine = cosine.data(), b.sine = sine.data();
    std::vector<T> weights[WEIGHTS];
    TrainedModel<T> made{std::vector<T>(x.size()), std::vector<T>(x.size()), {}};
    for (int part = 0; part < WEIGHTS; ++part) {
        weights[part] = as<T>(plain.weights[part]);
        if (weights[part].empty()) continue;
        made.slopes[part].resize(weights[part].size());
        b.weights[part] = weights[part].data(), b.slopes[part] = made.slopes[part].data();
    }
    b.y = made.y.data(), b.dx = made.dx.data();
    ownwords_block_sizes(&b);
    const Memory kept(b.kept_bytes), forward(b.forward_bytes), backward(b.backward_bytes);
    b.kept = kept.at, b.work = forward.at;
    ownwords_block(&b);
    b.work = backward.at;
    ownwords_block_back(&b);
    if (plain.dropout > 0)
        for (uint32_t which = 0; which < 2; ++which) {
            const Dropout dropout(b, which);
            plain.masks[which].clear();
            for (Long at = 0; at < b.rows() * b.width; at += LANES)
                for (Long c = 0; c < LANES; ++c)
                    plain.masks[which].push_back(dropout.at(at)[c]);
        }
    return made;
}

template <typename T>
bool alike(const TrainedModel<T> &one, const TrainedModel<T> &other) {
    bool same = back(one.y) == back(other.y) && back(one.dx) == back(other.dx);
    for (int part = 0; part < WEIGHTS; ++part)
        same &= back(one.slopes[part]) == back(other.slopes[part]);
    return same;
}

template <typename T>
void blocks(bool modern) {
    Plain plain(modern);
    compute_with(1);
    const TrainedModel<T> made = computed<T>(plain);
    for (const int threads : {2, 5}) {
        compute_with(threads);
        expect(alike(computed<T>(plain), made), named<T>("a block, as with one thread"));
    }
    for (const Wide &mask : plain.masks) {
        double kept = 0;
        for (const double one : mask) {
            kept += one > 0;
            expect(one == 0 || std::abs(one - 1 / 0.7) < 1e-6, "dropout leaves or takes");
        }
        if (!mask.empty())
            expect(std::abs(kept / double(mask.size()) - 0.7) < 0.03, "as much is left as should");
    }
    const std::string which = modern ? "a modern block" : "GPT-2's block";
    // What goes past everything would hide what is wrong in what is added.
    Wide wanted = plain.forward(), found = back(made.y);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] -= plain.x[i], found[i] -= plain.x[i];
    near(named<T>(which), found, wanted, ROUNDED);
    const auto loss = [&plain](Wide *part) {
        return [&plain, part](const Wide &other) {
            const Wide before = *part;
            *part = other;
            const double found = dot(plain.forward(), plain.dy);
            *part = before;
            return found;
        };
    };
    const Wide x = plain.x;
    steep(named<T>(which + "'s slopes"), loss(&plain.x), x, back(made.dx), ROUNDED);
    for (int part = 0; part < WEIGHTS; ++part) {
        if (plain.weights[part].empty()) continue;
        const Wide at = plain.weights[part];
        if (part == KEY_BIAS && !plain.turns) {  // what all keys have in common changes nothing
            const double usual = length(back(made.slopes[QUERY_BIAS]));
            expect(length(back(made.slopes[part])) < 0.05 * usual, named<T>("no slopes of keys"));
            continue;
        }
        steep(named<T>(which + "'s slopes of weights " + std::to_string(part)),
              loss(&plain.weights[part]), at, back(made.slopes[part]), ROUNDED);
    }
}

}  // namespace

int main() {
    ownwords_level();  // asks the system for what it may use
    for (const bool modern : {false, true}) blocks<float>(modern), blocks<Bf16>(modern);
    if (failures == 0) std::printf("blocks: all as it should be\n");
    return failures != 0;
}
