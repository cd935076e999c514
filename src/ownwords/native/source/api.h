// The C interface of the library. native/bindings.py parses this file to declare its structs, enums
// and functions to ctypes, and the C++ tests include it: keep declarations plain, one after another,
// without macros.
//
// Arrays are contiguous and row-major. `dtype` is 0 for float32 and 1 for bfloat16. No exception
// crosses this interface: functions that return int return a Status.
#pragma once

#include <stdint.h>

#if defined(_WIN32)
#define OWNWORDS_API __declspec(dllexport)
#else
#define OWNWORDS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Instruction sets. A higher value includes the lower ones of the same processor family, except
// AVX-VNNI, which some processors with AVX-512 lack.
enum Isa {
    ISA_BASELINE = 0,  // SSE2, NEON
    ISA_NEON_DOTPROD = 1,
    ISA_NEON_BF16 = 2,
    ISA_AVX2 = 3,
    ISA_AVXVNNI = 4,
    ISA_AVX512 = 5,  // with VNNI; Skylake servers, which lack it, run AVX2
    ISA_AVX512BF16 = 6,
    ISA_AMX = 7
};

// native/bindings.py has a message for each.
enum Status {
    STATUS_OK,
    STATUS_NULL_POINTER,
    STATUS_BAD_SHAPE,
    STATUS_BAD_TENSOR,
    STATUS_MISSING_TENSOR,
    STATUS_NOT_FINITE,
    STATUS_NO_MEMORY,
    STATUS_BAD_ROW,
    STATUS_DUPLICATE_ROW,
    STATUS_BAD_COUNT,
    STATUS_BAD_ID,
    STATUS_CACHE_FULL,
    STATUS_BAD_LENGTH,
    STATUS_INTERNAL_ERROR
};

// The tensors of a model; every block has those from ROLE_ATTENTION_NORM on. A norm is followed by
// its bias.
enum Role {
    ROLE_EMBEDDING,
    ROLE_POSITIONS,
    ROLE_FINAL_NORM,
    ROLE_FINAL_NORM_BIAS,
    ROLE_HEAD,
    ROLE_ATTENTION_NORM,
    ROLE_ATTENTION_NORM_BIAS,
    ROLE_QUERY,
    ROLE_KEY,
    ROLE_VALUE,
    ROLE_QUERY_BIAS,
    ROLE_KEY_BIAS,
    ROLE_VALUE_BIAS,
    ROLE_QUERY_KEY_VALUE,
    ROLE_QUERY_KEY_VALUE_BIAS,
    ROLE_QUERY_NORM,
    ROLE_KEY_NORM,
    ROLE_OUTPUT,
    ROLE_OUTPUT_BIAS,
    ROLE_ATTENTION_OUTPUT_NORM,
    ROLE_MLP_NORM,
    ROLE_MLP_NORM_BIAS,
    ROLE_GATE,
    ROLE_UP,
    ROLE_UP_BIAS,
    ROLE_DOWN,
    ROLE_DOWN_BIAS,
    ROLE_MLP_OUTPUT_NORM,
    ROLE_COUNT
};

// The best Isa of this processor and system.
OWNWORDS_API int ownwords_best_isa(void);

// Whether this processor runs an Isa: 1, or 0.
OWNWORDS_API int ownwords_runs_isa(int isa);
// SHA-256 of the sources this library was compiled from, in hexadecimal digits.
OWNWORDS_API const char *ownwords_source_hash(void);

// Fill in CHECK_FIGURES numbers to compare with another library's: the first CHECK_PRODUCTS are of
// products, the others of attention.
enum CheckFigures { CHECK_PRODUCTS = 4568, CHECK_FIGURES = 12760 };
OWNWORDS_API int ownwords_check(float *figures);

// How fast this library multiplies on this processor, in GFLOP/s of one core, by Rate: float32 and
// bfloat16 in vectors, bfloat16 in AMX tiles, int16; 0 for what the instruction set lacks. The first call
// measures, for a few milliseconds.
enum Rate { RATE_FLOAT32, RATE_BFLOAT16, RATE_BFLOAT16_TILES, RATE_INT16, RATE_COUNT };
OWNWORDS_API void ownwords_measure_rates(double *rates);
// Whether it multiplies bfloat16 faster than float32, as measured: 1 or 0.
OWNWORDS_API int ownwords_has_fast_bf16(void);

// Run the training kernels on this many threads; before, they run on the caller's.
OWNWORDS_API int ownwords_set_threads(int64_t threads);

// Values of product_dtype: as `dtype`, and of int16, exact in int32, for products with weights; all
// others are then of float32.
enum ProductDtype { PRODUCTS_FLOAT32, PRODUCTS_BFLOAT16, PRODUCTS_INT16 };

// --- training: the loss --------------------------------------------------------------------------

// Add the weighted sum of the rows' cross entropies to `sum`. The logits of hidden states [rows,
// width] and `head` [vocabulary, width] are computed for chunk_rows rows at a time, as products of
// product_dtype. Gradients that are not needed are null. hidden_grad has `dtype`, and so has
// head_grad, but float32 if there are more rows than chunk_rows. width is a multiple of 32.
// STATUS_BAD_ID, with nothing changed, if a target is not in the vocabulary.
struct HeadLossArgs {
    int64_t dtype, product_dtype, rows, width, vocabulary, chunk_rows;
    const void *hidden, *head;
    const int64_t *targets;
    const float *weights;
    double *sum;
    void *hidden_grad, *head_grad;
    void *scratch;
    int64_t scratch_bytes;
};

// Fill in scratch_bytes.
OWNWORDS_API int ownwords_head_loss_size(struct HeadLossArgs *args);
OWNWORDS_API int ownwords_head_loss(const struct HeadLossArgs *args);

// --- training: optimizers ------------------------------------------------------------------------

// Make one step of AdamW. bf16_copy, which may be null, receives the weights rounded to bfloat16;
// `dtype` is the gradient's, which is multiplied by scale. correction1 is 1 - beta1^step.
OWNWORDS_API int ownwords_adamw(int dtype, float *weight, void *bf16_copy, const void *gradient,
                                float *mean, float *square, int64_t count, float scale,
                                float learning_rate, float beta1, float beta2, float eps,
                                float weight_decay, float correction1, float correction2);

// The optimizer's state of a matrix; bf16_copy may be null. Both sides are multiples of 32.
struct MuonMatrix {
    const void *gradient;
    float *momentum, *weight;
    void *bf16_copy;
    int64_t rows, columns;
    float learning_rate;
};

// Make one step of Muon for `count` matrices: momentum, Newton-Schulz iterations in product_dtype,
// and the weights, which are multiplied by decay_factor first. `dtype` is the gradients', which are
// multiplied by scale.
OWNWORDS_API int ownwords_muon(int dtype, int product_dtype, const struct MuonMatrix *matrices,
                               int64_t count, float scale, float momentum, float decay_factor,
                               int64_t newton_schulz_steps);

struct TensorPart {
    void *data;
    int64_t size;
};

// Sum the squares of all numbers in `count` parts.
OWNWORDS_API int ownwords_square_sum(int dtype, const struct TensorPart *parts, int64_t count,
                                     double *sum);

// --- training: a whole transformer block ---------------------------------------------------------

// resid_mid = x + dropout(norm(output(attention(rope(qkv(norm(x)))))))
// y         = resid_mid + dropout(norm(down(act(up(norm(resid_mid))))))
//
// x and y [batch, tokens, width]. Weights and gradients are indexed by Role. Weights that the model
// lacks are null, such as the norms of outputs, which only Gemma has. Gradients of frozen weights
// are null, and are not computed.

// The matrix products of a block, in product_dtype. `qkv` is query, key and value side by side, `up`
// is gate and up.
enum Product { PRODUCT_QKV, PRODUCT_OUTPUT, PRODUCT_UP, PRODUCT_DOWN, PRODUCT_COUNT };

// The adapters (LoRA) of one product, which add inputs down^T up^T to its outputs. down and
// down_grad [rank, inputs], up and up_grad [outputs, rank]. rank is a multiple of 32, 0 without an
// adapter.
struct Adapter {
    int64_t rank;
    const float *down, *up;
    float *down_grad, *up_grad;
};

struct BlockArgs {
    int64_t dtype, product_dtype, batch, tokens, width, query_heads, kv_heads, head_dim, hidden;
    int64_t layer_norm;                 // LayerNorm instead of RMSNorm
    int64_t gelu;                       // gelu instead of silu
    // Token t of a text has the angles of row t % rope_period, and sees the tokens from first_token
    // [batch or 1, tokens], null for 0, to itself. first_stride is the row stride of first_token.
    int64_t rope_period, first_stride;
    uint64_t dropout_seed;
    float dropout, norm_eps, norm_offset, head_eps, head_offset, scale;
    const void *weights[ROLE_COUNT];
    void *grads[ROLE_COUNT];
    struct Adapter adapters[PRODUCT_COUNT];
    const void *cos, *sin;  // [rope_period, head_dim], or null
    const int32_t *first_token;
    const void *x, *dy;
    void *y, *dx;
    void *saved;    // from the forward pass to the backward pass
    void *scratch;  // of one call
    int64_t saved_bytes, forward_scratch_bytes, backward_scratch_bytes;
};

// Fill in the sizes of `saved` and `scratch`.
OWNWORDS_API int ownwords_block_sizes(struct BlockArgs *args);
OWNWORDS_API int ownwords_block_forward(const struct BlockArgs *args);
OWNWORDS_API int ownwords_block_backward(const struct BlockArgs *args);

// --- inference -----------------------------------------------------------------------------------

struct ModelShape {
    int64_t vocabulary, context, width, layers, heads, kv_heads, head_dim, hidden;
    int64_t weight_type;  // WeightType of the matrices
    int64_t kv_bf16;      // cache keys and values as bfloat16 instead of float
    int64_t layer_norm;   // LayerNorm with biases instead of RMSNorm
    int64_t gelu;         // gelu (tanh) instead of silu
    int64_t rope_tables;
    double norm_eps;
    double norm_offset;  // added to the stored weights of the norms
    double attention_scale;
    double embedding_scale;
    double softcap;             // of the logits; 0: none
    const int64_t *windows;     // by layer: how many tokens it sees; 0: all
    const int64_t *rope_table;  // by layer: its row of `frequencies`; -1: no rotary positions
    const float *frequencies;   // [rope_tables, head_dim / 2]
};

// A tensor [rows, columns]; a row is the weights of one output, and a vector has one row. The caller
// guarantees the sizes of `data` and `scales`.
struct TensorSource {
    int64_t role, layer;
    int64_t type;  // SourceType
    const void *data;
    const float *scales;
    int64_t rows, columns;
    int64_t transposed;  // stored [columns, rows]
};

struct OwnwordsEngine;
struct OwnwordsCache;

// A cache keeps its engine alive, and serves one caller at a time.
OWNWORDS_API int ownwords_engine_new(const struct ModelShape *shape,
                                     const struct TensorSource *tensors, int64_t count,
                                     int64_t threads, struct OwnwordsEngine **engine);
OWNWORDS_API void ownwords_engine_free(struct OwnwordsEngine *engine);
OWNWORDS_API int ownwords_cache_new(const struct OwnwordsEngine *engine, int64_t rows,
                                    int64_t length, struct OwnwordsCache **cache);
OWNWORDS_API void ownwords_cache_free(struct OwnwordsCache *cache);

// Append counts[i] ids to row rows[i], for i < batch. Writes the logits after each row's last id,
// [batch, vocabulary], or with all_logits after every id.
OWNWORDS_API int ownwords_cache_forward(struct OwnwordsCache *cache, int64_t batch,
                                        const int64_t *rows, const int64_t *counts,
                                        const int64_t *ids, int all_logits, float *logits);
OWNWORDS_API int ownwords_cache_length(const struct OwnwordsCache *cache, int64_t row,
                                       int64_t *length);
OWNWORDS_API int ownwords_cache_truncate(struct OwnwordsCache *cache, int64_t row, int64_t length);
// Copy the first `length` tokens of row `source` to `row`.
OWNWORDS_API int ownwords_cache_copy(struct OwnwordsCache *cache, int64_t source, int64_t row,
                                     int64_t length);

// --- encoding texts ------------------------------------------------------------------------------

// BERT's tensors; every layer has those from ENCODER_QUERY on. Matrices are [outputs, inputs].
enum EncoderTensor {
    ENCODER_EMBEDDING,
    ENCODER_POSITIONS,
    ENCODER_TOKEN_TYPE,
    ENCODER_EMBEDDING_NORM,
    ENCODER_EMBEDDING_NORM_BIAS,
    ENCODER_QUERY,  // each matrix and norm is followed by its bias
    ENCODER_QUERY_BIAS,
    ENCODER_KEY,
    ENCODER_KEY_BIAS,
    ENCODER_VALUE,
    ENCODER_VALUE_BIAS,
    ENCODER_OUTPUT,
    ENCODER_OUTPUT_BIAS,
    ENCODER_ATTENTION_NORM,
    ENCODER_ATTENTION_NORM_BIAS,
    ENCODER_UP,
    ENCODER_UP_BIAS,
    ENCODER_DOWN,
    ENCODER_DOWN_BIAS,
    ENCODER_MLP_NORM,
    ENCODER_MLP_NORM_BIAS,
    ENCODER_TENSOR_COUNT
};

struct EncoderShape {
    int64_t vocabulary, context, width, layers, heads, hidden;
    int64_t gelu_tanh;   // the tanh approximation of gelu
    int64_t pool_first;  // the first token's vector instead of the mean of all
    double norm_eps;
};

struct OwnwordsEncoder;

// The layers' matrices are copied; all other tensors stay the caller's and must outlive the encoder.
// `count` is the number of tensors.
OWNWORDS_API int ownwords_encoder_new(const struct EncoderShape *shape, const float *const *tensors,
                                      int64_t count, struct OwnwordsEncoder **encoder);
OWNWORDS_API void ownwords_encoder_free(struct OwnwordsEncoder *encoder);
// Write unit vectors [count, width] of texts, whose ids follow one another. Runs on the caller's
// thread; several threads may call it at once.
OWNWORDS_API int ownwords_encoder_forward(const struct OwnwordsEncoder *encoder, int64_t count,
                                          const int64_t *lengths, const int32_t *ids,
                                          float *vectors);
// Write the hidden states [tokens, width] of texts after the first `layers`. Without `ids`, `states`
// holds what the first layer reads.
OWNWORDS_API int ownwords_encoder_states(const struct OwnwordsEncoder *encoder, int64_t count,
                                         const int64_t *lengths, const int32_t *ids, int64_t layers,
                                         float *states);
// scores [rows] = scales * (codes [rows, width] . query).
OWNWORDS_API int ownwords_dot_codes(const int8_t *codes, const float *scales, const float *query,
                                    int64_t rows, int64_t width, float *scores);

#ifdef __cplusplus
}
#endif
