"""FLOPs of a training step per token."""

import math

from torch import Tensor, nn

from ownwords.models import lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build


def per_token(model: CausalLM | ModelConfig, context: int, rank: int = 0) -> float:
    """FLOPs of training on one token in a row of `context` tokens; a config's LoRA has `rank`.

    These are 6 for each weight of a matrix product (2 forward, 4 backward; 4 in total if it is
    frozen), and for attention 12 * total width of the heads * attended tokens in each layer, on
    average context / 2 with a causal mask and fewer with a sliding window. Embedding lookups,
    norms, activations and recomputation are not counted.
    """
    if isinstance(model, ModelConfig):
        model = build(model, device="meta")
        if rank:
            lora.attach(model, lora.AdapterConfig(rank), seed=0)
    config = model.config
    attended = sum(_attended(context, window) for window in config.windows())
    return sum(_of_weights(model)) + 12.0 * config.heads * config.head_dim * attended


def _of_weights(model: CausalLM) -> list[float]:
    costs: list[float] = []
    for module in model.modules():
        # A lookup costs nothing; an embedding shared with the head is a matrix product.
        is_lookup = module is not model.embedding or model.head is not None
        if isinstance(module, nn.Embedding) and is_lookup:
            continue
        costs += [_cost(each) for each in module.parameters(recurse=False) if each.dim() == 2]
    return costs


def _cost(weight: Tensor) -> float:
    return (6.0 if weight.requires_grad else 4.0) * weight.numel()


def _attended(context: int, window: int | None) -> float:
    """The number of tokens that a token of a row attends to, on average."""
    if window is None or window >= context:
        return context / 2
    return window - math.comb(window, 2) / context
