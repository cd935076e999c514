// The instruction sets of this processor, and the sources that this library was compiled from.
// Tests compile this file by itself.
#include "api.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
namespace {

// Whether the processor has AMX, and Linux grants it to this process, which must request it.
bool has_amx() {
#if defined(__linux__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    const unsigned features = 1u << 22 | 1u << 24 | 1u << 25;  // amx_bf16, amx_tile, amx_int8
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    return (d & features) == features &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

// Whether the processor has what -march=x86-64-v3 lets the compiler use. The compiler's own function
// checks AVX2 and the system's support of its registers; older compilers do not know all other names.
bool has_v3() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    // SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, F16C
    const unsigned basic = 1u << 0 | 1u << 9 | 1u << 12 | 1u << 13 | 1u << 19 | 1u << 20 |
                           1u << 22 | 1u << 23 | 1u << 27 | 1u << 29;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & basic) != basic) return false;
    const unsigned bmi = 1u << 3 | 1u << 8;  // BMI1, BMI2
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & bmi) != bmi) return false;
    const unsigned extended = 1u << 0 | 1u << 5;  // LAHF and SAHF, LZCNT
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d) == 0) return false;
    return (c & extended) == extended && __builtin_cpu_supports("avx2");
}

bool has_avx_vnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 4) != 0;
}

}  // namespace
#endif

int ownwords_best_isa(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = has_v3();
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vnni");
    if (avx512 && __builtin_cpu_supports("avx512bf16"))
        return has_amx() ? ISA_AMX : ISA_AVX512BF16;
    if (avx512) return ISA_AVX512;
    return !avx2 ? ISA_BASELINE : has_avx_vnni() ? ISA_AVXVNNI : ISA_AVX2;
#elif defined(__aarch64__) && defined(__linux__)
    constexpr unsigned long BF16 = 1ul << 14;  // HWCAP2_BF16, which older headers lack
    // What the compiler may use with -march=armv8.2-a+dotprod.
    constexpr unsigned long USED =
        HWCAP_ATOMICS | HWCAP_CRC32 | HWCAP_ASIMDRDM | HWCAP_ASIMDDP;
    if ((getauxval(AT_HWCAP) & USED) != USED) return ISA_BASELINE;
    return getauxval(AT_HWCAP2) & BF16 ? ISA_NEON_BF16 : ISA_NEON_DOTPROD;
#else
    return ISA_BASELINE;  // compilers for Apple's processors use all of their instructions
#endif
}

int ownwords_runs_isa(int isa) {
#if defined(__x86_64__)
    if (isa == ISA_AVXVNNI && !has_avx_vnni()) return 0;
#endif
    return isa <= ownwords_best_isa();
}

#if !defined(OWNWORDS_SOURCE_HASH)
#define OWNWORDS_SOURCE_HASH ""
#endif

const char *ownwords_source_hash(void) { return OWNWORDS_SOURCE_HASH; }
