// A model's weights as the engine keeps them: packed matrices, and vectors of float.
#pragma once

#include <vector>

#include "engine/packed_matrix.h"
#include "engine/os.h"
#include "engine/layer_ops.h"
#include "engine/thread_pool.h"
#include "simd/status.h"

namespace ownwords::engine {

struct Layer {
    NormWeights attention_norm, query_norm, key_norm, attention_output_norm, mlp_norm,
        mlp_output_norm;
    Matrix query_key_value, output, gate, up, down;  // without a gate `up` is activated
    const float *query_key_value_bias = nullptr, *output_bias = nullptr, *up_bias = nullptr,
                *down_bias = nullptr;
    i64 window = 0, rope_table = -1;
};

// Checks all it is given; throws Error or std::bad_alloc.
class Model {
  public:
    Model(const ModelShape &shape, const TensorSource *tensors, i64 count, ThreadPool &pool);

    ModelShape shape;  // without its pointers
    std::vector<Layer> layers;
    Matrix embedding, head;  // equal if tied
    const float *positions = nullptr;
    NormWeights final_norm;
    std::vector<float> frequencies;

  private:
    struct TensorTable;
    const float *load_vector(const TensorTable &given, Role role, i64 layer, i64 count,
                             float offset = 0);
    const float *load_query_key_value_bias(const TensorTable &given, i64 layer, i64 q_width,
                                           i64 kv_width);
    NormWeights load_norm(const TensorTable &given, Role weight, i64 bias, i64 layer, i64 count);
    void plan_matrix(Matrix &matrix, const TensorTable &given, std::initializer_list<Role> roles,
                     i64 layer, i64 outputs, i64 inputs);
    void pack_all(ThreadPool &pool);

    struct PackJob {
        Matrix matrix;
        std::vector<WeightSource> sources;
    };
    std::vector<PackJob> pack_jobs_;
    std::vector<std::vector<float>> vectors_;
    PageBuffer lines_;
};

}  // namespace ownwords::engine
