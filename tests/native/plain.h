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

#include "long.h"
#include "numbers.h"

extern "C" {
void ownwords_threads(void *, void *, void *, void *);
int ownwords_level();
}

namespace plain {

using namespace ownwords;
using Wide = std::vector<double>;

inline int failures = 0;

inline void expect(bool true_, const std::string &what) {
    if (true_) return;
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
    for (std::thread &one : others) one.join();
}

inline int get_most() { return most_threads; }
inline int get_team() { return team_size; }
inline int get_number() { return team_number; }

inline void compute_with(int threads) {
    most_threads = threads;
    ownwords_threads(reinterpret_cast<void *>(&fork_threads), reinterpret_cast<void *>(&get_most),
                     reinterpret_cast<void *>(&get_team), reinterpret_cast<void *>(&get_number));
}

// --- numbers ------------------------------------------------------------------------------------

inline std::mt19937 luck(7);

// Drawn so that bfloat16 holds them as they are.
inline Wide drawn(Long count, double mean = 0, double deviation = 1) {
    std::normal_distribution<double> normal(mean, deviation);
    Wide made(static_cast<size_t>(count));
    for (double &one : made) {
        Bf16 near;
        put(near, float(normal(luck)));
        one = wide(near);
    }
    return made;
}

template <typename T>
std::vector<T> as(const Wide &from) {
    std::vector<T> made(from.size());
    for (size_t i = 0; i < from.size(); ++i) put(made[i], float(from[i]));
    return made;
}

template <typename T>
Wide back(const std::vector<T> &from) {
    Wide made(from.size());
    for (size_t i = 0; i < from.size(); ++i) made[i] = wide(from[i]);
    return made;
}

inline double dot(const Wide &a, const Wide &b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

inline double length(const Wide &a) { return std::sqrt(dot(a, a)); }

inline void near(const std::string &what, const Wide &found, const Wide &wanted, double allowed) {
    double apart = 0;
    for (size_t i = 0; i < wanted.size(); ++i) apart += std::pow(found[i] - wanted[i], 2);
    apart = std::sqrt(apart) / (length(wanted) + 1e-30);
    if (!(apart <= allowed)) std::printf("%s: %g apart\n", what.c_str(), apart);
    expect(found.size() == wanted.size() && apart <= allowed, what);
}

// Slopes of `loss`: along themselves they are as steep as it is, and so are some single ones.
inline void steep(const std::string &what, const std::function<double(const Wide &)> &loss,
                  const Wide &at, const Wide &found, double allowed) {
    expect(found.size() == at.size(), what + ": their number");
    const auto rise = [&](const Wide &along) {
        constexpr double STEP = 1e-4;
        Wide ahead = at, behind = at;
        for (size_t i = 0; i < at.size(); ++i) {
            ahead[i] += STEP * along[i];
            behind[i] -= STEP * along[i];
        }
        return (loss(ahead) - loss(behind)) / (2 * STEP);
    };
    const double all = length(found), usual = all / std::sqrt(double(at.size()));
    Wide along = found;
    for (double &one : along) one /= all + 1e-30;
    const double along_them = rise(along);
    if (!(std::abs(along_them - all) <= allowed * all))
        std::printf("%s: %g in place of %g\n", what.c_str(), all, along_them);
    expect(std::abs(along_them - all) <= allowed * all, what + ", along themselves");
    for (int i = 0; i < 6; ++i) {
        const size_t place = luck() % at.size();
        Wide one(at.size(), 0.0);
        one[place] = 1;
        const double wanted = rise(one), off = std::abs(wanted - found[place]);
        if (!(off <= 4 * allowed * (usual + std::abs(wanted))))
            std::printf("%s: %g in place of %g at %zu\n", what.c_str(), found[place], wanted,
                        place);
        expect(off <= 4 * allowed * (usual + std::abs(wanted)), what + ", one of them");
    }
}

inline double activated(double x, bool gelu) {
    if (!gelu) return x / (1 + std::exp(-x));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

// Of rows; with a bias (which may be empty) LayerNorm, where `centred`.
inline Wide normed(const Wide &x, const Wide &weight, const Wide &bias, double eps,
                   double offset, bool centred) {
    const size_t width = weight.size();
    Wide made(x.size());
    for (size_t row = 0; row < x.size(); row += width) {
        double mean = 0, squares = 0;
        for (size_t c = 0; c < width; ++c) mean += centred ? x[row + c] / double(width) : 0;
        for (size_t c = 0; c < width; ++c) squares += std::pow(x[row + c] - mean, 2);
        const double scale = 1 / std::sqrt(squares / double(width) + eps);
        for (size_t c = 0; c < width; ++c)
            made[row + c] = (x[row + c] - mean) * scale * (weight[c] + offset) +
                            (bias.empty() ? 0 : bias[c]);
    }
    return made;
}

constexpr double EXACT = 2e-5, ROUNDED = 0.02;  // what float32 and bfloat16 leave

template <typename T>
double allowed() { return sizeof(T) == 4 ? EXACT : ROUNDED; }

template <typename T>
std::string named(const std::string &what) {
    return what + (sizeof(T) == 4 ? ", float" : ", bfloat16") + ", threads " +
           std::to_string(most_threads);
}

template <typename T>
constexpr int KIND = sizeof(T) == 4 ? 0 : 1;

// Heads of all tokens; `cosine` and `sine` have `step` numbers for each of `period` tokens.
inline Wide turned_heads(const Wide &x, Long queries, Long keys, Long width, const Wide &query_norm,
                  const Wide &key_norm, double eps, double offset, const Wide &cosine,
                  const Wide &sine, Long period, Long step) {
    const Long heads = queries + 2 * keys, half = width / 2;
    const Long tokens = Long(x.size()) / (heads * width);
    Wide made = x;
    for (Long token = 0; token < tokens; ++token)
        for (Long head = 0; head < queries + keys; ++head) {
            const Long at = (token * heads + head) * width, angle = token % period * step;
            Wide one(x.begin() + at, x.begin() + at + width);
            const Wide &norm = head < queries ? query_norm : key_norm;
            if (!norm.empty()) one = normed(one, norm, {}, eps, offset, false);
            for (Long d = 0; d < half; ++d) {
                const double c = cosine[angle + d], s = sine[angle + d];
                made[at + d] = one[d] * c - one[half + d] * s;
                made[at + half + d] = one[half + d] * c + one[d] * s;
            }
        }
    return made;
}

// What each token may see first: documents that begin where they like.
inline std::vector<int32_t> documents(Long texts, Long tokens) {
    std::vector<int32_t> made(static_cast<size_t>(texts * tokens));
    for (Long text = 0; text < texts; ++text)
        for (Long t = 0, first = 0; t < tokens; ++t) {
            if (t % (19 + 8 * text) == 11) first = t;
            made[size_t(text * tokens + t)] = int32_t(first);
        }
    return made;
}

// [texts, tokens, queries * width] of heads as `turned_heads` makes them.
inline Wide attended(const Wide &x, Long texts, Long tokens, Long queries, Long keys, Long width,
              double scale, const std::vector<int32_t> &first) {
    const Long heads = queries + 2 * keys;
    Wide made(static_cast<size_t>(texts * tokens * queries * width), 0.0), powers(static_cast<size_t>(tokens), 0.0);
    const auto at = [&](Long text, Long token, Long head) {
        return x.data() + ((text * tokens + token) * heads + head) * width;
    };
    for (Long text = 0; text < texts; ++text)
        for (Long head = 0; head < queries; ++head)
            for (Long t = 0; t < tokens; ++t) {
                const Long key = queries + head / (queries / keys), value = key + keys;
                const Long from = first.empty() ? 0 : first[size_t(text * tokens + t)];
                double total = 0;
                for (Long k = from; k <= t; ++k) {
                    double score = 0;
                    for (Long d = 0; d < width; ++d)
                        score += at(text, t, head)[d] * at(text, k, key)[d];
                    total += powers[size_t(k)] = std::exp(score * scale);
                }
                double *to = made.data() + ((text * tokens + t) * queries + head) * width;
                for (Long k = from; k <= t; ++k)
                    for (Long d = 0; d < width; ++d)
                        to[d] += powers[size_t(k)] / total * at(text, k, value)[d];
            }
    return made;
}

}  // namespace plain
