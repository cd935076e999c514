"""Qwen3's config (Llama with QK norms), and the default shapes of models trained here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ownwords.core.errors import ConfigError
from ownwords.core.validation import Meta
from ownwords.models.configs.config import (
    Count,
    HFField,
    WeightName,
    hf_value,
    layer_types,
    read_layer_types,
    weight_names,
)
from ownwords.models.configs.llama import LlamaConfig

QK_NORMS = weight_names(
    """
    attention.query_norm.weight  self_attn.q_norm.weight  attn_q_norm  head_dim
    attention.key_norm.weight    self_attn.k_norm.weight  attn_k_norm  head_dim
    """,
    prefix="model.layers.{i}.",
)


@dataclass(frozen=True, kw_only=True)
class Qwen3Config(LlamaConfig):
    """The config of a Qwen3 model.

    `sliding` says for each layer whether it uses the sliding `window`; empty means none does.
    """

    MODEL_TYPE: ClassVar[str] = "qwen3"
    ARCHITECTURE: ClassVar[str] = "Qwen3ForCausalLM"
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (*LlamaConfig.WEIGHTS, *QK_NORMS)
    HF_FIELDS: ClassVar[Mapping[str, HFField]] = {
        **LlamaConfig.HF_FIELDS,
        "kv_heads": HFField("num_key_value_heads"),
        "head_dim": HFField("head_dim", 128),
    }
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "hidden_act": ("silu",),
        "attention_bias": (False,),
    }
    GGUF_ARCHITECTURE: ClassVar[str] = "qwen3"
    GGUF_INTERLEAVED_ROPE: ClassVar[bool] = False

    norm_eps: float = 1e-6
    tied: bool = True
    window: int | None = None
    sliding: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sliding and len(self.sliding) != self.layers:
            raise ConfigError(f"sliding names {len(self.sliding)} of {self.layers} layers")
        if any(self.sliding) and (self.window is None or self.window < 1):
            raise ConfigError(f"sliding layers need a window, not {self.window}")

    def windows(self) -> tuple[int | None, ...]:
        sliding = self.sliding or (False,) * self.layers
        return tuple(self.window if slides else None for slides in sliding)

    @classmethod
    def hf_values(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        values = super().hf_values(data)
        layers, window = values["layers"], None
        if hf_value(data, "use_sliding_window", bool, False):
            window = hf_value(data, "sliding_window", Count, None)
        sliding = read_layer_types(data, layers)
        if sliding is None and window is not None:
            first = hf_value(
                data, "max_window_layers", Annotated[int, Meta(ge=0, le=2**31 - 1)], 28
            )
            sliding = tuple(layer >= first for layer in range(layers))
        return {**values, "window": window, "sliding": sliding if any(sliding or ()) else ()}

    def to_hf(self) -> dict[str, object]:
        slides = any(self.sliding)
        return {
            **super().to_hf(),
            "use_sliding_window": slides,
            "sliding_window": self.window if slides else None,
            # For loaders older than layer_types: the number of layers before the first window.
            "max_window_layers": self.sliding.index(True) if slides else self.layers,
            "layer_types": layer_types(tuple(window is not None for window in self.windows())),
        }


def parameter_count(config: Qwen3Config) -> int:
    """The number of parameters of a model of this config; a tied head is counted once."""
    matrices = 2 * config.head_dim * (config.heads + config.kv_heads) + 3 * config.hidden
    norms = 2 * config.width + 2 * config.head_dim
    tables = config.vocabulary * config.width * (1 if config.tied else 2)
    return tables + config.layers * (config.width * matrices + norms) + config.width


def config_for_budget(budget: int, vocabulary: int, context: int) -> Qwen3Config:
    """The default shape for about `budget` parameters (0.5 million and more), embedding included.

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
        # A larger base distinguishes distant positions in long contexts; short ones do not need it.
        rope_base=10_000.0 if context <= 4096 else 1_000_000.0,
    )


def _distance(config: Qwen3Config, budget: int) -> float:
    """The log distance of a config from the budget, plus 0.1 times that from its usual depth."""
    off = abs(math.log(parameter_count(config) / max(budget, 1)))
    return off + 0.1 * abs(math.log(config.layers / _depth(config.width)))
