#include "engine/encoder.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "simd/scratch.h"
#include "simd/status.h"
#include "train/layers.h"

namespace ownwords::engine {
namespace {

i64 panels_of(i64 count) { return (count + PANEL - 1) / PANEL; }

i64 row_stride(i64 width) { return padded_stride(panels_of(width) * PANEL); }

// gelu(x) = x * Phi(x); erf within 1.5e-7 (Abramowitz and Stegun 7.1.26).
VecF32 exact_gelu(VecF32 x) {
    const VecF32 z = max(x, -x) * 0.70710678f;
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

// Rows are read a tile at a time, and their ends a panel at a time.
i64 padded_rows(i64 rows) { return (rows + PANEL - 1) / PANEL * PANEL + PANEL; }

}  // namespace

PackedLinear::PackedLinear(const float *weights, const float *bias, i64 outputs, i64 inputs)
    : outputs_(outputs),
      steps_(panels_of(inputs)),
      panels_(panels_of(outputs)),
      packed_(size_t(panels_ * steps_ * TILE_PAIR) * sizeof(Bf16)),
      bias_(size_t(panels_ * PANEL)) {
    std::copy(bias, bias + outputs, bias_.begin());
    Bf16 *tiles = reinterpret_cast<Bf16 *>(packed_.start());
    for (i64 row = 0; row < outputs; row += TILE_ROWS) {
        Bf16 *panel =
            tiles + row / PANEL * steps_ * TILE_PAIR + row % PANEL / TILE_ROWS * TILE_SIZE;
        for (i64 s = 0; s < steps_; ++s)
            pack_b_t(weights + row * inputs + s * TILE_K, inputs, outputs - row,
                     inputs - s * TILE_K, panel + s * TILE_PAIR);
    }
}

struct Encoder::Rows {
    Rows(const EncoderShape &shape, i64 rows, i64 longest)
        : count(rows),
          stride(row_stride(shape.width)),
          qkv_stride(row_stride(3 * shape.width)),
          hidden_stride(row_stride(shape.hidden)),
          keys(panels_of(longest)),
          x(rows * shape.width),
          x16(padded_rows(rows) * stride),
          attended(padded_rows(rows) * stride),
          qkv(padded_rows(rows) * qkv_stride),
          hidden(padded_rows(rows) * hidden_stride),
          packed_keys(keys * panels_of(shape.width / shape.heads) * TILE_PAIR),
          packed_values(keys * panels_of(shape.width / shape.heads) * TILE_PAIR),
          scores(PANEL * keys * PANEL),
          weights(PANEL * keys * PANEL) {
        // What is beyond the ends is multiplied by zeros, so it must be finite.
        std::fill_n(static_cast<Bf16 *>(x16), padded_rows(rows) * stride, Bf16{});
        std::fill_n(static_cast<Bf16 *>(attended), padded_rows(rows) * stride, Bf16{});
        std::fill_n(static_cast<Bf16 *>(qkv), padded_rows(rows) * qkv_stride, Bf16{});
        std::fill_n(static_cast<Bf16 *>(hidden), padded_rows(rows) * hidden_stride, Bf16{});
    }

    i64 count, stride, qkv_stride, hidden_stride, keys;
    ScratchBuffer<float> x;
    ScratchBuffer<Bf16> x16, attended, qkv, hidden, packed_keys, packed_values;
    ScratchBuffer<float> scores;
    ScratchBuffer<Bf16> weights;
};

Encoder::Encoder(const EncoderShape &shape, const float *const *tensors)
    : shape_(shape),
      embedding_(tensors[ENCODER_EMBEDDING]),
      positions_(tensors[ENCODER_POSITIONS]),
      token_type_(tensors[ENCODER_TOKEN_TYPE]),
      embedding_norm_{tensors[ENCODER_EMBEDDING_NORM], tensors[ENCODER_EMBEDDING_NORM_BIAS]} {
    layers_.reserve(size_t(shape.layers));
    for (i64 i = 0; i < shape.layers; ++i) {
        const float *const *of = tensors + i * (ENCODER_TENSOR_COUNT - ENCODER_QUERY);
        // Queries, keys and values are one product.
        std::vector<float> weights, bias;
        for (const int part : {ENCODER_QUERY, ENCODER_KEY, ENCODER_VALUE}) {
            weights.insert(weights.end(), of[part], of[part] + shape.width * shape.width);
            bias.insert(bias.end(), of[part + 1], of[part + 1] + shape.width);
        }
        layers_.push_back(
            {PackedLinear(weights.data(), bias.data(), 3 * shape.width, shape.width),
             PackedLinear(of[ENCODER_OUTPUT], of[ENCODER_OUTPUT_BIAS], shape.width, shape.width),
             PackedLinear(of[ENCODER_UP], of[ENCODER_UP_BIAS], shape.hidden, shape.width),
             PackedLinear(of[ENCODER_DOWN], of[ENCODER_DOWN_BIAS], shape.width, shape.hidden),
             Norm{of[ENCODER_ATTENTION_NORM], of[ENCODER_ATTENTION_NORM_BIAS]},
             Norm{of[ENCODER_MLP_NORM], of[ENCODER_MLP_NORM_BIAS]}});
    }
}

void Encoder::forward(i64 count, const int64_t *lengths, const int32_t *ids, float *vectors) const {
    const AmxTileConfig tiles;
    i64 total = 0, longest = 0;
    for (i64 i = 0; i < count; ++i) {
        total += lengths[i];
        longest = std::max(longest, i64(lengths[i]));
    }
    Rows rows(shape_, total, longest);
    embed(lengths, count, ids, rows);
    for (const Layer &layer : layers_) {
        attention(layer, lengths, count, rows);
        mlp(layer, rows);
    }
    for (i64 i = 0, begin = 0; i < count; begin += lengths[i++])
        pool(begin, lengths[i], rows, vectors + i * shape_.width);
}

void Encoder::embed(const int64_t *lengths, i64 count, const int32_t *ids, Rows &rows) const {
    const i64 width = shape_.width;
    float *x = rows.x;
    for (i64 i = 0; i < count; ++i)
        for (i64 t = 0; t < lengths[i]; ++t, x += width) {
            const float *token = embedding_ + i64(*ids++) * width, *position = positions_ + t * width;
            for (i64 c = 0; c < width; ++c) x[c] = token[c] + (position[c] + token_type_[c]);
        }
    normalize(embedding_norm_, rows);
}

void Encoder::attention(const Layer &layer, const int64_t *lengths, i64 count, Rows &rows) const {
    const i64 width = shape_.width;
    layer.qkv.forward(rows.x16, rows.stride, rows.count,
                      [&](i64 row, i64 first, i64 outputs, const float *sums, const float *bias) {
                          Bf16 *to = rows.qkv + row * rows.qkv_stride + first;
                          for_each_vec(outputs, [&](i64 c, auto part) {
                              store(to + c, load(sums + c) + load(bias + c), part);
                          });
                      });
    for (i64 i = 0, begin = 0; i < count; begin += lengths[i++])
        for (i64 head = 0; head < shape_.heads; ++head) attend(begin, lengths[i], head, rows);
    layer.output.forward(
        rows.attended, rows.stride, rows.count,
        [&](i64 row, i64 first, i64 outputs, const float *sums, const float *bias) {
            float *x = rows.x + row * width + first;
            for (i64 c = 0; c < outputs; ++c) x[c] += sums[c] + bias[c];
        });
    normalize(layer.attention_norm, rows);
}

// softmax(Q K^T / sqrt(D)) V of one head, 32 queries at a time.
void Encoder::attend(i64 begin, i64 length, i64 head, Rows &rows) const {
    const i64 width = shape_.width, dims = width / shape_.heads;
    const i64 dim_panels = panels_of(dims), key_panels = panels_of(length);
    const i64 stride = rows.qkv_stride, score_stride = key_panels * PANEL;
    const float scale = 1.0f / std::sqrt(float(dims));
    const Bf16 *queries = rows.qkv + begin * stride + head * dims;
    const Bf16 *keys = queries + width, *values = keys + width;
    for (i64 j = 0; j < key_panels; ++j)
        for (i64 d = 0; d < dim_panels; ++d) {
            Bf16 *tiles = rows.packed_keys + (j * dim_panels + d) * TILE_PAIR;
            for (i64 half = 0; half < 2; ++half) {
                const i64 row = j * PANEL + half * TILE_ROWS;
                pack_b_t(keys + row * stride + d * TILE_K, stride, length - row, dims - d * TILE_K,
                         tiles + half * TILE_SIZE);
            }
            tiles = rows.packed_values + (d * key_panels + j) * TILE_PAIR;
            pack_b(values + j * PANEL * stride + d * TILE_K, stride, length - j * PANEL,
                   dims - d * TILE_K, tiles, tiles + TILE_SIZE);
        }
    for (i64 first = 0; first < length; first += PANEL) {
        const i64 count = std::min(length - first, PANEL);
        matmul(row_major(queries + first * stride, stride), rows.packed_keys,
               dim_panels * TILE_PAIR, count, key_panels, dim_panels,
               [&](i64 row, i64 panel, const float *sums) {
                   std::copy_n(sums, PANEL, rows.scores + row * score_stride + panel * PANEL);
               });
        for (i64 row = 0; row < PANEL; ++row) {
            float *scores = rows.scores + row * score_stride;
            Bf16 *weights = rows.weights + row * score_stride;
            if (row >= count) {
                std::fill_n(weights, score_stride, Bf16{});
                continue;
            }
            std::fill(scores + length, scores + score_stride, -INFINITY);
            VecF32 highest = splat(-INFINITY), sum = splat(0.0f);
            for (i64 c = 0; c < score_stride; c += LANES) highest = max(highest, load(scores + c));
            const VecF32 top = splat(reduce_max(highest) * scale);
            for (i64 c = 0; c < score_stride; c += LANES) {
                const VecF32 weight = exp<true>(load(scores + c) * scale - top);
                store(scores + c, mask_range(weight, c, 0, length, 0.0f));
                sum += load(scores + c);
            }
            const VecF32 inverse = splat(1.0f / reduce_add(sum));
            for (i64 c = 0; c < score_stride; c += LANES)
                store(weights + c, load(scores + c) * inverse);
        }
        matmul(row_major<Bf16>(rows.weights, score_stride), rows.packed_values, key_panels * TILE_PAIR,
               count, dim_panels, key_panels, [&](i64 row, i64 panel, const float *sums) {
                   Bf16 *to = rows.attended + (begin + first + row) * rows.stride + head * dims +
                              panel * PANEL;
                   for_each_vec(std::min(dims - panel * PANEL, PANEL), [&](i64 c, auto part) {
                       store(to + c, load(sums + c), part);
                   });
               });
    }
}

void Encoder::mlp(const Layer &layer, Rows &rows) const {
    const i64 width = shape_.width;
    layer.up.forward(rows.x16, rows.stride, rows.count,
                     [&](i64 row, i64 first, i64 outputs, const float *sums, const float *bias) {
                         Bf16 *to = rows.hidden + row * rows.hidden_stride + first;
                         for_each_vec(outputs, [&](i64 c, auto part) {
                             const VecF32 x = load(sums + c) + load(bias + c);
                             store(to + c, shape_.gelu_tanh ? Gelu::at<true>(x).value : exact_gelu(x),
                                   part);
                         });
                     });
    layer.down.forward(
        rows.hidden, rows.hidden_stride, rows.count,
        [&](i64 row, i64 first, i64 outputs, const float *sums, const float *bias) {
            float *x = rows.x + row * width + first;
            for (i64 c = 0; c < outputs; ++c) x[c] += sums[c] + bias[c];
        });
    normalize(layer.mlp_norm, rows);
}

// LayerNorm in place, and as bfloat16 for the next product.
void Encoder::normalize(const Norm &norm, Rows &rows) const {
    const i64 width = shape_.width;
    for (i64 row = 0; row < rows.count; ++row) {
        float *x = rows.x + row * width;
        Bf16 *x16 = rows.x16 + row * rows.stride;
        VecF32 sum = splat(0.0f), squares = splat(0.0f);
        for_each_vec(width, [&](i64 c, auto part) { sum += load(x + c, part); });
        const float mean = reduce_add(sum) / float(width);
        for_each_vec(width, [&](i64 c, auto part) {
            const VecF32 off = mask_tail(load(x + c, part) - mean, part, 0.0f);
            squares += off * off;
        });
        const float variance = reduce_add(squares) / float(width);
        const float inverse = 1.0f / std::sqrt(variance + float(shape_.norm_eps));
        for_each_vec(width, [&](i64 c, auto part) {
            const VecF32 y = (load(x + c, part) - mean) * inverse * load(norm.weight + c, part) +
                             load(norm.bias + c, part);
            store(x + c, y, part);
            store(x16 + c, y, part);
        });
    }
}

// The mean of the text's rows, or its first, at length 1.
void Encoder::pool(i64 begin, i64 length, const Rows &rows, float *vector) const {
    const i64 width = shape_.width;
    const float *x = rows.x + begin * width;
    std::copy_n(x, width, vector);
    if (!shape_.pool_first)
        for (i64 t = 1; t < length; ++t)
            for (i64 c = 0; c < width; ++c) vector[c] += x[t * width + c];
    double squares = 0.0;
    for (i64 c = 0; c < width; ++c) squares += double(vector[c]) * vector[c];
    const float inverse = float(1.0 / std::max(std::sqrt(squares), 1e-12));
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

int ownwords_encoder_forward(const OwnwordsEncoder *encoder, int64_t count, const int64_t *lengths,
                             const int32_t *ids, float *vectors) {
    if (encoder == nullptr || lengths == nullptr || ids == nullptr || vectors == nullptr)
        return STATUS_NULL_POINTER;
    if (count < 1 || count > 1 << 20) return STATUS_BAD_COUNT;
    const EncoderShape &shape = encoder->encoder->shape();
    int64_t total = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (lengths[i] < 1 || lengths[i] > shape.context) return STATUS_BAD_LENGTH;
        total += lengths[i];
    }
    for (int64_t i = 0; i < total; ++i)
        if (ids[i] < 0 || ids[i] >= shape.vocabulary) return STATUS_BAD_ID;
    return with_status([&] {
        encoder->encoder->forward(i64(count), lengths, ids, vectors);
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
