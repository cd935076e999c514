// Parts of one buffer that the caller provides.
#pragma once

#include "simd/types.h"

namespace ownwords {

// Assigns consecutive parts of a buffer; with null it only measures.
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
