"""Gemma 3's config (text only): fields, weight names, and GGUF keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import (
    Count,
    HFField,
    WeightName,
    check_supported,
    frequencies,
    hf_table,
    hf_value,
    layer_types,
    read_layer_types,
    read_rope,
    weight_names,
)
from ownwords.models.configs.llama import LlamaConfig
from ownwords.models.configs.qwen3 import QK_NORMS

# The additional norms; post_attention_layernorm, Llama's MLP norm, follows the attention here.
_NORMS = weight_names(
    """
    attention_output_norm.weight  post_attention_layernorm.weight   post_attention_norm  width
    mlp_norm.weight               pre_feedforward_layernorm.weight  ffn_norm             width
    mlp_output_norm.weight        post_feedforward_layernorm.weight  post_ffw_norm       width
    """,
    prefix="model.layers.{i}.",
)


def _every(pattern: int, layers: int) -> tuple[bool, ...]:
    """Whether each layer has a sliding window: all except every `pattern`-th."""
    return tuple((layer + 1) % pattern != 0 for layer in range(layers))


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(LlamaConfig):
    """The config of a Gemma 3 model.

    `sliding` says for each layer whether it uses the sliding `window`; empty means five of six.
    """

    MODEL_TYPE: ClassVar[str] = "gemma3_text"
    ARCHITECTURE: ClassVar[str] = "Gemma3ForCausalLM"
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (
        *(name for name in LlamaConfig.WEIGHTS if "mlp_norm" not in name.ours),
        *QK_NORMS,
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

    def rope_frequencies(self) -> list[npt.NDArray[np.float32]]:
        return [*super().rope_frequencies(), frequencies(self.head_dim, self.rope_base_sliding)]

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
        sliding = read_layer_types(data, values["layers"])
        if sliding is None:
            pattern = hf_value(data, "_sliding_window_pattern", Count, 6)
            pattern = hf_value(data, "sliding_window_pattern", Count, pattern)
            sliding = _every(pattern, values["layers"])
        return {**values, "rope_base_sliding": base, "sliding": sliding}

    def to_hf(self) -> dict[str, object]:
        return {
            **super().to_hf(),
            "rope_local_base_freq": self.rope_base_sliding,
            "layer_types": layer_types(self.sliding),
            # For loaders older than layer_types: the number of the first layer without a window.
            "sliding_window_pattern": [*self.sliding, False].index(False) + 1,
        }
