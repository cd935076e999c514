// The training's functions, forward and back, on odd shapes: to be run under sanitizers.
#include "plain.h"

using namespace plain;

struct Momentum {  // as muon.cpp has it
    float *update, *momentum;
    int64_t rows, columns;
};

extern "C" {
void ownwords_norm(int, const void *, const float *, void *, float *, Long, Long, float, float);
void ownwords_norm_back(int, const void *, const float *, const float *, const void *, void *,
                        float *, Long, Long, float);
void ownwords_gate(int, int, const void *, void *, Long, Long);
void ownwords_gate_back(int, int, const void *, const void *, void *, Long, Long);
void ownwords_gelu(int, const void *, void *, Long);
void ownwords_gelu_back(int, const void *, const void *, void *, Long);
void ownwords_heads(int, const void *, const float *, const float *, const float *, const float *,
                    void *, Long, Long, Long, Long, Long, float, float);
void ownwords_heads_back(int, const void *, const float *, const float *, const float *,
                         const float *, const void *, void *, float *, Long, Long, Long, Long, Long,
                         float, float);
void ownwords_attention(int, const void *, void *, float *, const int32_t *, Long, Long, Long, Long,
                        Long, Long, float);
void ownwords_attention_back(int, const void *, const void *, float *, void *, const int32_t *,
                             Long, Long, Long, Long, Long, Long, float);
void ownwords_entropy(int, void *, const int64_t *, const float *, double *, Long, Long, float,
                      int);
void ownwords_adamw(int, float *, void *, const void *, float *, float *, Long, float, float, float,
                    float, float, float, float, float);
void ownwords_muon(const Momentum *, Long, float, float, Long);
}

namespace {

template <typename T>
void norms() {
    const Long rows = 1301, width = 37;
    const double eps = 1e-5, offset = 1;
    const Wide x = drawn(rows * width), weight = drawn(width, 0, 0.2), dy = drawn(rows * width);
    const auto plain = [&](const Wide &x, const Wide &weight) {
        return normed(x, weight, {}, eps, offset, false);
    };
    const auto x_ = as<T>(x), dy_ = as<T>(dy);
    const auto weight_ = as<float>(weight);
    std::vector<T> y(x.size()), dx(x.size());
    std::vector<float> inverse(rows), dweight(width);
    ownwords_norm(KIND<T>, x_.data(), weight_.data(), y.data(), inverse.data(), rows, width,
                  float(eps), float(offset));
    near(named<T>("a norm"), back(y), plain(x, weight), allowed<T>());
    ownwords_norm_back(KIND<T>, x_.data(), weight_.data(), inverse.data(), dy_.data(), dx.data(),
                       dweight.data(), rows, width, float(offset));
    steep(named<T>("a norm's slopes"), [&](const Wide &x) { return dot(plain(x, weight), dy); }, x,
          back(dx), allowed<T>());
    steep(named<T>("a norm's weights' slopes"),
          [&](const Wide &weight) { return dot(plain(x, weight), dy); }, weight, back(dweight),
          allowed<T>());
}

template <typename T>
void gates() {
    const Long rows = 501, width = 43;
    const Wide x = drawn(2 * rows * width, 0, 1.5), dy = drawn(rows * width);
    const auto x_ = as<T>(x), dy_ = as<T>(dy);
    for (const bool gelu : {false, true}) {
        const auto plain = [&](const Wide &x) {
            Wide made(static_cast<size_t>(rows * width));
            for (Long row = 0; row < rows; ++row)
                for (Long c = 0; c < width; ++c)
                    made[row * width + c] = activated(x[2 * row * width + c], gelu) *
                                            x[(2 * row + 1) * width + c];
            return made;
        };
        std::vector<T> y(dy.size()), dx(x.size());
        ownwords_gate(KIND<T>, gelu, x_.data(), y.data(), rows, width);
        near(named<T>("a gate"), back(y), plain(x), allowed<T>());
        ownwords_gate_back(KIND<T>, gelu, x_.data(), dy_.data(), dx.data(), rows, width);
        steep(named<T>("a gate's slopes"), [&](const Wide &x) { return dot(plain(x), dy); }, x,
              back(dx), allowed<T>());
    }
    const Long count = rows * width;
    const Wide some(x.begin(), x.begin() + count);
    const auto plain = [](const Wide &x) {
        Wide made = x;
        for (double &one : made) one = activated(one, true);
        return made;
    };
    std::vector<T> y(dy.size()), dx(dy.size());
    ownwords_gelu(KIND<T>, x_.data(), y.data(), count);
    near(named<T>("gelu"), back(y), plain(some), allowed<T>());
    ownwords_gelu_back(KIND<T>, x_.data(), dy_.data(), dx.data(), count);
    steep(named<T>("gelu's slopes"), [&](const Wide &x) { return dot(plain(x), dy); }, some,
          back(dx), allowed<T>());
}

template <typename T>
void heads(bool have_norms) {
    const Long tokens = 410, period = 41, queries = 6, keys = 2, width = 10;
    const double eps = 1e-6, offset = 1;
    const Long count = tokens * (queries + 2 * keys) * width;
    const Wide x = drawn(count), dy = drawn(count);
    const Wide cosine = drawn(period * width / 2), sine = drawn(period * width / 2);
    const Wide query_norm = have_norms ? drawn(width, 0, 0.2) : Wide{};
    const Wide key_norm = have_norms ? drawn(width, 0, 0.2) : Wide{};
    const auto plain = [&](const Wide &x, const Wide &query, const Wide &key) {
        return turned_heads(x, queries, keys, width, query, key, eps, offset, cosine, sine, period,
                            width / 2);
    };
    const auto x_ = as<T>(x), dy_ = as<T>(dy);
    const auto cosine_ = as<float>(cosine), sine_ = as<float>(sine);
    const auto query_ = as<float>(query_norm), key_ = as<float>(key_norm);
    const float *of_queries = have_norms ? query_.data() : nullptr;
    const float *of_keys = have_norms ? key_.data() : nullptr;
    std::vector<T> y(x.size()), dx(x.size());
    std::vector<float> dnorms(static_cast<size_t>(2 * width));
    ownwords_heads(KIND<T>, x_.data(), of_queries, of_keys, cosine_.data(), sine_.data(), y.data(),
                   tokens, queries, keys, width, period, float(eps), float(offset));
    near(named<T>("heads"), back(y), plain(x, query_norm, key_norm), allowed<T>());
    ownwords_heads_back(KIND<T>, x_.data(), of_queries, of_keys, cosine_.data(), sine_.data(),
                        dy_.data(), dx.data(), dnorms.data(), tokens, queries, keys, width, period,
                        float(eps), float(offset));
    steep(named<T>("heads' slopes"),
          [&](const Wide &x) { return dot(plain(x, query_norm, key_norm), dy); }, x, back(dx),
          allowed<T>());
    if (!have_norms) return;
    const Wide found = back(dnorms);
    steep(named<T>("query norm's slopes"),
          [&](const Wide &norm) { return dot(plain(x, norm, key_norm), dy); }, query_norm,
          {found.begin(), found.begin() + width}, allowed<T>());
    steep(named<T>("key norm's slopes"),
          [&](const Wide &norm) { return dot(plain(x, query_norm, norm), dy); }, key_norm,
          {found.begin() + width, found.end()}, allowed<T>());
}

template <typename T>
void attention(bool isolated) {
    const Long texts = 2, tokens = 61, queries = 6, keys = 2, width = 10;
    const double scale = 0.3;
    const auto first = isolated ? documents(texts, tokens) : std::vector<int32_t>{};
    const Wide x = drawn(texts * tokens * (queries + 2 * keys) * width);
    const Wide dy = drawn(texts * tokens * queries * width);
    const auto plain = [&](const Wide &x) {
        return attended(x, texts, tokens, queries, keys, width, scale, first);
    };
    const auto x_ = as<T>(x), dy_ = as<T>(dy);
    std::vector<T> y(dy.size()), dx(x.size());
    std::vector<float> log_sums(static_cast<size_t>(texts * queries * tokens));
    const int32_t *seen = isolated ? first.data() : nullptr;
    const Long step = isolated ? tokens : 0;
    ownwords_attention(KIND<T>, x_.data(), y.data(), log_sums.data(), seen, step, texts, tokens,
                       queries, keys, width, float(scale));
    near(named<T>("attention"), back(y), plain(x), allowed<T>());
    ownwords_attention_back(KIND<T>, x_.data(), dy_.data(), log_sums.data(), dx.data(), seen, step,
                            texts, tokens, queries, keys, width, float(scale));
    steep(named<T>("attention's slopes"), [&](const Wide &x) { return dot(plain(x), dy); }, x,
          back(dx), allowed<T>());
}

template <typename T>
void losses() {
    const Long rows = 401, width = 53;
    const double z_weight = 0.01;
    const Wide x = drawn(rows * width, 0, 3), weights = drawn(rows, 1, 0.2);
    std::vector<int64_t> targets(static_cast<size_t>(rows));
    for (int64_t &one : targets) one = int64_t(luck() % width);
    const auto plain = [&](const Wide &x) {
        double sum = 0;
        for (Long row = 0; row < rows; ++row) {
            double total = 0;
            for (Long c = 0; c < width; ++c) total += std::exp(x[row * width + c]);
            const double log_sum = std::log(total);
            sum += weights[row] *
                   (log_sum - x[row * width + targets[row]] + z_weight * log_sum * log_sum);
        }
        return sum;
    };
    auto x_ = as<T>(x);
    const auto weights_ = as<float>(weights);
    double sum = 0;
    const auto measure = [&](int slope) {
        sum = 0;
        ownwords_entropy(KIND<T>, x_.data(), targets.data(), weights_.data(), &sum, rows, width,
                         float(z_weight), slope);
        near(named<T>("a loss"), {sum}, {plain(x)}, allowed<T>() / 4);
    };
    measure(0);
    expect(back(x_) == x, named<T>("without slopes the scores stay"));
    measure(1);
    steep(named<T>("a loss's slopes"), plain, x, back(x_), allowed<T>());
}

template <typename T>
void adamw(bool has_copy) {
    const Long count = 70'001;
    const double scale = 0.5, rate = 0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
    Wide weight = drawn(count), first(static_cast<size_t>(count), 0.0), second = first;
    auto weight_ = as<float>(weight), first_ = as<float>(first), second_ = as<float>(second);
    std::vector<Bf16> narrow(static_cast<size_t>(has_copy ? count : 0));
    for (int step = 1; step <= 3; ++step) {
        const Wide gradient = drawn(count);
        const auto gradient_ = as<T>(gradient);
        const double share1 = 1 - std::pow(beta1, step), share2 = 1 - std::pow(beta2, step);
        ownwords_adamw(KIND<T>, weight_.data(), has_copy ? narrow.data() : nullptr,
                       gradient_.data(), first_.data(), second_.data(), count, float(scale),
                       float(rate), float(beta1), float(beta2), float(eps), float(decay),
                       float(share1), float(share2));
        for (Long i = 0; i < count; ++i) {
            const double g = gradient[i] * scale;
            first[i] = beta1 * first[i] + (1 - beta1) * g;
            second[i] = beta2 * second[i] + (1 - beta2) * g * g;
            weight[i] -= rate * (decay * weight[i] +
                                 first[i] / share1 / (std::sqrt(second[i] / share2) + eps));
        }
    }
    near(named<T>("AdamW's weights"), back(weight_), weight, EXACT);
    near(named<T>("AdamW's first moment"), back(first_), first, EXACT);
    near(named<T>("AdamW's second moment"), back(second_), second, EXACT);
    if (!has_copy) return;
    const auto rounded = as<Bf16>(back(weight_));
    expect(back(narrow) == back(rounded), named<T>("the copy is the weights, rounded"));
}

// Five rounds of Newton and Schulz on a momentum; the plain way.
Wide orthogonal(const Wide &from, Long rows, Long columns) {
    const bool stands = rows > columns;
    const Long n = std::min(rows, columns), m = std::max(rows, columns);
    const double size = length(from) + 1e-7;
    Wide x(from.size());
    for (Long i = 0; i < n; ++i)
        for (Long j = 0; j < m; ++j)
            x[i * m + j] = (stands ? from[j * n + i] : from[i * m + j]) / size;
    const auto times = [](const Wide &a, const Wide &b, Long rows, Long inner, Long columns) {
        Wide made(static_cast<size_t>(rows * columns), 0.0);
        for (Long i = 0; i < rows; ++i)
            for (Long k = 0; k < inner; ++k)
                for (Long j = 0; j < columns; ++j)
                    made[i * columns + j] += a[i * inner + k] * b[k * columns + j];
        return made;
    };
    for (int round = 0; round < 5; ++round) {
        Wide turned(x.size());
        for (Long i = 0; i < n; ++i)
            for (Long j = 0; j < m; ++j) turned[j * n + i] = x[i * m + j];
        const Wide square = times(x, turned, n, m, n);
        Wide factor = times(square, square, n, n, n);
        for (size_t i = 0; i < factor.size(); ++i)
            factor[i] = -4.7750 * square[i] + 2.0315 * factor[i];
        const Wide more = times(factor, x, n, n, m);
        for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + more[i];
    }
    if (!stands) return x;
    Wide made(x.size());
    for (Long i = 0; i < n; ++i)
        for (Long j = 0; j < m; ++j) made[j * n + i] = x[i * m + j];
    return made;
}

void muon() {
    const std::vector<std::pair<Long, Long>> shapes{{32, 96}, {160, 32}, {64, 64}, {96, 224}};
    const double factor = 0.7, share = 0.95;
    std::vector<Wide> gradients, momenta;
    std::vector<std::vector<float>> updates_, momenta_;
    std::vector<Momentum> all;
    for (const auto &[rows, columns] : shapes) {
        gradients.push_back(drawn(rows * columns));
        momenta.push_back(drawn(rows * columns));
        updates_.push_back(as<float>(gradients.back()));
        momenta_.push_back(as<float>(momenta.back()));
    }
    for (size_t i = 0; i < shapes.size(); ++i)
        all.push_back({updates_[i].data(), momenta_[i].data(), shapes[i].first, shapes[i].second});
    ownwords_muon(all.data(), Long(all.size()), float(factor), float(share), 5);
    for (size_t i = 0; i < shapes.size(); ++i) {
        Wide update(gradients[i].size());
        for (size_t k = 0; k < update.size(); ++k) {
            const double gradient = gradients[i][k] * factor;
            momenta[i][k] += (1 - share) * (gradient - momenta[i][k]);
            update[k] = gradient + share * (momenta[i][k] - gradient);
        }
        near(named<float>("Muon's momentum"), back(momenta_[i]), momenta[i], EXACT);
        near(named<float>("Muon's update"), back(updates_[i]),
             orthogonal(update, shapes[i].first, shapes[i].second), 0.05);
    }
}

template <typename T>
void each() {
    norms<T>();
    gates<T>();
    for (const bool has : {false, true}) heads<T>(has), attention<T>(has), adamw<T>(has);
    losses<T>();
}

}  // namespace

int main() {
    ownwords_level();  // asks the system for what it may use
    for (const int threads : {1, 3}) {
        compute_with(threads);
        each<float>();
        each<Bf16>();
        muon();
    }
    if (failures == 0) std::printf("training: all as it should be\n");
    return failures != 0;
}
