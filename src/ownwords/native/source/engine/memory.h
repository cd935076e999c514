// Room for weights and scratch: zeros, given back at the end.
#pragma once

#include <cstddef>
#include <utility>

#include "engine/system.h"

namespace ownwords::engine {

class Memory {
   public:
    Memory() = default;

    explicit Memory(size_t bytes) : size_(bytes) {
        if (bytes > 0) start_ = static_cast<unsigned char *>(take_pages(bytes));
    }

    Memory(Memory &&other) noexcept { *this = std::move(other); }

    Memory &operator=(Memory &&other) noexcept {
        std::swap(start_, other.start_);
        std::swap(size_, other.size_);
        return *this;
    }

    ~Memory() {
        if (start_ != nullptr) give_back_pages(start_, size_);
    }

    unsigned char *start() const { return start_; }
    size_t size() const { return size_; }

   private:
    unsigned char *start_ = nullptr;
    size_t size_ = 0;
};

}  // namespace ownwords::engine
