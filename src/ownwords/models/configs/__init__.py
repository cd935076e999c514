"""The shapes of models as `config.json` says them, and the names of their weights; no torch."""

from collections.abc import Mapping

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.gemma3 import Gemma3Config
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import LlamaConfig
from ownwords.models.configs.qwen3 import Qwen3Config

FAMILIES: dict[str, type[ModelConfig]] = {
    family.MODEL_TYPE: family for family in (GPT2Config, LlamaConfig, Qwen3Config, Gemma3Config)
}


def config_from_json(data: Mapping[str, object]) -> ModelConfig:
    """The config of a parsed `config.json`; what we cannot honour is refused by name."""
    kind = data.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise ConfigError(
            f"config.json has model_type {kind!r:.80}, a family that is not known here",
            hint=f"known families: {', '.join(FAMILIES)}",
        )
    return family.from_hf(data)
