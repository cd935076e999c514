// A whole block of a transformer, forward and back, of all kinds there are: to be run under
// sanitizers.
#include "train/block.h"

#include "reference.h"

using namespace reference;

namespace {

// GEMMA3 has adapters, and its matrices are frozen.
enum Family { GPT2, QWEN3, GEMMA3 };
const char *const NAMES[] = {"GPT-2's block", "Qwen3's block", "Gemma 3's block with adapters"};

// A block with all there can be, in numbers of double.
struct BlockReference {
    i64 texts = 2, tokens = 37, width = 64, queries = 4, keys = 2, head = 32, hidden = 96;
    bool centred, gelu, gated, turns;
    double dropout, offset, norm_eps = 1e-5, head_eps = 1e-6, scale = 0.2;
    std::vector<int32_t> first;
    Doubles cosine, sine, x, dy, masks[2];
    Doubles weights[ROLE_COUNT];
    i64 rank = 0;  // of each product's adapter
    Doubles down[PRODUCT_COUNT], up[PRODUCT_COUNT];

    explicit BlockReference(Family family)
        : centred(family == GPT2),
          gelu(family != QWEN3),
          gated(family != GPT2),
          turns(family != GPT2),
          dropout(family == GPT2 ? 0 : 0.3),
          offset(family == GEMMA3 ? 1 : 0) {
        const bool modern = family != GPT2;
        const i64 reference_attention = queries * head, kv_width = keys * head;
        const auto matrix = [&](Role part, i64 rows, i64 columns) {
            weights[part] = random_values(rows * columns, 0, 1 / std::sqrt(double(columns)));
        };
        matrix(ROLE_QUERY, reference_attention, width), matrix(ROLE_KEY, kv_width, width),
            matrix(ROLE_VALUE, kv_width, width);
        matrix(ROLE_OUTPUT, width, reference_attention), matrix(ROLE_UP, hidden, width),
            matrix(ROLE_DOWN, width, hidden);
        if (gated) matrix(ROLE_GATE, hidden, width);
        weights[ROLE_ATTENTION_NORM] = random_values(width, 1 - offset, 0.2),
        weights[ROLE_MLP_NORM] = random_values(width, 1 - offset, 0.2);
        if (family == GEMMA3) {
            for (const Role part : OUTPUT_NORMS) weights[part] = random_values(width, 0, 0.2);
            rank = 64;
            for (int of = 0; of < PRODUCT_COUNT; ++of) {
                down[of] = random_values(rank * inputs(of), 0, 0.1);
                up[of] = random_values(outputs(of) * rank, 0, 0.1);
            }
        }
        if (modern) {
            weights[ROLE_QUERY_NORM] = random_values(head, 1 - offset, 0.2),
            weights[ROLE_KEY_NORM] = random_values(head, 1 - offset, 0.2);
            first = document_starts(texts, tokens);
        } else {
            for (const Role part :
                 {ROLE_ATTENTION_NORM_BIAS, ROLE_MLP_NORM_BIAS, ROLE_OUTPUT_BIAS, ROLE_DOWN_BIAS})
                weights[part] = random_values(width, 0, 0.2);
            weights[ROLE_QUERY_BIAS] = random_values(reference_attention, 0, 0.2);
            weights[ROLE_KEY_BIAS] = random_values(kv_width, 0, 0.2),
            weights[ROLE_VALUE_BIAS] = random_values(kv_width, 0, 0.2);
            weights[ROLE_UP_BIAS] = random_values(hidden, 0, 0.2);
        }
        for (i64 t = 0; turns && t < tokens; ++t)
            for (i64 d = 0; d < head; ++d) {
                const double angle = double(t) * std::pow(0.7, double(d % (head / 2)));
                cosine.push_back(std::cos(angle)), sine.push_back(std::sin(angle));
            }
        if (turns) cosine = to_doubles(cast<Bf16>(cosine)), sine = to_doubles(cast<Bf16>(sine));
        x = random_values(texts * tokens * width), dy = random_values(texts * tokens * width);
    }

    i64 inputs(int of) const {
        return of == PRODUCT_OUTPUT ? queries * head : of == PRODUCT_DOWN ? hidden : width;
    }
    i64 outputs(int of) const {
        return of == PRODUCT_QKV  ? (queries + 2 * keys) * head
               : of == PRODUCT_UP ? (gated ? 2 : 1) * hidden
                                  : width;
    }

    // What the adapter adds to outputs from `first` on.
    void add_adapter(const Doubles &from, int of, i64 first, i64 columns, Doubles &to) const {
        if (rank == 0) return;
        const i64 inner = inputs(of);
        for (i64 row = 0; row < i64(from.size()) / inner; ++row)
            for (i64 r = 0; r < rank; ++r) {
                double low = 0;
                for (i64 k = 0; k < inner; ++k)
                    low += from[row * inner + k] * down[of][r * inner + k];
                for (i64 c = 0; c < columns; ++c)
                    to[row * columns + c] += low * up[of][(first + c) * rank + r];
            }
    }

    Doubles times(const Doubles &from, Role part, Role bias) const {
        const Doubles &weight = weights[part], &bias_values = weights[bias];
        const i64 inner = part == ROLE_OUTPUT ? queries * head : part == ROLE_DOWN ? hidden : width;
        const i64 rows = i64(from.size()) / inner, columns = i64(weight.size()) / inner;
        Doubles result(static_cast<size_t>(rows * columns));
        for (i64 row = 0; row < rows; ++row)
            for (i64 c = 0; c < columns; ++c) {
                double sum = bias_values.empty() ? 0 : bias_values[c];
                for (i64 k = 0; k < inner; ++k)
                    sum += from[row * inner + k] * weight[c * inner + k];
                result[row * columns + c] = sum;
            }
        const i64 kv_width = keys * head;
        const i64 first = part == ROLE_KEY              ? queries * head
                          : part == ROLE_VALUE          ? queries * head + kv_width
                          : part == ROLE_UP && gated    ? hidden
                                                        : 0;
        const int of = part == ROLE_OUTPUT                       ? PRODUCT_OUTPUT
                       : part == ROLE_DOWN                       ? PRODUCT_DOWN
                       : part == ROLE_GATE || part == ROLE_UP ? PRODUCT_UP
                                                                 : PRODUCT_QKV;
        add_adapter(from, of, first, columns, result);
        return result;
    }

    Doubles added(const Doubles &before, const Doubles &outputs, int stream) const {
        const Doubles &norm = weights[OUTPUT_NORMS[stream]];
        const Doubles result =
            norm.empty() ? outputs
                         : reference_norm(outputs, norm, Doubles{}, norm_eps, offset, false);
        Doubles sum = before;
        for (size_t i = 0; i < sum.size(); ++i)
            sum[i] += result[i] * (masks[stream].empty() ? 1 : masks[stream][i]);
        return sum;
    }

    Doubles forward() const {
        const i64 rows = texts * tokens, all = queries + 2 * keys;
        Doubles item = reference_norm(x, weights[ROLE_ATTENTION_NORM],
                                      weights[ROLE_ATTENTION_NORM_BIAS], norm_eps, offset, centred);
        const Doubles parts[] = {times(item, ROLE_QUERY, ROLE_QUERY_BIAS),
                                 times(item, ROLE_KEY, ROLE_KEY_BIAS),
                                 times(item, ROLE_VALUE, ROLE_VALUE_BIAS)};
        const i64 counts[] = {queries, keys, keys};
        Doubles qkv(static_cast<size_t>(rows * all * head));
        for (i64 row = 0; row < rows; ++row)
            for (i64 part = 0, at = row * all * head; part < 3; ++part)
                for (i64 d = 0; d < counts[part] * head; ++d)
                    qkv[at++] = parts[part][row * counts[part] * head + d];
        if (turns)
            qkv = reference_norm_and_rope(qkv, queries, keys, head, weights[ROLE_QUERY_NORM],
                                          weights[ROLE_KEY_NORM], head_eps, offset, cosine, sine,
                                          tokens, head);
        const Doubles attn_out =
            reference_attention(qkv, texts, tokens, queries, keys, head, scale, first);
        const Doubles resid_mid = added(x, times(attn_out, ROLE_OUTPUT, ROLE_OUTPUT_BIAS), 0);
        item = reference_norm(resid_mid, weights[ROLE_MLP_NORM], weights[ROLE_MLP_NORM_BIAS],
                              norm_eps, offset, centred);
        Doubles inner = times(item, ROLE_UP, ROLE_UP_BIAS);
        const Doubles gate = gated ? times(item, ROLE_GATE, ROLE_NONE) : Doubles{};
        for (size_t i = 0; i < inner.size(); ++i)
            inner[i] = gated ? reference_activation(gate[i], gelu) * inner[i]
                             : reference_activation(inner[i], gelu);
        return added(resid_mid, times(inner, ROLE_DOWN, ROLE_DOWN_BIAS), 1);
    }

    bool is_frozen(int part) const {
        return rank > 0 && i64(weights[part].size()) > std::max(width, head);
    }

    static constexpr Role ROLE_NONE = ROLE_ATTENTION_NORM_BIAS;  // which no gated block here has
};

// Memory that vectors and tiles may take for theirs, of just so many bytes.
struct AlignedMemory {
    explicit AlignedMemory(i64 bytes) : at(::operator new(size_t(bytes), std::align_val_t(64))) {}
    ~AlignedMemory() { ::operator delete(at, std::align_val_t(64)); }
    AlignedMemory(const AlignedMemory &) = delete;
    AlignedMemory &operator=(const AlignedMemory &) = delete;
    void *at;
};

template <typename T>
struct TrainedModel {
    std::vector<T> y, dx, grads[ROLE_COUNT];
    std::vector<float> down_grads[PRODUCT_COUNT], up_grads[PRODUCT_COUNT];
};

template <typename T>
TrainedModel<T> run_block(BlockReference &reference) {
    BlockArgs b{};
    b.dtype = DTYPE<T>, b.batch = reference.texts, b.tokens = reference.tokens,
    b.width = reference.width;
    b.query_heads = reference.queries, b.kv_heads = reference.keys, b.head_dim = reference.head,
    b.hidden = reference.hidden;
    b.layer_norm = reference.centred, b.gelu = reference.gelu, b.rope_period = reference.tokens;
    b.first_stride = reference.first.empty() ? 0 : reference.tokens;
    b.dropout_seed = 0x123456789abcdefu;
    b.dropout = float(reference.dropout), b.norm_eps = float(reference.norm_eps);
    b.norm_offset = b.head_offset = float(reference.offset), b.head_eps = float(reference.head_eps);
    b.scale = float(reference.scale);
    b.first_token = reference.first.empty() ? nullptr : reference.first.data();
    const auto x = cast<T>(reference.x), dy = cast<T>(reference.dy);
    const auto cosine = cast<T>(reference.cosine), sine = cast<T>(reference.sine);
    b.x = x.data(), b.dy = dy.data();
    if (reference.turns) b.cos = cosine.data(), b.sin = sine.data();
    std::vector<T> weights[ROLE_COUNT];
    TrainedModel<T> result{std::vector<T>(x.size()), std::vector<T>(x.size()), {}, {}, {}};
    for (int part = 0; part < ROLE_COUNT; ++part) {
        weights[part] = cast<T>(reference.weights[part]);
        if (weights[part].empty()) continue;
        b.weights[part] = weights[part].data();
        if (reference.is_frozen(part)) continue;
        result.grads[part].resize(weights[part].size());
        b.grads[part] = result.grads[part].data();
    }
    std::vector<float> down[PRODUCT_COUNT], up[PRODUCT_COUNT];
    for (int of = 0; of < PRODUCT_COUNT; ++of) {
        down[of] = cast<float>(reference.down[of]), up[of] = cast<float>(reference.up[of]);
        result.down_grads[of].resize(down[of].size()), result.up_grads[of].resize(up[of].size());
        if (reference.rank > 0)
            b.adapters[of] = {reference.rank, down[of].data(), up[of].data(),
                              result.down_grads[of].data(), result.up_grads[of].data()};
    }
    b.y = result.y.data(), b.dx = result.dx.data();
    ownwords_block_sizes(&b);
    const AlignedMemory kept(b.saved_bytes), forward(b.forward_scratch_bytes),
        backward(b.backward_scratch_bytes);
    b.saved = kept.at, b.scratch = forward.at;
    ownwords_block_forward(&b);
    b.scratch = backward.at;
    ownwords_block_backward(&b);
    if (reference.dropout > 0)
        for (uint32_t stream = 0; stream < 2; ++stream) {
            const Dropout dropout(Block(b), stream);
            reference.masks[stream].clear();
            for (i64 at = 0; at < b.batch * b.tokens * b.width; at += LANES)
                for (i64 c = 0; c < LANES; ++c)
                    reference.masks[stream].push_back(dropout.at(at)[c]);
        }
    return result;
}

template <typename T>
bool same(const TrainedModel<T> &item, const TrainedModel<T> &other) {
    bool same =
        to_doubles(item.y) == to_doubles(other.y) && to_doubles(item.dx) == to_doubles(other.dx);
    for (int part = 0; part < ROLE_COUNT; ++part)
        same &= to_doubles(item.grads[part]) == to_doubles(other.grads[part]);
    for (int of = 0; of < PRODUCT_COUNT; ++of)
        same &= item.down_grads[of] == other.down_grads[of] &&
                item.up_grads[of] == other.up_grads[of];
    return same;
}

template <typename T>
void blocks(Family family) {
    BlockReference reference(family);
    use_threads(1);
    const TrainedModel<T> result = run_block<T>(reference);
    for (const int threads : {2, 5}) {
        use_threads(threads);
        expect(same(run_block<T>(reference), result), label<T>("a block, as with one thread"));
    }
    for (const Doubles &mask : reference.masks) {
        double kept = 0;
        for (const double item : mask) {
            kept += item > 0;
            expect(item == 0 || std::abs(item - 1 / 0.7) < 1e-6, "dropout leaves or takes");
        }
        if (!mask.empty())
            expect(std::abs(kept / double(mask.size()) - 0.7) < 0.03, "as much is left as should");
    }
    const std::string stream = NAMES[family];
    // What goes past everything would hide what is wrong in what is added.
    Doubles expected = reference.forward(), actual = to_doubles(result.y);
    for (size_t i = 0; i < expected.size(); ++i)
        expected[i] -= reference.x[i], actual[i] -= reference.x[i];
    check_close(label<T>(stream), actual, expected, ROUNDED);
    const auto loss = [&reference](Doubles *part) {
        return [&reference, part](const Doubles &other) {
            const Doubles before = *part;
            *part = other;
            const double actual = dot(reference.forward(), reference.dy);
            *part = before;
            return actual;
        };
    };
    const Doubles x = reference.x;
    check_gradient(label<T>(stream + "'s slopes"), loss(&reference.x), x, to_doubles(result.dx),
                   ROUNDED);
    for (int part = 0; part < ROLE_COUNT; ++part) {
        if (reference.weights[part].empty() || reference.is_frozen(part)) continue;
        const Doubles at = reference.weights[part];
        if (part == ROLE_KEY_BIAS &&
            !reference.turns) {  // what all keys have in common changes nothing
            const double usual = length(to_doubles(result.grads[ROLE_QUERY_BIAS]));
            expect(length(to_doubles(result.grads[part])) < 0.05 * usual,
                   label<T>("no slopes of keys"));
            continue;
        }
        check_gradient(label<T>(stream + "'s slopes of weights " + std::to_string(part)),
                       loss(&reference.weights[part]), at, to_doubles(result.grads[part]), ROUNDED);
    }
    for (int of = 0; of < PRODUCT_COUNT && reference.rank > 0; ++of) {
        const std::string what = label<T>(stream + ", product " + std::to_string(of));
        const Doubles down = reference.down[of], up = reference.up[of];
        check_gradient(what + ", down", loss(&reference.down[of]), down,
                       to_doubles(result.down_grads[of]), ROUNDED);
        check_gradient(what + ", up", loss(&reference.up[of]), up, to_doubles(result.up_grads[of]),
                       ROUNDED);
    }
}

}  // namespace

int main() {
    ownwords_best_isa();  // asks the system for what it may use
    for (const Family family : {GPT2, QWEN3, GEMMA3}) blocks<float>(family), blocks<Bf16>(family);
    if (failures == 0) std::printf("blocks: all as it should be\n");
    return failures != 0;
}
