"""Weights between those of a base and of its tuned model."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ownwords.models.decoder import CausalLM
from ownwords.models.lora import LoraAdapter

# Points tried between the base's weights (0) and the tuned ones (1).
_SHARES = (1.0, 0.85, 0.7, 0.5, 0.3)

SetShare = Callable[[float], None]


def best_share(
    set_share: SetShare, bits: Callable[[], float], tuned_bits: float | None = None
) -> tuple[float, float, float]:
    """Set the share with the fewest bits per byte; returns it, its bits, and the base's.

    `tuned_bits` are those of share 1, if they are known.

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
        if share == 1 and tuned_bits is not None:
            here = tuned_bits
        else:
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
