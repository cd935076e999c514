#include "engine/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ownwords::engine {
namespace {

// The scale and codes of a row of numbers, exactly as in models/quantize.py, which explains them.
struct Quantizer {
    static constexpr float half = 128;
    float scale;

    // `count` is a multiple of LANES.
    Quantizer(const float *numbers, i64 count) {
        VecF32 above{}, below{};
        for (i64 i = 0; i < count; i += LANES) {
            const VecF32 x = load(numbers + i);
            above = max(above, x);
            below = max(below, -x);
        }
        const float high = reduce_max(above), low = reduce_max(below);
        const float step_plain = std::fmax(low / (half + 0.5f), high / (half - 0.5f));
        const float mirrored = std::fmax(high / (half + 0.5f), low / (half - 0.5f));
        // Avoid division by zero for rows of zeros.
        const float step =
            std::fmax(std::fmin(step_plain, mirrored), std::numeric_limits<float>::min());
        scale = step_plain <= mirrored ? step : -step;
    }

    // Unsigned, rounded to nearest even.
    VecU32 codes(VecF32 x) const {
        // The lowest bits of a float this large are an integer.
        const VecF32 magic = splat(0x1.8p23f), ratio = x / splat(scale);
        const VecF32 rounded = (ratio + magic) - magic;
        const VecF32 clamped = max(splat(-half), min(splat(half - 1), rounded));
        return (VecU32)(clamped + (magic + half)) - (VecU32)magic;
    }
};

constexpr i64 WORD = 4;  // bytes of an output in a line

// The offset in a panel of an output's weight of an input.
i64 weight_offset(WeightType type, i64 output, i64 input) {
    const i64 per_line = type == WeightType::F32 ? 1 : type == WeightType::BF16 ? 2 : 4;
    const i64 bytes = WORD / per_line;
    return input / per_line * LINE + output * WORD + input % per_line * bytes;
}

// One output's part of a panel, contiguous. A panel interleaves sixteen of these.
class PanelLane {
  public:
    PanelLane(unsigned char *bytes, const Matrix &matrix) : bytes_(bytes), m_(matrix) {}

    // Quantize numbers, which are padded with zeros up to `depth`.
    void write(const float *numbers) const {
        if (m_.type == WeightType::F32) {
            std::memcpy(bytes_, numbers, size_t(m_.inputs) * sizeof(float));
        } else if (m_.type == WeightType::BF16) {
            auto *to = reinterpret_cast<Bf16 *>(bytes_);
            for (i64 i = 0; i < m_.inputs; ++i) store(to[i], numbers[i]);
        } else {
            const Quantizer quantizer(numbers, m_.depth());
            for (i64 i = 0; i < m_.depth(); i += LANES)
                store_bytes(quantizer.codes(load(numbers + i)), bytes_ + i);
            std::memset(bytes_ + m_.inputs, 0, size_t(m_.depth() - m_.inputs));
            std::memcpy(bytes_ + m_.depth(), &quantizer.scale, sizeof quantizer.scale);
        }
    }

    // Copy int8 codes. False if the scale is not finite.
    bool copy(const WeightSource &from, i64 row) const {
        const auto *codes = static_cast<const uint8_t *>(from.data) + row * m_.inputs;
        for (i64 i = 0; i < m_.inputs; ++i) bytes_[i] = codes[i] ^ 128;
        std::memcpy(bytes_ + m_.depth(), &from.scales[row], sizeof(float));
        return std::isfinite(from.scales[row]);
    }

  private:
    static void store_bytes(VecU32 codes, unsigned char *to) {
        typedef uint8_t Bytes __attribute__((vector_size(LANES)));
        const Bytes bytes = __builtin_convertvector(codes, Bytes);
        std::memcpy(to, &bytes, sizeof bytes);
    }

    unsigned char *bytes_;
    const Matrix &m_;
};

void interleave_lanes(const unsigned char *lanes, i64 bytes, unsigned char *panel) {
    for (i64 at = 0; at < bytes; at += WORD)
        for (i64 o = 0; o < PANEL; ++o)
            std::memcpy(panel + at * PANEL + o * WORD, lanes + o * bytes + at, WORD);
}

// IEEE half precision.
inline VecF32 load_half(const uint16_t *from) {
    VecU16 halves;
    std::memcpy(&halves, from, sizeof halves);
    const VecU32 bits = __builtin_convertvector(halves, VecU32);
    const VecU32 sign = (bits >> 15) << 31, exponent = bits & 0x7c00u, fraction = bits & 1023u;
    const VecU32 step_plain =
        ((bits & 0x7fffu) << 13) +
        (exponent == 0x7c00u ? VecU32{} + (224u << 23) : VecU32{} + (112u << 23));
    const VecU32 small = (VecU32)(__builtin_convertvector((VecI32)fraction, VecF32) * 0x1p-24f);
    return (VecF32)(sign | (exponent == 0 ? small : step_plain));
}

// A few inputs at a time, for locality.
void load_transposed(const WeightSource &from, i64 first, i64 count, float *into, i64 stride) {
    constexpr i64 BLOCK_INPUTS = 16;
    float block[BLOCK_INPUTS][PANEL];
    for (i64 i = 0; i < from.inputs; i += BLOCK_INPUTS) {
        const i64 count_here = std::min(BLOCK_INPUTS, from.inputs - i);
        for (i64 k = 0; k < count_here; ++k)
            load_as_float(from.type, from.data, (i + k) * from.rows + first, count, block[k]);
        for (i64 r = 0; r < count; ++r)
            for (i64 k = 0; k < count_here; ++k) into[r * stride + i + k] = block[k][r];
    }
}

void load_rows(const WeightSource &from, i64 first, i64 count, float *into, i64 stride) {
    if (from.transposed) return load_transposed(from, first, count, into, stride);
    for (i64 r = 0; r < count; ++r)
        load_as_float(from.type, from.data, (first + r) * from.inputs, from.inputs,
                      into + r * stride);
}

bool finite(const float *numbers, i64 count) {
    VecI32 all_finite = VecI32{} - 1;
    for_each_vec(count, [&](i64 i, auto part) {
        const VecU32 bits = (VecU32)load(numbers + i, part) & 0x7f800000u;
        all_finite &= bits != 0x7f800000u;
    });
    bool result = true;
    for (int i = 0; i < LANES; ++i) result &= all_finite[i] != 0;
    return result;
}

}  // namespace

void load_as_float(SourceType type, const void *data, i64 first, i64 count, float *into) {
    for_each_vec(count, [=](i64 i, auto part) {
        const i64 at = first + i;
        if (type == SourceType::F32) {
            store(into + i, load(static_cast<const float *>(data) + at, part), part);
        } else if (type == SourceType::BF16) {
            store(into + i, load(static_cast<const Bf16 *>(data) + at, part), part);
        } else {
            uint16_t halves[LANES] = {};
            std::memcpy(halves, static_cast<const uint16_t *>(data) + at,
                        size_t(part.count) * sizeof(uint16_t));
            store(into + i, load_half(halves), part);
        }
    });
}

size_t Matrix::panel_bytes() const {
    const size_t padded = size_t(depth());
    switch (type) {
        case WeightType::F32: return padded * LINE;
        case WeightType::BF16: return padded / 2 * LINE;
        default: return padded / 4 * LINE + LINE;
    }
}

bool pack(const Matrix &m, const WeightSource *sources, i64 count, i64 first, i64 last) {
    const i64 depth = m.depth(), bytes = i64(m.panel_bytes()) / PANEL;  // of a lane
    std::vector<float> rows(size_t(PANEL * depth));
    std::vector<unsigned char> lanes(m.panel_bytes());
    bool all_finite = true;
    for (i64 p = first; p < last; ++p) {
        // Clear what the previous panel left for outputs that this one lacks.
        if ((p + 1) * PANEL > m.outputs) std::fill(lanes.begin(), lanes.end(), 0);
        i64 begin = 0;  // the source's first output
        for (i64 s = 0; s < count; begin += sources[s++].rows) {
            const WeightSource &from = sources[s];
            const bool has_codes = from.type == SourceType::CODES;
            const i64 low = std::max(p * PANEL, begin);
            const i64 high = std::min((p + 1) * PANEL, begin + from.rows);
            if (low >= high) continue;
            if (!has_codes) {
                load_rows(from, low - begin, high - low, rows.data(), depth);
                if (!finite(rows.data(), (high - low) * depth)) return false;
            }
            for (i64 o = low; o < high; ++o) {
                const PanelLane lane(lanes.data() + o % PANEL * bytes, m);
                if (has_codes)
                    all_finite &= lane.copy(from, o - begin);
                else
                    lane.write(rows.data() + (o - low) * depth);
            }
        }
        interleave_lanes(lanes.data(), bytes, m.lines + size_t(p) * m.panel_bytes());
    }
    return all_finite;
}

void read_row(const Matrix &m, i64 output, float *into) {
    const unsigned char *panel = m.lines + size_t(output / PANEL) * m.panel_bytes();
    const i64 o = output % PANEL;
    if (m.type == WeightType::F32) {
        for (i64 i = 0; i < m.inputs; ++i)
            std::memcpy(into + i, panel + weight_offset(m.type, o, i), sizeof(float));
    } else if (m.type == WeightType::BF16) {
        for (i64 i = 0; i < m.inputs; ++i)
            into[i] =
                to_float(*reinterpret_cast<const Bf16 *>(panel + weight_offset(m.type, o, i)));
    } else {
        float scale;
        std::memcpy(&scale, panel + m.depth() * PANEL + o * 4, sizeof scale);
        for (i64 i = 0; i < m.inputs; ++i)
            into[i] = float(int(panel[weight_offset(m.type, o, i)]) - 128) * scale;
    }
}

}  // namespace ownwords::engine
