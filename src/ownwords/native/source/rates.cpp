// How fast this library multiplies on this processor: an instruction set says what there is, not
// what is fast. Some processors with a dot product of bfloat16 multiply float faster.
#include <algorithm>
#include <array>
#include <chrono>

#include "api.h"
#include "engine/kernels.h"
#include "simd/tile_matmul.h"

namespace ownwords {
namespace {

using Rates = std::array<double, RATE_COUNT>;

// Makes the compiler believe that a vector changes, so that it keeps every product in its loop.
template <typename Vec>
inline void touch(Vec &x) {
#if defined(__x86_64__)
    asm volatile("" : "+v"(x));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(x));
#else
    asm volatile("" : "+m"(x));
#endif
}

// GFLOP/s of work(), which does `products` multiplications and as many additions.
template <typename Work>
double measure(double products, const Work &work) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    work();
    const std::chrono::duration<double, std::nano> taken = Clock::now() - start;
    return 2 * products / std::max(taken.count(), 1.0);
}

// GFLOP/s of add(sum), which adds `depth` products in each lane, on as many sums as fit in registers.
template <typename Vec = VecF32, typename Add>
double measure_vectors(int depth, Add add) {
    constexpr int SUMS = engine::SUM_REGISTERS, TURNS = 2000;
    return measure(double(depth) * LANES * SUMS * TURNS, [&] {
        Vec sums[SUMS] = {};
        for (int turn = 0; turn < TURNS; ++turn)
#pragma GCC unroll 24
            for (int i = 0; i < SUMS; ++i) add(sums[i]);
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; ++i) touch(sums[i]);
    });
}

Rates vector_rates() {
    Rates rates{};
    rates[RATE_FLOAT32] = measure_vectors(1, [x = splat(1.0f)](VecF32 &sum) mutable {
        touch(x);
        sum = engine::fma(sum, x, x);
    });
    rates[RATE_INT16] = measure_vectors<VecI32>(2, [x = VecU32{} + 0x10001u](VecI32 &sum) mutable {
        touch(x);
        add_products<int16_t>(sum, 0x10001u, x);
    });
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    constexpr uint32_t ONES = 0x3f803f80u;
    rates[RATE_BFLOAT16] = measure_vectors(2, [x = VecU32{} + ONES](VecF32 &sum) mutable {
        touch(x);
        add_products<Bf16>(sum, ONES, x);
    });
#endif
    return rates;
}

Rates tile_rates() {
    Rates rates{};
#if defined(__AMX_BF16__)
    constexpr int TILES = 4, TURNS = 500;
    const AmxTileConfig tiles;
    const double products = double(TILES) * TILE_ROWS * TILE_ROWS * TILE_K * TURNS;
    rates[RATE_BFLOAT16_TILES] = measure(products, [] {
        for (int turn = 0; turn < TURNS; ++turn) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    });
#endif
    return rates;
}

// The best of many short rounds, so that other processes do not skew the result. Tiles come last:
// after them vectors are slower for a while.
Rates best_rates() {
    Rates best{};
    for (Rates (*measure)() : {vector_rates, tile_rates})
        for (int round = 0; round < 48; ++round) {
            const Rates rates = measure();
            for (size_t i = 0; i < best.size(); ++i) best[i] = std::max(best[i], rates[i]);
        }
    return best;
}

const Rates &measured_rates() {
    static const Rates measured = best_rates();
    return measured;
}

// By a margin, so that every process decides the same where both are equal.
bool is_faster(Rate bfloat16) {
    return measured_rates()[bfloat16] > 1.2 * measured_rates()[RATE_FLOAT32];
}

}  // namespace

bool has_fast_bf16_vectors() { return is_faster(RATE_BFLOAT16); }

}  // namespace ownwords

void ownwords_measure_rates(double *rates) {
    std::copy_n(ownwords::measured_rates().data(), size_t(RATE_COUNT), rates);
}

int ownwords_has_fast_bf16(void) {
    return ownwords::is_faster(RATE_BFLOAT16) || ownwords::is_faster(RATE_BFLOAT16_TILES);
}
