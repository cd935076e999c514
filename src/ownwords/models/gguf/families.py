"""The four families' settings, as config.json says them and as llama.cpp does.

Nothing here knows how our own modules are built.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ownwords.models.gguf.container import Value
from ownwords.models.gguf.rope import llama3_scaling, rope_of, scaling_config, scaling_settings
from ownwords.models.gguf.settings import ArchitectureMetadata, full_key
from ownwords.models.gguf.tensor_types import Floats
from ownwords.models.untrusted_files import ModelError

_MOST_LAYERS = 1 << 16


def metadata_of(config: Mapping[str, Any]) -> dict[str, Value]:
    """The settings of a model in llama.cpp's keys, from its config.json."""
    model_type = str(config["model_type"])
    known = ARCHITECTURES.get(model_type)
    if known is None:
        raise ModelError(f"a model of type {model_type} cannot be written as GGUF")
    return {
        "general.architecture": known.name,
        **{full_key(known.name, key): value for key, value in known.settings_of(config).items()},
    }


def config_of(
    metadata: Mapping[str, Value], vocabulary: int, tied: bool, factors: Floats | None
) -> dict[str, Any]:
    """A config.json, from metadata and what only the tensors say."""
    settings = ArchitectureMetadata(metadata)
    for model_type, known in ARCHITECTURES.items():
        if known.name == settings.architecture:
            config = {
                "model_type": model_type,
                "vocab_size": vocabulary,
                "tie_word_embeddings": tied,
                **known.config_of(settings),
            }
            if factors is not None:
                config["rope_parameters"] = llama3_scaling(settings, config, factors)
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


def _gpt2_config(settings: ArchitectureMetadata) -> dict[str, Any]:
    return {
        "n_positions": settings.count("context_length"),
        "n_embd": settings.count("embedding_length"),
        "n_layer": settings.count("block_count"),
        "n_inner": settings.count("feed_forward_length"),
        "n_head": settings.count("attention.head_count"),
        "layer_norm_epsilon": settings.real("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


def _llama_settings(config: Mapping[str, Any]) -> dict[str, Value]:
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    rope = rope_of(config)
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
        **scaling_settings(rope),
    }


def _llama_config(settings: ArchitectureMetadata) -> dict[str, Any]:
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
            **scaling_config(settings),
        },
        "hidden_act": "silu",
    }


def _qwen3_settings(config: Mapping[str, Any]) -> dict[str, Value]:
    if config.get("use_sliding_window"):
        raise ModelError(
            "llama.cpp knows no sliding window (use_sliding_window) in Qwen3",
            hint="export it with --to hf",
        )
    return _llama_settings(config)


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
        found["rope.freq_base_swa"] = float(rope_of(config, "sliding_attention")["rope_theta"])
    return found


def _gemma3_config(settings: ArchitectureMetadata) -> dict[str, Any]:
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


@dataclass(frozen=True)
class Architecture:
    """How llama.cpp calls a family, and its settings."""

    name: str
    settings_of: Callable[[Mapping[str, Any]], dict[str, Value]]
    config_of: Callable[[ArchitectureMetadata], dict[str, Any]]


# By model_type.
ARCHITECTURES = {
    "gpt2": Architecture("gpt2", _gpt2_settings, _gpt2_config),
    "llama": Architecture("llama", _llama_settings, _llama_config),
    "qwen3": Architecture("qwen3", _qwen3_settings, _llama_config),
    "gemma3_text": Architecture("gemma3", _gemma3_settings, _gemma3_config),
}
