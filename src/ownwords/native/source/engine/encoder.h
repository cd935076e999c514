// BERT (Devlin et al. 2018) as an encoder of whole texts: one vector for each. Weights are packed
// as bfloat16 tiles, products are summed in float, and the residual stream is float.
//
// Texts are independent and a call is short: it runs on the caller's thread, and callers with many
// texts bring their own threads.
#pragma once

#include <vector>

#include "api.h"
#include "engine/os.h"
#include "simd/tile_matmul.h"

namespace ownwords::engine {

// y = x W^T + bias for a matrix [outputs, inputs].
class PackedLinear {
  public:
    PackedLinear(const float *weights, const float *bias, i64 outputs, i64 inputs);

    // store(row, first output, how many, their values) for 32 outputs at a time.
    template <typename Store>
    void forward(const Bf16 *x, i64 stride, i64 rows, const Store &store) const {
        const Bf16 *panels = reinterpret_cast<const Bf16 *>(packed_.start());
        matmul(row_major(x, stride), panels, steps_ * TILE_PAIR, rows, panels_, steps_,
               [&](i64 row, i64 panel, const float *sums) {
                   const i64 first = panel * PANEL;
                   store(row, first, outputs_ - first < PANEL ? outputs_ - first : PANEL, sums,
                         bias_.data() + first);
               });
    }

  private:
    i64 outputs_, steps_, panels_;
    PageBuffer packed_;
    std::vector<float> bias_;
};

class Encoder {
  public:
    // `tensors` in the order of EncoderTensor, those of each layer after those of the embedding.
    Encoder(const EncoderShape &shape, const float *const *tensors);

    const EncoderShape &shape() const { return shape_; }

    // vectors [count, width] of unit length; `ids` are those of all texts, one after another.
    void forward(i64 count, const int64_t *lengths, const int32_t *ids, float *vectors) const;

  private:
    struct Norm {
        const float *weight, *bias;
    };
    struct Layer {
        PackedLinear qkv, output, up, down;
        Norm attention_norm, mlp_norm;
    };
    struct Rows;  // the activations of a call

    void embed(const int64_t *lengths, i64 count, const int32_t *ids, Rows &rows) const;
    void attention(const Layer &layer, const int64_t *lengths, i64 count, Rows &rows) const;
    void attend(i64 begin, i64 length, i64 head, Rows &rows) const;
    void mlp(const Layer &layer, Rows &rows) const;
    void normalize(const Norm &norm, Rows &rows) const;
    void pool(i64 begin, i64 length, const Rows &rows, float *vector) const;

    EncoderShape shape_;
    const float *embedding_, *positions_, *token_type_;  // the caller's memory
    Norm embedding_norm_;
    std::vector<Layer> layers_;
};

}  // namespace ownwords::engine
