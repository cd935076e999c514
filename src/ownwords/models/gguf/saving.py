"""A model in memory, and its tokenizer, to a GGUF file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ownwords.core.workspace import writing_atomically
from ownwords.models.decoder import CausalLM
from ownwords.models.gguf import families, sampling, tokenizer
from ownwords.models.gguf.container import lay_out, write_header, write_tensor
from ownwords.models.gguf.rope import ROPE_FACTORS, rope_factors
from ownwords.models.gguf.tensor_types import TYPES, Floats, TensorType
from ownwords.models.gguf.tensors import tensor_name, to_gguf
from ownwords.models.untrusted_files import ModelError, preview
from ownwords.models.weight_mapping import hf_names

_QUANTISATION_VERSION = 2  # of the blocks' layout, which files with blocks must name
# The largest weight of each type; of blocks, by their scale, a float16 that ends at 65504.
_REACH = {
    "f32": 3.4028234e38,
    "f16": 65_504.0,
    "bf16": 3.3895e38,
    "q8_0": 65_504.0 * 127,
    "q4_0": 65_504.0 * 8,
}


@dataclass(frozen=True)
class GGUFFile:
    """What became of a model: `notes` say what is otherwise than asked for, or than with us."""

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
) -> GGUFFile:
    """Write a model and its tokenizer as one GGUF file, whole or not at all.

    Matrices are kept in `type` (f32, f16, bf16, q8_0, q4_0), norms and biases in f32. ModelError
    for what GGUF or llama.cpp cannot hold, WorkspaceError if the disk refuses.
    """
    path, generation = Path(path), generation or {}
    if type not in TYPES:
        raise ModelError(f"{type} is no type of weights", hint="types: " + ", ".join(TYPES))
    config: Mapping[str, Any] = model.config.to_hf()
    metadata = families.metadata_of(config)
    if name:
        metadata["general.name"] = name
    metadata |= sampling.metadata_of(generation)
    words, notes = tokenizer.metadata_of(tokenizer_files, model.config.vocabulary, generation)
    family = model.config.MODEL_TYPE
    parameters = dict(model.named_parameters())
    sources = {
        tensor_name(family, theirs): parameters[ours] for ours, theirs, _ in hf_names(model.config)
    }
    if len(sources) != len(parameters):
        raise ModelError(
            f"the model has {len(parameters)} weights, and its family {len(sources)}",
            hint="merge an adapter into its model before it is exported",
        )
    factors = rope_factors(config)
    wanted = [
        (tensor, _type_for(tuple(source.shape), type), tuple(source.shape))
        for tensor, source in sources.items()
    ]
    if fallen := [tensor for tensor, kind, shape in wanted if len(shape) > 1 and kind.name != type]:
        notes.append(
            f"{len(fallen)} matrices are kept as f16: their rows are no multiple of 32, as"
            f" {type} needs ({preview(fallen)})"
        )
    if factors is not None:
        wanted.append((ROPE_FACTORS, TYPES["f32"], factors.shape))
    metadata["general.file_type"] = TYPES[type].file_number
    if TYPES[type].block_weights > 1:
        metadata["general.quantization_version"] = _QUANTISATION_VERSION
    table = lay_out(wanted)
    with writing_atomically(path) as file:
        write_header(file, metadata | words, table)
        for entry in table:
            if entry.name == ROPE_FACTORS and factors is not None:
                values = factors
            else:
                values = to_gguf(family, config, entry.name, _values(sources[entry.name]))
            _check_reach(entry.type, values, entry.name)
            write_tensor(file, entry, entry.type.encode(values))
    kept = {entry.name: entry.type.name for entry in table}
    return GGUFFile(path, path.stat().st_size, kept, tuple(notes))


def _type_for(shape: tuple[int, ...], type: str) -> TensorType:
    if len(shape) == 1:
        return TYPES["f32"]
    return TYPES[type] if shape[-1] % TYPES[type].block_weights == 0 else TYPES["f16"]


def _values(parameter: torch.Tensor) -> Floats:
    values: Floats = parameter.detach().to("cpu", torch.float32).numpy()
    return values


def _check_reach(type: TensorType, values: Floats, name: str) -> None:
    if not float(np.abs(values).max(initial=0)) <= _REACH[type.name]:
        raise ModelError(
            f"the weights of {name} are too large for {type.name}, or no numbers",
            hint="" if type.name == "f32" else "export it with --type bf16 or f32",
        )
