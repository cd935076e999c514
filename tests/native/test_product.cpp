// Packed matrices and their products against plain loops in double precision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "api.h"
#include "engine/matmul.h"

using namespace ownwords::engine;

namespace {

int failures = 0;

void expect(bool condition, const std::string &what) {
    if (condition) return;
    ++failures;
    std::printf("failed: %s\n", what.c_str());
}

std::mt19937 rng(1);

std::vector<float> normal(i64 count) {
    std::normal_distribution<float> distribution;
    std::vector<float> result(static_cast<size_t>(count));
    for (float &x : result) x = distribution(rng);
    return result;
}

uint16_t to_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float from_bf16(uint16_t half) {
    const uint32_t bits = uint32_t(half) << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

// The nearest numbers that a kind can hold: for codes, within half a step of scales found anew here.
struct ExpectedWeights {
    std::vector<float> numbers;
    std::vector<double> slack;  // what each may be off the original
};

ExpectedWeights expected_weights(WeightType type, const std::vector<float> &original, i64 outputs,
                                 i64 inputs) {
    ExpectedWeights result{original, std::vector<double>(original.size(), 0.0)};
    if (type == WeightType::BF16)
        for (float &x : result.numbers) x = from_bf16(to_bf16(x));
    if (type != WeightType::INT8) return result;
    for (i64 o = 0; o < outputs; ++o) {
        double high = 0, low = 0;
        for (i64 i = o * inputs; i < (o + 1) * inputs; ++i) {
            high = std::max(high, double(original[size_t(i)]));
            low = std::max(low, -double(original[size_t(i)]));
        }
        const double step =
            std::min(std::max(low / 128.5, high / 127.5), std::max(high / 128.5, low / 127.5));
        std::fill_n(result.slack.begin() + o * inputs, inputs, step * 0.5001 + 1e-30);
    }
    return result;
}

struct PackedMatrix {
    PageBuffer memory;
    Matrix matrix;
    bool finite;
};

PackedMatrix pack_matrix(WeightType type, const std::vector<WeightSource> &test_sources) {
    PackedMatrix result{};
    result.matrix.type = type;
    for (const WeightSource &each : test_sources) result.matrix.outputs += each.rows;
    result.matrix.inputs = test_sources[0].inputs;
    result.memory = PageBuffer(result.matrix.bytes());
    result.matrix.lines = result.memory.start();
    // In two parts, as two threads would.
    const i64 middle = result.matrix.panels() / 2, all = result.matrix.panels();
    const i64 count = i64(test_sources.size());
    result.finite = pack(result.matrix, test_sources.data(), count, 0, middle) &
                    pack(result.matrix, test_sources.data(), count, middle, all);
    return result;
}

WeightSource source(SourceType type, const void *data, i64 rows, i64 inputs) {
    WeightSource result;
    result.type = type;
    result.data = data;
    result.rows = rows;
    result.inputs = inputs;
    return result;
}

std::string label(WeightType type, i64 outputs, i64 inputs) {
    const char *names[] = {"f32", "bf16", "int8"};
    return std::string(names[int(type)]) + " " + std::to_string(outputs) + "x" +
           std::to_string(inputs);
}

// Whether row() gives numbers that the kind may hold; and those numbers.
std::vector<float> rows_of(const Matrix &m, const ExpectedWeights &expected) {
    std::vector<float> stored(size_t(m.outputs * m.inputs));
    bool right = true;
    for (i64 o = 0; o < m.outputs; ++o) read_row(m, o, stored.data() + o * m.inputs);
    for (size_t i = 0; i < stored.size(); ++i)
        right &= std::fabs(double(stored[i]) - expected.numbers[i]) <= expected.slack[i];
    expect(right, "rows of " + label(m.type, m.outputs, m.inputs));
    return stored;
}

// How far a product may be from that of exact numbers, by how activations are rounded.
double bound(WeightType type, const float *in, const float *weights, i64 inputs) {
    double all = 0, max_rows = 0, size = 0;
    for (i64 k = 0; k < inputs; ++k) {
        if (k % 32 == 0) {
            max_rows = 0;
            for (i64 j = k; j < std::min(k + 32, inputs); ++j)
                max_rows = std::max(max_rows, std::fabs(double(in[j])));
        }
        all += std::fabs(double(in[k]) * weights[k]);
        size += std::fabs(weights[k]) * max_rows / 127 * 0.5001;
    }
    const double sums = all * 1e-5 + 1e-6;
    return type == WeightType::F32    ? sums
           : type == WeightType::BF16 ? sums + all / 256
                                      : sums + size;
}

void test_products(WeightType type, i64 outputs, i64 inputs, const std::vector<i64> &counts) {
    const std::vector<float> original = normal(outputs * inputs);
    const PackedMatrix matrix_and_data =
        pack_matrix(type, {source(SourceType::F32, original.data(), outputs, inputs)});
    const Matrix &m = matrix_and_data.matrix;
    const std::string name = label(type, outputs, inputs);
    expect(matrix_and_data.finite, "finite " + name);
    const std::vector<float> stored = rows_of(m, expected_weights(type, original, outputs, inputs));
    const i64 max_rows = counts.back(), stride = inputs + 3, out_stride = outputs + 5;
    std::vector<float> in = normal(max_rows * stride), bias = normal(outputs);
    for (i64 n = 0; n < max_rows; n += 3) in[size_t(n * stride + n % inputs)] *= 100;  // outliers
    MatmulInput input(max_rows, inputs);
    std::vector<float> first;  // with all rows at once
    for (size_t c = counts.size(); c-- > 0;) {
        const i64 rows = counts[c];
        std::vector<float> out(size_t(max_rows * out_stride), -7.0f);
        prepare_input(m, in.data(), rows, stride, input, 0, rows / 2);
        prepare_input(m, in.data(), rows, stride, input, rows / 2, rows);
        const i64 middle = m.panels() / 3;
        matmul(m, input, rows, bias.data(), out.data(), out_stride, middle, m.panels());
        matmul(m, input, rows, bias.data(), out.data(), out_stride, 0, middle);
        if (first.empty()) first = out;
        bool is_close = true, is_same = true, is_kept = true;
        for (i64 n = 0; n < max_rows; ++n)
            for (i64 o = 0; o < out_stride; ++o) {
                const float got = out[size_t(n * out_stride + o)];
                if (n >= rows || o >= outputs) {
                    is_kept &= got == -7.0f;
                    continue;
                }
                is_same &= got == first[size_t(n * out_stride + o)];
                const float *a = in.data() + n * stride, *b = stored.data() + o * inputs;
                double sum = bias[size_t(o)];
                for (i64 k = 0; k < inputs; ++k) sum += double(a[k]) * b[k];
                is_close &= std::fabs(got - sum) <= bound(type, a, b, inputs);
            }
        const std::string with = name + ", rows " + std::to_string(rows);
        expect(is_close, "near the exact product: " + with);
        expect(is_same, "the same whatever the number of rows: " + with);
        expect(is_kept, "nothing written beyond: " + with);
    }
}

void test_without_bias(WeightType type) {
    const std::vector<float> original = normal(24 * 40), in = normal(40), none(24, 0.0f);
    const PackedMatrix matrix_and_data =
        pack_matrix(type, {source(SourceType::F32, original.data(), 24, 40)});
    MatmulInput input(1, 40);
    prepare_input(matrix_and_data.matrix, in.data(), 1, 40, input, 0, 1);
    std::vector<float> with(24), without(24);
    matmul(matrix_and_data.matrix, input, 1, none.data(), with.data(), 24, 0, 2);
    matmul(matrix_and_data.matrix, input, 1, nullptr, without.data(), 24, 0, 2);
    expect(with == without, "without a bias: " + label(type, 24, 40));
}

// Numbers that are none, or infinite, spoil their own row and no other.
void test_not_finite(WeightType type) {
    const i64 outputs = 20, inputs = 100;
    const std::vector<float> original = normal(outputs * inputs);
    const PackedMatrix matrix_and_data =
        pack_matrix(type, {source(SourceType::F32, original.data(), outputs, inputs)});
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
        for (const i64 rows : {2, 20}) {
            std::vector<float> in = normal(rows * inputs), out(size_t(rows * outputs));
            in[40] = bad;
            MatmulInput input(rows, inputs);
            prepare_input(matrix_and_data.matrix, in.data(), rows, inputs, input, 0, rows);
            matmul(matrix_and_data.matrix, input, rows, nullptr, out.data(), outputs, 0,
                   matrix_and_data.matrix.panels());
            bool right = true;
            for (i64 i = 0; i < rows * outputs; ++i)
                right &= std::isfinite(out[size_t(i)]) == (i >= outputs);
            expect(right, "what is not finite, " + label(type, rows, inputs));
        }
}

// The same matrix from other types, from parts, and lying on its side.
void test_sources(WeightType type) {
    const i64 outputs = 41, inputs = 70;
    std::vector<float> values(size_t(outputs * inputs)), turned(values.size());
    std::vector<uint16_t> bf16(values.size()), f16(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
        // Numbers that every type holds: 1.f * 2^e, f of 7 bits.
        const int f = int(rng() % 128), e = int(rng() % 8) - 4, s = int(rng() % 2);
        values[i] = std::ldexp(float(128 + f) / 128, e) * (s ? -1.0f : 1.0f);
        bf16[i] = to_bf16(values[i]);
        f16[i] = uint16_t(s << 15 | (e + 15) << 10 | f << 3);
        turned[i % inputs * outputs + i / inputs] = values[i];
    }
    const PackedMatrix first =
        pack_matrix(type, {source(SourceType::F32, values.data(), outputs, inputs)});
    WeightSource side = source(SourceType::F32, turned.data(), outputs, inputs);
    side.transposed = true;
    const std::vector<std::vector<WeightSource>> others = {
        {source(SourceType::BF16, bf16.data(), outputs, inputs)},
        {source(SourceType::F16, f16.data(), outputs, inputs)},
        {side},
        {source(SourceType::F32, values.data(), 7, inputs),
         source(SourceType::BF16, bf16.data() + 7 * inputs, 20, inputs),
         source(SourceType::F32, values.data() + 27 * inputs, 14, inputs)}};
    for (size_t i = 0; i < others.size(); ++i) {
        const PackedMatrix other = pack_matrix(type, others[i]);
        expect(std::memcmp(first.matrix.lines, other.matrix.lines, first.matrix.bytes()) == 0,
               "source " + std::to_string(i) + " of " + label(type, outputs, inputs));
    }
    values[size_t(3 * inputs + 5)] = NAN;
    expect(!pack_matrix(type, {source(SourceType::F32, values.data(), outputs, inputs)}).finite,
           "what is not a number is found");
}

void test_stored_codes() {
    const i64 outputs = 19, inputs = 77;
    std::vector<int8_t> bytes(size_t(outputs * inputs));
    for (int8_t &each : bytes) each = int8_t(rng());
    std::vector<float> scales = normal(outputs), got(static_cast<size_t>(inputs));
    WeightSource from = source(SourceType::CODES, bytes.data(), outputs, inputs);
    from.scales = scales.data();
    const PackedMatrix eight = pack_matrix(WeightType::INT8, {from});
    bool right = true;
    for (i64 o = 0; o < outputs; ++o) {
        read_row(eight.matrix, o, got.data());
        for (i64 i = 0; i < inputs; ++i)
            right &= got[size_t(i)] == float(bytes[size_t(o * inputs + i)]) * scales[size_t(o)];
    }
    expect(right, "stored codes");
}

}  // namespace

int main() {
    ownwords_best_isa();
    for (const WeightType type : {WeightType::F32, WeightType::BF16, WeightType::INT8}) {
        for (const i64 inputs : {1, 31, 64, 100, 352})
            for (const i64 outputs : {1, 16, 37, 144})
                test_products(type, outputs, inputs, {1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 50});
        test_products(type, 80, 4160, {1, 9, 40});
        test_without_bias(type);
        test_sources(type);
        test_not_finite(type);
    }
    test_stored_codes();
    if (failures == 0) std::printf("products: all as they should be\n");
    return failures != 0;
}
