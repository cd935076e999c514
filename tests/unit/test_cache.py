"""Reading with a KV cache equals reading without one, whatever the chunks."""

import torch
from torch import Tensor

from families import TINY, some_ids, tiny
from ownwords.models.decoder import CausalLM

MODELS = {name: tiny(name, torch.float64) for name in TINY}


def _alone(model: CausalLM, ids: Tensor) -> Tensor:
    with torch.no_grad():
        hidden: Tensor = model(ids)
    return hidden


def test_a_cache_can_have_lower_precision() -> None:
    model, ids = tiny("qwen3"), some_ids(1, 30)
    cache = model.new_cache(1, 30, dtype=torch.bfloat16)
    with torch.no_grad():
        output = torch.cat(
            [model(piece, cache=cache) for piece in torch.split(ids, 10, dim=1)], dim=1
        )
    expected = _alone(model, ids)
    assert output.dtype == torch.float32
    assert 0 < (output - expected).norm() < 0.02 * expected.norm()


def test_a_cache_keeps_no_gradients() -> None:
    model, ids = tiny("gemma3"), some_ids(1, 12)
    cache = model.new_cache(1, 12)
    for piece in torch.split(ids, [8, 1, 3], dim=1):
        model(piece, cache=cache)
    assert not any(tensor.requires_grad for tensor in cache.keys_BKSD + cache.values_BKSD)
