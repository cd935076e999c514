// Rows of a file, written into panels; and a row read back.
#include "engine/matrix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/rounding.h"

namespace ownwords::engine {
namespace {

constexpr long WIDE = 64;                // inputs that a block of int4 holds
constexpr long BLOCK = 9 * LINE;         // its bytes
constexpr long BLOCK_SCALES = 8 * LINE;  // where in it the scales are

// Where a panel's weights of one output and one input are.
long place(Kind kind, long output, long input) {
    const long per_line = kind == Kind::F32 ? 1 : kind == Kind::BF16 ? 2 : 4;
    const long bytes = 4 / per_line;
    return input / per_line * LINE + output * 4 + input % per_line * bytes;
}

// Of int4, the byte; the half of it is the high one for the inputs of 16 and more.
long place4(long output, long input) {
    const long line = input % WIDE / GROUP * 4 + input % 16 / 4;
    return input / WIDE * BLOCK + line * LINE + output * 4 + input % 4;
}

long scale4(long output, long input) {
    return input / WIDE * BLOCK + BLOCK_SCALES + output * 4 + input % WIDE / GROUP * 2;
}

float at(Stored type, const void *data, long i) {
    if (type == Stored::F32) return static_cast<const float *>(data)[i];
    if (type == Stored::BF16) return wide(static_cast<const Bf16 *>(data)[i]);
    return wide_half(static_cast<const uint16_t *>(data)[i]);
}

int code4(const Source &from, long row, long input) {
    const auto *bytes = static_cast<const uint8_t *>(from.data);
    const int both = bytes[row * ((from.inputs + 1) / 2) + input / 2];
    return (input % 2 ? both >> 4 : both & 15) - 8;
}

Bf16 group_scale(const Source &from, long row, long input) {
    const long groups = (from.inputs + from.group - 1) / from.group;
    return static_cast<const Bf16 *>(from.scales)[row * groups + input / from.group];
}

// Row after row as floats.
void read(const Source &from, long first, long count, float *into, long stride) {
    if (from.type == Stored::CODES8) {
        const auto *codes = static_cast<const int8_t *>(from.data) + first * from.inputs;
        for (long r = 0; r < count; ++r) {
            const float scale = static_cast<const float *>(from.scales)[first + r];
            for (long i = 0; i < from.inputs; ++i)
                into[r * stride + i] = float(codes[r * from.inputs + i]) * scale;
        }
    } else if (from.type == Stored::CODES4) {
        for (long r = 0; r < count; ++r)
            for (long i = 0; i < from.inputs; ++i)
                into[r * stride + i] = float(code4(from, first + r, i)) *
                                       wide(group_scale(from, first + r, i));
    } else if (from.transposed) {
        for (long i = 0; i < from.inputs; ++i)
            for (long r = 0; r < count; ++r)
                into[r * stride + i] = at(from.type, from.data, i * from.rows + first + r);
    } else {
        for (long r = 0; r < count; ++r)
            for (long i = 0; i < from.inputs; ++i)
                into[r * stride + i] = at(from.type, from.data, (first + r) * from.inputs + i);
    }
}

bool finite(const float *numbers, long count) {
    bool all = true;
    for (long i = 0; i < count; ++i) all &= std::isfinite(numbers[i]);
    return all;
}

void write(const Matrix &m, const float *numbers, long output, unsigned char *panel) {
    const long inputs = m.inputs;
    if (m.kind == Kind::F32) {
        for (long i = 0; i < inputs; ++i)
            std::memcpy(panel + place(m.kind, output, i), numbers + i, sizeof(float));
    } else if (m.kind == Kind::BF16) {
        for (long i = 0; i < inputs; ++i)
            put(*reinterpret_cast<Bf16 *>(panel + place(m.kind, output, i)), numbers[i]);
    } else if (m.kind == Kind::INT8) {
        const float scale = scale_of<8>(numbers, inputs);
        std::memcpy(panel + m.depth() * PANEL + output * 4, &scale, sizeof scale);
        for (long i = 0; i < inputs; ++i)
            panel[place(m.kind, output, i)] = uint8_t(code_of<8>(numbers[i], scale) + 128);
    } else {
        for (long i = 0; i < inputs; i += GROUP) {
            const float scale = scale_of<4>(numbers + i, std::min(GROUP, inputs - i));
            put(*reinterpret_cast<Bf16 *>(panel + scale4(output, i)), scale);
            for (long k = i; k < std::min(i + GROUP, inputs); ++k)
                panel[place4(output, k)] |=
                    uint8_t((code_of<4>(numbers[k], scale) + 8) << (k % GROUP < 16 ? 0 : 4));
        }
    }
}

// Codes as they are; whether the scales are finite.
bool copy(const Matrix &m, const Source &from, long row, long output, unsigned char *panel) {
    if (m.kind == Kind::INT8) {
        const float scale = static_cast<const float *>(from.scales)[row];
        std::memcpy(panel + m.depth() * PANEL + output * 4, &scale, sizeof scale);
        const auto *codes = static_cast<const int8_t *>(from.data) + row * m.inputs;
        for (long i = 0; i < m.inputs; ++i)
            panel[place(m.kind, output, i)] = uint8_t(codes[i] + 128);
        return std::isfinite(scale);
    }
    bool all = true;
    for (long i = 0; i < m.inputs; ++i) {
        if (i % GROUP == 0) {
            const Bf16 scale = group_scale(from, row, i);
            all &= std::isfinite(wide(scale));
            std::memcpy(panel + scale4(output, i), &scale, sizeof scale);
        }
        panel[place4(output, i)] |=
            uint8_t((code4(from, row, i) + 8) << (i % GROUP < 16 ? 0 : 4));
    }
    return all;
}

}  // namespace

size_t Matrix::panel_bytes() const {
    const size_t deep = size_t(depth());
    switch (kind) {
        case Kind::F32: return deep * LINE;
        case Kind::BF16: return deep / 2 * LINE;
        case Kind::INT8: return deep / 4 * LINE + LINE;
        default: return deep / WIDE * BLOCK;
    }
}

bool pack(const Matrix &m, const Source *sources, long count, long first, long last) {
    const Stored own = m.kind == Kind::INT8 ? Stored::CODES8 : Stored::CODES4;
    const bool coded = m.kind == Kind::INT8 || m.kind == Kind::INT4;
    std::vector<float> rows(size_t(PANEL * m.inputs));
    bool all = true;
    for (long p = first; p < last; ++p) {
        unsigned char *panel = m.lines + size_t(p) * m.panel_bytes();
        std::memset(panel, 0, m.panel_bytes());
        long begin = 0;  // the output that a source begins with
        for (long s = 0; s < count; begin += sources[s++].rows) {
            const Source &from = sources[s];
            const long low = std::max(p * PANEL, begin);
            const long high = std::min((p + 1) * PANEL, begin + from.rows);
            if (low >= high) continue;
            if (coded && from.type == own && (own == Stored::CODES8 || from.group % GROUP == 0)) {
                for (long o = low; o < high; ++o)
                    all &= copy(m, from, o - begin, o % PANEL, panel);
                continue;
            }
            read(from, low - begin, high - low, rows.data(), m.inputs);
            if (!finite(rows.data(), (high - low) * m.inputs)) return false;
            for (long o = low; o < high; ++o)
                write(m, rows.data() + (o - low) * m.inputs, o % PANEL, panel);
        }
    }
    return all;
}

void row(const Matrix &m, long output, float *into) {
    const unsigned char *panel = m.lines + size_t(output / PANEL) * m.panel_bytes();
    const long o = output % PANEL;
    if (m.kind == Kind::F32) {
        for (long i = 0; i < m.inputs; ++i)
            std::memcpy(into + i, panel + place(m.kind, o, i), sizeof(float));
    } else if (m.kind == Kind::BF16) {
        for (long i = 0; i < m.inputs; ++i)
            into[i] = wide(*reinterpret_cast<const Bf16 *>(panel + place(m.kind, o, i)));
    } else if (m.kind == Kind::INT8) {
        float scale;
        std::memcpy(&scale, panel + m.depth() * PANEL + o * 4, sizeof scale);
        for (long i = 0; i < m.inputs; ++i)
            into[i] = float(int(panel[place(m.kind, o, i)]) - 128) * scale;
    } else {
        for (long i = 0; i < m.inputs; ++i) {
            const int both = panel[place4(o, i)];
            const int code = (i % GROUP < 16 ? both & 15 : both >> 4) - 8;
            into[i] = float(code) * wide(*reinterpret_cast<const Bf16 *>(panel + scale4(o, i)));
        }
    }
}

}  // namespace ownwords::engine
