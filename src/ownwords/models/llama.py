"""Llama 2 and 3: RMSNorm before each half of a block, rotary positions, SwiGLU, shared key heads.

Touvron et al. 2023 (arXiv 2307.09288), Grattafiori et al. 2024 (arXiv 2407.21783).
Shapes: B batch, T tokens, C width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownwords.core.errors import ConfigError
from ownwords.models.cache import Cache
from ownwords.models.decoder import CausalLM, Config, Name, embedding_spread
from ownwords.models.fields import Fields
from ownwords.models.layers import Attention, Embedding, GatedMLP, Residual, RMSNorm, Sight
from ownwords.models.rope import Angles, RopeScaling, Rotary


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(Config):
    """The shape of a Llama; without biases, as all that were published."""

    MODEL_TYPE: ClassVar[str] = "llama"

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


class Block(Residual):
    """Attention, then MLP, each added to what came in."""

    def __init__(self, layer: int, config: LlamaConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(
            layer,
            width=config.width,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
        )
        self.mlp_norm = RMSNorm(config.width, config.norm_eps)
        self.mlp = GatedMLP(config.width, config.hidden, F.silu)

    def forward(self, x_BTC: Tensor, angles: Angles, sight: Sight) -> Tensor:
        x_BTC = self.add(x_BTC, self.attention(self.attention_norm(x_BTC), angles, sight))
        return self.add(x_BTC, self.mlp(self.mlp_norm(x_BTC)))


class Llama(CausalLM):
    """A Llama 2 or 3 model."""

    CONFIG = LlamaConfig
    NAMES = (
        Name("embedding.weight", "model.embed_tokens.weight"),
        Name("blocks.{i}.attention_norm.weight", "model.layers.{i}.input_layernorm.weight"),
        Name("blocks.{i}.attention.query.weight", "model.layers.{i}.self_attn.q_proj.weight"),
        Name("blocks.{i}.attention.key.weight", "model.layers.{i}.self_attn.k_proj.weight"),
        Name("blocks.{i}.attention.value.weight", "model.layers.{i}.self_attn.v_proj.weight"),
        Name("blocks.{i}.attention.output.weight", "model.layers.{i}.self_attn.o_proj.weight"),
        Name("blocks.{i}.mlp_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"),
        Name("blocks.{i}.mlp.gate.weight", "model.layers.{i}.mlp.gate_proj.weight"),
        Name("blocks.{i}.mlp.up.weight", "model.layers.{i}.mlp.up_proj.weight"),
        Name("blocks.{i}.mlp.down.weight", "model.layers.{i}.mlp.down_proj.weight"),
        Name("final_norm.weight", "model.norm.weight"),
        Name("head.weight", "lm_head.weight"),
    )
    config: LlamaConfig

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(layer, config) for layer in range(config.layers))
        self.final_norm = RMSNorm(config.width, config.norm_eps)
        self.rotary = Rotary(config.head_dim, config.rope_base, config.rope_scaling)

    def forward(
        self,
        ids_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        cache: Cache | None = None,
        lengths_B: Tensor | None = None,
    ) -> Tensor:
        reading = self.read(ids_BT, documents_BT, cache, lengths_B)
        x_BTC = self.dropped(self.embedding(ids_BT))
        angles = self.rotary.angles(reading.positions_BT, x_BTC.dtype)
        for block in self.blocks:
            x_BTC = self.run(block, x_BTC, angles, reading.sights[None])
        reading.end()
        hidden_BTC: Tensor = self.final_norm(x_BTC)
        return hidden_BTC

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """Zero where a block writes, so that training starts from no block at all.

        Elsewhere 1 / sqrt(inputs), which keeps every activation near one at any width.
        """
        if name.endswith("norm.weight"):
            return 1.0, 0.0
        if name.endswith(("output.weight", "down.weight")):
            return 0.0, 0.0
        if name in ("embedding.weight", "head.weight"):
            return 0.0, embedding_spread(shape[1])
        return 0.0, float(shape[1]) ** -0.5
