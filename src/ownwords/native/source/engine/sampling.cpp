// Which token comes next: the chain that inference/sampling.py describes, on one vocabulary of
// float scores. Only what may still be chosen is weighed: candidates are found by bounds that are
// known before anything is sorted. Probabilities are within 1e-6 of their value.
#include <new>

#include "candidates.h"
#include "engine/guard.h"

namespace ownwords::engine::choosing {
namespace {

constexpr int64_t NO_NUMBERS = -1, NOTHING_LEFT = -2, NO_MEMORY = -3;

// As in native/sampling.py.
struct Sampling {
    double temperature, top_p, min_p, typical_p;
    double repetition, frequency, presence;
    int64_t vocabulary, top_k, no_repeat, biases;
    const int32_t *bias_ids;
    const double *bias;
};

struct History {
    const int32_t *ids;
    int64_t length, prompt;
};

// What a thread needs to choose, kept from call to call.
struct Desk {
    std::vector<float> scores, tops;
    std::vector<int32_t> counts, seen, forbidden;
    std::vector<double> sums;
    std::vector<Candidate> candidates, sorted;
};

// The highest score; false if one is not a number or infinite. `to` gets a copy unless null.
bool read(const float *from, Long count, float *to, float &top) {
    // Several, as each comparison waits for the one before.
    Vector tops[4] = {every(NEVER), every(NEVER), every(NEVER), every(NEVER)};
    Whole below = Whole{} - 1;
    const auto each = [&](Long at, auto part, Vector &highest) {
        const Vector x = only(load(from + at, part), part, NEVER);
        if (to) store(to + at, x, part);
        below &= x < every(INFINITY);
        highest = larger(highest, x);
    };
    Long begin = 0;
    for (; begin + GROUP <= count; begin += GROUP)
        for (int i = 0; i < 4; ++i) each(begin + i * LANES, Full{}, tops[i]);
    each_vector(count - begin, [&](Long at, auto part) { each(begin + at, part, tops[0]); });
    top = largest(larger(larger(tops[0], tops[1]), larger(tops[2], tops[3])));
    return summed(__builtin_convertvector(below, Vector)) == -float(LANES);
}

// The first of this score.
int64_t first_of(const float *scores, Long count, float top) {
    Long at = 0;
    for (; at + GROUP <= count; at += GROUP) {
        Whole found{};
        for (int i = 0; i < 4; ++i) found |= load(scores + at + i * LANES) == every(top);
        if (summed(__builtin_convertvector(found, Vector)) != 0.0f) break;
    }
    while (scores[at] != top) ++at;
    return at;
}

inline float clipped(double score) {
    const double most = double(FLT_MAX);
    return score == double(NEVER) ? NEVER : float(std::max(-most, std::min(most, score)));
}

bool inside(const Sampling &how, int32_t id) { return id >= 0 && id < how.vocabulary; }

void penalise(const Sampling &how, const History &history, Desk &desk) {
    if (how.repetition == 1.0 && how.frequency == 0.0 && how.presence == 0.0) return;
    if (Long(desk.counts.size()) < how.vocabulary) desk.counts.resize(how.vocabulary, 0);
    desk.seen.clear();
    for (Long i = 0; i < history.length; ++i) {
        if (!inside(how, history.ids[i])) continue;
        int32_t &count = desk.counts[history.ids[i]];  // one more than it was generated
        if (count == 0) {
            desk.seen.push_back(history.ids[i]);
            count = 1;
        }
        count += i >= history.prompt;
    }
    for (const int32_t id : desk.seen) {
        const double times = desk.counts[id] - 1, score = desk.scores[id];
        const double less = score > 0 ? score / how.repetition : score * how.repetition;
        desk.scores[id] = clipped(less - how.frequency * times - how.presence * (times > 0));
        desk.counts[id] = 0;
    }
}

void forbid_repeating(const Sampling &how, const History &history, float *scores) {
    const Long n = how.no_repeat;
    if (n < 1 || history.length < n) return;
    const int32_t *end = history.ids + history.length, *last = end - (n - 1);
    for (const int32_t *run = history.ids; run + n <= end; ++run)
        if (std::equal(last, end, run) && inside(how, run[n - 1])) scores[run[n - 1]] = NEVER;
}

// Logits to which all is weighed, to see how far down `top_p` reaches.
constexpr int DEPTHS = 5;

struct Weight {
    double total = 0, above[DEPTHS] = {};
};

// With `deep` by the depths, too.
template <bool deep>
Weight weigh(const float *scores, Long count, Scale scale, const float (&depths)[DEPTHS]) {
    Weight made;
    for (Long begin = 0; begin < count; begin += BLOCK) {
        Vector total{}, above[DEPTHS] = {};
        each_vector(std::min(BLOCK, count - begin), [&](Long at, auto part) {
            const Vector x = scale(only(load(scores + begin + at, part), part, NEVER));
            const Vector mass = power(x);
            total += mass;
            for (int i = 0; deep && i < DEPTHS; ++i)
                above[i] += x >= every(depths[i]) ? mass : Vector{};
        });
        made.total += double(summed(total));
        for (int i = 0; deep && i < DEPTHS; ++i) made.above[i] += double(summed(above[i]));
    }
    return made;
}

// Where the border of `top_p` lies: what is not below `high` weighs `above` and is kept, what is
// below `low` is not.
struct Band {
    float low, high = FLT_MAX;
    double above = 0;
};

constexpr double FEW = 4096;  // candidates, so many that to sort them takes as long as to weigh all

Band band_of(const float *scores, Long count, Scale scale, double top_p, float least,
             double &total) {
    // Below it all together weigh less than what is left out.
    Band band{std::max(COLDEST, float(std::log((1 - top_p) / double(count))))};
    float depths[DEPTHS] = {-1.5f, -3.0f, -5.0f, -8.0f, -12.0f};
    if (least >= depths[1]) {  // few are left by that alone
        total = weigh<false>(scores, count, scale, depths).total;
        return band;
    }
    for (int round = 0; round < 3; ++round) {
        const Weight weight = weigh<true>(scores, count, scale, depths);
        total = weight.total;
        double mass = total;
        for (int i = 0; i < DEPTHS; ++i) {
            if (weight.above[i] >= top_p * total) {
                band.low = std::max(band.low, depths[i]);
                mass = weight.above[i];
                break;
            }
            band.high = depths[i];
            band.above = weight.above[i];
        }
        const float high = std::min(band.high, 0.0f), step = (high - band.low) / (DEPTHS + 1);
        if (mass - band.above < FEW * std::exp(double(band.low + high) / 2) || step <= 0) break;
        for (int i = 0; i < DEPTHS; ++i) depths[i] = high - step * float(i + 1);
    }
    return band;
}

// The mass of all, and the score that is as surprising as they are on average.
struct Center {
    double total = 0;
    float middle = 0;
};

Center center_of(const float *scores, Long count, Scale scale) {
    Center made;
    double moment = 0;
    for (Long begin = 0; begin < count; begin += BLOCK) {
        Vector total{}, turning{};
        each_vector(std::min(BLOCK, count - begin), [&](Long at, auto part) {
            const Vector x = scale(only(load(scores + begin + at, part), part, NEVER));
            const Vector mass = power(x);
            total += mass;
            turning += mass * larger(x, every(COLDEST));
        });
        made.total += double(summed(total));
        moment += double(summed(turning));
    }
    made.middle = float(moment / made.total);
    return made;
}

// How far from the middle those can be that are nearest to it and weigh so much together.
float reach_of(const float *scores, Long count, Scale scale, float middle, double wanted) {
    constexpr float reaches[DEPTHS] = {0.5f, 1.0f, 2.0f, 4.0f, 8.0f};
    double within[DEPTHS] = {};
    for (Long begin = 0; begin < count; begin += BLOCK) {
        Vector sums[DEPTHS] = {};
        each_vector(std::min(BLOCK, count - begin), [&](Long at, auto part) {
            const Vector x = scale(only(load(scores + begin + at, part), part, NEVER));
            const Vector mass = power(x), away = larger(x - middle, middle - x);
            for (int i = 0; i < DEPTHS; ++i) sums[i] += away <= every(reaches[i]) ? mass : Vector{};
        });
        for (int i = 0; i < DEPTHS; ++i) within[i] += double(summed(sums[i]));
    }
    for (int i = 0; i < DEPTHS; ++i)
        if (within[i] > wanted * 1.0001) return reaches[i] * 1.001f;  // as sums are rounded
    return -COLDEST;
}

// The mass of those in a vector that do not come after the border.
inline Vector mass_to(const Candidate &border, Vector x, Long at) {
    const Whole ids = NUMBERS + int32_t(at), first = ids <= border.id;
    const Whole kept = (x > every(border.score)) | ((x == every(border.score)) & first);
    return kept ? power(x) : Vector{};
}

int64_t drawn(const std::vector<Candidate> &all, double luck) {
    double total = 0, reached = 0;
    for (const Candidate &each : all) total += double(each.mass);
    int64_t last = all.front().id;
    for (const Candidate &each : all) {
        if (each.mass <= 0) continue;
        reached += double(each.mass);
        last = each.id;
        if (reached > luck * total) break;
    }
    return last;
}

// From all that do not come after the border: the block at which the luck is reached, then the id.
int64_t drawn(const float *scores, Long count, Scale scale, const Candidate &border, double luck,
              std::vector<double> &sums) {
    double total = 0, reached = 0;
    sums.clear();
    for (Long begin = 0; begin < count; begin += BLOCK) {
        Vector sum{};
        each_vector(std::min(BLOCK, count - begin), [&](Long at, auto part) {
            const Vector x = scale(only(load(scores + begin + at, part), part, NEVER));
            sum += mass_to(border, x, begin + at);
        });
        sums.push_back(double(summed(sum)));
        total += sums.back();
    }
    size_t block = 0;
    while (block + 1 < sums.size() && reached + sums[block] <= luck * total)
        reached += sums[block++];
    const Long begin = Long(block) * BLOCK, here = std::min(BLOCK, count - begin);
    float masses[BLOCK];
    each_vector(here, [&](Long at, auto part) {
        const Vector x = scale(load(scores + begin + at, part));
        store(masses + at, mass_to(border, x, begin + at), part);
    });
    int64_t last = begin;
    for (Long i = 0; i < here; ++i) {
        if (masses[i] <= 0) continue;
        reached += double(masses[i]);
        last = begin + i;
        if (reached > luck * total) break;
    }
    return last;
}

int64_t drawn(const Sampling &how, const float *scores, float top, double luck, Desk &desk) {
    const Long count = how.vocabulary;
    const Scale scale{top, float(std::max(1e-30, 1.0 / std::max(how.temperature, 1e-6)))};
    const float least = how.min_p > 0 ? float(std::log(how.min_p)) : NEVER;
    std::vector<Candidate> &all = desk.candidates;
    all.clear();
    double total = 0;
    float middle = 0;
    if (how.top_k > 0 && how.top_k < count) {
        const float bound = reached_by(scores, count, how.top_k, desk.tops);
        gather(scores, count, std::max(scale(bound), -FLT_MAX), FLT_MAX, scale, all);
        keep_count(all, size_t(how.top_k), desk.sorted);
        total = weigh(all);
        if (how.typical_p < 1) middle = middle_of(all, total);
    } else if (how.typical_p < 1) {
        const Center center = center_of(scores, count, scale);
        total = center.total;
        middle = center.middle;
        const float reach = reach_of(scores, count, scale, middle, how.typical_p * total);
        gather(scores, count, std::max(COLDEST, middle - reach), middle + reach, scale, all);
        weigh(all);
    } else if (how.top_p < 1) {
        const Band band = band_of(scores, count, scale, how.top_p, least, total);
        if (band.high == FLT_MAX || least >= band.low) {
            gather(scores, count, std::max(least, band.low), FLT_MAX, scale, all);
            weigh(all);
        } else {
            // The border among those in the band; what is above it needs no list.
            gather(scores, count, band.low, band.high, scale, all);
            weigh(all);
            for (Candidate &each : all) each.order = each.score;
            keep_mass(all, how.top_p * total - band.above, desk.sorted);
            Candidate border{band.high, 0, band.high, INT32_MAX};
            for (const Candidate &each : all)
                if (before(border, each)) border = each;
            return drawn(scores, count, scale, border, luck, desk.sums);
        }
    } else if (how.min_p > 0) {
        gather(scores, count, std::max(least, COLDEST), FLT_MAX, scale, all);
        weigh(all);
    } else {
        return drawn(scores, count, scale, {COLDEST, 0, COLDEST, INT32_MAX}, luck, desk.sums);
    }
    if (how.typical_p < 1) {
        keep_nearest(all, middle, how.typical_p * total, desk.sorted);
        total = 0;
        for (const Candidate &each : all) total += double(each.mass);
    }
    if (how.top_p < 1) {
        for (Candidate &each : all) each.order = each.score;
        keep_mass(all, how.top_p * total, desk.sorted);
    }
    if (how.min_p > 0) {
        float best = NEVER;
        for (const Candidate &each : all) best = std::max(best, each.score);
        all.erase(std::remove_if(all.begin(), all.end(),
                                 [=](const Candidate &each) { return each.score < best + least; }),
                  all.end());
    }
    return drawn(all, luck);
}

struct Ids {
    const int32_t *first;
    int64_t count;
};

void forbid(const Sampling &how, Ids ids, float *scores) {
    for (int64_t i = 0; i < ids.count; ++i)
        if (inside(how, ids.first[i])) scores[ids.first[i]] = NEVER;
}

int64_t chosen(const Sampling &how, const float *logits, const History &history, Ids banned,
               const void *guard, double luck, Desk &desk) {
    desk.forbidden.clear();
    if (guard) forbidden(guard, history.ids, history.length, desk.forbidden);
    const Ids guarded{desk.forbidden.data(), int64_t(desk.forbidden.size())};
    const bool looks_back = how.repetition != 1.0 || how.frequency != 0.0 || how.presence != 0.0 ||
                            how.no_repeat > 0;
    const bool moved = how.biases > 0 || banned.count + guarded.count > 0 || (looks_back && history.length > 0);
    const float *scores = logits;
    float top;
    if (moved && Long(desk.scores.size()) < how.vocabulary) desk.scores.resize(how.vocabulary);
    if (!read(logits, how.vocabulary, moved ? desk.scores.data() : nullptr, top)) return NO_NUMBERS;
    if (moved) {
        for (Long i = 0; i < how.biases; ++i)
            if (inside(how, how.bias_ids[i])) {
                float &score = desk.scores[how.bias_ids[i]];
                score = clipped(double(score) + how.bias[i]);
            }
        penalise(how, history, desk);
        forbid_repeating(how, history, desk.scores.data());
        forbid(how, banned, desk.scores.data());
        forbid(how, guarded, desk.scores.data());
        scores = desk.scores.data();
        read(scores, how.vocabulary, nullptr, top);
    }
    if (top == NEVER) return NOTHING_LEFT;
    if (how.temperature == 0) return first_of(scores, how.vocabulary, top);
    return drawn(how, scores, top, luck, desk);
}

}  // namespace
}  // namespace ownwords::engine::choosing

// The id, or -1 if a score is not a number or infinite, -2 if none is left to choose, -3 where
// memory is short. Not chosen are those banned, and what `guard` forbids, unless it is null: an
// index as ownwords_guard has it.
OWNWORDS_API int64_t ownwords_next(const void *sampling, const float *logits,
                                   const int32_t *history, int64_t length, int64_t prompt,
                                   const int32_t *banned, int64_t bans, const void *guard,
                                   double luck) {
    using namespace ownwords::engine::choosing;
    thread_local Desk desk;
    try {
        return chosen(*static_cast<const Sampling *>(sampling), logits, {history, length, prompt},
                      {banned, bans}, guard, luck, desk);
    } catch (const std::bad_alloc &) {
        desk = Desk();
        return NO_MEMORY;
    }
}
