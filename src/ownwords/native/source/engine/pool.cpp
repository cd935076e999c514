#include "engine/pool.h"

#include <csignal>
#include <chrono>
#include <system_error>

#include <unistd.h>

namespace ownwords::engine {
namespace {

// Some ten microseconds, as long as a phase of a small model; then others may have the processor.
constexpr int SPINS = 1000;
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

Pool::Pool(int threads) : process_(long(getpid())) {
    const int most = std::max(1, std::min(threads, 1 << Signals::ROUNDS));
    signals_ = std::make_unique<Signals[]>(size_t(most));
    teams_.resize(size_t(most));
    workers_.reserve(size_t(most));
    // Signals are for the threads of the program, not for these.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int made = 1;
    try {
        for (; made < most; ++made) workers_.emplace_back([this, made] { work(made); });
    } catch (const std::system_error &) {
        // As many as the system allows.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
bool Pool::forked() const { return long(getpid()) != process_; }

void Pool::start(Call call, const void *data) {
    const std::lock_guard<std::mutex> one(running_);
    if (workers_.empty() || forked()) {
        Team alone;
        call(data, alone, 0);
        return;
    }
    call_ = call;
    data_ = data;
    runs_.fetch_add(1);
    if (asleep_.load() > 0) {
        { const std::lock_guard<std::mutex> lock(door_); }
        bell_.notify_all();
    }
    call(data, teams_[0], 0);
    teams_[0].barrier();
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
        Team &team = teams_[size_t(thread)];
        call_(data_, team, thread);
        team.barrier();
    }
}

}  // namespace ownwords::engine
