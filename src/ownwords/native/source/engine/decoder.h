// Runs a model on the engine's threads: ids and a cache in, logits of the next token out.
#pragma once

#include <memory>
#include <mutex>

#include "engine/cached_attention.h"
#include "engine/model.h"
#include "engine/matmul.h"

namespace ownwords::engine {

constexpr i64 CHUNK = 256;   // tokens per forward pass, which bounds the buffers
constexpr i64 FEW_ROWS = 2;  // up to so many rows every thread computes the norms of all

// Ids to append to rows of the cache.
struct ForwardBatch {
    i64 count;
    const int64_t *rows, *counts;
    const int64_t *ids;
    bool all_logits;  // after each id, not only after the last of each row
    float *logits;    // [rows or ids, vocabulary]
};

class Decoder {
  public:
    Decoder(const ModelShape &shape, const TensorSource *tensors, i64 count, int threads);

    // Throws std::bad_alloc.
    std::unique_ptr<KvCache> new_cache(i64 rows, i64 length) const;

    // Checks everything before it changes anything.
    Status forward(KvCache &cache, const ForwardBatch &batch);

    const ModelShape &shape() const { return model_.shape; }
    int threads() const { return pool_.threads(); }

  private:
    // The tokens of one pass.
    struct Chunk {
        i64 tokens = 0, outputs = 0, block_count = 0, output_blocks = 0;
        bool distinct_rows = false;  // every token belongs to another row
        const int64_t *ids = nullptr;
        float *logits = nullptr;
        i64 rows[CHUNK], positions[CHUNK];
        i64 output_tokens[CHUNK];  // tokens whose logits are needed
        QueryBlock blocks[CHUNK], output_block[CHUNK];
    };

    // The rows a thread works on: in its own copy, or its part of the shared ones.
    struct Workspace {
        float *x, *normed, *attn;
        MatmulInput *input;
        i64 begin, end;
        bool is_private;
    };

    struct ThreadState {
        std::vector<float> x, normed, attn;
        MatmulInput input;
        std::unique_ptr<AttentionScratch> attention;
    };

    struct StepRun;

    Status check(KvCache &cache, const ForwardBatch &batch) const;
    void step(KvCache &cache, ThreadTeam &team, int thread);
    AttentionHeads heads_of(const Layer &layer) const;

    std::mutex mutex_;
    ThreadPool pool_;
    Model model_;
    Chunk chunk_;
    std::vector<i64> windows_;          // distinct ones
    std::vector<AttentionPlan> plans_;  // by window, and the last layer's for the output tokens
    std::vector<i64> plan_of_;          // by layer
    std::vector<ThreadState> states_;   // by thread
    i64 qkv_stride_, q_width_, hidden_stride_;
    PageBuffer buffer_;
    float *x_, *output_x_, *normed_, *delta_, *qkv_, *attn_out_, *gate_, *up_, *angles_;
    MatmulInput input_;
};

}  // namespace ownwords::engine
