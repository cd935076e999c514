"""The registry of model families: config and model class; imports torch only to build a model."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import Gemma3Config, LlamaConfig, Qwen2Config, Qwen3Config

# The config class of each family, and the name of its model class within `ownwords.models`.
FAMILIES: Mapping[type[ModelConfig], str] = {
    GPT2Config: "gpt2.GPT2",
    LlamaConfig: "llama.Llama",
    Qwen2Config: "llama.Llama",
    Qwen3Config: "llama.Llama",
    Gemma3Config: "llama.Gemma3",
}


def config_from_json(data: Mapping[str, object]) -> ModelConfig:
    """Return the config from a parsed config.json; ConfigError names what is not supported."""
    kind = data.get("model_type")
    for family in FAMILIES:
        if kind == family.MODEL_TYPE:
            return family.from_hf(data)
    raise ConfigError(
        f"config.json has the unknown model_type {kind!r:.80}",
        hint=f"supported: {', '.join(family.MODEL_TYPE for family in FAMILIES)}",
    )


def model_class(config: ModelConfig) -> Any:  # noqa: ANN401 - a CausalLM, known to torch only
    """Return the model class of a config; imports torch."""
    module, _, name = FAMILIES[type(config)].partition(".")
    return getattr(import_module(f"ownwords.models.{module}"), name)
