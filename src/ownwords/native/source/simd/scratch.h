// Uninitialized scratch memory, aligned for vectors and tiles. Each thread reuses its own: allocating
// for every tile of tokens would take as long as computing it.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "simd/vec.h"

namespace ownwords {

// A thread's stack of allocations.
class ThreadArena {
  public:
    ThreadArena() = default;
    ~ThreadArena() { free_aligned(data_); }
    ThreadArena(const ThreadArena &) = delete;
    ThreadArena &operator=(const ThreadArena &) = delete;

    // Grows only when it is empty; until then, what does not fit is allocated separately. Nothing is
    // counted before it is allocated, because a thread continues after a failed allocation.
    void *allocate(size_t bytes) {
        if (used_ == 0 && peak_ > size_) {
            free_aligned(data_);
            data_ = nullptr, size_ = 0;
            const size_t wanted = std::exchange(peak_, 0);
            data_ = allocate_aligned(wanted);
            size_ = peak_ = wanted;
        }
        const size_t used = used_ + bytes;
        char *at = used <= size_ ? data_ + used_ : allocate_aligned(bytes);
        used_ = used;
        if (used_ > peak_) peak_ = used_;
        return at;
    }

    void release(void *from, size_t bytes) {
        if (used_ > size_) free_aligned(static_cast<char *>(from));
        used_ -= bytes;
    }

  private:
    static char *allocate_aligned(size_t bytes) {
        return static_cast<char *>(::operator new(bytes, std::align_val_t(64)));
    }
    static void free_aligned(char *at) { ::operator delete(at, std::align_val_t(64)); }

    char *data_ = nullptr;
    size_t size_ = 0, used_ = 0, peak_ = 0;
};

// A function, as MinGW's linker rejects inline thread_local variables.
inline ThreadArena &thread_arena() {
    static thread_local ThreadArena store;
    return store;
}

template <typename T>
class ScratchBuffer {
  public:
    explicit ScratchBuffer(i64 count)
        : bytes_((size_t(count) * sizeof(T) + 63) / 64 * 64),
          data_(static_cast<T *>(thread_arena().allocate(bytes_))) {}
    ~ScratchBuffer() { thread_arena().release(data_, bytes_); }
    ScratchBuffer(const ScratchBuffer &) = delete;
    ScratchBuffer &operator=(const ScratchBuffer &) = delete;
    operator T *() const { return data_; }

  private:
    size_t bytes_;
    T *data_;
};

// Assigns consecutive parts of a buffer; with null it only measures their size.
class MemoryLayout {
  public:
    explicit MemoryLayout(void *at) : base_(static_cast<char *>(at)) {}

    template <typename T>
    T *next(i64 count) {
        T *result = base_ == nullptr ? nullptr : reinterpret_cast<T *>(base_ + used_);
        used_ += (count * i64(sizeof(T)) + 63) / 64 * 64;
        return result;
    }
    i64 used() const { return used_; }

  private:
    char *base_;
    i64 used_ = 0;
};

}  // namespace ownwords
