"""The part in C++ at each level of instructions that was built and that runs here."""

import ctypes

from ownwords.native import bindings, build
from ownwords.native.bindings import NativeLibrary


def levels() -> list[int]:
    """The plain one first; none where nothing was built."""
    best = bindings.load_library()
    if best is None:
        return []
    return [each for each in build.LEVELS if each <= best.level and build.library(each).exists()]


def kernels_at(level: int) -> NativeLibrary:
    """Those of a level, whatever else this processor could do."""
    return NativeLibrary(ctypes.CDLL(str(build.library(level))), level)
