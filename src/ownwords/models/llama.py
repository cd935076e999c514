"""Llama 2 and 3, and Qwen3: pre-norm blocks with RMSNorm, RoPE, SwiGLU, grouped-query attention.

Touvron et al. 2023 (arXiv 2307.09288), Grattafiori et al. 2024 (arXiv 2407.21783). Qwen3, which
the models trained here are, adds norms on queries and keys (Yang et al. 2025, arXiv 2505.09388);
its head dimension is independent of the width, and some layers may have a sliding window.
Shapes: B batch, T tokens, C width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownwords.models import fused_block
from ownwords.models.configs.llama import LlamaConfig
from ownwords.models.configs.qwen3 import Qwen3Config
from ownwords.models.decoder import CausalLM, ForwardContext, embedding_std
from ownwords.models.layers import (
    Angles,
    Attention,
    AttentionMask,
    Embedding,
    GatedMLP,
    ResidualBlock,
    RMSNorm,
    RotaryEmbedding,
)


class LlamaBlock(ResidualBlock):
    """Attention, then MLP, each with a norm before it and a residual connection."""

    def __init__(
        self, layer: int, config: LlamaConfig, head_norm: Callable[[], RMSNorm] | None = None
    ) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(layer, config, head_norm)
        self.mlp_norm = RMSNorm(config.width, config.norm_eps)
        self.mlp = GatedMLP(config.width, config.hidden, F.silu)

    def forward(self, x_BTC: Tensor, angles: Angles, mask: AttentionMask) -> Tensor:
        modules = fused_block.llama_modules(
            self.attention_norm, self.attention, self.mlp_norm, self.mlp
        )
        fused_BTC = fused_block.forward(modules, x_BTC, mask, angles, self.active_dropout)
        if fused_BTC is not None:
            return fused_BTC
        x_BTC = self.add(x_BTC, self.attention(self.attention_norm(x_BTC), angles, mask))
        return self.add(x_BTC, self.mlp(self.mlp_norm(x_BTC)))


class Llama(CausalLM):
    """A Llama 2 or 3 model; sliding windows are supported."""

    config: LlamaConfig

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(self.block(layer) for layer in range(config.layers))
        self.final_norm = RMSNorm(config.width, config.norm_eps)
        self.rotary = RotaryEmbedding(config.head_dim, config.rope_base, config.rope_scaling)

    def block(self, layer: int) -> LlamaBlock:
        return LlamaBlock(layer, self.config)

    def run_blocks(self, ids_BT: Tensor, context: ForwardContext) -> Tensor:
        x_BTC = self.apply_dropout(self.embedding(ids_BT))
        angles = self.rotary.angles(context.positions_BT, x_BTC.dtype)
        for block, window in zip(self.blocks, self.config.windows(), strict=True):
            x_BTC = self.run_block(block, x_BTC, angles, context.masks[window])
        return x_BTC

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """Zero for the output matrices, so that blocks initially add nothing.

        Other matrices: 1 / sqrt(inputs), which keeps activations near one at any width.
        """
        if name.endswith("norm.weight"):
            return 1.0, 0.0
        if name.endswith(("output.weight", "down.weight")):
            return 0.0, 0.0
        if name in ("embedding.weight", "head.weight"):
            return 0.0, embedding_std(shape[1])
        return 0.0, float(shape[1]) ** -0.5


class Qwen3(Llama):
    """A Qwen3 model; sliding windows are supported."""

    config: Qwen3Config

    def block(self, layer: int) -> LlamaBlock:
        config = self.config
        return LlamaBlock(layer, config, lambda: RMSNorm(config.head_dim, config.norm_eps))
