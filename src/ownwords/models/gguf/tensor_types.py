"""How GGUF keeps weights: plain numbers, or blocks of 32 that share a scale.

A block of q8_0 is a float16 scale and 32 signed bytes: scale x byte. A block of q4_0 is a float16
scale and 16 bytes with two weights each, the first sixteen in the low halves: scale x (half - 8).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_BLOCK = 32
# Encoding a block needs a few copies of it: so many weights at a time keep these in the cache.
_PORTION = 1 << 18


@dataclass(frozen=True)
class TensorType:
    """One way to keep a tensor; `encode` and `decode` go between float32 and the file's bytes."""

    name: str
    number: int  # in the tensor table
    file_number: int  # in general.file_type, for a file that is mostly of this type
    block_weights: int
    block_bytes: int
    _encode: Callable[[Floats], Bytes]
    _decode: Callable[[Bytes], Floats]

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) // self.block_weights * self.block_bytes

    def encode(self, values: Floats) -> Bytes:
        """The bytes of a tensor whose rows are whole blocks."""
        flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
        out = np.empty(self.bytes_of(flat.shape), dtype=np.uint8)
        step = _PORTION // self.block_weights * self.block_bytes
        for number, start in enumerate(range(0, flat.size, _PORTION)):
            part = self._encode(flat[start : start + _PORTION])
            out[number * step : number * step + part.size] = part
        return out

    def decode(self, data: Bytes, shape: tuple[int, ...]) -> Floats:
        """The values of such bytes, in memory of their own."""
        out = np.empty(math.prod(shape), dtype=np.float32)
        step = _PORTION // self.block_weights * self.block_bytes
        for number, start in enumerate(range(0, out.size, _PORTION)):
            part = self._decode(data[number * step : (number + 1) * step])
            out[start : start + part.size] = part
        return out.reshape(shape)


def _to_f32(values: Floats) -> Bytes:
    return values.view(np.uint8)


def _from_f32(data: Bytes) -> Floats:
    return data.view(np.dtype("<f4"))


def _to_f16(values: Floats) -> Bytes:
    with np.errstate(over="ignore"):  # whether everything fits is for the caller to judge
        return values.astype("<f2").view(np.uint8)


def _from_f16(data: Bytes) -> Floats:
    return data.view(np.dtype("<f2")).astype(np.float32)


def _to_bf16(values: Floats) -> Bytes:
    bits = values.view(np.uint32)
    # To the nearest, ties to even; a carry out of the fraction goes into the exponent, as it must.
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    quiet = (bits >> 16) | 0x40  # rounding could turn the bits of a NaN into an infinity
    return np.where(np.isnan(values), quiet, rounded).astype("<u2").view(np.uint8)


def _from_bf16(data: Bytes) -> Floats:
    return (data.view(np.dtype("<u2")).astype(np.uint32) << 16).view(np.float32)


def _to_q8_0(values: Floats) -> Bytes:
    blocks = values.reshape(-1, _BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scale)
    whole = np.trunc(scaled)
    whole += np.trunc(2 * (scaled - whole))  # to the nearest, halves away from zero
    return _joined(scale, whole.astype(np.int8).view(np.uint8))


def _from_q8_0(data: Bytes) -> Floats:
    scale, weights = _parted(data, _BLOCK)
    return _scaled(scale, weights.view(np.int8))


def _to_q4_0(values: Floats) -> Bytes:
    blocks = values.reshape(-1, _BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    # The largest weight, whatever its sign, becomes -8: the end of the range without a partner.
    scale = largest / np.float32(-8)
    whole = np.clip(np.trunc(blocks * _inverse(scale) + np.float32(8.5)), 0, 15).astype(np.uint8)
    return _joined(scale, whole[:, :16] | whole[:, 16:] << 4)


def _from_q4_0(data: Bytes) -> Floats:
    scale, pairs = _parted(data, _BLOCK // 2)
    halves = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.int8) - np.int8(8)
    return _scaled(scale, halves)


def _scaled(scale: Floats, weights: npt.NDArray[np.int8]) -> Floats:
    with np.errstate(invalid="ignore"):  # a scale that is no number is for the caller to judge
        return (scale * weights).reshape(-1)


def _inverse(scale: Floats) -> Floats:
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


def _joined(scale: Floats, weights: Bytes) -> Bytes:
    with np.errstate(over="ignore"):
        halves = scale.astype("<f2").view(np.uint8)
    return np.concatenate([halves, weights], axis=1).reshape(-1)


def _parted(data: Bytes, weights: int) -> tuple[Floats, Bytes]:
    blocks = data.reshape(-1, 2 + weights)
    scale = np.ascontiguousarray(blocks[:, :2]).view(np.dtype("<f2")).astype(np.float32)
    return scale, np.ascontiguousarray(blocks[:, 2:])


TYPES = {
    kind.name: kind
    for kind in (
        TensorType("f32", 0, 0, 1, 4, _to_f32, _from_f32),
        TensorType("f16", 1, 1, 1, 2, _to_f16, _from_f16),
        TensorType("bf16", 30, 32, 1, 2, _to_bf16, _from_bf16),
        TensorType("q8_0", 8, 7, _BLOCK, 34, _to_q8_0, _from_q8_0),
        TensorType("q4_0", 2, 2, _BLOCK, 18, _to_q4_0, _from_q4_0),
    )
}
