"""What an optimizer's parts do to the gradients before they use them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GradClip:
    """What a step does to all gradients: clipping, and whether it takes place.

    `ok` is None where that is known already; else a tensor that is 1, or 0 for a step that has to
    change nothing.
    """

    factor: float | Tensor
    ok: Tensor | None = None

    def apply(self, gradients: Tensor, otherwise: Tensor | float) -> None:
        """Clip in place; where the step does not take place, become `otherwise`."""
        if not isinstance(self.factor, float) or self.factor != 1.0:
            gradients.mul_(self.factor)
        if self.ok is not None:
            # Not a product: zero times NaN is NaN.
            gradients.copy_(torch.where(self.ok.bool(), gradients, otherwise))

    def of(self, number: float) -> float | Tensor:
        """The number, or zero where the step does not take place."""
        return number if self.ok is None else self.ok * number
