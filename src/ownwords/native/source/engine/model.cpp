#include "engine/model.h"

#include <atomic>
#include <cmath>

#include "engine/rounding.h"
#include "engine/system.h"

namespace ownwords::engine {
namespace {

// Beyond any model there is; so no product of sizes below overflows.
bool sane(const Shape &s) {
    const auto in = [](int64_t value, int64_t least, int64_t most) {
        return value >= least && value <= most;
    };
    const auto number = [](double value) { return std::isfinite(value); };
    return in(s.vocabulary, 1, 1 << 24) && in(s.context, 1, 1 << 30) && in(s.width, 1, 1 << 20) &&
           in(s.layers, 1, 1 << 10) && in(s.heads, 1, 1 << 12) && in(s.kv_heads, 1, s.heads) &&
           s.heads % s.kv_heads == 0 && in(s.head_dim, 1, 1 << 14) && in(s.hidden, 1, 1 << 22) &&
           in(s.matrices, 0, 3) && in(s.ends, 0, 3) && in(s.narrow, 0, 1) &&
           in(s.tables, 0, s.layers) && s.norm_eps > 0 && s.norm_eps < 1 &&
           number(s.norm_offset) && number(s.attention_scale) && number(s.embedding_scale) &&
           number(s.softcap) && s.softcap >= 0;
}

bool is_finite(const std::vector<float> &numbers) {
    bool all = true;
    for (const float number : numbers) all &= std::isfinite(number);
    return all;
}

size_t row_bytes(const Source &source) {
    const size_t inputs = size_t(source.inputs);
    if (source.type == Stored::F32) return inputs * 4;
    if (source.type == Stored::CODES8) return inputs;
    return source.type == Stored::CODES4 ? (inputs + 1) / 2 : inputs * 2;
}

// Rows of a mapped file that have been packed need not stay in memory.
void forget(const Source &source, Long first, Long last) {
    const size_t bytes = row_bytes(source);
    forget_pages(static_cast<const char *>(source.data) + size_t(first) * bytes,
                 size_t(last - first) * bytes);
}

}  // namespace

// The tensors by role and layer.
struct Model::Given {
    const Tensor *tensors;
    std::vector<const Tensor *> found;

    Given(const Shape &shape, const Tensor *all, Long count) : tensors(all) {
        found.resize(size_t(ROLES * shape.layers), nullptr);
        for (Long i = 0; i < count; ++i) {
            const Tensor &one = all[i];
            const bool is_known = one.role >= 0 && one.role < ROLES && one.layer >= 0 &&
                                  one.layer < (one.role < ATTENTION_NORM ? 1 : shape.layers);
            if (!is_known) throw Refused{BAD_TENSOR};
            if (one.data == nullptr) throw Refused{NOTHING_GIVEN};
            const Tensor *&place = found[size_t(one.role + one.layer * ROLES)];
            if (place != nullptr) throw Refused{BAD_TENSOR};
            place = &one;
        }
    }

    const Tensor *of(Long role, Long layer) const { return found[size_t(role + layer * ROLES)]; }
};

const float *Model::vector(const Given &given, Role role, Long layer, Long count, float offset) {
    const Tensor *one = given.of(role, layer);
    if (one == nullptr) return nullptr;
    if (one->rows > count || one->columns > count || one->rows * one->columns != count ||
        one->transposed != 0 || one->type < int(Stored::F32) || one->type > int(Stored::F16))
        throw Refused{BAD_TENSOR};
    std::vector<float> made(static_cast<size_t>(count));
    for (Long i = 0; i < count; ++i) {
        const auto type = Stored(one->type);
        const float number = type == Stored::F32 ? static_cast<const float *>(one->data)[i]
                             : type == Stored::BF16
                                 ? wide(static_cast<const Bf16 *>(one->data)[i])
                                 : wide_half(static_cast<const uint16_t *>(one->data)[i]);
        made[size_t(i)] = number + offset;
    }
    if (!is_finite(made)) throw Refused{NOT_FINITE};
    vectors_.push_back(std::move(made));
    return vectors_.back().data();
}

Norm Model::norm(const Given &given, Role weight, Long bias, Long layer, Long count) {
    Norm made;
    made.eps = float(shape.norm_eps);
    made.weight = vector(given, weight, layer, count, float(shape.norm_offset));
    if (bias >= 0 && shape.layer_norm != 0) {
        made.bias = vector(given, Role(bias), layer, count);
        if (made.weight != nullptr && made.bias == nullptr) throw Refused{MISSING_TENSOR};
    }
    return made;
}

// A matrix of these tensors, one after another; to be packed when there is room.
void Model::place(Matrix &matrix, const Given &given, Long kind, std::initializer_list<Role> roles,
                  Long layer, Long outputs, Long inputs) {
    Job job;
    Long rows = 0;
    for (const Role role : roles) {
        const Tensor *one = given.of(role, layer);
        if (one == nullptr) throw Refused{MISSING_TENSOR};
        const bool codes = one->type == int(Stored::CODES8) || one->type == int(Stored::CODES4);
        const bool fits = one->type >= 0 && one->type <= int(Stored::CODES4) && one->rows >= 1 &&
                          one->rows <= outputs && one->columns == inputs &&
                          !(codes && (one->transposed != 0 || one->scales == nullptr)) &&
                          !(one->type == int(Stored::CODES4) && one->group != 32 &&
                            one->group != 64 && one->group != 128);
        if (!fits) throw Refused{BAD_TENSOR};
        job.sources.push_back({Stored(one->type), one->data, one->scales, Long(one->rows),
                               Long(one->columns), Long(one->group), one->transposed != 0});
        job.mapped.push_back(one->mapped != 0);
        rows += Long(one->rows);
    }
    if (rows != outputs) throw Refused{BAD_TENSOR};
    matrix.kind = Kind(kind);
    matrix.outputs = outputs;
    matrix.inputs = inputs;
    job.matrix = matrix;
    jobs_.push_back(std::move(job));
}

Model::Model(const Shape &given_shape, const Tensor *tensors, Long count, Pool &pool)
    : shape(given_shape) {
    if (!sane(shape)) throw Refused{BAD_SHAPE};
    if (shape.windows == nullptr || shape.turns == nullptr ||
        (shape.tables > 0 && shape.frequencies == nullptr) || (count > 0 && tensors == nullptr))
        throw Refused{NOTHING_GIVEN};
    const Given given(shape, tensors, count);
    const Long width = shape.width, wide = shape.heads * shape.head_dim,
               kept = shape.kv_heads * shape.head_dim, half = shape.head_dim / 2;
    if (shape.tables > 0) {
        frequencies.assign(shape.frequencies, shape.frequencies + shape.tables * half);
        if (!is_finite(frequencies)) throw Refused{NOT_FINITE};
    }
    place(embedding, given, shape.ends, {EMBEDDING}, 0, shape.vocabulary, width);
    if (given.of(HEAD, 0) != nullptr)
        place(head, given, shape.ends, {HEAD}, 0, shape.vocabulary, width);
    if (Planes::pay(jobs_.back().matrix))
        jobs_.back().planes = {Long(shape.vocabulary), width, nullptr};
    positions = vector(given, POSITIONS, 0, shape.context * width);
    final_norm = norm(given, FINAL_NORM, FINAL_NORM_BIAS, 0, width);
    layers.resize(size_t(shape.layers));
    for (Long i = 0; i < shape.layers; ++i) {
        Layer &layer = layers[size_t(i)];
        layer.window = shape.windows[i];
        layer.turns = shape.turns[i];
        if (layer.window < 0 || layer.turns < -1 || layer.turns >= shape.tables ||
            (layer.turns >= 0 && shape.head_dim % 2 != 0))
            throw Refused{BAD_SHAPE};
        layer.attention_norm = norm(given, ATTENTION_NORM, ATTENTION_NORM_BIAS, i, width);
        layer.query_norm = norm(given, QUERY_NORM, -1, i, shape.head_dim);
        layer.key_norm = norm(given, KEY_NORM, -1, i, shape.head_dim);
        layer.attention_output_norm = norm(given, ATTENTION_OUTPUT_NORM, -1, i, width);
        layer.mlp_norm = norm(given, MLP_NORM, MLP_NORM_BIAS, i, width);
        layer.mlp_output_norm = norm(given, MLP_OUTPUT_NORM, -1, i, width);
        if (layer.attention_norm.weight == nullptr || layer.mlp_norm.weight == nullptr)
            throw Refused{MISSING_TENSOR};
        const Long kind = shape.matrices;
        if (given.of(QUERY_KEY_VALUE, i) != nullptr)
            place(layer.query_key_value, given, kind, {QUERY_KEY_VALUE}, i, wide + 2 * kept, width);
        else
            place(layer.query_key_value, given, kind, {QUERY, KEY, VALUE}, i, wide + 2 * kept,
                  width);
        place(layer.output, given, kind, {OUTPUT}, i, width, wide);
        if (given.of(GATE, i) != nullptr)
            place(layer.gate, given, kind, {GATE}, i, shape.hidden, width);
        place(layer.up, given, kind, {UP}, i, shape.hidden, width);
        place(layer.down, given, kind, {DOWN}, i, width, shape.hidden);
        layer.query_key_value_bias = vector(given, QUERY_KEY_VALUE_BIAS, i, wide + 2 * kept);
        layer.output_bias = vector(given, OUTPUT_BIAS, i, width);
        layer.up_bias = vector(given, UP_BIAS, i, shape.hidden);
        layer.down_bias = vector(given, DOWN_BIAS, i, width);
    }
    if (final_norm.weight == nullptr) throw Refused{MISSING_TENSOR};
    shape.windows = shape.turns = nullptr;
    shape.frequencies = nullptr;
    pack_all(pool);
}

size_t Model::Job::bytes() const {
    return planes.outputs > 0 ? planes.bytes() : matrix.bytes();
}

// Panels that are packed before what they were made of is forgotten.
Long Model::Job::piece() const {
    constexpr size_t NEAR = size_t(4) << 20;
    size_t widest = 1;
    for (const Source &source : sources) widest = std::max(widest, row_bytes(source));
    return std::max<Long>(1, Long(NEAR / (widest * PANEL)));
}

// Whether all is finite there.
bool Model::Job::pack_piece(Long first, Long last) const {
    const auto count = Long(sources.size());
    const bool fine = planes.outputs > 0 ? planes.pack(sources.data(), count, first, last)
                                         : pack(matrix, sources.data(), count, first, last);
    Long begin = 0;  // the output that a source begins with
    for (size_t s = 0; s < sources.size(); begin += sources[s++].rows) {
        const Long low = std::max(first * PANEL - begin, Long(0));
        const Long high = std::min(last * PANEL - begin, sources[s].rows);
        if (mapped[s] && !sources[s].transposed && low < high) forget(sources[s], low, high);
    }
    return fine;
}

// All matrices in one room, in the order in which they were placed, and then known by their layers.
void Model::pack_all(Pool &pool) {
    size_t bytes = 0;
    for (Job &job : jobs_) bytes += job.bytes();
    lines_ = Memory(bytes);
    unsigned char *at = lines_.start();
    for (Job &job : jobs_) {
        (job.planes.outputs > 0 ? job.planes.lines : job.matrix.lines) = at;
        at += job.bytes();
    }
    std::atomic<int> trouble{FINE};
    pool.run([&](Team &team, int thread) {
        for (const Job &job : jobs_) {
            Long first, last;
            share(job.matrix.panels(), 1, thread, team.threads, first, last);
            try {
                for (; first < last; first += job.piece())
                    if (!job.pack_piece(first, std::min(first + job.piece(), last)))
                        trouble = NOT_FINITE;
            } catch (const std::bad_alloc &) {
                trouble = NO_MEMORY;
            }
            team.barrier();
            // Of what lies on its side every thread has read every row.
            for (size_t s = 0; thread == 0 && s < job.sources.size(); ++s)
                if (job.mapped[s] && job.sources[s].transposed)
                    forget(job.sources[s], 0, job.sources[s].rows);
        }
    });
    if (trouble != FINE) throw Refused{Trouble(trouble.load())};
    size_t next = 0;
    const auto take = [&](Matrix &matrix) {
        if (matrix.outputs == 0) return;
        if (jobs_[next].planes.outputs > 0) planes = jobs_[next].planes;
        matrix = jobs_[next++].matrix;
    };
    take(embedding);
    take(head);
    for (Layer &layer : layers)
        for (Matrix *matrix :
             {&layer.query_key_value, &layer.output, &layer.gate, &layer.up, &layer.down})
            take(*matrix);
    if (head.outputs == 0) head = embedding;
    jobs_.clear();
}

}  // namespace ownwords::engine
