"""The copy guard's lookup in C++, by `ownwords_banned_ids` of the compiled library."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.native.bindings import NativeLibrary, interface, load_library
from ownwords.native.sampling import pointer

_INT = np.dtype(np.int32)
_TAIL = 64  # number of last ids that nearly every lookup needs at most
_Ids = ctypes.c_int32 * 64


class NativeCopyGuard:
    """An n-gram index for lookups in C++; it keeps its arrays alive."""

    def __init__(
        self,
        library: NativeLibrary,
        longest: int,
        words: int,
        bits: tuple[int, int],
        arrays: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        self._banned_ids = library.banned_ids
        self._arrays = arrays = dict(arrays)
        tables = [self._table(name, n) for name, n in zip(("tokens", "words"), bits, strict=True)]
        self._index = interface().structs["NgramIndex"](
            *tables,
            piece_offsets=arrays["pieces.offsets"].ctypes.data,
            pieces=arrays["pieces.bytes"].ctypes.data,
            breaks=arrays["pieces.breaks"].ctypes.data,
            parents=arrays["nodes.parents"].ctypes.data,
            id_offsets=arrays["nodes.offsets"].ctypes.data,
            ids=arrays["nodes.ids"].ctypes.data,
            vocabulary=len(arrays["pieces.breaks"]),
            piece_bytes=len(arrays["pieces.bytes"]),
            nodes=len(arrays["nodes.parents"]),
            id_count=len(arrays["nodes.ids"]),
            max_tokens=longest,
            max_words=words,
        )
        self.at = ctypes.addressof(self._index)
        constants = interface().constants
        self._needs_history = constants["GUARD_NEEDS_HISTORY"]
        self._no_memory = constants["GUARD_NO_MEMORY"]

    def _table(self, name: str, bits: int) -> Any:  # noqa: ANN401 - a structure of ctypes
        offsets, marks, values = (
            self._arrays[f"{name}.{part}"] for part in ("offsets", "marks", "values")
        )
        places = (offsets.ctypes.data, marks.ctypes.data, values.ctypes.data)
        return interface().structs["HashTable"](*places, bits, len(marks), values.itemsize == 4)

    def __call__(self, history: Sequence[int] | npt.NDArray[np.int32]) -> Sequence[int]:
        """Return the ids that must not follow this history."""
        length = len(history)
        tail = history if isinstance(history, np.ndarray) else history[-_TAIL:]
        ids: ctypes.Array[ctypes.c_int32] = _Ids()
        while True:
            tail, place = pointer(tail, _INT) if length else (tail, None)
            count: int = self._banned_ids(
                self.at, place, len(tail), len(tail) == length, ids, len(ids)
            )
            if count == 0:
                return ()
            if 0 < count <= len(ids):
                return ids[:count]
            if count == self._needs_history:
                tail = history
            elif count == self._no_memory:
                raise MemoryError
            else:
                ids = (ctypes.c_int32 * count)()


def native_copy_guard(
    longest: int, words: int, bits: tuple[int, int], arrays: Mapping[str, npt.NDArray[Any]]
) -> NativeCopyGuard | None:
    """Create the copy guard's C++ index; None without the compiled library."""
    library = load_library()
    return None if library is None else NativeCopyGuard(library, longest, words, bits, arrays)
