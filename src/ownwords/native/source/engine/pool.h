// The engine's own threads. One function runs on all of them at once, with barriers between its
// phases: a step of a small model is too short to be handed out piece by piece.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "long.h"

namespace ownwords::engine {

// This thread's part of [0, count): whole pieces of `grain`, the last one as it comes.
inline void share(Long count, Long grain, int thread, int threads, Long &begin, Long &end) {
    const Long pieces = (count + grain - 1) / grain;
    begin = std::min(count, pieces * thread / threads * grain);
    end = std::min(count, pieces * (thread + 1) / threads * grain);
}

// Where the threads of a pool meet: of each round of a barrier, how often it has been reached.
struct Signals {
    static constexpr int ROUNDS = 10;  // enough for 2^10 threads
    struct alignas(64) Signal {
        std::atomic<uint32_t> reached{0};
    };
    Signal of[ROUNDS];
    std::atomic<int> processor{-1};  // where the thread was at the last run
};

// One thread's way to the others.
class Team {
  public:
    Team() = default;
    Team(Signals *signals, int thread, int count)
        : threads(count), signals_(signals), thread_(thread) {}

    int threads = 1;

    // Returns when all threads have called it; what they wrote before is seen after.
    void barrier();

  private:
    Signals *signals_ = nullptr;
    int thread_ = 0;
    uint32_t met_ = 0;
};

class Pool {
  public:
    // As many threads as there can be, at most `threads`, the caller's being the first.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // How many a run has now.
    int threads() const { return forked() ? 1 : int(teams_.size()); }

    // body(Team &, int thread) on every thread, the caller's too; one run at a time. A body must
    // not throw: the others would wait for it.
    template <typename Body>
    void run(const Body &body) {
        start([](const void *data, Team &team,
                 int thread) { (*static_cast<const Body *>(data))(team, thread); },
              &body);
    }

  private:
    using Call = void (*)(const void *, Team &, int);

    void start(Call call, const void *data);
    void work(int thread);
    void spread(int thread);
    bool forked() const;

    std::unique_ptr<Signals[]> signals_;
    std::vector<Team> teams_;
    std::vector<std::thread> workers_;
    std::mutex running_;
    Long process_ = 0;
    std::atomic<int> moves_{0};

    // What the workers wait for. They spin, then sleep: those that do are counted.
    alignas(64) std::atomic<uint32_t> runs_{0};
    Call call_ = nullptr;
    const void *data_ = nullptr;
    bool ending_ = false;
    std::atomic<int> asleep_{0};
    std::mutex door_;
    std::condition_variable bell_;
};

}  // namespace ownwords::engine
