"""FLOPs of a training step per token."""

import math

from torch import Tensor, nn

from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build
from ownwords.models.quantize import QuantizedEmbedding, QuantizedLinear


def per_token(model: CausalLM | ModelConfig, context: int) -> float:
    """Floating-point operations that training on one token of a row of `context` needs.

    6 for each weight of a matrix product (2 forward, 4 backward; 4 in all if it is frozen), and
    attention: 12 * width of the heads * tokens attended to in each layer, which are context / 2 on
    average with a causal mask, fewer with a sliding window. Embedding lookups, norms, activations
    and recomputation are not counted.
    """
    if isinstance(model, ModelConfig):
        model = build(model, device="meta")
    config = model.config
    attended = sum(_attended(context, window) for window in config.windows())
    return sum(_of_weights(model)) + 12.0 * config.heads * config.head_dim * attended


def _of_weights(model: CausalLM) -> list[float]:
    costs: list[float] = []
    for module in model.modules():
        # A lookup costs nothing; wte shared with lm_head is a matrix product.
        is_lookup = module is not model.embedding or model.head is not None
        if isinstance(module, nn.Embedding | QuantizedEmbedding) and is_lookup:
            continue
        if isinstance(module, QuantizedLinear | QuantizedEmbedding):
            costs.append(4.0 * module.rows * module.columns)
        else:
            costs += [_cost(each) for each in module.parameters(recurse=False) if each.dim() == 2]
    return costs


def _cost(weight: Tensor) -> float:
    return (6.0 if weight.requires_grad else 4.0) * weight.numel()


def _attended(context: int, window: int | None) -> float:
    """Tokens that one of a row looks at, on average."""
    if window is None or window >= context:
        return context / 2
    return window - math.comb(window, 2) / context
