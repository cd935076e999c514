#include "engine/thread_pool.h"

#include <chrono>
#include <system_error>

#include "engine/os.h"

namespace ownwords::engine {
namespace {

inline void cpu_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// About the time it takes to wake a thread. A thread that waits longer sleeps instead of yielding, so
// that Linux runs the thread that it waits for on its CPU, if another program has delayed that one.
constexpr std::chrono::microseconds SPIN_TIME{100};
// At a barrier the others arrive within microseconds, unless they wait for this CPU.
constexpr std::chrono::microseconds BARRIER_SPIN_TIME{20};

template <typename Ready>
bool spin_until(const Ready &is_ready, std::chrono::microseconds spin_time) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + spin_time;
    do {
        for (int i = 0; i < 8; ++i) {
            if (is_ready()) return true;
            cpu_pause();
        }
    } while (Clock::now() < end);
    return false;
}

}  // namespace

// Dissemination barrier (Hensgen, Finkel & Manber 1988): in round r a thread signals the one 2^r
// further on.
void ThreadTeam::barrier() {
    if (threads == 1) return;
    ++phase_;
    int round = 0;
    for (int step = 1; step < threads; step *= 2, ++round) {
        BarrierSignals &own = signals_[thread_], &partner = signals_[(thread_ + step) % threads];
        partner.rounds[round].reached.store(phase_);
        // The partner sets `sleeping` before it reads the phase, so one of the two sees the other.
        if (partner.sleeping.load()) {
            { const std::lock_guard<std::mutex> lock(partner.mutex); }
            partner.wake.notify_one();
        }
        const auto is_ready = [&] { return int32_t(own.rounds[round].reached.load() - phase_) >= 0; };
        if (spin_until(is_ready, BARRIER_SPIN_TIME)) continue;
        std::unique_lock<std::mutex> lock(own.mutex);
        own.sleeping.store(true);
        own.wake.wait(lock, is_ready);
        own.sleeping.store(false);
    }
}

ThreadPool::ThreadPool(int threads) : process_id_(process_id()) {
    const int max_threads = std::max(1, std::min(threads, 1 << BarrierSignals::ROUNDS));
    signals_ = std::make_unique<BarrierSignals[]>(size_t(max_threads));
    teams_.resize(size_t(max_threads));
    workers_.reserve(size_t(max_threads));
    int count = 1;
    with_blocked_signals([&] {
        try {
            for (; count < max_threads; ++count)
                workers_.emplace_back([this, count] { worker_loop(count); });
        } catch (const std::system_error &) {
            // As many as the system allows.
        }
    });
    teams_.resize(size_t(count));
    for (int thread = 0; thread < count; ++thread)
        teams_[size_t(thread)] = ThreadTeam(signals_.get(), thread, count);
}

ThreadPool::~ThreadPool() {
    if (is_forked()) {
        for (std::thread &worker : workers_) worker.detach();
        return;
    }
    stopping_ = true;
    open_run();
    for (std::thread &worker : workers_) worker.join();
}

// After a fork the other threads are gone: the caller does everything.
bool ThreadPool::is_forked() const { return process_id() != process_id_; }

void ThreadPool::open_run() {
    state_.store((state_.load() / RUN + 1) * RUN);
    if (sleeping_.load() == 0) return;
    { const std::lock_guard<std::mutex> lock(mutex_); }
    wake_.notify_all();
}

void ThreadPool::start(Call call, const void *data) {
    const std::lock_guard<std::mutex> lock(run_mutex_);
    if (workers_.empty() || is_forked()) {
        ThreadTeam single;
        call(data, single, 0);
        return;
    }
    call_ = call;
    data_ = data;
    open_run();
    call(data, teams_[0], 0);
    const auto is_done = [this] { return state_.load() % RUN == CLOSED; };
    if (state_.fetch_or(CLOSED) % RUN == 0 || spin_until(is_done, SPIN_TIME)) return;
    std::unique_lock<std::mutex> done_lock(mutex_);
    waiting_.store(true);
    done_.wait(done_lock, is_done);
    waiting_.store(false);
}

void ThreadPool::worker_loop(int thread) {
    uint64_t last_run = 0;
    for (;;) {
        const auto is_ready = [&] { return state_.load() / RUN != last_run; };
        if (!spin_until(is_ready, SPIN_TIME)) {
            std::unique_lock<std::mutex> lock(mutex_);
            sleeping_.fetch_add(1);
            wake_.wait(lock, is_ready);
            sleeping_.fetch_sub(1);
        }
        if (stopping_) return;
        uint64_t state = state_.load();
        while (state % RUN < CLOSED && !state_.compare_exchange_weak(state, state + 1)) {}
        last_run = state / RUN;
        if (state % RUN >= CLOSED) continue;
        call_(data_, teams_[size_t(thread)], thread);
        if (state_.fetch_sub(1) % RUN == CLOSED + 1 && waiting_.load()) {
            const std::lock_guard<std::mutex> lock(mutex_);
            done_.notify_one();
        }
    }
}

}  // namespace ownwords::engine
