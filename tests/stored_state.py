"""Write tensors to a safetensors file and read them back, as a checkpoint does."""

from collections.abc import Mapping
from pathlib import Path

import torch

from ownwords.models.weights import read_tensors, write_tensors


def through_a_file(tensors: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    write_tensors(path, tensors)
    return read_tensors(path)
