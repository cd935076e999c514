// Loops on the threads of an OpenMP runtime, torch's own, whose functions ownwords_set_openmp
// takes.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>

#include "simd/amx.h"
#include "simd/status.h"

namespace ownwords {

struct OpenMpThreads {
    void (*fork)(void (*)(void *), void *, unsigned threads, unsigned flags) = nullptr;
    int (*max_threads)() = nullptr;
    int (*num_threads)() = nullptr;
    int (*thread_num)() = nullptr;
};

extern OpenMpThreads openmp;

// The most chunks that parallel_for makes of [0, count).
inline int chunk_count(i64 count, i64 grain) {
    if (openmp.fork == nullptr || count <= grain) return 1;
    return static_cast<int>(std::min<i64>(openmp.max_threads(), (count + grain - 1) / grain));
}

// body(begin, end, chunk) for all of [0, count), in chunks of `grain` or more. What a body throws
// is rethrown on the calling thread.
template <typename Body>
void parallel_for(i64 count, i64 grain, const Body &body) {
    const int chunks = chunk_count(count, grain);
    if (chunks == 1) {
        body(i64(0), count, 0);
        return;
    }
    struct Call {
        const Body &body;
        i64 count;
        std::atomic_flag failed = ATOMIC_FLAG_INIT;
        std::exception_ptr error = nullptr;
    } call{body, count};
    openmp.fork(
        [](void *data) {
            Call &call = *static_cast<Call *>(data);
            const i64 threads = openmp.num_threads(), thread = openmp.thread_num();
            try {
                call.body(call.count * thread / threads, call.count * (thread + 1) / threads,
                          int(thread));
            } catch (...) {
                if (!call.failed.test_and_set()) call.error = std::current_exception();
            }
        },
        &call, unsigned(chunks), 0);
    if (call.error) std::rethrow_exception(call.error);
}

// body(i) for all of [0, count), with AMX's tiles configured. A thread that is free takes the next:
// tasks may differ, and other programs delay single threads.
template <typename Body>
void parallel_tasks(i64 count, const Body &body) {
    std::atomic<i64> next{0};
    parallel_for(count, 1, [&](i64, i64, int) {
        const AmxTileConfig tiles;
        for (i64 i = next++; i < count; i = next++) body(i);
    });
}

}  // namespace ownwords
