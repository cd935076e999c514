"""Reads a GGUF file tensor by tensor, with its config and tokenizer; does not import torch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ownwords.models.configs.config import ModelConfig
from ownwords.models.gguf import tokenizer
from ownwords.models.gguf.container import GGUFContents, open_gguf
from ownwords.models.gguf.metadata import ROPE_FACTORS, read_config, read_sampling
from ownwords.models.gguf.tensor_types import Floats
from ownwords.models.gguf.weight_layout import from_gguf
from ownwords.models.untrusted_files import ModelError, preview
from ownwords.models.weight_mapping import gguf_names, weight_shapes


@dataclass(frozen=True)
class GGUFModel:
    """An open GGUF file of a supported family; `generation` is its generation_config.json."""

    config: ModelConfig
    tokenizer_files: Mapping[str, bytes]
    generation: Mapping[str, object]
    title: str
    contents: GGUFContents
    path: Path

    def types(self) -> set[str]:
        """The names of the types of its matrices."""
        return {entry.type.name for entry in self.contents.tensors.values() if len(entry.shape) > 1}

    def weight(self, name: str) -> Floats:
        """The weight of our name, as the model uses it; ModelError if it is not finite."""
        stored = gguf_names(self.config)[name]
        values = self.contents.tensor(stored)
        if not np.isfinite(values).all():
            raise ModelError(
                f"{self.path}: {stored} holds numbers that are not finite",
                hint="download or make the file again",
            )
        return np.ascontiguousarray(from_gguf(self.config, stored, values))


@contextmanager
def read(path: Path) -> Iterator[GGUFModel]:
    """Open a GGUF file; ModelError or ConfigError says what is missing, damaged or inconsistent.

    The whole header is checked before any weight is read.
    """
    with open_gguf(path) as contents:
        metadata = contents.metadata
        tokenizer_files = tokenizer.files_of(metadata)
        factors = contents.tensor(ROPE_FACTORS) if ROPE_FACTORS in contents.tensors else None
        tied = "output.weight" not in contents.tensors
        config = read_config(metadata, _rows(contents), tied, factors)
        if config.layers > len(contents.tensors):
            raise ModelError(f"{path} claims {config.layers:,} layers and has fewer tensors")
        shapes = weight_shapes(config)
        names = gguf_names(config)
        _check_tensors(contents, {names[ours]: shape for ours, shape in shapes.items()}, path)
        generation = tokenizer.special_ids(metadata) | read_sampling(metadata)
        title = metadata.get("general.name")
        title = title if isinstance(title, str) else ""
        yield GGUFModel(config, tokenizer_files, generation, title, contents, path)


def _rows(contents: GGUFContents) -> int:
    embedding = contents.tensors.get("token_embd.weight")
    tokens = contents.metadata.get("tokenizer.ggml.tokens")
    if embedding is None or not isinstance(tokens, list) or len(tokens) != embedding.shape[0]:
        raise ModelError("the GGUF file's tokens and rows of token_embd.weight differ in number")
    return embedding.shape[0]


def _check_tensors(
    contents: GGUFContents, expected: Mapping[str, tuple[int, ...]], path: Path
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
