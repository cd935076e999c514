"""Averages of weights: over the steps of a run (EMA), and between a base and its tuned model.

Everything is computed in float32; weights are mappings from parameter names to tensors.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ownwords.models.decoder import CausalLM
from ownwords.models.lora import LoraAdapter

# Points tried between the base's weights (0) and the tuned ones (1).
_SHARES = (1.0, 0.85, 0.7, 0.5, 0.3)

SetShare = Callable[[float], None]


class EMA:
    """An exponential moving average in which weights `half_life_steps` old count half as much.

    `weights` define only names and shapes. The average starts with the first update and is
    bias-corrected, so that it contains no earlier weights.
    """

    def __init__(self, weights: Mapping[str, Tensor], half_life_steps: float) -> None:
        self.decay = 2.0 ** (-1 / half_life_steps)
        self.updates = 0
        self._sum = {
            name: torch.zeros_like(weight, dtype=torch.float32, requires_grad=False)
            for name, weight in weights.items()
        }

    @torch.no_grad()
    def update(self, weights: Mapping[str, Tensor]) -> None:
        """Add the weights after one more step."""
        here = [weights[name].detach().float() for name in self._sum]
        torch._foreach_lerp_(list(self._sum.values()), here, 1 - self.decay)
        self.updates += 1

    def weights(self) -> dict[str, Tensor]:
        """The average after one step or more, as new tensors."""
        share = 1 - self.decay**self.updates
        return {name: tensor / share for name, tensor in self._sum.items()}

    def state(self) -> dict[str, Tensor]:
        """The state for a checkpoint in float32, not copied; update counts are exact up to 2^24."""
        count = torch.tensor(float(self.updates))
        return {"updates": count} | {f"sum/{name}": tensor for name, tensor in self._sum.items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state, bit for bit."""
        for name, tensor in self._sum.items():
            tensor.copy_(state[f"sum/{name}"])
        self.updates = int(state["updates"])


def best_share(set_share: SetShare, bits: Callable[[], float]) -> tuple[float, float, float]:
    """Set the share with the fewest bits per byte; returns it, its bits, and the base's.

    A tuned model has learned the author and forgotten other things; a point between the two is
    often better than either (Wortsman et al. 2021, arXiv 2109.01903).
    The bits fall from the base to the best point and rise after it, so the search ends at the first
    share that is worse than the one before.
    """
    set_share(0.0)
    base_bits = bits()
    best, best_bits = 0.0, base_bits
    before = float("inf")
    for share in _SHARES:
        set_share(share)
        here = bits()
        if here < best_bits:
            best, best_bits = share, here
        if here > before:
            break
        before = here
    set_share(best)
    return best, best_bits, base_bits


def between(model: CausalLM, base: Mapping[str, Tensor]) -> SetShare:
    """A function that gives the model weights between `base` and those it has now."""
    tuned = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}

    def set_share(share: float) -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.lerp(base[name].float(), tuned[name].float(), share))

    return set_share


def scaling(adapter: LoraAdapter) -> SetShare:
    """A function that scales what an adapter adds to its model."""
    ups = {name: layer.up.detach().clone() for name, layer in adapter.layers.items()}

    def set_share(share: float) -> None:
        with torch.no_grad():
            for name, layer in adapter.layers.items():
                layer.up.copy_(share * ups[name])

    return set_share
