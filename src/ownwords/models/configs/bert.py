"""The shape of BERT and the names of its weights; it only reads, so it is no family of `of`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import ModelConfig, WeightName, per_layer
from ownwords.models.configs.fields import Fields

# Names of the same two functions.
_EXACT, _TANH = ("gelu", "gelu_python"), ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """The shape of a BERT: learned positions, kinds of text, norms behind each part."""

    MODEL_TYPE: ClassVar[str] = "bert"
    NAMES: ClassVar[tuple[WeightName, ...]] = (
        WeightName(
            "embedding.weight", "bert.embeddings.word_embeddings.weight", "vocabulary width"
        ),
        WeightName(
            "positions.weight", "bert.embeddings.position_embeddings.weight", "context width"
        ),
        WeightName("kinds.weight", "bert.embeddings.token_type_embeddings.weight", "kinds width"),
        WeightName("embedding_norm.weight", "bert.embeddings.LayerNorm.weight", "width"),
        WeightName("embedding_norm.bias", "bert.embeddings.LayerNorm.bias", "width"),
        *per_layer(
            "bert.encoder.layer.{i}.",
            WeightName("attention.query.weight", "attention.self.query.weight", "queries width"),
            WeightName("attention.query.bias", "attention.self.query.bias", "queries"),
            WeightName("attention.key.weight", "attention.self.key.weight", "keys width"),
            WeightName("attention.key.bias", "attention.self.key.bias", "keys"),
            WeightName("attention.value.weight", "attention.self.value.weight", "keys width"),
            WeightName("attention.value.bias", "attention.self.value.bias", "keys"),
            WeightName("attention.output.weight", "attention.output.dense.weight", "width queries"),
            WeightName("attention.output.bias", "attention.output.dense.bias", "width"),
            WeightName("attention_norm.weight", "attention.output.LayerNorm.weight", "width"),
            WeightName("attention_norm.bias", "attention.output.LayerNorm.bias", "width"),
            WeightName("mlp.up.weight", "intermediate.dense.weight", "hidden width"),
            WeightName("mlp.up.bias", "intermediate.dense.bias", "hidden"),
            WeightName("mlp.down.weight", "output.dense.weight", "width hidden"),
            WeightName("mlp.down.bias", "output.dense.bias", "width"),
            WeightName("mlp_norm.weight", "output.LayerNorm.weight", "width"),
            WeightName("mlp_norm.bias", "output.LayerNorm.bias", "width"),
        ),
    )
    LIMITS: ClassVar[Mapping[str, int]] = {**ModelConfig.LIMITS, "kinds": 2**10}

    kinds: int = 2  # of text that may stand side by side in one input; ours is of the first
    rounded_gelu: bool = False  # the tanh approximation
    norm_eps: float = 1e-12
    tied: bool = True  # it has no head

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kv_heads != self.heads or self.head_dim * self.heads != self.width:
            raise ConfigError(f"heads ({self.heads}) must divide width ({self.width}) in BERT")

    @classmethod
    def from_hf(cls, data: Mapping[str, object]) -> Self:
        fields = Fields(data)
        fields.only("model_type", cls.MODEL_TYPE)
        fields.only("hidden_act", *_EXACT, *_TANH)
        fields.only("position_embedding_type", "absolute")
        fields.only("is_decoder", False)
        fields.only("add_cross_attention", False)
        return cls(
            vocabulary=fields.integer("vocab_size"),
            context=fields.integer("max_position_embeddings"),
            width=fields.integer("hidden_size"),
            layers=fields.integer("num_hidden_layers"),
            heads=fields.integer("num_attention_heads"),
            hidden=fields.integer("intermediate_size"),
            kinds=fields.integer("type_vocab_size", 2),
            rounded_gelu=data.get("hidden_act") in _TANH,
            norm_eps=fields.number("layer_norm_eps", 1e-12),
        )

    def to_hf(self) -> dict[str, object]:
        return {
            "architectures": ["BertModel"],
            "model_type": self.MODEL_TYPE,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.hidden,
            "type_vocab_size": self.kinds,
            "hidden_act": "gelu_pytorch_tanh" if self.rounded_gelu else "gelu",
            "position_embedding_type": "absolute",
            "layer_norm_eps": self.norm_eps,
        }
