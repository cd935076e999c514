"""Loads a GGUF file as a model in memory and its tokenizer's files."""

from pathlib import Path

import torch

from ownwords.models.bundle import Bundle
from ownwords.models.decoder import build
from ownwords.models.gguf.reading import read


def load(path: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Bundle:
    """Load a GGUF file of a supported family; errors as in `reading.read`.

    Without `dtype` the weights become float32, which holds all types exactly.
    """
    with read(Path(path)) as file:
        model = build(file.config, device=device, dtype=dtype or torch.float32)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(file.weight(name)))
        provenance = {"name": file.title} if file.title else {}
        return Bundle(
            config=file.config,
            tokenizer_files=file.tokenizer_files,
            generation=file.generation,
            provenance=provenance,
            card="",
            fingerprint=None,
            license_files={},
            is_unchanged=False,
            model=model,
        )
