// Memory, processes and signals of the operating system.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

namespace ownwords::engine {

// Zeroed memory, in huge pages where possible. Throws std::bad_alloc.
void *allocate_pages(size_t bytes);
void free_pages(void *from, size_t bytes) noexcept;

// Changes in a fork.
int process_id();

// Call body() with all signals blocked for this thread and for the threads that it starts.
void with_blocked_signals(const std::function<void()> &body);

// Zeroed memory for weights and buffers.
class PageBuffer {
  public:
    PageBuffer() = default;

    explicit PageBuffer(size_t bytes) : size_(bytes) {
        if (bytes > 0) start_ = static_cast<unsigned char *>(allocate_pages(bytes));
    }

    PageBuffer(PageBuffer &&other) noexcept { *this = std::move(other); }

    PageBuffer &operator=(PageBuffer &&other) noexcept {
        std::swap(start_, other.start_);
        std::swap(size_, other.size_);
        return *this;
    }

    ~PageBuffer() {
        if (start_ != nullptr) free_pages(start_, size_);
    }

    unsigned char *start() const { return start_; }
    size_t size() const { return size_; }

  private:
    unsigned char *start_ = nullptr;
    size_t size_ = 0;
};

}  // namespace ownwords::engine
