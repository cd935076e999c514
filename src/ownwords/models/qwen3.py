"""Qwen3, and the models trained here: Llama with norms on queries and keys.

Yang et al. 2025 (arXiv 2505.09388). The head dimension is independent of the width, and some layers
may have a sliding window.
"""

from ownwords.models.configs.qwen3 import Qwen3Config
from ownwords.models.layers import RMSNorm
from ownwords.models.llama import Llama, LlamaBlock


class Qwen3(Llama):
    """A Qwen3 model; sliding windows are supported."""

    config: Qwen3Config

    def block(self, layer: int) -> LlamaBlock:
        config = self.config
        return LlamaBlock(layer, config, lambda: RMSNorm(config.head_dim, config.norm_eps))
