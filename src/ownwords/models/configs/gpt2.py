"""GPT-2's config: fields, weight names, GGUF keys and the published size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import HFField, ModelConfig, WeightName, weight_names


@dataclass(frozen=True, kw_only=True)
class GPT2Config(ModelConfig):
    """The config of a GPT-2: kv_heads equals heads, and head_dim is width / heads."""

    MODEL_TYPE: ClassVar[str] = "gpt2"
    ARCHITECTURE: ClassVar[str] = "GPT2LMHeadModel"
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (
        *weight_names(
            """
            embedding.weight  transformer.wte.weight  token_embd     vocabulary width
            positions.weight  transformer.wpe.weight  position_embd  context width
            """
        ),
        *weight_names(
            """
            attention_norm.weight             ln_1.weight         attn_norm    width
            attention_norm.bias               ln_1.bias           attn_norm    width
            attention.query_key_value.weight  attn.c_attn.weight  attn_qkv     qkv_width width  T
            attention.query_key_value.bias    attn.c_attn.bias    attn_qkv     qkv_width
            attention.output.weight           attn.c_proj.weight  attn_output  width q_width  T
            attention.output.bias             attn.c_proj.bias    attn_output  width
            mlp_norm.weight                   ln_2.weight         ffn_norm     width
            mlp_norm.bias                     ln_2.bias           ffn_norm     width
            mlp.up.weight                     mlp.c_fc.weight     ffn_up       hidden width  T
            mlp.up.bias                       mlp.c_fc.bias       ffn_up       hidden
            mlp.down.weight                   mlp.c_proj.weight   ffn_down     width hidden  T
            mlp.down.bias                     mlp.c_proj.bias     ffn_down     width
            """,
            prefix="transformer.h.{i}.",
        ),
        *weight_names(
            """
            final_norm.weight  transformer.ln_f.weight  output_norm  width
            final_norm.bias    transformer.ln_f.bias    output_norm  width
            head.weight        lm_head.weight           output       vocabulary width
            """
        ),
    )
    HF_FIELDS: ClassVar[Mapping[str, HFField]] = {
        "vocabulary": HFField("vocab_size"),
        "context": HFField("n_positions"),
        "width": HFField("n_embd"),
        "layers": HFField("n_layer"),
        "heads": HFField("n_head"),
        "hidden": HFField("n_inner", 0),
        "norm_eps": HFField("layer_norm_epsilon", 1e-5),
        "tied": HFField("tie_word_embeddings", True),
    }
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        # Two names of the tanh approximation; "gelu" alone means the exact function.
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "reorder_and_upcast_attn": (False,),
        "add_cross_attention": (False,),
    }
    GGUF_ARCHITECTURE: ClassVar[str] = "gpt2"
    GGUF_FIELDS: ClassVar[Mapping[str, str]] = {
        "context": "context_length",
        "width": "embedding_length",
        "layers": "block_count",
        "hidden": "feed_forward_length",
        "heads": "attention.head_count",
        "norm_eps": "attention.layer_norm_epsilon",
    }
    LAYER_NORM: ClassVar[bool] = True
    GELU: ClassVar[bool] = True

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

    def to_hf(self) -> dict[str, object]:
        return {**super().to_hf(), "n_ctx": self.context}
