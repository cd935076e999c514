// Candidates: the tokens that may still be chosen, and how they become fewer.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <vector>

#include "vectors.h"

namespace ownwords::engine::choosing {

constexpr float NEVER = -INFINITY;
// Powers of less are 0 to us: a whole vocabulary of them weighs nothing beside the likeliest.
constexpr float COLDEST = -80.0f;
// Logits that are looked at together, and those whose weights are summed in float.
constexpr Long GROUP = 4 * LANES, BLOCK = 1024;

struct Candidate {
    float score;  // above that of the likeliest, over temperature: 0 or less
    float mass;
    float order;  // higher comes first
    int32_t id;
};

inline bool before(const Candidate &a, const Candidate &b) {
    return a.order > b.order || (a.order == b.order && a.id < b.id);
}

// A score that at least `wanted` of them reach: the highest of as many groups do.
inline float reached_by(const float *scores, Long count, Long wanted, std::vector<float> &tops) {
    const Long stride = std::max<Long>(1, count / (8 * wanted) / LANES) * LANES;
    tops.clear();
    for (Long at = 0; at + stride <= count; at += stride) {
        // Each lane is a group of its own.
        Vector top = load(scores + at);
        for (Long i = LANES; i < stride; i += LANES) top = larger(top, load(scores + at + i));
        tops.resize(tops.size() + LANES);
        store(tops.data() + tops.size() - LANES, top);
    }
    if (Long(tops.size()) < wanted) return NEVER;
    std::nth_element(tops.begin(), tops.begin() + (wanted - 1), tops.end(), std::greater<float>());
    return tops[wanted - 1];
}

struct Scale {
    float top, inverse;
    Vector operator()(Vector x) const { return (x - top) * inverse; }
    float operator()(float x) const { return (x - top) * inverse; }
};

// Candidates, in the order of ids: all of at least this score, and less than that.
inline void gather(const float *scores, Long count, float least, float less_than, Scale scale,
                   std::vector<Candidate> &to) {
    const auto each = [&](Long begin, Long end) {
        for (Long i = begin; i < end; ++i) {
            const float score = scale(scores[i]);
            if (score >= least && score < less_than) to.push_back({score, 0, 0, int32_t(i)});
        }
    };
    Long at = 0;
    for (; at + GROUP <= count; at += GROUP) {
        const Vector a = larger(load(scores + at), load(scores + at + LANES));
        const Vector b = larger(load(scores + at + 2 * LANES), load(scores + at + 3 * LANES));
        if (scale(largest(larger(a, b))) >= least) each(at, at + GROUP);
    }
    each(at, count);
}

inline Vector power(Vector x) { return x >= every(COLDEST) ? exp(x) : Vector{}; }

inline double weigh(std::vector<Candidate> &all) {
    double total = 0;
    for (size_t at = 0; at < all.size(); at += LANES) {
        const size_t here = std::min<size_t>(LANES, all.size() - at);
        Vector x = every(NEVER);
        for (size_t i = 0; i < here; ++i) x[i] = all[at + i].score;
        const Vector mass = power(x);
        for (size_t i = 0; i < here; ++i) total += double(all[at + i].mass = mass[i]);
    }
    return total;
}

// Drop what comes after `border`.
inline void keep_to(const Candidate border, std::vector<Candidate> &all) {
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const Candidate &each) { return before(border, each); }),
              all.end());
}

inline void keep_count(std::vector<Candidate> &all, size_t count, std::vector<Candidate> &sorted) {
    if (count >= all.size()) return;
    for (Candidate &each : all) each.order = each.score;
    sorted = all;
    std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end(), before);
    keep_to(sorted[count - 1], all);
}

// Keep the fewest, in their order, that together have the mass `wanted`: as in sorting by
// exchange, but only the part that holds the border is looked at again.
inline void keep_mass(std::vector<Candidate> &all, double wanted, std::vector<Candidate> &sorted) {
    sorted = all;
    auto low = sorted.begin(), high = sorted.end();
    while (high - low > 1) {
        const Candidate &a = *low, &b = low[(high - low) / 2], &c = high[-1];
        const Candidate pivot = before(a, b) ? (before(b, c) ? b : before(a, c) ? c : a)
                                             : (before(a, c) ? a : before(b, c) ? c : b);
        const auto middle = std::partition(
            low, high, [&](const Candidate &each) { return before(each, pivot); });
        double mass = 0;
        for (auto each = low; each != middle; ++each) mass += double(each->mass);
        if (mass >= wanted) {
            high = middle;
            continue;
        }
        wanted -= mass + double(pivot.mass);
        if (wanted <= 0) return keep_to(pivot, all);
        const auto found = std::find_if(
            middle, high, [&](const Candidate &each) { return each.id == pivot.id; });
        std::iter_swap(middle, found);
        low = middle + 1;
    }
    if (low != high) keep_to(*low, all);
}

// The score that is as surprising as all of them are on average.
inline float middle_of(const std::vector<Candidate> &all, double total) {
    double moment = 0;
    for (const Candidate &each : all)
        if (each.mass > 0) moment += double(each.mass) * double(each.score);
    return float(moment / total);
}

// Those nearest to it, in their order: the fewest that together have the mass `wanted`.
inline void keep_nearest(std::vector<Candidate> &all, float middle, double wanted,
                         std::vector<Candidate> &sorted) {
    for (Candidate &each : all) each.order = -std::fabs(each.score - middle);
    keep_mass(all, wanted, sorted);
}

}  // namespace ownwords::engine::choosing
