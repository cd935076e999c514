"""GPT-2, and GPT-3 below a billion: learned positions, LayerNorm, biases, gelu.

Radford et al. 2019; Brown et al. 2020 (arXiv 2005.14165), whose small models have the same parts
(the paper alternates dense with sparse attention, which every reproduction leaves out).
Shapes: B batch, T tokens, C width.
"""

import torch
from torch import Tensor, nn

from ownwords.models import fused, fused_block
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.decoder import CausalLM
from ownwords.models.fused_block import BlockModules
from ownwords.models.kv_cache import KVCache
from ownwords.models.layers import (
    AttentionMask,
    Embedding,
    ResidualBlock,
    attend,
    gelu_tanh,
    split_heads,
)


class GPT2Attention(nn.Module):
    """Attention whose query, key and value come from one matrix, as GPT-2's weights are stored."""

    def __init__(self, layer: int, width: int, head_dim: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = head_dim
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x_BTC: Tensor, sight: AttentionMask) -> Tensor:
        made_BTX = self.query_key_value(x_BTC)
        plain = sight.view is None and (sight.causal or sight.first_BT is not None)
        if plain and fused.is_supported(made_BTX) and fused.supports_attention(made_BTX):
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


class GPT2MLP(nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        out_BTC: Tensor = self.down(gelu_tanh(self.up(x_BTC)))
        return out_BTC


class GPT2Block(ResidualBlock):
    """Attention, then MLP, each added to what came in."""

    def __init__(self, layer: int, config: GPT2Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.attention = GPT2Attention(layer, config.width, config.head_dim)
        self.mlp_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.mlp = GPT2MLP(config.width, config.hidden)

    def forward(self, x_BTC: Tensor, sight: AttentionMask) -> Tensor:
        whole = fused_block.forward(self.parts(), x_BTC, sight, None, self.share_dropped)
        if whole is not None:
            return whole
        x_BTC = self.add(x_BTC, self.attention(self.attention_norm(x_BTC), sight))
        return self.add(x_BTC, self.mlp(self.mlp_norm(x_BTC)))

    def parts(self) -> BlockModules:
        """What the block is made of, for the library."""
        attention = self.attention
        return BlockModules(
            self.attention_norm,
            (attention.query_key_value,),
            None,
            attention.output,
            self.mlp_norm,
            None,
            self.mlp.up,
            self.mlp.down,
            kv_heads=self.attention_norm.weight.shape[0] // attention.head_dim,
            head_dim=attention.head_dim,
            scale=attention.head_dim**-0.5,
            gelu=True,
        )


class GPT2(CausalLM):
    """A GPT-2; its weights are stored transposed, here they are plain linear layers."""

    CONFIG = GPT2Config
    config: GPT2Config

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.positions = Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(GPT2Block(layer, config) for layer in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, config.norm_eps)

    def forward(
        self,
        ids_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        cache: KVCache | None = None,
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
