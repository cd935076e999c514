"""A GGUF file, ours or another's, to a model in memory and its tokenizer's files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from ownwords.models import registry
from ownwords.models.bundle import Bundle
from ownwords.models.decoder import CausalLM, build
from ownwords.models.gguf import sampling, tokenizer
from ownwords.models.gguf.container import GGUFContents, open_gguf
from ownwords.models.gguf.families import config_of
from ownwords.models.gguf.rope import ROPE_FACTORS
from ownwords.models.gguf.tensors import from_gguf, tensor_name
from ownwords.models.untrusted_files import ModelError, preview
from ownwords.models.weight_mapping import hf_names


def load(path: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Bundle:
    """Read a GGUF file of one of our families, ours or another's, into a model.

    The header is checked whole before a weight is read: ModelError or ConfigError says what is
    missing, damaged or does not fit. Without `dtype` the weights become float32, which holds all
    types exactly.
    """
    with open_gguf(Path(path)) as contents:
        tokenizer_files = tokenizer.files_of(contents.metadata)
        factors = contents.tensor(ROPE_FACTORS) if ROPE_FACTORS in contents.tensors else None
        hf_config = config_of(
            contents.metadata, _rows(contents), "output.weight" not in contents.tensors, factors
        )
        config = registry.config_from_json(hf_config)
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
    generation = tokenizer.special_ids(contents.metadata)
    generation |= sampling.generation_of(contents.metadata)
    title = contents.metadata.get("general.name")
    provenance = {"name": title} if isinstance(title, str) else {}
    return Bundle(config, tokenizer_files, generation, provenance, "", None, model)


def _rows(contents: GGUFContents) -> int:
    embedding = contents.tensors.get("token_embd.weight")
    tokens = contents.metadata.get("tokenizer.ggml.tokens")
    if embedding is None or not isinstance(tokens, list) or len(tokens) != embedding.shape[0]:
        raise ModelError("the GGUF file's tokens and rows of token_embd.weight differ in number")
    return embedding.shape[0]


def _check_tensors(
    contents: GGUFContents, names: Mapping[str, str], model: CausalLM, path: str | Path
) -> None:
    found = contents.tensors.keys() - {ROPE_FACTORS}
    unknown, missing = found - names.keys(), names.keys() - found
    if unknown or missing:
        sides = (("unknown", unknown), ("missing", missing))
        told = "; ".join(f"{len(some)} {side}: {preview(some)}" for side, some in sides if some)
        raise ModelError(f"{path} does not hold the tensors of a {model.config.MODEL_TYPE}: {told}")
    shapes = {ours: tuple(parameter.shape) for ours, parameter in model.named_parameters()}
    for name, ours in names.items():
        if contents.tensors[name].shape != shapes[ours]:
            raise ModelError(
                f"{path}: {name} has the shape {list(contents.tensors[name].shape)}, and the"
                f" settings ask for {list(shapes[ours])}"
            )
