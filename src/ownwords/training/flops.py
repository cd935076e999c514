"""How much arithmetic a token costs: what speeds are measured against."""

import math

from torch import Tensor, nn

from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build
from ownwords.models.quantize import QuantizedEmbedding, QuantizedLinear


def per_token(model: CausalLM | ModelConfig, context: int) -> float:
    """Floating-point operations that training on one token of a row of `context` needs.

    6 for every weight that is multiplied by (2 forward, 4 backward; 4 where it is frozen and only
    passed through), and attention: 12 * width of the heads * tokens looked at in each layer, those
    being context / 2 on average where nothing hides but the future, fewer behind a window.
    Lookups, norms and activations are not counted, nor is anything computed twice to save memory.
    """
    if isinstance(model, ModelConfig):
        model = build(model, device="meta")
    config = model.config
    seen = sum(_seen(context, window) for window in config.windows())
    return sum(_of_weights(model)) + 12.0 * config.heads * config.head_dim * seen


def _of_weights(model: CausalLM) -> list[float]:
    costs: list[float] = []
    for module in model.modules():
        # A lookup costs nothing; turned around as the head, the whole table is multiplied by.
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


def _seen(context: int, window: int | None) -> float:
    """Tokens that one of a row looks at, on average."""
    if window is None or window >= context:
        return context / 2
    return window - math.comb(window, 2) / context
