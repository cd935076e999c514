#include "engine/split_head.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/kernels.h"

namespace ownwords::engine {
namespace {

constexpr size_t MIN_BYTES = size_t(16) << 20;  // bytes; smaller matrices stay in caches
constexpr i64 PANELS_AT_ONCE = 4;               // as many as products read side by side
constexpr i64 INT4_BLOCK = 64;                  // inputs
constexpr i64 LINES_PER_HALF = 4;
constexpr float DEVIATIONS = 12;

inline void store_bits(VecU32 from, unsigned char *to) { std::memcpy(to, &from, sizeof from); }

// body(high, low, first, second) for each vector of half codes: its offset in the two planes, and
// those of the two vectors of codes it comes from.
template <typename Body>
inline void for_each_halves(i64 depth, const Body &body) {
    for (i64 group = 0; group < depth / GROUP; ++group)
        for (i64 line = 0; line < LINES_PER_HALF; ++line)
            for (int v = 0; v < VECS_PER_LINE; ++v) {
                const i64 within = v * i64(sizeof(VecU32));
                const i64 planes = (group * LINES_PER_HALF + line) * LINE + within;
                const i64 int8 = (group * 2 * LINES_PER_HALF + line) * LINE + within;
                // Every second group is followed by a line of scales.
                body(planes + group / 2 * LINE, planes, int8, int8 + LINES_PER_HALF * LINE);
            }
}

void split_panel(const unsigned char *panel, i64 depth, unsigned char *high,
                 unsigned char *low_plane) {
    for_each_halves(depth, [=](i64 h, i64 l, i64 first, i64 second) {
        const VecU32 a = (VecU32)load_codes(panel + first), b = (VecU32)load_codes(panel + second);
        store_bits((a >> 4 & 0x0f0f0f0fu) | (b & 0xf0f0f0f0u), high + h);
        store_bits((a & 0x0f0f0f0fu) | (b & 0x0f0f0f0fu) << 4, low_plane + l);
    });
    const VecU32 ones = VecU32{} + 0x3f803f80u;  // two bfloat16 ones
    for (i64 k = INT4_BLOCK; k <= depth; k += INT4_BLOCK)
        for (int v = 0; v < VECS_PER_LINE; ++v)
            store_bits(ones, high + k / INT4_BLOCK * 9 * LINE - LINE + v * i64(sizeof(VecU32)));
}

// How far the coarse scores of a panel can be off, for |x| = 1.
void measure_error_bounds(const unsigned char *panel, const Matrix &m, const float *scales,
                          float *bounds) {
    const float inputs = float(m.inputs), cauchy_schwarz = std::sqrt(2 * inputs);
    for (int v = 0; v < VECS_PER_LINE; ++v) {
        VecF32 low_squares{}, code_squares{};
        for (i64 k = 0; k < m.inputs; ++k) {
            const VecI32 codes4 = load_codes(panel + k / 4 * LINE + v * i64(sizeof(VecI32)));
            const VecI32 code = codes4 >> int(k % 4 * 8) & 255;
            const VecF32 low_error = __builtin_convertvector(2 * (code & 15) - 15, VecF32);
            const VecF32 full = __builtin_convertvector(code - 128, VecF32);
            low_squares += low_error * low_error * 0.25f;
            code_squares += full * full;
        }
        for (int o = 0; o < LANES; ++o) {
            // Coarse scores use 8-bit activations in groups of 32, which are off by |x| / 45 at
            // most.
            const float mean = (low_squares[o] + code_squares[o] / 2000) / inputs;
            const float deviations = low_squares[o] > code_squares[o] / 16
                                         ? cauchy_schwarz
                                         : std::min(cauchy_schwarz, DEVIATIONS);
            const int at = v * LANES + o;
            bounds[at] = std::fabs(scales[at]) * deviations * std::sqrt(mean);
        }
    }
}

}  // namespace

bool SplitHead::is_worthwhile(const Matrix &matrix) {
    return matrix.type == WeightType::INT8 && matrix.bytes() >= MIN_BYTES;
}

size_t SplitHead::bytes() const {
    const Matrix code_squares = coarse();
    return code_squares.bytes() +
           size_t(code_squares.panels()) * size_t(code_squares.depth() * PANEL / 2 + 2 * LINE);
}

size_t SplitHead::scratch_bytes() const { return size_t(PANELS_AT_ONCE) * full().panel_bytes(); }

unsigned char *SplitHead::low_plane(i64 panel) const {
    const Matrix code_squares = coarse();
    return lines + code_squares.bytes() + size_t(panel) * size_t(code_squares.depth() * PANEL / 2);
}

float *SplitHead::scales(i64 panel) const {
    return reinterpret_cast<float *>(low_plane(coarse().panels())) + panel * 2 * PANEL;
}

bool SplitHead::pack(const WeightSource *sources, i64 count, i64 first, i64 last) const {
    const Matrix int8 = full(), planes = coarse();
    const i64 depth = int8.depth(), bytes = i64(int8.panel_bytes());
    std::vector<unsigned char> panels(size_t((last - first) * bytes));
    const bool all_finite = pack_into(int8, sources, count, first, last, panels.data());
    for (i64 p = first; p < last; ++p) {
        const unsigned char *panel = panels.data() + (p - first) * bytes;
        split_panel(panel, depth, lines + size_t(p) * planes.panel_bytes(), low_plane(p));
        std::memcpy(scales(p), panel + depth * PANEL, LINE);
        measure_error_bounds(panel, int8, scales(p), scales(p) + PANEL);
    }
    return all_finite;
}

// Some panels, joined into a matrix of their own.
Matrix SplitHead::joined(i64 first, i64 last, unsigned char *scratch) const {
    const Matrix planes = coarse(), int8 = full();
    const i64 depth = int8.depth(), bytes = i64(int8.panel_bytes());
    for (i64 p = first; p < last; ++p) {
        const unsigned char *high = lines + size_t(p) * planes.panel_bytes(),
                            *low_lines = low_plane(p);
        unsigned char *to = scratch + (p - first) * bytes;
        for_each_halves(depth, [=](i64 h, i64 l, i64 item, i64 two) {
            __builtin_prefetch(high + h + 2048);
            __builtin_prefetch(low_lines + l + 2048);
            const VecU32 a = (VecU32)load_codes(high + h), b = (VecU32)load_codes(low_lines + l);
            store_bits((a & 0x0f0f0f0fu) << 4 | (b & 0x0f0f0f0fu), to + item);
            store_bits((a & 0xf0f0f0f0u) | (b >> 4 & 0x0f0f0f0fu), to + two);
        });
        std::memcpy(to + depth * PANEL, scales(p), LINE);
    }
    return {WeightType::INT8, std::min(last * PANEL, outputs) - first * PANEL, inputs, scratch};
}

void SplitHead::read_row(i64 output, float *into, unsigned char *scratch) const {
    const i64 panel = output / PANEL;
    engine::read_row(joined(panel, panel + 1, scratch), output % PANEL, into);
}

void SplitHead::matmul(const MatmulInput &input, i64 rows, float *out, i64 stride, i64 first,
                       i64 last, unsigned char *scratch) const {
    const Matrix int8 = full();
    const MatmulArgs work{int8, input, rows, nullptr, out, stride, this};
#if defined(OWNWORDS_AMX)
    if (rows < 4) return matmul_int15(work, first, last);
    // Tiles are read from memory.
    for (i64 p = first; p < last; p += PANELS_AT_ONCE) {
        const Matrix panels = joined(p, std::min(p + PANELS_AT_ONCE, last), scratch);
        engine::matmul(panels, input, rows, nullptr, out + p * PANEL, stride, 0, panels.panels());
    }
#else
    static_cast<void>(scratch);
#if defined(OWNWORDS_INT15)
    matmul_int15(work, first, last);
#else
    matmul_int8(work, first, last);
#endif
#endif
}

i64 SplitHead::estimate(const MatmulInput &ready, const float *row, i64 first, i64 last,
                        float *upper_bounds) const {
    engine::matmul(coarse(), ready, 1, nullptr, upper_bounds, outputs, first, last);
    VecF32 sums{}, squares{};
    for_each_vec(inputs, [&](i64 k, auto part) {
        const VecF32 x = load(row + k, part);
        sums += x;
        squares += x * x;
    });
    const float mean_term = 7.5f * reduce_add(sums), norm = std::sqrt(reduce_add(squares));
    i64 best = first;
    float best_score = -INFINITY;
    for (i64 p = first; p < last; ++p) {
        const float *panel_scales = scales(p), *error_bounds = panel_scales + PANEL;
        float *to = upper_bounds + p * PANEL;
        VecF32 highest = splat(-INFINITY);
        for_each_vec(std::min(PANEL, outputs - p * PANEL), [&](i64 o, auto part) {
            const VecF32 coarse_score =
                load(panel_scales + o, part) * (16.0f * load(to + o, part) + splat(mean_term));
            highest = ownwords::max(highest, mask_tail(coarse_score, part, -INFINITY));
            store(to + o, coarse_score + load(error_bounds + o, part) * norm, part);
        });
        const float panel_best = ownwords::reduce_max(highest);
        if (panel_best > best_score) best_score = panel_best, best = p;
    }
    return best;
}

}  // namespace ownwords::engine
