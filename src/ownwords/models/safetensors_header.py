"""Reads and writes safetensors files, and maps their tensors into memory; does not import torch.

The format: the header's length in 8 bytes, a JSON header, the tensors' bytes without gaps. The
whole header is checked before any tensor is read. See https://github.com/huggingface/safetensors.
"""

import json
import math
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.models.untrusted_files import ModelError, open_file, parse_json, preview

# Enough for 60,000 tensors; the largest models have a few hundred per file.
MAX_HEADER_BYTES = 16 << 20
MAX_NAME_LENGTH = 256
MAX_DIMENSIONS = 8

# The bits per number of every type of the format, to check sizes.
BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
# The types that weights can have.
FLOATS = ("F32", "BF16", "F16")


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
    """Read the tensors of a file by name, in file order; ModelError if the file is damaged."""
    return _read(path)[0]


def read_metadata(path: Path) -> dict[str, str]:
    """Read the `__metadata__` of a file; ModelError if the file is damaged."""
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ModelError(
                f"{path} is cut short or not a safetensors file: it has {size:,} bytes, and its"
                f" first eight claim {length:,} for the header",
                hint="copy or download it again",
            )
        if length > MAX_HEADER_BYTES:
            raise ModelError(f"{path} has a header of {length:,} bytes, too large for a model")
        header = parse_json(file.read(length), f"the header of {path}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ModelError(f"{path}: __metadata__ in its header is not an object of strings")
    begin = 8 + length
    tensors = [_tensor(path, name, entry, begin) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.nbytes))
    at = begin
    for tensor in tensors:
        if tensor.start != at:
            what = "overlap" if tensor.start < at else "leave a gap"
            raise ModelError(
                f"{path} is damaged: the bytes of its tensors {what} at {preview([tensor.name])}"
            )
        at += tensor.nbytes
    if at != size:
        raise ModelError(
            f"{path} has {size:,} bytes, and its header describes {at:,}",
            hint="copy or download it again",
        )
    return {tensor.name: tensor for tensor in tensors}, metadata


def _tensor(path: Path, name: str, entry: object, begin: int) -> TensorInfo:
    """Check an entry of the header and convert it to a TensorInfo."""
    what = f"{path}: the tensor {preview([name])}"
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise ModelError(f"{what} has an impossible name")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ModelError(f"{what} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ModelError(f"{what} has the unknown type {dtype!r:.40}")
    if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS:
        raise ModelError(f"{what} has an impossible shape: {shape!r:.80}")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ModelError(f"{what} has impossible offsets: {offsets!r:.80}")
    start, end = offsets
    bits = math.prod(shape) * BITS[dtype]
    if bits != (end - start) * 8:
        raise ModelError(
            f"{what} is {dtype} {list(shape)}, {bits // 8:,} bytes, and holds {end - start:,}"
        )
    return TensorInfo(name, dtype, tuple(shape), path, begin + start, end - start)


def _are_counts(value: object) -> bool:
    # `type` rather than isinstance: bool is a subclass of int. No file system reaches 2**63 bytes.
    return isinstance(value, list) and all(
        type(each) is int and 0 <= each < 1 << 63 for each in value
    )


def encode_header(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> bytes:
    """Encode the header of a file from its tensors' names, types and shapes, in file order."""
    # transformers requires a format, and accepts this one.
    header: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    at = 0
    for name, dtype, shape in tensors:
        end = at + math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # so that the tensors are aligned in a mapped file
    return len(encoded).to_bytes(8, "little") + encoded


def write_file(
    path: Path,
    tensors: Sequence[tuple[str, str, tuple[int, ...]]],
    blocks: Iterable[memoryview],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a new file and flush it to the disk; raises OSError.

    `tensors` are names, types and shapes, `blocks` the bytes of all of them in that order.
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
    return _mapping(array) is not None


def drop_pages(array: Array) -> None:
    """Take the pages of the array's file out of this process's memory; reading maps them anew."""
    if (mapped := _mapping(array)) is not None and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _mapping(array: Array) -> mmap.mmap | None:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, mmap.mmap) else None


def _mapped(path: Path) -> mmap.mmap:
    with open_file(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
