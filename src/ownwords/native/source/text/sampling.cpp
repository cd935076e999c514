// Picks the next token, as inference/sampling.py describes it. Only tokens that may still be chosen
// are weighed: bounds find them before anything is sorted. Probabilities are within 1e-6.
#include <new>

#include "text/candidates.h"
#include "text/copy_guard.h"

namespace ownwords::text {
namespace {

struct History {
    const int32_t *ids;
    int64_t length, prompt;
};

// A thread's buffers, reused from call to call.
struct SamplerScratch {
    std::vector<float> scores, tops;
    std::vector<int32_t> counts, seen, banned_ids;
    std::vector<double> sums;
    std::vector<Candidate> candidates, sorted;
};

// The maximum; false if a score is NaN or +inf. Copies to `to` unless that is null.
bool read(const float *from, i64 count, float *to, float &top) {
    // Four chains, to hide the latency of a comparison.
    VecF32 tops[4] = {splat(NEVER), splat(NEVER), splat(NEVER), splat(NEVER)};
    VecI32 below = VecI32{} - 1;
    const auto scan = [&](i64 at, auto part, VecF32 &highest) {
        const VecF32 x = mask_tail(load(from + at, part), part, NEVER);
        if (to) store(to + at, x, part);
        below &= x < splat(INFINITY);
        highest = max(highest, x);
    };
    i64 begin = 0;
    for (; begin + GROUP <= count; begin += GROUP)
        for (int i = 0; i < 4; ++i) scan(begin + i * LANES, FullVec{}, tops[i]);
    for_each_vec(count - begin, [&](i64 at, auto part) { scan(begin + at, part, tops[0]); });
    top = reduce_max(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
    return reduce_add(__builtin_convertvector(below, VecF32)) == -float(LANES);
}

int64_t first_of(const float *scores, i64 count, float top) {
    i64 at = 0;
    for (; at + GROUP <= count; at += GROUP) {
        VecI32 equal{};
        for (int i = 0; i < 4; ++i) equal |= load(scores + at + i * LANES) == splat(top);
        if (reduce_add(__builtin_convertvector(equal, VecF32)) != 0.0f) break;
    }
    while (scores[at] != top) ++at;
    return at;
}

inline float clamp_score(double score) {
    const double most = double(FLT_MAX);
    return score == double(NEVER) ? NEVER : float(std::max(-most, std::min(most, score)));
}

bool in_vocabulary(const SamplingParams &params, int32_t id) {
    return id >= 0 && id < params.vocabulary;
}

void apply_penalties(const SamplingParams &params, const History &history,
                     SamplerScratch &scratch) {
    if (params.repetition_penalty == 1.0 && params.frequency_penalty == 0.0 &&
        params.presence_penalty == 0.0)
        return;
    if (i64(scratch.counts.size()) < params.vocabulary) scratch.counts.resize(params.vocabulary, 0);
    scratch.seen.clear();
    for (i64 i = 0; i < history.length; ++i) {
        if (!in_vocabulary(params, history.ids[i])) continue;
        int32_t &count =
            scratch.counts[history.ids[i]];  // one more than the times it was generated
        if (count == 0) {
            scratch.seen.push_back(history.ids[i]);
            count = 1;
        }
        count += i >= history.prompt;
    }
    for (const int32_t id : scratch.seen) {
        const double times = scratch.counts[id] - 1, score = scratch.scores[id];
        const double less =
            score > 0 ? score / params.repetition_penalty : score * params.repetition_penalty;
        scratch.scores[id] = clamp_score(less - params.frequency_penalty * times -
                                         params.presence_penalty * (times > 0));
        scratch.counts[id] = 0;
    }
}

void ban_repeated_ngrams(const SamplingParams &params, const History &history, float *scores) {
    const i64 n = params.no_repeat_ngram_size;
    if (n < 1 || history.length < n) return;
    const int32_t *end = history.ids + history.length, *last = end - (n - 1);
    for (const int32_t *run = history.ids; run + n <= end; ++run)
        if (std::equal(last, end, run) && in_vocabulary(params, run[n - 1]))
            scores[run[n - 1]] = NEVER;
}

// Thresholds at which all mass is measured, to see how far down top_p reaches.
constexpr int DEPTHS = 5;

struct Weight {
    double total = 0, above[DEPTHS] = {};
};

template <bool deep>
Weight softmax_weights(const float *scores, i64 count, Scale scale, const float (&depths)[DEPTHS]) {
    Weight result;
    for (i64 begin = 0; begin < count; begin += BLOCK) {
        VecF32 total{}, above[DEPTHS] = {};
        for_each_vec(std::min(BLOCK, count - begin), [&](i64 at, auto part) {
            const VecF32 x = scale(mask_tail(load(scores + begin + at, part), part, NEVER));
            const VecF32 mass = exp_weight(x);
            total += mass;
            for (int i = 0; deep && i < DEPTHS; ++i)
                above[i] += x >= splat(depths[i]) ? mass : VecF32{};
        });
        result.total += double(reduce_add(total));
        for (int i = 0; deep && i < DEPTHS; ++i) result.above[i] += double(reduce_add(above[i]));
    }
    return result;
}

// Where the border of top_p lies: scores from `high` on, with a mass of `above`, are kept; those
// below `low` are not.
struct TopPBand {
    float low, high = FLT_MAX;
    double above = 0;
};

constexpr double FEW = 4096;  // candidates that are sorted as fast as all are weighed

TopPBand find_top_p_band(const float *scores, i64 count, Scale scale, double top_p, float least,
                         double &total) {
    // All below weigh less together than top_p leaves out.
    TopPBand band{std::max(COLDEST, float(std::log((1 - top_p) / double(count))))};
    float depths[DEPTHS] = {-1.5f, -3.0f, -5.0f, -8.0f, -12.0f};
    if (least >= depths[1]) {  // min_p alone leaves few
        total = softmax_weights<false>(scores, count, scale, depths).total;
        return band;
    }
    for (int round = 0; round < 3; ++round) {
        const Weight weight = softmax_weights<true>(scores, count, scale, depths);
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

// The total mass, and the expected score.
struct TypicalCenter {
    double total = 0;
    float center = 0;
};

TypicalCenter find_center(const float *scores, i64 count, Scale scale) {
    TypicalCenter result;
    double moment = 0;
    for (i64 begin = 0; begin < count; begin += BLOCK) {
        VecF32 total{}, turning{};
        for_each_vec(std::min(BLOCK, count - begin), [&](i64 at, auto part) {
            const VecF32 x = scale(mask_tail(load(scores + begin + at, part), part, NEVER));
            const VecF32 mass = exp_weight(x);
            total += mass;
            turning += mass * max(x, splat(COLDEST));
        });
        result.total += double(reduce_add(total));
        moment += double(reduce_add(turning));
    }
    result.center = float(moment / result.total);
    return result;
}

// The distance from the center within which the nearest have a mass of `wanted`.
float typical_radius(const float *scores, i64 count, Scale scale, float center, double wanted) {
    constexpr float reaches[DEPTHS] = {0.5f, 1.0f, 2.0f, 4.0f, 8.0f};
    double within[DEPTHS] = {};
    for (i64 begin = 0; begin < count; begin += BLOCK) {
        VecF32 sums[DEPTHS] = {};
        for_each_vec(std::min(BLOCK, count - begin), [&](i64 at, auto part) {
            const VecF32 x = scale(mask_tail(load(scores + begin + at, part), part, NEVER));
            const VecF32 mass = exp_weight(x), away = max(x - center, center - x);
            for (int i = 0; i < DEPTHS; ++i) sums[i] += away <= splat(reaches[i]) ? mass : VecF32{};
        });
        for (int i = 0; i < DEPTHS; ++i) within[i] += double(reduce_add(sums[i]));
    }
    for (int i = 0; i < DEPTHS; ++i)
        if (within[i] > wanted * 1.0001) return reaches[i] * 1.001f;  // sums are rounded
    return -COLDEST;
}

// The mass of a vector's candidates that do not rank after the border.
inline VecF32 mass_above(const Candidate &border, VecF32 x, i64 at) {
    const VecI32 ids = kIota + int32_t(at), first = ids <= border.id;
    const VecI32 kept = (x > splat(border.score)) | ((x == splat(border.score)) & first);
    return kept ? exp_weight(x) : VecF32{};
}

int64_t sample(const std::vector<Candidate> &candidates, double uniform) {
    double total = 0, reached = 0;
    for (const Candidate &candidate : candidates) total += double(candidate.mass);
    int64_t last = candidates.front().id;
    for (const Candidate &candidate : candidates) {
        if (candidate.mass <= 0) continue;
        reached += double(candidate.mass);
        last = candidate.id;
        if (reached > uniform * total) break;
    }
    return last;
}

// Sample from all that do not rank after the border: find the block, then the id.
int64_t sample(const float *scores, i64 count, Scale scale, const Candidate &border, double uniform,
               std::vector<double> &sums) {
    double total = 0, reached = 0;
    sums.clear();
    for (i64 begin = 0; begin < count; begin += BLOCK) {
        VecF32 sum{};
        for_each_vec(std::min(BLOCK, count - begin), [&](i64 at, auto part) {
            const VecF32 x = scale(mask_tail(load(scores + begin + at, part), part, NEVER));
            sum += mass_above(border, x, begin + at);
        });
        sums.push_back(double(reduce_add(sum)));
        total += sums.back();
    }
    size_t block = 0;
    while (block + 1 < sums.size() && reached + sums[block] <= uniform * total)
        reached += sums[block++];
    const i64 begin = i64(block) * BLOCK, here = std::min(BLOCK, count - begin);
    float masses[BLOCK];
    for_each_vec(here, [&](i64 at, auto part) {
        const VecF32 x = scale(load(scores + begin + at, part));
        store(masses + at, mass_above(border, x, begin + at), part);
    });
    int64_t last = begin;
    for (i64 i = 0; i < here; ++i) {
        if (masses[i] <= 0) continue;
        reached += double(masses[i]);
        last = begin + i;
        if (reached > uniform * total) break;
    }
    return last;
}

int64_t sample(const SamplingParams &params, const float *scores, float top, double uniform,
               SamplerScratch &scratch) {
    const i64 count = params.vocabulary;
    const Scale scale{top, float(std::max(1e-30, 1.0 / std::max(params.temperature, 1e-6)))};
    const float least = params.min_p > 0 ? float(std::log(params.min_p)) : NEVER;
    std::vector<Candidate> &candidates = scratch.candidates;
    candidates.clear();
    double total = 0;
    float center = 0;
    if (params.top_k > 0 && params.top_k < count) {
        const float bound = kth_score_bound(scores, count, params.top_k, scratch.tops);
        collect(scores, count, std::max(scale(bound), -FLT_MAX), FLT_MAX, scale, candidates);
        keep_top_k(candidates, size_t(params.top_k), scratch.sorted);
        total = softmax_weights(candidates);
        if (params.typical_p < 1) center = mean_score(candidates, total);
    } else if (params.typical_p < 1) {
        const TypicalCenter typical = find_center(scores, count, scale);
        total = typical.total;
        center = typical.center;
        const float reach = typical_radius(scores, count, scale, center, params.typical_p * total);
        collect(scores, count, std::max(COLDEST, center - reach), center + reach, scale,
                candidates);
        softmax_weights(candidates);
    } else if (params.top_p < 1) {
        const TopPBand band = find_top_p_band(scores, count, scale, params.top_p, least, total);
        if (band.high == FLT_MAX || least >= band.low) {
            collect(scores, count, std::max(least, band.low), FLT_MAX, scale, candidates);
            softmax_weights(candidates);
        } else {
            // Only the band needs a list to find the border.
            collect(scores, count, band.low, band.high, scale, candidates);
            softmax_weights(candidates);
            for (Candidate &candidate : candidates) candidate.order = candidate.score;
            keep_top_p(candidates, params.top_p * total - band.above, scratch.sorted);
            Candidate border{band.high, 0, band.high, INT32_MAX};
            for (const Candidate &candidate : candidates)
                if (ranks_before(border, candidate)) border = candidate;
            return sample(scores, count, scale, border, uniform, scratch.sums);
        }
    } else if (params.min_p > 0) {
        collect(scores, count, std::max(least, COLDEST), FLT_MAX, scale, candidates);
        softmax_weights(candidates);
    } else {
        return sample(scores, count, scale, {COLDEST, 0, COLDEST, INT32_MAX}, uniform,
                      scratch.sums);
    }
    if (params.typical_p < 1) {
        keep_typical(candidates, center, params.typical_p * total, scratch.sorted);
        total = 0;
        for (const Candidate &candidate : candidates) total += double(candidate.mass);
    }
    if (params.top_p < 1) {
        for (Candidate &candidate : candidates) candidate.order = candidate.score;
        keep_top_p(candidates, params.top_p * total, scratch.sorted);
    }
    if (params.min_p > 0) {
        float best = NEVER;
        for (const Candidate &candidate : candidates) best = std::max(best, candidate.score);
        candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                        [=](const Candidate &candidate) {
                                            return candidate.score < best + least;
                                        }),
                         candidates.end());
    }
    return sample(candidates, uniform);
}

struct IdSpan {
    const int32_t *first;
    int64_t count;
};

void ban(const SamplingParams &params, IdSpan ids, float *scores) {
    for (int64_t i = 0; i < ids.count; ++i)
        if (in_vocabulary(params, ids.first[i])) scores[ids.first[i]] = NEVER;
}

int64_t choose_token(const SamplingParams &params, const float *logits, const History &history,
                     IdSpan banned, const NgramIndex *guard, double uniform,
                     SamplerScratch &scratch) {
    scratch.banned_ids.clear();
    if (guard) banned_ids(*guard, history.ids, history.length, scratch.banned_ids);
    const IdSpan guarded{scratch.banned_ids.data(), int64_t(scratch.banned_ids.size())};
    const bool looks_back = params.repetition_penalty != 1.0 || params.frequency_penalty != 0.0 ||
                            params.presence_penalty != 0.0 || params.no_repeat_ngram_size > 0;
    const bool is_changed = params.bias_count > 0 || banned.count + guarded.count > 0 ||
                            (looks_back && history.length > 0);
    const float *scores = logits;
    float top;
    if (is_changed && i64(scratch.scores.size()) < params.vocabulary)
        scratch.scores.resize(params.vocabulary);
    if (!read(logits, params.vocabulary, is_changed ? scratch.scores.data() : nullptr, top))
        return SAMPLE_NOT_FINITE;
    if (is_changed) {
        for (i64 i = 0; i < params.bias_count; ++i)
            if (in_vocabulary(params, params.bias_ids[i])) {
                float &score = scratch.scores[params.bias_ids[i]];
                score = clamp_score(double(score) + params.bias[i]);
            }
        apply_penalties(params, history, scratch);
        ban_repeated_ngrams(params, history, scratch.scores.data());
        ban(params, banned, scratch.scores.data());
        ban(params, guarded, scratch.scores.data());
        scores = scratch.scores.data();
        read(scores, params.vocabulary, nullptr, top);
    }
    if (top == NEVER) return SAMPLE_NOTHING_LEFT;
    if (params.temperature == 0) return first_of(scores, params.vocabulary, top);
    return sample(params, scores, top, uniform, scratch);
}

}  // namespace
}  // namespace ownwords::text

int64_t ownwords_sample(const SamplingParams *params, const float *logits, const int32_t *history,
                        int64_t length, int64_t prompt, const int32_t *banned, int64_t banned_count,
                        const NgramIndex *guard, double uniform) {
    using namespace ownwords::text;
    thread_local SamplerScratch scratch;
    try {
        return choose_token(*params, logits, {history, length, prompt}, {banned, banned_count},
                            guard, uniform, scratch);
    } catch (const std::bad_alloc &) {
        scratch = SamplerScratch();
        return SAMPLE_NO_MEMORY;
    }
}
