"""The families by name: from a `config.json` to a model, and from our names to everybody's."""

from collections.abc import Mapping

import torch

from ownwords.core.errors import ConfigError
from ownwords.models.decoder import CausalLM, Config, Name
from ownwords.models.gemma3 import Gemma3
from ownwords.models.gpt2 import GPT2
from ownwords.models.llama import Llama
from ownwords.models.qwen3 import Qwen3

__all__ = ["FAMILIES", "CausalLM", "Config", "Name", "build", "config_from_hf", "hf_names"]

FAMILIES: dict[str, type[CausalLM]] = {
    family.CONFIG.MODEL_TYPE: family for family in (GPT2, Llama, Qwen3, Gemma3)
}


def config_from_hf(data: Mapping[str, object]) -> Config:
    """The config of a parsed `config.json`; what we cannot honour is refused by name."""
    kind = data.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise ConfigError(
            f"config.json has model_type {kind!r:.80}, a family that is not known here",
            hint=f"known families: {', '.join(FAMILIES)}",
        )
    return family.CONFIG.from_hf(data)


def build(
    config: Config,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> CausalLM:
    """The model of a config: parameters allocated, not filled (`init_weights` or a file does)."""
    return FAMILIES[config.MODEL_TYPE](config, device=device, dtype=dtype)


def hf_names(model: CausalLM | Config) -> list[tuple[str, str, bool]]:
    """(our name, the name in a Hugging Face directory, transposed) for every tensor stored.

    A tied head is the embedding, so it has no entry of its own.
    """
    config = model.config if isinstance(model, CausalLM) else model
    names: list[tuple[str, str, bool]] = []
    for name in FAMILIES[config.MODEL_TYPE].NAMES:
        if name.ours == "head.weight" and config.tied:
            continue
        layers = range(config.layers) if "{i}" in name.ours else range(1)
        names += [
            (name.ours.replace("{i}", str(i)), name.theirs.replace("{i}", str(i)), name.transposed)
            for i in layers
        ]
    return names
