#include "engine/decoder.h"

namespace ownwords::engine {
namespace {

// What the threads share for [CHUNK, ...] numbers of each kind, one after another.
class Rooms {
  public:
    void operator()(float *&into, Long numbers) {
        wanted_.push_back({&into, size_t(rounded_up(numbers, 16))});
    }

    Memory made() const {
        size_t total = 0;
        for (const auto &one : wanted_) total += one.second;
        Memory memory(total * sizeof(float));
        auto *at = reinterpret_cast<float *>(memory.start());
        for (const auto &one : wanted_) *one.first = at, at += one.second;
        return memory;
    }

  private:
    std::vector<std::pair<float **, size_t>> wanted_;
};

}  // namespace

Decoder::Decoder(const Shape &shape, const Tensor *tensors, Long count, int threads)
    : pool_(threads), model_(shape, tensors, count, pool_) {
    const Long width = shape.width, head = shape.head_dim;
    wide_ = shape.heads * head;
    hidden_ = rounded_up(shape.hidden, 16);
    made_stride_ = rounded_up(wide_ + 2 * shape.kv_heads * head, 16);
    Rooms room;
    room(x_, CHUNK * width);
    room(kept_, CHUNK * width);
    room(normed_, CHUNK * width);
    room(written_, CHUNK * width);
    room(made_, CHUNK * made_stride_);
    room(seen_, CHUNK * wide_);
    room(gate_, CHUNK * hidden_);
    room(up_, CHUNK * hidden_);
    room(angles_, shape.tables * CHUNK * head);
    memory_ = room.made();
    const Long deepest = std::max({width, wide_, Long(shape.hidden)});
    input_ = Input(CHUNK, deepest);
    own_.resize(size_t(pool_.threads()));
    for (Own &own : own_) {
        own.x.resize(size_t(FEW * width));
        own.normed.resize(size_t(FEW * width));
        own.joined.resize(size_t(FEW * wide_));
        own.input = Input(FEW, deepest);
        own.attention = std::make_unique<AttentionRoom>(rounded_up(head, BLOCK));
        if (model_.planes.outputs == 0) continue;
        own.rough = Input(1, width);
        own.room = Memory(model_.planes.room());
    }
    for (const Layer &layer : model_.layers) {
        const auto found = std::find(windows_.begin(), windows_.end(), layer.window);
        plan_of_.push_back(found - windows_.begin());
        if (found == windows_.end()) windows_.push_back(layer.window);
    }
    plans_.resize(windows_.size() + 1);
    for (Plan &plan : plans_) plan.reserve(pool_.threads());
}

std::unique_ptr<Cache> Decoder::cache(Long rows, Long length) const {
    const Shape &s = model_.shape;
    const Heads heads = this->heads(model_.layers.front());
    return std::make_unique<Cache>(CacheShape{s.layers, rows, s.kv_heads, length, heads.deep(),
                                              s.narrow != 0, pool_.threads() - 1, heads.fan()});
}

Heads Decoder::heads(const Layer &layer) const {
    const Shape &s = model_.shape;
    Heads made;
    made.queries = s.heads;
    made.keys = s.kv_heads;
    made.width = s.head_dim;
    made.scale = float(s.attention_scale);
    made.query_norm = layer.query_norm;
    made.key_norm = layer.key_norm;
    made.angles = layer.turns < 0 ? nullptr : angles_ + layer.turns * CHUNK * s.head_dim;
    made.made = made_;
    made.made_stride = made_stride_;
    made.out = seen_;
    made.out_stride = wide_;
    return made;
}

Trouble Decoder::check(Cache &cache, const Feeds &feeds) const {
    cache.begin_call();
    if (feeds.count < 1 || feeds.count > cache.shape.rows) return BAD_COUNT;
    Long at = 0;
    for (Long feed = 0; feed < feeds.count; ++feed) {
        const int64_t row = feeds.rows[feed], count = feeds.counts[feed];
        if (row < 0 || row >= cache.shape.rows) return BAD_ROW;
        if (!cache.first_time(row)) return ROW_TWICE;
        if (count < 1) return BAD_COUNT;
        if (count > cache.shape.length - cache.held[size_t(row)]) return FULL;
        for (const Long end = at + count; at < end; ++at)
            if (feeds.ids[at] < 0 || feeds.ids[at] >= model_.shape.vocabulary) return BAD_ID;
    }
    return FINE;
}

Trouble Decoder::read(Cache &cache, const Feeds &feeds) {
    const std::lock_guard<std::mutex> one(reading_);
    const Trouble trouble = check(cache, feeds);
    if (trouble != FINE) return trouble;
    const Heads heads = this->heads(model_.layers.front());
    const Long most = std::max<Long>(1, TALL / heads.fan());  // tokens that attend together
    const int threads = pool_.threads();
    Long feed = 0, done = 0, logits = 0, read = 0;
    while (feed < feeds.count) {
        Chunk &c = chunk_;
        c.tokens = c.wanted = c.blocks = 0;
        c.apart = true;
        c.ids = feeds.ids + read;
        c.logits = feeds.logits + logits * model_.shape.vocabulary;
        c.margin = float(feeds.margin);
        c.among = feeds.among;
        while (feed < feeds.count && c.tokens < CHUNK) {
            const Long row = feeds.rows[feed], left = feeds.counts[feed] - done;
            const Long some = std::min(left, CHUNK - c.tokens);
            const Long held = cache.held[size_t(row)];
            c.apart &= some == 1;
            for (Long i = 0; i < some; ++i) {
                const Long token = c.tokens + i;
                c.rows[token] = row;
                c.positions[token] = held + i;
                if (i % most == 0)
                    c.block[c.blocks++] = {row, token, token, std::min(most, some - i), held + i};
                if (feeds.every || i == left - 1) {
                    c.wanted_block[c.wanted] = {row, token, c.wanted, 1, held + i};
                    c.keep[c.wanted++] = token;
                }
            }
            c.tokens += some;
            cache.held[size_t(row)] += some;
            done += some;
            if (done == feeds.counts[feed]) ++feed, done = 0;
        }
        read += c.tokens;
        logits += c.wanted;
        for (size_t i = 0; i < windows_.size(); ++i)
            plans_[i].share_out(c.block, c.blocks, windows_[i], heads, threads);
        if (c.wanted < c.tokens)
            plans_.back().share_out(c.wanted_block, c.wanted, model_.layers.back().window, heads,
                                    threads);
        c.near = feeds.margin >= 0 && c.wanted == 1 && model_.planes.outputs > 0 &&
                 model_.shape.softcap == 0 && feeds.among >= 1 &&
                 feeds.among <= model_.shape.vocabulary && --resting_ < 0;
        pool_.run([&](Team &team, int thread) { step(cache, team, thread); });
        if (c.near) learn();
    }
    return FINE;
}

// Where most panels were read whole after all, the guess was in vain, and would be again.
void Decoder::learn() {
    constexpr Long REST = 32;
    Long exact = 0;
    for (int thread = 0; thread < pool_.threads(); ++thread) exact += own_[size_t(thread)].exact;
    resting_ = exact * 4 > model_.planes.rough().panels() ? REST : 0;
}

// One thread's part of a step.
struct Decoder::Run {
    Decoder &d;
    Team &team;
    int thread;
    Bench bench;
    Long rows;

    // On this thread's own copy where there are few rows; else on its part of them all.
    void settle(Long count, float *shared) {
        Own &own = d.own_[size_t(thread)];
        rows = count;
        bench.alone = count <= FEW;
        bench.begin = 0, bench.end = count;
        if (!bench.alone) share(count, 1, thread, team.threads, bench.begin, bench.end);
        bench.x = bench.alone ? own.x.data() : shared;
        bench.normed = bench.alone ? own.normed.data() : d.normed_;
        bench.joined = bench.alone ? own.joined.data() : d.seen_;
        bench.input = bench.alone ? &own.input : &d.input_;
    }

    // What is made by each thread for itself needs no waiting for the others.
    void meet() {
        if (!bench.alone) team.barrier();
    }

    void make_ready(const Matrix &matrix, const float *from, Long stride) {
        ready(matrix, from, rows, stride, *bench.input, bench.begin, bench.end);
        meet();
    }

    // Norm this thread's rows and make them ready for products with `matrix`.
    void norm(const Norm &norm, const Matrix &matrix) {
        const Long width = d.model_.shape.width;
        for (Long row = bench.begin; row < bench.end; ++row)
            normalise(norm, bench.x + row * width, width, bench.normed + row * width);
        make_ready(matrix, bench.normed, width);
    }

    void multiply_share(const Matrix &matrix, const float *bias, float *out, Long stride) {
        Long first, last;
        share(matrix.panels(), 1, thread, team.threads, first, last);
        multiply(matrix, *bench.input, rows, bias, out, stride, first, last);
    }

    // Add what a half of a block has written to what came in.
    void take(const Norm &norm) {
        const Long width = d.model_.shape.width;
        for (Long row = bench.begin; row < bench.end; ++row) {
            const float *from = d.written_ + row * width;
            if (norm.weight != nullptr) {
                normalise(norm, from, width, bench.normed + row * width);
                from = bench.normed + row * width;
            }
            add(bench.x + row * width, from, width);
        }
    }

    void angles() {
        const Shape &s = d.model_.shape;
        const Long half = s.head_dim / 2;
        Long begin, end;
        share(half, LANES, thread, team.threads, begin, end);
        for (Long table = 0; table < s.tables; ++table) {
            const float *frequencies = d.model_.frequencies.data() + table * half + begin;
            for (Long token = 0; token < d.chunk_.tokens; ++token) {
                float *to = d.angles_ + (table * CHUNK + token) * s.head_dim + begin;
                turn_of(d.chunk_.positions[token], frequencies, end - begin, to, to + half);
            }
        }
    }

    void embed() {
        const Shape &s = d.model_.shape;
        for (Long token = bench.begin; token < bench.end; ++token) {
            float *x = bench.x + token * s.width;
            const int32_t id = d.chunk_.ids[token];
            if (d.model_.embedding.lines != nullptr)
                row(d.model_.embedding, id, x);
            else
                d.model_.planes.row(id, x, d.own_[size_t(thread)].room.start());
            if (s.embedding_scale != 1)
                for (Long c = 0; c < s.width; ++c) x[c] *= float(s.embedding_scale);
            if (d.model_.positions != nullptr)
                add(x, d.model_.positions + d.chunk_.positions[token] * s.width, s.width);
        }
    }

    void attention(Cache &cache, Long index, const Layer &layer, bool is_last) {
        const Chunk &c = d.chunk_;
        Heads heads = d.heads(layer);
        heads.tokens = c.tokens;
        const bool fewer = is_last && c.wanted < c.tokens;
        const Plan &plan = fewer ? d.plans_.back() : d.plans_[size_t(d.plan_of_[size_t(index)])];
        const bool storing = c.apart && !fewer && heads.pieces() == 1;
        if (!storing) {
            Long begin, end;
            share(c.tokens, BLOCK, thread, team.threads, begin, end);
            remember(heads, cache, index, c.rows, c.positions, begin, end,
                     *d.own_[size_t(thread)].attention);
            team.barrier();
        }
        attend(heads, cache, index, plan, thread, storing, *d.own_[size_t(thread)].attention);
        team.barrier();
        if (fewer) keep_wanted();
        gather_heads(heads, cache, plan, layer.output);
    }

    // Only what is asked for is read to the end.
    void keep_wanted() {
        const Chunk &c = d.chunk_;
        const Long width = d.model_.shape.width;
        const float *before = bench.x;
        settle(c.wanted, d.kept_);
        for (Long row = bench.begin; row < bench.end; ++row)
            std::memmove(bench.x + row * width, before + c.keep[row] * width,
                         size_t(width) * sizeof(float));
    }

    // The heads' output made ready, where threads have shared a task put together first.
    void gather_heads(const Heads &heads, const Cache &cache, const Plan &plan,
                      const Matrix &matrix) {
        const float *from = d.seen_;
        if (plan.cut_count > 0) {
            if (bench.alone)
                std::memcpy(bench.joined, d.seen_, size_t(rows * d.wide_) * sizeof(float));
            from = bench.joined;
            for (Long row = bench.begin; row < bench.end; ++row)
                join(heads, cache, plan, row, bench.joined + row * d.wide_);
        }
        make_ready(matrix, from, d.wide_);
    }

    template <bool rough>
    void activate_hidden(float *x, const float *other, Long count) {
        if (d.model_.shape.gelu != 0)
            activate([](Vector v) { return gelu<rough>(v); }, x, other, count);
        else
            activate([](Vector v) { return silu<rough>(v); }, x, other, count);
    }

    // The hidden numbers of a thread's own panels are activated before others see them.
    void hidden(const Layer &layer) {
        const bool gated = layer.gate.outputs > 0;
        float *out = gated ? d.gate_ : d.up_;
        Long first, last;
        share(layer.up.panels(), 1, thread, team.threads, first, last);
        multiply(layer.up, *bench.input, rows, layer.up_bias, d.up_, d.hidden_, first, last);
        if (gated)
            multiply(layer.gate, *bench.input, rows, nullptr, d.gate_, d.hidden_, first, last);
        const Long begin = first * PANEL;
        const Long count = std::min(last * PANEL, layer.up.outputs) - begin;
        for (Long row = 0; row < rows && count > 0; ++row) {
            float *x = out + row * d.hidden_ + begin;
            const float *other = gated ? d.up_ + row * d.hidden_ + begin : nullptr;
            d.model_.shape.matrices == int(Kind::F32) ? activate_hidden<false>(x, other, count)
                                                      : activate_hidden<true>(x, other, count);
        }
        team.barrier();
        make_ready(layer.down, out, d.hidden_);
    }

    void scores() {
        const Matrix &head = d.model_.head;
        const Long vocabulary = d.model_.shape.vocabulary;
        Long first, last;
        share(head.panels(), 1, thread, team.threads, first, last);
        if (head.lines != nullptr)
            multiply(head, *bench.input, rows, nullptr, d.chunk_.logits, vocabulary, first, last);
        else
            d.model_.planes.multiply(*bench.input, rows, d.chunk_.logits, vocabulary, first, last,
                                     d.own_[size_t(thread)].room.start());
        const float bound = float(d.model_.shape.softcap);
        const Long begin = first * PANEL, count = std::min(last * PANEL, vocabulary) - begin;
        for (Long row = 0; row < rows && bound > 0 && count > 0; ++row)
            cap(d.chunk_.logits + row * vocabulary + begin, bound, count);
    }

    // The highest scores of one row, and those that are within the margin of it: what others can be
    // at most is found first, then one that is high for certain, then all that may reach as far.
    void near_scores() {
        Own &own = d.own_[size_t(thread)];
        const Planes &planes = d.model_.planes;
        const Long vocabulary = planes.outputs, among = d.chunk_.among;
        float *scores = d.chunk_.logits;
        const auto exactly = [&](Long from, Long to) {
            planes.multiply(*bench.input, 1, scores, vocabulary, from, to, own.room.start());
            own.exact += to - from;
        };
        Long first, last;
        share((among + PANEL - 1) / PANEL, 1, thread, team.threads, first, last);
        own.exact = 0;
        own.best = -INFINITY;
        if (first < last) {
            ready(planes.rough(), bench.normed, 1, planes.inputs, own.rough, 0, 1);
            const Long best = planes.guess(own.rough, bench.normed, first, last, scores);
            exactly(best, best + 1);
            own.best = scores[best * PANEL];
            for (Long o = best * PANEL; o < std::min((best + 1) * PANEL, among); ++o)
                own.best = std::max(own.best, scores[o]);
        }
        team.barrier();
        float least = -INFINITY;
        bool numbers = true;
        for (int other = 0; other < team.threads; ++other) {
            const float best = d.own_[size_t(other)].best;
            numbers &= best < INFINITY;
            least = std::max(least, best);
        }
        least -= d.chunk_.margin;
        Long from = first;  // of the panels that are wanted and follow one another
        for (Long p = first; p < last; ++p) {
            float *of = scores + p * PANEL, *end = scores + std::min((p + 1) * PANEL, vocabulary);
            bool wanted = !numbers;
            for (const float *most = of; most < end; ++most) wanted |= !(*most < least);
            if (wanted) continue;
            if (from < p) exactly(from, p);
            from = p + 1;
            std::fill(of, end, -INFINITY);
        }
        if (from < last) exactly(from, last);
        if (thread == team.threads - 1)
            std::fill(scores + std::min(last * PANEL, vocabulary), scores + vocabulary, -INFINITY);
    }
};

void Decoder::step(Cache &cache, Team &team, int thread) {
    Run run{*this, team, thread, {}, 0};
    run.settle(chunk_.tokens, x_);
    run.angles();
    run.embed();
    const Long layers = Long(model_.layers.size());
    for (Long index = 0; index < layers; ++index) {
        const Layer &layer = model_.layers[size_t(index)];
        run.norm(layer.attention_norm, layer.query_key_value);
        run.multiply_share(layer.query_key_value, layer.query_key_value_bias, made_, made_stride_);
        team.barrier();
        run.attention(cache, index, layer, index == layers - 1);
        if (run.rows == 0) return;  // of this chunk nothing but the cache is wanted
        run.multiply_share(layer.output, layer.output_bias, written_, model_.shape.width);
        team.barrier();
        run.take(layer.attention_output_norm);
        run.norm(layer.mlp_norm, layer.up);
        run.hidden(layer);
        run.multiply_share(layer.down, layer.down_bias, written_, model_.shape.width);
        team.barrier();
        run.take(layer.mlp_output_norm);
    }
    run.norm(model_.final_norm, model_.head);
    chunk_.near ? run.near_scores() : run.scores();
}

}  // namespace ownwords::engine
