// What tests of the training's functions share: threads to lend, plain computation in double, and
// comparisons. Slopes are compared with what differences of the plain way forward say.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api.h"
#include "simd/vec.h"

namespace reference {

using namespace ownwords;
using Doubles = std::vector<double>;

inline int failures = 0;

inline void expect(bool condition, const std::string &what) {
    if (condition) return;
    ++failures;
    std::printf("failed: %s\n", what.c_str());
}

// --- threads, as OpenMP would lend them ---------------------------------------------------------

inline int most_threads = 1;
inline thread_local int team_size = 1, team_number = 0;

inline void fork_threads(void (*region)(void *), void *data, unsigned threads, unsigned) {
    std::vector<std::thread> others;
    const auto take_part = [=](int number) {
        team_size = int(threads), team_number = number;
        region(data);
        team_size = 1, team_number = 0;
    };
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(take_part, int(i));
    take_part(0);
    for (std::thread &item : others) item.join();
}

inline int get_most() { return most_threads; }
inline int get_team() { return team_size; }
inline int get_number() { return team_number; }

inline void use_threads(int threads, bool own_pool = false) {
    most_threads = threads;
    if (own_pool) return static_cast<void>(ownwords_set_threads(threads));
    ownwords_set_openmp(reinterpret_cast<void *>(&fork_threads),
                        reinterpret_cast<void *>(&get_most), reinterpret_cast<void *>(&get_team),
                        reinterpret_cast<void *>(&get_number));
}

// --- numbers ------------------------------------------------------------------------------------

inline std::mt19937 rng(7);

// Drawn so that bfloat16 holds them as they are.
inline Doubles random_values(i64 count, double mean = 0, double deviation = 1) {
    std::normal_distribution<double> normal(mean, deviation);
    Doubles result(static_cast<size_t>(count));
    for (double &item : result) {
        Bf16 check_close;
        store(check_close, float(normal(rng)));
        item = to_float(check_close);
    }
    return result;
}

template <typename T>
std::vector<T> cast(const Doubles &from) {
    std::vector<T> result(from.size());
    for (size_t i = 0; i < from.size(); ++i) store(result[i], float(from[i]));
    return result;
}

template <typename T>
Doubles to_doubles(const std::vector<T> &from) {
    Doubles result(from.size());
    for (size_t i = 0; i < from.size(); ++i) result[i] = to_float(from[i]);
    return result;
}

inline double dot(const Doubles &a, const Doubles &b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

inline double length(const Doubles &a) { return std::sqrt(dot(a, a)); }

inline void check_close(const std::string &what, const Doubles &actual, const Doubles &expected,
                        double allowed) {
    double distance = 0;
    for (size_t i = 0; i < expected.size(); ++i) distance += std::pow(actual[i] - expected[i], 2);
    distance = std::sqrt(distance) / (length(expected) + 1e-30);
    if (!(distance <= allowed)) std::printf("%s: %g apart\n", what.c_str(), distance);
    expect(actual.size() == expected.size() && distance <= allowed, what);
}

// Slopes of `loss`: along themselves they are as steep as it is, and so are some single ones.
inline void check_gradient(const std::string &what,
                           const std::function<double(const Doubles &)> &loss, const Doubles &at,
                           const Doubles &actual, double allowed) {
    expect(actual.size() == at.size(), what + ": their number");
    const auto rise = [&](const Doubles &along) {
        constexpr double STEP = 1e-4;
        Doubles ahead = at, behind = at;
        for (size_t i = 0; i < at.size(); ++i) {
            ahead[i] += STEP * along[i];
            behind[i] -= STEP * along[i];
        }
        return (loss(ahead) - loss(behind)) / (2 * STEP);
    };
    const double all = length(actual), usual = all / std::sqrt(double(at.size()));
    Doubles along = actual;
    for (double &item : along) item /= all + 1e-30;
    const double along_them = rise(along);
    if (!(std::abs(along_them - all) <= allowed * all))
        std::printf("%s: %g in place of %g\n", what.c_str(), all, along_them);
    expect(std::abs(along_them - all) <= allowed * all, what + ", along themselves");
    for (int i = 0; i < 6; ++i) {
        const size_t place = rng() % at.size();
        Doubles item(at.size(), 0.0);
        item[place] = 1;
        const double expected = rise(item), off = std::abs(expected - actual[place]);
        if (!(off <= 4 * allowed * (usual + std::abs(expected))))
            std::printf("%s: %g in place of %g at %zu\n", what.c_str(), actual[place], expected,
                        place);
        expect(off <= 4 * allowed * (usual + std::abs(expected)), what + ", one of them");
    }
}

inline double reference_activation(double x, bool gelu) {
    if (!gelu) return x / (1 + std::exp(-x));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

// Of rows; with a bias (which may be empty) LayerNorm, where `centred`.
inline Doubles reference_norm(const Doubles &x, const Doubles &weight, const Doubles &bias,
                              double eps, double offset, bool centred) {
    const size_t width = weight.size();
    Doubles result(x.size());
    for (size_t row = 0; row < x.size(); row += width) {
        double mean = 0, squares = 0;
        for (size_t c = 0; c < width; ++c) mean += centred ? x[row + c] / double(width) : 0;
        for (size_t c = 0; c < width; ++c) squares += std::pow(x[row + c] - mean, 2);
        const double scale = 1 / std::sqrt(squares / double(width) + eps);
        for (size_t c = 0; c < width; ++c)
            result[row + c] =
                (x[row + c] - mean) * scale * (weight[c] + offset) + (bias.empty() ? 0 : bias[c]);
    }
    return result;
}

constexpr double EXACT = 2e-5, ROUNDED = 0.02;  // what float32 and bfloat16 leave

template <typename T>
double allowed() {
    return sizeof(T) == 4 ? EXACT : ROUNDED;
}

template <typename T>
std::string label(const std::string &what) {
    return what + (sizeof(T) == 4 ? ", float" : ", bfloat16") + ", threads " +
           std::to_string(most_threads);
}

template <typename T>
constexpr int DTYPE = sizeof(T) == 4 ? 0 : 1;

// Heads of all tokens; `cosine` and `sine` have `step` numbers for each of `period` tokens.
inline Doubles reference_norm_and_rope(const Doubles &x, i64 queries, i64 keys, i64 width,
                                       const Doubles &query_norm, const Doubles &key_norm,
                                       double eps, double offset, const Doubles &cosine,
                                       const Doubles &sine, i64 period, i64 step) {
    const i64 heads = queries + 2 * keys, half = width / 2;
    const i64 tokens = i64(x.size()) / (heads * width);
    Doubles result = x;
    for (i64 token = 0; token < tokens; ++token)
        for (i64 head = 0; head < queries + keys; ++head) {
            const i64 at = (token * heads + head) * width, angle = token % period * step;
            Doubles item(x.begin() + at, x.begin() + at + width);
            const Doubles &norm = head < queries ? query_norm : key_norm;
            if (!norm.empty()) item = reference_norm(item, norm, {}, eps, offset, false);
            for (i64 d = 0; d < half; ++d) {
                const double c = cosine[angle + d], s = sine[angle + d];
                result[at + d] = item[d] * c - item[half + d] * s;
                result[at + half + d] = item[half + d] * c + item[d] * s;
            }
        }
    return result;
}

// What each token may see first: documents that begin where they like.
inline std::vector<int32_t> document_starts(i64 texts, i64 tokens) {
    std::vector<int32_t> result(static_cast<size_t>(texts * tokens));
    for (i64 text = 0; text < texts; ++text)
        for (i64 t = 0, first = 0; t < tokens; ++t) {
            if (t % (19 + 8 * text) == 11) first = t;
            result[size_t(text * tokens + t)] = int32_t(first);
        }
    return result;
}

// [texts, tokens, queries * width] of heads as `turned_heads` makes them.
inline Doubles reference_attention(const Doubles &x, i64 texts, i64 tokens, i64 queries, i64 keys,
                                   i64 width, double scale, const std::vector<int32_t> &first) {
    const i64 heads = queries + 2 * keys;
    Doubles result(static_cast<size_t>(texts * tokens * queries * width), 0.0),
        powers(static_cast<size_t>(tokens), 0.0);
    const auto at = [&](i64 text, i64 token, i64 head) {
        return x.data() + ((text * tokens + token) * heads + head) * width;
    };
    for (i64 text = 0; text < texts; ++text)
        for (i64 head = 0; head < queries; ++head)
            for (i64 t = 0; t < tokens; ++t) {
                const i64 key = queries + head / (queries / keys), value = key + keys;
                const i64 from = first.empty() ? 0 : first[size_t(text * tokens + t)];
                double total = 0;
                for (i64 k = from; k <= t; ++k) {
                    double score = 0;
                    for (i64 d = 0; d < width; ++d)
                        score += at(text, t, head)[d] * at(text, k, key)[d];
                    total += powers[size_t(k)] = std::exp(score * scale);
                }
                double *to = result.data() + ((text * tokens + t) * queries + head) * width;
                for (i64 k = from; k <= t; ++k)
                    for (i64 d = 0; d < width; ++d)
                        to[d] += powers[size_t(k)] / total * at(text, k, value)[d];
            }
    return result;
}

}  // namespace reference
