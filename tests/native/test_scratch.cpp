// Scratch memory after allocations that failed: its blocks stay apart, and it goes on.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "simd/scratch.h"

namespace {

int failures = 0;
size_t limit = ~size_t(0);  // bytes; a larger block cannot be had

void expect(bool condition, const char *what) {
    if (condition) return;
    ++failures;
    std::printf("failed: %s\n", what);
}

bool fails(ownwords::ThreadArena &arena, size_t bytes) {
    try {
        arena.allocate(bytes);
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

}  // namespace

void *operator new(size_t bytes, std::align_val_t) {
    void *at = bytes > limit ? nullptr : std::aligned_alloc(64, bytes);
    if (at == nullptr) throw std::bad_alloc();
    return at;
}
void operator delete(void *at, std::align_val_t) noexcept { std::free(at); }

int main() {
    {
        ownwords::ThreadArena arena;
        arena.release(arena.allocate(4096), 4096);
        void *inside = arena.allocate(1024);  // the arena has 4096 bytes now
        limit = 8192;
        expect(fails(arena, 16384), "a block beyond the limit fails");
        void *next = arena.allocate(1024);
        expect(next == static_cast<char *>(inside) + 1024, "the next block follows the first");
        arena.release(next, 1024);
        arena.release(inside, 1024);  // not freed by itself: it is a part of the arena
        void *again = arena.allocate(1024);
        expect(again == inside, "the arena did not grow for what failed");
        arena.release(again, 1024);
    }
    {
        limit = ~size_t(0);
        ownwords::ThreadArena arena;
        void *first = arena.allocate(6144), *second = arena.allocate(6144);
        arena.release(second, 6144);
        arena.release(first, 6144);
        limit = 8192;  // less than both together
        expect(fails(arena, 1024), "the arena cannot grow to both at once");
        void *small = arena.allocate(1024);
        expect(small != nullptr, "smaller blocks can be had after that");
        arena.release(small, 1024);
    }
    if (failures == 0) std::printf("scratch memory: all as it should be\n");
    return failures != 0;
}
