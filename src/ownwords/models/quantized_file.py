"""A quantised model as a safetensors file: our names for its tensors, its scheme in the header."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from ownwords.core.workspace import writing_atomically
from ownwords.models.quantize import load_quantized, metadata, quantized_tensors
from ownwords.models.safetensors import DTYPES
from ownwords.models.safetensors_header import encode_header, read_header, read_metadata
from ownwords.models.untrusted_files import ModelError, open_file

_CODES: Final = {dtype: code for code, dtype in DTYPES.items()}


def write(path: Path, model: nn.Module) -> None:
    """Write a quantised model as one safetensors file, whole or not at all."""
    said = metadata(model)
    if not said:
        raise ModelError("the model is not quantised", hint="save it as any other")
    tensors = quantized_tensors(model)
    header = encode_header(((name, _CODES[t.dtype], tuple(t.shape)) for name, t in tensors), said)
    with writing_atomically(path) as file:
        file.write(header)
        for _, tensor in quantized_tensors(model):
            file.write(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def read(path: Path, model: nn.Module, device: torch.device | str = "cpu") -> None:
    """Fill a plain model (best on "meta") with what `write` wrote.

    ModelError if it cannot be; the model is then half one thing and half another.
    """
    stored, header = read_header(path), read_metadata(path)
    with open_file(path) as file:

        def tensors() -> Iterator[tuple[str, Tensor]]:
            wanted = dict(quantized_tensors(model))
            for each in stored.values():
                kind = DTYPES.get(each.dtype)
                if kind is None:
                    raise ModelError(f"{each.name!r} is {each.dtype}, which no quantised model has")
                if each.name not in wanted or wanted[each.name].shape != each.shape:
                    # Refused by its name or shape, before it costs any memory.
                    yield each.name, torch.empty(each.shape, dtype=kind, device="meta")
                file.seek(each.start)
                data = bytearray(file.read(each.nbytes))
                if len(data) != math.prod(each.shape) * kind.itemsize:
                    raise ModelError(f"it ended within {each.name!r} while it was read")
                # An empty tensor has no buffer to be made from.
                flat = torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)
                yield each.name, flat.view(each.shape).to(device)

        try:
            load_quantized(model, tensors(), header)
        except ModelError as error:
            raise ModelError(f"{path}: {error.message}", hint=error.hint) from error
