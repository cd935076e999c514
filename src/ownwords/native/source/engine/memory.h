// Room for weights and scratch: zeros, given back at the end, in large pages where there are any.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace ownwords::engine {

class Memory {
   public:
    Memory() = default;

    explicit Memory(size_t bytes) : size_(bytes) {
        if (bytes == 0) return;
        void *made =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED) throw std::bad_alloc();
        start_ = static_cast<unsigned char *>(made);
#if defined(MADV_HUGEPAGE)
        // Streams of weights otherwise wait for the addresses of their pages.
        if (bytes >= HUGE_PAGE) madvise(made, bytes, MADV_HUGEPAGE);
#endif
    }

    Memory(Memory &&other) noexcept { *this = std::move(other); }

    Memory &operator=(Memory &&other) noexcept {
        std::swap(start_, other.start_);
        std::swap(size_, other.size_);
        return *this;
    }

    ~Memory() {
        if (start_ != nullptr) munmap(start_, size_);
    }

    unsigned char *start() const { return start_; }
    size_t size() const { return size_; }

   private:
    static constexpr size_t HUGE_PAGE = size_t(2) << 20;
    unsigned char *start_ = nullptr;
    size_t size_ = 0;
};

}  // namespace ownwords::engine
