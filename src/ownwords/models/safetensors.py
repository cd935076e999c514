"""Reads and writes tensors in safetensors files block by block, without a second copy in memory."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from ownwords.models.safetensors_header import BLOCK_BYTES, TensorInfo, write_file

FLOATS: Mapping[str, torch.dtype] = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
}
CODES: Mapping[torch.dtype, str] = {dtype: code for code, dtype in FLOATS.items()}
# FLOATS and the types of packed codes.
DTYPES: Mapping[str, torch.dtype] = {**FLOATS, "I8": torch.int8, "U8": torch.uint8}


def read_blocks(
    stored: TensorInfo, file: IO[bytes], block_bytes: int = BLOCK_BYTES
) -> Iterator[torch.Tensor]:
    """Yield the rows of a stored tensor in blocks (see `TensorInfo.blocks`); only for `FLOATS`."""
    for block in stored.blocks(file, block_bytes):
        yield torch.frombuffer(block, dtype=FLOATS[stored.dtype]).view(-1, *stored.shape[1:])


@dataclass(frozen=True)
class TensorToWrite:
    """A tensor to be written; its blocks are iterated over once."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    blocks: Iterable[torch.Tensor]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write_tensors(path: Path, tensors: Iterable[TensorToWrite]) -> None:
    """Write a new file and flush it to the disk; raises OSError."""
    tensors = list(tensors)
    write_file(
        path,
        [(tensor.name, CODES[tensor.dtype], tensor.shape) for tensor in tensors],
        (
            block.contiguous().view(-1).view(torch.uint8).numpy().data
            for tensor in tensors
            for block in tensor.blocks
        ),
    )
