"""Converts model configs and sampling settings to and from llama.cpp's metadata keys."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np

from ownwords.models.configs.config import ModelConfig, RopeScaling, frequencies
from ownwords.models.configs.llama import Gemma3Config, LlamaConfig
from ownwords.models.gguf.container import Floats, Value
from ownwords.models.registry import FAMILIES
from ownwords.models.untrusted_files import ModelError

# An extra tensor for Llama 3's rope scaling: the divisor of each rotary frequency.
ROPE_FACTORS = "rope_freqs.weight"
_ORIGINAL_CONTEXT = "rope.scaling.original_context_length"
_OPTIONAL = {"kv_heads": 0, "head_dim": 0, "rope_base": 10_000.0}
_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


class _Settings:
    """Typed, checked access to the metadata of one architecture."""

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        self._metadata = metadata
        self.architecture = str(metadata.get("general.architecture"))

    def number(self, key: str, kind: type, default: float | None = None) -> Any:  # noqa: ANN401
        """Return a positive number, an `int` or a `float`; ModelError for anything else."""
        value = self.get(key, default)
        if value == default and default is not None:
            return default
        kinds = (int,) if kind is int else (int, float)
        if type(value) not in kinds or not 0 < value < (1 << 31):
            raise ModelError(
                f"the GGUF file has no positive number as {self.architecture[:60]}.{key}"
            )
        return value if kind is int else _shortest(value)

    def get(self, key: str, default: object = None) -> Any:  # noqa: ANN401
        value = self._metadata.get(f"{self.architecture}.{key}", default)
        # A list, because the caller rejects it in place of a number; an array has no truth value.
        return value.tolist() if isinstance(value, np.ndarray) else value


def write_config(config: ModelConfig) -> dict[str, Value]:
    """Return the config in llama.cpp's keys; ModelError for settings that it does not support."""
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
    return {
        "general.architecture": architecture,
        **{f"{architecture}.{key}": value for key, value in settings.items()},
    }


def read_config(
    metadata: Mapping[str, Value], vocabulary: int, tied: bool, factors: Floats | None
) -> ModelConfig:
    """Return the config from metadata and the tensors; raises ModelError or ConfigError.

    `vocabulary` is the number of embedding rows, `tied` whether there is no output matrix, and
    `factors` the tensor `ROPE_FACTORS`, if present.
    """
    settings = _Settings(metadata)
    known = {each.GGUF_ARCHITECTURE: each for each in FAMILIES if each.GGUF_ARCHITECTURE}
    family = known.get(settings.architecture)
    if family is None:
        raise ModelError(
            f"the GGUF file holds a model of the architecture {settings.architecture[:60]!a}",
            hint="supported: " + ", ".join(known),
        )
    kinds = get_type_hints(family)
    values: dict[str, Any] = {"vocabulary": vocabulary, "tied": tied}
    for ours, key in family.GGUF_FIELDS.items():
        values[ours] = settings.number(key, kinds[ours], _OPTIONAL.get(ours))
    if issubclass(family, LlamaConfig):
        values["rope_scaling"] = _read_scaling(settings)
    if issubclass(family, Gemma3Config):
        values |= _read_gemma3(settings, values)
    config = family(**values)
    if isinstance(config, LlamaConfig):
        for key in ("attention.value_length", "rope.dimension_count"):
            if settings.get(key, config.head_dim) != config.head_dim:
                raise ModelError(
                    f"the GGUF file's {key} differs from its heads' width, {config.head_dim}"
                )
        if factors is not None:
            return replace(config, rope_scaling=_llama3_scaling(config, settings, factors))
    return config


def rope_factors(config: ModelConfig) -> Floats | None:
    """Return the values of `ROPE_FACTORS`; None for a model without Llama 3's scaling."""
    scaling = getattr(config, "rope_scaling", None)
    if not isinstance(config, LlamaConfig) or scaling is None or scaling.kind != "llama3":
        return None
    return _llama3_factors(config, scaling)


def write_sampling(generation: Mapping[str, object]) -> dict[str, Value]:
    """Return the sampling settings of generation_config.json in llama.cpp's keys."""
    return {
        key: int(value) if name == "top_k" else float(value)
        for name, key in _SAMPLING.items()
        if isinstance(value := generation.get(name), int | float) and not isinstance(value, bool)
    }


def read_sampling(metadata: Mapping[str, Value]) -> dict[str, object]:
    """Invert `write_sampling`."""
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
    return {_ORIGINAL_CONTEXT: scaling.original_context}


def _read_scaling(settings: _Settings) -> RopeScaling | None:
    kind = settings.get("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=settings.number("rope.scaling.factor", float))
    raise ModelError(f"the GGUF file's rope scaling is of the type {kind!a:.60}")


def _llama3_factors(config: LlamaConfig, scaling: RopeScaling) -> Floats:
    plain = frequencies(config.head_dim, config.rope_base)
    return plain / frequencies(config.head_dim, config.rope_base, scaling)


def _llama3_scaling(config: LlamaConfig, settings: _Settings, factors: Floats) -> RopeScaling:
    """Return the scaling that gives these factors in Llama 3's bands; ModelError if none does.

    The largest factor is the scaling's own.
    """
    context = settings.number(_ORIGINAL_CONTEXT, int, 8192)
    factor = round(float(factors.max()), 3)
    if factor > 0:
        scaling = RopeScaling(kind="llama3", factor=factor, original_context=context)
        expected = _llama3_factors(config, scaling)
        if factors.shape == expected.shape and np.allclose(factors, expected, rtol=1e-4):
            return scaling
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


def _read_gemma3(settings: _Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    layers, heads, width = values["layers"], values["heads"], values["width"]
    head_dim = values["head_dim"] or width // heads
    window = settings.number("attention.sliding_window", int, 0)
    period = settings.number("attention.sliding_window_pattern", int, 6) if window else 1
    softcap = settings.number("final_logit_softcapping", float, 0.0)
    return {
        "window": window or 4096,
        "query_scalar": max(1, _query_scalar(layers, width, heads, head_dim)),
        "softcap": softcap or None,
        "rope_base_sliding": settings.number("rope.freq_base_swa", float, 10_000.0),
        # Bound the length here; the config rejects that many layers.
        "sliding": tuple((layer + 1) % period != 0 for layer in range(min(layers, 1 << 16))),
    }


def _query_scalar(layers: int, width: int, heads: int, head_dim: int) -> int:
    """Return the query_pre_attn_scalar that llama.cpp assumes for Gemma 3, which has no key."""
    return width // heads if layers == 62 else head_dim


def _shortest(value: float) -> float:
    """Return the shortest decimal that rounds to this float32: 1e-6 rather than 9.99999997e-7."""
    return float(str(np.float32(value)))
