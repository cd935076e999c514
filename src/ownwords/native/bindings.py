"""The compiled library: found, checked against the processor, and told which threads to use.

OWNWORDS_NATIVE=0 in the environment leaves it aside.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from ownwords.native.build import LEVELS, SOURCES, library

_P, _F, _I = ctypes.c_void_p, ctypes.c_float, ctypes.c_int
_L = ctypes.c_int64  # `Long` of long.h
_SIGNATURES: dict[str, Sequence[type]] = {
    "threads": (_P, _P, _P, _P),
    "norm": (_I, _P, _P, _P, _P, _L, _L, _F, _F),
    "norm_back": (_I, _P, _P, _P, _P, _P, _P, _L, _L, _F),
    "gate": (_I, _I, _P, _P, _L, _L),
    "gate_back": (_I, _I, _P, _P, _P, _L, _L),
    "gelu": (_I, _P, _P, _L),
    "gelu_back": (_I, _P, _P, _P, _L),
    "heads": (_I, _P, _P, _P, _P, _P, _P, *[_L] * 5, _F, _F),
    "heads_back": (_I, _P, _P, _P, _P, _P, _P, _P, _P, *[_L] * 5, _F, _F),
    "attention": (_I, _P, _P, _P, _P, *[_L] * 6, _F),
    "attention_back": (_I, _P, _P, _P, _P, _P, *[_L] * 6, _F),
    "entropy": (_I, _P, _P, _P, _P, _L, _L, _F, _I),
    "block_sizes": (_P,),
    "block": (_P,),
    "block_back": (_P,),
    "muon": (_P, _L, _F, _F, _L),
    "adamw": (_I, _P, _P, _P, _P, _P, _L, *[_F] * 8),
}
_THREADS = ("GOMP_parallel", "omp_get_max_threads", "omp_get_num_threads", "omp_get_thread_num")


class NativeLibrary:
    """The functions of a loaded library, by name; `level` is that of its instructions."""

    def __init__(self, loaded: ctypes.CDLL, level: int) -> None:
        self.level = level
        self.loaded = loaded
        self.shares_threads = False
        self._functions: dict[str, Callable[..., None]] = {}
        for name, arguments in _SIGNATURES.items():
            function = getattr(loaded, f"ownwords_{name}")
            function.argtypes, function.restype = list(arguments), None
            self._functions[name] = function

    def __getitem__(self, name: str) -> Callable[..., None]:
        return self._functions[name]

    def use_threads_of(self, loaded: ctypes.CDLL) -> None:
        """Compute with the OpenMP threads that this library computes with, if there are any."""
        try:
            found = [ctypes.cast(getattr(loaded, name), _P) for name in _THREADS]
        except AttributeError:
            return
        self._functions["threads"](*found)
        self.shares_threads = True


@cache
def load_library(folder: Path = SOURCES.parent) -> NativeLibrary | None:
    """The best library for this processor that can be loaded; None if left aside, or there is none.

    The plain one is there to be asked what the processor has: others may not even be loaded.
    """
    if os.environ.get("OWNWORDS_NATIVE") == "0":
        return None
    try:
        plain = ctypes.CDLL(str(library(0, folder)))
        plain.ownwords_level.restype = _I
        best = plain.ownwords_level()
    except (OSError, AttributeError):
        return None
    for level in sorted((each for each in LEVELS if each <= best), reverse=True):
        try:
            return NativeLibrary(ctypes.CDLL(str(library(level, folder))), level)
        except (OSError, AttributeError):
            continue  # not built, damaged, or of another version
    return None


def describe() -> str:
    """Which library is in use, for people; empty where none is."""
    names = {
        0: "for any processor",
        1: "for NEON's dot products",
        3: "for AVX2",
        6: "for AVX-512 and AMX",
    }
    found = load_library()
    return f"compiled kernels {names.get(found.level, 'for AVX-512')}" if found else ""


def missing_reason() -> str:
    """Why there is none in use, in a few words; empty where there is one."""
    if load_library() is not None:
        return ""
    if os.environ.get("OWNWORDS_NATIVE") == "0":
        return "the part in C++ is switched off by OWNWORDS_NATIVE=0"
    if not library(0).exists():
        return "the part in C++ was not compiled"
    return "the part in C++ cannot be loaded; it may be damaged, or of another version"
