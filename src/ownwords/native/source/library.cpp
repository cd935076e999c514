// What the loader asks of the library itself.
#include "numbers.h"
#include "threads.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

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

#if defined(__x86_64__)
namespace {

// Whether there are tiles, and the system lets this process use them: it must be asked.
bool has_tiles() {
#if defined(__linux__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    const unsigned wanted = 1u << 22 | 1u << 24 | 1u << 25;  // bfloat16, tiles, int8
    constexpr Long ASK = 0x1023, TILES = 18;                 // ARCH_REQ_XCOMP_PERM
    return (d & wanted) == wanted && syscall(SYS_arch_prctl, ASK, TILES) == 0;
#else
    return false;
#endif
}

}  // namespace
#endif

// The best level of instructions this processor and its system have: 6 AVX-512 with bfloat16 and
// tiles, 5 with bfloat16 and dot products of bytes, 4 AVX-512, 3 AVX2, 1 NEON with dot products of
// bytes, 0 others.
OWNWORDS_API int ownwords_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    const bool v5 = v4 && __builtin_cpu_supports("avx512bf16") &&
                    __builtin_cpu_supports("avx512vnni");
    return v5 ? (has_tiles() ? 6 : 5) : v4 ? 4 : v3 ? 3 : 0;
#elif defined(__aarch64__) && defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? 1 : 0;
#else
    return 0;  // on a Mac's own processors what is compiled for any has them already
#endif
}
