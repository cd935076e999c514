#include "engine/system.h"

#include <cstdint>
#include <new>

#if defined(_WIN32)
#undef Long  // of first.h: these are the system's own
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace ownwords::engine {

#if defined(_WIN32)

void *take_pages(size_t bytes) {
    void *made = VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    if (made == nullptr) throw std::bad_alloc();
    return made;
}

void give_back_pages(void *from, size_t) noexcept { VirtualFree(from, 0, MEM_RELEASE); }

// The system takes them when it needs them.
void forget_pages(const void *, size_t) {}

int process() { return 0; }  // there are no forks

struct Undisturbed::Before {};
Undisturbed::Undisturbed() : before_(nullptr) {}  // nor signals that threads could get
Undisturbed::~Undisturbed() = default;

#else

void *take_pages(size_t bytes) {
    void *made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    // Streams of weights otherwise wait for the addresses of their pages.
    constexpr size_t HUGE_PAGE = size_t(2) << 20;
    if (bytes >= HUGE_PAGE) madvise(made, bytes, MADV_HUGEPAGE);
#endif
    return made;
}

void give_back_pages(void *from, size_t bytes) noexcept { munmap(from, bytes); }

void forget_pages(const void *from, size_t bytes) {
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(from);
    const uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    if (first < end) madvise(reinterpret_cast<void *>(first), end - first, MADV_DONTNEED);
}

int process() { return int(getpid()); }

struct Undisturbed::Before {
    sigset_t signals;
};

Undisturbed::Undisturbed() : before_(new Before) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_->signals);
}

Undisturbed::~Undisturbed() {
    pthread_sigmask(SIG_SETMASK, &before_->signals, nullptr);
    delete before_;
}

#endif

#if defined(__linux__)

int processor() { return sched_getcpu(); }

bool leave_processors(const int *taken, int count, int least) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
    if (CPU_COUNT(&allowed) < least) return false;
    cpu_set_t others = allowed;
    for (int i = 0; i < count; ++i)
        if (taken[i] >= 0 && taken[i] < CPU_SETSIZE) CPU_CLR(size_t(taken[i]), &others);
    if (CPU_COUNT(&others) == 0) return true;
    if (sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof allowed, &allowed);
    return true;
}

#else

int processor() { return -1; }

bool leave_processors(const int *, int, int) { return false; }

#endif

}  // namespace ownwords::engine
