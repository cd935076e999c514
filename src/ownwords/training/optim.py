"""Muon + AdamW without host synchronisation on a GPU, and the schedule of their learning rates.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) updates the matrices inside the
blocks, AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) everything else; or AdamW updates
everything. Muon stacks matrices by shape, because launching an operation on a small matrix costs
more than computing it; on a CPU, one call of the C++ library makes a step, one thread per matrix.

Shapes: N matrices, R rows, C columns, S the smaller of the two.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ownwords.core.errors import OwnwordsError
from ownwords.models import fused
from ownwords.models.layers import LoraLinear
from ownwords.models.untrusted_files import preview
from ownwords.native.bindings import interface
from ownwords.training.settings import OptimConfig, ScheduleConfig

# A quintic that brings most singular values in (0, 1] to about [0.7, 1.2] in five steps.
A, B, C = 3.4445, -4.7750, 2.0315
NEWTON_SCHULZ_STEPS = 5
EPS = 1e-7
MOMENTUM_START = 0.85  # of Muon, before its warmup
BETA1, ADAMW_EPS = 0.9, 1e-8


def lr_scale(step: int, steps: int, progress: float, config: ScheduleConfig) -> float:
    """The learning rate of a step as a fraction of the peak; steps count from 0.

    Linear warmup, constant, linear decay (WSD, Hägele et al. 2024, arXiv 2405.18392): runs of
    different lengths can share the constant part, and the loss falls most during the decay.

    The warmup takes a fraction of the planned `steps`: in a timed run the slow first step, which
    compiles, would otherwise use it up. The decay follows `progress`, the share of the run before
    this step; the rate would reach zero only after the last step.
    """
    warmup, decay = config.warmup_fraction * steps, config.decay_fraction
    rising = (step + 1) / warmup if step + 1 < warmup else 1.0
    left = max(0.0, 1 - progress)
    falling = left / decay if left < decay else float(left > 0)
    return min(rising, falling)


class Optimizer:
    """The optimizer of a model's trainable parameters, with their master weights.

    Create it after the model is on its device. It keeps float32 copies, the master weights, of
    narrower parameters. A step whose gradients are not finite changes nothing.
    `gradient_norm` is that of the last step, before clipping, on the device.

    `exact`: the float32 weights that the narrow parameters were rounded from. They become the
    master weights without a copy, which would need more memory than training does.
    `start_token`: the token that begins texts and occurs nowhere else. Its learning rate is
    multiplied by `start_lr_scale`: a soft prompt of one token (Lester et al. 2021, arXiv
    2104.08691).
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimConfig,
        *,
        exact: Mapping[str, Tensor] | None = None,
        start_token: int | None = None,
    ) -> None:
        self.config = config
        self.lr_factor = 1.0
        self._parameters: dict[str, Tensor] = {
            name: each for name, each in model.named_parameters() if each.requires_grad
        }
        device = next(iter(self._parameters.values())).device
        # Whether each step reads the norm from the device, which costs nothing on a CPU. On CUDA
        # PyTorch's fused kernel clips, or skips the step.
        self._waits = device.type != "cuda"
        narrow = {n: p for n, p in self._parameters.items() if p.dtype != torch.float32}
        # A tensor that already has that dtype and device is not copied.
        self._master_weights = {
            name: (exact or {}).get(name, p).detach().to(p.device, torch.float32).contiguous()
            for name, p in narrow.items()
        }
        # Name and row of the start token's embedding, if it learns faster and is not frozen.
        self._start: tuple[str, int] | None = None
        if start_token is not None and config.start_lr_scale != 1:
            table = model.get_parameter("embedding.weight")
            names = [name for name, each in self._parameters.items() if each is table]
            self._start = (names[0], start_token) if names else None
        self.gradient_norm = torch.zeros((), dtype=torch.float32, device=device)
        # The next step's share of the peak learning rates, and Muon's momentum: tensors, so that a
        # captured step reads the current values.
        self._scale, self._momentum = (torch.zeros((), device=device) for _ in range(2))
        self._now: tuple[float | Tensor, float | Tensor] = 0.0, 0.0
        matrices = _matrices(model) if config.kind == "muon" else set()
        rest = {name: p for name, p in self._parameters.items() if name not in matrices}
        self._muon: Muon | None = None
        if muon := {name: p for name, p in self._parameters.items() if name in matrices}:
            self._muon = Muon(muon, precision=_precision(config, device))
        decays = _decays(model, config)
        here = self.weights()
        self._adamw = [
            AdamW(
                {name: here[name] for name in rest if decays[name] == decay},
                beta2=config.beta2,
                decay=decay,
            )
            for decay in dict.fromkeys(decays[name] for name in rest)
        ]

    def step(self, scale: float, step: int) -> None:
        """Update the weights at `scale` times the peak learning rates; frees the gradients."""
        self.schedule(scale, step)
        self.update()

    def schedule(self, scale: float, step: int) -> None:
        """Set the learning rates and the momentum of the next `update`."""
        config, steps = self.config, self.config.momentum_warmup_steps
        risen = min(1.0, step / steps) if steps else 1.0
        momentum = MOMENTUM_START + risen * (config.momentum - MOMENTUM_START)
        self._now = scale * self.lr_factor, momentum
        if not self._waits:
            self._now = self._scale.fill_(self._now[0]), self._momentum.fill_(momentum)

    @torch.no_grad()
    def update(self) -> None:
        """Update the weights as scheduled; frees the gradients. On CUDA it can be captured."""
        self._update()
        self.zero_grad()

    def _update(self) -> None:
        gradients = self._gradients()
        norm = self.gradient_norm = self._norm(gradients)
        if self._waits:
            value = float(norm)
            if not math.isfinite(value):
                return
            max_norm = self.config.grad_clip
            clip = GradClip(max_norm / value if max_norm and value > max_norm else 1.0)
        else:
            factor = norm * 0 + 1
            if self.config.grad_clip:
                factor = (self.config.grad_clip / norm).clamp(max=1.0)
            clip = GradClip(factor, norm.isfinite().float())
        (scale, momentum), config, weights = self._now, self.config, self.weights()
        narrow, rounded = self._narrow(self._master_weights), set[str]()
        if self._muon is not None:
            rounded |= self._muon.step(
                weights,
                gradients,
                lr=config.muon_lr * scale,
                momentum=momentum,
                decay=config.weight_decay,
                clip=clip,
                narrow=narrow,
            )
        before = weights[self._start[0]][self._start[1]].clone() if self._start else None
        lr = config.learning_rate * scale
        for group in self._adamw:
            if group.step(weights, gradients, lr=lr, clip=clip, narrow=narrow):
                rounded.update(group.names)
        if self._start and before is not None:
            name, row = self._start
            faster = torch.lerp(before, weights[name][row], config.start_lr_scale)
            weights[name][row] = faster
            if name in rounded:
                narrow[name][row] = faster.to(narrow[name].dtype)
        self._round_masters(rounded)

    def _gradients(self) -> dict[str, Tensor]:
        """The gradients as the kernels take them; AdamW's are float32 without the C++ library."""
        gradients = {
            name: parameter.grad.contiguous()
            for name, parameter in self._parameters.items()
            if parameter.grad is not None
        }
        for group in self._adamw:
            here = {name: gradients[name] for name in group.names}
            if not fused.is_supported(*here.values()):
                gradients |= {name: gradient.float() for name, gradient in here.items()}
        return gradients

    def _norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        groups = [group.names for group in self._adamw]
        if self._muon is not None:
            groups.insert(0, self._muon.names)
        norms = [norm for names in groups for norm in _norms([gradients[n] for n in names])]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return norm

    def _narrow(self, names: Iterable[str]) -> dict[str, Tensor]:
        return {name: self._parameters[name].detach() for name in names}

    def _round_masters(self, rounded: Set[str] = frozenset()) -> None:
        """Round the master weights into their parameters, except those already `rounded`."""
        left = self._narrow(self._master_weights.keys() - rounded)
        if left:
            torch._foreach_copy_(list(left.values()), [self._master_weights[name] for name in left])

    def zero_grad(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None

    def weights(self) -> dict[str, Tensor]:
        """The float32 weights that a step updates, by parameter name, not copied."""
        weights = self._parameters | self._master_weights
        return {name: each.detach() for name, each in weights.items()}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        _fill(self.weights(), weights, "weights")
        self._round_masters()

    def state(self) -> dict[str, Tensor]:
        """The optimizer state in float32, without the weights, not copied."""
        state: dict[str, Tensor] = {}
        if self._muon is not None:
            state |= {f"momentum/{n}": each for n, each in self._muon.momenta().items()}
            state["bfloat16"] = torch.tensor(float(self._muon.precision == torch.bfloat16))
        for group in self._adamw:
            state |= group.moments()
        if self._adamw:
            state["count"] = self._adamw[0].count
        return state

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state bit for bit; OwnwordsError if it belongs to other parameters."""
        _fill(self.state(), state, "the optimizer's state")
        for group in self._adamw:
            group.count.copy_(state["count"])
        if self._muon is not None and self.config.newton_schulz_dtype == "auto":
            # A run keeps the precision it started with, even on another machine.
            chosen = torch.bfloat16 if bool(state["bfloat16"]) else torch.float32
            self._muon.precision = chosen


def _fill(places: dict[str, Tensor], values: Mapping[str, Tensor], what: str) -> None:
    if places.keys() != values.keys():
        raise OwnwordsError(
            f"{what}: unknown or missing {preview(places.keys() ^ values.keys())}",
            hint="was it saved with the same model and the same settings of optim?",
        )
    for name, place in places.items():
        value = values[name]
        if value.shape != place.shape:
            raise OwnwordsError(
                f"{what}: {name!r} has the shape {list(value.shape)}, not {list(place.shape)}"
            )
        place.copy_(value)


def _matrices(model: nn.Module) -> set[str]:
    """The matrices inside the blocks that Muon updates: all but those of adapters."""
    adapters = tuple(n + "." for n, m in model.named_modules() if isinstance(m, LoraLinear))
    return {
        name
        for name, parameter in model.named_parameters()
        if name.startswith("blocks.") and parameter.ndim == 2 and not name.startswith(adapters)
    }


def _decays(model: nn.Module, config: OptimConfig) -> dict[str, float]:
    """The weight decay of each parameter: embeddings have their own, norms and biases none."""
    decays = {
        name: config.weight_decay if parameter.ndim >= 2 else 0.0
        for name, parameter in model.named_parameters()
    }
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            decays[f"{name}.weight"] = config.embedding_weight_decay
    return decays


def _precision(config: OptimConfig, device: torch.device) -> torch.dtype:
    """The dtype of Newton-Schulz iterations: the faster one, if none is set."""
    if config.newton_schulz_dtype != "auto":
        return torch.float32 if config.newton_schulz_dtype == "float32" else torch.bfloat16
    if device.type == "cpu":
        fast = fused.has_fast_bf16()
    else:
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(False)
    return torch.bfloat16 if fast else torch.float32


@dataclass(frozen=True)
class GradClip:
    """The factor that clips all gradients of a step, and whether the step is skipped.

    `ok` is a tensor: 1, or 0 if the step must not change anything; None if it is known to be 1.
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

    def unless_skipped(self, number: float | Tensor) -> float | Tensor:
        """The number, or zero if the step is skipped."""
        return number if self.ok is None else self.ok * number


def newton_schulz(x_NRC: Tensor, steps: int) -> Tensor:
    """Newton-Schulz iteration: brings the singular values of matrices of norm <= 1 close to 1.

    Each step replaces X by (A + B XX' + C (XX')^2) X. For tall matrices X'X is smaller and
    multiplies from the right, so nothing is transposed.
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
    """The same iteration with two products along the long side in total, instead of two per step.

    Each step multiplies by a polynomial in XX'. The polynomials commute, so it is enough to update
    XX' and their product. In bfloat16 the rounding errors would grow too much.
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
    """All matrices of one shape, and their momenta."""

    def __init__(self, names: Sequence[str], parameter: Tensor) -> None:
        self.names = tuple(names)
        rows, columns = parameter.shape
        self.momentum_NRC = torch.zeros(len(names), rows, columns, device=parameter.device)
        self.scale = max(1.0, rows / columns) ** 0.5


class Muon:
    """The Muon optimizer for a set of matrices."""

    def __init__(self, parameters: dict[str, Tensor], *, precision: torch.dtype) -> None:
        self.precision = precision
        shapes: dict[torch.Size, list[str]] = {}
        for name, parameter in parameters.items():
            shapes.setdefault(parameter.shape, []).append(name)
        self.stacks = [MatrixStack(names, parameters[names[0]]) for names in shapes.values()]
        self.names = tuple(name for stack in self.stacks for name in stack.names)

    def step(
        self,
        weights: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        *,
        lr: float | Tensor,
        momentum: float | Tensor,
        decay: float,
        clip: GradClip,
        narrow: Mapping[str, Tensor],
    ) -> set[str]:
        """Update the weights from contiguous gradients.

        `narrow`: the bfloat16 parameters of some of the weights; returns the names of the weights
        for which the step has updated these too.
        """
        native = [stack for stack in self.stacks if self._is_native(stack)]
        if native:
            rates = float(lr), float(momentum), float(lr) * decay
            self._step_native(native, weights, gradients, *rates, clip, narrow)
        for stack in self.stacks:
            if stack in native:
                continue
            update_NRC = torch.stack([gradients[name] for name in stack.names]).float()
            update_NRC = self._orthogonal_update(stack, update_NRC, momentum, clip)
            update_NRC.mul_(lr * stack.scale)
            here = [weights[name] for name in stack.names]
            if decay:
                torch._foreach_mul_(here, 1 - clip.unless_skipped(lr * decay))
            torch._foreach_sub_(here, list(update_NRC.unbind()))
        return {name for stack in native for name in stack.names}

    def _is_native(self, stack: MatrixStack) -> bool:
        momentum_NRC = stack.momentum_NRC
        return momentum_NRC.device.type == "cpu" and has_native_muon(*momentum_NRC.shape[1:])

    def _step_native(
        self,
        stacks: Sequence[MatrixStack],
        weights: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        lr: float,
        momentum: float,
        decay: float,
        clip: GradClip,
        narrow: Mapping[str, Tensor],
    ) -> None:
        struct = interface().structs["MuonMatrix"]
        matrices = []
        for stack in stacks:
            for i, name in enumerate(stack.names):
                tensors = gradients[name], stack.momentum_NRC[i], weights[name]
                copy = narrow[name].data_ptr() if name in narrow else None
                pointers = [each.data_ptr() for each in tensors]
                matrices.append(struct(*pointers, copy, *tensors[0].shape, lr * stack.scale))
        fused.library().muon(
            *(fused.DTYPES[gradients[stacks[0].names[0]].dtype], fused.DTYPES[self.precision]),
            *((struct * len(matrices))(*matrices), len(matrices)),
            *(float(clip.factor), momentum, 1 - decay, NEWTON_SCHULZ_STEPS),
        )

    def _orthogonal_update(
        self,
        stack: MatrixStack,
        update_NRC: Tensor,
        momentum: float | Tensor,
        clip: GradClip,
    ) -> Tensor:
        """Update the momenta; replace the gradients in place by the orthogonalized updates."""
        clip.apply(update_NRC, stack.momentum_NRC)
        # In a skipped step both operands are the momentum, so it stays exactly as it is.
        stack.momentum_NRC.lerp_(update_NRC, 1 - momentum)
        update_NRC.lerp_(stack.momentum_NRC, momentum)
        norm_N11 = torch.linalg.vector_norm(update_NRC, dim=(1, 2), keepdim=True)
        update_NRC.mul_(1 / (norm_N11 + EPS))
        update_NRC.copy_(newton_schulz(update_NRC.to(self.precision), NEWTON_SCHULZ_STEPS))
        return update_NRC if clip.ok is None else update_NRC.mul_(clip.ok)

    def momenta(self) -> dict[str, Tensor]:
        return {
            name: momentum
            for stack in self.stacks
            for name, momentum in zip(stack.names, stack.momentum_NRC.unbind(), strict=True)
        }


def has_native_muon(rows: int, columns: int) -> bool:
    """Whether the C++ library is here and supports matrices of this shape."""
    return fused.find_library() is not None and rows % fused.TILE == columns % fused.TILE == 0


class AdamW:
    """The AdamW optimizer of parameters that share one weight decay.

    `weights` are float32, their gradients of any dtype.
    """

    def __init__(
        self,
        weights: dict[str, Tensor],
        *,
        beta2: float,
        decay: float,
    ) -> None:
        self.names = tuple(weights)
        self.beta2, self.decay = beta2, decay
        self.means = [torch.zeros(each.shape, device=each.device) for each in weights.values()]
        self.squares = [torch.zeros_like(mean) for mean in self.means]
        # One count for all parameters: they are always updated together.
        self.count = torch.zeros((), dtype=torch.float32, device=self.means[0].device)

    def step(
        self,
        weights: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        *,
        lr: float | Tensor,
        clip: GradClip,
        narrow: Mapping[str, Tensor],
    ) -> bool:
        """Update the weights from their gradients.

        `narrow`: the bfloat16 parameters of some of the weights; returns whether the step has
        updated these too.
        """
        is_native = any(gradients[name].dtype != torch.float32 for name in self.names)
        if is_native:
            self._step_native(weights, gradients, float(lr), float(clip.factor), narrow)
        else:
            here = [weights[name] for name in self.names]
            self._step_fused(here, [gradients[name] for name in self.names], lr, clip)
        return is_native

    def _step_native(
        self,
        weights: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        lr: float,
        scale: float,
        narrow: Mapping[str, Tensor],
    ) -> None:
        self.count.add_(1)
        step = int(self.count)
        for name, mean, square in zip(self.names, self.means, self.squares, strict=True):
            fused.adamw_(
                weights[name],
                gradients[name],
                mean,
                square,
                step=step,
                learning_rate=lr,
                betas=(BETA1, self.beta2),
                eps=ADAMW_EPS,
                weight_decay=self.decay,
                scale=scale,
                bf16_copy=narrow.get(name),
            )

    def _step_fused(
        self, weights: list[Tensor], gradients: list[Tensor], lr: float | Tensor, clip: GradClip
    ) -> None:
        # The kernel divides the gradients by `scale`, on a CPU and with CUDA.
        scale: Tensor | None = None
        if isinstance(clip.factor, Tensor):
            scale = 1 / clip.factor
        elif clip.factor != 1.0 and self.count.device.type == "cpu":
            scale = self.count.new_full((), 1 / clip.factor)
        elif clip.factor != 1.0:
            torch._foreach_mul_(gradients, clip.factor)
        bad = None if clip.ok is None else 1 - clip.ok
        self.count.add_(1)
        torch._fused_adamw_(
            weights,
            gradients,
            self.means,
            self.squares,
            [],
            [self.count] * len(weights),
            lr=lr,
            beta1=BETA1,
            beta2=self.beta2,
            weight_decay=self.decay,
            eps=ADAMW_EPS,
            amsgrad=False,
            maximize=False,
            grad_scale=scale,
            found_inf=bad,
        )
        if bad is not None:
            self.count.sub_(bad)

    def moments(self) -> dict[str, Tensor]:
        """The two moments as views, by "mean/name" and "square/name"."""
        means = {f"mean/{n}": each for n, each in zip(self.names, self.means, strict=True)}
        squares = {f"square/{n}": each for n, each in zip(self.names, self.squares, strict=True)}
        return means | squares


def _norms(gradients: list[Tensor]) -> list[Tensor]:
    """Norms of gradients, to be combined into one."""
    if fused.is_supported(*gradients) and len({each.dtype for each in gradients}) == 1:
        return [fused.norm(gradients)]
    return list(torch._foreach_norm(gradients, dtype=torch.float32))
