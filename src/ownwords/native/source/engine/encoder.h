// BERT (Devlin et al. 2018) as an encoder of whole texts: one vector for each. Its products and its
// attention are the decoder's, on activations in float.
//
// Texts are independent and a call is short: it runs on the caller's thread, and callers with many
// texts bring their own threads.
#pragma once

#include <initializer_list>
#include <vector>

#include "api.h"
#include "engine/layer_ops.h"
#include "engine/matmul.h"
#include "engine/os.h"

namespace ownwords::engine {

class Encoder {
  public:
    // `tensors` in the order of EncoderTensor, those of each layer after those of the embedding.
    Encoder(const EncoderShape &shape, const float *const *tensors);

    const EncoderShape &shape() const { return shape_; }

    // vectors [count, width] of unit length; `ids` are those of all texts, one after another.
    void forward(i64 count, const int64_t *lengths, const int32_t *ids, float *vectors) const;

  private:
    // y = x W^T + bias
    struct Linear {
        Matrix matrix;
        PageBuffer lines;
        const float *bias;
    };
    struct Layer {
        Linear qkv, output, up, down;
        std::vector<float> qkv_bias;
        NormWeights attention_norm, mlp_norm;
    };

    Linear pack_linear(std::initializer_list<const float *> weights, const float *bias,
                       i64 outputs, i64 inputs) const;
    void embed(i64 length, const int32_t *ids, float *x) const;
    void activate(float *row) const;
    void pool(const float *x, i64 length, float *vector) const;

    EncoderShape shape_;
    const float *embedding_, *positions_, *token_type_;  // the caller's memory, as are norms
    NormWeights embedding_norm_;
    std::vector<Layer> layers_;
};

}  // namespace ownwords::engine
