"""Gemma 3, text only: norms before and after each part, GeGLU, windows in five of six layers.

Gemma Team 2025 (arXiv 2503.19786). Layers with a sliding window have their own, smaller RoPE base;
the embedding is multiplied by the root of the width; norm weights are stored minus 1.
Shapes: B batch, T tokens, C width.
"""

import torch
from torch import Tensor, nn

from ownwords.models import fused_block
from ownwords.models.configs.gemma3 import Gemma3Config
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
    gelu_tanh,
)


class Gemma3Block(ResidualBlock):
    """Attention, then MLP, each with norms before and after and a residual connection."""

    def __init__(self, layer: int, config: Gemma3Config) -> None:
        super().__init__()

        def norm(width: int = config.width) -> RMSNorm:
            return RMSNorm(width, config.norm_eps, config.NORM_OFFSET)

        self.attention_norm = norm()
        self.attention = Attention(layer, config, lambda: norm(config.head_dim))
        self.attention_output_norm = norm()
        self.mlp_norm = norm()
        self.mlp = GatedMLP(config.width, config.hidden, gelu_tanh)
        self.mlp_output_norm = norm()

    def forward(self, x_BTC: Tensor, angles: Angles, mask: AttentionMask) -> Tensor:
        modules = fused_block.llama_modules(
            self.attention_norm,
            self.attention,
            self.mlp_norm,
            self.mlp,
            (self.attention_output_norm, self.mlp_output_norm),
        )
        fused_BTC = fused_block.forward(modules, x_BTC, mask, angles, self.active_dropout)
        if fused_BTC is not None:
            return fused_BTC
        attended_BTC = self.attention(self.attention_norm(x_BTC), angles, mask)
        x_BTC = self.add(x_BTC, self.attention_output_norm(attended_BTC))
        return self.add(x_BTC, self.mlp_output_norm(self.mlp(self.mlp_norm(x_BTC))))


class Gemma3(CausalLM):
    """A Gemma 3 model, text only."""

    config: Gemma3Config

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Gemma3Block(layer, config) for layer in range(config.layers))
        self.final_norm = RMSNorm(config.width, config.norm_eps, config.NORM_OFFSET)
        self.rotary = RotaryEmbedding(config.head_dim, config.rope_base, config.rope_scaling)
        self.rotary_sliding = RotaryEmbedding(config.head_dim, config.rope_base_sliding)

    def run_blocks(self, ids_BT: Tensor, context: ForwardContext) -> Tensor:
        x_BTC = self.embedding(ids_BT)
        # Round the factor to the model's dtype first, as in training: 33.94 becomes 34 in bf16.
        # It stays on the CPU: copying it to the device would wait, and prevent a CUDA graph.
        x_BTC = x_BTC * torch.tensor(self.config.embedding_scale, dtype=x_BTC.dtype)
        x_BTC = self.apply_dropout(x_BTC)
        angles = self.rotary.angles(context.positions_BT, x_BTC.dtype)
        angles_sliding = self.rotary_sliding.angles(context.positions_BT, x_BTC.dtype)
        for block, window in zip(self.blocks, self.config.windows(), strict=True):
            rotation = angles if window is None else angles_sliding
            x_BTC = self.run_block(block, x_BTC, rotation, context.masks[window])
        return x_BTC

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """1 / sqrt(inputs) for all matrices: the norm after an output would undo a zero start."""
        if name.endswith("norm.weight"):
            return 0.0, 0.0
        if name in ("embedding.weight", "head.weight"):
            return 0.0, embedding_std(shape[1])
        return 0.0, float(shape[1]) ** -0.5
