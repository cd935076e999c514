#include "engine/thread_pool.h"

#include <chrono>
#include <system_error>

#include "engine/os.h"

namespace ownwords::engine {
namespace {

// Some microseconds, the length of a small model's phase; then yield.
constexpr int SPINS = 300;
constexpr int YIELDS = 1500;  // about a millisecond

inline void cpu_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

template <typename Ready>
bool spin_until(const Ready &is_ready) {
    for (int i = 0; i < SPINS; ++i) {
        if (is_ready()) return true;
        cpu_pause();
    }
    for (int i = 0; i < YIELDS; ++i) {
        if (is_ready()) return true;
        std::this_thread::yield();
    }
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
        const int partner = (thread_ + step) % threads;
        signals_[partner].rounds[round].reached.store(phase_, std::memory_order_release);
        const std::atomic<uint32_t> &own_signal = signals_[thread_].rounds[round].reached;
        const auto is_ready = [&] {
            return int32_t(own_signal.load(std::memory_order_acquire) - phase_) >= 0;
        };
        if (spin_until(is_ready)) continue;
        while (!is_ready()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

ThreadPool::ThreadPool(int threads) : process_id_(process_id()) {
    const int max_threads = std::max(1, std::min(threads, 1 << BarrierSignals::ROUNDS));
    signals_ = std::make_unique<BarrierSignals[]>(size_t(max_threads));
    teams_.resize(size_t(max_threads));
    workers_.reserve(size_t(max_threads));
    int count = 1;
    try {
        const BlockedSignals block_signals;
        for (; count < max_threads; ++count)
            workers_.emplace_back([this, count] { worker_loop(count); });
    } catch (const std::system_error &) {
        // As many as the system allows.
    }
    teams_.resize(size_t(count));
    for (int thread = 0; thread < count; ++thread)
        teams_[size_t(thread)] = ThreadTeam(signals_.get(), thread, count);
}

ThreadPool::~ThreadPool() {
    if (is_forked()) {
        for (std::thread &worker : workers_) worker.detach();
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        runs_.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread &worker : workers_) worker.join();
}

// After a fork the other threads are gone: the caller does everything.
bool ThreadPool::is_forked() const { return process_id() != process_id_; }

void ThreadPool::start(Call call, const void *data) {
    const std::lock_guard<std::mutex> lock(run_mutex_);
    if (workers_.empty() || is_forked()) {
        ThreadTeam single;
        call(data, single, 0);
        return;
    }
    call_ = call;
    data_ = data;
    spread_over_cpus(0);
    runs_.fetch_add(1);
    if (sleeping_.load() > 0) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
        }
        wake_.notify_all();
    }
    call(data, teams_[0], 0);
    teams_[0].barrier();
}

// Move a thread that shares its CPU with an earlier one: under background load the scheduler leaves
// two threads that wait for each other on one CPU.
void ThreadPool::spread_over_cpus(int thread) {
    constexpr int MAX_CPU_MOVES = 1000;  // there may be no other CPU
    const int cpu = current_cpu();
    signals_[thread].current_cpu.store(cpu, std::memory_order_relaxed);
    if (cpu < 0 || cpu_moves_.load(std::memory_order_relaxed) >= MAX_CPU_MOVES) return;
    int taken_cpus[1 << BarrierSignals::ROUNDS];
    bool is_shared = false;
    for (int other = 0; other < thread; ++other) {
        taken_cpus[other] = signals_[other].current_cpu.load(std::memory_order_relaxed);
        is_shared |= taken_cpus[other] == cpu;
    }
    if (!is_shared || !move_off_cpus(taken_cpus, thread, int(teams_.size()))) return;
    cpu_moves_.fetch_add(1, std::memory_order_relaxed);
    signals_[thread].current_cpu.store(current_cpu(), std::memory_order_relaxed);
}

void ThreadPool::worker_loop(int thread) {
    uint32_t last_run = 0;
    for (;;) {
        const auto is_ready = [&] {
            return runs_.load(std::memory_order_acquire) != last_run;
        };
        if (!spin_until(is_ready)) {
            std::unique_lock<std::mutex> lock(mutex_);
            sleeping_.fetch_add(1);
            wake_.wait(lock, [&] { return runs_.load() != last_run; });
            sleeping_.fetch_sub(1);
        }
        ++last_run;
        if (stopping_) return;
        spread_over_cpus(thread);
        ThreadTeam &team = teams_[size_t(thread)];
        call_(data_, team, thread);
        team.barrier();
    }
}

}  // namespace ownwords::engine
