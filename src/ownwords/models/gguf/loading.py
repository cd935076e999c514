"""Loads a GGUF file as a model in memory and its tokenizer's files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from ownwords.models.bundle import Bundle
from ownwords.models.decoder import build
from ownwords.models.gguf import tokenizer
from ownwords.models.gguf.container import GGUFContents, open_gguf
from ownwords.models.gguf.metadata import ROPE_FACTORS, read_config, read_sampling
from ownwords.models.gguf.saving import from_gguf
from ownwords.models.untrusted_files import ModelError, preview
from ownwords.models.weight_mapping import gguf_names, weight_shapes


def load(path: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Bundle:
    """Load a GGUF file of a supported family.

    The whole header is checked before any weight is read: ModelError or ConfigError says what is
    missing, damaged or inconsistent. Without `dtype` the weights become float32, which holds all
    types exactly.
    """
    with open_gguf(Path(path)) as contents:
        tokenizer_files = tokenizer.files_of(contents.metadata)
        factors = contents.tensor(ROPE_FACTORS) if ROPE_FACTORS in contents.tensors else None
        tied = "output.weight" not in contents.tensors
        config = read_config(contents.metadata, _rows(contents), tied, factors)
        if config.layers > len(contents.tensors):
            raise ModelError(f"{path} claims {config.layers:,} layers and has fewer tensors")
        names = {gguf: ours for ours, gguf in gguf_names(config).items()}
        shapes = weight_shapes(config)
        _check_tensors(contents, {gguf: shapes[ours] for gguf, ours in names.items()}, path)
        model = build(config, device=device, dtype=dtype or torch.float32)
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, ours in names.items():
                values = contents.tensor(name)
                if not np.isfinite(values).all():
                    raise ModelError(
                        f"{path}: {name} holds numbers that are not finite",
                        hint="download or make the file again",
                    )
                values = np.ascontiguousarray(from_gguf(config, name, values))
                parameters[ours].copy_(torch.from_numpy(values))
    generation = tokenizer.special_ids(contents.metadata) | read_sampling(contents.metadata)
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
    contents: GGUFContents, expected: Mapping[str, tuple[int, ...]], path: str | Path
) -> None:
    found = contents.tensors.keys() - {ROPE_FACTORS}
    unknown, missing = found - expected.keys(), expected.keys() - found
    if unknown or missing:
        sides = (("unknown", unknown), ("missing", missing))
        details = "; ".join(f"{len(some)} {side}: {preview(some)}" for side, some in sides if some)
        raise ModelError(f"{path} does not hold the tensors of its architecture: {details}")
    for name, shape in expected.items():
        if contents.tensors[name].shape != shape:
            raise ModelError(
                f"{path}: {name} has the shape {list(contents.tensors[name].shape)}, and the"
                f" settings ask for {list(shape)}"
            )
