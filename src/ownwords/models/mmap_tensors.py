"""The tensors of files as arrays, without a copy: the files are mapped into memory; no torch."""

import math
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.models.safetensors_header import TensorInfo
from ownwords.models.untrusted_files import ModelError, open_file

# NumPy knows no bfloat16: its bits.
_TYPES = {"F32": "<f4", "BF16": "<u2", "F16": "<f2", "I8": "i1", "U8": "u1"}

Array = npt.NDArray[Any]


def map_arrays(tensors: Iterable[TensorInfo]) -> dict[str, Array]:
    """The tensors by name, to be read only; a file stays mapped until none of its arrays is left.

    Only for the types of weights, and of packed codes. A mapped file that is cut short ends the
    process: a model directory is replaced whole and its files never written again.
    """
    maps: dict[Path, mmap.mmap] = {}
    found: dict[str, Array] = {}
    for stored in tensors:
        if stored.path not in maps:
            maps[stored.path] = _mapped(stored.path)
        whole, kind = maps[stored.path], np.dtype(_TYPES[stored.dtype])
        if stored.start + stored.nbytes > len(whole):
            raise ModelError(f"{stored.path} was cut short while it was opened")
        count = math.prod(stored.shape)
        if stored.start % kind.itemsize:  # as a file may be laid out, but no processor's numbers
            raw = np.frombuffer(whole, np.uint8, stored.nbytes, stored.start)
            flat = np.frombuffer(raw.tobytes(), kind)
        else:
            flat = np.frombuffer(whole, kind, count, stored.start)
        found[stored.name] = flat.reshape(stored.shape)
    return found


def is_mapped(array: Array) -> bool:
    """Whether its memory is a file's, and no copy."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def _mapped(path: Path) -> mmap.mmap:
    with open_file(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
