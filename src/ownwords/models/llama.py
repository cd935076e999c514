"""Llama 2 and 3: RMSNorm before each half of a block, rotary positions, SwiGLU, shared key heads.

Touvron et al. 2023 (arXiv 2307.09288), Grattafiori et al. 2024 (arXiv 2407.21783).
Shapes: B batch, T tokens, C width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownwords.models import fused_block
from ownwords.models.configs.llama import LlamaConfig
from ownwords.models.decoder import CausalLM, embedding_std
from ownwords.models.kv_cache import KVCache
from ownwords.models.layers import (
    Attention,
    AttentionMask,
    Embedding,
    GatedMLP,
    ResidualBlock,
    RMSNorm,
)
from ownwords.models.rope import Angles, RotaryEmbedding


class LlamaBlock(ResidualBlock):
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

    def forward(self, x_BTC: Tensor, angles: Angles, sight: AttentionMask) -> Tensor:
        parts = fused_block.llama_modules(
            self.attention_norm, self.attention, self.mlp_norm, self.mlp
        )
        whole = fused_block.forward(parts, x_BTC, sight, angles, self.share_dropped)
        if whole is not None:
            return whole
        x_BTC = self.add(x_BTC, self.attention(self.attention_norm(x_BTC), angles, sight))
        return self.add(x_BTC, self.mlp(self.mlp_norm(x_BTC)))


class Llama(CausalLM):
    """A Llama 2 or 3 model."""

    CONFIG = LlamaConfig
    config: LlamaConfig

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(LlamaBlock(layer, config) for layer in range(config.layers))
        self.final_norm = RMSNorm(config.width, config.norm_eps)
        self.rotary = RotaryEmbedding(config.head_dim, config.rope_base, config.rope_scaling)

    def forward(
        self,
        ids_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        cache: KVCache | None = None,
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
            return 0.0, embedding_std(shape[1])
        return 0.0, float(shape[1]) ** -0.5
