// The training's functions, forward and back, on odd shapes: to be run under sanitizers.
#include <atomic>
#include <cstdlib>
#include <new>

#include "reference.h"

using namespace reference;

namespace {

// Large allocations fail while this is set: what the tests themselves need are small ones.
std::atomic<bool> refuse_allocations{false};

}  // namespace

void *operator new(size_t bytes) {
    if (refuse_allocations && bytes > 4096) throw std::bad_alloc();
    if (void *memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}

void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace {

template <typename T>
void rms_norm() {
    const i64 rows = 1301, width = 37;
    const double eps = 1e-5, offset = 1;
    const Doubles x = random_values(rows * width), weight = random_values(width, 0, 0.2),
                  dy = random_values(rows * width);
    const auto reference = [&](const Doubles &x, const Doubles &weight) {
        return reference_norm(x, weight, {}, eps, offset, false);
    };
    const auto x_ = cast<T>(x), dy_ = cast<T>(dy);
    const auto weight_ = cast<float>(weight);
    std::vector<T> y(x.size()), dx(x.size());
    std::vector<float> inverse(rows), dweight(width);
    ownwords_rms_norm(DTYPE<T>, x_.data(), weight_.data(), y.data(), inverse.data(), rows, width,
                      float(eps), float(offset));
    check_close(label<T>("a norm"), to_doubles(y), reference(x, weight), allowed<T>());
    ownwords_rms_norm_backward(DTYPE<T>, x_.data(), weight_.data(), inverse.data(), dy_.data(),
                               dx.data(), dweight.data(), rows, width, float(offset));
    check_gradient(
        label<T>("a norm's slopes"),
        [&](const Doubles &x) { return dot(reference(x, weight), dy); }, x, to_doubles(dx),
        allowed<T>());
    check_gradient(
        label<T>("a norm's weights' slopes"),
        [&](const Doubles &weight) { return dot(reference(x, weight), dy); }, weight,
        to_doubles(dweight), allowed<T>());
}

template <typename T>
void gated_activation() {
    const i64 rows = 501, width = 43;
    const Doubles x = random_values(2 * rows * width, 0, 1.5), dy = random_values(rows * width);
    const auto x_ = cast<T>(x), dy_ = cast<T>(dy);
    for (const bool gelu : {false, true}) {
        const auto reference = [&](const Doubles &x) {
            Doubles result(static_cast<size_t>(rows * width));
            for (i64 row = 0; row < rows; ++row)
                for (i64 c = 0; c < width; ++c)
                    result[row * width + c] = reference_activation(x[2 * row * width + c], gelu) *
                                              x[(2 * row + 1) * width + c];
            return result;
        };
        std::vector<T> y(dy.size()), dx(x.size());
        ownwords_gated_activation(DTYPE<T>, gelu, x_.data(), y.data(), rows, width);
        check_close(label<T>("a gate"), to_doubles(y), reference(x), allowed<T>());
        ownwords_gated_activation_backward(DTYPE<T>, gelu, x_.data(), dy_.data(), dx.data(), rows,
                                           width);
        check_gradient(
            label<T>("a gate's slopes"), [&](const Doubles &x) { return dot(reference(x), dy); }, x,
            to_doubles(dx), allowed<T>());
    }
    const i64 count = rows * width;
    const Doubles some(x.begin(), x.begin() + count);
    const auto reference = [](const Doubles &x) {
        Doubles result = x;
        for (double &item : result) item = reference_activation(item, true);
        return result;
    };
    std::vector<T> y(dy.size()), dx(dy.size());
    ownwords_gelu(DTYPE<T>, x_.data(), y.data(), count);
    check_close(label<T>("gelu"), to_doubles(y), reference(some), allowed<T>());
    ownwords_gelu_backward(DTYPE<T>, x_.data(), dy_.data(), dx.data(), count);
    check_gradient(
        label<T>("gelu's slopes"), [&](const Doubles &x) { return dot(reference(x), dy); }, some,
        to_doubles(dx), allowed<T>());
}

template <typename T>
void norm_and_rope(bool have_norms) {
    const i64 tokens = 410, period = 41, queries = 6, keys = 2, width = 10;
    const double eps = 1e-6, offset = 1;
    const i64 count = tokens * (queries + 2 * keys) * width;
    const Doubles x = random_values(count), dy = random_values(count);
    const Doubles cosine = random_values(period * width / 2),
                  sine = random_values(period * width / 2);
    const Doubles query_norm = have_norms ? random_values(width, 0, 0.2) : Doubles{};
    const Doubles key_norm = have_norms ? random_values(width, 0, 0.2) : Doubles{};
    const auto reference = [&](const Doubles &x, const Doubles &query, const Doubles &key) {
        return reference_norm_and_rope(x, queries, keys, width, query, key, eps, offset, cosine,
                                       sine, period, width / 2);
    };
    const auto x_ = cast<T>(x), dy_ = cast<T>(dy);
    const auto cosine_ = cast<float>(cosine), sine_ = cast<float>(sine);
    const auto query_ = cast<float>(query_norm), key_ = cast<float>(key_norm);
    const float *of_queries = have_norms ? query_.data() : nullptr;
    const float *of_keys = have_norms ? key_.data() : nullptr;
    std::vector<T> y(x.size()), dx(x.size());
    std::vector<float> dnorms(static_cast<size_t>(2 * width));
    ownwords_norm_and_rope(DTYPE<T>, x_.data(), of_queries, of_keys, cosine_.data(), sine_.data(),
                           y.data(), tokens, queries, keys, width, period, float(eps),
                           float(offset));
    check_close(label<T>("heads"), to_doubles(y), reference(x, query_norm, key_norm), allowed<T>());
    ownwords_norm_and_rope_backward(DTYPE<T>, x_.data(), of_queries, of_keys, cosine_.data(),
                                    sine_.data(), dy_.data(), dx.data(), dnorms.data(), tokens,
                                    queries, keys, width, period, float(eps), float(offset));
    check_gradient(
        label<T>("heads' slopes"),
        [&](const Doubles &x) { return dot(reference(x, query_norm, key_norm), dy); }, x,
        to_doubles(dx), allowed<T>());
    if (!have_norms) return;
    const Doubles actual = to_doubles(dnorms);
    check_gradient(
        label<T>("query norm's slopes"),
        [&](const Doubles &norm) { return dot(reference(x, norm, key_norm), dy); }, query_norm,
        {actual.begin(), actual.begin() + width}, allowed<T>());
    check_gradient(
        label<T>("key norm's slopes"),
        [&](const Doubles &norm) { return dot(reference(x, query_norm, norm), dy); }, key_norm,
        {actual.begin() + width, actual.end()}, allowed<T>());
}

template <typename T>
void attention(bool isolated) {
    const i64 texts = 2, tokens = 61, queries = 6, keys = 2, width = 10;
    const double scale = 0.3;
    const auto first = isolated ? document_starts(texts, tokens) : std::vector<int32_t>{};
    const Doubles x = random_values(texts * tokens * (queries + 2 * keys) * width);
    const Doubles dy = random_values(texts * tokens * queries * width);
    const auto reference = [&](const Doubles &x) {
        return reference_attention(x, texts, tokens, queries, keys, width, scale, first);
    };
    const auto x_ = cast<T>(x), dy_ = cast<T>(dy);
    std::vector<T> y(dy.size()), dx(x.size());
    std::vector<float> log_sums(static_cast<size_t>(texts * queries * tokens));
    const int32_t *first_token = isolated ? first.data() : nullptr;
    const i64 step = isolated ? tokens : 0;
    ownwords_attention(DTYPE<T>, x_.data(), y.data(), log_sums.data(), first_token, step, texts,
                       tokens, queries, keys, width, float(scale));
    check_close(label<T>("attention"), to_doubles(y), reference(x), allowed<T>());
    ownwords_attention_backward(DTYPE<T>, x_.data(), dy_.data(), log_sums.data(), dx.data(),
                                first_token, step, texts, tokens, queries, keys, width,
                                float(scale));
    check_gradient(
        label<T>("attention's slopes"), [&](const Doubles &x) { return dot(reference(x), dy); }, x,
        to_doubles(dx), allowed<T>());
}

template <typename T>
void cross_entropy() {
    const i64 rows = 401, width = 53;
    const double z_weight = 0.01;
    const Doubles x = random_values(rows * width, 0, 3), weights = random_values(rows, 1, 0.2);
    std::vector<int64_t> targets(static_cast<size_t>(rows));
    for (int64_t &item : targets) item = int64_t(rng() % width);
    const auto reference = [&](const Doubles &x) {
        double sum = 0;
        for (i64 row = 0; row < rows; ++row) {
            double total = 0;
            for (i64 c = 0; c < width; ++c) total += std::exp(x[row * width + c]);
            const double log_sum = std::log(total);
            sum += weights[row] *
                   (log_sum - x[row * width + targets[row]] + z_weight * log_sum * log_sum);
        }
        return sum;
    };
    auto x_ = cast<T>(x);
    const auto weights_ = cast<float>(weights);
    double sum = 0;
    const auto run = [&](int grad) {
        sum = 0;
        ownwords_cross_entropy(DTYPE<T>, x_.data(), targets.data(), weights_.data(), &sum, rows,
                               width, float(z_weight), grad);
        check_close(label<T>("a loss"), {sum}, {reference(x)}, allowed<T>() / 4);
    };
    run(0);
    expect(to_doubles(x_) == x, label<T>("without slopes the scores stay"));
    run(1);
    check_gradient(label<T>("a loss's slopes"), reference, x, to_doubles(x_), allowed<T>());
}

// Products are in bfloat16, whatever T is.
template <typename T>
void head_loss(i64 chunk_rows) {
    const i64 rows = 150, width = 64, vocabulary = 333;
    const double z_weight = 0.01;
    const Doubles hidden = to_doubles(cast<Bf16>(random_values(rows * width))),
                  head = to_doubles(cast<Bf16>(random_values(vocabulary * width, 0, 0.2))),
                  weights = random_values(rows, 1, 0.2);
    std::vector<int64_t> targets(static_cast<size_t>(rows));
    for (int64_t &item : targets) item = int64_t(rng() % vocabulary);
    const auto reference = [&](const Doubles &hidden, const Doubles &head) {
        double sum = 0;
        for (i64 row = 0; row < rows; ++row) {
            double total = 0, target = 0;
            for (i64 v = 0; v < vocabulary; ++v) {
                double logit = 0;
                for (i64 c = 0; c < width; ++c)
                    logit += hidden[row * width + c] * head[v * width + c];
                total += std::exp(logit);
                if (v == targets[row]) target = logit;
            }
            const double log_sum = std::log(total);
            sum += weights[row] * (log_sum - target + z_weight * log_sum * log_sum);
        }
        return sum;
    };
    const auto hidden_ = cast<T>(hidden), head_ = cast<T>(head);
    const auto weights_ = cast<float>(weights);
    std::vector<T> hidden_grad(hidden.size());
    std::vector<float> head_grad(head.size());
    double sum = 0;
    HeadLossArgs args{};
    args.dtype = DTYPE<T>, args.rows = rows, args.width = width, args.vocabulary = vocabulary;
    args.chunk_rows = chunk_rows, args.z_weight = float(z_weight);
    args.hidden = hidden_.data(), args.head = head_.data();
    args.targets = targets.data(), args.weights = weights_.data(), args.sum = &sum;
    args.hidden_grad = hidden_grad.data(), args.head_grad = head_grad.data();
    expect(ownwords_head_loss_size(&args) == STATUS_OK, label<T>("a head's loss is measured"));
    std::vector<char> scratch(size_t(args.scratch_bytes) + 64);
    args.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
    expect(ownwords_head_loss(&args) == STATUS_OK, label<T>("a head's loss is computed"));
    check_close(label<T>("a head's loss"), {sum}, {reference(hidden, head)}, allowed<Bf16>() / 4);
    check_gradient(
        label<T>("the gradient of hidden states"),
        [&](const Doubles &hidden) { return reference(hidden, head); }, hidden,
        to_doubles(hidden_grad), allowed<Bf16>());
    check_gradient(
        label<T>("the gradient of a head"),
        [&](const Doubles &head) { return reference(hidden, head); }, head, to_doubles(head_grad),
        allowed<Bf16>());
}

template <typename T>
void adamw(bool has_copy) {
    const i64 count = 70'001;
    const double scale = 0.5, rate = 0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
    Doubles weight = random_values(count), first(static_cast<size_t>(count), 0.0), second = first;
    auto weight_ = cast<float>(weight), first_ = cast<float>(first), second_ = cast<float>(second);
    std::vector<Bf16> bf16_copy(static_cast<size_t>(has_copy ? count : 0));
    for (int step = 1; step <= 3; ++step) {
        const Doubles gradient = random_values(count);
        const auto gradient_ = cast<T>(gradient);
        const double correction1 = 1 - std::pow(beta1, step),
                     correction2 = 1 - std::pow(beta2, step);
        ownwords_adamw(DTYPE<T>, weight_.data(), has_copy ? bf16_copy.data() : nullptr,
                       gradient_.data(), first_.data(), second_.data(), count, float(scale),
                       float(rate), float(beta1), float(beta2), float(eps), float(decay),
                       float(correction1), float(correction2));
        for (i64 i = 0; i < count; ++i) {
            const double g = gradient[i] * scale;
            first[i] = beta1 * first[i] + (1 - beta1) * g;
            second[i] = beta2 * second[i] + (1 - beta2) * g * g;
            weight[i] -=
                rate * (decay * weight[i] +
                        first[i] / correction1 / (std::sqrt(second[i] / correction2) + eps));
        }
    }
    check_close(label<T>("AdamW's weights"), to_doubles(weight_), weight, EXACT);
    check_close(label<T>("AdamW's first moment"), to_doubles(first_), first, EXACT);
    check_close(label<T>("AdamW's second moment"), to_doubles(second_), second, EXACT);
    if (!has_copy) return;
    const auto rounded = cast<Bf16>(to_doubles(weight_));
    expect(to_doubles(bf16_copy) == to_doubles(rounded),
           label<T>("the copy is the weights, rounded"));
}

// Five rounds of Newton and Schulz on a momentum; the plain way.
Doubles reference_newton_schulz(const Doubles &from, i64 rows, i64 columns) {
    const bool is_tall = rows > columns;
    const i64 n = std::min(rows, columns), m = std::max(rows, columns);
    const double size = length(from) + 1e-7;
    Doubles x(from.size());
    for (i64 i = 0; i < n; ++i)
        for (i64 j = 0; j < m; ++j)
            x[i * m + j] = (is_tall ? from[j * n + i] : from[i * m + j]) / size;
    const auto times = [](const Doubles &a, const Doubles &b, i64 rows, i64 inner, i64 columns) {
        Doubles result(static_cast<size_t>(rows * columns), 0.0);
        for (i64 i = 0; i < rows; ++i)
            for (i64 k = 0; k < inner; ++k)
                for (i64 j = 0; j < columns; ++j)
                    result[i * columns + j] += a[i * inner + k] * b[k * columns + j];
        return result;
    };
    for (int round = 0; round < 5; ++round) {
        Doubles transposed(x.size());
        for (i64 i = 0; i < n; ++i)
            for (i64 j = 0; j < m; ++j) transposed[j * n + i] = x[i * m + j];
        const Doubles square = times(x, transposed, n, m, n);
        Doubles factor = times(square, square, n, n, n);
        for (size_t i = 0; i < factor.size(); ++i)
            factor[i] = -4.7750 * square[i] + 2.0315 * factor[i];
        const Doubles more = times(factor, x, n, n, m);
        for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + more[i];
    }
    if (!is_tall) return x;
    Doubles result(x.size());
    for (i64 i = 0; i < n; ++i)
        for (i64 j = 0; j < m; ++j) result[j * n + i] = x[i * m + j];
    return result;
}

void muon() {
    const std::vector<std::pair<i64, i64>> shapes{{32, 96}, {160, 32}, {64, 64}, {96, 224}};
    const double factor = 0.7, momentum = 0.95;
    std::vector<Doubles> gradients, momenta;
    std::vector<std::vector<float>> updates_, momenta_;
    std::vector<MuonMatrix> all;
    for (const auto &[rows, columns] : shapes) {
        gradients.push_back(random_values(rows * columns));
        momenta.push_back(random_values(rows * columns));
        updates_.push_back(cast<float>(gradients.back()));
        momenta_.push_back(cast<float>(momenta.back()));
    }
    for (size_t i = 0; i < shapes.size(); ++i)
        all.push_back({updates_[i].data(), momenta_[i].data(), shapes[i].first, shapes[i].second});
    ownwords_muon(all.data(), i64(all.size()), float(factor), float(momentum), 5);
    for (size_t i = 0; i < shapes.size(); ++i) {
        Doubles update(gradients[i].size());
        for (size_t k = 0; k < update.size(); ++k) {
            const double gradient = gradients[i][k] * factor;
            momenta[i][k] += (1 - momentum) * (gradient - momenta[i][k]);
            update[k] = gradient + momentum * (momenta[i][k] - gradient);
        }
        check_close(label<float>("Muon's momentum"), to_doubles(momenta_[i]), momenta[i], EXACT);
        check_close(label<float>("Muon's update"), to_doubles(updates_[i]),
                    reference_newton_schulz(update, shapes[i].first, shapes[i].second), 0.05);
    }
}

template <typename T>
void each() {
    rms_norm<T>();
    gated_activation<T>();
    for (const bool has : {false, true}) norm_and_rope<T>(has), attention<T>(has), adamw<T>(has);
    cross_entropy<T>();
    for (const i64 chunk_rows : {32, 96}) head_loss<T>(chunk_rows);
}

void wrong_targets() {
    std::vector<float> logits(20, 1.0f), weights(2, 1.0f);
    double sum = 0;
    for (const int64_t wrong : {int64_t(10), int64_t(-1), INT64_MAX}) {
        const int64_t targets[] = {3, wrong};
        const int status =
            ownwords_cross_entropy(0, logits.data(), targets, weights.data(), &sum, 2, 10, 0, 1);
        expect(status == STATUS_BAD_ID && logits == std::vector<float>(20, 1.0f) && sum == 0,
               "a target outside the vocabulary is refused");
    }
}

// What is thrown on any thread becomes a status.
void out_of_memory() {
    const i64 tokens = 300, heads = 6, width = 16;
    std::vector<float> x(static_cast<size_t>(2 * tokens * (heads + 2) * width), 0.1f);
    std::vector<float> y(static_cast<size_t>(2 * tokens * heads * width)),
        log_sums(2 * tokens * heads);
    const auto run = [&] {
        return ownwords_attention(0, x.data(), y.data(), log_sums.data(), nullptr, 0, 2, tokens,
                                  heads, 1, width, 0.3f);
    };
    refuse_allocations = true;
    const int status = run();
    refuse_allocations = false;
    expect(status == STATUS_NO_MEMORY, label<float>("too little memory is reported"));
    expect(run() == STATUS_OK, label<float>("enough memory afterwards"));
}

}  // namespace

int main() {
    ownwords_best_isa();  // requests AMX
    for (const auto &[threads, own_pool] : {std::pair{1, false}, {3, false}, {3, true}}) {
        use_threads(threads, own_pool);
        each<float>();
        each<Bf16>();
        muon();
    }
    wrong_targets();
    for (const int threads : {1, 3}) use_threads(threads), out_of_memory();
    if (failures == 0) std::printf("training: all as it should be\n");
    return failures != 0;
}
