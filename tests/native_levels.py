"""The part in C++ at each level of instructions that was built and that runs here."""

import ctypes

from ownwords.native import build, library
from ownwords.native.library import Kernels


def levels() -> list[int]:
    """The plain one first; none where nothing was built."""
    best = library.kernels()
    if best is None:
        return []
    return [each for each in build.LEVELS if each <= best.level and build.library(each).exists()]


def kernels_at(level: int) -> Kernels:
    """Those of a level, whatever else this processor could do."""
    return Kernels(ctypes.CDLL(str(build.library(level))), level)
