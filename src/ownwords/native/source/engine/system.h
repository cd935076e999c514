// What the engine asks of the system. Which system it is, only system.cpp knows.
#pragma once

#include <cstddef>

namespace ownwords::engine {

// Zeros, in large pages where there are any; throws std::bad_alloc.
void *take_pages(size_t bytes);
void give_back_pages(void *from, size_t bytes) noexcept;

// The whole pages there, of a mapped file, need not be kept: read again, they come from the file.
void forget_pages(const void *from, size_t bytes);

// A number that is another one after a fork.
int process();

// While it lives, this thread gets no signals; nor ever do the threads that it makes.
class Undisturbed {
  public:
    Undisturbed();
    ~Undisturbed();
    Undisturbed(const Undisturbed &) = delete;
    Undisturbed &operator=(const Undisturbed &) = delete;

  private:
    struct Before;
    Before *before_;
};

// Where this thread is; -1 where that is not told.
int processor();

// Move this thread away from these, if it may be on `least` processors or more, and so on others.
// Whether that was tried.
bool leave_processors(const int *taken, int count, int least);

}  // namespace ownwords::engine
