"""Gemma 3, text only: norms on both sides of each half, GeGLU, windows in five layers of six.

Gemma Team 2025 (arXiv 2503.19786). Layers with a window turn by a faster base than those that see
everything; the embedding is multiplied by the root of the width; norms store their distance from 1.
Shapes: B batch, T tokens, C width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from ownwords.core.errors import ConfigError
from ownwords.models.cache import Cache
from ownwords.models.decoder import CausalLM, Config, Name, embedding_spread
from ownwords.models.fields import Fields
from ownwords.models.layers import (
    Attention,
    Embedding,
    GatedMLP,
    Residual,
    RMSNorm,
    Sight,
    gelu_tanh,
)
from ownwords.models.rope import Angles, RopeScaling, Rotary


def _every(pattern: int, layers: int) -> tuple[bool, ...]:
    """Every `pattern`-th layer sees everything."""
    return tuple((layer + 1) % pattern != 0 for layer in range(layers))


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(Config):
    """`sliding` says for each layer whether it attends through `window`; empty: five of six."""

    MODEL_TYPE: ClassVar[str] = "gemma3_text"

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


class Block(Residual):
    """Attention, then MLP, each normed before and after, and added to what came in."""

    def __init__(self, layer: int, config: Gemma3Config) -> None:
        super().__init__()

        def norm(width: int = config.width) -> RMSNorm:
            return RMSNorm(width, config.norm_eps, offset=1.0)

        self.attention_norm = norm()
        self.attention = Attention(
            layer,
            width=config.width,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            scale=config.query_scalar**-0.5,
            head_norm=lambda: norm(config.head_dim),
        )
        self.attention_output_norm = norm()
        self.mlp_norm = norm()
        self.mlp = GatedMLP(config.width, config.hidden, gelu_tanh)
        self.mlp_output_norm = norm()

    def forward(self, x_BTC: Tensor, angles: Angles, sight: Sight) -> Tensor:
        read_BTC = self.attention(self.attention_norm(x_BTC), angles, sight)
        x_BTC = self.add(x_BTC, self.attention_output_norm(read_BTC))
        return self.add(x_BTC, self.mlp_output_norm(self.mlp(self.mlp_norm(x_BTC))))


class Gemma3(CausalLM):
    """A Gemma 3 model that reads text."""

    CONFIG = Gemma3Config
    NAMES = (
        Name("embedding.weight", "model.embed_tokens.weight"),
        Name("blocks.{i}.attention_norm.weight", "model.layers.{i}.input_layernorm.weight"),
        Name("blocks.{i}.attention.query.weight", "model.layers.{i}.self_attn.q_proj.weight"),
        Name("blocks.{i}.attention.key.weight", "model.layers.{i}.self_attn.k_proj.weight"),
        Name("blocks.{i}.attention.value.weight", "model.layers.{i}.self_attn.v_proj.weight"),
        Name("blocks.{i}.attention.output.weight", "model.layers.{i}.self_attn.o_proj.weight"),
        Name("blocks.{i}.attention.query_norm.weight", "model.layers.{i}.self_attn.q_norm.weight"),
        Name("blocks.{i}.attention.key_norm.weight", "model.layers.{i}.self_attn.k_norm.weight"),
        Name(
            "blocks.{i}.attention_output_norm.weight",
            "model.layers.{i}.post_attention_layernorm.weight",
        ),
        Name("blocks.{i}.mlp_norm.weight", "model.layers.{i}.pre_feedforward_layernorm.weight"),
        Name("blocks.{i}.mlp.gate.weight", "model.layers.{i}.mlp.gate_proj.weight"),
        Name("blocks.{i}.mlp.up.weight", "model.layers.{i}.mlp.up_proj.weight"),
        Name("blocks.{i}.mlp.down.weight", "model.layers.{i}.mlp.down_proj.weight"),
        Name(
            "blocks.{i}.mlp_output_norm.weight",
            "model.layers.{i}.post_feedforward_layernorm.weight",
        ),
        Name("final_norm.weight", "model.norm.weight"),
        Name("head.weight", "lm_head.weight"),
    )
    config: Gemma3Config

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(layer, config) for layer in range(config.layers))
        self.final_norm = RMSNorm(config.width, config.norm_eps, offset=1.0)
        self.rotary = Rotary(config.head_dim, config.rope_base, config.rope_scaling)
        self.rotary_sliding = Rotary(config.head_dim, config.rope_base_sliding)

    def forward(
        self,
        ids_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        cache: Cache | None = None,
        lengths_B: Tensor | None = None,
    ) -> Tensor:
        reading = self.read(ids_BT, documents_BT, cache, lengths_B)
        x_BTC = self.embedding(ids_BT)
        # Rounded to the model's dtype before it multiplies, as in training: 33.94 is 34 in bf16.
        x_BTC = x_BTC * torch.tensor(self.config.width**0.5, dtype=x_BTC.dtype, device=x_BTC.device)
        x_BTC = self.dropped(x_BTC)
        angles = self.rotary.angles(reading.positions_BT, x_BTC.dtype)
        angles_sliding = self.rotary_sliding.angles(reading.positions_BT, x_BTC.dtype)
        for block, window in zip(self.blocks, self.config.windows(), strict=True):
            turned = angles if window is None else angles_sliding
            x_BTC = self.run(block, x_BTC, turned, reading.sights[window])
        reading.end()
        hidden_BTC: Tensor = self.final_norm(x_BTC)
        return hidden_BTC

    @property
    def softcap(self) -> float | None:
        return self.config.softcap

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """1 / sqrt(inputs) everywhere; zero where a block writes would be undone by its norm."""
        if name.endswith("norm.weight"):
            return 0.0, 0.0
        if name in ("embedding.weight", "head.weight"):
            return 0.0, embedding_spread(shape[1])
        return 0.0, float(shape[1]) ** -0.5


def _rope_tables(fields: Fields) -> tuple[Fields | None, Fields | None]:
    """Of the layers that see everything and of those with a window, from either form of config."""
    nested = fields.table("rope_parameters")
    everywhere = near = None
    if nested is not None:
        nested.only("rope_type")
        everywhere, near = nested.table("full_attention"), nested.table("sliding_attention")
    return fields.table("rope_scaling") or everywhere, near
