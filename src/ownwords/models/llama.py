"""Llama 2 and 3, Qwen2 and 3, Gemma 3: pre-norm, RMSNorm, RoPE, gated MLP, grouped queries.

Llama: Touvron et al. 2023 (arXiv 2307.09288), Grattafiori et al. 2024 (arXiv 2407.21783). Qwen3
(Yang et al. 2025, arXiv 2505.09388), the family of the models trained here, adds norms on queries
and keys; its head dimension is independent of the width.
Gemma 3, text only (Gemma Team 2025, arXiv 2503.19786), also has norms after each part, GeGLU, and
windows in five of six layers, whose RoPE base is smaller; the embedding is multiplied by the root
of the width, and norm weights are stored minus 1.
Shapes: B batch, T tokens, C width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownwords.models.configs.llama import LlamaConfig
from ownwords.models.decoder import CausalLM, ForwardContext
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


class LlamaBlock(ResidualBlock):
    """Attention, then MLP, each with a norm before it, and in Gemma after it."""

    def __init__(self, layer: int, config: LlamaConfig) -> None:
        super().__init__()

        def norm(width: int = config.width) -> RMSNorm:
            return RMSNorm(width, config.norm_eps, config.NORM_OFFSET)

        self.attention_norm = norm()
        self.attention = Attention(
            layer,
            config,
            (lambda: norm(config.head_dim)) if config.QK_NORMS else None,
            biases=config.QKV_BIASES,
        )
        self.attention_output_norm = norm() if config.OUTPUT_NORMS else None
        self.mlp_norm = norm()
        self.mlp = GatedMLP(config.width, config.hidden, gelu_tanh if config.GELU else F.silu)
        self.mlp_output_norm = norm() if config.OUTPUT_NORMS else None

    def forward(self, x_BTC: Tensor, mask: AttentionMask, angles: Angles) -> Tensor:
        attended_BTC = self.attention(self.attention_norm(x_BTC), angles, mask)
        if self.attention_output_norm is not None:
            attended_BTC = self.attention_output_norm(attended_BTC)
        x_BTC = self.add(x_BTC, attended_BTC)
        out_BTC = self.mlp(self.mlp_norm(x_BTC))
        if self.mlp_output_norm is not None:
            out_BTC = self.mlp_output_norm(out_BTC)
        return self.add(x_BTC, out_BTC)


class Llama(CausalLM):
    """A Llama 2 or 3 or a Qwen2 or Qwen3 model."""

    config: LlamaConfig

    def assemble(self) -> None:
        config = self.config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(LlamaBlock(layer, config) for layer in range(config.layers))
        self.final_norm = RMSNorm(config.width, config.norm_eps, config.NORM_OFFSET)
        self.rotaries = [RotaryEmbedding(config.head_dim, *spec) for spec in config.rope_specs()]

    def run_blocks(self, ids_BT: Tensor, context: ForwardContext) -> Tensor:
        config, x_BTC = self.config, self.embedding(ids_BT)
        if config.embedding_scale != 1:
            # Rounded to the model's dtype first, as in training: 33.94 becomes 34 in bfloat16.
            # It stays on the CPU: a copy to the device would synchronise, and prevent a CUDA graph.
            x_BTC = x_BTC * torch.tensor(config.embedding_scale, dtype=x_BTC.dtype)
        x_BTC = self.apply_dropout(x_BTC)
        angles = [each.angles(context.positions_BT, x_BTC.dtype) for each in self.rotaries]
        layers = zip(self.blocks, config.rope_of_layers(), config.windows(), strict=True)
        for block, table, window in layers:
            x_BTC = self.run_block(block, x_BTC, context.masks[window], angles[table])
        return x_BTC

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """Return mean and std; a std of 0 for output matrices makes blocks initially add nothing.

        Embedding and head: 0.02, but less above a width of 256. With a tied head a new model
        predicts the token that it has just read, with a logit of about std * width: 5 is harmless,
        20 at a width of 1,024 is not. Others: 1 / sqrt(inputs), which keeps activations near 1.
        """
        if name.endswith("norm.weight"):
            return 1.0, 0.0
        if name.endswith(("output.weight", "down.weight", ".bias")):
            return 0.0, 0.0
        if name in ("embedding.weight", "head.weight"):
            return 0.0, 0.02 * min(1.0, 256 / shape[1])
        return 0.0, float(shape[1]) ** -0.5


class Gemma3(Llama):
    """A Gemma 3 model, text only."""

    def initial(self, name: str, shape: torch.Size) -> tuple[float, float]:
        """The same as Llama's, but without zeros, which the norm after an output would undo."""
        if name.endswith("norm.weight"):
            return 0.0, 0.0
        if name.endswith(("output.weight", "down.weight")):
            return 0.0, float(shape[1]) ** -0.5
        return super().initial(name, shape)
