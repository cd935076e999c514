// A model read on the engine's own threads: ids and a cache in, scores of the next token out.
#pragma once

#include <memory>
#include <mutex>

#include "engine/attention.h"
#include "engine/model.h"
#include "engine/product.h"

namespace ownwords::engine {

constexpr Long CHUNK = 256;  // tokens that are read at once, at most: what bounds the room for them
constexpr Long FEW = 2;      // up to so many rows each thread norms all of them by itself

// Some texts to be read on, one after another.
struct Feeds {
    Long count;
    const int64_t *rows, *counts;
    const int32_t *ids;
    bool every;     // scores after each id, not only after the last of each feed
    float *logits;  // [feeds or ids, vocabulary]
    // Not below 0: only scores of the first `among` ids are wanted, and of these only such as are
    // within the margin of the highest; others may be minus infinity.
    double margin = -1;
    Long among = 0;
};

class Decoder {
  public:
    Decoder(const Shape &shape, const Tensor *tensors, Long count, int threads);

    // Room for texts; throws std::bad_alloc.
    std::unique_ptr<Cache> cache(Long rows, Long length) const;

    // Read all feeds; what is wrong is found before anything is changed.
    Trouble read(Cache &cache, const Feeds &feeds);

    const Shape &shape() const { return model_.shape; }
    int threads() const { return pool_.threads(); }

  private:
    // The tokens of one run, and what attends to what.
    struct Chunk {
        Long tokens = 0, wanted = 0, blocks = 0, wanted_blocks = 0;
        bool apart = false;  // every token is of another row
        bool near = false;   // not all scores are wanted
        float margin = 0;
        Long among = 0;
        const int32_t *ids = nullptr;
        float *logits = nullptr;
        Long rows[CHUNK], positions[CHUNK];
        Long keep[CHUNK];  // the tokens after which scores are wanted
        Block block[CHUNK], wanted_block[CHUNK];
    };

    // Where a thread works: on rows of its own copy, or on its part of the shared ones.
    struct Bench {
        float *x, *normed, *joined;
        Input *input;
        Long begin, end;
        bool alone;
    };

    struct Own {
        std::vector<float> x, normed, joined;
        Input input;
        std::unique_ptr<AttentionRoom> attention;
        Input rough;       // for the planes of the head
        Memory room;
        float best = 0;    // the highest score that it knows of
        Long exact = 0;    // panels whose scores it has found
    };

    struct Run;

    Trouble check(Cache &cache, const Feeds &feeds) const;
    void step(Cache &cache, Team &team, int thread);
    void learn();
    Heads heads(const Layer &layer) const;

    std::mutex reading_;
    Pool pool_;
    Model model_;
    Chunk chunk_;
    std::vector<Long> windows_;  // the different ones
    std::vector<Plan> plans_;    // by window, and the last layer's for the wanted tokens
    std::vector<Long> plan_of_;  // by layer
    std::vector<Own> own_;       // by thread
    Long made_stride_, wide_, hidden_;
    Long resting_ = 0;  // reads to come for which all scores are found in any case
    Memory memory_;
    float *x_, *kept_, *normed_, *written_, *made_, *seen_, *gate_, *up_, *angles_;
    Input input_;
};

}  // namespace ownwords::engine
