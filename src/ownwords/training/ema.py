"""Exponential moving average (EMA) of the weights, and interpolation between two models.

Everything is computed in float32; weights are mappings from parameter names to tensors.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ownwords.core.errors import OwnwordsError
from ownwords.models.untrusted_files import preview
from ownwords.training.sharding import full_tensor, is_sharded, local_shard


class EMA:
    """An exponential moving average in which weights `half_life_steps` old count half as much.

    `weights` define only names and shapes. The average starts with the first update and is
    bias-corrected, so that it contains no earlier weights.
    """

    def __init__(self, weights: Mapping[str, Tensor], half_life_steps: float) -> None:
        if not half_life_steps > 0:
            raise OwnwordsError(
                f"an average's half-life is {half_life_steps} steps, and must be above 0"
            )
        self.decay = 2.0 ** (-1 / half_life_steps)
        self.updates = 0
        self._sum = {
            name: torch.zeros_like(weight, dtype=torch.float32, requires_grad=False)
            for name, weight in weights.items()
        }

    @torch.no_grad()
    def update(self, weights: Mapping[str, Tensor]) -> None:
        """Add the weights after one more step."""
        _same(self._sum, weights)
        sums = [local_shard(tensor) for tensor in self._sum.values()]
        here = [local_shard(weights[name].detach()) for name in self._sum]
        torch._foreach_lerp_(sums, [tensor.float() for tensor in here], 1 - self.decay)
        self.updates += 1

    def weights(self) -> dict[str, Tensor]:
        """The average so far, as new tensors."""
        if not self.updates:
            raise OwnwordsError("there is no average of the weights before the first step")
        share = 1 - self.decay**self.updates
        return {name: tensor / share for name, tensor in self._sum.items()}

    def state(self) -> dict[str, Tensor]:
        """The state for a checkpoint in float32, not copied; update counts are exact up to 2^24."""
        count = torch.tensor(float(self.updates))
        return {"updates": count} | {f"sum/{name}": tensor for name, tensor in self._sum.items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state, bit for bit."""
        _same(self.state(), state)
        for name, tensor in self._sum.items():
            value = state[f"sum/{name}"]
            local_shard(tensor).copy_(
                local_shard(value) if is_sharded(tensor) else full_tensor(value)
            )
        self.updates = int(state["updates"])


@torch.no_grad()
def interpolate(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor], share: float
) -> dict[str, Tensor]:
    """Interpolate linearly between the weights `one` (share 0) and `other` (share 1)."""
    _same(first, second)
    return {
        name: torch.lerp(tensor.detach().float(), second[name].detach().float(), share)
        for name, tensor in first.items()
    }


def _same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> None:
    if first.keys() != second.keys():
        raise OwnwordsError(
            f"two sets of weights differ in {preview(first.keys() ^ second.keys())}",
            hint="average only models of one shape",
        )
    for name, tensor in first.items():
        if tensor.shape != second[name].shape:
            raise OwnwordsError(
                f"{name!r} is {list(tensor.shape)} in one set of weights, and"
                f" {list(second[name].shape)} in another",
                hint="average only models of one shape",
            )
