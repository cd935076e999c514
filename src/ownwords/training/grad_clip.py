"""Gradient clipping, and skipping of steps whose gradients are not finite."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GradClip:
    """The factor that clips all gradients of a step, and whether the step is skipped.

    `ok` is a tensor: 1, or 0 if the step must change nothing; None if it is known to be 1.
    """

    factor: float | Tensor
    ok: Tensor | None = None

    def apply(self, gradients: Tensor, otherwise: Tensor | float) -> None:
        """Clip gradients in place; if the step is skipped, set them to `otherwise`."""
        if not isinstance(self.factor, float) or self.factor != 1.0:
            gradients.mul_(self.factor)
        if self.ok is not None:
            # Not a product: zero times NaN is NaN.
            gradients.copy_(torch.where(self.ok.bool(), gradients, otherwise))

    def unless_skipped(self, number: float) -> float | Tensor:
        """The number, or zero if the step is skipped."""
        return number if self.ok is None else self.ok * number
