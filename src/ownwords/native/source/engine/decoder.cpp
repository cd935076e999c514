// Runs a model on the engine's threads: ids and a cache in, logits of the next token out.
#include <memory>
#include <mutex>

#include "engine/cached_attention.h"
#include "engine/matmul.h"
#include "engine/model.h"
#include "simd/scratch.h"

namespace ownwords::engine {

constexpr i64 CHUNK = 256;   // tokens per forward pass, which bounds the buffers
constexpr i64 FEW_ROWS = 2;  // up to this many rows, every thread computes the norms of all

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

    // Checks all arguments before it changes anything.
    Status forward(KvCache &cache, const ForwardBatch &batch);

    const ModelShape &shape() const { return model_.shape; }

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

Decoder::Decoder(const ModelShape &shape, const TensorSource *tensors, i64 count, int threads)
    : pool_(threads), model_(shape, tensors, count, pool_) {
    const i64 width = shape.width, head = shape.head_dim;
    q_width_ = shape.heads * head;
    hidden_stride_ = round_up(shape.hidden, 16);
    qkv_stride_ = round_up(q_width_ + 2 * shape.kv_heads * head, 16);
    const auto assign_buffers = [&](void *memory) {
        MemoryLayout layout(memory);
        for (float **buffer : {&x_, &output_x_, &normed_, &delta_})
            *buffer = layout.next<float>(CHUNK * width);
        qkv_ = layout.next<float>(CHUNK * qkv_stride_);
        attn_out_ = layout.next<float>(CHUNK * q_width_);
        gate_ = layout.next<float>(CHUNK * hidden_stride_);
        up_ = layout.next<float>(CHUNK * hidden_stride_);
        angles_ = layout.next<float>(shape.rope_tables * CHUNK * head);
        return layout.used();
    };
    buffer_ = PageBuffer(size_t(assign_buffers(nullptr)));
    assign_buffers(buffer_.start());
    const i64 max_inputs = std::max({width, q_width_, i64(shape.hidden)});
    input_ = MatmulInput(CHUNK, max_inputs);
    states_.resize(size_t(pool_.threads()));
    for (ThreadState &state : states_) {
        state.x.resize(size_t(FEW_ROWS * width));
        state.normed.resize(size_t(FEW_ROWS * width));
        state.attn.resize(size_t(FEW_ROWS * q_width_));
        state.input = MatmulInput(FEW_ROWS, max_inputs);
        state.attention = std::make_unique<AttentionScratch>(round_up(head, BLOCK));
    }
    for (const Layer &layer : model_.layers) {
        const auto match = std::find(windows_.begin(), windows_.end(), layer.window);
        plan_of_.push_back(match - windows_.begin());
        if (match == windows_.end()) windows_.push_back(layer.window);
    }
    plans_.resize(windows_.size() + 1);
    for (AttentionPlan &plan : plans_) plan.reserve(pool_.threads());
}

std::unique_ptr<KvCache> Decoder::new_cache(i64 rows, i64 length) const {
    const ModelShape &s = model_.shape;
    const AttentionHeads heads = this->heads_of(model_.layers.front());
    return std::make_unique<KvCache>(KvCacheShape{s.layers, rows, s.kv_heads, length,
                                                  heads.padded_width(), s.kv_bf16 != 0,
                                                  pool_.threads() - 1, heads.heads_per_task()});
}

AttentionHeads Decoder::heads_of(const Layer &layer) const {
    const ModelShape &s = model_.shape;
    AttentionHeads heads;
    heads.query_heads = s.heads;
    heads.kv_heads = s.kv_heads;
    heads.width = s.head_dim;
    heads.scale = float(s.attention_scale);
    heads.query_norm = layer.query_norm;
    heads.key_norm = layer.key_norm;
    heads.angles = layer.rope_table < 0 ? nullptr : angles_ + layer.rope_table * CHUNK * s.head_dim;
    heads.qkv = qkv_;
    heads.qkv_stride = qkv_stride_;
    heads.out = attn_out_;
    heads.out_stride = q_width_;
    return heads;
}

Status Decoder::check(KvCache &cache, const ForwardBatch &batch) const {
    cache.begin_call();
    if (batch.count < 1 || batch.count > cache.shape.rows) return STATUS_BAD_COUNT;
    i64 at = 0;
    for (i64 text = 0; text < batch.count; ++text) {
        const int64_t row = batch.rows[text], count = batch.counts[text];
        if (row < 0 || row >= cache.shape.rows) return STATUS_BAD_ROW;
        if (!cache.first_time(row)) return STATUS_DUPLICATE_ROW;
        if (count < 1) return STATUS_BAD_COUNT;
        if (count > cache.shape.length - cache.lengths[size_t(row)]) return STATUS_CACHE_FULL;
        for (const i64 end = at + count; at < end; ++at)
            if (batch.ids[at] < 0 || batch.ids[at] >= model_.shape.vocabulary) return STATUS_BAD_ID;
    }
    return STATUS_OK;
}

Status Decoder::forward(KvCache &cache, const ForwardBatch &batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Status status = check(cache, batch);
    if (status != STATUS_OK) return status;
    const AttentionHeads heads = this->heads_of(model_.layers.front());
    // Tokens that attend together.
    const i64 block_tokens = std::max<i64>(1, MAX_QUERIES / heads.heads_per_task());
    const int threads = pool_.threads();
    i64 text = 0, done = 0, logits = 0, ids_read = 0;
    while (text < batch.count) {
        Chunk &c = chunk_;
        c.tokens = c.outputs = c.block_count = 0;
        c.distinct_rows = true;
        c.ids = batch.ids + ids_read;
        c.logits = batch.logits + logits * model_.shape.vocabulary;
        while (text < batch.count && c.tokens < CHUNK) {
            const i64 row = batch.rows[text], left = batch.counts[text] - done;
            const i64 count_here = std::min(left, CHUNK - c.tokens);
            const i64 length = cache.lengths[size_t(row)];
            c.distinct_rows &= count_here == 1;
            for (i64 i = 0; i < count_here; ++i) {
                const i64 token = c.tokens + i;
                c.rows[token] = row;
                c.positions[token] = length + i;
                if (i % block_tokens == 0)
                    c.blocks[c.block_count++] = {
                        row, token, token, std::min(block_tokens, count_here - i), length + i};
                if (batch.all_logits || i == left - 1) {
                    c.output_block[c.outputs] = {row, token, c.outputs, 1, length + i};
                    c.output_tokens[c.outputs++] = token;
                }
            }
            c.tokens += count_here;
            cache.lengths[size_t(row)] += count_here;
            done += count_here;
            if (done == batch.counts[text]) ++text, done = 0;
        }
        ids_read += c.tokens;
        logits += c.outputs;
        for (size_t i = 0; i < windows_.size(); ++i)
            plans_[i].split_work(c.blocks, c.block_count, windows_[i], heads, threads);
        if (c.outputs < c.tokens)
            plans_.back().split_work(c.output_block, c.outputs, model_.layers.back().window, heads,
                                     threads);
        pool_.run([&](ThreadTeam &team, int thread) { step(cache, team, thread); });
    }
    return STATUS_OK;
}

// One thread's part of a forward pass.
struct Decoder::StepRun {
    Decoder &d;
    ThreadTeam &team;
    int thread;
    Workspace ws;
    i64 rows;

    // With few rows, each thread computes all of them in its own copy; else its part of shared ones.
    void select_rows(i64 count, float *shared_x) {
        ThreadState &state = d.states_[size_t(thread)];
        rows = count;
        ws.is_private = count <= FEW_ROWS;
        ws.begin = 0, ws.end = count;
        if (!ws.is_private) split_range(count, 1, thread, team.threads, ws.begin, ws.end);
        ws.x = ws.is_private ? state.x.data() : shared_x;
        ws.normed = ws.is_private ? state.normed.data() : d.normed_;
        ws.attn = ws.is_private ? state.attn.data() : d.attn_out_;
        ws.input = ws.is_private ? &state.input : &d.input_;
    }

    // Private copies need no barrier.
    void sync() {
        if (!ws.is_private) team.barrier();
    }

    void prepare(const Matrix &matrix, const float *from, i64 stride) {
        prepare_input(matrix, from, rows, stride, *ws.input, ws.begin, ws.end);
        sync();
    }

    void norm(const NormWeights &norm, const Matrix &matrix) {
        const i64 width = d.model_.shape.width;
        for (i64 row = ws.begin; row < ws.end; ++row)
            normalize(norm, ws.x + row * width, width, ws.normed + row * width);
        prepare(matrix, ws.normed, width);
    }

    void matmul_share(const Matrix &matrix, const float *bias, float *out, i64 stride) {
        i64 first, last;
        split_range(matrix.panels(), 1, thread, team.threads, first, last);
        matmul(matrix, *ws.input, rows, bias, out, stride, first, last);
    }

    void add_residual(const NormWeights &norm) {
        const i64 width = d.model_.shape.width;
        for (i64 row = ws.begin; row < ws.end; ++row) {
            const float *from = d.delta_ + row * width;
            if (norm.weight != nullptr) {
                normalize(norm, from, width, ws.normed + row * width);
                from = ws.normed + row * width;
            }
            add_row(ws.x + row * width, from, width);
        }
    }

    void fill_angles() {
        const ModelShape &s = d.model_.shape;
        const i64 half = s.head_dim / 2;
        i64 begin, end;
        split_range(half, LANES, thread, team.threads, begin, end);
        for (i64 table = 0; table < s.rope_tables; ++table) {
            const float *frequencies = d.model_.frequencies.data() + table * half + begin;
            for (i64 token = 0; token < d.chunk_.tokens; ++token) {
                float *to = d.angles_ + (table * CHUNK + token) * s.head_dim + begin;
                rope_angles(d.chunk_.positions[token], frequencies, end - begin, to, to + half);
            }
        }
    }

    void embed() {
        const ModelShape &s = d.model_.shape;
        for (i64 token = ws.begin; token < ws.end; ++token) {
            float *x = ws.x + token * s.width;
            const i64 id = d.chunk_.ids[token];
            read_row(d.model_.embedding, id, x);
            if (s.embedding_scale != 1)
                for (i64 c = 0; c < s.width; ++c) x[c] *= float(s.embedding_scale);
            if (d.model_.positions != nullptr)
                add_row(x, d.model_.positions + d.chunk_.positions[token] * s.width, s.width);
        }
    }

    void attention(KvCache &cache, i64 index, const Layer &layer, bool is_last) {
        const Chunk &c = d.chunk_;
        AttentionHeads heads = d.heads_of(layer);
        heads.tokens = c.tokens;
        const bool outputs_only = is_last && c.outputs < c.tokens;
        const AttentionPlan &plan =
            outputs_only ? d.plans_.back() : d.plans_[size_t(d.plan_of_[size_t(index)])];
        const bool store_new_kv =
            c.distinct_rows && !outputs_only && heads.tasks_per_kv_head() == 1;
        if (!store_new_kv) {
            i64 begin, end;
            split_range(c.tokens, BLOCK, thread, team.threads, begin, end);
            store_kv(heads, cache, index, c.rows, c.positions, begin, end,
                     *d.states_[size_t(thread)].attention);
            team.barrier();
        }
        attend(heads, cache, index, plan, thread, store_new_kv,
               *d.states_[size_t(thread)].attention);
        team.barrier();
        if (outputs_only) keep_output_rows();
        collect_heads(heads, cache, plan, layer.output);
    }

    // After the last attention, only the tokens with outputs are needed.
    void keep_output_rows() {
        const Chunk &c = d.chunk_;
        const i64 width = d.model_.shape.width;
        const float *old_x = ws.x;
        select_rows(c.outputs, d.output_x_);
        for (i64 row = ws.begin; row < ws.end; ++row)
            std::memmove(ws.x + row * width, old_x + c.output_tokens[row] * width,
                         size_t(width) * sizeof(float));
    }

    // Merge the heads that several threads computed, and prepare the result for the product.
    void collect_heads(const AttentionHeads &heads, const KvCache &cache, const AttentionPlan &plan,
                       const Matrix &matrix) {
        const float *from = d.attn_out_;
        if (plan.split_count > 0) {
            if (ws.is_private)
                std::memcpy(ws.attn, d.attn_out_, size_t(rows * d.q_width_) * sizeof(float));
            from = ws.attn;
            for (i64 row = ws.begin; row < ws.end; ++row)
                merge_splits(heads, cache, plan, row, ws.attn + row * d.q_width_);
        }
        prepare(matrix, from, d.q_width_);
    }

    template <bool fast>
    void activate_mlp(float *x, const float *other, i64 count) {
        if (d.model_.shape.gelu != 0)
            activate_row([](VecF32 v) { return Gelu::at<fast>(v).value; }, x, other, count);
        else
            activate_row([](VecF32 v) { return Silu::at<fast>(v).value; }, x, other, count);
    }

    // Each thread activates the panels that it has computed, before others read them.
    void mlp(const Layer &layer) {
        const bool gated = layer.gate.outputs > 0;
        float *out = gated ? d.gate_ : d.up_;
        i64 first, last;
        split_range(layer.up.panels(), 1, thread, team.threads, first, last);
        matmul(layer.up, *ws.input, rows, layer.up_bias, d.up_, d.hidden_stride_, first, last);
        if (gated)
            matmul(layer.gate, *ws.input, rows, nullptr, d.gate_, d.hidden_stride_, first, last);
        const i64 begin = first * PANEL;
        const i64 count = std::min(last * PANEL, layer.up.outputs) - begin;
        for (i64 row = 0; row < rows && count > 0; ++row) {
            float *x = out + row * d.hidden_stride_ + begin;
            const float *other = gated ? d.up_ + row * d.hidden_stride_ + begin : nullptr;
            d.model_.shape.weight_type == int(WeightType::F32) ? activate_mlp<false>(x, other, count)
                                                              : activate_mlp<true>(x, other, count);
        }
        team.barrier();
        prepare(layer.down, out, d.hidden_stride_);
    }

    void write_logits() {
        const Matrix &head = d.model_.head;
        const i64 vocabulary = d.model_.shape.vocabulary;
        i64 first, last;
        split_range(head.panels(), 1, thread, team.threads, first, last);
        matmul(head, *ws.input, rows, nullptr, d.chunk_.logits, vocabulary, first, last);
        const float cap = float(d.model_.shape.softcap);
        const i64 begin = first * PANEL, count = std::min(last * PANEL, vocabulary) - begin;
        for (i64 row = 0; row < rows && cap > 0 && count > 0; ++row)
            softcap_row(d.chunk_.logits + row * vocabulary + begin, cap, count);
    }
};

void Decoder::step(KvCache &cache, ThreadTeam &team, int thread) {
    StepRun run{*this, team, thread, {}, 0};
    run.select_rows(chunk_.tokens, x_);
    run.fill_angles();
    run.embed();
    const i64 layers = i64(model_.layers.size());
    for (i64 index = 0; index < layers; ++index) {
        const Layer &layer = model_.layers[size_t(index)];
        run.norm(layer.attention_norm, layer.query_key_value);
        run.matmul_share(layer.query_key_value, layer.query_key_value_bias, qkv_, qkv_stride_);
        team.barrier();
        run.attention(cache, index, layer, index == layers - 1);
        if (run.rows == 0) return;  // this chunk only fills the cache
        run.matmul_share(layer.output, layer.output_bias, delta_, model_.shape.width);
        team.barrier();
        run.add_residual(layer.attention_output_norm);
        run.norm(layer.mlp_norm, layer.up);
        run.mlp(layer);
        run.matmul_share(layer.down, layer.down_bias, delta_, model_.shape.width);
        team.barrier();
        run.add_residual(layer.mlp_output_norm);
    }
    run.norm(model_.final_norm, model_.head);
    run.write_logits();
}

}  // namespace ownwords::engine

// The C interface.

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
                           const int64_t *counts, const int64_t *ids, int all_logits, float *logits) {
    if (cache == nullptr || rows == nullptr || counts == nullptr || ids == nullptr ||
        logits == nullptr)
        return STATUS_NULL_POINTER;
    return with_status([&] {
        return cache->decoder->forward(
            *cache->cache, ForwardBatch{i64(count), rows, counts, ids, all_logits != 0, logits});
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
