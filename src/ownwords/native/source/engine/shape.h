// How a model is described to the engine: plain structs, mirrored in native/engine.py.
#pragma once

#include <cstdint>

namespace ownwords::engine {

struct Shape {
    int64_t vocabulary, context, width, layers, heads, kv_heads, head_dim, hidden;
    int64_t matrices, ends;    // what they are kept as: Kind; the ends are embedding and head
    int64_t narrow;            // keys and values as bfloat16, not float
    int64_t layer_norm;        // LayerNorm with biases, not RMSNorm
    int64_t gelu;              // tanh approximation of gelu, not silu
    int64_t tables;            // of rotary frequencies
    double norm_eps;
    double norm_offset;        // what the stored weights of the norms are less than
    double attention_scale;
    double embedding_scale;
    double softcap;            // 0: none
    const int64_t *windows;    // by layer: how many tokens it sees, 0: all
    const int64_t *turns;      // by layer: its table of frequencies, -1: it does not turn
    const float *frequencies;  // [tables, head_dim / 2]
};

// The tensors of a model; of a layer from ATTENTION_NORM on.
enum Role : int64_t {
    EMBEDDING,
    POSITIONS,
    FINAL_NORM,
    FINAL_NORM_BIAS,
    HEAD,
    ATTENTION_NORM,
    ATTENTION_NORM_BIAS,
    QUERY,
    KEY,
    VALUE,
    QUERY_KEY_VALUE,
    QUERY_KEY_VALUE_BIAS,
    QUERY_NORM,
    KEY_NORM,
    OUTPUT,
    OUTPUT_BIAS,
    ATTENTION_OUTPUT_NORM,
    MLP_NORM,
    MLP_NORM_BIAS,
    GATE,
    UP,
    UP_BIAS,
    DOWN,
    DOWN_BIAS,
    MLP_OUTPUT_NORM,
    ROLES
};

// [rows, columns], a row the weights of one output; a vector has one row. Whoever hands it over
// answers for there being so many numbers.
struct Tensor {
    int64_t role, layer;
    int64_t type;  // Stored
    const void *data;
    const void *scales;
    int64_t group;  // of the scales
    int64_t rows, columns;
    int64_t transposed;  // stored [columns, rows]
    int64_t mapped;      // a file's memory, whose pages may go once the tensor is packed
};

// What the functions of the library return; what they say is in native/engine.py.
enum Trouble : int {
    FINE = 0,
    NOTHING_GIVEN = 1,     // a null pointer
    BAD_SHAPE = 2,         // sizes that no model has
    BAD_TENSOR = 3,        // unknown, twice, or not of the model's sizes
    MISSING_TENSOR = 4,
    NOT_FINITE = 5,
    NO_MEMORY = 6,
    BAD_ROW = 7,
    ROW_TWICE = 8,
    BAD_COUNT = 9,
    BAD_ID = 10,
    FULL = 11,
    BAD_LENGTH = 12,
    UNEXPECTED = 13,
};

}  // namespace ownwords::engine
