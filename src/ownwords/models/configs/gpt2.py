"""The shape of GPT-2, the names of its weights, and the sizes that were published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import ModelConfig, WeightName, per_layer
from ownwords.models.configs.fields import Fields


@dataclass(frozen=True, kw_only=True)
class GPT2Config(ModelConfig):
    """The shape of a GPT-2: every head its own keys, heads that share out the width."""

    MODEL_TYPE: ClassVar[str] = "gpt2"
    NAMES: ClassVar[tuple[WeightName, ...]] = (
        WeightName("embedding.weight", "transformer.wte.weight", "vocabulary width"),
        WeightName("positions.weight", "transformer.wpe.weight", "context width"),
        *per_layer(
            "transformer.h.{i}.",
            WeightName("attention_norm.weight", "ln_1.weight", "width"),
            WeightName("attention_norm.bias", "ln_1.bias", "width"),
            WeightName(
                "attention.query_key_value.weight",
                "attn.c_attn.weight",
                "queries_keys_values width",
                transposed=True,
            ),
            WeightName("attention.query_key_value.bias", "attn.c_attn.bias", "queries_keys_values"),
            WeightName(
                "attention.output.weight", "attn.c_proj.weight", "width queries", transposed=True
            ),
            WeightName("attention.output.bias", "attn.c_proj.bias", "width"),
            WeightName("mlp_norm.weight", "ln_2.weight", "width"),
            WeightName("mlp_norm.bias", "ln_2.bias", "width"),
            WeightName("mlp.up.weight", "mlp.c_fc.weight", "hidden width", transposed=True),
            WeightName("mlp.up.bias", "mlp.c_fc.bias", "hidden"),
            WeightName("mlp.down.weight", "mlp.c_proj.weight", "width hidden", transposed=True),
            WeightName("mlp.down.bias", "mlp.c_proj.bias", "width"),
        ),
        WeightName("final_norm.weight", "transformer.ln_f.weight", "width"),
        WeightName("final_norm.bias", "transformer.ln_f.bias", "width"),
        WeightName("head.weight", "lm_head.weight", "vocabulary width"),
    )

    vocabulary: int = 50_257
    context: int = 1024
    hidden: int = 0  # 0: four times the width
    norm_eps: float = 1e-5
    tied: bool = True

    def __post_init__(self) -> None:
        if self.hidden == 0:
            object.__setattr__(self, "hidden", 4 * self.width)
        super().__post_init__()
        if self.kv_heads != self.heads:
            raise ConfigError(f"kv_heads ({self.kv_heads}) must be heads ({self.heads}) in GPT-2")
        if self.head_dim * self.heads != self.width:
            raise ConfigError(f"heads ({self.heads}) must divide width ({self.width}) in GPT-2")

    @classmethod
    def from_hf(cls, data: Mapping[str, object]) -> Self:
        fields = Fields(data)
        # The same function under two names; what "gelu" alone means elsewhere differs.
        fields.only("activation_function", "gelu_new", "gelu_pytorch_tanh")
        fields.only("scale_attn_weights", True)
        fields.only("scale_attn_by_inverse_layer_idx", False)
        fields.only("reorder_and_upcast_attn", False)
        fields.only("add_cross_attention", False)
        return cls(
            vocabulary=fields.integer("vocab_size"),
            context=fields.integer("n_positions"),
            width=fields.integer("n_embd"),
            layers=fields.integer("n_layer"),
            heads=fields.integer("n_head"),
            hidden=0 if data.get("n_inner") is None else fields.integer("n_inner"),
            norm_eps=fields.number("layer_norm_epsilon", 1e-5),
            tied=fields.flag("tie_word_embeddings", True),
        )

    def to_hf(self) -> dict[str, object]:
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": self.MODEL_TYPE,
            "vocab_size": self.vocabulary,
            "n_positions": self.context,
            "n_ctx": self.context,
            "n_embd": self.width,
            "n_layer": self.layers,
            "n_head": self.heads,
            "n_inner": None if self.hidden == 4 * self.width else self.hidden,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": self.norm_eps,
            "tie_word_embeddings": self.tied,
            # Defaults elsewhere name ids that this vocabulary may not have.
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }


def _preset(layers: int, width: int, heads: int, context: int = 1024) -> GPT2Config:
    return GPT2Config(layers=layers, width=width, heads=heads, context=context)


PRESETS: dict[str, GPT2Config] = {
    "gpt2": _preset(12, 768, 12),  # 124M
    "gpt2-medium": _preset(24, 1024, 16),  # 355M
    "gpt2-large": _preset(36, 1280, 20),  # 774M
    "gpt2-xl": _preset(48, 1600, 25),  # 1.5B
    "gpt3-small": _preset(12, 768, 12, 2048),  # 125M; table 2.1 of the GPT-3 paper, to 1.3B
    "gpt3-medium": _preset(24, 1024, 16, 2048),  # 350M
    "gpt3-large": _preset(24, 1536, 16, 2048),  # 760M
    "gpt3-xl": _preset(24, 2048, 16, 2048),  # 1.3B; the paper's 24 heads of 128 are not 2048 wide
}
