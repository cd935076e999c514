"""The copy guard's question in C++: `ownwords_guard` of the compiled library."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.native.sampling import function, pointer

_P, _L = ctypes.c_void_p, ctypes.c_int64
_INT = np.dtype(np.int32)
_MORE, _OUT_OF_MEMORY = -1, -2
_TAIL = 64  # ids that nearly always tell
_Ids = ctypes.c_int32 * 64


class _Table(ctypes.Structure):
    """As in source/engine/guard.cpp."""

    _fields_ = (
        *((name, _P) for name in ("offsets", "marks", "values")),
        *((name, _L) for name in ("bits", "entries", "wide")),
    )


_ARRAYS = (
    "pieces.offsets",
    "pieces.bytes",
    "pieces.breaks",
    "nodes.parents",
    "nodes.offsets",
    "nodes.ids",
)
_SIZES = ("vocabulary", "piece_bytes", "nodes", "id_count", "longest", "run_of_words")


class _Index(ctypes.Structure):
    """As in source/engine/guard.cpp."""

    _fields_ = (
        ("tokens", _Table),
        ("words", _Table),
        *((name.replace(".", "_"), _P) for name in _ARRAYS),
        *((name, _L) for name in _SIZES),
    )


class NativeCopyGuard:
    """An index ready to be asked; it keeps the arrays that it is made of."""

    def __init__(
        self,
        function: Callable[..., int],
        longest: int,
        words: int,
        bits: tuple[int, int],
        arrays: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        self._function = function
        self._arrays = dict(arrays)
        tables = [self._table(name, n) for name, n in zip(("tokens", "words"), bits, strict=True)]
        places = [arrays[name].ctypes.data for name in _ARRAYS]
        sizes = [len(arrays[name]) for name in ("pieces.breaks", "pieces.bytes", "nodes.parents")]
        self._index = _Index(*tables, *places, *sizes, len(arrays["nodes.ids"]), longest, words)
        self.at = ctypes.addressof(self._index)  # as long as this object is there

    def _table(self, name: str, bits: int) -> _Table:
        offsets, marks, values = (
            self._arrays[f"{name}.{part}"] for part in ("offsets", "marks", "values")
        )
        places = (offsets.ctypes.data, marks.ctypes.data, values.ctypes.data)
        return _Table(*places, bits, len(marks), values.itemsize == 4)

    def __call__(self, history: Sequence[int] | npt.NDArray[np.int32]) -> Sequence[int]:
        """The ids that must not follow this history."""
        length = len(history)
        tail = history if isinstance(history, np.ndarray) else history[-_TAIL:]
        ids: ctypes.Array[ctypes.c_int32] = _Ids()
        while True:
            tail, place = pointer(tail, _INT) if length else (tail, None)
            count = self._function(self.at, place, len(tail), len(tail) == length, ids, len(ids))
            if count == 0:
                return ()
            if 0 < count <= len(ids):
                return ids[:count]
            if count == _MORE:
                tail = history
            elif count == _OUT_OF_MEMORY:
                raise MemoryError
            else:
                ids = (ctypes.c_int32 * count)()


@cache
def _function() -> Callable[..., int] | None:
    return function("guard", [_P, _P, _L, ctypes.c_int, _P, _L])


def native_copy_guard(
    longest: int, words: int, bits: tuple[int, int], arrays: Mapping[str, npt.NDArray[Any]]
) -> NativeCopyGuard | None:
    """The index of inference/guard.py in C++, or None where the compiled library is not there."""
    found = _function()
    return None if found is None else NativeCopyGuard(found, longest, words, bits, arrays)
