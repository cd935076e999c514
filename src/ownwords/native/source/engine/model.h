// A model's weights as the engine keeps them: packed matrices, and vectors of float.
#pragma once

#include <vector>

#include "engine/head.h"
#include "engine/matrix.h"
#include "engine/memory.h"
#include "engine/parts.h"
#include "engine/pool.h"
#include "engine/shape.h"

namespace ownwords::engine {

// What ends the making of a model.
struct Refused {
    Trouble trouble;
};

struct Layer {
    Norm attention_norm, query_norm, key_norm, attention_output_norm, mlp_norm, mlp_output_norm;
    Matrix query_key_value, output, gate, up, down;  // no gate: the activation is of `up`
    const float *query_key_value_bias = nullptr, *output_bias = nullptr, *up_bias = nullptr,
                *down_bias = nullptr;
    Long window = 0, turns = -1;
};

// Checks all it is given; throws Refused or std::bad_alloc.
class Model {
  public:
    Model(const Shape &shape, const Tensor *tensors, Long count, Pool &pool);

    Shape shape;  // its pointers are not kept
    std::vector<Layer> layers;
    Matrix embedding, head;  // the same where the head is tied
    Planes planes;           // where it pays, what the head is kept as instead, with no lines of its own
    const float *positions = nullptr;
    Norm final_norm;
    std::vector<float> frequencies;

  private:
    struct Given;
    const float *vector(const Given &given, Role role, Long layer, Long count, float offset = 0);
    Norm norm(const Given &given, Role weight, Long bias, Long layer, Long count);
    void place(Matrix &matrix, const Given &given, Long kind, std::initializer_list<Role> roles,
               Long layer, Long outputs, Long inputs);
    void pack_all(Pool &pool);

    struct Job {
        Matrix matrix;
        Planes planes;  // or these, if they have outputs
        std::vector<Source> sources;
        std::vector<bool> mapped;  // by source

        size_t bytes() const;
        Long piece() const;
        bool pack_piece(Long first, Long last) const;
    };
    std::vector<Job> jobs_;
    std::vector<std::vector<float>> vectors_;
    Memory lines_;
};

}  // namespace ownwords::engine
