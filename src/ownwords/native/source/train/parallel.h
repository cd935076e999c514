// Loops on the threads of the training kernels. Results never depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>

#include "engine/thread_pool.h"
#include "simd/amx.h"
#include "simd/status.h"

namespace ownwords {

inline std::unique_ptr<engine::ThreadPool> training_pool;  // null: the caller's thread alone

// Call body(i) for all of [0, count), with AMX tiles configured; a free thread takes the next i. An
// exception of a body is rethrown on the calling thread.
template <typename Body>
void parallel_tasks(i64 count, const Body &body) {
    std::atomic<i64> next{0};
    std::atomic_flag failed = ATOMIC_FLAG_INIT;
    std::exception_ptr error;
    const auto take_tasks = [&] {
        const AmxTileConfig tiles;
        try {
            for (i64 i = next++; i < count; i = next++) body(i);
        } catch (...) {
            if (!failed.test_and_set()) error = std::current_exception();
        }
    };
    if (training_pool == nullptr || count == 1)
        take_tasks();
    else
        training_pool->share(take_tasks);
    if (error) std::rethrow_exception(error);
}

// The number of chunks that parallel_for makes of [0, count).
inline i64 chunk_count(i64 count, i64 grain) {
    constexpr i64 MAX_CHUNKS = 64;
    return std::max<i64>(1, std::min(MAX_CHUNKS, count / grain));
}

// Call body(begin, end, chunk) for all of [0, count), in chunks of `grain` or more.
template <typename Body>
void parallel_for(i64 count, i64 grain, const Body &body) {
    const i64 chunks = chunk_count(count, grain);
    parallel_tasks(chunks, [&](i64 chunk) {
        body(count * chunk / chunks, count * (chunk + 1) / chunks, chunk);
    });
}

}  // namespace ownwords
