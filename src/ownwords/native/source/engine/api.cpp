// The engine for other languages. Every function returns a number of shape.h; nothing is thrown,
// and what is given back in any order is gone when the last that needs it is. A cache is for one
// caller at a time.
#include <new>

#include "engine/decoder.h"

using ownwords::engine::Cache;
using ownwords::engine::Decoder;
using ownwords::engine::Feeds;
using ownwords::engine::Refused;
using ownwords::engine::Shape;
using ownwords::engine::Tensor;
using namespace ownwords::engine;  // the numbers of Trouble

struct OwnwordsEngine {
    std::shared_ptr<Decoder> decoder;
};

struct OwnwordsCache {
    std::shared_ptr<Decoder> decoder;
    std::unique_ptr<Cache> cache;
};

namespace {

template <typename Body>
int guarded(const Body &body) {
    try {
        return body();
    } catch (const Refused &refused) {
        return refused.trouble;
    } catch (const std::bad_alloc &) {
        return NO_MEMORY;
    } catch (const std::length_error &) {
        return NO_MEMORY;
    } catch (...) {
        return UNEXPECTED;
    }
}

bool has(const OwnwordsCache *cache, int64_t row) {
    return row >= 0 && row < cache->cache->shape.rows;
}

}  // namespace

OWNWORDS_API int ownwords_engine_new(const Shape *shape, const Tensor *tensors, int64_t count,
                                     int64_t threads, OwnwordsEngine **made) {
    if (shape == nullptr || made == nullptr || (tensors == nullptr && count > 0))
        return NOTHING_GIVEN;
    *made = nullptr;
    if (count < 0 || threads < 1 || threads > 1024) return BAD_COUNT;
    return guarded([&] {
        auto engine = std::make_unique<OwnwordsEngine>();
        engine->decoder = std::make_shared<Decoder>(*shape, tensors, Long(count), int(threads));
        *made = engine.release();
        return FINE;
    });
}

OWNWORDS_API int ownwords_engine_threads(const OwnwordsEngine *engine, int64_t *threads) {
    if (engine == nullptr || threads == nullptr) return NOTHING_GIVEN;
    *threads = engine->decoder->threads();
    return FINE;
}

OWNWORDS_API int ownwords_engine_cache(const OwnwordsEngine *engine, int64_t rows, int64_t length,
                                       OwnwordsCache **made) {
    if (engine == nullptr || made == nullptr) return NOTHING_GIVEN;
    *made = nullptr;
    const int64_t context = engine->decoder->shape().context;
    if (rows < 1 || rows > 1 << 20) return BAD_COUNT;
    if (length < 1 || length > context) return BAD_LENGTH;
    return guarded([&] {
        auto cache = std::make_unique<OwnwordsCache>();
        cache->decoder = engine->decoder;
        cache->cache = engine->decoder->cache(Long(rows), Long(length));
        *made = cache.release();
        return FINE;
    });
}

OWNWORDS_API int ownwords_cache_read(OwnwordsCache *cache, int64_t feeds, const int64_t *rows,
                                     const int64_t *counts, const int32_t *ids, int every,
                                     double margin, int64_t among, float *logits) {
    if (cache == nullptr || rows == nullptr || counts == nullptr || ids == nullptr ||
        logits == nullptr)
        return NOTHING_GIVEN;
    return guarded([&] {
        return cache->decoder->read(*cache->cache,
                                    Feeds{Long(feeds), rows, counts, ids, every != 0, logits,
                                          margin, Long(among)});
    });
}

OWNWORDS_API int ownwords_cache_held(const OwnwordsCache *cache, int64_t row, int64_t *held) {
    if (cache == nullptr || held == nullptr) return NOTHING_GIVEN;
    if (!has(cache, row)) return BAD_ROW;
    *held = cache->cache->held[size_t(row)];
    return FINE;
}

// Forget what the row holds beyond `length`.
OWNWORDS_API int ownwords_cache_cut(OwnwordsCache *cache, int64_t row, int64_t length) {
    if (cache == nullptr) return NOTHING_GIVEN;
    if (!has(cache, row)) return BAD_ROW;
    Long &held = cache->cache->held[size_t(row)];
    if (length < 0 || length > held) return BAD_LENGTH;
    held = Long(length);
    return FINE;
}

// The row begins with the first `length` tokens of `source`.
OWNWORDS_API int ownwords_cache_copy(OwnwordsCache *cache, int64_t source, int64_t row,
                                     int64_t length) {
    if (cache == nullptr) return NOTHING_GIVEN;
    if (!has(cache, source) || !has(cache, row)) return BAD_ROW;
    if (length < 0 || length > cache->cache->held[size_t(source)]) return BAD_LENGTH;
    cache->cache->copy(Long(source), Long(row), Long(length));
    return FINE;
}

OWNWORDS_API void ownwords_cache_free(OwnwordsCache *cache) { delete cache; }

OWNWORDS_API void ownwords_engine_free(OwnwordsEngine *engine) { delete engine; }
