"""The shape of Llama 2 and 3, and the names of its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import ModelConfig, WeightName, per_layer
from ownwords.models.configs.fields import Fields
from ownwords.models.configs.rope_scaling import RopeScaling


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(ModelConfig):
    """The shape of a Llama; without biases, as all that were published."""

    MODEL_TYPE: ClassVar[str] = "llama"
    NAMES: ClassVar[tuple[WeightName, ...]] = (
        WeightName("embedding.weight", "model.embed_tokens.weight", "vocabulary width"),
        *per_layer(
            "model.layers.{i}.",
            WeightName("attention_norm.weight", "input_layernorm.weight", "width"),
            WeightName("attention.query.weight", "self_attn.q_proj.weight", "queries width"),
            WeightName("attention.key.weight", "self_attn.k_proj.weight", "keys width"),
            WeightName("attention.value.weight", "self_attn.v_proj.weight", "keys width"),
            WeightName("attention.output.weight", "self_attn.o_proj.weight", "width queries"),
            WeightName("mlp_norm.weight", "post_attention_layernorm.weight", "width"),
            WeightName("mlp.gate.weight", "mlp.gate_proj.weight", "hidden width"),
            WeightName("mlp.up.weight", "mlp.up_proj.weight", "hidden width"),
            WeightName("mlp.down.weight", "mlp.down_proj.weight", "width hidden"),
        ),
        WeightName("final_norm.weight", "model.norm.weight", "width"),
        WeightName("head.weight", "lm_head.weight", "vocabulary width"),
    )

    norm_eps: float = 1e-5
    tied: bool = False
    rope_base: float = 10_000.0
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_dim % 2:
            raise ConfigError(f"head_dim ({self.head_dim}) must be even to be rotated in pairs")

    @classmethod
    def from_hf(cls, data: Mapping[str, object]) -> Self:
        fields = Fields(data)
        fields.only("hidden_act", "silu")
        fields.only("attention_bias", False)
        fields.only("mlp_bias", False)
        fields.only("partial_rotary_factor", 1.0)
        context = fields.integer("max_position_embeddings")
        heads = fields.integer("num_attention_heads")
        rope = fields.table("rope_scaling") or fields.table("rope_parameters")
        base = fields.number("rope_theta", 10_000.0)
        return cls(
            vocabulary=fields.integer("vocab_size"),
            context=context,
            width=fields.integer("hidden_size"),
            layers=fields.integer("num_hidden_layers"),
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", heads),
            head_dim=0 if data.get("head_dim") is None else fields.integer("head_dim"),
            hidden=fields.integer("intermediate_size"),
            norm_eps=fields.number("rms_norm_eps", 1e-6),
            tied=fields.flag("tie_word_embeddings", False),
            rope_base=rope.number("rope_theta", base) if rope else base,
            rope_scaling=RopeScaling.from_hf(rope, context),
        )

    def to_hf(self) -> dict[str, object]:
        return {
            "architectures": ["LlamaForCausalLM"],
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
            "mlp_bias": False,
            # Defaults elsewhere name ids that this vocabulary may not have.
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }
