"""Muon: orthogonalized momentum, for the matrices inside the blocks.

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon. A small model has many small
matrices, and launching an operation on one costs more than computing it. So momenta and gradients
are stacked by shape, and each operation processes all matrices of a shape in one batch.

Shapes: N matrices, R rows, C columns, S the smaller of the two.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ownwords.training import fused_muon
from ownwords.training.grad_clip import GradClip
from ownwords.training.sharding import full_tensor, is_sharded, local_like

# A quintic that takes every singular value in (0, 1] to about [0.7, 1.2] in five steps.
A, B, C = 3.4445, -4.7750, 2.0315
EPS = 1e-7


def newton_schulz(x_NRC: Tensor, steps: int) -> Tensor:
    """Newton-Schulz iteration: brings the singular values of matrices of norm <= 1 near to 1.

    Each step X becomes (A + B XX' + C (XX')^2) X. For tall matrices X'X is smaller and multiplies
    from the right, so nothing is transposed.
    """
    is_tall = x_NRC.shape[1] > x_NRC.shape[2]
    ratio = max(x_NRC.shape[1:]) / max(1, min(x_NRC.shape[1:]))
    if x_NRC.dtype == torch.float32 and ratio >= 1.5 and steps > 0:
        return _newton_schulz_rectangular(x_NRC, steps)
    for _ in range(steps):
        gram_NSS = _gram(x_NRC)
        polynomial_NSS = torch.baddbmm(gram_NSS, gram_NSS, gram_NSS, beta=B, alpha=C)
        left_N, right_N = (x_NRC, polynomial_NSS) if is_tall else (polynomial_NSS, x_NRC)
        x_NRC = torch.baddbmm(x_NRC, left_N, right_N, beta=A)
    return x_NRC


def _newton_schulz_rectangular(x_NRC: Tensor, steps: int) -> Tensor:
    """The same iteration with two products on the long side in total, not two per step.

    Each step multiplies by a polynomial in XX', and these commute, so it is enough to update XX'
    and the product of the polynomials. In bfloat16 the rounding errors would grow too much.
    """
    gram_NSS = _gram(x_NRC)
    product_NSS: Tensor | None = None
    for left in reversed(range(steps)):
        polynomial_NSS = torch.baddbmm(gram_NSS, gram_NSS, gram_NSS, beta=B, alpha=C)
        polynomial_NSS.diagonal(dim1=1, dim2=2).add_(A)
        product_NSS = (
            polynomial_NSS if product_NSS is None else torch.bmm(polynomial_NSS, product_NSS)
        )
        if left:
            gram_NSS = torch.bmm(polynomial_NSS, torch.bmm(gram_NSS, polynomial_NSS))
    assert product_NSS is not None
    is_tall = x_NRC.shape[1] > x_NRC.shape[2]
    return torch.bmm(x_NRC, product_NSS) if is_tall else torch.bmm(product_NSS, x_NRC)


def _gram(x_NRC: Tensor) -> Tensor:
    """XX' or X'X, whichever is smaller."""
    is_tall = x_NRC.shape[1] > x_NRC.shape[2]
    return torch.bmm(x_NRC.mT, x_NRC) if is_tall else torch.bmm(x_NRC, x_NRC.mT)


class MatrixStack:
    """All matrices of one shape: their momenta, and a buffer for their gradients."""

    def __init__(self, names: Sequence[str], parameters: Sequence[Tensor]) -> None:
        self.names = tuple(names)
        self.parameters = list(parameters)
        rows, columns = parameters[0].shape
        device = parameters[0].device
        self.momentum_NRC = torch.zeros(
            len(names), rows, columns, dtype=torch.float32, device=device
        )
        self.update_NRC = torch.zeros_like(self.momentum_NRC)
        self.updates = list(self.update_NRC.unbind())
        self.scale = max(1.0, rows / columns) ** 0.5


class Muon:
    """The Muon optimizer for a set of matrices."""

    def __init__(
        self, parameters: dict[str, Tensor], *, steps: int, precision: torch.dtype
    ) -> None:
        self.steps, self.precision = steps, precision
        self.names = tuple(parameters)
        shapes: dict[torch.Size, list[str]] = {}
        for name, parameter in parameters.items():
            shapes.setdefault(parameter.shape, []).append(name)
        self.stacks = [
            MatrixStack(names, [parameters[name] for name in names]) for names in shapes.values()
        ]

    def gather(self, gradients: dict[str, Tensor]) -> list[Tensor]:
        """Copy the gradients; returns their norms, one per shape."""
        for stack in self.stacks:
            here = [full_tensor(gradients[name]) for name in stack.names]
            torch._foreach_copy_(stack.updates, here)
        return [torch.linalg.vector_norm(stack.update_NRC) for stack in self.stacks]

    def step(
        self,
        weights: dict[str, Tensor],
        *,
        lr: float,
        momentum: float,
        decay: float,
        clip: GradClip,
    ) -> None:
        """Update the weights, or their local shards, from the gathered gradients."""
        native = [stack for stack in self.stacks if self._is_native(stack, clip)]
        if native:
            fused_muon.update_(
                [stack.update_NRC for stack in native],
                [stack.momentum_NRC for stack in native],
                factor=float(clip.factor),
                momentum=momentum,
                newton_schulz_steps=self.steps,
            )
        for stack in self.stacks:
            if stack not in native:
                self._advance(stack, momentum, clip)
            here = [weights[name] for name in stack.names]
            updates = stack.updates
            if is_sharded(stack.parameters[0]):
                pairs = zip(updates, stack.parameters, strict=True)
                updates = [local_like(update, parameter) for update, parameter in pairs]
            if decay:
                torch._foreach_mul_(here, 1 - clip.unless_skipped(lr * decay))
            torch._foreach_add_(here, updates, alpha=-lr * stack.scale)

    def _is_native(self, stack: MatrixStack, clip: GradClip) -> bool:
        return (
            self.precision == torch.bfloat16
            and stack.update_NRC.device.type == "cpu"
            and clip.ok is None
            and fused_muon.is_supported(*stack.update_NRC.shape[1:])
        )

    def _advance(self, stack: MatrixStack, momentum: float, clip: GradClip) -> None:
        """Update the momenta, and turn the gradients into orthogonalized updates in place."""
        clip.apply(stack.update_NRC, stack.momentum_NRC)
        # If the step is skipped, both are the momentum, which stays exactly as it is.
        stack.momentum_NRC.lerp_(stack.update_NRC, 1 - momentum)
        stack.update_NRC.lerp_(stack.momentum_NRC, momentum)
        self._orthogonalize(stack.update_NRC)
        if clip.ok is not None:
            stack.update_NRC.mul_(clip.ok)

    def _orthogonalize(self, update_NRC: Tensor) -> None:
        norm_N11 = torch.linalg.vector_norm(update_NRC, dim=(1, 2), keepdim=True)
        update_NRC.mul_(1 / (norm_N11 + EPS))
        update_NRC.copy_(newton_schulz(update_NRC.to(self.precision), self.steps))

    def momenta(self) -> dict[str, Tensor]:
        """The momenta by parameter name, as views."""
        return {
            name: momentum
            for stack in self.stacks
            for name, momentum in zip(stack.names, stack.momentum_NRC.unbind(), strict=True)
        }
