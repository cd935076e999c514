#include "engine/os.h"

#include <new>

#if defined(_WIN32)
#undef Long
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#endif

namespace ownwords::engine {

#if defined(_WIN32)

void *allocate_pages(size_t bytes) {
    void *pages = VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    if (pages == nullptr) throw std::bad_alloc();
    return pages;
}

void free_pages(void *from, size_t) noexcept { VirtualFree(from, 0, MEM_RELEASE); }

int process_id() { return 0; }  // there is no fork

void with_blocked_signals(const std::function<void()> &body) { body(); }  // nor are there signals

#else

void *allocate_pages(size_t bytes) {
    void *pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    // Fewer TLB misses while weights are streamed.
    constexpr size_t HUGE_PAGE = size_t(2) << 20;
    if (bytes >= HUGE_PAGE) madvise(pages, bytes, MADV_HUGEPAGE);
#endif
    return pages;
}

void free_pages(void *from, size_t bytes) noexcept { munmap(from, bytes); }

int process_id() { return int(getpid()); }

void with_blocked_signals(const std::function<void()> &body) {
    struct Block {
        sigset_t before;
        Block() {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        ~Block() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    } block;
    body();
}

#endif

}  // namespace ownwords::engine
