"""Write tensors to a safetensors file and read them back, as a checkpoint does."""

from collections.abc import Mapping
from pathlib import Path

import torch

from ownwords.models.safetensors import TensorToWrite, read_blocks, write_tensors
from ownwords.models.safetensors_header import read_header


def through_a_file(tensors: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    write_tensors(
        path, [TensorToWrite(name, t.dtype, tuple(t.shape), [t]) for name, t in tensors.items()]
    )
    restored = {}
    with path.open("rb") as file:
        for name, stored in read_header(path).items():
            rows = [block.clone() for block in read_blocks(stored, file)]
            restored[name] = torch.cat(rows).view(stored.shape)
    return restored
