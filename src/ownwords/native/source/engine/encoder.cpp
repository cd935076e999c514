// BERT (Devlin et al. 2018) as an encoder: one vector per text, or its hidden states. Its products and its attention are the
// decoder's, on float activations. A call is short, so it runs on the caller's thread; callers with
// many texts use several threads.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <vector>

#include "api.h"
#include "engine/cached_attention.h"
#include "engine/kernels.h"
#include "simd/scratch.h"
#include "simd/status.h"

namespace ownwords::engine {

class Encoder {
  public:
    // `tensors` in the order of EncoderTensor, those of each layer after those of the embedding.
    Encoder(const EncoderShape &shape, const float *const *tensors);

    const EncoderShape &shape() const { return shape_; }

    // x [tokens, width]: the states of all texts, one after another, through the first layers.
    void run_layers(i64 count, const int64_t *lengths, i64 layers, float *x) const;
    // x [tokens, width] from the ids of all texts: what the first layer reads.
    void embed(i64 count, const int64_t *lengths, const int32_t *ids, float *x) const;
    // vectors [count, width] of unit length.
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
    void activate(float *row) const;
    void pool(const float *x, i64 length, float *vector) const;

    EncoderShape shape_;
    const float *embedding_, *positions_, *token_type_;  // the caller's memory, as for norms
    NormWeights embedding_norm_;
    std::vector<Layer> layers_;
};

namespace {

// The type whose products are fastest: tiles of bfloat16, dot products of bytes, or float.
#if defined(OWNWORDS_AMX)
constexpr WeightType WEIGHT_TYPE = WeightType::BF16;
#else
constexpr WeightType WEIGHT_TYPE = sizeof(Code) == 1 ? WeightType::INT8 : WeightType::F32;
#endif

// gelu(x) = x * Phi(x); erf within 1.5e-7 (Abramowitz and Stegun 7.1.26).
inline VecF32 exact_gelu(VecF32 x) {
    const VecF32 z = ownwords::max(x, -x) * 0.70710678f;
    const VecF32 t = reciprocal(1.0f + 0.3275911f * z);
    VecF32 p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const VecF32 tail = 0.5f * p * t * exp(-z * z);  // of the normal distribution, beyond |x|
    return x * (x > 0.0f ? 1.0f - tail : tail);
}

VecF32 load_codes_as_float(const int8_t *codes) {
#if defined(__AVX512F__)  // GCC 12 converts bytes to vectors in many steps
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(codes));
    return (VecF32)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#else
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    Bytes bytes;
    std::memcpy(&bytes, codes, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, VecI32), VecF32);
#endif
}

}  // namespace

Encoder::Linear Encoder::pack_linear(std::initializer_list<const float *> weights,
                                     const float *bias, i64 outputs, i64 inputs) const {
    Linear linear{{WEIGHT_TYPE, outputs, inputs}, {}, bias};
    linear.matrix.int8_input = true;
    linear.lines = PageBuffer(linear.matrix.bytes());
    linear.matrix.lines = linear.lines.start();
    std::vector<WeightSource> sources;
    for (const float *part : weights)
        sources.push_back(
            {SourceType::F32, part, nullptr, outputs / i64(weights.size()), inputs});
    if (!pack(linear.matrix, sources.data(), i64(sources.size()), 0, linear.matrix.panels()))
        throw Error{STATUS_NOT_FINITE};
    return linear;
}

Encoder::Encoder(const EncoderShape &shape, const float *const *tensors)
    : shape_(shape),
      embedding_(tensors[ENCODER_EMBEDDING]),
      positions_(tensors[ENCODER_POSITIONS]),
      token_type_(tensors[ENCODER_TOKEN_TYPE]) {
    const auto norm_at = [&](const float *const *of, EncoderTensor norm) {
        return NormWeights{of[norm], of[norm + 1], float(shape.norm_eps)};
    };
    embedding_norm_ = norm_at(tensors, ENCODER_EMBEDDING_NORM);
    const i64 width = shape.width, hidden = shape.hidden;
    layers_.resize(size_t(shape.layers));
    for (Layer &layer : layers_) {
        for (const int bias : {ENCODER_QUERY_BIAS, ENCODER_KEY_BIAS, ENCODER_VALUE_BIAS})
            layer.qkv_bias.insert(layer.qkv_bias.end(), tensors[bias], tensors[bias] + width);
        // Queries, keys and values are one product.
        layer.qkv =
            pack_linear({tensors[ENCODER_QUERY], tensors[ENCODER_KEY], tensors[ENCODER_VALUE]},
                        layer.qkv_bias.data(), 3 * width, width);
        layer.output =
            pack_linear({tensors[ENCODER_OUTPUT]}, tensors[ENCODER_OUTPUT_BIAS], width, width);
        layer.up = pack_linear({tensors[ENCODER_UP]}, tensors[ENCODER_UP_BIAS], hidden, width);
        layer.down =
            pack_linear({tensors[ENCODER_DOWN]}, tensors[ENCODER_DOWN_BIAS], width, hidden);
        layer.attention_norm = norm_at(tensors, ENCODER_ATTENTION_NORM);
        layer.mlp_norm = norm_at(tensors, ENCODER_MLP_NORM);
        tensors += ENCODER_TENSOR_COUNT - ENCODER_QUERY;
    }
}

void Encoder::run_layers(i64 count, const int64_t *lengths, i64 layers, float *x) const {
    const i64 width = shape_.width, hidden_width = shape_.hidden;
    AttentionHeads heads;
    heads.query_heads = heads.kv_heads = shape_.heads;
    heads.width = width / shape_.heads;
    heads.scale = 1.0f / std::sqrt(float(heads.width));
    heads.qkv_stride = 3 * width;
    heads.out_stride = width;
    std::vector<i64> texts, positions;  // of each token
    std::vector<QueryBlock> blocks;
    for (i64 text = 0; text < count; ++text)
        for (i64 at = 0; at < lengths[text]; ++at) {
            const i64 token = i64(texts.size());
            if (at % MAX_QUERIES == 0)
                blocks.push_back({text, token, token, std::min(MAX_QUERIES, lengths[text] - at),
                                  lengths[text] - 1});
            texts.push_back(text);
            positions.push_back(at);
        }
    const i64 tokens = heads.tokens = i64(texts.size());
    AttentionPlan plan;
    plan.causal = false;
    plan.reserve(1);
    plan.split_work(blocks.data(), i64(blocks.size()), 0, heads, 1);
    AttentionScratch scratch(heads.padded_width());
    KvCache cache({1, count, shape_.heads, *std::max_element(lengths, lengths + count),
                   heads.padded_width(), false, 0, 1});

    ScratchBuffer<float> qkv(tokens * 3 * width), delta(tokens * width),
        hidden(tokens * hidden_width);
    heads.qkv = qkv;
    heads.out = delta;
    MatmulInput input(tokens, std::max(width, hidden_width));
    const auto multiply = [&](const Linear &linear, const float *from, float *to) {
        const Matrix &m = linear.matrix;
        prepare_input(m, from, tokens, m.inputs, input, 0, tokens);
        matmul(m, input, tokens, linear.bias, to, m.outputs, 0, m.panels());
    };
    const auto add_and_normalize = [&](const NormWeights &norm) {
        for (i64 at = 0; at < tokens * width; at += width) {
            add_row(x + at, delta + at, width);
            normalize(norm, x + at, width, x + at);
        }
    };
    for (i64 at = 0; at < layers; ++at) {
        const Layer &layer = layers_[size_t(at)];
        multiply(layer.qkv, x, qkv);
        store_kv(heads, cache, 0, texts.data(), positions.data(), 0, tokens, scratch);
        attend(heads, cache, 0, plan, 0, false, scratch);
        multiply(layer.output, delta, delta);
        add_and_normalize(layer.attention_norm);
        multiply(layer.up, x, hidden);
        for (i64 at = 0; at < tokens; ++at) activate(hidden + at * hidden_width);
        multiply(layer.down, hidden, delta);
        add_and_normalize(layer.mlp_norm);
    }
}

void Encoder::embed(i64 count, const int64_t *lengths, const int32_t *ids, float *x) const {
    const i64 width = shape_.width;
    for (i64 text = 0; text < count; ++text)
        for (i64 t = 0; t < lengths[text]; ++t, ++ids, x += width) {
            std::copy_n(embedding_ + i64(*ids) * width, width, x);
            add_row(x, positions_ + t * width, width);
            add_row(x, token_type_, width);
            normalize(embedding_norm_, x, width, x);
        }
}

void Encoder::forward(i64 count, const int64_t *lengths, const int32_t *ids, float *vectors) const {
    const i64 width = shape_.width;
    ScratchBuffer<float> x(std::accumulate(lengths, lengths + count, i64(0)) * width);
    embed(count, lengths, ids, x);
    run_layers(count, lengths, shape_.layers, x);
    i64 begin = 0;
    for (i64 text = 0; text < count; begin += lengths[text++])
        pool(x + begin * width, lengths[text], vectors + text * width);
}

void Encoder::activate(float *row) const {
    if (shape_.gelu_tanh)
        activate_row([](VecF32 v) { return Gelu::at<true>(v).value; }, row, nullptr, shape_.hidden);
    else
        activate_row([](VecF32 v) { return exact_gelu(v); }, row, nullptr, shape_.hidden);
}

// The mean of the text's rows, or its first, at length 1.
void Encoder::pool(const float *x, i64 length, float *vector) const {
    const i64 width = shape_.width;
    std::copy_n(x, width, vector);
    if (!shape_.pool_first)
        for (i64 t = 1; t < length; ++t) add_row(vector, x + t * width, width);
    const float squares = row_sum(width, [=](i64 c, auto part) {
        const VecF32 x = load(vector + c, part);
        return x * x;
    });
    const float inverse = 1.0f / std::max(std::sqrt(squares), 1e-12f);
    for (i64 c = 0; c < width; ++c) vector[c] *= inverse;
}

}  // namespace ownwords::engine

using namespace ownwords;
using namespace ownwords::engine;

struct OwnwordsEncoder {
    std::unique_ptr<Encoder> encoder;
};

int ownwords_encoder_new(const EncoderShape *shape, const float *const *tensors, int64_t count,
                         OwnwordsEncoder **handle) {
    if (shape == nullptr || tensors == nullptr || handle == nullptr) return STATUS_NULL_POINTER;
    *handle = nullptr;
    const int64_t most = 1 << 20;
    for (const int64_t size : {shape->vocabulary, shape->context, shape->width, shape->layers,
                               shape->heads, shape->hidden})
        if (size < 1 || size > most) return STATUS_BAD_SHAPE;
    if (shape->width % shape->heads != 0) return STATUS_BAD_SHAPE;
    if (count != ENCODER_QUERY + shape->layers * (ENCODER_TENSOR_COUNT - ENCODER_QUERY))
        return STATUS_BAD_COUNT;
    for (int64_t i = 0; i < count; ++i)
        if (tensors[i] == nullptr) return STATUS_MISSING_TENSOR;
    return with_status([&] {
        auto made = std::make_unique<OwnwordsEncoder>();
        made->encoder = std::make_unique<Encoder>(*shape, tensors);
        *handle = made.release();
        return STATUS_OK;
    });
}

namespace {

// `ids` may be null: then only the lengths are checked.
int check_texts(const OwnwordsEncoder *encoder, int64_t count, const int64_t *lengths,
                const int32_t *ids) {
    if (encoder == nullptr || lengths == nullptr) return STATUS_NULL_POINTER;
    if (count < 1 || count > 1 << 20) return STATUS_BAD_COUNT;
    const EncoderShape &shape = encoder->encoder->shape();
    int64_t total = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (lengths[i] < 1 || lengths[i] > shape.context) return STATUS_BAD_LENGTH;
        total += lengths[i];
    }
    for (int64_t i = 0; ids != nullptr && i < total; ++i)
        if (ids[i] < 0 || ids[i] >= shape.vocabulary) return STATUS_BAD_ID;
    return STATUS_OK;
}

}  // namespace

int ownwords_encoder_forward(const OwnwordsEncoder *encoder, int64_t count, const int64_t *lengths,
                             const int32_t *ids, float *vectors) {
    if (ids == nullptr || vectors == nullptr) return STATUS_NULL_POINTER;
    if (const int status = check_texts(encoder, count, lengths, ids)) return status;
    return with_status([&] {
        encoder->encoder->forward(i64(count), lengths, ids, vectors);
        return STATUS_OK;
    });
}

int ownwords_encoder_states(const OwnwordsEncoder *encoder, int64_t count, const int64_t *lengths,
                            const int32_t *ids, int64_t layers, float *states) {
    if (states == nullptr) return STATUS_NULL_POINTER;
    if (const int status = check_texts(encoder, count, lengths, ids)) return status;
    const Encoder &made = *encoder->encoder;
    if (layers < 0 || layers > made.shape().layers) return STATUS_BAD_COUNT;
    return with_status([&] {
        if (ids != nullptr) made.embed(i64(count), lengths, ids, states);
        made.run_layers(i64(count), lengths, i64(layers), states);
        return STATUS_OK;
    });
}

void ownwords_encoder_free(OwnwordsEncoder *encoder) { delete encoder; }

int ownwords_dot_codes(const int8_t *codes, const float *scales, const float *query, int64_t rows,
                       int64_t width, float *scores) {
    if (codes == nullptr || scales == nullptr || query == nullptr || scores == nullptr)
        return STATUS_NULL_POINTER;
    if (rows < 0 || width < 1) return STATUS_BAD_SHAPE;
    constexpr int SUMS = 4;  // a single one would wait for each addition
    for (int64_t row = 0; row < rows; ++row, codes += width) {
        VecF32 sums[SUMS] = {};
        int64_t c = 0;
        for (; c + SUMS * LANES <= width; c += SUMS * LANES)
            for (int i = 0; i < SUMS; ++i) {
                sums[i] += load_codes_as_float(codes + c + i * LANES) * load(query + c + i * LANES);
            }
        float rest = 0.0f;
        for (; c < width; ++c) rest += float(codes[c]) * query[c];
        scores[row] = (reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest) * scales[row];
    }
    return STATUS_OK;
}
