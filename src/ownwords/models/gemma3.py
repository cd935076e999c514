"""Gemma 3, text only: norms on both sides of each half, GeGLU, windows in five layers of six.

Gemma Team 2025 (arXiv 2503.19786). Layers with a window turn by a faster base than those that see
everything; the embedding is multiplied by the root of the width; norms store their distance from 1.
Shapes: B batch, T tokens, C width.
"""

import torch
from torch import Tensor, nn

from ownwords.models.configs.gemma3 import Gemma3Config
from ownwords.models.decoder import CausalLM, embedding_std
from ownwords.models.kv_cache import KVCache
from ownwords.models.layers import (
    Attention,
    AttentionMask,
    Embedding,
    GatedMLP,
    ResidualBlock,
    RMSNorm,
    gelu_tanh,
)
from ownwords.models.rope import Angles, RotaryEmbedding


class Gemma3Block(ResidualBlock):
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

    def forward(self, x_BTC: Tensor, angles: Angles, sight: AttentionMask) -> Tensor:
        read_BTC = self.attention(self.attention_norm(x_BTC), angles, sight)
        x_BTC = self.add(x_BTC, self.attention_output_norm(read_BTC))
        return self.add(x_BTC, self.mlp_output_norm(self.mlp(self.mlp_norm(x_BTC))))


class Gemma3(CausalLM):
    """A Gemma 3 model that reads text."""

    CONFIG = Gemma3Config
    config: Gemma3Config

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Gemma3Block(layer, config) for layer in range(config.layers))
        self.final_norm = RMSNorm(config.width, config.norm_eps, offset=1.0)
        self.rotary = RotaryEmbedding(config.head_dim, config.rope_base, config.rope_scaling)
        self.rotary_sliding = RotaryEmbedding(config.head_dim, config.rope_base_sliding)

    def forward(
        self,
        ids_BT: Tensor,
        *,
        documents_BT: Tensor | None = None,
        cache: KVCache | None = None,
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
            return 0.0, embedding_std(shape[1])
        return 0.0, float(shape[1]) ** -0.5
