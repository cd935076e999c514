// The training's functions, forward and back, on odd shapes: to be run under sanitizers. What they
// compute is compared with PyTorch in tests/unit.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api.h"
#include "simd/int16_rows.h"

using namespace ownwords;

namespace {

// Large allocations fail while this is set: what the tests themselves need are small ones.
std::atomic<bool> refuse_allocations{false};
int failures = 0;

void expect(bool condition, const std::string &what) {
    if (condition) return;
    ++failures;
    std::printf("failed: %s\n", what.c_str());
}

int most_threads = 1;

void use_threads(int threads) {
    most_threads = threads;
    ownwords_set_threads(threads);
}

// --- numbers ------------------------------------------------------------------------------------

std::mt19937 rng(7);

template <typename T>
std::vector<T> numbers(i64 count, double mean = 0, double deviation = 1) {
    std::normal_distribution<double> normal(mean, deviation);
    std::vector<T> result(static_cast<size_t>(count));
    for (T &number : result) store(number, float(normal(rng)));
    return result;
}

template <typename T>
void expect_finite(const std::string &what, const std::vector<T> &values) {
    bool finite = true;
    for (const T value : values) finite &= std::isfinite(to_float(value));
    expect(finite, what + (sizeof(T) == 4 ? ", float" : ", bfloat16") + ", threads " +
                       std::to_string(most_threads));
}

template <typename T>
constexpr int DTYPE = std::is_same_v<T, int16_t> ? PRODUCTS_INT16 : sizeof(T) == 4 ? 0 : 1;

// What each token may see first: documents that begin where they like.
std::vector<int32_t> document_starts(i64 texts, i64 tokens) {
    std::vector<int32_t> result;
    for (i64 text = 0; text < texts; ++text)
        for (i64 t = 0, first = 0; t < tokens; ++t) {
            if (t % (19 + 8 * text) == 11) first = t;
            result.push_back(int32_t(first));
        }
    return result;
}

// --- losses and optimizers ----------------------------------------------------------------------

std::vector<int64_t> some_targets(i64 rows, i64 vocabulary) {
    std::vector<int64_t> targets(static_cast<size_t>(rows));
    for (int64_t &target : targets) target = int64_t(rng() % uint64_t(vocabulary));
    return targets;
}

// The status of the loss of some rows, whose gradients are finite. `wrong` replaces a target.
template <typename T, typename P>
int head_loss(i64 chunk_rows, i64 width = 64, int64_t wrong = 0) {
    const i64 rows = 150, vocabulary = 333;
    const auto hidden = numbers<T>(rows * width), head = numbers<T>(vocabulary * width, 0, 0.2);
    auto targets = some_targets(rows, vocabulary);
    if (wrong != 0) targets[7] = wrong;
    const auto weights = numbers<float>(rows, 1, 0.2);
    std::vector<T> hidden_grad(hidden.size());
    std::vector<float> head_grad(head.size());
    double sum = 0;
    HeadLossArgs args{};
    args.dtype = DTYPE<T>, args.product_dtype = DTYPE<P>;
    args.rows = rows, args.width = width, args.vocabulary = vocabulary;
    args.chunk_rows = chunk_rows;
    args.hidden = hidden.data(), args.head = head.data();
    args.targets = targets.data(), args.weights = weights.data(), args.sum = &sum;
    args.hidden_grad = hidden_grad.data(), args.head_grad = head_grad.data();
    expect(ownwords_head_loss_size(&args) == STATUS_OK, "a head's loss is measured");
    std::vector<char> scratch(size_t(args.scratch_bytes) + 64);
    args.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
    refuse_allocations = width > 64;
    const int status = ownwords_head_loss(&args);
    refuse_allocations = false;
    expect_finite("the gradient of hidden states", hidden_grad);
    expect_finite("the gradient of a head", head_grad);
    return status;
}

template <typename T>
void adamw(bool has_copy) {
    const i64 count = 70'001;
    auto weight = numbers<float>(count);
    std::vector<float> first(weight.size()), second(weight.size());
    std::vector<Bf16> bf16_copy(has_copy ? weight.size() : 0);
    const auto gradient = numbers<T>(count);
    ownwords_adamw(DTYPE<T>, weight.data(), has_copy ? bf16_copy.data() : nullptr, gradient.data(),
                   first.data(), second.data(), count, 0.5f, 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f,
                   0.05f);
    expect_finite("AdamW's weights", weight);
}

template <typename T, typename P>
void muon() {
    std::vector<std::vector<T>> gradients;
    std::vector<std::vector<float>> momenta, weights;
    std::vector<MuonMatrix> all;
    for (const auto &[rows, columns] :
         std::vector<std::pair<i64, i64>>{{32, 96}, {160, 32}, {64, 64}, {96, 224}}) {
        gradients.push_back(numbers<T>(rows * columns));
        momenta.push_back(numbers<float>(rows * columns));
        weights.push_back(numbers<float>(rows * columns));
        all.push_back({gradients.back().data(), momenta.back().data(), weights.back().data(),
                       nullptr, rows, columns, 0.1f});
    }
    ownwords_muon(DTYPE<T>, DTYPE<P>, all.data(), i64(all.size()), 0.7f, 0.95f, 0.9f, 5);
    for (const auto &weight : weights) expect_finite("Muon's weights", weight);
}

// --- whole blocks -------------------------------------------------------------------------------

// Memory that vectors and tiles may take for theirs, of just so many bytes.
struct AlignedMemory {
    explicit AlignedMemory(i64 bytes) : at(::operator new(size_t(bytes), std::align_val_t(64))) {}
    ~AlignedMemory() { ::operator delete(at, std::align_val_t(64)); }
    AlignedMemory(const AlignedMemory &) = delete;
    AlignedMemory &operator=(const AlignedMemory &) = delete;
    void *at;
};

enum Family { GPT2, QWEN3, GEMMA3 };  // Gemma 3 with adapters, and its matrices frozen

// The outputs and gradients of a block of all there can be: the same on any number of threads.
template <typename T, typename P>
std::vector<std::vector<T>> run_block(Family family) {
    rng.seed(5);
    const i64 texts = 2, tokens = 37, width = 64, queries = 4, keys = 2, head = 32, hidden = 96;
    const bool is_gpt2 = family == GPT2;
    const i64 q = queries * head, kv = keys * head, rank = family == GEMMA3 ? 64 : 0;
    std::vector<std::pair<Role, i64>> sizes{
        {ROLE_QUERY, q * width},    {ROLE_KEY, kv * width},       {ROLE_VALUE, kv * width},
        {ROLE_OUTPUT, width * q},   {ROLE_UP, hidden * width},    {ROLE_DOWN, width * hidden},
        {ROLE_MLP_NORM, width},     {ROLE_ATTENTION_NORM, width},
    };
    if (is_gpt2)
        sizes.insert(sizes.end(), {{ROLE_ATTENTION_NORM_BIAS, width},
                                   {ROLE_MLP_NORM_BIAS, width},
                                   {ROLE_OUTPUT_BIAS, width},
                                   {ROLE_DOWN_BIAS, width},
                                   {ROLE_QUERY_BIAS, q},
                                   {ROLE_KEY_BIAS, kv},
                                   {ROLE_VALUE_BIAS, kv},
                                   {ROLE_UP_BIAS, hidden}});
    else
        sizes.insert(sizes.end(), {{ROLE_GATE, hidden * width},
                                   {ROLE_QUERY_NORM, head},
                                   {ROLE_KEY_NORM, head}});
    if (family == GEMMA3)
        sizes.insert(sizes.end(),
                     {{ROLE_ATTENTION_OUTPUT_NORM, width}, {ROLE_MLP_OUTPUT_NORM, width}});
    BlockArgs b{};
    b.dtype = DTYPE<T>, b.product_dtype = DTYPE<P>, b.batch = texts, b.tokens = tokens, b.width = width;
    b.query_heads = queries, b.kv_heads = keys, b.head_dim = head, b.hidden = hidden;
    b.layer_norm = is_gpt2, b.gelu = family != QWEN3, b.rope_period = tokens;
    b.dropout_seed = 0x123456789abcdefu, b.dropout = is_gpt2 ? 0 : 0.3f;
    b.norm_eps = 1e-5f, b.head_eps = 1e-6f, b.scale = 0.2f;
    const auto first = document_starts(texts, tokens);
    const auto x = numbers<T>(texts * tokens * width), dy = numbers<T>(x.size());
    const auto cosine = numbers<T>(tokens * head), sine = numbers<T>(tokens * head);
    b.x = x.data(), b.dy = dy.data();
    if (!is_gpt2) {
        b.cos = cosine.data(), b.sin = sine.data();
        b.first_token = first.data(), b.first_stride = tokens;
    }
    std::vector<std::vector<T>> weights, results{std::vector<T>(x.size()), std::vector<T>(x.size())};
    for (const auto &[role, size] : sizes) {
        weights.push_back(numbers<T>(size, 0, 0.1));
        results.emplace_back(rank > 0 && size > width ? 0 : size);
    }
    b.y = results[0].data(), b.dx = results[1].data();
    for (size_t i = 0; i < sizes.size(); ++i) {
        b.weights[sizes[i].first] = weights[i].data();
        if (!results[i + 2].empty()) b.grads[sizes[i].first] = results[i + 2].data();
    }
    const i64 inputs[] = {width, q, width, hidden};
    const i64 outputs[] = {q + 2 * kv, width, 2 * hidden, width};
    std::vector<std::vector<float>> adapters;
    for (int product = 0; rank > 0 && product < PRODUCT_COUNT; ++product) {
        for (int copy = 0; copy < 2; ++copy) {  // the weights, and room for their gradients
            adapters.push_back(numbers<float>(rank * inputs[product], 0, 0.1));
            adapters.push_back(numbers<float>(outputs[product] * rank, 0, 0.1));
        }
        const auto at = adapters.end() - 4;
        b.adapters[product] = {rank, at[0].data(), at[1].data(), at[2].data(), at[3].data()};
    }
    ownwords_block_sizes(&b);
    const AlignedMemory kept(b.saved_bytes), forward(b.forward_scratch_bytes),
        backward(b.backward_scratch_bytes);
    b.saved = kept.at, b.scratch = forward.at;
    expect(ownwords_block_forward(&b) == STATUS_OK, "a block forward");
    b.scratch = backward.at;
    expect(ownwords_block_backward(&b) == STATUS_OK, "a block backward");
    for (const auto &result : results) expect_finite("a block", result);
    for (const auto &result : adapters) expect_finite("a block's adapters", result);
    return results;
}

template <typename T>
bool same(const std::vector<std::vector<T>> &some, const std::vector<std::vector<T>> &others) {
    for (size_t i = 0; i < some.size(); ++i)
        for (size_t j = 0; j < some[i].size(); ++j)
            if (to_float(some[i][j]) != to_float(others[i][j])) return false;
    return some.size() == others.size();
}

template <typename T, typename P>
void blocks(Family family) {
    use_threads(1);
    const auto expected = run_block<T, P>(family);
    for (const int threads : {2, 5}) {
        use_threads(threads);
        expect(same(run_block<T, P>(family), expected), "a block, as with one thread");
    }
}

// Products of int16 against plain sums of 64 bits; a column is also a row, their largest product.
void int16_products(i64 inner, i64 columns) {
    const i64 rows = 45, padded = 64, used = std::min(COLUMN_BAND, columns);
    auto x = numbers<float>(padded * inner), weights = numbers<float>(inner * columns);
    for (i64 i = 0; i < inner; ++i) {
        x[size_t(i)] = i == 3 ? 4e4f : 0.01f, x[size_t(inner + i)] = 0, x[size_t(2 * inner + i)] = -7;
        x[size_t(3 * inner + i)] = 1e-25f * float(i % 2), x[size_t(4 * inner + i)] = weights[size_t(i * columns)];
    }
    x[size_t(5 * inner + 1)] = NAN, x[size_t(6 * inner + 2)] = INFINITY;
    const i64 steps = (inner + TILE_K - 1) / TILE_K, stride = steps * TILE_K;
    std::vector<int16_t> rounded(size_t(padded * stride)), tiles(size_t(stride * columns));
    auto scales = std::vector<float>(size_t(columns));
    std::vector<float> row_scales;
    for (i64 row = 0; row < padded; ++row) {
        std::vector<float> line(x.begin() + row * inner, x.begin() + (row + 1) * inner);
        line.resize(size_t(stride));
        int16_t *to = rounded.data() + row * stride;
        row_scales.push_back(round_row(line.data(), stride, to));
        int64_t squares = 0;
        for (i64 i = 0; i < stride; ++i) squares += int64_t(to[i]) * to[i];
        expect(squares < INT32_MAX, "a rounded row is short enough");
        double largest = 0, off = 0;
        for (const float number : line) largest = std::max(largest, double(std::fabs(number)));
        for (i64 i = 0; i < stride; ++i)
            off = std::max(off, std::fabs(double(to[i]) * row_scales.back() - line[size_t(i)]));
        if (row == 5 || row == 6)
            expect(std::isnan(row_scales.back()), "what is not finite stays so");
        else
            expect(off <= largest * std::sqrt(double(stride)) / 46000, "numbers are rounded");
    }
    round_columns(inner, used, tiles.data(), scales.data(), [&](const auto &body) {
        for (i64 row = 0; row < inner; ++row) body(row, weights.data() + row * columns);
    });
    bool exact = true;
    matmul(row_major<int16_t>(rounded.data(), stride), tiles.data(), steps * TILE_PAIR, rows,
           used / PANEL, steps, [&](i64 row, i64 panel, const int32_t *line) {
               for (i64 c = 0; c < PANEL; ++c) {
                   const int16_t *tile = tiles.data() + panel * steps * TILE_PAIR + c / 16 * TILE_SIZE;
                   int64_t sum = 0, squares = 0;
                   for (i64 i = 0; i < stride; ++i) {
                       const i64 k = i % TILE_K;
                       const int64_t weight =
                           tile[i / TILE_K * TILE_PAIR + k / 2 * TILE_K + c % 16 * 2 + k % 2];
                       sum += rounded[size_t(row * stride + i)] * weight, squares += weight * weight;
                   }
                   exact &= sum == line[c] && squares < INT32_MAX;
               }
           });
    expect(exact, "products of int16 are exact");
}

template <typename T, typename P>
void each() {
    if constexpr (!std::is_same_v<P, int16_t>) {
        for (const bool has : {false, true}) adamw<T>(has);
        muon<T, P>();
    }
    for (const i64 chunk_rows : {32, 96})
        expect(head_loss<T, P>(chunk_rows) == STATUS_OK, "a head's loss is computed");
}

}  // namespace

void *operator new(size_t bytes) {
    if (refuse_allocations && bytes > 4096) throw std::bad_alloc();
    if (void *memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}

void *operator new(size_t bytes, std::align_val_t alignment) {
    if (refuse_allocations && bytes > 4096) throw std::bad_alloc();
    const size_t step = size_t(alignment);
    if (void *memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
    throw std::bad_alloc();
}

void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

int main() {
    ownwords_best_isa();  // requests AMX
    for (const int threads : {1, 3}) {
        use_threads(threads);
        each<float, float>();
        each<float, Bf16>();
        each<Bf16, float>();
        each<Bf16, Bf16>();
        each<float, int16_t>(), each<Bf16, int16_t>();
    }
    for (const i64 inner : {16, 96, 576, 3072}) int16_products(inner, 96), int16_products(inner, 160);
    for (const Family family : {GPT2, QWEN3, GEMMA3}) {
        blocks<float, float>(family), blocks<float, Bf16>(family);
        blocks<Bf16, float>(family), blocks<Bf16, Bf16>(family);
        blocks<float, int16_t>(family), blocks<Bf16, int16_t>(family);
    }
    for (const int64_t wrong : {int64_t(333), int64_t(-1), INT64_MAX})
        expect(head_loss<float, float>(96, 64, wrong) == STATUS_BAD_ID,
               "a target outside the vocabulary is refused");
    // What is thrown on any thread becomes a status.
    for (const int threads : {1, 3}) {
        use_threads(threads);
        expect(head_loss<float, float>(96, 2048) == STATUS_NO_MEMORY, "too little memory is told");
    }
    if (failures == 0) std::printf("training: all as it should be\n");
    return failures != 0;
}
