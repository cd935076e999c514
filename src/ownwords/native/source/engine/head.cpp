#include "engine/head.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/panels.h"

namespace ownwords::engine {
namespace {

constexpr size_t LARGE = size_t(16) << 20;  // bytes; less stays in caches
constexpr Long AT_ONCE = 4;                 // panels, as many as products read side by side
constexpr Long PIECE = 64;                  // inputs that a block of int4 holds
constexpr Long LINES = 4;                   // of a group's halves
constexpr float DEVIATIONS = 12;

inline void put(Bits from, unsigned char *to) { std::memcpy(to, &from, sizeof from); }

// body(high, low, first, second) for each vector of halves: their places in the two planes, and
// those of the two vectors of codes that they are halves of.
template <typename Body>
inline void each_halves(Long depth, const Body &body) {
    for (Long group = 0; group < depth / GROUP; ++group)
        for (Long line = 0; line < LINES; ++line)
            for (int v = 0; v < PARTS; ++v) {
                const Long within = v * Long(sizeof(Bits));
                const Long halves = (group * LINES + line) * LINE + within;
                const Long codes = (group * 2 * LINES + line) * LINE + within;
                // Every second group is followed by a line of steps.
                body(halves + group / 2 * LINE, halves, codes, codes + LINES * LINE);
            }
}

void split(const unsigned char *panel, Long depth, unsigned char *high, unsigned char *low) {
    each_halves(depth, [=](Long h, Long l, Long first, Long second) {
        const Bits a = (Bits)load_codes(panel + first), b = (Bits)load_codes(panel + second);
        put((a >> 4 & 0x0f0f0f0fu) | (b & 0xf0f0f0f0u), high + h);
        put((a & 0x0f0f0f0fu) | (b & 0x0f0f0f0fu) << 4, low + l);
    });
    const Bits ones = Bits{} + 0x3f803f80u;  // two of bfloat16
    for (Long k = PIECE; k <= depth; k += PIECE)
        for (int v = 0; v < PARTS; ++v)
            put(ones, high + k / PIECE * 9 * LINE - LINE + v * Long(sizeof(Bits)));
}

// How far off the rough scores of a panel can be, with |x| = 1.
void measure(const unsigned char *panel, const Matrix &m, const float *scales, float *reaches) {
    const float inputs = float(m.inputs), sure = std::sqrt(2 * inputs);
    for (int v = 0; v < PARTS; ++v) {
        Vector off{}, all{};
        for (Long k = 0; k < m.inputs; ++k) {
            const Whole four = load_codes(panel + k / 4 * LINE + v * Long(sizeof(Whole)));
            const Whole code = four >> int(k % 4 * 8) & 255;
            const Vector apart = __builtin_convertvector(2 * (code & 15) - 15, Vector);
            const Vector whole = __builtin_convertvector(code - 128, Vector);
            off += apart * apart * 0.25f;
            all += whole * whole;
        }
        for (int o = 0; o < LANES; ++o) {
            // A rough score is made with activations of 8 bits: with groups of 32 they are off by
            // |x| / 45 at most.
            const float mean = (off[o] + all[o] / 2000) / inputs;
            const float deviations = off[o] > all[o] / 16 ? sure : std::min(sure, DEVIATIONS);
            const int at = v * LANES + o;
            reaches[at] = std::fabs(scales[at]) * deviations * std::sqrt(mean);
        }
    }
}

}  // namespace

bool Planes::pay(const Matrix &matrix) {
    return matrix.kind == Kind::INT8 && matrix.bytes() >= LARGE;
}

size_t Planes::bytes() const {
    const Matrix all = rough();
    return all.bytes() + size_t(all.panels()) * size_t(all.depth() * PANEL / 2 + 2 * LINE);
}

size_t Planes::room() const { return size_t(AT_ONCE) * whole().panel_bytes(); }

unsigned char *Planes::low(Long panel) const {
    const Matrix all = rough();
    return lines + all.bytes() + size_t(panel) * size_t(all.depth() * PANEL / 2);
}

float *Planes::ends(Long panel) const {
    return reinterpret_cast<float *>(low(rough().panels())) + panel * 2 * PANEL;
}

bool Planes::pack(const Source *sources, Long count, Long first, Long last) const {
    const Matrix codes = whole(), halves = rough();
    const Long depth = codes.depth(), bytes = Long(codes.panel_bytes());
    std::vector<unsigned char> panels(size_t((last - first) * bytes));
    const bool fine = pack_into(codes, sources, count, first, last, panels.data());
    for (Long p = first; p < last; ++p) {
        const unsigned char *panel = panels.data() + (p - first) * bytes;
        split(panel, depth, lines + size_t(p) * halves.panel_bytes(), low(p));
        std::memcpy(ends(p), panel + depth * PANEL, LINE);
        measure(panel, codes, ends(p), ends(p) + PANEL);
    }
    return fine;
}

// Some panels put together, as a matrix of their own.
Matrix Planes::joined(Long first, Long last, unsigned char *room) const {
    const Matrix halves = rough(), codes = whole();
    const Long depth = codes.depth(), bytes = Long(codes.panel_bytes());
    for (Long p = first; p < last; ++p) {
        const unsigned char *high = lines + size_t(p) * halves.panel_bytes(), *rest = low(p);
        unsigned char *to = room + (p - first) * bytes;
        each_halves(depth, [=](Long h, Long l, Long one, Long two) {
            __builtin_prefetch(high + h + 2048);
            __builtin_prefetch(rest + l + 2048);
            const Bits a = (Bits)load_codes(high + h), b = (Bits)load_codes(rest + l);
            put((a & 0x0f0f0f0fu) << 4 | (b & 0x0f0f0f0fu), to + one);
            put((a & 0xf0f0f0f0u) | (b >> 4 & 0x0f0f0f0fu), to + two);
        });
        std::memcpy(to + depth * PANEL, ends(p), LINE);
    }
    return {Kind::INT8, std::min(last * PANEL, outputs) - first * PANEL, inputs, room};
}

void Planes::row(Long output, float *into, unsigned char *room) const {
    const Long panel = output / PANEL;
    engine::row(joined(panel, panel + 1, room), output % PANEL, into);
}

void Planes::multiply(const Input &input, Long rows, float *out, Long stride, Long first, Long last,
                      unsigned char *room) const {
    const Matrix codes = whole();
    const Work work{codes, input, rows, nullptr, out, stride, this};
#if defined(OWNWORDS_TILES)
    if (rows < 4) return multiply_wide(work, first, last);
    // Tiles take weights as they lie in memory.
    for (Long p = first; p < last; p += AT_ONCE) {
        const Matrix some = joined(p, std::min(p + AT_ONCE, last), room);
        engine::multiply(some, input, rows, nullptr, out + p * PANEL, stride, 0, some.panels());
    }
#else
    static_cast<void>(room);
    multiply_codes8(work, first, last);
#endif
}

Long Planes::guess(const Input &ready, const float *row, Long first, Long last, float *most) const {
    engine::multiply(rough(), ready, 1, nullptr, most, outputs, first, last);
    Vector sums{}, squares{};
    each_vector(inputs, [&](Long k, auto part) {
        const Vector x = load(row + k, part);
        sums += x;
        squares += x * x;
    });
    const float middle = 7.5f * summed(sums), size = std::sqrt(summed(squares));
    Long best = first;
    float top = -INFINITY;
    for (Long p = first; p < last; ++p) {
        const float *scales = ends(p), *reaches = scales + PANEL;
        float *to = most + p * PANEL;
        Vector highest = every(-INFINITY);
        each_vector(std::min(PANEL, outputs - p * PANEL), [&](Long o, auto part) {
            const Vector near =
                load(scales + o, part) * (16.0f * load(to + o, part) + every(middle));
            highest = ownwords::larger(highest, only(near, part, -INFINITY));
            store(to + o, near + load(reaches + o, part) * size, part);
        });
        const float here = ownwords::largest(highest);
        if (here > top) top = here, best = p;
    }
    return best;
}

}  // namespace ownwords::engine
