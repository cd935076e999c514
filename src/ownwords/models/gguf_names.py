"""What the four families are called in GGUF: settings, tensors, and how the weights are laid.

Everything is said in Hugging Face's terms on one side (a parsed config.json, names of tensors) and
in llama.cpp's on the other, so that nothing here knows how our own modules are built.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ownwords.models.gguf_blocks import Floats
from ownwords.models.gguf_format import Value
from ownwords.models.safely import ModelError

_GPT2 = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.h.{i}.ln_1": "blk.{i}.attn_norm",
    "transformer.h.{i}.attn.c_attn": "blk.{i}.attn_qkv",
    "transformer.h.{i}.attn.c_proj": "blk.{i}.attn_output",
    "transformer.h.{i}.ln_2": "blk.{i}.ffn_norm",
    "transformer.h.{i}.mlp.c_fc": "blk.{i}.ffn_up",
    "transformer.h.{i}.mlp.c_proj": "blk.{i}.ffn_down",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
}
_LLAMA = {
    "model.embed_tokens": "token_embd",
    "model.layers.{i}.input_layernorm": "blk.{i}.attn_norm",
    "model.layers.{i}.self_attn.q_proj": "blk.{i}.attn_q",
    "model.layers.{i}.self_attn.k_proj": "blk.{i}.attn_k",
    "model.layers.{i}.self_attn.v_proj": "blk.{i}.attn_v",
    "model.layers.{i}.self_attn.o_proj": "blk.{i}.attn_output",
    "model.layers.{i}.post_attention_layernorm": "blk.{i}.ffn_norm",
    "model.layers.{i}.mlp.gate_proj": "blk.{i}.ffn_gate",
    "model.layers.{i}.mlp.up_proj": "blk.{i}.ffn_up",
    "model.layers.{i}.mlp.down_proj": "blk.{i}.ffn_down",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_QWEN3 = _LLAMA | {
    "model.layers.{i}.self_attn.q_norm": "blk.{i}.attn_q_norm",
    "model.layers.{i}.self_attn.k_norm": "blk.{i}.attn_k_norm",
}
_GEMMA3 = _QWEN3 | {
    "model.layers.{i}.post_attention_layernorm": "blk.{i}.post_attention_norm",
    "model.layers.{i}.pre_feedforward_layernorm": "blk.{i}.ffn_norm",
    "model.layers.{i}.post_feedforward_layernorm": "blk.{i}.post_ffw_norm",
}

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


def tensor_name(model_type: str, theirs: str) -> str:
    """A tensor's name in GGUF, from its name in Hugging Face's files."""
    stem, _, kind = theirs.rpartition(".")
    layer = re.search(r"\.(\d+)\.", stem)
    pattern = stem.replace(layer[0], ".{i}.", 1) if layer else stem
    known = ARCHITECTURES[model_type].tensors.get(pattern)
    if known is None:
        raise ModelError(f"GGUF has no place for the tensor {theirs} of a {model_type} model")
    return f"{known.replace('{i}', layer[1]) if layer else known}.{kind}"


def to_gguf(model_type: str, config: Mapping[str, Any], name: str, values: Floats) -> Floats:
    """The weights as llama.cpp wants them laid, from how Hugging Face's (out, in) are."""
    if heads := _rotated_heads(model_type, config, name):
        # Llama's rotary pairs are (i, i + half) there and (2i, 2i + 1) in llama.cpp.
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if _is_gemma_norm(model_type, name):
        return values + np.float32(1)  # Gemma multiplies by 1 + weight, llama.cpp by the weight
    return values


def from_gguf(model_type: str, config: Mapping[str, Any], name: str, values: Floats) -> Floats:
    """The inverse of `to_gguf`."""
    if heads := _rotated_heads(model_type, config, name):
        return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if _is_gemma_norm(model_type, name):
        return values - np.float32(1)
    return values


def _rotated_heads(model_type: str, config: Mapping[str, Any], name: str) -> int:
    if model_type == "llama" and ".attn_q." in name:
        return int(config["num_attention_heads"])
    if model_type == "llama" and ".attn_k." in name:
        return int(config["num_key_value_heads"])
    return 0


def _is_gemma_norm(model_type: str, name: str) -> bool:
    return model_type == "gemma3_text" and name.endswith("norm.weight")


class Settings:
    """The metadata of one architecture, each value checked as it is asked for."""

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        self._metadata = metadata
        self.architecture = self._text("general.architecture")

    def count(self, key: str, default: int | None = None, most: int = 1 << 30) -> int:
        value = self._of(key, default)
        if type(value) is not int or not 1 <= value <= most:
            raise ModelError(f"the GGUF file's {self._full(key)} is no count up to {most:,}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self._of(key, default)
        if type(value) not in (int, float) or not 0 < float(value) < math.inf:  # type: ignore[arg-type]
            raise ModelError(f"the GGUF file's {self._full(key)} is no positive number")
        return _shortest(float(value))  # type: ignore[arg-type]

    def has(self, key: str) -> bool:
        return self._full(key) in self._metadata

    def text(self, key: str, default: str) -> str:
        return self._text(self._full(key), default)

    def _text(self, key: str, default: str | None = None) -> str:
        value = self._metadata.get(key, default)
        if not isinstance(value, str):
            raise ModelError(f"the GGUF file has no {key}, or one that is no text")
        return value

    def _of(self, key: str, default: float | None) -> Value:
        value = self._metadata.get(self._full(key), default)
        if value is None:
            raise ModelError(f"the GGUF file lacks {self._full(key)}")
        return value

    def _full(self, key: str) -> str:
        return key if key.startswith("ownwords.") else f"{self.architecture}.{key}"


def _shortest(value: float) -> float:
    """The number that a 32-bit float was written from: 1e-6 rather than 9.99999997e-7."""
    return float(str(np.float32(value)))


def metadata_of(config: Mapping[str, Any]) -> dict[str, Value]:
    """The settings of a model in llama.cpp's keys, from its config.json."""
    model_type = str(config["model_type"])
    known = ARCHITECTURES.get(model_type)
    if known is None:
        raise ModelError(f"a model of type {model_type} cannot be written as GGUF")
    return {
        "general.architecture": known.name,
        **{
            key if key.startswith("ownwords.") else f"{known.name}.{key}": value
            for key, value in known.settings_of(config).items()
        },
    }


def config_of(
    metadata: Mapping[str, Value], vocabulary: int, tied: bool, factors: Floats | None
) -> dict[str, Any]:
    """A config.json, from metadata and what only the tensors say."""
    settings = Settings(metadata)
    for model_type, known in ARCHITECTURES.items():
        if known.name == settings.architecture:
            config = {
                "model_type": model_type,
                "vocab_size": vocabulary,
                "tie_word_embeddings": tied,
                **known.config_of(settings),
            }
            if factors is not None:
                config["rope_parameters"] = _llama3_scaling(settings, config, factors)
            return config
    raise ModelError(
        f"the GGUF file holds a model of the architecture {settings.architecture[:60]!a}",
        hint="architectures read here: " + ", ".join(each.name for each in ARCHITECTURES.values()),
    )


def _gpt2_settings(config: Mapping[str, Any]) -> dict[str, Value]:
    width = int(config["n_embd"])
    return {
        "context_length": int(config["n_positions"]),
        "embedding_length": width,
        "block_count": int(config["n_layer"]),
        "feed_forward_length": int(config.get("n_inner") or 4 * width),
        "attention.head_count": int(config["n_head"]),
        "attention.layer_norm_epsilon": float(config["layer_norm_epsilon"]),
    }


def _gpt2_config(settings: Settings) -> dict[str, Any]:
    return {
        "n_positions": settings.count("context_length"),
        "n_embd": settings.count("embedding_length"),
        "n_layer": settings.count("block_count"),
        "n_inner": settings.count("feed_forward_length"),
        "n_head": settings.count("attention.head_count"),
        "layer_norm_epsilon": settings.real("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


def _qwen3_settings(config: Mapping[str, Any]) -> dict[str, Value]:
    if config.get("use_sliding_window"):
        raise ModelError(
            "llama.cpp knows no sliding window (use_sliding_window) in Qwen3",
            hint="export it with --to hf",
        )
    return _llama_settings(config)


def _llama_settings(config: Mapping[str, Any]) -> dict[str, Value]:
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    rope = _rope(config)
    return {
        "context_length": int(config["max_position_embeddings"]),
        "embedding_length": int(config["hidden_size"]),
        "block_count": int(config["num_hidden_layers"]),
        "feed_forward_length": int(config["intermediate_size"]),
        "attention.head_count": heads,
        "attention.head_count_kv": int(config.get("num_key_value_heads") or heads),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "rope.dimension_count": head_dim,
        "rope.freq_base": float(rope["rope_theta"]),
        **_scaling_settings(rope),
    }


def _llama_config(settings: Settings) -> dict[str, Any]:
    heads = settings.count("attention.head_count")
    width = settings.count("embedding_length")
    head_dim = settings.count("attention.key_length", max(1, width // heads))
    for key in ("attention.value_length", "rope.dimension_count"):
        if settings.count(key, head_dim) != head_dim:
            raise ModelError(f"the GGUF file's {key} differs from its heads' width, {head_dim}")
    return {
        "max_position_embeddings": settings.count("context_length"),
        "hidden_size": width,
        "num_hidden_layers": settings.count("block_count"),
        "intermediate_size": settings.count("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": settings.count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": settings.real("attention.layer_norm_rms_epsilon"),
        "rope_parameters": {
            "rope_theta": settings.real("rope.freq_base", 10_000.0),
            **_scaling_config(settings),
        },
        "hidden_act": "silu",
    }


def _gemma3_settings(config: Mapping[str, Any]) -> dict[str, Value]:
    layers, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
    found = _llama_settings(config)
    # llama.cpp knows no key for the scale of queries: it goes by this rule.
    scaled_by = int(config["hidden_size"]) // heads if layers == 62 else int(config["head_dim"])
    if float(config["query_pre_attn_scalar"]) != scaled_by:
        raise ModelError(
            f"llama.cpp divides Gemma 3's queries by the root of {scaled_by}, and this model has"
            f" query_pre_attn_scalar {config['query_pre_attn_scalar']}",
            hint="export it with --to hf",
        )
    if config.get("final_logit_softcapping"):
        found["final_logit_softcapping"] = float(config["final_logit_softcapping"])
    if config.get("sliding_window"):
        found["attention.sliding_window"] = int(config["sliding_window"])
        found["attention.sliding_window_pattern"] = _window_pattern(config)
        found["rope.freq_base_swa"] = float(_rope(config, "sliding_attention")["rope_theta"])
    return found


def _gemma3_config(settings: Settings) -> dict[str, Any]:
    found = _llama_config(settings)
    layers, heads = found["num_hidden_layers"], found["num_attention_heads"]
    del found["hidden_act"]
    found["hidden_activation"] = "gelu_pytorch_tanh"
    found["query_pre_attn_scalar"] = (
        found["hidden_size"] // heads if layers == 62 else found["head_dim"]
    )
    if settings.has("final_logit_softcapping"):
        found["final_logit_softcapping"] = settings.real("final_logit_softcapping")
    period = 1
    found["sliding_window"] = None
    if settings.has("attention.sliding_window"):
        found["sliding_window"] = settings.count("attention.sliding_window")
        period = settings.count("attention.sliding_window_pattern", 6)
    found["layer_types"] = [
        "sliding_attention" if (layer + 1) % period else "full_attention"
        for layer in range(min(layers, _MOST_LAYERS))
    ]
    found["rope_parameters"] = {
        "full_attention": found["rope_parameters"],
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": settings.real("rope.freq_base_swa", 10_000.0),
        },
    }
    return found


_MOST_LAYERS = 1 << 16


def _window_pattern(config: Mapping[str, Any]) -> int:
    """Every which layer looks at the whole text; only such a rhythm can be said in GGUF."""
    kinds: Sequence[str] = config.get("layer_types") or ()
    if not kinds:
        return int(config.get("sliding_window_pattern") or 6)
    period = (
        kinds.index("full_attention") + 1 if "full_attention" in kinds else max(6, len(kinds) + 1)
    )
    for layer, kind in enumerate(kinds):
        if (kind == "full_attention") != ((layer + 1) % period == 0):
            raise ModelError(
                f"layer_types has no rhythm that GGUF can say: layer {layer} is {kind}",
                hint="export it with --to hf",
            )
    return period


def _rope(config: Mapping[str, Any], kind: str = "full_attention") -> dict[str, Any]:
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


def _scaling_settings(rope: Mapping[str, Any]) -> dict[str, Value]:
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


def _scaling_config(settings: Settings) -> dict[str, Any]:
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
    rope = _rope(config)
    if rope.get("rope_type", rope.get("type")) != "llama3":
        return None
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    return _llama3_factors(rope, head_dim)


def _llama3_factors(rope: Mapping[str, Any], head_dim: int) -> Floats:
    """Slow rotations are divided by `factor`, fast ones left alone, those between blended."""
    factor, low, high, context = (float(rope[field]) for field in _LLAMA3_FIELDS)
    frequencies = float(rope["rope_theta"]) ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = context * frequencies / (2 * math.pi)  # within the original context
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / factor + kept)).astype(np.float32)


def _llama3_scaling(
    settings: Settings, config: Mapping[str, Any], factors: Floats
) -> dict[str, Any]:
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


@dataclass(frozen=True)
class Architecture:
    """How llama.cpp calls a family, its settings and its tensors."""

    name: str
    tensors: Mapping[str, str]  # Hugging Face's name to llama.cpp's
    settings_of: Callable[[Mapping[str, Any]], dict[str, Value]]
    config_of: Callable[[Settings], dict[str, Any]]


# By model_type.
ARCHITECTURES = {
    "gpt2": Architecture("gpt2", _GPT2, _gpt2_settings, _gpt2_config),
    "llama": Architecture("llama", _LLAMA, _llama_settings, _llama_config),
    "qwen3": Architecture("qwen3", _QWEN3, _qwen3_settings, _llama_config),
    "gemma3_text": Architecture("gemma3", _GEMMA3, _gemma3_settings, _gemma3_config),
}
