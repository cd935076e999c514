// How fast threads read as many bytes as a model of some size has: the limit of writing.
// Each thread sums its part along four streams, as a matrix-vector product reads four rows.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;
typedef std::uint64_t Words __attribute__((vector_size(64)));

// Words prefetched into the second-level cache: about 5% more bandwidth than without; non-temporal
// prefetching, past the caches, would cost most of the bandwidth.
constexpr long ahead = 32;
constexpr std::size_t huge_page = std::size_t(2) << 20;

double since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
}

// Huge pages, if the system has them: fewer addresses to look up.
Words* memory_of(std::size_t bytes) {
    const std::size_t whole = (bytes + huge_page - 1) / huge_page * huge_page;
    void* memory = std::aligned_alloc(huge_page, whole);
    if (memory == nullptr) std::exit(1);
#ifdef __linux__
    madvise(memory, whole, MADV_HUGEPAGE);
#endif
    return static_cast<Words*>(memory);
}

std::uint64_t sum(const Words* from, long words) {
    const long part = words / 4;
    Words sums[4] = {};
    for (long i = 0; i < part; ++i)
        for (int stream = 0; stream < 4; ++stream) {
            const Words* next = from + stream * part + i;
            __builtin_prefetch(next + ahead, 0, 2);
            sums[stream] += *next;
        }
    const Words all = sums[0] + sums[1] + sums[2] + sums[3];
    std::uint64_t found = 0;
    for (int i = 0; i < 8; ++i) found += all[i];
    return found;
}

}  // namespace

// bandwidth BYTES THREADS SECONDS: the best GB/s of a pass over BYTES bytes
int main(int count, char** given) {
    if (count != 4) return 2;
    const long threads = std::atol(given[2]);
    const long words = std::atol(given[1]) / long(sizeof(Words)) / threads;
    const double seconds = std::atof(given[3]);
    Words* memory = memory_of(words * threads * sizeof(Words));
    for (long i = 0; i < words * threads; ++i) memory[i] = Words{} + std::uint64_t(i);

    // A thread times passes of its own part, while the others read theirs.
    std::vector<double> least(threads, 1e9);
    std::vector<std::uint64_t> kept(threads);
    std::vector<std::thread> readers;
    const auto began = Clock::now();
    for (long thread = 0; thread < threads; ++thread)
        readers.emplace_back([&, thread] {
            while (since(began) < seconds) {
                const auto start = Clock::now();
                kept[thread] += sum(memory + thread * words, words);
                const double taken = since(start);
                if (taken < least[thread]) least[thread] = taken;
            }
        });
    double best = 0;
    for (long thread = 0; thread < threads; ++thread) {
        readers[thread].join();
        best += words * sizeof(Words) / least[thread] / 1e9;
    }
    std::printf("%.2f\n", kept[0] ? best : 0.0);
    return 0;
}
