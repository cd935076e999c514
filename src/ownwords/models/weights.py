"""Loads and writes the weights of a model block by block, without a second copy in memory."""

import itertools
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import IO

import torch

from ownwords.models import quantize
from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build
from ownwords.models.quantization_scheme import ENDS, QuantizationScheme, Schemes
from ownwords.models.safetensors import DTYPES, FLOATS, TensorToWrite, read_blocks, write_tensors
from ownwords.models.safetensors_header import BLOCK_BYTES, TensorInfo
from ownwords.models.untrusted_files import ModelError, open_file, preview
from ownwords.models.weight_mapping import (
    SINGLE,
    MappedTensor,
    check_shapes,
    find_tensors,
    hf_names,
    is_quantized,
    map_quantized_weights,
    map_weights,
    read_schemes,
)


def load(folder: Path, config: ModelConfig, device: str, dtype: torch.dtype | None) -> CausalLM:
    """Load the model of `config` from `folder`; ModelError names what does not match.

    All tensors are checked before the first is read. Without `dtype` the model has the type of its
    files, or the narrowest type that holds all of them exactly. Quantised matrices are restored.
    """
    stored = find_tensors(folder)
    if is_quantized(stored):
        return _load_quantized(folder, stored, config, device, dtype)
    fitted = map_weights(stored, config, folder)
    check_shapes(fitted, config, folder)
    dtypes = {FLOATS[mapped.stored.dtype] for mapped in fitted}
    model = build(config, device=device, dtype=dtype or reduce(torch.promote_types, dtypes))
    _fill(model, fitted)
    return model


def _load_quantized(
    folder: Path,
    stored: Mapping[str, TensorInfo],
    config: ModelConfig,
    device: str,
    dtype: torch.dtype | None,
) -> CausalLM:
    made_with = read_schemes(folder / SINGLE)
    map_quantized_weights(stored, made_with, config, folder)
    kinds = {
        FLOATS[info.dtype]
        for name, info in stored.items()
        if info.dtype in FLOATS and not name.endswith(".scale")
    }
    kind = dtype or reduce(torch.promote_types, kinds, torch.bfloat16)
    model = build(config, device=device, dtype=kind)
    with open_file(folder / SINGLE) as file, torch.no_grad():
        for name, parameter in model.named_parameters():
            owner = name.removesuffix(".weight")
            packed = stored.get(f"{owner}.packed")
            if packed is None:
                blocks = read_blocks(stored[name], file)
            else:
                scheme = made_with[owner in ENDS]
                blocks = _restored(packed, stored[f"{owner}.scale"], scheme, parameter, file)
            at = 0
            for block in blocks:
                parameter[at : at + len(block)] = _narrowed(block, kind, name)
                at += len(block)
            if not parameter.isfinite().all():
                raise ModelError(f"{folder}: {name!r} holds numbers that are not finite")
    return model


def _restored(
    packed: TensorInfo,
    scale: TensorInfo,
    scheme: QuantizationScheme,
    parameter: torch.Tensor,
    file: IO[bytes],
) -> Iterator[torch.Tensor]:
    """Yield the rows of a quantised matrix in blocks, in float32."""
    scale_OG = torch.cat([block.clone() for block in read_blocks(scale, file)])
    at = 0
    for block in packed.blocks(file):
        codes_OP = torch.frombuffer(block, dtype=DTYPES[packed.dtype]).view(-1, packed.shape[1])
        rows = slice(at, at + len(codes_OP))
        yield quantize.dequantize(codes_OP, scale_OG[rows], scheme, parameter.shape[1])
        at += len(codes_OP)


def _fill(model: CausalLM, fitted: list[MappedTensor]) -> None:
    parameters = dict(model.named_parameters())
    for path, group in itertools.groupby(fitted, key=lambda mapped: mapped.stored.path):
        with open_file(path) as file, torch.no_grad():
            for mapped in group:
                target = _rows(parameters[mapped.ours], mapped.transposed)
                at = 0
                for block in read_blocks(mapped.stored, file):
                    target[at : at + len(block)] = _narrowed(
                        block, target.dtype, mapped.stored.name
                    )
                    at += len(block)


def _rows(parameter: torch.Tensor, transposed: bool) -> torch.Tensor:
    view = parameter.detach()
    view = view.t() if transposed else view
    return view if view.dim() else view.reshape(1)


def _narrowed(block: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    """Cast a block to `dtype`; ModelError if float16 would overflow."""
    cast = block.to(dtype)
    if dtype is torch.float16 and bool((cast.isinf() & ~block.isinf()).any()):
        raise ModelError(
            f"{name!r} holds {block.abs().max().item():,.0f}, but float16 ends at 65,504",
            hint="use bfloat16, which has the range of float32",
        )
    return cast


def write(
    folder: Path, model: CausalLM, dtype: torch.dtype | None, schemes: Schemes | None = None
) -> None:
    """Write the weights into a new folder with Hugging Face's names, in `dtype` or their own type.

    With `schemes` they are written quantised, and with our names, since no other program has such
    files. ModelError if the model has parameters that its family does not name.
    """
    if schemes:
        quantize.write_quantized(folder / SINGLE, model, *schemes)
        return
    parameters = dict(model.named_parameters())
    names = hf_names(model.config)
    ours = {name for name, _, _ in names}
    if ours != parameters.keys():
        raise ModelError(
            f"a {model.config.MODEL_TYPE} has no weights named {preview(ours ^ parameters.keys())}",
            hint="merge an adapter into its model before it is saved",
        )
    write_tensors(
        folder / SINGLE,
        [
            _writable(parameters[ours], theirs, transposed, dtype)
            for ours, theirs, transposed in names
        ],
    )


def _writable(
    parameter: torch.Tensor, name: str, transposed: bool, dtype: torch.dtype | None
) -> TensorToWrite:
    dtype = dtype or parameter.dtype
    if dtype not in FLOATS.values():
        raise ModelError(f"{name!r} is {dtype}; weights can be saved as {', '.join(FLOATS)}")
    rows = _rows(parameter, transposed)

    def read_blocks() -> Iterator[torch.Tensor]:
        count = max(1, BLOCK_BYTES * len(rows) // max(1, rows.numel() * dtype.itemsize))
        for first in range(0, len(rows), count):
            yield _narrowed(rows[first : first + count].cpu(), dtype, name)

    return TensorToWrite(
        name, dtype, tuple(parameter.shape)[:: -1 if transposed else 1], read_blocks()
    )
