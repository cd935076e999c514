"""Rotary settings: where config.json says them, and how GGUF keeps what they are scaled by."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ownwords.models.gguf.container import Value
from ownwords.models.gguf.settings import ArchitectureMetadata
from ownwords.models.gguf.tensor_types import Floats
from ownwords.models.untrusted_files import ModelError

# A tensor beside the weights: by what each rotary frequency is divided, for Llama 3's scaling.
ROPE_FACTORS = "rope_freqs.weight"
# llama.cpp keeps of Llama 3's scaling only those factors; these of our own keep the settings.
_OWN_ROPE = "ownwords.rope_scaling."
_LLAMA3_FIELDS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)
# What files from elsewhere may be scaled with: Llama 3.1, and 3.2.
_LLAMA3_KNOWN = ((8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192))


def rope_of(config: Mapping[str, Any], kind: str = "full_attention") -> dict[str, Any]:
    """Rotary settings, from how config.json says them now or said them before."""
    said = config.get("rope_parameters")
    if said:
        found = dict(said.get(kind, said))
    elif kind == "sliding_attention":
        found = {"rope_theta": config.get("rope_local_base_freq")}
    else:
        found = dict(config.get("rope_scaling") or {})
    found.setdefault("rope_theta", config.get("rope_theta"))
    if found["rope_theta"] is None:
        found["rope_theta"] = 10_000.0
    return found


def scaling_settings(rope: Mapping[str, Any]) -> dict[str, Value]:
    """What GGUF says of the scaling; ModelError for a kind that it cannot."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("default", "dynamic"):  # the second changes nothing within the context
        return {}
    if kind == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    if kind == "llama3":
        return {_OWN_ROPE + field: float(rope[field]) for field in _LLAMA3_FIELDS}
    raise ModelError(
        f"rope scaling of the type {kind} cannot be written as GGUF", hint="export it with --to hf"
    )


def scaling_config(settings: ArchitectureMetadata) -> dict[str, Any]:
    """What config.json says of the scaling that a GGUF file names."""
    kind = settings.text("rope.scaling.type", "none")
    if kind == "none":
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": settings.real("rope.scaling.factor")}
    raise ModelError(f"the GGUF file's rope scaling is of the type {kind[:60]!a}")


def rope_factors(config: Mapping[str, Any]) -> Floats | None:
    """The values of `ROPE_FACTORS`, None for a model without Llama 3's scaling."""
    if config["model_type"] == "gpt2":
        return None
    rope = rope_of(config)
    if rope.get("rope_type", rope.get("type")) != "llama3":
        return None
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    return _llama3_factors(rope, head_dim)


def llama3_scaling(
    settings: ArchitectureMetadata, config: Mapping[str, Any], factors: Floats
) -> dict[str, Any]:
    """The rotary settings that these factors follow from; ModelError where none are known."""
    rope = config.get("rope_parameters")
    if config["model_type"] not in ("llama", "qwen3") or not isinstance(rope, dict):
        raise ModelError(f"the GGUF file has {ROPE_FACTORS}, which its family does not use")
    candidates: list[tuple[float, ...]] = list(_LLAMA3_KNOWN)
    if settings.has(_OWN_ROPE + "factor"):
        candidates = [tuple(settings.real(_OWN_ROPE + field) for field in _LLAMA3_FIELDS)]
    for candidate in candidates:
        if candidate[2] <= candidate[1]:
            continue
        tried = {**rope, "rope_type": "llama3", **dict(zip(_LLAMA3_FIELDS, candidate, strict=True))}
        tried["original_max_position_embeddings"] = int(candidate[3])
        expected = _llama3_factors(tried, config["head_dim"])
        if factors.shape == expected.shape and np.allclose(factors, expected, rtol=1e-4):
            return tried
    raise ModelError(f"the rotary factors in {ROPE_FACTORS} follow no scaling that is known here")


def _llama3_factors(rope: Mapping[str, Any], head_dim: int) -> Floats:
    """Slow rotations are divided by `factor`, fast ones left alone, those between blended."""
    factor, low, high, context = (float(rope[field]) for field in _LLAMA3_FIELDS)
    frequencies = float(rope["rope_theta"]) ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = context * frequencies / (2 * math.pi)  # within the original context
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / factor + kept)).astype(np.float32)
