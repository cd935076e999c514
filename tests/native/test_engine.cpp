// The engine through its C interface, and its threads: to be run under sanitizers.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/thread_pool.h"
#include "api.h"

using namespace ownwords::engine;

namespace {

std::atomic<int> failures{0};

void expect(bool condition, const std::string &what) {
    if (condition) return;
    ++failures;
    std::printf("failed: %s\n", what.c_str());
}

constexpr i64 VOCABULARY = 53, WIDTH = 40, LAYERS = 3, HEADS = 6, KEYS = 2, HEAD = 10, HIDDEN = 70;
constexpr i64 CONTEXT = 600;

// A small model with all there can be: gates, norms of heads, norms after each half, windows.
struct SmallModel {
    std::vector<std::vector<float>> values;
    std::vector<TensorSource> tensors;
    std::vector<int64_t> windows{9, 0, 100}, rope_table{0, 1, 0};
    std::vector<float> frequencies{1, 0.3f, 0.1f, 0.03f, 0.01f, 1, 0.5f, 0.2f, 0.1f, 0.05f};
    ModelShape shape{};

    explicit SmallModel(int type) {
        std::mt19937 rng(3);
        const auto add = [&](Role role, i64 layer, i64 rows, i64 columns) {
            std::normal_distribution<float> random_values(rows == 1 ? 1 : 0,
                                                          rows == 1 ? 0.2f : 0.25f);
            values.emplace_back(static_cast<size_t>(rows * columns));
            for (float &x : values.back()) x = random_values(rng);
            tensors.push_back({role, layer, 0, nullptr, nullptr, rows, columns, 0});
        };
        add(ROLE_EMBEDDING, 0, VOCABULARY, WIDTH);
        add(ROLE_FINAL_NORM, 0, 1, WIDTH);
        for (i64 i = 0; i < LAYERS; ++i) {
            for (const Role norm : {ROLE_ATTENTION_NORM, ROLE_ATTENTION_OUTPUT_NORM, ROLE_MLP_NORM,
                                    ROLE_MLP_OUTPUT_NORM})
                add(norm, i, 1, WIDTH);
            add(ROLE_QUERY_NORM, i, 1, HEAD);
            add(ROLE_KEY_NORM, i, 1, HEAD);
            add(ROLE_QUERY, i, HEADS * HEAD, WIDTH);
            add(ROLE_KEY, i, KEYS * HEAD, WIDTH);
            add(ROLE_VALUE, i, KEYS * HEAD, WIDTH);
            add(ROLE_OUTPUT, i, WIDTH, HEADS * HEAD);
            add(ROLE_GATE, i, HIDDEN, WIDTH);
            add(ROLE_UP, i, HIDDEN, WIDTH);
            add(ROLE_DOWN, i, WIDTH, HIDDEN);
        }
        for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = values[i].data();
        shape.vocabulary = VOCABULARY, shape.context = CONTEXT, shape.width = WIDTH;
        shape.layers = LAYERS, shape.heads = HEADS, shape.kv_heads = KEYS, shape.head_dim = HEAD;
        shape.hidden = HIDDEN, shape.weight_type = type, shape.kv_bf16 = type != 0;
        shape.gelu = 1, shape.rope_tables = 2, shape.norm_eps = 1e-6, shape.attention_scale = 0.3;
        shape.embedding_scale = 2, shape.softcap = 5;
        shape.windows = windows.data(), shape.rope_table = rope_table.data();
        shape.frequencies = frequencies.data();
    }

    OwnwordsEngine *engine(i64 threads) const {
        OwnwordsEngine *result = nullptr;
        const int status =
            ownwords_engine_new(&shape, tensors.data(), int64_t(tensors.size()), threads, &result);
        expect(status == STATUS_OK, "an engine is made");
        return result;
    }
};

std::vector<int64_t> text(i64 count, unsigned seed) {
    std::mt19937 rng(seed);
    std::vector<int64_t> result(static_cast<size_t>(count));
    for (int64_t &id : result) id = int64_t(rng() % VOCABULARY);
    return result;
}

std::vector<float> forward(OwnwordsCache *cache, int64_t row, const int64_t *ids, int64_t count,
                           bool all_logits) {
    std::vector<float> result(static_cast<size_t>((all_logits ? count : 1) * VOCABULARY));
    const int status =
        ownwords_cache_forward(cache, 1, &row, &count, ids, all_logits, result.data());
    expect(status == STATUS_OK, "a text is read");
    return result;
}

void test_barriers(int threads) {
    ThreadPool pool(threads);
    std::vector<i64> counts(size_t(pool.threads()), 0);
    bool right = true;
    for (int run = 0; run < 20; ++run) {
        if (run % 7 == 6) std::this_thread::sleep_for(std::chrono::milliseconds(8));
        pool.run([&](ThreadTeam &team, int thread) {
            for (i64 round = 0; round < 50; ++round) {
                ++counts[size_t(thread)];
                team.barrier();
                for (const i64 count : counts)
                    if (count != run * 50 + round + 1 && thread == 0) right = false;
                team.barrier();
            }
        });
    }
    expect(right, "all threads meet");
}

void test_cache(int type, i64 threads) {
    const SmallModel model(type);
    OwnwordsEngine *engine = model.engine(threads);
    OwnwordsCache *cache = nullptr;
    expect(ownwords_cache_new(engine, 4, CONTEXT, &cache) == STATUS_OK, "a cache is made");
    ownwords_engine_free(engine);  // the cache needs it still
    const i64 count = 330;
    const auto ids = text(count, 5);
    const auto expected = forward(cache, 0, ids.data(), count, true);
    bool finite = true;
    for (const float score : expected) finite &= std::isfinite(score);
    expect(finite, "scores are finite");
    std::vector<float> parts;
    for (i64 at = 0, count_here = 1; at < count;
         at += count_here, count_here = count_here % 90 + 13) {
        const auto result =
            forward(cache, 1, ids.data() + at, std::min(count_here, count - at), true);
        parts.insert(parts.end(), result.begin(), result.end());
    }
    expect(parts == expected, "pieces give what the whole gives");
    const auto other = text(40, 6);
    std::vector<int64_t> both_ids(ids.begin(), ids.begin() + 300);
    both_ids.insert(both_ids.end(), other.begin(), other.end());
    const int64_t rows[] = {3, 2}, counts[] = {300, 40};
    std::vector<float> scores(2 * VOCABULARY);
    expect(ownwords_cache_forward(cache, 2, rows, counts, both_ids.data(), 0, scores.data()) == STATUS_OK,
           "two texts are read");
    expect(std::equal(scores.begin(), scores.begin() + VOCABULARY,
                      expected.begin() + 299 * VOCABULARY),
           "one text does not change another");
    expect(ownwords_cache_copy(cache, 0, 2, 77) == STATUS_OK, "a row is copied");
    expect(ownwords_cache_truncate(cache, 2, 55) == STATUS_OK, "a row is cut");
    const auto last = forward(cache, 2, ids.data() + 55, 5, false);
    expect(std::equal(last.begin(), last.end(), expected.begin() + 59 * VOCABULARY),
           "a copied row goes on as its source");
    ownwords_cache_free(cache);
}

void test_concurrent_caches() {
    const SmallModel model(2);
    OwnwordsEngine *engine = model.engine(3);
    const auto ids = text(30, 8);
    std::vector<std::vector<float>> result(4);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < result.size(); ++i)
        threads.emplace_back([&, i] {
            OwnwordsCache *cache = nullptr;
            ownwords_cache_new(engine, 1, 64, &cache);
            for (const int64_t id : ids) result[i] = forward(cache, 0, &id, 1, false);
            ownwords_cache_free(cache);
        });
    for (std::thread &thread : threads) thread.join();
    for (const auto &item : result) expect(item == result[0], "texts read at once come out alike");
    ownwords_engine_free(engine);
}

// Sizes and pointers that would lead out of memory; what else is refused Python's tests know.
void test_errors() {
    const SmallModel model(0);
    OwnwordsEngine *engine = nullptr;
    const auto count = int64_t(model.tensors.size());
    const auto *tensors = model.tensors.data();
    const auto made = [&](const ModelShape *shape, const TensorSource *given, int64_t given_count) {
        return ownwords_engine_new(shape, given, given_count, 1, &engine);
    };
    expect(made(nullptr, tensors, count) == STATUS_NULL_POINTER, "no shape");
    expect(made(&model.shape, nullptr, 3) == STATUS_NULL_POINTER, "no tensors");
    expect(made(&model.shape, tensors, -1) == STATUS_BAD_COUNT, "less than none");
    ModelShape shape = model.shape;
    shape.windows = nullptr;
    expect(made(&shape, tensors, count) == STATUS_NULL_POINTER, "no windows");
    shape = model.shape;
    shape.heads = int64_t(1) << 62;
    expect(made(&shape, tensors, count) == STATUS_BAD_SHAPE, "many heads");
    auto wrong = model.tensors;
    wrong[3].rows = INT64_MAX;
    expect(made(&model.shape, wrong.data(), count) == STATUS_BAD_TENSOR, "endless rows");
    wrong = model.tensors;
    wrong[5].layer = 1000;
    expect(made(&model.shape, wrong.data(), count) == STATUS_BAD_TENSOR, "an unknown layer");
    expect(engine == nullptr, "nothing was made");
    expect(ownwords_cache_new(nullptr, 1, 1, nullptr) == STATUS_NULL_POINTER, "no engine");
    expect(ownwords_cache_forward(nullptr, 1, nullptr, nullptr, nullptr, 0, nullptr) ==
               STATUS_NULL_POINTER,
           "no cache");
    ownwords_cache_free(nullptr);
    ownwords_engine_free(nullptr);

    engine = model.engine(2);
    OwnwordsCache *cache = nullptr;
    expect(ownwords_cache_new(engine, 2, 8, &cache) == STATUS_OK, "a cache");
    std::vector<float> scores(4 * VOCABULARY);
    const auto forward_status = [&](int64_t row, int64_t ids_count, int64_t id) {
        return ownwords_cache_forward(cache, 1, &row, &ids_count, &id, 0, scores.data());
    };
    expect(forward_status(INT64_MIN, 1, 1) == STATUS_BAD_ROW, "no row");
    expect(forward_status(1, INT64_MAX, 1) == STATUS_CACHE_FULL, "endless ids");
    expect(forward_status(1, 1, VOCABULARY) == STATUS_BAD_ID, "an unknown id");
    int64_t length = -1;
    expect(ownwords_cache_length(cache, 0, &length) == STATUS_OK && length == 0,
           "nothing was read");
    ownwords_cache_free(cache);
    ownwords_engine_free(engine);
}

}  // namespace

int main() {
    ownwords_best_isa();  // asks the system for what it may use
    for (int threads = 1; threads <= 5; ++threads) test_barriers(threads);
    for (int type = 0; type < 4; ++type) test_cache(type, 1 + type);
    test_concurrent_caches();
    test_errors();
    if (failures == 0) std::printf("engine: all as it should be\n");
    return failures != 0;
}
