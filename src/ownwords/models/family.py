"""The families by name: from a config to a model."""

import torch

from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM
from ownwords.models.gemma3 import Gemma3
from ownwords.models.gpt2 import GPT2
from ownwords.models.llama import Llama
from ownwords.models.qwen3 import Qwen3

FAMILIES: dict[str, type[CausalLM]] = {
    family.CONFIG.MODEL_TYPE: family for family in (GPT2, Llama, Qwen3, Gemma3)
}


def build(
    config: ModelConfig,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> CausalLM:
    """The model of a config: parameters allocated, not filled (`init_weights` or a file does)."""
    return FAMILIES[config.MODEL_TYPE](config, device=device, dtype=dtype)
