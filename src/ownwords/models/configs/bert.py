"""BERT's config and weight names; not in the registry, since it is not a causal language model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import HFField, ModelConfig, WeightName, weight_names

_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")  # names of the tanh approximation of GELU


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """The config of a BERT: learned positions, token types, post-norm."""

    MODEL_TYPE: ClassVar[str] = "bert"
    ARCHITECTURE: ClassVar[str] = "BertModel"
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (
        *weight_names(
            """
            embedding.weight       word_embeddings.weight        -  vocabulary width
            positions.weight       position_embeddings.weight    -  context width
            token_types.weight     token_type_embeddings.weight  -  token_types width
            embedding_norm.weight  LayerNorm.weight              -  width
            embedding_norm.bias    LayerNorm.bias                -  width
            """,
            prefix="bert.embeddings.",
        ),
        *weight_names(
            """
            attention.query.weight   attention.self.query.weight        -  q_width width
            attention.query.bias     attention.self.query.bias          -  q_width
            attention.key.weight     attention.self.key.weight          -  kv_width width
            attention.key.bias       attention.self.key.bias            -  kv_width
            attention.value.weight   attention.self.value.weight        -  kv_width width
            attention.value.bias     attention.self.value.bias          -  kv_width
            attention.output.weight  attention.output.dense.weight      -  width q_width
            attention.output.bias    attention.output.dense.bias        -  width
            attention_norm.weight    attention.output.LayerNorm.weight  -  width
            attention_norm.bias      attention.output.LayerNorm.bias    -  width
            mlp.up.weight            intermediate.dense.weight          -  hidden width
            mlp.up.bias              intermediate.dense.bias            -  hidden
            mlp.down.weight          output.dense.weight                -  width hidden
            mlp.down.bias            output.dense.bias                  -  width
            mlp_norm.weight          output.LayerNorm.weight            -  width
            mlp_norm.bias            output.LayerNorm.bias              -  width
            """,
            prefix="bert.encoder.layer.{i}.",
        ),
    )
    HF_FIELDS: ClassVar[Mapping[str, HFField]] = {
        "vocabulary": HFField("vocab_size"),
        "context": HFField("max_position_embeddings"),
        "width": HFField("hidden_size"),
        "layers": HFField("num_hidden_layers"),
        "heads": HFField("num_attention_heads"),
        "hidden": HFField("intermediate_size"),
        "token_types": HFField("type_vocab_size", 2),
        "norm_eps": HFField("layer_norm_eps", 1e-12),
    }
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "model_type": ("bert",),
        "hidden_act": ("gelu", "gelu_python", *_TANH),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }
    LIMITS: ClassVar[Mapping[str, int]] = {**ModelConfig.LIMITS, "token_types": 2**10}

    token_types: int = 2  # segment embeddings; we always use the first
    gelu_tanh: bool = False  # the tanh approximation
    norm_eps: float = 1e-12
    tied: bool = True  # it has no head

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kv_heads != self.heads or self.head_dim * self.heads != self.width:
            raise ConfigError(f"heads ({self.heads}) must divide width ({self.width}) in BERT")

    @classmethod
    def hf_values(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().hf_values(data), "gelu_tanh": data.get("hidden_act") in _TANH}

    def to_hf(self) -> dict[str, object]:
        return {**super().to_hf(), "hidden_act": _TANH[1] if self.gelu_tanh else "gelu"}
