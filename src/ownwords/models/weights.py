"""Loads and writes the weights of a model, and tensors in general, in safetensors files."""

from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor

from ownwords.models import quantize
from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build
from ownwords.models.safetensors_header import (
    Array,
    map_arrays,
    read_header,
    write_file,
)
from ownwords.models.untrusted_files import ModelError, preview
from ownwords.models.weight_mapping import (
    INT8_METADATA,
    SINGLE,
    StoredWeight,
    hf_names,
    open_weights,
)

FLOATS: Mapping[str, torch.dtype] = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
}
_DTYPES: Mapping[str, torch.dtype] = {**FLOATS, "I8": torch.int8, "U8": torch.uint8}
_CODES: Mapping[torch.dtype, str] = {dtype: code for code, dtype in _DTYPES.items()}
# Numbers converted at a time: enough to keep the disk busy, and they fit the processor's cache.
_BLOCK_NUMBERS = 1 << 19


def load(
    folder: Path,
    config: ModelConfig,
    device: str,
    dtype: torch.dtype | None,
    adapter: Path | None = None,
) -> CausalLM:
    """Load the model of `config` from `folder`; ModelError names what does not match.

    All tensors are checked before the first is read. Without `dtype` the model has the type of its
    files, or the narrowest type that holds all of them exactly. Quantised matrices are restored.
    """
    stored = open_weights(folder, config, adapter)
    floats = [FLOATS[weight.dtype] for weight in stored if weight.scales is None]
    is_quantized = len(floats) < len(stored)
    narrowest = [torch.bfloat16] if is_quantized else []
    model = build(
        config, device=device, dtype=dtype or reduce(torch.promote_types, narrowest + floats)
    )
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for weight in stored:
            target = parameters[weight.name]
            rows = target.t() if weight.transposed else target
            for part, block in _blocks(weight):
                rows[part] = _narrowed(block, target.dtype, weight.name)
            if is_quantized and not target.isfinite().all():
                raise ModelError(f"{folder}: {weight.name!r} holds numbers that are not finite")
    return model


def _blocks(weight: StoredWeight) -> Iterator[tuple[slice, Tensor]]:
    """Yield the stored rows of a weight, a few at a time; codes are restored to float32."""
    for part in _parts(weight.array.shape):
        block = _tensor(weight.array[part], weight.dtype)
        if weight.scales is not None:
            block = block * _tensor(weight.scales[part], "F32")
        yield part, block


def _parts(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield slices of rows with about `_BLOCK_NUMBERS` numbers each."""
    rows = max(1, _BLOCK_NUMBERS * shape[0] // max(1, torch.Size(shape).numel()))
    for first in range(0, shape[0], rows):
        yield slice(first, first + rows)


def _tensor(array: Array, code: str) -> Tensor:
    return torch.from_numpy(array.copy()).view(_DTYPES[code])


def _narrowed(block: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """Cast a block to `dtype`; ModelError if float16 would overflow."""
    cast = block.to(dtype)
    if dtype is torch.float16 and bool((cast.isinf() & ~block.isinf()).any()):
        raise ModelError(
            f"{name!r} holds {block.abs().max().item():,.0f}, but the largest float16 number"
            " is 65,504",
            hint="use bfloat16, which has the range of float32",
        )
    return cast


def write(folder: Path, model: CausalLM, dtype: torch.dtype | None, *, int8: bool = False) -> None:
    """Write the weights into a new folder with Hugging Face's names, in `dtype` or their own type.

    With `int8` the matrices are quantised, and all tensors have our names, because no other program
    reads such files. ModelError if the model has parameters that its family does not name.
    """
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    names = hf_names(model.config)
    if others := {name for name, _, _ in names} ^ parameters.keys():
        raise ModelError(
            f"a {model.config.MODEL_TYPE} has no weights named {preview(others)}",
            hint="merge an adapter into its model before it is saved",
        )
    if int8:
        tensors = quantize.int8_tensors(model, dtype)
        write_tensors(folder / SINGLE, tensors, metadata=INT8_METADATA)
        return
    tensors = {
        theirs: parameters[ours].t() if transposed else parameters[ours]
        for ours, theirs, transposed in names
    }
    write_tensors(folder / SINGLE, tensors, dtype)


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a new file, in `dtype` or the tensors' own types, and flush it; raises OSError."""
    types = {name: dtype or tensor.dtype for name, tensor in tensors.items()}
    if wrong := {name for name, each in types.items() if each not in _CODES}:
        raise ModelError(f"{preview(wrong)} cannot be saved as {types[min(wrong)]}")

    def blocks() -> Iterator[memoryview]:
        for name, tensor in tensors.items():
            rows = tensor if tensor.dim() else tensor.view(1)
            for part in _parts(tuple(rows.shape)):
                block = _narrowed(rows[part].detach().cpu(), types[name], name)
                yield block.contiguous().view(-1).view(torch.uint8).numpy().data

    entries = [(name, _CODES[types[name]], tuple(each.shape)) for name, each in tensors.items()]
    write_file(path, entries, blocks(), metadata or {})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file; ModelError if it is damaged."""
    stored = read_header(path)
    arrays = map_arrays(stored.values())
    return {name: _tensor(arrays[name], info.dtype) for name, info in stored.items()}
