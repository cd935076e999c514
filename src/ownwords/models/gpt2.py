"""GPT-2, and the small GPT-3 models: learned positions, LayerNorm, biases, GELU.

Radford et al. 2019; Brown et al. 2020 (arXiv 2005.14165). The small GPT-3 models have the same
parts (the paper alternates dense and sparse attention, but reproductions omit that).
Shapes: B batch, T tokens, C width.
"""

import torch
from torch import Tensor, nn

from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.decoder import CausalLM, ForwardContext
from ownwords.models.layers import (
    Angles,
    AttentionMask,
    Embedding,
    ResidualBlock,
    attend,
    gelu_tanh,
    split_heads,
)


class GPT2Attention(nn.Module):
    """Attention with one matrix for query, key and value, as in GPT-2's files."""

    query_norm = key_norm = None

    def __init__(self, layer: int, config: GPT2Config) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.scale = config.attention_scale
        self.query_key_value = nn.Linear(config.width, config.qkv_width)
        self.output = nn.Linear(config.width, config.width)

    @property
    def projections(self) -> tuple[nn.Module, ...]:
        return (self.query_key_value,)

    def forward(self, x_BTC: Tensor, mask: AttentionMask) -> Tensor:
        parts = self.query_key_value(x_BTC).chunk(3, dim=-1)
        query, key, value = (split_heads(part_BTC, self.head_dim) for part_BTC in parts)
        if mask.view is not None:
            key, value = mask.view.extend(self.layer, key, value)
        projected_BTC: Tensor = self.output(attend(query, key, value, mask, self.scale))
        return projected_BTC


class GPT2MLP(nn.Module):
    """Compute down(gelu(up(x)))."""

    activation = staticmethod(gelu_tanh)
    gate = None

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        out_BTC: Tensor = self.down(self.activation(self.up(x_BTC)))
        return out_BTC


class GPT2Block(ResidualBlock):
    """Attention, then MLP, each with a norm before it and a residual connection."""

    def __init__(self, layer: int, config: GPT2Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.attention = GPT2Attention(layer, config)
        self.mlp_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.mlp = GPT2MLP(config.width, config.hidden)
        self.attention_output_norm = self.mlp_output_norm = None

    def forward(self, x_BTC: Tensor, mask: AttentionMask, angles: Angles | None) -> Tensor:
        x_BTC = self.add(x_BTC, self.attention(self.attention_norm(x_BTC), mask))
        return self.add(x_BTC, self.mlp(self.mlp_norm(x_BTC)))


class GPT2(CausalLM):
    """A GPT-2 model of plain linear layers; Hugging Face stores their weights transposed."""

    config: GPT2Config

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.positions = Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(GPT2Block(layer, config) for layer in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, config.norm_eps)

    def run_blocks(self, ids_BT: Tensor, context: ForwardContext) -> Tensor:
        x_BTC = self.embedding(ids_BT) + self.positions(context.positions_BT)
        x_BTC = self.apply_dropout(x_BTC)
        for block in self.blocks:
            x_BTC = self.run_block(block, x_BTC, context.masks[None])
        return x_BTC

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """As published: std 0.02, divided by sqrt(2 * layers) for the residual outputs."""
        if name.endswith(".bias"):
            return 0.0, 0.0
        if "norm." in name:
            return 1.0, 0.0
        if name.endswith(("attention.output.weight", "mlp.down.weight")):
            return 0.0, 0.02 / (2 * self.config.layers) ** 0.5
        return 0.0, 0.02
