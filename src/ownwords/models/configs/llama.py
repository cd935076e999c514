"""The configs of Llama 2 and 3, Qwen2 and 3 (Llama with biases or QK norms) and Gemma 3 (text).

Also the default shapes of the models trained here, which are Qwen3's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import (
    Count,
    HFField,
    ModelConfig,
    RopeScaling,
    WeightName,
    check_supported,
    hf_table,
    hf_value,
    read_rope,
    weight_names,
)

_QK_NORMS = weight_names(
    """
    attention.query_norm.weight  self_attn.q_norm.weight  attn_q_norm  head_dim
    attention.key_norm.weight    self_attn.k_norm.weight  attn_k_norm  head_dim
    """,
    prefix="model.layers.{i}.",
)
_QKV_BIASES = weight_names(
    """
    attention.query.bias  self_attn.q_proj.bias  attn_q  q_width
    attention.key.bias    self_attn.k_proj.bias  attn_k  kv_width
    attention.value.bias  self_attn.v_proj.bias  attn_v  kv_width
    """,
    prefix="model.layers.{i}.",
)
# Gemma's additional norms. In Gemma, post_attention_layernorm is the norm after the attention; in
# Llama, it is the norm before the MLP.
_NORMS = weight_names(
    """
    attention_output_norm.weight  post_attention_layernorm.weight   post_attention_norm  width
    mlp_norm.weight               pre_feedforward_layernorm.weight  ffn_norm             width
    mlp_output_norm.weight        post_feedforward_layernorm.weight  post_ffw_norm       width
    """,
    prefix="model.layers.{i}.",
)
_LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(ModelConfig):
    """The config of a Llama without biases, as published; Qwen and Gemma 3 extend it."""

    MODEL_TYPE: ClassVar[str] = "llama"
    ARCHITECTURE: ClassVar[str] = "LlamaForCausalLM"
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (
        *weight_names("embedding.weight  model.embed_tokens.weight  token_embd  vocabulary width"),
        *weight_names(
            """
            attention_norm.weight    input_layernorm.weight           attn_norm    width
            attention.query.weight   self_attn.q_proj.weight          attn_q       q_width width
            attention.key.weight     self_attn.k_proj.weight          attn_k       kv_width width
            attention.value.weight   self_attn.v_proj.weight          attn_v       kv_width width
            attention.output.weight  self_attn.o_proj.weight          attn_output  width q_width
            mlp_norm.weight          post_attention_layernorm.weight  ffn_norm     width
            mlp.gate.weight          mlp.gate_proj.weight             ffn_gate     hidden width
            mlp.up.weight            mlp.up_proj.weight               ffn_up       hidden width
            mlp.down.weight          mlp.down_proj.weight             ffn_down     width hidden
            """,
            prefix="model.layers.{i}.",
        ),
        *weight_names("final_norm.weight  model.norm.weight  output_norm  width"),
        *weight_names("head.weight  lm_head.weight  output  vocabulary width"),
    )
    HF_FIELDS: ClassVar[Mapping[str, HFField]] = {
        "vocabulary": HFField("vocab_size"),
        "context": HFField("max_position_embeddings"),
        "width": HFField("hidden_size"),
        "layers": HFField("num_hidden_layers"),
        "heads": HFField("num_attention_heads"),
        "kv_heads": HFField("num_key_value_heads", 0),
        "head_dim": HFField("head_dim", 0),
        "hidden": HFField("intermediate_size"),
        "norm_eps": HFField("rms_norm_eps", 1e-6),
        "tied": HFField("tie_word_embeddings", False),
    }
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "mlp_bias": (False,),
    }
    GGUF_ARCHITECTURE: ClassVar[str] = "llama"
    GGUF_INTERLEAVED_ROPE: ClassVar[bool] = True
    GGUF_FIELDS: ClassVar[Mapping[str, str]] = {
        "context": "context_length",
        "width": "embedding_length",
        "layers": "block_count",
        "hidden": "feed_forward_length",
        "heads": "attention.head_count",
        "kv_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "norm_eps": "attention.layer_norm_rms_epsilon",
        "rope_base": "rope.freq_base",
    }
    ROPE_BASE: ClassVar[float] = 10_000.0  # the default if config.json has none
    QK_NORMS: ClassVar[bool] = False  # norms on queries and keys
    QKV_BIASES: ClassVar[bool] = False
    OUTPUT_NORMS: ClassVar[bool] = False  # norms after the attention and the MLP

    norm_eps: float = 1e-5
    tied: bool = False
    rope_base: float = 10_000.0
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_dim % 2:
            raise ConfigError(f"head_dim ({self.head_dim}) must be even: RoPE rotates pairs")

    def rope_specs(self) -> tuple[tuple[float, RopeScaling | None], ...]:
        return ((self.rope_base, self.rope_scaling),)

    @classmethod
    def rope_table(cls, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the RoPE scaling table of config.json, under its older or newer name."""
        return hf_table(data, "rope_scaling") or hf_table(data, "rope_parameters")

    @classmethod
    def hf_values(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        check_supported(data, {"partial_rotary_factor": (1.0,)})
        values = super().hf_values(data)
        rope = read_rope(data, cls.rope_table(data), values["context"], cls.ROPE_BASE)
        return {**values, "rope_base": rope[0], "rope_scaling": rope[1]}

    def to_hf(self) -> dict[str, object]:
        scaling = self.rope_scaling.to_hf() if self.rope_scaling else None
        return {**super().to_hf(), "rope_theta": self.rope_base, "rope_scaling": scaling}


@dataclass(frozen=True, kw_only=True)
class Qwen3Config(LlamaConfig):
    """The config of a Qwen3 model; the sliding window that its files may have is not supported."""

    MODEL_TYPE: ClassVar[str] = "qwen3"
    ARCHITECTURE: ClassVar[str] = "Qwen3ForCausalLM"
    QK_NORMS: ClassVar[bool] = True
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (*LlamaConfig.WEIGHTS, *_QK_NORMS)
    HF_FIELDS: ClassVar[Mapping[str, HFField]] = {
        **LlamaConfig.HF_FIELDS,
        "kv_heads": HFField("num_key_value_heads"),
        "head_dim": HFField("head_dim", 128),
    }
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "use_sliding_window": (False,),
    }
    GGUF_ARCHITECTURE: ClassVar[str] = "qwen3"
    GGUF_INTERLEAVED_ROPE: ClassVar[bool] = False

    norm_eps: float = 1e-6
    tied: bool = True

    @classmethod
    def hf_values(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        values = super().hf_values(data)
        if any(_read_layer_types(data, values["layers"]) or ()):
            raise ConfigError("config.json has layers with a sliding window: not implemented")
        return values


@dataclass(frozen=True, kw_only=True)
class Qwen2Config(Qwen3Config):
    """The config of a Qwen2 or Qwen2.5 model: biases instead of Qwen3's norms."""

    MODEL_TYPE: ClassVar[str] = "qwen2"
    ARCHITECTURE: ClassVar[str] = "Qwen2ForCausalLM"
    QK_NORMS: ClassVar[bool] = False
    QKV_BIASES: ClassVar[bool] = True
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (*LlamaConfig.WEIGHTS, *_QKV_BIASES)
    HF_FIELDS: ClassVar[Mapping[str, HFField]] = {
        **Qwen3Config.HF_FIELDS,
        "head_dim": HFField("head_dim", 0),
    }
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "hidden_act": ("silu",),
        "use_sliding_window": (False,),
    }
    GGUF_ARCHITECTURE: ClassVar[str] = "qwen2"


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(LlamaConfig):
    """The config of a Gemma 3 model.

    `sliding` says for each layer whether it uses the sliding `window`; empty means five of six.
    """

    MODEL_TYPE: ClassVar[str] = "gemma3_text"
    ARCHITECTURE: ClassVar[str] = "Gemma3ForCausalLM"
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (
        *(name for name in LlamaConfig.WEIGHTS if "mlp_norm" not in name.ours),
        *_QK_NORMS,
        *_NORMS,
    )
    HF_FIELDS: ClassVar[Mapping[str, HFField]] = {
        **LlamaConfig.HF_FIELDS,
        "kv_heads": HFField("num_key_value_heads"),
        "head_dim": HFField("head_dim", 256),
        "tied": HFField("tie_word_embeddings", True),
        "query_scalar": HFField("query_pre_attn_scalar", 256),
        "softcap": HFField("final_logit_softcapping", None),
        "window": HFField("sliding_window", 4096),
    }
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "hidden_activation": ("gelu_pytorch_tanh",),
        "attention_bias": (False,),
        "attn_logit_softcapping": (None,),
        "use_bidirectional_attention": (False,),
    }
    GGUF_ARCHITECTURE: ClassVar[str] = "gemma3"
    GGUF_INTERLEAVED_ROPE: ClassVar[bool] = False
    ROPE_BASE: ClassVar[float] = 1_000_000.0
    QK_NORMS: ClassVar[bool] = True
    OUTPUT_NORMS: ClassVar[bool] = True
    GELU: ClassVar[bool] = True
    NORM_OFFSET: ClassVar[float] = 1.0

    norm_eps: float = 1e-6
    tied: bool = True
    rope_base: float = 1_000_000.0
    rope_base_sliding: float = 10_000.0  # `rope_scaling` applies only to layers without a window
    window: int = 512
    sliding: tuple[bool, ...] = ()
    query_scalar: int = 256  # scores are divided by its root, independent of head_dim
    softcap: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sliding:
            object.__setattr__(self, "sliding", _every(6, self.layers))
        if len(self.sliding) != self.layers:
            raise ConfigError(f"sliding names {len(self.sliding)} of {self.layers} layers")
        if self.window < 1:
            raise ConfigError(f"window ({self.window}) must be at least 1")

    @property
    def attention_scale(self) -> float:
        return float(self.query_scalar**-0.5)

    @property
    def embedding_scale(self) -> float:
        return float(self.width**0.5)

    @property
    def logit_softcap(self) -> float | None:
        return self.softcap

    def windows(self) -> tuple[int | None, ...]:
        return tuple(self.window if slides else None for slides in self.sliding)

    def rope_specs(self) -> tuple[tuple[float, RopeScaling | None], ...]:
        return (*super().rope_specs(), (self.rope_base_sliding, None))

    def rope_of_layers(self) -> tuple[int, ...]:
        return tuple(int(slides) for slides in self.sliding)

    @classmethod
    def rope_table(cls, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
        newer = hf_table(data, "rope_parameters")
        if newer is not None:  # a table for each kind of layer
            check_supported(newer, {"rope_type": ()}, "rope_parameters in config.json")
            newer = hf_table(newer, "full_attention")
        return hf_table(data, "rope_scaling") or newer

    @classmethod
    def hf_values(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        values = super().hf_values(data)
        near = hf_table(hf_table(data, "rope_parameters") or {}, "sliding_attention")
        if near is not None:
            check_supported(near, {"rope_type": ("default",)}, "rope_parameters in config.json")
        older = {"rope_theta": data.get("rope_local_base_freq")}
        base, _ = read_rope(older, near, values["context"], 10_000.0)
        sliding = _read_layer_types(data, values["layers"])
        if sliding is None:
            pattern = hf_value(data, "_sliding_window_pattern", Count, 6)
            pattern = hf_value(data, "sliding_window_pattern", Count, pattern)
            sliding = _every(pattern, values["layers"])
        return {**values, "rope_base_sliding": base, "sliding": sliding}

    def to_hf(self) -> dict[str, object]:
        return {
            **super().to_hf(),
            "rope_local_base_freq": self.rope_base_sliding,
            "layer_types": [_LAYER_TYPES[slides] for slides in self.sliding],
            # For loaders older than `layer_types`: the number of the first layer without a window.
            "sliding_window_pattern": [*self.sliding, False].index(False) + 1,
        }


def _read_layer_types(data: Mapping[str, Any], layers: int) -> tuple[bool, ...] | None:
    """Whether each layer has a sliding window, from `layer_types`; None if that is missing."""
    kinds = hf_value(data, "layer_types", list[Any], None)
    if kinds is None:
        return None
    if len(kinds) != layers or not all(kind in _LAYER_TYPES for kind in kinds):
        raise ConfigError(
            f"config.json: layer_types must list {layers} layers, each {' or '.join(_LAYER_TYPES)}"
        )
    return tuple(kind == _LAYER_TYPES[True] for kind in kinds)


def _every(pattern: int, layers: int) -> tuple[bool, ...]:
    """Whether each layer has a sliding window: all except every `pattern`-th."""
    return tuple((layer + 1) % pattern != 0 for layer in range(layers))


def parameter_count(config: Qwen3Config) -> int:
    """Return the number of parameters of a model of this config; a tied head is counted once."""
    matrices = 2 * config.head_dim * (config.heads + config.kv_heads) + 3 * config.hidden
    norms = 2 * config.width + 2 * config.head_dim
    tables = config.vocabulary * config.width * (1 if config.tied else 2)
    return tables + config.layers * (config.width * matrices + norms) + config.width


def config_for_budget(budget: int, vocabulary: int, context: int) -> Qwen3Config:
    """Return the default shape for about `budget` parameters (from 0.5 million), with embedding.

    Width: a multiple of 128, or of 32 below 256, where steps of 128 would miss the size by half.
    Layers: about width / 32 up to a width of 256, then one more for every 64, a compromise of speed
    (width) and quality (depth). head_dim: 64, or 32 below a width of 256; two query heads share a
    key head if their number is even and at least four. Hidden: 8/3 of the width, so that the three
    matrices of the gated MLP cost as much as two of four times the width. The head is tied to the
    embedding: at this size a second table would be a large share of the model.
    """
    best = min(
        (
            _shape(width, layers, vocabulary, context)
            for width in (*range(32, 256, 32), *range(256, 8192 + 1, 128))
            for layers in range(math.ceil(0.7 * _depth(width)), math.ceil(1.4 * _depth(width)) + 1)
        ),
        key=lambda config: _distance(config, budget),
    )
    made = parameter_count(best)
    if not 1 / 1.5 < made / max(budget, 1) < 1.5:
        raise ConfigError(
            f"no model of {budget:,} parameters has a vocabulary of {vocabulary:,} tokens: "
            f"the nearest has {made:,}",
            hint="ask for another size, or train a smaller tokenizer",
        )
    return best


def _depth(width: int) -> float:
    return max(2.0, min(width, 256) / 32 + max(width - 256, 0) / 64)


def _shape(width: int, layers: int, vocabulary: int, context: int) -> Qwen3Config:
    head_dim = 64 if width >= 256 else 32
    heads = width // head_dim
    step = 64 if width >= 256 else 32
    return Qwen3Config(
        vocabulary=vocabulary,
        context=context,
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=heads // 2 if heads >= 4 and heads % 2 == 0 else heads,
        head_dim=head_dim,
        hidden=step * round(width * 8 / 3 / step),
        # Long contexts need a larger base, which distinguishes distant positions.
        rope_base=10_000.0 if context <= 4096 else 1_000_000.0,
    )


def _distance(config: Qwen3Config, budget: int) -> float:
    """Return the log distance from the budget, plus 0.1 times that from the usual depth."""
    off = abs(math.log(parameter_count(config) / max(budget, 1)))
    return off + 0.1 * abs(math.log(config.layers / _depth(config.width)))
