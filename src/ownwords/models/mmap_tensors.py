"""Memory-maps tensors of safetensors files as NumPy arrays, without a copy and without torch."""

import math
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.models.safetensors_header import TensorInfo
from ownwords.models.untrusted_files import ModelError, open_file

# NumPy has no bfloat16, so its bits are mapped as uint16.
_TYPES = {"F32": "<f4", "BF16": "<u2", "F16": "<f2", "I8": "i1", "U8": "u1"}

Array = npt.NDArray[Any]


def map_arrays(tensors: Iterable[TensorInfo]) -> dict[str, Array]:
    """Read-only arrays by tensor name; a file stays mapped while any of its arrays exists.

    Only for the types of weights and packed codes. Truncating a mapped file would kill the process
    (SIGBUS); model directories are therefore replaced as a whole, and their files never rewritten.
    """
    maps: dict[Path, mmap.mmap] = {}
    by_name: dict[str, Array] = {}
    for stored in tensors:
        if stored.path not in maps:
            maps[stored.path] = _mapped(stored.path)
        mapped, kind = maps[stored.path], np.dtype(_TYPES[stored.dtype])
        if stored.start + stored.nbytes > len(mapped):
            raise ModelError(f"{stored.path} was cut short while it was opened")
        count = math.prod(stored.shape)
        if stored.start % kind.itemsize:  # copy unaligned data: arrays must be aligned
            raw = np.frombuffer(mapped, np.uint8, stored.nbytes, stored.start)
            flat = np.frombuffer(raw.tobytes(), kind)
        else:
            flat = np.frombuffer(mapped, kind, count, stored.start)
        by_name[stored.name] = flat.reshape(stored.shape)
    return by_name


def is_mapped(array: Array) -> bool:
    """Whether the array's memory is a mapped file rather than a copy."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def _mapped(path: Path) -> mmap.mmap:
    with open_file(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
