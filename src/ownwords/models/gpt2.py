"""GPT-2, and GPT-3 below a billion: learned positions, LayerNorm, biases, gelu.

Radford et al. 2019; Brown et al. 2020 (arXiv 2005.14165), whose small models have the same parts
(the paper alternates dense with sparse attention, which every reproduction leaves out).
Shapes: B batch, T tokens, C width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from ownwords.core.errors import ConfigError
from ownwords.models import fused
from ownwords.models.cache import Cache
from ownwords.models.decoder import CausalLM, Config, Name
from ownwords.models.fields import Fields
from ownwords.models.layers import Embedding, Residual, Sight, attend, gelu_tanh, split_heads


@dataclass(frozen=True, kw_only=True)
class GPT2Config(Config):
    """The shape of a GPT-2: every head its own keys, heads that share out the width."""

    MODEL_TYPE: ClassVar[str] = "gpt2"

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


class FusedAttention(nn.Module):
    """Attention whose query, key and value come from one matrix, as GPT-2's weights are stored."""

    def __init__(self, layer: int, width: int, head_dim: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = head_dim
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x_BTC: Tensor, sight: Sight) -> Tensor:
        made_BTX = self.query_key_value(x_BTC)
        plain = sight.view is None and (sight.causal or sight.first_BT is not None)
        if plain and fused.ready(made_BTX) and fused.reads(made_BTX):
            made_BTXD = made_BTX.view(*made_BTX.shape[:2], -1, self.head_dim)
            heads, scale = made_BTXD.shape[2] // 3, self.head_dim**-0.5
            alone: Tensor = self.output(fused.attention(made_BTXD, heads, sight.first_BT, scale))
            return alone
        query, key, value = (
            split_heads(part_BTC, self.head_dim) for part_BTC in made_BTX.chunk(3, dim=-1)
        )
        if sight.view is not None:
            key, value = sight.view.extend(self.layer, key, value)
        out_BTC: Tensor = self.output(attend(query, key, value, sight, self.head_dim**-0.5))
        return out_BTC


class MLP(nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        out_BTC: Tensor = self.down(gelu_tanh(self.up(x_BTC)))
        return out_BTC


class Block(Residual):
    """Attention, then MLP, each added to what came in."""

    def __init__(self, layer: int, config: GPT2Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.attention = FusedAttention(layer, config.width, config.head_dim)
        self.mlp_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.mlp = MLP(config.width, config.hidden)

    def forward(self, x_BTC: Tensor, sight: Sight) -> Tensor:
        x_BTC = self.add(x_BTC, self.attention(self.attention_norm(x_BTC), sight))
        return self.add(x_BTC, self.mlp(self.mlp_norm(x_BTC)))


class GPT2(CausalLM):
    """A GPT-2; its weights are stored transposed, here they are plain linear layers."""

    CONFIG = GPT2Config
    NAMES = (
        Name("embedding.weight", "transformer.wte.weight"),
        Name("positions.weight", "transformer.wpe.weight"),
        Name("blocks.{i}.attention_norm.weight", "transformer.h.{i}.ln_1.weight"),
        Name("blocks.{i}.attention_norm.bias", "transformer.h.{i}.ln_1.bias"),
        Name(
            "blocks.{i}.attention.query_key_value.weight",
            "transformer.h.{i}.attn.c_attn.weight",
            transposed=True,
        ),
        Name("blocks.{i}.attention.query_key_value.bias", "transformer.h.{i}.attn.c_attn.bias"),
        Name("blocks.{i}.attention.output.weight", "transformer.h.{i}.attn.c_proj.weight", True),
        Name("blocks.{i}.attention.output.bias", "transformer.h.{i}.attn.c_proj.bias"),
        Name("blocks.{i}.mlp_norm.weight", "transformer.h.{i}.ln_2.weight"),
        Name("blocks.{i}.mlp_norm.bias", "transformer.h.{i}.ln_2.bias"),
        Name("blocks.{i}.mlp.up.weight", "transformer.h.{i}.mlp.c_fc.weight", True),
        Name("blocks.{i}.mlp.up.bias", "transformer.h.{i}.mlp.c_fc.bias"),
        Name("blocks.{i}.mlp.down.weight", "transformer.h.{i}.mlp.c_proj.weight", True),
        Name("blocks.{i}.mlp.down.bias", "transformer.h.{i}.mlp.c_proj.bias"),
        Name("final_norm.weight", "transformer.ln_f.weight"),
        Name("final_norm.bias", "transformer.ln_f.bias"),
        Name("head.weight", "lm_head.weight"),
    )
    config: GPT2Config

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(layer, config) for layer in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, config.norm_eps)

    def forward(
        self,
        ids_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        cache: Cache | None = None,
        lengths_B: Tensor | None = None,
    ) -> Tensor:
        reading = self.read(ids_BT, documents_BT, cache, lengths_B)
        x_BTC = self.embedding(ids_BT) + self.positions(reading.positions_BT)
        x_BTC = self.dropped(x_BTC)
        for block in self.blocks:
            x_BTC = self.run(block, x_BTC, reading.sights[None])
        reading.end()
        hidden_BTC: Tensor = self.final_norm(x_BTC)
        return hidden_BTC

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """The published scheme, so that runs compare: 0.02, less where blocks add up."""
        if name.endswith(".bias"):
            return 0.0, 0.0
        if "norm." in name:
            return 1.0, 0.0
        if name.endswith(("attention.output.weight", "mlp.down.weight")):
            return 0.0, 0.02 / (2 * self.config.layers) ** 0.5
        return 0.0, 0.02
