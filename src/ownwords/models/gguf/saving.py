"""Writes a model in memory and its tokenizer as a GGUF file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ownwords.core.workspace import writing_atomically
from ownwords.models.decoder import CausalLM
from ownwords.models.directory import BaseLicense
from ownwords.models.gguf import tokenizer
from ownwords.models.gguf.container import (
    WRITABLE,
    Floats,
    TensorEntry,
    TensorType,
    tensor_type,
    write_header,
    write_tensor,
)
from ownwords.models.gguf.metadata import ROPE_FACTORS, rope_factors, write_config, write_sampling
from ownwords.models.gguf.reading import to_gguf
from ownwords.models.untrusted_files import ModelError, preview
from ownwords.models.weight_mapping import gguf_names

_QUANTIZATION_VERSION = 2  # the block layout's version, required in files with block types


@dataclass(frozen=True)
class GGUFFile:
    """The result of a save; `notes` list deviations from the request or from how ownwords works."""

    path: Path
    bytes: int
    tensors: Mapping[str, str]  # name to type
    notes: tuple[str, ...]


def save(
    path: str | Path,
    model: CausalLM,
    tokenizer_files: Mapping[str, bytes],
    *,
    type: str = "f16",
    name: str = "",
    generation: Mapping[str, object] | None = None,
    license: BaseLicense | None = None,
) -> GGUFFile:
    """Write a model and its tokenizer atomically as one GGUF file.

    Matrices are stored in `type` (f32, f16, bf16, q8_0, q4_0), norms and biases in f32. Raises
    ModelError for what GGUF or llama.cpp cannot represent, WorkspaceError if writing fails.
    """
    path, generation = Path(path), generation or {}
    if type not in WRITABLE:
        raise ModelError(f"{type} is not a type of weights", hint="types: " + ", ".join(WRITABLE))
    config = model.config
    metadata = write_config(config)
    if name:
        metadata["general.name"] = name
    if license and license.license:
        metadata["general.license"] = license.license
        metadata["general.base_model.count"] = 1
        metadata["general.base_model.0.name"] = license.base_model
    metadata |= write_sampling(generation)
    vocabulary, notes = tokenizer.metadata_of(tokenizer_files, config.vocabulary, generation)
    parameters = dict(model.named_parameters())
    sources = {gguf: parameters[ours] for ours, gguf in gguf_names(config).items()}
    if len(sources) != len(parameters):
        raise ModelError(
            f"the model has {len(parameters)} weights, and its family {len(sources)}",
            hint="merge an adapter into its model before it is exported",
        )
    table = [
        TensorEntry(tensor, _type_for(tuple(source.shape), type), tuple(source.shape))
        for tensor, source in sources.items()
    ]
    others = [each.name for each in table if len(each.shape) > 1 and each.type.name != type]
    if others:
        notes.append(
            f"{len(others)} matrices are stored as f16: their rows are not a multiple of 32, as"
            f" {type} needs ({preview(others)})"
        )
    factors = rope_factors(config)
    if factors is not None:
        table.append(TensorEntry(ROPE_FACTORS, tensor_type("f32"), factors.shape))
    metadata["general.file_type"] = WRITABLE[type][0]
    if tensor_type(type).block_weights > 1:
        metadata["general.quantization_version"] = _QUANTIZATION_VERSION
    with writing_atomically(path) as file:
        write_header(file, metadata | vocabulary, table)
        for entry in table:
            if entry.name == ROPE_FACTORS and factors is not None:
                values = factors
            else:
                source = sources[entry.name].detach().to("cpu", torch.float32).numpy()
                values = to_gguf(config, entry.name, source)
            _check_range(entry.type, values, entry.name)
            write_tensor(file, entry.type.encode(values))
    types = {entry.name: entry.type.name for entry in table}
    return GGUFFile(path, path.stat().st_size, types, tuple(notes))


def _type_for(shape: tuple[int, ...], type: str) -> TensorType:
    if len(shape) == 1:
        return tensor_type("f32")
    return tensor_type(type if shape[-1] % tensor_type(type).block_weights == 0 else "f16")


def _check_range(type: TensorType, values: Floats, name: str) -> None:
    if not float(np.abs(values).max(initial=0)) <= WRITABLE[type.name][1]:
        raise ModelError(
            f"the weights of {name} are not finite, or too large for {type.name}",
            hint="" if type.name == "f32" else "export it with --type bf16 or f32",
        )
