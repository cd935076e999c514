// Packed matrices and their products against plain loops in double precision.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/head.h"
#include "engine/product.h"

extern "C" int ownwords_level();  // asks the system for tiles too

using namespace ownwords::engine;

namespace {

int failures = 0;

void expect(bool true_, const std::string &what) {
    if (true_) return;
    ++failures;
    std::printf("failed: %s\n", what.c_str());
}

std::mt19937 luck(1);

std::vector<float> normal(Long count) {
    std::normal_distribution<float> drawn;
    std::vector<float> made(static_cast<size_t>(count));
    for (float &x : made) x = drawn(luck);
    return made;
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
struct Truth {
    std::vector<float> numbers;
    std::vector<double> slack;  // what each may be off the original
};

Truth truth(Kind kind, const std::vector<float> &original, Long outputs, Long inputs) {
    Truth made{original, std::vector<double>(original.size(), 0.0)};
    if (kind == Kind::BF16)
        for (float &x : made.numbers) x = from_bf16(to_bf16(x));
    if (kind != Kind::INT8 && kind != Kind::INT4) return made;
    const Long group = kind == Kind::INT8 ? inputs : 32;
    const double half = kind == Kind::INT8 ? 128 : 8;
    for (Long o = 0; o < outputs; ++o)
        for (Long g = 0; g < inputs; g += group) {
            double high = 0, low = 0;
            for (Long i = g; i < std::min(g + group, inputs); ++i) {
                high = std::max(high, double(original[o * inputs + i]));
                low = std::max(low, -double(original[o * inputs + i]));
            }
            double step = std::min(std::max(low / (half + 0.5), high / (half - 0.5)),
                                   std::max(high / (half + 0.5), low / (half - 0.5)));
            if (kind == Kind::INT4) step *= 1 + 1.0 / 128;  // as bfloat16, upwards
            for (Long i = g; i < std::min(g + group, inputs); ++i)
                made.slack[o * inputs + i] = step * 0.5001 + 1e-30;
        }
    return made;
}

struct Packed {
    Memory memory;
    Matrix matrix;
    bool finite;
};

Packed packed(Kind kind, const std::vector<Source> &sources) {
    Packed made{};
    made.matrix.kind = kind;
    for (const Source &each : sources) made.matrix.outputs += each.rows;
    made.matrix.inputs = sources[0].inputs;
    made.memory = Memory(made.matrix.bytes());
    made.matrix.lines = made.memory.start();
    // In two parts, as two threads would.
    const Long middle = made.matrix.panels() / 2, all = made.matrix.panels();
    const Long count = Long(sources.size());
    made.finite = pack(made.matrix, sources.data(), count, 0, middle) &
                  pack(made.matrix, sources.data(), count, middle, all);
    return made;
}

Source source(Stored type, const void *data, Long rows, Long inputs) {
    Source made;
    made.type = type;
    made.data = data;
    made.rows = rows;
    made.inputs = inputs;
    return made;
}

std::string named(Kind kind, Long outputs, Long inputs) {
    const char *names[] = {"f32", "bf16", "int8", "int4"};
    return std::string(names[int(kind)]) + " " + std::to_string(outputs) + "x" +
           std::to_string(inputs);
}

// Whether row() gives numbers that the kind may hold; and those numbers.
std::vector<float> rows_of(const Matrix &m, const Truth &expected) {
    std::vector<float> held(size_t(m.outputs * m.inputs));
    bool right = true;
    for (Long o = 0; o < m.outputs; ++o) row(m, o, held.data() + o * m.inputs);
    for (size_t i = 0; i < held.size(); ++i)
        right &= std::fabs(double(held[i]) - expected.numbers[i]) <= expected.slack[i];
    expect(right, "rows of " + named(m.kind, m.outputs, m.inputs));
    return held;
}

// How far a product may be from that of exact numbers, by how activations are rounded.
double bound(Kind kind, const float *in, const float *weights, Long inputs) {
    double all = 0, most = 0, size = 0;
    for (Long k = 0; k < inputs; ++k) {
        if (k % 32 == 0) {
            most = 0;
            for (Long j = k; j < std::min(k + 32, inputs); ++j)
                most = std::max(most, std::fabs(double(in[j])));
        }
        all += std::fabs(double(in[k]) * weights[k]);
        size += std::fabs(weights[k]) * most / 127 * 0.5001;
    }
    const double sums = all * 1e-5 + 1e-6;
    return kind == Kind::F32 ? sums : kind == Kind::BF16 ? sums + all / 256 : sums + size;
}

void products(Kind kind, Long outputs, Long inputs, const std::vector<Long> &counts) {
    const std::vector<float> original = normal(outputs * inputs);
    const Packed it = packed(kind, {source(Stored::F32, original.data(), outputs, inputs)});
    const Matrix &m = it.matrix;
    const std::string name = named(kind, outputs, inputs);
    expect(it.finite, "finite " + name);
    const std::vector<float> held = rows_of(m, truth(kind, original, outputs, inputs));
    const Long most = counts.back(), stride = inputs + 3, wide = outputs + 5;
    std::vector<float> in = normal(most * stride), bias = normal(outputs);
    for (Long n = 0; n < most; n += 3) in[size_t(n * stride + n % inputs)] *= 100;  // outliers
    Input input(most, inputs);
    std::vector<float> first;  // with all rows at once
    for (size_t c = counts.size(); c-- > 0;) {
        const Long rows = counts[c];
        std::vector<float> out(size_t(most * wide), -7.0f);
        ready(m, in.data(), rows, stride, input, 0, rows / 2);
        ready(m, in.data(), rows, stride, input, rows / 2, rows);
        const Long cut = m.panels() / 3;
        multiply(m, input, rows, bias.data(), out.data(), wide, cut, m.panels());
        multiply(m, input, rows, bias.data(), out.data(), wide, 0, cut);
        if (first.empty()) first = out;
        bool near = true, same = true, kept = true;
        for (Long n = 0; n < most; ++n)
            for (Long o = 0; o < wide; ++o) {
                const float got = out[size_t(n * wide + o)];
                if (n >= rows || o >= outputs) {
                    kept &= got == -7.0f;
                    continue;
                }
                same &= got == first[size_t(n * wide + o)];
                const float *a = in.data() + n * stride, *b = held.data() + o * inputs;
                double sum = bias[size_t(o)];
                for (Long k = 0; k < inputs; ++k) sum += double(a[k]) * b[k];
                near &= std::fabs(got - sum) <= bound(kind, a, b, inputs);
            }
        const std::string with = name + ", rows " + std::to_string(rows);
        expect(near, "near the exact product: " + with);
        expect(same, "the same whatever the number of rows: " + with);
        expect(kept, "nothing written beyond: " + with);
    }
}

void no_bias(Kind kind) {
    const std::vector<float> original = normal(24 * 40), in = normal(40), none(24, 0.0f);
    const Packed it = packed(kind, {source(Stored::F32, original.data(), 24, 40)});
    Input input(1, 40);
    ready(it.matrix, in.data(), 1, 40, input, 0, 1);
    std::vector<float> with(24), without(24);
    multiply(it.matrix, input, 1, none.data(), with.data(), 24, 0, 2);
    multiply(it.matrix, input, 1, nullptr, without.data(), 24, 0, 2);
    expect(with == without, "without a bias: " + named(kind, 24, 40));
}

// Numbers that are none, or infinite, spoil their own row and no other.
void not_finite(Kind kind) {
    const Long outputs = 20, inputs = 100;
    const std::vector<float> original = normal(outputs * inputs);
    const Packed it = packed(kind, {source(Stored::F32, original.data(), outputs, inputs)});
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
        for (const Long rows : {2, 20}) {
            std::vector<float> in = normal(rows * inputs), out(size_t(rows * outputs));
            in[40] = bad;
            Input input(rows, inputs);
            ready(it.matrix, in.data(), rows, inputs, input, 0, rows);
            multiply(it.matrix, input, rows, nullptr, out.data(), outputs, 0, it.matrix.panels());
            bool right = true;
            for (Long i = 0; i < rows * outputs; ++i)
                right &= std::isfinite(out[size_t(i)]) == (i >= outputs);
            expect(right, "what is not finite, " + named(kind, rows, inputs));
        }
}

// The same matrix from other types, from parts, and lying on its side.
void sources(Kind kind) {
    const Long outputs = 41, inputs = 70;
    std::vector<float> plain(size_t(outputs * inputs)), turned(plain.size());
    std::vector<uint16_t> bf16(plain.size()), f16(plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
        // Numbers that every type holds: 1.f * 2^e, f of 7 bits.
        const int f = int(luck() % 128), e = int(luck() % 8) - 4, s = int(luck() % 2);
        plain[i] = std::ldexp(float(128 + f) / 128, e) * (s ? -1.0f : 1.0f);
        bf16[i] = to_bf16(plain[i]);
        f16[i] = uint16_t(s << 15 | (e + 15) << 10 | f << 3);
        turned[i % inputs * outputs + i / inputs] = plain[i];
    }
    const Packed one = packed(kind, {source(Stored::F32, plain.data(), outputs, inputs)});
    Source side = source(Stored::F32, turned.data(), outputs, inputs);
    side.transposed = true;
    const std::vector<std::vector<Source>> others = {
        {source(Stored::BF16, bf16.data(), outputs, inputs)},
        {source(Stored::F16, f16.data(), outputs, inputs)},
        {side},
        {source(Stored::F32, plain.data(), 7, inputs),
         source(Stored::BF16, bf16.data() + 7 * inputs, 20, inputs),
         source(Stored::F32, plain.data() + 27 * inputs, 14, inputs)}};
    for (size_t i = 0; i < others.size(); ++i) {
        const Packed other = packed(kind, others[i]);
        expect(std::memcmp(one.matrix.lines, other.matrix.lines, one.matrix.bytes()) == 0,
               "source " + std::to_string(i) + " of " + named(kind, outputs, inputs));
    }
    plain[size_t(3 * inputs + 5)] = NAN;
    expect(!packed(kind, {source(Stored::F32, plain.data(), outputs, inputs)}).finite,
           "what is not a number is found");
}

void stored_codes() {
    const Long outputs = 19, inputs = 77;
    std::vector<int8_t> bytes(size_t(outputs * inputs));
    for (int8_t &each : bytes) each = int8_t(luck());
    std::vector<float> scales = normal(outputs), got(static_cast<size_t>(inputs));
    Source from = source(Stored::CODES8, bytes.data(), outputs, inputs);
    from.scales = scales.data();
    const Packed eight = packed(Kind::INT8, {from}), floats = packed(Kind::F32, {from});
    bool right = true;
    for (Long o = 0; o < outputs; ++o)
        for (const Matrix *m : {&eight.matrix, &floats.matrix}) {
            row(*m, o, got.data());
            for (Long i = 0; i < inputs; ++i)
                right &= got[size_t(i)] == float(bytes[size_t(o * inputs + i)]) * scales[size_t(o)];
        }
    expect(right, "stored codes of 8 bits");
    for (const Long group : {32, 64, 128}) {
        const Long groups = (inputs + group - 1) / group, packed_ = (inputs + 1) / 2;
        std::vector<uint8_t> halves(size_t(outputs * packed_));
        for (uint8_t &each : halves) each = uint8_t(luck());
        std::vector<uint16_t> steps;
        for (const float x : normal(outputs * groups)) steps.push_back(to_bf16(x));
        from = source(Stored::CODES4, halves.data(), outputs, inputs);
        from.scales = steps.data();
        from.group = group;
        const Packed four = packed(Kind::INT4, {from}), wide = packed(Kind::F32, {from});
        right = true;
        for (Long o = 0; o < outputs; ++o)
            for (const Matrix *m : {&four.matrix, &wide.matrix}) {
                row(*m, o, got.data());
                for (Long i = 0; i < inputs; ++i) {
                    const int both = halves[size_t(o * packed_ + i / 2)];
                    const float step = from_bf16(steps[size_t(o * groups + i / group)]);
                    right &= got[size_t(i)] ==
                             float((i % 2 ? both >> 4 : both & 15) - 8) * step;
                }
            }
        expect(right, "stored codes of 4 bits in groups of " + std::to_string(group));
    }
}

// A head in two planes against the same matrix in one.
void planes(Long outputs, Long inputs) {
    const std::string name = "planes " + std::to_string(outputs) + "x" + std::to_string(inputs);
    const std::vector<float> original = normal(outputs * inputs);
    const std::vector<Source> given = {source(Stored::F32, original.data(), outputs, inputs)};
    const Packed it = packed(Kind::INT8, given);
    Planes head{outputs, inputs, nullptr};
    const Memory memory(head.bytes()), room(head.room());
    head.lines = memory.start();
    const Long all = it.matrix.panels(), middle = all / 2;
    expect(head.pack(given.data(), 1, 0, middle) && head.pack(given.data(), 1, middle, all),
           "packed " + name);
    bool right = true;
    std::vector<float> one(static_cast<size_t>(inputs)), other(one);
    for (Long o = 0; o < outputs; ++o) {
        row(it.matrix, o, one.data());
        head.row(o, other.data(), room.start());
        right &= one == other;
    }
    expect(right, "rows of " + name);
    for (const Long rows : {1, 2, 3, 4, 7, 20}) {
        const std::vector<float> in = normal(rows * inputs);
        Input input(rows, inputs);
        ready(it.matrix, in.data(), rows, inputs, input, 0, rows);
        std::vector<float> made(static_cast<size_t>(rows * outputs)), expected(made);
        multiply(it.matrix, input, rows, nullptr, expected.data(), outputs, 0, all);
        head.multiply(input, rows, made.data(), outputs, 0, middle, room.start());
        head.multiply(input, rows, made.data(), outputs, middle, all, room.start());
        expect(made == expected, "products of " + name);
        if (rows > 1) continue;
        Input rough(1, inputs);
        ready(head.rough(), in.data(), 1, inputs, rough, 0, 1);
        head.guess(rough, in.data(), 0, all, made.data());
        bool above = true;
        for (Long o = 0; o < outputs; ++o) above &= made[size_t(o)] >= expected[size_t(o)];
        expect(above, "no score beyond its bound, " + name);
    }
}

}  // namespace

int main() {
    ownwords_level();
    for (const Kind kind : {Kind::F32, Kind::BF16, Kind::INT8, Kind::INT4}) {
        for (const Long inputs : {1, 31, 64, 100, 352})
            for (const Long outputs : {1, 16, 37, 144})
                products(kind, outputs, inputs, {1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 50});
        products(kind, 80, 4160, {1, 9, 40});
        no_bias(kind);
        sources(kind);
        not_finite(kind);
    }
    stored_codes();
    for (const Long inputs : {1, 33, 64, 100, 352})
        for (const Long outputs : {1, 16, 37, 150}) planes(outputs, inputs);
    if (failures == 0) std::printf("products: all as they should be\n");
    return failures != 0;
}
