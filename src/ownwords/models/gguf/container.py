"""The GGUF container, version 3: typed metadata, a table of tensors, aligned data.

Reading never allocates more than a small multiple of the file's size. The `gguf` package's own
reader trusts the counts in the header, and its writer rejects empty lists, so only its tensor types
are used: plain floats, or blocks of weights that share scales.
"""

import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ownwords.models.untrusted_files import ModelError, open_file, preview

Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = bool | int | float | str | list[str] | Numbers

# The types we write: the number for general.file_type, and the largest weight. The scale of a q8_0
# or q4_0 block is a float16, at most 65,504.
WRITABLE = {
    "f32": (0, 3.4028234e38),
    "f16": (1, 65_504.0),
    "bf16": (32, 3.3895e38),
    "q8_0": (7, 65_504.0 * 127),
    "q4_0": (2, 65_504.0 * 8),
}
# Weights converted at a time, so that copies stay in the processor's cache. They are passed as one
# row, because the package converts 16 rows at a time.
_PORTION = 1 << 18

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)  # version 2 differs only in features we do not use
_ALIGNMENT = 32
_MAX_HEADER_BYTES = 256 << 20  # Gemma's, with 262,144 tokens, is 10 MB

# Metadata types by their number in the file.
_SCALARS: "dict[int, np.dtype[Any]]" = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9


@dataclass(frozen=True)
class TensorType:
    """A tensor type; `encode` and `decode` convert between float32 and the file's bytes."""

    name: str
    number: int  # in the tensor table
    block_weights: int
    block_bytes: int

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) // self.block_weights * self.block_bytes

    def encode(self, values: Floats) -> Bytes:
        """Encode a float32 tensor; its rows must be a multiple of the block size."""
        from gguf import GGMLQuantizationType, quantize  # noqa: PLC0415 - slow, optional

        flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
        data = np.empty(self.bytes_of(flat.shape), dtype=np.uint8)
        with np.errstate(over="ignore"):  # the caller checks the range
            for weights, part in self._portions(flat.size):
                converted = quantize(
                    flat[weights].reshape(1, -1), GGMLQuantizationType(self.number)
                )
                data[part] = converted.view(np.uint8).reshape(-1)
        return data

    def decode(self, data: Bytes, shape: tuple[int, ...]) -> Floats:
        """Decode bytes into a newly allocated float32 tensor."""
        from gguf import GGMLQuantizationType, dequantize  # noqa: PLC0415

        values = np.empty(math.prod(shape), dtype=np.float32)
        try:
            # The caller checks for non-finite scales.
            with np.errstate(invalid="ignore", over="ignore"):
                for weights, part in self._portions(values.size):
                    row = dequantize(data[part].reshape(1, -1), GGMLQuantizationType(self.number))
                    values[weights] = row[0]
        except NotImplementedError as error:
            raise ModelError(
                f"the GGUF file has weights of the type {self.name}, which cannot be read",
                hint="get the model in another type, for example q8_0",
            ) from error
        return values.reshape(shape)

    def _portions(self, size: int) -> Iterator[tuple[slice, slice]]:
        """Yield matching slices of the weights and of their bytes, `_PORTION` weights each."""
        for start in range(0, size, _PORTION):
            end = min(start + _PORTION, size)
            first, last = (at // self.block_weights * self.block_bytes for at in (start, end))
            yield slice(start, end), slice(first, last)


@cache
def tensor_types() -> dict[int, TensorType]:
    """All types that the `gguf` package knows, by number."""
    from gguf import GGML_QUANT_SIZES  # noqa: PLC0415

    return {
        int(kind): TensorType(kind.name.lower(), int(kind), *sizes)
        for kind, sizes in GGML_QUANT_SIZES.items()
    }


def tensor_type(name: str) -> TensorType:
    """Return the tensor type of this name."""
    return next(kind for kind in tensor_types().values() if kind.name == name)


@dataclass(frozen=True)
class TensorEntry:
    """One entry of the tensor table; `shape` lists rows first, reversed from the file."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int = 0  # from the start of the file, when read

    @property
    def nbytes(self) -> int:
        return self.type.bytes_of(self.shape)


@dataclass(frozen=True)
class GGUFContents:
    """An open GGUF file with a checked header; `tensor` reads one tensor at a time."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorEntry]
    _file: IO[bytes]
    _path: Path

    def tensor(self, name: str) -> Floats:
        entry = self.tensors[name]
        self._file.seek(entry.offset)
        data = self._file.read(entry.nbytes)
        # Read, not mapped: if the file is truncated meanwhile, this raises an error, not SIGBUS.
        if len(data) != entry.nbytes:
            raise ModelError(f"{self._path} ended within {preview([name])} while it was read")
        return entry.type.decode(np.frombuffer(data, dtype=np.uint8), entry.shape)


@contextmanager
def open_gguf(path: Path) -> Iterator[GGUFContents]:
    """Open a GGUF file for reading; ModelError if its header is invalid."""
    # The user named the file, so a link to it may lead anywhere.
    with open_file(Path(os.path.realpath(path))) as file:
        metadata, tensors = _Header(file, path).read()
        yield GGUFContents(metadata, tensors, file, path)


class _Header:
    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path
        self._size = os.fstat(file.fileno()).st_size
        self._left = min(self._size, _MAX_HEADER_BYTES)

    def read(self) -> tuple[dict[str, Value], dict[str, TensorEntry]]:
        if self._take(4) != _MAGIC:
            raise ModelError(
                f"{self._path} is not a GGUF file", hint="its first four bytes would be GGUF"
            )
        version, tensors, keys = self._numbers("<IQQ")
        if version not in _VERSIONS:
            raise self._broken(f"it is of version {version}; versions 2 and 3 are read")
        metadata: dict[str, Value] = {}
        for _ in range(keys):
            key = self._string()
            if key in metadata:
                raise self._broken(f"it has the metadata key {preview([key])} twice")
            metadata[key] = self._value(*self._numbers("<I"))
        return metadata, self._tensors(tensors, metadata.get("general.alignment", _ALIGNMENT))

    def _tensors(self, count: int, alignment: Value) -> dict[str, TensorEntry]:
        if not isinstance(alignment, int) or not 8 <= alignment <= 65_536 or alignment % 8:
            raise self._broken("its general.alignment is no multiple of 8 up to 65536")
        entries = [self._tensor() for _ in range(count)]
        data_start = _aligned(self._file.tell(), alignment)
        # Refuse overlapping tensors: they would let a small file fill the memory.
        tensors: dict[str, TensorEntry] = {}
        end = 0
        for entry in sorted(entries, key=lambda entry: entry.offset):
            is_placed = entry.offset >= end and not entry.offset % alignment
            end = entry.offset + entry.nbytes
            if not is_placed or data_start + end > self._size or entry.name in tensors:
                raise self._broken(f"the offset of its tensor {preview([entry.name])} is wrong")
            tensors[entry.name] = replace(entry, offset=data_start + entry.offset)
        return tensors

    def _tensor(self) -> TensorEntry:
        name = self._string()
        (dimensions,) = self._numbers("<I")
        shape = self._numbers(f"<{min(dimensions, 5)}Q")[::-1]
        number, offset = self._numbers("<IQ")
        kind = tensor_types().get(number)
        if kind is None:
            raise self._broken(
                f"its tensor {preview([name])} has the unknown type {number}",
                hint="get the model in another type, for example q8_0",
            )
        # No type packs more than eight weights into a byte.
        is_possible = 1 <= len(shape) <= 4 and 0 < math.prod(shape) <= 8 * self._size
        if not is_possible or shape[-1] % kind.block_weights:
            raise self._broken(f"its tensor {preview([name])} has the shape {list(shape)}")
        return TensorEntry(name, kind, shape, offset)

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._numbers("<IQ")
            if inner == _STRING:
                return [self._string() for _ in range(count)]
            return self._array(inner, count)
        value: bool | int | float = self._array(kind, 1)[0].item()
        return value

    def _array(self, kind: int, count: int) -> Numbers:
        if kind not in _SCALARS:
            raise self._broken(f"its metadata has a value of the unknown type {kind}")
        data = np.frombuffer(self._take(count * _SCALARS[kind].itemsize), dtype=np.uint8)
        return data != 0 if kind == _BOOL else data.view(_SCALARS[kind])

    def _string(self) -> str:
        try:
            return self._take(*self._numbers("<Q")).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._broken("a text in its header is not UTF-8") from error

    def _numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _take(self, count: int) -> bytes:
        if count > self._left:
            raise self._broken(f"its header asks for {count:,} bytes more than there are")
        self._left -= count
        data = self._file.read(count)
        if len(data) != count:
            raise self._broken("it ended while it was read")
        return data

    def _broken(self, why: str, hint: str = "download or make the file again") -> ModelError:
        return ModelError(f"{self._path} is damaged: {why}", hint=hint)


def write_header(
    file: IO[bytes], metadata: Mapping[str, Value], tensors: Sequence[TensorEntry]
) -> None:
    """Write everything before the data of the tensors, which must follow in this order.

    Integers are written as uint32 and floats as float32: llama.cpp expects these types for all keys
    that we write.
    """
    parts = [_MAGIC, struct.pack("<IQQ", _VERSIONS[-1], len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_packed(key), *_packed_value(value)]
    offset = 0
    for entry in tensors:
        count = len(entry.shape)
        numbers = (count, *entry.shape[::-1], entry.type.number, offset)
        parts += [_packed(entry.name), struct.pack(f"<I{count}QIQ", *numbers)]
        offset += _aligned(entry.nbytes)
    size = sum(map(len, parts))
    file.writelines([*parts, bytes(_aligned(size) - size)])


def write_tensor(file: IO[bytes], data: Bytes) -> None:
    """Write the bytes of one tensor and the padding after it."""
    file.write(data.data)
    file.write(bytes(_aligned(data.nbytes) - data.nbytes))


def _packed(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _packed_value(value: Value) -> list[bytes]:
    if isinstance(value, bool):
        return [struct.pack("<I?", _BOOL, value)]
    if isinstance(value, int):
        return [struct.pack("<II", _UINT32, value)]
    if isinstance(value, float):
        return [struct.pack("<If", _FLOAT32, value)]
    if isinstance(value, str):
        return [struct.pack("<I", _STRING), _packed(value)]
    if isinstance(value, list):
        return [struct.pack("<IIQ", _ARRAY, _STRING, len(value)), *map(_packed, value)]
    kind = next(number for number, dtype in _SCALARS.items() if dtype == value.dtype)
    return [struct.pack("<IIQ", _ARRAY, kind, len(value)), value.tobytes()]


def _aligned(count: int, alignment: int = _ALIGNMENT) -> int:
    return -(-count // alignment) * alignment
