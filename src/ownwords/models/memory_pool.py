"""Reuses large buffers from step to step.

From the C heap, the activations that a step saves leave holes between smaller tensors, which take
as much memory again; mapped anew for each step, their pages would first be filled with zeros. Here
a buffer keeps its pages until it is used again.
"""

import mmap
import sys
import threading
import weakref

import torch
from torch import Tensor


class MemoryPool:
    """Buffers that return to the pool when the last tensor that uses them is gone."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def allocate(self, size: int) -> Tensor:
        """An uninitialized tensor of `size` bytes."""
        return self._tensor(self._unused(size) or self._map(size), size)

    def borrow(self, size: int) -> Tensor:
        """The same, from the system if no unused buffer is large enough, and back to it."""
        memory = self._unused(size)
        return self._tensor(memory, size) if memory else torch.empty(size, dtype=torch.uint8)

    def release(self) -> None:
        """Give all unused memory back to the system."""
        with self._lock:
            self._free.clear()

    def _tensor(self, memory: mmap.mmap, size: int) -> Tensor:
        view = memoryview(memory)
        # PyTorch holds a reference to the view until the tensor's memory is no longer used.
        weakref.finalize(view, self._free.append, memory).atexit = False
        return torch.frombuffer(view, dtype=torch.uint8, count=size)

    def _unused(self, size: int) -> mmap.mmap | None:
        """Take the smallest unused buffer that suffices."""
        with self._lock:
            # Tensors may be deleted at any time, so others may append to the list meanwhile.
            for memory in sorted(self._free, key=len):
                if len(memory) >= size:
                    self._free.remove(memory)
                    return memory
        return None

    def _map(self, size: int) -> mmap.mmap:
        """A new buffer, in place of an unused one that was too small: else their number grows."""
        with self._lock:
            if self._free:
                self._free.remove(max(self._free, key=len))
        if sys.platform == "win32":
            return mmap.mmap(-1, max(size, 1))
        return mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


pool = MemoryPool()
