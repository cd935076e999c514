// Memory for a while: aligned for vectors and tiles, and left as it is found. What a thread gave
// back it takes again: asking the system for each tile of tokens would take as long as the tile.
#pragma once

#include <cstddef>
#include <new>

#include "long.h"

namespace ownwords {

// One thread's: what is taken last is given back first.
class Store {
  public:
    Store() = default;
    ~Store() { release(at_); }
    Store(const Store &) = delete;
    Store &operator=(const Store &) = delete;

    // Grows only while nothing of it is taken; until then what does not fit comes from elsewhere.
    void *take(size_t bytes) {
        if (taken_ == 0 && most_ > size_) {
            release(at_);
            at_ = nullptr, size_ = 0;
            at_ = fresh(most_);
            size_ = most_;
        }
        taken_ += bytes;
        if (taken_ > most_) most_ = taken_;
        return taken_ <= size_ ? at_ + (taken_ - bytes) : fresh(bytes);
    }

    void give_back(void *from, size_t bytes) {
        if (taken_ > size_) release(static_cast<char *>(from));
        taken_ -= bytes;
    }

  private:
    static char *fresh(size_t bytes) {
        return static_cast<char *>(::operator new(bytes, std::align_val_t(64)));
    }
    static void release(char *at) { ::operator delete(at, std::align_val_t(64)); }

    char *at_ = nullptr;
    size_t size_ = 0, taken_ = 0, most_ = 0;
};

// Not a variable of this file's own: the linker of Windows finds such in each that includes it.
inline Store &store_of_thread() {
    static thread_local Store store;
    return store;
}

template <typename T>
class Room {
  public:
    explicit Room(Long count)
        : bytes_((size_t(count) * sizeof(T) + 63) / 64 * 64),
          at_(static_cast<T *>(store_of_thread().take(bytes_))) {}
    ~Room() { store_of_thread().give_back(at_, bytes_); }
    Room(const Room &) = delete;
    Room &operator=(const Room &) = delete;
    operator T *() const { return at_; }

  private:
    size_t bytes_;
    T *at_;
};

}  // namespace ownwords
