// The engine's C interface.
#include <new>

#include "engine/decoder.h"

using namespace ownwords;
using namespace ownwords::engine;

struct OwnwordsEngine {
    std::shared_ptr<Decoder> decoder;
};

struct OwnwordsCache {
    std::shared_ptr<Decoder> decoder;
    std::unique_ptr<KvCache> cache;
};

namespace {

bool has_row(const OwnwordsCache *cache, int64_t row) {
    return row >= 0 && row < cache->cache->shape.rows;
}

}  // namespace

int ownwords_engine_new(const ModelShape *shape, const TensorSource *tensors, int64_t count,
                        int64_t threads, OwnwordsEngine **handle) {
    if (shape == nullptr || handle == nullptr || (tensors == nullptr && count > 0))
        return STATUS_NULL_POINTER;
    *handle = nullptr;
    if (count < 0 || threads < 1 || threads > 1024) return STATUS_BAD_COUNT;
    return with_status([&] {
        auto engine = std::make_unique<OwnwordsEngine>();
        engine->decoder = std::make_shared<Decoder>(*shape, tensors, i64(count), int(threads));
        *handle = engine.release();
        return STATUS_OK;
    });
}

int ownwords_engine_threads(const OwnwordsEngine *engine, int64_t *threads) {
    if (engine == nullptr || threads == nullptr) return STATUS_NULL_POINTER;
    *threads = engine->decoder->threads();
    return STATUS_OK;
}

int ownwords_cache_new(const OwnwordsEngine *engine, int64_t rows, int64_t length,
                       OwnwordsCache **handle) {
    if (engine == nullptr || handle == nullptr) return STATUS_NULL_POINTER;
    *handle = nullptr;
    const int64_t context = engine->decoder->shape().context;
    if (rows < 1 || rows > 1 << 20) return STATUS_BAD_COUNT;
    if (length < 1 || length > context) return STATUS_BAD_LENGTH;
    return with_status([&] {
        auto cache = std::make_unique<OwnwordsCache>();
        cache->decoder = engine->decoder;
        cache->cache = engine->decoder->new_cache(i64(rows), i64(length));
        *handle = cache.release();
        return STATUS_OK;
    });
}

int ownwords_cache_forward(OwnwordsCache *cache, int64_t count, const int64_t *rows,
                           const int64_t *counts, const int64_t *ids, int all_logits, double margin,
                           int64_t candidates, float *logits) {
    if (cache == nullptr || rows == nullptr || counts == nullptr || ids == nullptr ||
        logits == nullptr)
        return STATUS_NULL_POINTER;
    return with_status([&] {
        return cache->decoder->forward(
            *cache->cache, ForwardBatch{i64(count), rows, counts, ids, all_logits != 0, logits,
                                        margin, i64(candidates)});
    });
}

int ownwords_cache_length(const OwnwordsCache *cache, int64_t row, int64_t *lengths) {
    if (cache == nullptr || lengths == nullptr) return STATUS_NULL_POINTER;
    if (!has_row(cache, row)) return STATUS_BAD_ROW;
    *lengths = cache->cache->lengths[size_t(row)];
    return STATUS_OK;
}

int ownwords_cache_truncate(OwnwordsCache *cache, int64_t row, int64_t length) {
    if (cache == nullptr) return STATUS_NULL_POINTER;
    if (!has_row(cache, row)) return STATUS_BAD_ROW;
    i64 &lengths = cache->cache->lengths[size_t(row)];
    if (length < 0 || length > lengths) return STATUS_BAD_LENGTH;
    lengths = i64(length);
    return STATUS_OK;
}

int ownwords_cache_copy(OwnwordsCache *cache, int64_t source, int64_t row, int64_t length) {
    if (cache == nullptr) return STATUS_NULL_POINTER;
    if (!has_row(cache, source) || !has_row(cache, row)) return STATUS_BAD_ROW;
    if (length < 0 || length > cache->cache->lengths[size_t(source)]) return STATUS_BAD_LENGTH;
    cache->cache->copy(i64(source), i64(row), i64(length));
    return STATUS_OK;
}

void ownwords_cache_free(OwnwordsCache *cache) { delete cache; }

void ownwords_engine_free(OwnwordsEngine *engine) { delete engine; }
