"""AdamW, for embeddings, norms, biases and adapters beside Muon, or for a whole model.

Loshchilov & Hutter 2019, arXiv 1711.05101. A step, including clipping, is one pass over memory
with PyTorch's fused kernel, or for bfloat16 gradients with our own kernel, which also writes the
bfloat16 weights. Without either, it is a few operations on flat tensors.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ownwords.models import fused
from ownwords.training.grad_clip import GradClip

# Where PyTorch's fused kernel can clip and skip a step.
FUSED = ("cpu", "cuda")
# Elements of narrow gradients widened at a time for their norm: they fit into a core's cache.
_BLOCK = 2**18
# Each tensor starts on a cache line: 16 numbers are 64 bytes.
ALIGNED = 16


class AdamW:
    """The AdamW optimizer of parameters that share one weight decay.

    `weights` are float32, their gradients of any dtype; sharded tensors are passed as local shards.
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
        # Names of the parameters that the last step has also written in bfloat16.
        self.written: frozenset[str] = frozenset()
        self.mean, self.means = _flat(shapes, device)
        self.square, self.squares = _flat(shapes, device)
        # One count for all parameters: they are always updated together.
        self.count = torch.zeros((), dtype=torch.float32, device=device)
        self.gradients: list[Tensor] = []
        self._copy: tuple[Tensor, list[Tensor]] | None = None
        self._shapes, self._device = shapes, device

    def gather(self, gradients: Mapping[str, Tensor]) -> list[Tensor]:
        """Keep the gradients for the step; returns norms whose norm is that of all of them."""
        ordered = [gradients[name] for name in self.names]
        wide = all(gradient.dtype == torch.float32 for gradient in ordered)
        if self.fused and wide:
            self.gradients = ordered
            return list(torch._foreach_norm(ordered))
        if self.fused and fused.is_supported(*ordered):
            self.gradients = [gradient.contiguous() for gradient in ordered]
            return [_norm(self.gradients)]
        if self._copy is None:
            self._copy = _flat(self._shapes, self._device)
        flat, self.gradients = self._copy
        torch._foreach_copy_(self.gradients, ordered)
        return [torch.linalg.vector_norm(flat)]

    def release(self) -> None:
        """Free the gradients, because the next ones need the memory."""
        self.gradients = []

    def step(
        self,
        weights: Mapping[str, Tensor],
        *,
        lr: float,
        clip: GradClip,
        narrow: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Update the weights from the gathered gradients.

        `narrow`: the bfloat16 parameters of some of the weights; `written` then names those that
        this step has updated as well.
        """
        here = [weights[name] for name in self.names]
        self.written = frozenset()
        if not self.fused:
            self._step_plain(here, lr, clip)
        elif any(gradient.dtype != torch.float32 for gradient in self.gradients):
            self._step_native(here, lr, clip, narrow or {})
        else:
            self._step_fused(here, lr, clip)
        self.release()

    def _step_native(
        self, weights: Sequence[Tensor], lr: float, clip: GradClip, narrow: Mapping[str, Tensor]
    ) -> None:
        if clip.ok is not None and not bool(clip.ok):
            return
        self.count.add_(1)
        step, scale = int(self.count), float(clip.factor)
        written = [name for name, each in narrow.items() if _is_writable(each)]
        self.written = frozenset(written).intersection(self.names)
        every = zip(self.names, weights, self.gradients, self.means, self.squares, strict=True)
        for name, weight, gradient, mean, square in every:
            fused.adamw_(
                weight,
                gradient,
                mean,
                square,
                step=step,
                learning_rate=lr,
                betas=self.betas,
                eps=self.eps,
                weight_decay=self.decay,
                scale=scale,
                bf16_copy=narrow[name] if name in self.written else None,
            )

    def _step_fused(self, weights: list[Tensor], lr: float, clip: GradClip) -> None:
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
            lr=lr,
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

    def _step_plain(self, weights: list[Tensor], lr: float, clip: GradClip) -> None:
        assert self._copy is not None
        gradient, updates = self._copy
        beta1, beta2 = self.betas
        clip.apply(gradient, 0.0)
        self.count.add_(clip.unless_skipped(1.0))
        self.mean.lerp_(gradient, clip.unless_skipped(1 - beta1))
        self.square.lerp_(gradient.square(), clip.unless_skipped(1 - beta2))
        spread = (self.square / (1 - beta2**self.count)).sqrt_().add_(self.eps)
        torch.div(self.mean / (1 - beta1**self.count), spread, out=gradient)
        GradClip(1.0, clip.ok).apply(gradient, 0.0)  # 0 / 0 if every step so far was skipped
        if self.decay:
            torch._foreach_mul_(weights, 1 - clip.unless_skipped(lr * self.decay))
        torch._foreach_add_(weights, updates, alpha=-lr)

    def moments(self) -> dict[str, Tensor]:
        """The two moments as views, by "mean/name" and "square/name"."""
        means = {f"mean/{n}": each for n, each in zip(self.names, self.means, strict=True)}
        squares = {f"square/{n}": each for n, each in zip(self.names, self.squares, strict=True)}
        return means | squares


def _is_writable(narrow: Tensor) -> bool:
    return narrow.dtype == torch.bfloat16 and narrow.is_contiguous()


def _norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients in float32, without a float32 copy of all of them."""
    buffer = torch.empty(_BLOCK, dtype=torch.float32, device=gradients[0].device)
    norms: list[Tensor] = []
    parts: list[Tensor] = []

    def take() -> None:
        sizes = [part.numel() for part in parts]
        here = buffer[: sum(sizes)]
        torch._foreach_copy_(list(torch.split(here, sizes)), parts)
        norms.append(torch.linalg.vector_norm(here))
        parts.clear()

    left = _BLOCK
    for gradient in gradients:
        flat = gradient.view(-1)
        # With a single part, `split` would take as long as everything else here.
        for part in torch.split(flat, _BLOCK) if flat.numel() > _BLOCK else (flat,):
            if part.numel() > left:
                take()
                left = _BLOCK
            parts.append(part)
            left -= part.numel()
    take()
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def _flat(shapes: list[torch.Size], device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """A flat tensor of zeros, and aligned views of it with these shapes."""
    sizes = [-(-shape.numel() // ALIGNED) * ALIGNED for shape in shapes]
    flat = torch.zeros(sum(sizes), dtype=torch.float32, device=device)
    parts = torch.split(flat, sizes)
    pairs = zip(parts, shapes, strict=True)
    return flat, [part[: shape.numel()].view(shape) for part, shape in pairs]
