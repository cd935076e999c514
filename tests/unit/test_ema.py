import pytest
import torch
from torch import Tensor

from ownwords.training.weight_averaging import EMA


def random_weights(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (3, 5), "b.weight": (4,), "c": ()}
    return {n: torch.randn(s, generator=source).to(dtype) for n, s in shapes.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_step_is_weighted_by_its_age_and_weights_sum_to_one(dtype: torch.dtype) -> None:
    half_life, steps = 3.0, 17
    history = [random_weights(seed, dtype) for seed in range(steps)]
    average = EMA(history[0], half_life)
    for weights in history:
        average.update(weights)
    shares = [2 ** (-(steps - 1 - step) / half_life) for step in range(steps)]
    for name, averaged in average.weights().items():
        truth = sum(
            s * weights[name].double() for s, weights in zip(shares, history, strict=True)
        ) / sum(shares)
        assert averaged.dtype == torch.float32
        torch.testing.assert_close(averaged.double(), truth, rtol=1e-5, atol=1e-6)
