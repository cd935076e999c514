// One pool of threads: the one torch computes with, whose OpenMP functions it is handed.
#pragma once

#include <algorithm>

#include "long.h"

namespace ownwords {

using Region = void (*)(void *);

struct Pool {
    void (*fork)(Region, void *, unsigned threads, unsigned flags) = nullptr;  // GOMP_parallel
    int (*most)() = nullptr;                                                   // omp_get_max_threads
    int (*team)() = nullptr;                                                   // omp_get_num_threads
    int (*number)() = nullptr;                                                 // omp_get_thread_num
};

extern Pool pool;

// How many parts `parallel` cuts so much work into at most.
inline int parts(Long count, Long grain) {
    if (pool.fork == nullptr || count <= grain) return 1;
    return static_cast<int>(std::min<Long>(pool.most(), (count + grain - 1) / grain));
}

// body(begin, end, part) for all of [0, count), in parts of `grain` or more.
template <typename Body>
void parallel(Long count, Long grain, const Body &body) {
    const int wanted = parts(count, grain);
    if (wanted == 1) {
        body(Long(0), count, 0);
        return;
    }
    struct Job {
        const Body &body;
        Long count;
    } job{body, count};
    pool.fork(
        [](void *data) {
            const Job &job = *static_cast<Job *>(data);
            const Long team = pool.team(), number = pool.number();
            job.body(job.count * number / team, job.count * (number + 1) / team, int(number));
        },
        &job, unsigned(wanted), 0);
}

}  // namespace ownwords
