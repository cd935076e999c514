// The engine through its C interface, and its threads: to be run under sanitizers.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/pool.h"
#include "engine/shape.h"

using namespace ownwords::engine;

struct OwnwordsEngine;
struct OwnwordsCache;
extern "C" {
int ownwords_engine_new(const Shape *, const Tensor *, int64_t, int64_t, OwnwordsEngine **);
int ownwords_engine_threads(const OwnwordsEngine *, int64_t *);
int ownwords_engine_cache(const OwnwordsEngine *, int64_t, int64_t, OwnwordsCache **);
int ownwords_cache_read(OwnwordsCache *, int64_t, const int64_t *, const int64_t *, const int32_t *,
                        int, double, int64_t, float *);
int ownwords_cache_held(const OwnwordsCache *, int64_t, int64_t *);
int ownwords_cache_cut(OwnwordsCache *, int64_t, int64_t);
int ownwords_cache_copy(OwnwordsCache *, int64_t, int64_t, int64_t);
void ownwords_cache_free(OwnwordsCache *);
void ownwords_engine_free(OwnwordsEngine *);
int ownwords_level();
}

namespace {

std::atomic<int> failures{0};

void expect(bool true_, const std::string &what) {
    if (true_) return;
    ++failures;
    std::printf("failed: %s\n", what.c_str());
}

constexpr Long VOCABULARY = 53, WIDTH = 40, LAYERS = 3, HEADS = 6, KEYS = 2, HEAD = 10, HIDDEN = 70;
constexpr Long CONTEXT = 600;

// A small model with all there can be: gates, norms of heads, norms after each half, windows.
struct Small {
    std::vector<std::vector<float>> numbers;
    std::vector<Tensor> tensors;
    std::vector<int64_t> windows{9, 0, 100}, turns{0, 1, 0};
    std::vector<float> frequencies{1, 0.3f, 0.1f, 0.03f, 0.01f, 1, 0.5f, 0.2f, 0.1f, 0.05f};
    Shape shape{};

    explicit Small(int kind) {
        std::mt19937 luck(3);
        const auto add = [&](Role role, Long layer, Long rows, Long columns) {
            std::normal_distribution<float> drawn(rows == 1 ? 1 : 0, rows == 1 ? 0.2f : 0.25f);
            numbers.emplace_back(static_cast<size_t>(rows * columns));
            for (float &x : numbers.back()) x = drawn(luck);
            tensors.push_back({role, layer, 0, nullptr, nullptr, 0, rows, columns, 0, 0});
        };
        add(EMBEDDING, 0, VOCABULARY, WIDTH);
        add(FINAL_NORM, 0, 1, WIDTH);
        for (Long i = 0; i < LAYERS; ++i) {
            for (const Role norm :
                 {ATTENTION_NORM, ATTENTION_OUTPUT_NORM, MLP_NORM, MLP_OUTPUT_NORM})
                add(norm, i, 1, WIDTH);
            add(QUERY_NORM, i, 1, HEAD);
            add(KEY_NORM, i, 1, HEAD);
            add(QUERY, i, HEADS * HEAD, WIDTH);
            add(KEY, i, KEYS * HEAD, WIDTH);
            add(VALUE, i, KEYS * HEAD, WIDTH);
            add(OUTPUT, i, WIDTH, HEADS * HEAD);
            add(GATE, i, HIDDEN, WIDTH);
            add(UP, i, HIDDEN, WIDTH);
            add(DOWN, i, WIDTH, HIDDEN);
        }
        for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = numbers[i].data();
        shape.vocabulary = VOCABULARY, shape.context = CONTEXT, shape.width = WIDTH;
        shape.layers = LAYERS, shape.heads = HEADS, shape.kv_heads = KEYS, shape.head_dim = HEAD;
        shape.hidden = HIDDEN, shape.matrices = shape.ends = kind, shape.narrow = kind != 0;
        shape.gelu = 1, shape.tables = 2, shape.norm_eps = 1e-6, shape.attention_scale = 0.3;
        shape.embedding_scale = 2, shape.softcap = 5;
        shape.windows = windows.data(), shape.turns = turns.data();
        shape.frequencies = frequencies.data();
    }

    OwnwordsEngine *engine(Long threads) const {
        OwnwordsEngine *made = nullptr;
        const int trouble = ownwords_engine_new(&shape, tensors.data(), int64_t(tensors.size()),
                                                threads, &made);
        expect(trouble == FINE, "an engine is made");
        return made;
    }
};

std::vector<int32_t> text(Long count, unsigned seed) {
    std::mt19937 luck(seed);
    std::vector<int32_t> made(static_cast<size_t>(count));
    for (int32_t &id : made) id = int32_t(luck() % VOCABULARY);
    return made;
}

std::vector<float> read(OwnwordsCache *cache, int64_t row, const int32_t *ids, int64_t count,
                        bool every) {
    std::vector<float> made(static_cast<size_t>((every ? count : 1) * VOCABULARY));
    const int trouble = ownwords_cache_read(cache, 1, &row, &count, ids, every, -1, 0,
                                            made.data());
    expect(trouble == FINE, "a text is read");
    return made;
}

void barriers(int threads) {
    Pool pool(threads);
    std::vector<Long> counts(size_t(pool.threads()), 0);
    bool right = true;
    for (int run = 0; run < 20; ++run) {
        if (run % 7 == 6) std::this_thread::sleep_for(std::chrono::milliseconds(8));
        pool.run([&](Team &team, int thread) {
            for (Long round = 0; round < 50; ++round) {
                ++counts[size_t(thread)];
                team.barrier();
                for (const Long count : counts)
                    if (count != run * 50 + round + 1 && thread == 0) right = false;
                team.barrier();
            }
        });
    }
    expect(right, "all threads meet");
}

void reading(int kind, Long threads) {
    const Small small(kind);
    OwnwordsEngine *engine = small.engine(threads);
    OwnwordsCache *cache = nullptr;
    expect(ownwords_engine_cache(engine, 4, CONTEXT, &cache) == FINE, "a cache is made");
    ownwords_engine_free(engine);  // the cache needs it still
    const Long count = 330;
    const auto ids = text(count, 5);
    const auto whole = read(cache, 0, ids.data(), count, true);
    bool finite = true;
    for (const float score : whole) finite &= std::isfinite(score);
    expect(finite, "scores are finite");
    std::vector<float> parts;
    for (Long at = 0, some = 1; at < count; at += some, some = some % 90 + 13) {
        const auto made = read(cache, 1, ids.data() + at, std::min(some, count - at), true);
        parts.insert(parts.end(), made.begin(), made.end());
    }
    expect(parts == whole, "pieces give what the whole gives");
    const auto other = text(40, 6);
    std::vector<int32_t> both(ids.begin(), ids.begin() + 300);
    both.insert(both.end(), other.begin(), other.end());
    const int64_t rows[] = {3, 2}, counts[] = {300, 40};
    std::vector<float> scores(2 * VOCABULARY);
    expect(ownwords_cache_read(cache, 2, rows, counts, both.data(), 0, -1, 0, scores.data()) ==
               FINE,
           "two texts are read");
    expect(std::equal(scores.begin(), scores.begin() + VOCABULARY,
                      whole.begin() + 299 * VOCABULARY),
           "one text does not change another");
    expect(ownwords_cache_copy(cache, 0, 2, 77) == FINE, "a row is copied");
    expect(ownwords_cache_cut(cache, 2, 55) == FINE, "a row is cut");
    const auto last = read(cache, 2, ids.data() + 55, 5, false);
    expect(std::equal(last.begin(), last.end(), whole.begin() + 59 * VOCABULARY),
           "a copied row goes on as its source");
    ownwords_cache_free(cache);
}

void at_once() {
    const Small small(2);
    OwnwordsEngine *engine = small.engine(3);
    const auto ids = text(30, 8);
    std::vector<std::vector<float>> made(4);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < made.size(); ++i)
        threads.emplace_back([&, i] {
            OwnwordsCache *cache = nullptr;
            ownwords_engine_cache(engine, 1, 64, &cache);
            for (const int32_t id : ids) made[i] = read(cache, 0, &id, 1, false);
            ownwords_cache_free(cache);
        });
    for (std::thread &thread : threads) thread.join();
    for (const auto &one : made) expect(one == made[0], "texts read at once come out alike");
    ownwords_engine_free(engine);
}

void refusals() {
    const Small small(0);
    OwnwordsEngine *engine = nullptr;
    const auto count = int64_t(small.tensors.size());
    const auto *tensors = small.tensors.data();
    expect(ownwords_engine_new(nullptr, tensors, count, 1, &engine) == NOTHING_GIVEN, "no shape");
    expect(ownwords_engine_new(&small.shape, nullptr, 3, 1, &engine) == NOTHING_GIVEN,
           "no tensors");
    expect(ownwords_engine_new(&small.shape, tensors, -1, 1, &engine) == BAD_COUNT,
           "less than none");
    expect(ownwords_engine_new(&small.shape, tensors, count, 1 << 20, &engine) == BAD_COUNT,
           "a million threads");
    expect(ownwords_engine_new(&small.shape, tensors, count - 1, 1, &engine) == MISSING_TENSOR,
           "one less");
    Shape shape = small.shape;
    shape.windows = nullptr;
    expect(ownwords_engine_new(&shape, tensors, count, 1, &engine) == NOTHING_GIVEN, "no windows");
    shape = small.shape;
    shape.heads = int64_t(1) << 62;
    expect(ownwords_engine_new(&shape, tensors, count, 1, &engine) == BAD_SHAPE, "many heads");
    auto wrong = small.tensors;
    wrong[3].rows = INT64_MAX;
    expect(ownwords_engine_new(&small.shape, wrong.data(), count, 1, &engine) == BAD_TENSOR,
           "endless rows");
    wrong = small.tensors;
    wrong[5].layer = 1000;
    expect(ownwords_engine_new(&small.shape, wrong.data(), count, 1, &engine) == BAD_TENSOR,
           "a layer that is not there");
    expect(engine == nullptr, "nothing was made");
    expect(ownwords_engine_cache(nullptr, 1, 1, nullptr) == NOTHING_GIVEN, "no engine");
    expect(ownwords_cache_read(nullptr, 1, nullptr, nullptr, nullptr, 0, -1, 0, nullptr) ==
               NOTHING_GIVEN,
           "no cache");
    expect(ownwords_cache_cut(nullptr, 0, 0) == NOTHING_GIVEN, "no cache to cut");
    expect(ownwords_cache_copy(nullptr, 0, 0, 0) == NOTHING_GIVEN, "no cache to copy in");
    ownwords_cache_free(nullptr);
    ownwords_engine_free(nullptr);

    engine = small.engine(2);
    OwnwordsCache *cache = nullptr;
    expect(ownwords_engine_cache(engine, -1, 4, &cache) == BAD_COUNT, "less than no rows");
    expect(ownwords_engine_cache(engine, 1, CONTEXT + 1, &cache) == BAD_LENGTH,
           "beyond the context");
    expect(ownwords_engine_cache(engine, 2, 8, &cache) == FINE, "a cache");
    std::vector<float> scores(4 * VOCABULARY);
    const auto refused = [&](int64_t feeds, std::vector<int64_t> rows, std::vector<int64_t> counts,
                             std::vector<int32_t> ids) {
        return ownwords_cache_read(cache, feeds, rows.data(), counts.data(), ids.data(), 0, -1, 0,
                                   scores.data());
    };
    expect(refused(-1, {0}, {1}, {1}) == BAD_COUNT, "less than no feeds");
    expect(refused(3, {0, 1, 0}, {1, 1, 1}, {1, 1, 1}) == BAD_COUNT, "more feeds than rows");
    expect(refused(1, {INT64_MIN}, {1}, {1}) == BAD_ROW, "no row");
    expect(refused(2, {1, 1}, {1, 1}, {1, 1}) == ROW_TWICE, "a row twice");
    expect(refused(1, {1}, {0}, {1}) == BAD_COUNT, "no ids");
    expect(refused(1, {1}, {INT64_MAX}, {1}) == FULL, "endless ids");
    expect(refused(2, {0, 1}, {1, 1}, {1, int32_t(VOCABULARY)}) == BAD_ID, "an unknown id");
    expect(refused(2, {0, 1}, {1, 1}, {1, -1}) == BAD_ID, "a negative id");
    int64_t held = -1;
    expect(ownwords_cache_held(cache, 0, &held) == FINE && held == 0, "nothing was read");
    ownwords_cache_free(cache);
    ownwords_engine_free(engine);
}

}  // namespace

int main() {
    ownwords_level();  // asks the system for what it may use
    for (int threads = 1; threads <= 5; ++threads) barriers(threads);
    for (int kind = 0; kind < 4; ++kind) reading(kind, 1 + kind);
    at_once();
    refusals();
    if (failures == 0) std::printf("engine: all as it should be\n");
    return failures != 0;
}
