"""The shape of Gemma 3, the names of its weights, and the sizes that were published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import ModelConfig, WeightName, per_layer
from ownwords.models.configs.fields import Fields
from ownwords.models.configs.rope_scaling import RopeScaling


def _every(pattern: int, layers: int) -> tuple[bool, ...]:
    """Every `pattern`-th layer sees everything."""
    return tuple((layer + 1) % pattern != 0 for layer in range(layers))


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(ModelConfig):
    """`sliding` says for each layer whether it attends through `window`; empty: five of six."""

    MODEL_TYPE: ClassVar[str] = "gemma3_text"
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
            WeightName("attention_output_norm.weight", "post_attention_layernorm.weight", "width"),
            WeightName("mlp_norm.weight", "pre_feedforward_layernorm.weight", "width"),
            WeightName("mlp.gate.weight", "mlp.gate_proj.weight", "hidden width"),
            WeightName("mlp.up.weight", "mlp.up_proj.weight", "hidden width"),
            WeightName("mlp.down.weight", "mlp.down_proj.weight", "width hidden"),
            WeightName("mlp_output_norm.weight", "post_feedforward_layernorm.weight", "width"),
        ),
        WeightName("final_norm.weight", "model.norm.weight", "width"),
        WeightName("head.weight", "lm_head.weight", "vocabulary width"),
    )

    norm_eps: float = 1e-6
    tied: bool = True
    rope_base: float = 1_000_000.0
    rope_base_sliding: float = 10_000.0
    rope_scaling: RopeScaling | None = None  # of the layers that see everything
    window: int = 512
    sliding: tuple[bool, ...] = ()
    query_scalar: int = 256  # scores are divided by its root, whatever the heads' width
    softcap: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_dim % 2:
            raise ConfigError(f"head_dim ({self.head_dim}) must be even to be rotated in pairs")
        if not self.sliding:
            object.__setattr__(self, "sliding", _every(6, self.layers))
        if len(self.sliding) != self.layers:
            raise ConfigError(f"sliding names {len(self.sliding)} of {self.layers} layers")
        if self.window < 1:
            raise ConfigError(f"window ({self.window}) must be at least 1")

    def windows(self) -> tuple[int | None, ...]:
        return tuple(self.window if slides else None for slides in self.sliding)

    @classmethod
    def from_hf(cls, data: Mapping[str, object]) -> Self:
        fields = Fields(data)
        fields.only("hidden_activation", "gelu_pytorch_tanh")
        fields.only("attention_bias", False)
        fields.only("attn_logit_softcapping")
        fields.only("use_bidirectional_attention", False)
        layers = fields.integer("num_hidden_layers")
        context = fields.integer("max_position_embeddings")
        sliding = fields.sliding_layers(layers)
        if sliding is None:
            older = "_sliding_window_pattern"
            pattern = fields.integer("sliding_window_pattern", fields.integer(older, 6))
            sliding = _every(pattern, layers)
        everywhere, near = _rope_tables(fields)
        if near is not None:
            near.only("rope_type", "default")
        base = fields.number("rope_theta", 1_000_000.0)
        base_sliding = fields.number("rope_local_base_freq", 10_000.0)
        return cls(
            vocabulary=fields.integer("vocab_size"),
            context=context,
            width=fields.integer("hidden_size"),
            layers=layers,
            heads=fields.integer("num_attention_heads"),
            kv_heads=fields.integer("num_key_value_heads"),
            head_dim=fields.integer("head_dim", 256),
            hidden=fields.integer("intermediate_size"),
            norm_eps=fields.number("rms_norm_eps", 1e-6),
            tied=fields.flag("tie_word_embeddings", True),
            rope_base=everywhere.number("rope_theta", base) if everywhere else base,
            rope_base_sliding=near.number("rope_theta", base_sliding) if near else base_sliding,
            rope_scaling=RopeScaling.from_hf(everywhere, context),
            window=fields.integer("sliding_window", 4096),
            sliding=sliding,
            query_scalar=fields.integer("query_pre_attn_scalar", 256),
            softcap=fields.optional_number("final_logit_softcapping"),
        )

    def to_hf(self) -> dict[str, object]:
        kinds = ("full_attention", "sliding_attention")
        return {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": self.MODEL_TYPE,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.hidden,
            "hidden_activation": "gelu_pytorch_tanh",
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_base,
            "rope_local_base_freq": self.rope_base_sliding,
            "rope_scaling": self.rope_scaling.to_hf() if self.rope_scaling else None,
            "tie_word_embeddings": self.tied,
            "attention_bias": False,
            "query_pre_attn_scalar": self.query_scalar,
            "final_logit_softcapping": self.softcap,
            "attn_logit_softcapping": None,
            "sliding_window": self.window,
            "layer_types": [kinds[slides] for slides in self.sliding],
            # Loaders older than layer_types know a pattern only: the first layer that sees all.
            "sliding_window_pattern": [*self.sliding, False].index(False) + 1,
            # Defaults elsewhere name ids that this vocabulary may not have.
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }


def _rope_tables(fields: Fields) -> tuple[Fields | None, Fields | None]:
    """Of the layers that see everything and of those with a window, from either form of config."""
    nested = fields.table("rope_parameters")
    everywhere = near = None
    if nested is not None:
        nested.only("rope_type")
        everywhere, near = nested.table("full_attention"), nested.table("sliding_attention")
    return fields.table("rope_scaling") or everywhere, near


PRESETS: dict[str, Gemma3Config] = {
    name: Gemma3Config(
        vocabulary=262_144,
        context=32_768,
        width=width,
        layers=layers,
        heads=4,
        kv_heads=1,
        head_dim=256,
        hidden=hidden,
    )
    for name, width, layers, hidden in (
        ("gemma3-270m", 640, 18, 2048),
        ("gemma3-1b", 1152, 26, 6912),
    )
}
