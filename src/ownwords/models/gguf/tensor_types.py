"""GGUF's tensor types: plain floats, or blocks of weights that share scales.

The `gguf` package converts them; this module has their sizes and the types that we write.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ownwords.models.untrusted_files import ModelError

Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

# The types we write: the number for general.file_type and the largest weight. Blocks of q8_0 and
# q4_0 have a float16 scale, which is at most 65,504.
WRITABLE = {
    "f32": (0, 3.4028234e38),
    "f16": (1, 65_504.0),
    "bf16": (32, 3.3895e38),
    "q8_0": (7, 65_504.0 * 127),
    "q4_0": (2, 65_504.0 * 8),
}
# Weights converted at a time: the conversion's copies then stay in the processor's cache. They are
# passed as one row, because the package converts sixteen rows at a time.
_PORTION = 1 << 18


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
        from gguf import GGMLQuantizationType, quantize  # noqa: PLC0415 - only who converts waits

        flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
        data = np.empty(self.bytes_of(flat.shape), dtype=np.uint8)
        with np.errstate(over="ignore"):  # the caller checks the range
            for weights, part in self._portions(flat.size):
                row = flat[weights].reshape(1, -1)
                converted = quantize(row, GGMLQuantizationType(self.number))
                data[part] = converted.view(np.uint8).reshape(-1)
        return data

    def decode(self, data: Bytes, shape: tuple[int, ...]) -> Floats:
        """Decode bytes into a newly allocated float32 tensor."""
        from gguf import GGMLQuantizationType, dequantize  # noqa: PLC0415

        values = np.empty(math.prod(shape), dtype=np.float32)
        try:
            # The caller checks for scales that are not finite.
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
    """The type of this name."""
    return next(kind for kind in tensor_types().values() if kind.name == name)
