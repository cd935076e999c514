"""Reading with a KV cache equals reading without one, whatever the chunks."""

import pytest
import torch
from torch import Tensor

from families import TINY, some_ids, tiny
from ownwords.core.errors import OwnwordsError
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


def test_an_overflow_is_refused_in_a_sentence() -> None:
    model = MODELS["llama"]
    with pytest.raises(OwnwordsError, match=r"cache of 65 tokens .* context is 64"):
        model.new_cache(1, 65)
    cache = model.new_cache(2, 8)
    with pytest.raises(OwnwordsError, match="holds 2 texts, and 3 were given"):
        model(some_ids(3, 4), cache=cache)
    with pytest.raises(OwnwordsError, match="text of 9 tokens does not fit a cache made for 8"):
        model(some_ids(2, 9), cache=cache)
    with pytest.raises(OwnwordsError, match=r"lengths \[5, 1\] do not fit"):
        model(some_ids(2, 4), cache=cache, lengths_B=torch.tensor([5, 1]))
    with pytest.raises(OwnwordsError, match="packed documents cannot be read into a cache"):
        model(some_ids(2, 4), cache=cache, documents_BT=some_ids(2, 4))
    assert cache.lengths == [0, 0]
