#include "train/parallel.h"

#include <memory>

#include "engine/thread_pool.h"

namespace ownwords {

OpenMpThreads openmp;

// The same functions on a pool of our own, for systems where torch has no OpenMP runtime to share.
namespace {

std::unique_ptr<engine::ThreadPool> pool;
thread_local int team_threads = 1, team_thread = 0;

void fork_pool(void (*region)(void *), void *data, unsigned threads, unsigned) {
    pool->run([=](engine::ThreadTeam &, int thread) {
        if (thread >= int(threads)) return;
        team_threads = int(threads), team_thread = thread;
        region(data);
        team_threads = 1, team_thread = 0;
    });
}

int pool_threads() { return pool->threads(); }
int get_team_threads() { return team_threads; }
int get_team_thread() { return team_thread; }

}  // namespace
}  // namespace ownwords

void ownwords_set_openmp(void *fork, void *max_threads, void *num_threads, void *thread_num) {
    using ownwords::openmp;
    openmp.max_threads = reinterpret_cast<int (*)()>(max_threads);
    openmp.num_threads = reinterpret_cast<int (*)()>(num_threads);
    openmp.thread_num = reinterpret_cast<int (*)()>(thread_num);
    openmp.fork = reinterpret_cast<void (*)(void (*)(void *), void *, unsigned, unsigned)>(fork);
}

int ownwords_set_threads(int64_t threads) {
    using namespace ownwords;
    if (threads < 1 || threads > 1024) return STATUS_BAD_COUNT;
    return with_status([&] {
        pool = std::make_unique<engine::ThreadPool>(int(threads));
        openmp = {fork_pool, pool_threads, get_team_threads, get_team_thread};
        return STATUS_OK;
    });
}
