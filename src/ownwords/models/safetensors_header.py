"""Reads and writes safetensors files, and maps their tensors into memory; does not import torch.

The format: the header's length in 8 bytes, a JSON header, the bytes of the tensors without gaps.
The whole header is checked before any tensor is read. https://github.com/huggingface/safetensors.
"""

import json
import math
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from ownwords.models.untrusted_files import ModelError, open_file, parse_json, preview

# Enough for 60,000 tensors; the largest models have a few hundred per file.
MAX_HEADER_BYTES = 16 << 20

# Bits per number of every type in the format, to check sizes.
BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
# The supported types of weights.
FLOATS = ("F32", "BF16", "F16")

_Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    # Bounded, because multiplying a million large numbers would take hours.
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=8)]
    data_offsets: tuple[_Size, _Size]


@dataclass(frozen=True)
class TensorInfo:
    """A tensor in a file: type, shape, and the position of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    nbytes: int


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Read the entries of a file's tensors by name, in file order; ModelError if it is damaged."""
    return _read(path)[0]


def read_metadata(path: Path) -> dict[str, str]:
    """Read the `__metadata__` of a file; ModelError if the file is damaged."""
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise _damaged(path, f"it has {size:,} bytes, and a header of {length:,}")
        header = parse_json(file.read(length), f"the header of {path}")
    at = 8 + length
    try:
        metadata = msgspec.convert(header.pop("__metadata__", {}), dict[str, str])
        entries = msgspec.convert(header, dict[str, _Entry])
    except msgspec.ValidationError as error:
        # The message may quote a field name of any length, with any characters.
        raise _damaged(path, " ".join(str(error).split())[:120]) from error
    tensors: dict[str, TensorInfo] = {}
    for name, entry in sorted(entries.items(), key=lambda each: each[1].data_offsets):
        start, end = entry.data_offsets
        bits = math.prod(entry.shape) * BITS.get(entry.dtype, 0)
        if 8 + length + start != at or end < start or bits != (end - start) * 8:
            what = f"{entry.dtype[:20]!a} {list(entry.shape)}, bytes {start:,} to {end:,}"
            raise _damaged(path, f"the tensor {preview([name])} cannot be {what[:120]}")
        tensors[name] = TensorInfo(name, entry.dtype, entry.shape, path, at, end - start)
        at += end - start
    if at != size:
        raise _damaged(path, f"it has {size:,} bytes, and its header describes {at:,}")
    return tensors, metadata


def _damaged(path: Path, why: str) -> ModelError:
    return ModelError(
        f"{path} is damaged, or not a safetensors file: {why}", hint="copy or download it again"
    )


def encode_header(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> bytes:
    """Encode the header of a file from its tensors' names, types and shapes, in file order."""
    # transformers requires this field.
    header: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    at = 0
    for name, dtype, shape in tensors:
        end = at + math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # aligns the tensors in a mapped file
    return len(encoded).to_bytes(8, "little") + encoded


def write_file(
    path: Path,
    tensors: Sequence[tuple[str, str, tuple[int, ...]]],
    blocks: Iterable[memoryview],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a new file and flush it to the disk; raises OSError.

    `tensors` gives names, types and shapes, `blocks` the bytes of all tensors in that order.
    """
    with path.open("xb") as file:
        file.write(encode_header(tensors, metadata))
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


# NumPy has no bfloat16, so its bits are mapped as uint16.
_TYPES = {"F32": "<f4", "BF16": "<u2", "F16": "<f2", "I8": "i1", "U8": "u1"}

Array = npt.NDArray[Any]


def map_arrays(tensors: Iterable[TensorInfo]) -> dict[str, Array]:
    """Map tensors as read-only arrays, by name; a file stays mapped while one of its arrays exists.

    Only types of weights and packed codes are supported. Truncating a mapped file would kill the
    process (SIGBUS), so model directories are replaced as a whole, and files are never rewritten.
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


def _mapped(path: Path) -> mmap.mmap:
    with open_file(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
