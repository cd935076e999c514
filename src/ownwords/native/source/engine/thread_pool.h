// Threads that spin briefly between runs, then sleep. Training hands out tasks. The engine's step of
// a small model is too short for that: one function runs on all threads, with barriers between its
// phases.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "simd/vec.h"

namespace ownwords::engine {

// This thread's part of [0, count), in multiples of `grain`.
inline void split_range(i64 count, i64 grain, int thread, int threads, i64 &begin, i64 &end) {
    const i64 pieces = (count + grain - 1) / grain;
    begin = std::min(count, pieces * thread / threads * grain);
    end = std::min(count, pieces * (thread + 1) / threads * grain);
}

// How often each round of a thread's barrier has been reached, and how the thread sleeps there.
struct BarrierSignals {
    static constexpr int ROUNDS = 10;  // enough for 2^10 threads
    struct alignas(64) Signal {
        std::atomic<uint32_t> reached{0};
    };
    Signal rounds[ROUNDS];
    std::atomic<bool> sleeping{false};
    std::mutex mutex;
    std::condition_variable wake;
};

// A thread's view of the pool.
class ThreadTeam {
  public:
    ThreadTeam() = default;
    ThreadTeam(BarrierSignals *signals, int thread, int count)
        : threads(count), signals_(signals), thread_(thread) {}

    int threads = 1;

    // Returns when all threads have called it.
    void barrier();

  private:
    BarrierSignals *signals_ = nullptr;
    int thread_ = 0;
    uint32_t phase_ = 0;
};

class ThreadPool {
  public:
    // At most `threads`, or as many as the system allows; the caller is one of them.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    // The threads of a run.
    int threads() const { return is_forked() ? 1 : int(teams_.size()); }

    // Call body(ThreadTeam &, int thread) on every thread. One run at a time; it must not throw.
    template <typename Body>
    void run(const Body &body) {
        start([](const void *data, ThreadTeam &team, int thread) {
            (*static_cast<const Body *>(data))(team, thread);
            team.barrier();
        }, &body);
    }

    // Call body() on the caller's thread, and on each thread that starts before it returns there:
    // threads that other programs delay are not waited for.
    template <typename Body>
    void share(const Body &body) {
        start([](const void *data, ThreadTeam &, int) { (*static_cast<const Body *>(data))(); },
              &body);
    }

  private:
    using Call = void (*)(const void *, ThreadTeam &, int);

    void start(Call call, const void *data);
    void open_run();
    void worker_loop(int thread);
    bool is_forked() const;

    std::unique_ptr<BarrierSignals[]> signals_;
    std::vector<ThreadTeam> teams_;
    std::vector<std::thread> workers_;
    std::mutex run_mutex_;
    i64 process_id_ = 0;

    // The number of the run, whether it is closed to further threads, and how many workers are in it.
    static constexpr uint64_t RUN = uint64_t(1) << 32, CLOSED = uint64_t(1) << 31;
    alignas(64) std::atomic<uint64_t> state_{CLOSED};
    Call call_ = nullptr;
    const void *data_ = nullptr;
    std::atomic<bool> stopping_{false};
    std::atomic<int> sleeping_{0};
    std::atomic<bool> waiting_{false};
    std::mutex mutex_;
    std::condition_variable wake_, done_;
};

}  // namespace ownwords::engine
