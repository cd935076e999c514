"""GGUF, the file that llama.cpp and what is built on it read: a model and its tokenizer in one.

Written without any converter, from a model in memory, one tensor at a time; read back for the same
families and types. The parts: `gguf_format` (the container), `gguf_blocks` (types of weights),
`gguf_names` (settings and tensors), `gguf_tokenizer`.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md describes the format.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ownwords.core.workspace import writing_atomically
from ownwords.models import gguf_tokenizer
from ownwords.models.bundle import Bundle
from ownwords.models.family import CausalLM, build, config_from_hf, hf_names
from ownwords.models.gguf_blocks import TYPES, Floats, TensorType
from ownwords.models.gguf_format import (
    Contents,
    Value,
    laid_out,
    reading,
    write_header,
    write_tensor,
)
from ownwords.models.gguf_names import (
    ROPE_FACTORS,
    config_of,
    from_gguf,
    metadata_of,
    rope_factors,
    tensor_name,
    to_gguf,
)
from ownwords.models.safely import ModelError, shown

# How to sample, as generation_config.json and as llama.cpp call it.
_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_QUANTISATION_VERSION = 2  # of the blocks' layout, which files with blocks must name


@dataclass(frozen=True)
class Written:
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
) -> Written:
    """Write a model and its tokenizer as one GGUF file, whole or not at all.

    Matrices are kept in `type` (f32, f16, bf16, q8_0, q4_0), norms and biases in f32. ModelError
    for what GGUF or llama.cpp cannot hold, WorkspaceError if the disk refuses.
    """
    path, generation = Path(path), generation or {}
    if type not in TYPES:
        raise ModelError(f"{type} is no type of weights", hint="types: " + ", ".join(TYPES))
    config: Mapping[str, Any] = model.config.to_hf()
    metadata = metadata_of(config)
    if name:
        metadata["general.name"] = name
    metadata |= _sampling(generation)
    words, notes = gguf_tokenizer.metadata_of(tokenizer_files, model.config.vocabulary, generation)
    family = model.config.MODEL_TYPE
    parameters = dict(model.named_parameters())
    sources = {tensor_name(family, theirs): parameters[ours] for ours, theirs, _ in hf_names(model)}
    if len(sources) != len(parameters):
        raise ModelError(
            f"the model has {len(parameters)} weights, and its family {len(sources)}",
            hint="merge an adapter into its model before it is exported",
        )
    factors = rope_factors(config)
    wanted = [
        (tensor, _type_for(tensor, tuple(source.shape), type), tuple(source.shape))
        for tensor, source in sources.items()
    ]
    if fallen := [tensor for tensor, kind, shape in wanted if len(shape) > 1 and kind.name != type]:
        notes.append(
            f"{len(fallen)} matrices are kept as f16: their rows are no multiple of 32, as"
            f" {type} needs ({shown(fallen)})"
        )
    if factors is not None:
        wanted.append((ROPE_FACTORS, TYPES["f32"], factors.shape))
    metadata["general.file_type"] = TYPES[type].file_number
    if TYPES[type].block_weights > 1:
        metadata["general.quantization_version"] = _QUANTISATION_VERSION
    table = laid_out(wanted)
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
    return Written(path, path.stat().st_size, kept, tuple(notes))


def load(path: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Bundle:
    """Read a GGUF file of one of our families, ours or another's, into a model.

    The header is checked whole before a weight is read: ModelError or ConfigError says what is
    missing, damaged or does not fit. Without `dtype` the weights become float32, which holds all
    types exactly.
    """
    with reading(Path(path)) as contents:
        tokenizer_files = gguf_tokenizer.files_of(contents.metadata)
        factors = contents.tensor(ROPE_FACTORS) if ROPE_FACTORS in contents.tensors else None
        hf_config = config_of(
            contents.metadata, _rows(contents), "output.weight" not in contents.tensors, factors
        )
        config = config_from_hf(hf_config)
        if config.layers > len(contents.tensors):
            raise ModelError(f"{path} claims {config.layers:,} layers and has fewer tensors")
        family = config.MODEL_TYPE
        names = {tensor_name(family, theirs): ours for ours, theirs, _ in hf_names(config)}
        _check_tensors(contents, names, build(config, device="meta"), path)
        model = build(config, device=device, dtype=dtype or torch.float32)
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, ours in names.items():
                stored = contents.tensor(name)
                if not np.isfinite(stored).all():
                    raise ModelError(
                        f"{path}: {name} holds what is no number", hint="get or make it again"
                    )
                values = from_gguf(family, hf_config, name, stored)
                parameters[ours].copy_(torch.from_numpy(np.ascontiguousarray(values)))
    generation = gguf_tokenizer.special_ids(contents.metadata) | _sampled(contents.metadata)
    title = contents.metadata.get("general.name")
    provenance = {"name": title} if isinstance(title, str) else {}
    return Bundle(model, config, tokenizer_files, generation, provenance, "", None)


def _type_for(name: str, shape: tuple[int, ...], type: str) -> TensorType:
    if len(shape) == 1:
        return TYPES["f32"]
    return TYPES[type] if shape[-1] % TYPES[type].block_weights == 0 else TYPES["f16"]


def _values(parameter: torch.Tensor) -> Floats:
    values: Floats = parameter.detach().to("cpu", torch.float32).numpy()
    return values


# The largest weight of each type; of blocks, by their scale, a float16 that ends at 65504.
_REACH = {
    "f32": 3.4028234e38,
    "f16": 65_504.0,
    "bf16": 3.3895e38,
    "q8_0": 65_504.0 * 127,
    "q4_0": 65_504.0 * 8,
}


def _check_reach(type: TensorType, values: Floats, name: str) -> None:
    if not float(np.abs(values).max(initial=0)) <= _REACH[type.name]:
        raise ModelError(
            f"the weights of {name} are too large for {type.name}, or no numbers",
            hint="" if type.name == "f32" else "export it with --type bf16 or f32",
        )


def _rows(contents: Contents) -> int:
    embedding = contents.tensors.get("token_embd.weight")
    tokens = contents.metadata.get("tokenizer.ggml.tokens")
    if embedding is None or not isinstance(tokens, list) or len(tokens) != embedding.shape[0]:
        raise ModelError("the GGUF file's tokens and rows of token_embd.weight differ in number")
    return embedding.shape[0]


def _check_tensors(
    contents: Contents, names: Mapping[str, str], model: CausalLM, path: str | Path
) -> None:
    found = contents.tensors.keys() - {ROPE_FACTORS}
    unknown, missing = found - names.keys(), names.keys() - found
    if unknown or missing:
        sides = (("unknown", unknown), ("missing", missing))
        told = "; ".join(f"{len(some)} {side}: {shown(some)}" for side, some in sides if some)
        raise ModelError(f"{path} does not hold the tensors of a {model.config.MODEL_TYPE}: {told}")
    shapes = {ours: tuple(parameter.shape) for ours, parameter in model.named_parameters()}
    for name, ours in names.items():
        if contents.tensors[name].shape != shapes[ours]:
            raise ModelError(
                f"{path}: {name} has the shape {list(contents.tensors[name].shape)}, and the"
                f" settings ask for {list(shapes[ours])}"
            )


def _sampling(generation: Mapping[str, object]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for theirs, key in _SAMPLING.items():
        value = generation.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = int(value) if theirs == "top_k" else float(value)
    return found


def _sampled(metadata: Mapping[str, Value]) -> dict[str, object]:
    found: dict[str, object] = {}
    for theirs, key in _SAMPLING.items():
        value = metadata.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[theirs] = value if theirs == "top_k" else float(str(np.float32(value)))
    return found
