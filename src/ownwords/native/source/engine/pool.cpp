#include "engine/pool.h"

#include <chrono>
#include <system_error>

#include "engine/system.h"

namespace ownwords::engine {
namespace {

// Some microseconds, as long as a phase of a small model; then others may have the processor.
constexpr int SPINS = 300;
constexpr int YIELDS = 1500;  // about a millisecond

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

template <typename Ready>
bool spun(const Ready &ready) {
    for (int i = 0; i < SPINS; ++i) {
        if (ready()) return true;
        pause();
    }
    for (int i = 0; i < YIELDS; ++i) {
        if (ready()) return true;
        std::this_thread::yield();
    }
    return false;
}

}  // namespace

// In round r a thread tells the one 2^r further on: after the last round word has come from all.
void Team::barrier() {
    if (threads == 1) return;
    ++met_;
    int round = 0;
    for (int step = 1; step < threads; step *= 2, ++round) {
        const int told = (thread_ + step) % threads;
        signals_[told].of[round].reached.store(met_, std::memory_order_release);
        const std::atomic<uint32_t> &mine = signals_[thread_].of[round].reached;
        const auto ready = [&] {
            return int32_t(mine.load(std::memory_order_acquire) - met_) >= 0;
        };
        if (spun(ready)) continue;
        while (!ready()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

Pool::Pool(int threads) : process_(process()) {
    const int most = std::max(1, std::min(threads, 1 << Signals::ROUNDS));
    signals_ = std::make_unique<Signals[]>(size_t(most));
    teams_.resize(size_t(most));
    workers_.reserve(size_t(most));
    int made = 1;
    try {
        const Undisturbed while_made;  // signals are for the threads of the program, not for these
        for (; made < most; ++made) workers_.emplace_back([this, made] { work(made); });
    } catch (const std::system_error &) {
        // As many as the system allows.
    }
    teams_.resize(size_t(made));
    for (int thread = 0; thread < made; ++thread)
        teams_[size_t(thread)] = Team(signals_.get(), thread, made);
}

Pool::~Pool() {
    if (forked()) {
        for (std::thread &worker : workers_) worker.detach();
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(door_);
        ending_ = true;
        runs_.fetch_add(1);
    }
    bell_.notify_all();
    for (std::thread &worker : workers_) worker.join();
}

// A fork leaves the other threads behind; there the caller does all alone.
bool Pool::forked() const { return process() != process_; }

void Pool::start(Call call, const void *data) {
    const std::lock_guard<std::mutex> one(running_);
    if (workers_.empty() || forked()) {
        Team alone;
        call(data, alone, 0);
        return;
    }
    call_ = call;
    data_ = data;
    spread(0);
    runs_.fetch_add(1);
    if (asleep_.load() > 0) {
        { const std::lock_guard<std::mutex> lock(door_); }
        bell_.notify_all();
    }
    call(data, teams_[0], 0);
    teams_[0].barrier();
}

// A thread that shares its processor with an earlier one moves to another: where the others are kept
// busy with something of little weight, the system leaves two that wait for each other together.
void Pool::spread(int thread) {
    constexpr int MOST_MOVES = 1000;  // there may be no other place, or no better one
    const int here = processor();
    signals_[thread].processor.store(here, std::memory_order_relaxed);
    if (here < 0 || moves_.load(std::memory_order_relaxed) >= MOST_MOVES) return;
    int taken[1 << Signals::ROUNDS];
    bool is_shared = false;
    for (int other = 0; other < thread; ++other) {
        taken[other] = signals_[other].processor.load(std::memory_order_relaxed);
        is_shared |= taken[other] == here;
    }
    if (!is_shared || !leave_processors(taken, thread, int(teams_.size()))) return;
    moves_.fetch_add(1, std::memory_order_relaxed);
    signals_[thread].processor.store(processor(), std::memory_order_relaxed);
}

void Pool::work(int thread) {
    uint32_t seen = 0;
    for (;;) {
        const auto ready = [&] { return runs_.load(std::memory_order_acquire) != seen; };
        if (!spun(ready)) {
            std::unique_lock<std::mutex> lock(door_);
            asleep_.fetch_add(1);
            bell_.wait(lock, [&] { return runs_.load() != seen; });
            asleep_.fetch_sub(1);
        }
        ++seen;
        if (ending_) return;
        spread(thread);
        Team &team = teams_[size_t(thread)];
        call_(data_, team, thread);
        team.barrier();
    }
}

}  // namespace ownwords::engine
