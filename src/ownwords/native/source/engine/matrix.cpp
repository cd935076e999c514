// Rows of a file, written into panels; and a row read back.
#include "engine/matrix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/rounding.h"

namespace ownwords::engine {
namespace {

constexpr Long WIDE = 64;                  // inputs that a block of int4 holds
constexpr Long BLOCK = 9 * LINE;           // its bytes
constexpr Long BLOCK_SCALES = 8 * LINE;    // where in it the scales are
constexpr Long WORD = 4;                   // bytes of an output in a line
constexpr Long HALF = GROUP / 2;

// Where a panel's weights of one output and one input are.
Long place(Kind kind, Long output, Long input) {
    const Long per_line = kind == Kind::F32 ? 1 : kind == Kind::BF16 ? 2 : 4;
    const Long bytes = WORD / per_line;
    return input / per_line * LINE + output * WORD + input % per_line * bytes;
}

// Of int4, the byte; the half of it is the high one for the inputs of 16 and more.
Long place4(Long output, Long input) {
    const Long line = input % WIDE / GROUP * 4 + input % HALF / 4;
    return input / WIDE * BLOCK + line * LINE + output * WORD + input % 4;
}

Long scale4(Long output, Long input) {
    return input / WIDE * BLOCK + BLOCK_SCALES + output * WORD + input % WIDE / GROUP * 2;
}

// What one output has of a panel's lines, one after another: its bytes, which are the same for
// every output, so that a panel is sixteen of these turned on their side.
class Strand {
  public:
    Strand(unsigned char *bytes, const Matrix &matrix) : bytes_(bytes), m_(matrix) {}

    // Numbers, followed by zeros as far as `depth`, rounded to the matrix's kind.
    void write(const float *numbers) const {
        if (m_.kind == Kind::F32) {
            std::memcpy(bytes_, numbers, size_t(m_.inputs) * sizeof(float));
        } else if (m_.kind == Kind::BF16) {
            auto *to = reinterpret_cast<Bf16 *>(bytes_);
            for (Long i = 0; i < m_.inputs; ++i) put(to[i], numbers[i]);
        } else if (m_.kind == Kind::INT8) {
            const Rounding<8> rounding(numbers, m_.depth());
            for (Long i = 0; i < m_.depth(); i += LANES)
                narrow(rounding.codes(load(numbers + i)), bytes_ + i);
            std::memset(bytes_ + m_.inputs, 0, size_t(m_.depth() - m_.inputs));
            std::memcpy(bytes_ + m_.depth(), &rounding.scale, sizeof rounding.scale);
        } else {
            for (Long i = 0; i < m_.inputs; i += GROUP) {
                const Rounding<4> rounding(numbers + i, GROUP);
                for (Long k = i; k < i + HALF; k += LANES)
                    narrow(rounding.codes(load(numbers + k)) |
                               rounding.codes(load(numbers + k + HALF)) << 4,
                           group(i) + (k - i));
                put(*scale(i), rounding.scale);
                end(i);
            }
        }
    }

    // Codes of the matrix's kind as they are; whether the scales are finite.
    bool copy(const Source &from, Long row) const {
        if (m_.kind == Kind::INT8) {
            const float scale = static_cast<const float *>(from.scales)[row];
            const auto *codes = static_cast<const uint8_t *>(from.data) + row * m_.inputs;
            for (Long i = 0; i < m_.inputs; ++i) bytes_[i] = codes[i] ^ 128;
            std::memcpy(bytes_ + m_.depth(), &scale, sizeof scale);
            return std::isfinite(scale);
        }
        const Long in_row = (m_.inputs + 1) / 2, per_scale = from.group;
        const auto *codes = static_cast<const uint8_t *>(from.data) + row * in_row;
        const auto *scales = static_cast<const Bf16 *>(from.scales) +
                             row * ((m_.inputs + per_scale - 1) / per_scale);
        bool all = true;
        for (Long i = 0; i < m_.inputs; i += GROUP) {
            uint8_t two[HALF] = {};
            std::memcpy(two, codes + i / 2, size_t(std::min(HALF, in_row - i / 2)));
            unsigned char *to = group(i);
            for (Long k = 0; k < HALF / 2; ++k) {
                const int here = two[k], beyond = two[k + HALF / 2];
                to[2 * k] = uint8_t((here & 15) | (beyond & 15) << 4);
                to[2 * k + 1] = uint8_t(here >> 4 | (beyond & 0xf0));
            }
            *scale(i) = scales[i / per_scale];
            all &= std::isfinite(wide(*scale(i)));
            end(i);
        }
        return all;
    }

  private:
    static void narrow(Bits codes, unsigned char *to) {
        typedef uint8_t Bytes __attribute__((vector_size(LANES)));
        const Bytes bytes = __builtin_convertvector(codes, Bytes);
        std::memcpy(to, &bytes, sizeof bytes);
    }

    // Of int4: the codes of the group that begins with an input, and their scale.
    unsigned char *group(Long input) const {
        return bytes_ + input / WIDE * (BLOCK / PANEL) + input % WIDE / GROUP * HALF;
    }

    Bf16 *scale(Long input) const {
        return reinterpret_cast<Bf16 *>(bytes_ + input / WIDE * (BLOCK / PANEL) +
                                        BLOCK_SCALES / PANEL) +
               input % WIDE / GROUP;
    }

    // No codes where there are no inputs any more.
    void end(Long input) const {
        for (Long k = std::max<Long>(m_.inputs - input, 0); k < GROUP; ++k)
            group(input)[k % HALF] &= k < HALF ? 0xf0 : 0x0f;
    }

    unsigned char *bytes_;
    const Matrix &m_;
};

// Sixteen strands side by side.
void turn(const unsigned char *strands, Long bytes, unsigned char *panel) {
    for (Long at = 0; at < bytes; at += WORD)
        for (Long o = 0; o < PANEL; ++o)
            std::memcpy(panel + at * PANEL + o * WORD, strands + o * bytes + at, WORD);
}

// Numbers of a file's type as floats.
void widen(Stored type, const void *data, Long first, Long count, float *into) {
    each_vector(count, [=](Long i, auto part) {
        const Long at = first + i;
        if (type == Stored::F32) {
            store(into + i, load(static_cast<const float *>(data) + at, part), part);
        } else if (type == Stored::BF16) {
            store(into + i, load(static_cast<const Bf16 *>(data) + at, part), part);
        } else {
            uint16_t halves[LANES] = {};
            std::memcpy(halves, static_cast<const uint16_t *>(data) + at,
                        size_t(part.count) * sizeof(uint16_t));
            store(into + i, wide_halves(halves), part);
        }
    });
}

// Rows of what lies on its side: of some inputs at a time, as these are then near.
void widen_turned(const Source &from, Long first, Long count, float *into, Long stride) {
    constexpr Long NEAR = 16;
    float near[NEAR][PANEL];
    for (Long i = 0; i < from.inputs; i += NEAR) {
        const Long there = std::min(NEAR, from.inputs - i);
        for (Long k = 0; k < there; ++k)
            widen(from.type, from.data, (i + k) * from.rows + first, count, near[k]);
        for (Long r = 0; r < count; ++r)
            for (Long k = 0; k < there; ++k) into[r * stride + i + k] = near[k][r];
    }
}

// Row after row as floats.
void read(const Source &from, Long first, Long count, float *into, Long stride) {
    if (from.type == Stored::CODES8) {
        const auto *codes = static_cast<const int8_t *>(from.data) + first * from.inputs;
        for (Long r = 0; r < count; ++r) {
            const float scale = static_cast<const float *>(from.scales)[first + r];
            for (Long i = 0; i < from.inputs; ++i)
                into[r * stride + i] = float(codes[r * from.inputs + i]) * scale;
        }
    } else if (from.type == Stored::CODES4) {
        const Long in_row = (from.inputs + 1) / 2;
        const Long groups = (from.inputs + from.group - 1) / from.group;
        for (Long r = 0; r < count; ++r) {
            const auto *codes = static_cast<const uint8_t *>(from.data) + (first + r) * in_row;
            const auto *scales = static_cast<const Bf16 *>(from.scales) + (first + r) * groups;
            for (Long i = 0; i < from.inputs; ++i) {
                const int code = (i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15) - 8;
                into[r * stride + i] = float(code) * wide(scales[i / from.group]);
            }
        }
    } else if (from.transposed) {
        widen_turned(from, first, count, into, stride);
    } else {
        for (Long r = 0; r < count; ++r)
            widen(from.type, from.data, (first + r) * from.inputs, from.inputs, into + r * stride);
    }
}

bool finite(const float *numbers, Long count) {
    Whole all = Whole{} - 1;
    each_vector(count, [&](Long i, auto part) {
        const Bits bits = (Bits)load(numbers + i, part) & 0x7f800000u;
        all &= bits != 0x7f800000u;
    });
    bool made = true;
    for (int i = 0; i < LANES; ++i) made &= all[i] != 0;
    return made;
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

bool pack(const Matrix &m, const Source *sources, Long count, Long first, Long last) {
    return pack_into(m, sources, count, first, last, m.lines + size_t(first) * m.panel_bytes());
}

bool pack_into(const Matrix &m, const Source *sources, Long count, Long first, Long last,
               unsigned char *to) {
    const Stored own = m.kind == Kind::INT8 ? Stored::CODES8 : Stored::CODES4;
    const bool coded = m.kind == Kind::INT8 || m.kind == Kind::INT4;
    const Long deep = m.depth(), bytes = Long(m.panel_bytes()) / PANEL;  // of a strand
    std::vector<float> rows(size_t(PANEL * deep));
    std::vector<unsigned char> strands(m.panel_bytes());
    bool all = true;
    for (Long p = first; p < last; ++p) {
        // Outputs that are not there are zeros, not what the panel before had.
        if ((p + 1) * PANEL > m.outputs) std::fill(strands.begin(), strands.end(), 0);
        Long begin = 0;  // the output that a source begins with
        for (Long s = 0; s < count; begin += sources[s++].rows) {
            const Source &from = sources[s];
            const Long low = std::max(p * PANEL, begin);
            const Long high = std::min((p + 1) * PANEL, begin + from.rows);
            if (low >= high) continue;
            const bool as_it_is =
                coded && from.type == own && (own == Stored::CODES8 || from.group % GROUP == 0);
            if (!as_it_is) {
                read(from, low - begin, high - low, rows.data(), deep);
                if (!finite(rows.data(), (high - low) * deep)) return false;
            }
            for (Long o = low; o < high; ++o) {
                const Strand strand(strands.data() + o % PANEL * bytes, m);
                if (as_it_is)
                    all &= strand.copy(from, o - begin);
                else
                    strand.write(rows.data() + (o - low) * deep);
            }
        }
        turn(strands.data(), bytes, to + size_t(p - first) * m.panel_bytes());
    }
    return all;
}

void row(const Matrix &m, Long output, float *into) {
    const unsigned char *panel = m.lines + size_t(output / PANEL) * m.panel_bytes();
    const Long o = output % PANEL;
    if (m.kind == Kind::F32) {
        for (Long i = 0; i < m.inputs; ++i)
            std::memcpy(into + i, panel + place(m.kind, o, i), sizeof(float));
    } else if (m.kind == Kind::BF16) {
        for (Long i = 0; i < m.inputs; ++i)
            into[i] = wide(*reinterpret_cast<const Bf16 *>(panel + place(m.kind, o, i)));
    } else if (m.kind == Kind::INT8) {
        float scale;
        std::memcpy(&scale, panel + m.depth() * PANEL + o * 4, sizeof scale);
        for (Long i = 0; i < m.inputs; ++i)
            into[i] = float(int(panel[place(m.kind, o, i)]) - 128) * scale;
    } else {
        for (Long i = 0; i < m.inputs; ++i) {
            const int both = panel[place4(o, i)];
            const int code = (i % GROUP < 16 ? both & 15 : both >> 4) - 8;
            into[i] = float(code) * wide(*reinterpret_cast<const Bf16 *>(panel + scale4(o, i)));
        }
    }
}

}  // namespace ownwords::engine
