"""Llama 2 and 3's config: fields, weight names, and names in config.json and GGUF."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import (
    HFField,
    ModelConfig,
    RopeScaling,
    WeightName,
    check_supported,
    frequencies,
    hf_table,
    read_rope,
    weight_names,
)


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(ModelConfig):
    """The config of a Llama without biases, as published; Qwen3 and Gemma 3 extend it."""

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

    norm_eps: float = 1e-5
    tied: bool = False
    rope_base: float = 10_000.0
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_dim % 2:
            raise ConfigError(f"head_dim ({self.head_dim}) must be even: RoPE rotates pairs")

    def rope_frequencies(self) -> list[npt.NDArray[np.float32]]:
        return [frequencies(self.head_dim, self.rope_base, self.rope_scaling)]

    @classmethod
    def rope_table(cls, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The RoPE scaling table of config.json, under its older or newer name."""
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
