"""The shape of Qwen3, the names of its weights, and the shapes of the models trained here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import ModelConfig, WeightName, per_layer
from ownwords.models.configs.fields import Fields
from ownwords.models.configs.rope_scaling import RopeScaling


@dataclass(frozen=True, kw_only=True)
class Qwen3Config(ModelConfig):
    """`sliding` says for each layer whether it attends through `window`; empty: none does."""

    MODEL_TYPE: ClassVar[str] = "qwen3"
    NAMES: ClassVar[tuple[WeightName, ...]] = (
        WeightName("embedding.weight", "model.embed_tokens.weight", "vocabulary width"),
        *per_layer(
            "model.layers.{i}.",
            WeightName("attention_norm.weight", "input_layernorm.weight", "width"),
            WeightName("attention.query.weight", "self_attn.q_proj.weight", "queries width"),
            WeightName("attention.key.weight", "self_attn.k_proj.weight", "keys width"),
            WeightName("attention.value.weight", "self_attn.v_proj.weight", "keys width"),
            WeightName("attention.output.weight", "self_attn.o_proj.weight", "width queries"),
            WeightName("attention.query_norm.weight", "self_attn.q_norm.weight", "head_dim"),
            WeightName("attention.key_norm.weight", "self_attn.k_norm.weight", "head_dim"),
            WeightName("mlp_norm.weight", "post_attention_layernorm.weight", "width"),
            WeightName("mlp.gate.weight", "mlp.gate_proj.weight", "hidden width"),
            WeightName("mlp.up.weight", "mlp.up_proj.weight", "hidden width"),
            WeightName("mlp.down.weight", "mlp.down_proj.weight", "width hidden"),
        ),
        WeightName("final_norm.weight", "model.norm.weight", "width"),
        WeightName("head.weight", "lm_head.weight", "vocabulary width"),
    )

    norm_eps: float = 1e-6
    tied: bool = True
    rope_base: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    window: int | None = None
    sliding: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_dim % 2:
            raise ConfigError(f"head_dim ({self.head_dim}) must be even to be rotated in pairs")
        if self.sliding and len(self.sliding) != self.layers:
            raise ConfigError(f"sliding names {len(self.sliding)} of {self.layers} layers")
        if any(self.sliding) and (self.window is None or self.window < 1):
            raise ConfigError(f"sliding layers need a window, not {self.window}")

    def windows(self) -> tuple[int | None, ...]:
        sliding = self.sliding or (False,) * self.layers
        return tuple(self.window if slides else None for slides in sliding)

    @classmethod
    def from_hf(cls, data: Mapping[str, object]) -> Self:
        fields = Fields(data)
        fields.only("hidden_act", "silu")
        fields.only("attention_bias", False)
        fields.only("partial_rotary_factor", 1.0)
        context = fields.integer("max_position_embeddings")
        layers = fields.integer("num_hidden_layers")
        rope = fields.table("rope_scaling") or fields.table("rope_parameters")
        base = fields.number("rope_theta", 10_000.0)
        window = None
        if fields.flag("use_sliding_window", False) and data.get("sliding_window") is not None:
            window = fields.integer("sliding_window")
        sliding = fields.sliding_layers(layers)
        if sliding is None and window is not None:
            first = fields.whole("max_window_layers", 28)
            sliding = tuple(layer >= first for layer in range(layers))
        return cls(
            vocabulary=fields.integer("vocab_size"),
            context=context,
            width=fields.integer("hidden_size"),
            layers=layers,
            heads=fields.integer("num_attention_heads"),
            kv_heads=fields.integer("num_key_value_heads"),
            head_dim=fields.integer("head_dim", 128),
            hidden=fields.integer("intermediate_size"),
            norm_eps=fields.number("rms_norm_eps", 1e-6),
            tied=fields.flag("tie_word_embeddings", False),
            rope_base=rope.number("rope_theta", base) if rope else base,
            rope_scaling=RopeScaling.from_hf(rope, context),
            window=window,
            sliding=sliding if sliding is not None and any(sliding) else (),
        )

    def to_hf(self) -> dict[str, object]:
        kinds = ("full_attention", "sliding_attention")
        slides = any(self.sliding)
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": self.MODEL_TYPE,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.hidden,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_base,
            "rope_scaling": self.rope_scaling.to_hf() if self.rope_scaling else None,
            "tie_word_embeddings": self.tied,
            "attention_bias": False,
            "use_sliding_window": slides,
            "sliding_window": self.window if slides else None,
            # Loaders older than layer_types count the layers before the first that slides.
            "max_window_layers": self.sliding.index(True) if slides else self.layers,
            "layer_types": [kinds[window is not None] for window in self.windows()],
            # Defaults elsewhere name ids that this vocabulary may not have.
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }


def parameter_count(config: Qwen3Config) -> int:
    """How many numbers a model of this shape has; a tied head is counted once."""
    matrices = 2 * config.head_dim * (config.heads + config.kv_heads) + 3 * config.hidden
    norms = 2 * config.width + 2 * config.head_dim
    tables = config.vocabulary * config.width * (1 if config.tied else 2)
    return tables + config.layers * (config.width * matrices + norms) + config.width


def config_for_budget(budget: int, vocabulary: int, context: int) -> Qwen3Config:
    """The default shape for about `budget` parameters (0.5 million and more), embedding included.

    Width: a multiple of 128, below 256 of 32, where steps of 128 would miss the size by half.
    Layers: about width / 32 up to a width of 256, from there one more for every 64: wide enough to
    be quick, deep enough to be good. Heads of 64, of 32 below a width of 256; each key head serves
    two query heads where they are even and four or more. Hidden: 8/3 of the width, so that three
    matrices cost what two of four times the width would. The head is the embedding: at this size a
    second table would be a large share of the model.
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
        # A slower base keeps far positions apart in long texts; in short ones it is wasted.
        rope_base=10_000.0 if context <= 4096 else 1_000_000.0,
    )


def _distance(config: Qwen3Config, budget: int) -> float:
    """How far a shape is from its size, and, counted a tenth, from its usual depth."""
    off = abs(math.log(parameter_count(config) / max(budget, 1)))
    return off + 0.1 * abs(math.log(config.layers / _depth(config.width)))
