// What the loader asks of the library itself.
#include "numbers.h"
#include "threads.h"

namespace ownwords {
Pool pool;
}

// The threads to compute with; without them all is done on the caller's own.
OWNWORDS_API void ownwords_threads(void *fork, void *most, void *team, void *number) {
    using namespace ownwords;
    pool.most = reinterpret_cast<int (*)()>(most);
    pool.team = reinterpret_cast<int (*)()>(team);
    pool.number = reinterpret_cast<int (*)()>(number);
    pool.fork = reinterpret_cast<void (*)(Region, void *, unsigned, unsigned)>(fork);
}

// The best level of instructions this processor and its system have: 5 AVX-512 with
// bfloat16, 4 AVX-512, 3 AVX2, 0 others.
OWNWORDS_API int ownwords_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    const bool v5 = v4 && __builtin_cpu_supports("avx512bf16");
    return v5 ? 5 : v4 ? 4 : v3 ? 3 : 0;
#else
    return 0;
#endif
}
