#include "engine/model.h"

#include <atomic>
#include <cmath>

#include "engine/os.h"

namespace ownwords::engine {
namespace {

// For int8 products with AVX-512: 255 * 127 * MAX_INPUTS fits into 32 bits.
constexpr int64_t MAX_INPUTS = 1 << 16;

// No product of the sizes below overflows within these bounds.
bool is_sane(const ModelShape &s) {
    const auto in = [](int64_t value, int64_t least, int64_t most) {
        return value >= least && value <= most;
    };
    const auto is_finite_number = [](double value) { return std::isfinite(value); };
    return in(s.vocabulary, 1, 1 << 24) && in(s.context, 1, 1 << 30) &&
           in(s.width, 1, MAX_INPUTS) && in(s.layers, 1, 1 << 10) && in(s.heads, 1, 1 << 12) &&
           in(s.kv_heads, 1, s.heads) && s.heads % s.kv_heads == 0 &&
           in(s.head_dim, 1, MAX_INPUTS / s.heads) && in(s.hidden, 1, MAX_INPUTS) &&
           in(s.weight_type, 0, 2) && in(s.kv_bf16, 0, 1) && in(s.rope_tables, 0, s.layers) &&
           s.norm_eps > 0 && s.norm_eps < 1 &&
           is_finite_number(s.norm_offset) && is_finite_number(s.attention_scale) &&
           is_finite_number(s.embedding_scale) && is_finite_number(s.softcap) && s.softcap >= 0;
}

bool is_finite(const std::vector<float> &numbers) {
    bool all = true;
    for (const float is_finite_number : numbers) all &= std::isfinite(is_finite_number);
    return all;
}

}  // namespace

// The tensors by role and layer.
struct Model::TensorTable {
    const TensorSource *tensors;
    std::vector<const TensorSource *> tensors_;

    TensorTable(const ModelShape &shape, const TensorSource *all, i64 count) : tensors(all) {
        tensors_.resize(size_t(ROLE_COUNT * shape.layers), nullptr);
        for (i64 i = 0; i < count; ++i) {
            const TensorSource &tensor = all[i];
            const bool is_known =
                tensor.role >= 0 && tensor.role < ROLE_COUNT && tensor.layer >= 0 &&
                tensor.layer < (tensor.role < ROLE_ATTENTION_NORM ? 1 : shape.layers);
            if (!is_known) throw Error{STATUS_BAD_TENSOR};
            if (tensor.data == nullptr) throw Error{STATUS_NULL_POINTER};
            const TensorSource *&entry = tensors_[size_t(tensor.role + tensor.layer * ROLE_COUNT)];
            if (entry != nullptr) throw Error{STATUS_BAD_TENSOR};
            entry = &tensor;
        }
    }

    const TensorSource *get(i64 role, i64 layer) const {
        return tensors_[size_t(role + layer * ROLE_COUNT)];
    }
};

const float *Model::load_vector(const TensorTable &given, Role role, i64 layer, i64 count,
                                float offset) {
    const TensorSource *tensor = given.get(role, layer);
    if (tensor == nullptr) return nullptr;
    if (tensor->rows > count || tensor->columns > count ||
        tensor->rows * tensor->columns != count || tensor->transposed != 0 ||
        tensor->type < int(SourceType::F32) || tensor->type > int(SourceType::F16))
        throw Error{STATUS_BAD_TENSOR};
    std::vector<float> result(static_cast<size_t>(count));
    load_as_float(SourceType(tensor->type), tensor->data, 0, count, result.data());
    for (float &number : result) number += offset;
    if (!is_finite(result)) throw Error{STATUS_NOT_FINITE};
    vectors_.push_back(std::move(result));
    return vectors_.back().data();
}

// The biases of queries, keys and values: one tensor, or one each.
const float *Model::load_query_key_value_bias(const TensorTable &given, i64 layer, i64 q_width,
                                              i64 kv_width) {
    const float *joined =
        load_vector(given, ROLE_QUERY_KEY_VALUE_BIAS, layer, q_width + 2 * kv_width);
    const float *parts[] = {load_vector(given, ROLE_QUERY_BIAS, layer, q_width),
                            load_vector(given, ROLE_KEY_BIAS, layer, kv_width),
                            load_vector(given, ROLE_VALUE_BIAS, layer, kv_width)};
    if (parts[0] == nullptr && parts[1] == nullptr && parts[2] == nullptr) return joined;
    if (joined != nullptr || parts[0] == nullptr || parts[1] == nullptr || parts[2] == nullptr)
        throw Error{STATUS_BAD_TENSOR};
    std::vector<float> result(parts[0], parts[0] + q_width);
    result.insert(result.end(), parts[1], parts[1] + kv_width);
    result.insert(result.end(), parts[2], parts[2] + kv_width);
    vectors_.push_back(std::move(result));
    return vectors_.back().data();
}

NormWeights Model::load_norm(const TensorTable &given, Role weight, i64 bias, i64 layer,
                             i64 count) {
    NormWeights result;
    result.eps = float(shape.norm_eps);
    result.weight = load_vector(given, weight, layer, count, float(shape.norm_offset));
    if (bias >= 0 && shape.layer_norm != 0) {
        result.bias = load_vector(given, Role(bias), layer, count);
        if (result.weight != nullptr && result.bias == nullptr) throw Error{STATUS_MISSING_TENSOR};
    }
    return result;
}

// A matrix made of these tensors, one after another; packed later by pack_all.
void Model::plan_matrix(Matrix &matrix, const TensorTable &given,
                        std::initializer_list<Role> roles, i64 layer, i64 outputs, i64 inputs) {
    matrix.type = WeightType(shape.weight_type);
    matrix.outputs = outputs;
    matrix.inputs = inputs;
    PackJob job{matrix, {}};
    i64 rows = 0;
    for (const Role role : roles) {
        const TensorSource *tensor = given.get(role, layer);
        if (tensor == nullptr) throw Error{STATUS_MISSING_TENSOR};
        const WeightSource source{SourceType(tensor->type), tensor->data, tensor->scales,
                                  tensor->rows, tensor->columns, tensor->transposed != 0};
        if (tensor->type < 0 || tensor->type > int(SourceType::CODES) || source.rows < 1 ||
            source.rows > outputs || source.inputs != inputs ||
            (source.type == SourceType::CODES && (source.transposed || source.scales == nullptr ||
                                                  matrix.type != WeightType::INT8)))
            throw Error{STATUS_BAD_TENSOR};
        job.sources.push_back(source);
        rows += source.rows;
    }
    if (rows != outputs) throw Error{STATUS_BAD_TENSOR};
    pack_jobs_.push_back(std::move(job));
}

Model::Model(const ModelShape &given_shape, const TensorSource *tensors, i64 count,
             ThreadPool &pool)
    : shape(given_shape) {
    if (!is_sane(shape)) throw Error{STATUS_BAD_SHAPE};
    if (shape.windows == nullptr || shape.rope_table == nullptr ||
        (shape.rope_tables > 0 && shape.frequencies == nullptr) ||
        (count > 0 && tensors == nullptr))
        throw Error{STATUS_NULL_POINTER};
    const TensorTable given(shape, tensors, count);
    const i64 width = shape.width, q_width = shape.heads * shape.head_dim,
              kv_width = shape.kv_heads * shape.head_dim, half = shape.head_dim / 2;
    if (shape.rope_tables > 0) {
        frequencies.assign(shape.frequencies, shape.frequencies + shape.rope_tables * half);
        if (!is_finite(frequencies)) throw Error{STATUS_NOT_FINITE};
    }
    plan_matrix(embedding, given, {ROLE_EMBEDDING}, 0, shape.vocabulary, width);
    if (given.get(ROLE_HEAD, 0) != nullptr)
        plan_matrix(head, given, {ROLE_HEAD}, 0, shape.vocabulary, width);
    positions = load_vector(given, ROLE_POSITIONS, 0, shape.context * width);
    final_norm = load_norm(given, ROLE_FINAL_NORM, ROLE_FINAL_NORM_BIAS, 0, width);
    layers.resize(size_t(shape.layers));
    for (i64 i = 0; i < shape.layers; ++i) {
        Layer &layer = layers[size_t(i)];
        layer.window = shape.windows[i];
        layer.rope_table = shape.rope_table[i];
        if (layer.window < 0 || layer.rope_table < -1 || layer.rope_table >= shape.rope_tables ||
            (layer.rope_table >= 0 && shape.head_dim % 2 != 0))
            throw Error{STATUS_BAD_SHAPE};
        layer.attention_norm =
            load_norm(given, ROLE_ATTENTION_NORM, ROLE_ATTENTION_NORM_BIAS, i, width);
        layer.query_norm = load_norm(given, ROLE_QUERY_NORM, -1, i, shape.head_dim);
        layer.key_norm = load_norm(given, ROLE_KEY_NORM, -1, i, shape.head_dim);
        layer.attention_output_norm = load_norm(given, ROLE_ATTENTION_OUTPUT_NORM, -1, i, width);
        layer.mlp_norm = load_norm(given, ROLE_MLP_NORM, ROLE_MLP_NORM_BIAS, i, width);
        layer.mlp_output_norm = load_norm(given, ROLE_MLP_OUTPUT_NORM, -1, i, width);
        if (layer.attention_norm.weight == nullptr || layer.mlp_norm.weight == nullptr)
            throw Error{STATUS_MISSING_TENSOR};
        if (given.get(ROLE_QUERY_KEY_VALUE, i) != nullptr)
            plan_matrix(layer.query_key_value, given, {ROLE_QUERY_KEY_VALUE}, i,
                        q_width + 2 * kv_width, width);
        else
            plan_matrix(layer.query_key_value, given, {ROLE_QUERY, ROLE_KEY, ROLE_VALUE}, i,
                        q_width + 2 * kv_width, width);
        plan_matrix(layer.output, given, {ROLE_OUTPUT}, i, width, q_width);
        if (given.get(ROLE_GATE, i) != nullptr)
            plan_matrix(layer.gate, given, {ROLE_GATE}, i, shape.hidden, width);
        plan_matrix(layer.up, given, {ROLE_UP}, i, shape.hidden, width);
        plan_matrix(layer.down, given, {ROLE_DOWN}, i, width, shape.hidden);
        layer.query_key_value_bias = load_query_key_value_bias(given, i, q_width, kv_width);
        layer.output_bias = load_vector(given, ROLE_OUTPUT_BIAS, i, width);
        layer.up_bias = load_vector(given, ROLE_UP_BIAS, i, shape.hidden);
        layer.down_bias = load_vector(given, ROLE_DOWN_BIAS, i, width);
    }
    if (final_norm.weight == nullptr) throw Error{STATUS_MISSING_TENSOR};
    shape.windows = shape.rope_table = nullptr;
    shape.frequencies = nullptr;
    pack_all(pool);
}

// Pack all matrices into one buffer, in the order of plan_matrix, and assign them to their layers.
void Model::pack_all(ThreadPool &pool) {
    size_t bytes = 0;
    for (PackJob &job : pack_jobs_) bytes += job.matrix.bytes();
    lines_ = PageBuffer(bytes);
    unsigned char *at = lines_.start();
    for (PackJob &job : pack_jobs_) {
        job.matrix.lines = at;
        at += job.matrix.bytes();
    }
    std::atomic<int> status{STATUS_OK};
    pool.run([&](ThreadTeam &team, int thread) {
        for (const PackJob &job : pack_jobs_) {
            i64 first, last;
            split_range(job.matrix.panels(), 1, thread, team.threads, first, last);
            try {
                if (!pack(job.matrix, job.sources.data(), i64(job.sources.size()), first, last))
                    status = STATUS_NOT_FINITE;
            } catch (const std::bad_alloc &) {
                status = STATUS_NO_MEMORY;
            }
        }
    });
    if (status != STATUS_OK) throw Error{Status(status.load())};
    size_t next = 0;
    const auto assign = [&](Matrix &matrix) {
        if (matrix.outputs > 0) matrix = pack_jobs_[next++].matrix;
    };
    assign(embedding);
    assign(head);
    for (Layer &layer : layers)
        for (Matrix *matrix :
             {&layer.query_key_value, &layer.output, &layer.gate, &layer.up, &layer.down})
            assign(*matrix);
    if (head.outputs == 0) head = embedding;
    pack_jobs_.clear();
}

}  // namespace ownwords::engine
