"""Converts model configs and sampling settings to and from llama.cpp's metadata keys."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np

from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.gemma3 import Gemma3Config
from ownwords.models.configs.llama import LlamaConfig
from ownwords.models.configs.rope_scaling import RopeScaling, frequencies
from ownwords.models.gguf.container import Floats, Value
from ownwords.models.registry import FAMILIES
from ownwords.models.untrusted_files import ModelError

# An extra tensor for Llama 3's rope scaling: the divisor of each rotary frequency.
ROPE_FACTORS = "rope_freqs.weight"
_OWN = "ownwords."  # our own keys, which have no architecture prefix
# llama.cpp stores Llama 3's scaling only as those divisors; our keys keep the settings too.
_LLAMA3_KEYS = {
    "factor": "ownwords.rope_scaling.factor",
    "low_freq_factor": "ownwords.rope_scaling.low_freq_factor",
    "high_freq_factor": "ownwords.rope_scaling.high_freq_factor",
    "original_context": "ownwords.rope_scaling.original_max_position_embeddings",
}
# Scalings to try for files without our keys: Llama 3.1's and 3.2's.
_LLAMA3_KNOWN = (RopeScaling(kind="llama3", factor=8.0), RopeScaling(kind="llama3", factor=32.0))
_OPTIONAL = {"kv_heads": 0, "head_dim": 0, "rope_base": 10_000.0}
_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


class ArchitectureMetadata:
    """Typed, checked access to the metadata of one architecture."""

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        self._metadata = metadata
        self.architecture = ""
        self.architecture = self.text("general.architecture")

    def count(self, key: str, default: int | None = None) -> int:
        value = self._value(key, default)
        if value == default and default is not None:
            return default
        if type(value) is not int or not 1 <= value <= 1 << 30:
            raise ModelError(f"the GGUF file's {self._full(key)} is not a positive whole number")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if type(value) not in (int, float) or not 0 < float(value) < math.inf:  # type: ignore[arg-type]
            raise ModelError(f"the GGUF file's {self._full(key)} is not a positive number")
        return _shortest(float(value))  # type: ignore[arg-type]

    def text(self, key: str, default: str | None = None) -> str:
        value = self._metadata.get(self._full(key), default)
        if not isinstance(value, str):
            raise ModelError(f"the GGUF file has no text in {self._full(key)}")
        return value

    def has(self, key: str) -> bool:
        return self._full(key) in self._metadata

    def _value(self, key: str, default: float | None) -> Value:
        value = self._metadata.get(self._full(key), default)
        if value is None:
            raise ModelError(f"the GGUF file has no {self._full(key)}")
        return value

    def _full(self, key: str) -> str:
        return _full_key(self.architecture, key)


def write_config(config: ModelConfig) -> dict[str, Value]:
    """The config in llama.cpp's keys; ModelError for settings that llama.cpp does not support."""
    architecture = config.GGUF_ARCHITECTURE
    if not architecture:
        raise ModelError(f"a model of type {config.MODEL_TYPE} cannot be written as GGUF")
    settings: dict[str, Value] = {
        key: getattr(config, ours) for ours, key in config.GGUF_FIELDS.items()
    }
    if isinstance(config, LlamaConfig):
        settings["attention.value_length"] = settings["rope.dimension_count"] = config.head_dim
        settings |= _write_scaling(config.rope_scaling)
    if isinstance(config, Gemma3Config):
        settings |= _write_gemma3(config)
    elif any(config.windows()):
        raise ModelError(
            f"llama.cpp has no sliding window (use_sliding_window) in {config.MODEL_TYPE}",
            hint="export it with --to hf",
        )
    return {
        "general.architecture": architecture,
        **{_full_key(architecture, key): value for key, value in settings.items()},
    }


def read_config(
    metadata: Mapping[str, Value], vocabulary: int, tied: bool, factors: Floats | None
) -> ModelConfig:
    """The config from metadata and from facts that only the tensors give; ModelError, ConfigError.

    `vocabulary` is the number of embedding rows, `tied` whether there is no output matrix, and
    `factors` the tensor `ROPE_FACTORS`, if present.
    """
    settings = ArchitectureMetadata(metadata)
    family = next((f for f in FAMILIES if settings.architecture == f.GGUF_ARCHITECTURE), None)
    if family is None:
        raise ModelError(
            f"the GGUF file holds a model of the architecture {settings.architecture[:60]!a}",
            hint="supported: " + ", ".join(each.GGUF_ARCHITECTURE for each in FAMILIES),
        )
    kinds = get_type_hints(family)
    values: dict[str, Any] = {"vocabulary": vocabulary, "tied": tied}
    for ours, key in family.GGUF_FIELDS.items():
        default: Any = _OPTIONAL.get(ours)
        read = settings.count if kinds[ours] is int else settings.real
        values[ours] = read(key, default)
    if issubclass(family, LlamaConfig):
        values["rope_scaling"] = _read_scaling(settings)
    if issubclass(family, Gemma3Config):
        values |= _read_gemma3(settings, values)
    config = family(**values)
    if issubclass(family, LlamaConfig):
        for key in ("attention.value_length", "rope.dimension_count"):
            if settings.count(key, config.head_dim) != config.head_dim:
                raise ModelError(
                    f"the GGUF file's {key} differs from its heads' width, {config.head_dim}"
                )
    return config if factors is None else _with_factors(config, settings, factors)


def rope_factors(config: ModelConfig) -> Floats | None:
    """The values of `ROPE_FACTORS`; None for a model without Llama 3's scaling."""
    scaling = getattr(config, "rope_scaling", None)
    if not isinstance(config, LlamaConfig) or scaling is None or scaling.kind != "llama3":
        return None
    return _llama3_factors(config, scaling)


def write_sampling(generation: Mapping[str, object]) -> dict[str, Value]:
    """The sampling settings of generation_config.json in llama.cpp's keys."""
    return {
        key: int(value) if name == "top_k" else float(value)
        for name, key in _SAMPLING.items()
        if isinstance(value := generation.get(name), int | float) and not isinstance(value, bool)
    }


def read_sampling(metadata: Mapping[str, Value]) -> dict[str, object]:
    """The inverse of `write_sampling`."""
    return {
        name: value if name == "top_k" else _shortest(value)
        for name, key in _SAMPLING.items()
        if isinstance(value := metadata.get(key), int | float) and not isinstance(value, bool)
    }


def _write_scaling(scaling: RopeScaling | None) -> dict[str, Value]:
    if scaling is None or scaling.kind == "dynamic":  # changes nothing within the context
        return {}
    if scaling.kind == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.factor}
    return {key: float(getattr(scaling, field)) for field, key in _LLAMA3_KEYS.items()}


def _read_scaling(settings: ArchitectureMetadata) -> RopeScaling | None:
    kind = settings.text("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=settings.real("rope.scaling.factor"))
    raise ModelError(f"the GGUF file's rope scaling is of the type {kind[:60]!a}")


def _llama3_factors(config: LlamaConfig, scaling: RopeScaling) -> Floats:
    plain = frequencies(config.head_dim, config.rope_base)
    return plain / frequencies(config.head_dim, config.rope_base, scaling)


def _with_factors(
    config: ModelConfig, settings: ArchitectureMetadata, factors: Floats
) -> ModelConfig:
    """The config with the rope scaling that yields these factors; ModelError if none does."""
    if not isinstance(config, LlamaConfig) or isinstance(config, Gemma3Config):
        raise ModelError(f"the GGUF file has {ROPE_FACTORS}, which its family does not use")
    candidates = list(_LLAMA3_KNOWN)
    if settings.has(_LLAMA3_KEYS["factor"]):
        values = {field: settings.real(key) for field, key in _LLAMA3_KEYS.items()}
        context = int(values.pop("original_context"))
        candidates = [RopeScaling(kind="llama3", original_context=context, **values)]
    for scaling in candidates:
        if scaling.high_freq_factor > scaling.low_freq_factor:
            expected = _llama3_factors(config, scaling)
            if factors.shape == expected.shape and np.allclose(factors, expected, rtol=1e-4):
                return replace(config, rope_scaling=scaling)
    raise ModelError(f"the rotary factors in {ROPE_FACTORS} follow no known scaling")


def _write_gemma3(config: Gemma3Config) -> dict[str, Value]:
    scaled_by = _query_scalar(config.layers, config.width, config.heads, config.head_dim)
    if config.query_scalar != scaled_by:
        raise ModelError(
            f"llama.cpp divides Gemma 3's queries by the root of {scaled_by}, and this model has"
            f" query_pre_attn_scalar {config.query_scalar}",
            hint="export it with --to hf",
        )
    if config.rope_scaling is not None and config.rope_scaling.kind == "llama3":
        raise ModelError("llama.cpp has no llama3 rope scaling in Gemma 3")
    full = [layer for layer, slides in enumerate(config.sliding) if not slides]
    period = full[0] + 1 if full else max(6, config.layers + 1)
    for layer, slides in enumerate(config.sliding):
        if slides == ((layer + 1) % period == 0):
            raise ModelError(
                f"GGUF cannot describe these layer_types: layer {layer} breaks the period {period}",
                hint="export it with --to hf",
            )
    settings: dict[str, Value] = {
        "attention.sliding_window": config.window,
        "attention.sliding_window_pattern": period,
        "rope.freq_base_swa": config.rope_base_sliding,
    }
    if config.softcap is not None:
        settings["final_logit_softcapping"] = config.softcap
    return settings


def _read_gemma3(settings: ArchitectureMetadata, values: Mapping[str, Any]) -> dict[str, Any]:
    layers, heads, width = values["layers"], values["heads"], values["width"]
    head_dim = values["head_dim"] or width // heads
    period, found = 1, {"window": 4096}
    if settings.has("attention.sliding_window"):
        found["window"] = settings.count("attention.sliding_window")
        period = settings.count("attention.sliding_window_pattern", 6)
    softcap = "final_logit_softcapping"
    return {
        **found,
        "query_scalar": max(1, _query_scalar(layers, width, heads, head_dim)),
        "softcap": settings.real(softcap) if settings.has(softcap) else None,
        "rope_base_sliding": settings.real("rope.freq_base_swa", 10_000.0),
        # Bound the length here; the config rejects that many layers.
        "sliding": tuple((layer + 1) % period != 0 for layer in range(min(layers, 1 << 16))),
    }


def _query_scalar(layers: int, width: int, heads: int, head_dim: int) -> int:
    """The query_pre_attn_scalar that llama.cpp assumes for Gemma 3; it has no key for it."""
    return width // heads if layers == 62 else head_dim


def _full_key(architecture: str, key: str) -> str:
    """The key as written in the file: architecture-prefixed unless it is general or our own."""
    return key if key.startswith((_OWN, "general.")) else f"{architecture}.{key}"


def _shortest(value: float) -> float:
    """The shortest decimal that rounds to this float32: 1e-6 rather than 9.99999997e-7."""
    return float(str(np.float32(value)))
