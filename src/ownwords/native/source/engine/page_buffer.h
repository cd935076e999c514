// Zeroed memory for weights and buffers.
#pragma once

#include <cstddef>
#include <utility>

#include "engine/os.h"

namespace ownwords::engine {

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
