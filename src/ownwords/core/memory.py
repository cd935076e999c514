"""What the C library does with memory that PyTorch has freed. Only glibc is told anything."""

import ctypes
import gc
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_UNLIMITED, _LARGE = 2**31 - 1, 2**25


def keep_freed_memory() -> None:
    """Keep it for the next training step.

    By default glibc returns it to the kernel, which then maps each large tensor anew and fills its
    pages with zeros: 5 to 15% of a step, measured.
    """
    _set_thresholds(_UNLIMITED)


def return_freed_memory() -> None:
    """Return it to the system, now and later: a large model is no longer needed."""
    gc.collect()  # modules and their closures are freed in cycles
    _set_thresholds(_LARGE)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _set_thresholds(value: int) -> None:
    with suppress(OSError, AttributeError, TypeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_MMAP_THRESHOLD, value)
        allocator.mallopt(_TRIM_THRESHOLD, value)
