"""AdamW for everything that Muon is not for: tables, norms, biases, adapters, or all of a model.

Loshchilov & Hutter 2019, arXiv 1711.05101. A step is one pass over the memory, clipping included:
by PyTorch's fused kernel, or where gradients are bfloat16 by one of our own, which writes the
bfloat16 weights as well. Where neither is at hand a few operations on flat tensors do it.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ownwords.models import fused
from ownwords.training.grad_clip import GradClip

# Where torch's fused kernel takes the clipping and the leaving out of a step.
FUSED = ("cpu", "cuda")
# Of narrow gradients so many at a time are widened for their norm: they stay in a core's cache.
_WIDENED = 2**18
# Each tensor begins where a vector load may: 16 numbers are 64 bytes.
ALIGNED = 16


class AdamW:
    """The moments of some parameters of one weight decay, and what is done with them in a step.

    `weights` are float32 and their gradients of any type; both are pieces where they are split.
    """

    def __init__(
        self,
        weights: dict[str, Tensor],
        *,
        betas: tuple[float, float],
        eps: float,
        decay: float,
    ) -> None:
        self.names = tuple(weights)
        self.betas, self.eps, self.decay = betas, eps, decay
        shapes = [weight.shape for weight in weights.values()]
        device = next(iter(weights.values())).device
        self.fused = device.type in FUSED
        # Weights that a step has written in their narrow form too.
        self.shown: frozenset[str] = frozenset()
        self.mean, self.means = _flat(shapes, device)
        self.square, self.squares = _flat(shapes, device)
        # Of all parameters together: none ever takes a step without the others.
        self.count = torch.zeros((), dtype=torch.float32, device=device)
        self.gradients: list[Tensor] = []
        self._copy: tuple[Tensor, list[Tensor]] | None = None
        self._shapes, self._device = shapes, device

    def gather(self, gradients: Mapping[str, Tensor]) -> list[Tensor]:
        """Keep the gradients until they are used; norms that together make up theirs."""
        found = [gradients[name] for name in self.names]
        wide = all(gradient.dtype == torch.float32 for gradient in found)
        if self.fused and wide:
            self.gradients = found
            return list(torch._foreach_norm(found))
        if self.fused and fused.is_supported(*found):
            self.gradients = [gradient.contiguous() for gradient in found]
            return [_norm(self.gradients)]
        if self._copy is None:
            self._copy = _flat(self._shapes, self._device)
        flat, self.gradients = self._copy
        torch._foreach_copy_(self.gradients, found)
        return [torch.linalg.vector_norm(flat)]

    def release(self) -> None:
        """Hold on to the gradients no longer: the next ones need the memory."""
        self.gradients = []

    def step(
        self,
        weights: Mapping[str, Tensor],
        *,
        rate: float,
        clip: GradClip,
        narrow: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Change the weights by what was gathered.

        `narrow`: what is to show some of the weights in bfloat16. `shown` then says which of them
        do so already.
        """
        here = [weights[name] for name in self.names]
        self.shown = frozenset()
        if not self.fused:
            self._step_plain(here, rate, clip)
        elif any(gradient.dtype != torch.float32 for gradient in self.gradients):
            self._step_native(here, rate, clip, narrow or {})
        else:
            self._step_fused(here, rate, clip)
        self.release()

    def _step_native(
        self, weights: Sequence[Tensor], rate: float, clip: GradClip, narrow: Mapping[str, Tensor]
    ) -> None:
        if clip.ok is not None and not bool(clip.ok):
            return
        self.count.add_(1)
        step, scale = int(self.count), float(clip.factor)
        shown = [name for name, each in narrow.items() if _is_writable(each)]
        self.shown = frozenset(shown).intersection(self.names)
        every = zip(self.names, weights, self.gradients, self.means, self.squares, strict=True)
        for name, weight, gradient, mean, square in every:
            fused.adamw_(
                weight,
                gradient,
                mean,
                square,
                step=step,
                rate=rate,
                betas=self.betas,
                eps=self.eps,
                decay=self.decay,
                scale=scale,
                narrow=narrow[name] if name in self.shown else None,
            )

    def _step_fused(self, weights: list[Tensor], rate: float, clip: GradClip) -> None:
        # The kernel divides the gradients by `scale`.
        scale: Tensor | None = None
        if isinstance(clip.factor, Tensor):
            scale = 1 / clip.factor
        elif clip.factor != 1.0:
            scale = self.count.new_full((), 1 / clip.factor)
        bad = None if clip.ok is None else 1 - clip.ok
        self.count.add_(1)
        torch._fused_adamw_(
            weights,
            self.gradients,
            self.means,
            self.squares,
            [],
            [self.count] * len(weights),
            lr=rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=scale,
            found_inf=bad,
        )
        if bad is not None:
            self.count.sub_(bad)

    def _step_plain(self, weights: list[Tensor], rate: float, clip: GradClip) -> None:
        assert self._copy is not None
        gradient, updates = self._copy
        beta1, beta2 = self.betas
        clip.apply(gradient, 0.0)
        self.count.add_(clip.unless_skipped(1.0))
        self.mean.lerp_(gradient, clip.unless_skipped(1 - beta1))
        self.square.lerp_(gradient.square(), clip.unless_skipped(1 - beta2))
        spread = (self.square / (1 - beta2**self.count)).sqrt_().add_(self.eps)
        torch.div(self.mean / (1 - beta1**self.count), spread, out=gradient)
        GradClip(1.0, clip.ok).apply(gradient, 0.0)  # before the first step that counts it is 0 / 0
        if self.decay:
            torch._foreach_mul_(weights, 1 - clip.unless_skipped(rate * self.decay))
        torch._foreach_add_(weights, updates, alpha=-rate)

    def moments(self) -> dict[str, Tensor]:
        """ "mean/name" and "square/name"; views, which the next step changes."""
        means = {f"mean/{n}": each for n, each in zip(self.names, self.means, strict=True)}
        squares = {f"square/{n}": each for n, each in zip(self.names, self.squares, strict=True)}
        return means | squares


def _is_writable(narrow: Tensor) -> bool:
    return narrow.dtype == torch.bfloat16 and narrow.is_contiguous()


def _norm(gradients: Sequence[Tensor]) -> Tensor:
    """Of all of them, in float32, without a float32 copy of them."""
    room = torch.empty(_WIDENED, dtype=torch.float32, device=gradients[0].device)
    norms: list[Tensor] = []
    parts: list[Tensor] = []

    def take() -> None:
        sizes = [part.numel() for part in parts]
        here = room[: sum(sizes)]
        torch._foreach_copy_(list(torch.split(here, sizes)), parts)
        norms.append(torch.linalg.vector_norm(here))
        parts.clear()

    left = _WIDENED
    for gradient in gradients:
        flat = gradient.view(-1)
        # Asked for a single part, `split` takes as long as all else that happens to it.
        for part in torch.split(flat, _WIDENED) if flat.numel() > _WIDENED else (flat,):
            if part.numel() > left:
                take()
                left = _WIDENED
            parts.append(part)
            left -= part.numel()
    take()
    whole: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return whole


def _flat(shapes: list[torch.Size], device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """Zeros for tensors of these shapes, in one; and each of them."""
    sizes = [-(-shape.numel() // ALIGNED) * ALIGNED for shape in shapes]
    flat = torch.zeros(sum(sizes), dtype=torch.float32, device=device)
    parts = torch.split(flat, sizes)
    pairs = zip(parts, shapes, strict=True)
    return flat, [part[: shape.numel()].view(shape) for part, shape in pairs]
