"""A quantised model as a safetensors file: our names for its tensors, its scheme in the header."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from ownwords.core.workspace import writing_atomically
from ownwords.models.quantize import load_quantized, metadata, quantized_tensors
from ownwords.models.safely import ModelError, opened, parse_object
from ownwords.models.safetensors import FLOATS, read_header

_DTYPES: Final[Mapping[str, torch.dtype]] = {**FLOATS, "I8": torch.int8, "U8": torch.uint8}
_CODES: Final = {dtype: code for code, dtype in _DTYPES.items()}


def write(path: Path, model: nn.Module) -> None:
    """Write a quantised model as one safetensors file, whole or not at all."""
    said = metadata(model)
    if not said:
        raise ModelError("the model is not quantised", hint="save it as any other")
    header: dict[str, object] = {"__metadata__": {"format": "pt", **said}}
    at = 0
    for name, tensor in quantized_tensors(model):
        end = at + tensor.nbytes
        header[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with writing_atomically(path) as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for _, tensor in quantized_tensors(model):
            file.write(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def read(path: Path, model: nn.Module, device: torch.device | str = "cpu") -> None:
    """Fill a plain model (best on "meta") with what `write` wrote.

    ModelError if it cannot be; the model is then half one thing and half another.
    """
    stored = read_header(path)
    with opened(path) as file:
        length = int.from_bytes(file.read(8), "little")
        said = parse_object(file.read(length), f"the header of {path}").get("__metadata__", {})
        header = said if isinstance(said, dict) else {}

        def tensors() -> Iterator[tuple[str, Tensor]]:
            wanted = dict(quantized_tensors(model))
            for each in stored.values():
                kind = _DTYPES.get(each.dtype)
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
