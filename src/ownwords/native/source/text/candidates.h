// Candidates for sampling, and the filters that reduce them: top-k, top-p, typical.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <vector>

#include "simd/vec.h"

namespace ownwords::text {

constexpr float NEVER = -INFINITY;
// exp of less counts as 0: a whole vocabulary of it is negligible beside the likeliest.
constexpr float COLDEST = -80.0f;
// Scores scanned together, and those whose weights are summed in float.
constexpr i64 GROUP = 4 * LANES, BLOCK = 1024;

struct Candidate {
    float score;  // (logit - max) / temperature, so 0 or less
    float mass;
    float order;  // higher ranks first
    int32_t id;
};

inline bool ranks_before(const Candidate &a, const Candidate &b) {
    return a.order > b.order || (a.order == b.order && a.id < b.id);
}

// A score that at least `wanted` candidates reach: of so many groups, the lowest maximum.
inline float kth_score_bound(const float *scores, i64 count, i64 wanted, std::vector<float> &tops) {
    const i64 stride = std::max<i64>(1, count / (8 * wanted) / LANES) * LANES;
    tops.clear();
    for (i64 at = 0; at + stride <= count; at += stride) {
        // Each lane is a group.
        VecF32 top = load(scores + at);
        for (i64 i = LANES; i < stride; i += LANES) top = max(top, load(scores + at + i));
        tops.resize(tops.size() + LANES);
        store(tops.data() + tops.size() - LANES, top);
    }
    if (i64(tops.size()) < wanted) return NEVER;
    std::nth_element(tops.begin(), tops.begin() + (wanted - 1), tops.end(), std::greater<float>());
    return tops[wanted - 1];
}

struct Scale {
    float top, reciprocal;
    VecF32 operator()(VecF32 x) const { return (x - top) * reciprocal; }
    float operator()(float x) const { return (x - top) * reciprocal; }
};

// Candidates with scores in [least, less_than), by ascending id.
inline void collect(const float *scores, i64 count, float least, float less_than, Scale scale,
                    std::vector<Candidate> &to) {
    const auto scan = [&](i64 begin, i64 end) {
        for (i64 i = begin; i < end; ++i) {
            const float score = scale(scores[i]);
            if (score >= least && score < less_than) to.push_back({score, 0, 0, int32_t(i)});
        }
    };
    i64 at = 0;
    for (; at + GROUP <= count; at += GROUP) {
        const VecF32 a = max(load(scores + at), load(scores + at + LANES));
        const VecF32 b = max(load(scores + at + 2 * LANES), load(scores + at + 3 * LANES));
        if (scale(reduce_max(max(a, b))) >= least) scan(at, at + GROUP);
    }
    scan(at, count);
}

inline VecF32 exp_weight(VecF32 x) { return x >= splat(COLDEST) ? exp(x) : VecF32{}; }

inline double softmax_weights(std::vector<Candidate> &candidates) {
    double total = 0;
    for (size_t at = 0; at < candidates.size(); at += LANES) {
        const size_t here = std::min<size_t>(LANES, candidates.size() - at);
        VecF32 x = splat(NEVER);
        for (size_t i = 0; i < here; ++i) x[i] = candidates[at + i].score;
        const VecF32 mass = exp_weight(x);
        for (size_t i = 0; i < here; ++i) total += double(candidates[at + i].mass = mass[i]);
    }
    return total;
}

// Remove what ranks after `border`.
inline void drop_below(const Candidate border, std::vector<Candidate> &candidates) {
    candidates.erase(
        std::remove_if(candidates.begin(), candidates.end(),
                       [&](const Candidate &candidate) { return ranks_before(border, candidate); }),
        candidates.end());
}

inline void keep_top_k(std::vector<Candidate> &candidates, size_t count,
                       std::vector<Candidate> &sorted) {
    if (count >= candidates.size()) return;
    for (Candidate &candidate : candidates) candidate.order = candidate.score;
    sorted = candidates;
    std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end(), ranks_before);
    drop_below(sorted[count - 1], candidates);
}

inline const Candidate &median(const Candidate &a, const Candidate &b, const Candidate &c) {
    const bool ab = ranks_before(a, b), bc = ranks_before(b, c), ac = ranks_before(a, c);
    return ab == bc ? b : ab == ac ? c : a;
}

// Keep the fewest, by rank, with a total mass of at least `wanted`. A quickselect: only the part
// that holds the border is partitioned again.
inline void keep_top_p(std::vector<Candidate> &candidates, double wanted,
                       std::vector<Candidate> &sorted) {
    sorted = candidates;
    auto low = sorted.begin(), high = sorted.end();
    while (high - low > 1) {
        const Candidate pivot = median(*low, low[(high - low) / 2], high[-1]);
        const auto middle = std::partition(
            low, high, [&](const Candidate &candidate) { return ranks_before(candidate, pivot); });
        double mass = 0;
        for (auto candidate = low; candidate != middle; ++candidate)
            mass += double(candidate->mass);
        if (mass >= wanted) {
            high = middle;
            continue;
        }
        wanted -= mass + double(pivot.mass);
        if (wanted <= 0) return drop_below(pivot, candidates);
        const auto found = std::find_if(
            middle, high, [&](const Candidate &candidate) { return candidate.id == pivot.id; });
        std::iter_swap(middle, found);
        low = middle + 1;
    }
    if (low != high) drop_below(*low, candidates);
}

// The expected score.
inline float mean_score(const std::vector<Candidate> &candidates, double total) {
    double moment = 0;
    for (const Candidate &candidate : candidates)
        if (candidate.mass > 0) moment += double(candidate.mass) * double(candidate.score);
    return float(moment / total);
}

// Locally typical sampling (Meister et al. 2022, arXiv 2202.00666): the fewest with a mass of at
// least `wanted`, nearest to the center first.
inline void keep_typical(std::vector<Candidate> &candidates, float center, double wanted,
                         std::vector<Candidate> &sorted) {
    for (Candidate &candidate : candidates) candidate.order = -std::fabs(candidate.score - center);
    keep_top_p(candidates, wanted, sorted);
}

}  // namespace ownwords::text
