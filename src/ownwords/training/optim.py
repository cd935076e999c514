"""Muon + AdamW without host synchronisation on a GPU.

Muon updates the matrices inside the blocks, AdamW everything else; or AdamW updates everything.
"""

import math
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ownwords.core.errors import OwnwordsError
from ownwords.core.hardware import read_cpu
from ownwords.models import fused
from ownwords.models.lora import LoraLinear
from ownwords.models.untrusted_files import preview
from ownwords.training.adamw import AdamW
from ownwords.training.grad_clip import GradClip
from ownwords.training.muon import Muon
from ownwords.training.settings import OptimConfig
from ownwords.training.sharding import (
    as_sharded,
    full_tensor,
    global_norm,
    is_sharded,
    local_like,
    local_shard,
)

# Processors on which PyTorch, too, multiplies bfloat16 several times as fast as float32.
_FAST_BFLOAT16 = ("AMX BF16", "AVX-512 BF16")


class _Rows(NamedTuple):
    """Rows of a parameter's local shard."""

    name: str
    rows: Tensor


class Optimizer:
    """The optimizer of a model's trainable parameters, with their master weights.

    Make it after the model is on its device and sharded. With `master_weights` the parameters are
    narrower than float32, and the optimizer keeps float32 copies of them. A step whose gradients
    are not finite changes nothing and is counted in `skipped`. `gradient_norm` is that of the last
    step, before clipping. Both stay on the device.

    `exact`: the float32 weights that the narrow parameters were rounded from. They become the
    master weights without a copy, which would need more memory than training does.

    `start_token`: the token that texts begin with and that stands nowhere else. Its embedding
    learns `start_lr_scale` times as fast: a soft prompt of one token (Lester et al. 2021, arXiv
    2104.08691).

    `waits`: whether each step reads the norm from the device, which costs nothing on a CPU only.
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimConfig,
        *,
        master_weights: bool = False,
        waits: bool | None = None,
        exact: Mapping[str, Tensor] | None = None,
        start_token: int | None = None,
    ) -> None:
        self.config = config
        self.lr_factor = 1.0
        self._parameters: dict[str, Tensor] = {
            name: each for name, each in model.named_parameters() if each.requires_grad
        }
        if not self._parameters:
            raise OwnwordsError("the model has no trainable parameter")
        device = next(iter(self._parameters.values())).device
        self._waits = device.type == "cpu" if waits is None else waits
        self._split = any(is_sharded(each) for each in self._parameters.values())
        self._master_weights = self._make_master_weights(master_weights, exact or {})
        self._start: _Rows | None = None
        if start_token is not None and config.start_lr_scale != 1:
            self._start = self._start_rows(model, start_token)
        self.skipped = torch.zeros((), dtype=torch.float32, device=device)
        self.gradient_norm = torch.zeros((), dtype=torch.float32, device=device)
        matrices = _matrices(model) if config.kind == "muon" else set()
        rest = {name: p for name, p in self._parameters.items() if name not in matrices}
        self._muon: Muon | None = None
        if muon := {name: p for name, p in self._parameters.items() if name in matrices}:
            self._muon = Muon(
                muon, steps=config.newton_schulz_steps, precision=_precision(config, device)
            )
        decays = _decays(model, config)
        here = self._weights()
        self._adamw = [
            AdamW(
                {name: here[name] for name in rest if decays[name] == decay},
                betas=(config.beta1, config.beta2),
                eps=config.eps,
                decay=decay,
            )
            for decay in dict.fromkeys(decays[name] for name in rest)
        ]

    def _make_master_weights(
        self, master_weights: bool, exact: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        narrow = {n: p for n, p in self._parameters.items() if p.dtype != torch.float32}
        if narrow and not master_weights:
            kind = str(next(iter(narrow.values())).dtype).removeprefix("torch.")
            raise OwnwordsError(
                f"weights are trained in float32; these are {kind}, too coarse for small steps",
                hint="train in float32, or with float32 master weights",
            )
        # A tensor that already has that dtype and device is not copied.
        return {
            name: local_shard(exact.get(name, p).detach()).to(p.device, torch.float32).contiguous()
            for name, p in narrow.items()
        }

    @torch.no_grad()
    def step(self, scale: float, step: int) -> None:
        """Update the weights at `scale` times the peak learning rates; frees the gradients."""
        try:
            self._step(scale, step)
        finally:
            for group in self._adamw:
                group.release()
        self.zero_grad()

    def _step(self, scale: float, step: int) -> None:
        norm = self.gradient_norm = self._gather()
        if self._waits:
            value = float(norm)
            if not math.isfinite(value):
                self.skipped += 1
                return
            max_norm = self.config.grad_clip
            clip = GradClip(max_norm / value if max_norm and value > max_norm else 1.0)
        else:
            ok = norm.isfinite().float()
            self.skipped += 1 - ok
            factor = (
                (self.config.grad_clip / norm).clamp(max=1.0)
                if self.config.grad_clip
                else norm * 0 + 1
            )
            clip = GradClip(factor, ok)
        scale *= self.lr_factor
        weights = self._weights()
        if self._muon is not None:
            config = self.config
            risen = (
                min(1.0, step / config.momentum_warmup_steps)
                if config.momentum_warmup_steps
                else 1.0
            )
            self._muon.step(
                weights,
                lr=config.muon_lr * scale,
                momentum=config.momentum_start + risen * (config.momentum - config.momentum_start),
                decay=config.weight_decay,
                clip=clip,
            )
        narrow = self._narrow(self._master_weights)
        before = weights[self._start.name][self._start.rows] if self._start else None
        for group in self._adamw:
            group.step(weights, lr=self.config.learning_rate * scale, clip=clip, narrow=narrow)
        if self._start and before is not None:
            name, rows = self._start
            weights[name][rows] = torch.lerp(
                before, weights[name][rows], self.config.start_lr_scale
            )
            if name in narrow:
                narrow[name][rows] = weights[name][rows].to(narrow[name].dtype)
        self._round_masters({name for group in self._adamw for name in group.written})

    def _start_rows(self, model: nn.Module, start_token: int) -> "_Rows | None":
        """Where the start token's embedding is; None if the embedding is frozen."""
        table = model.get_parameter("embedding.weight")
        name = next((name for name, each in self._parameters.items() if each is table), None)
        if name is None:
            return None
        embedding_VC = self._parameters[name]
        is_start_V1 = torch.zeros(len(embedding_VC), 1, device=embedding_VC.device)
        is_start_V1[start_token] = 1
        # A sharded embedding has that row in one process, and none in the others.
        return _Rows(name, local_like(is_start_V1, embedding_VC.detach())[:, 0].nonzero()[:, 0])

    def _gather(self) -> Tensor:
        """Give Muon and AdamW their gradients; returns the norm of all gradients together."""
        gradients = {n: p.grad for n, p in self._parameters.items() if p.grad is not None}
        if missing := self._parameters.keys() - gradients.keys():
            raise OwnwordsError(
                f"{len(missing)} parameters have no gradient: {preview(missing)}",
                hint="call backward before the step, and freeze what the loss does not use",
            )
        muon_norms = []
        if self._muon is not None:
            muon_norms = self._muon.gather(gradients)
            for name in self._muon.names:  # Muon has a copy
                self._parameters[name].grad = None
                del gradients[name]
        here = {n: local_shard(g) for n, g in gradients.items()} if self._split else gradients
        norms = [norm for group in self._adamw for norm in group.gather(here)]
        if norms and self._split:
            norms = [global_norm(norms, next(iter(self._parameters.values())))]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(muon_norms + norms))
        return norm

    def _weights(self) -> dict[str, Tensor]:
        """The tensors that a step updates: master weights or parameters, as local shards."""
        if self._split:
            here = {name: local_shard(p.detach()) for name, p in self._parameters.items()}
            return here | self._master_weights
        return self._parameters | self._master_weights

    def _narrow(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The narrow parameters of these master weights, as local shards."""
        return {name: local_shard(self._parameters[name].detach()) for name in names}

    def _round_masters(self, written: Set[str] = frozenset()) -> None:
        """Round the master weights into their parameters, except those already `written`."""
        left = self._narrow(name for name in self._master_weights if name not in written)
        if left:
            torch._foreach_copy_(list(left.values()), [self._master_weights[name] for name in left])

    def zero_grad(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None

    def weights(self) -> dict[str, Tensor]:
        """The float32 weights by parameter name, not copied."""
        weights = {name: p.detach() for name, p in self._parameters.items()}
        return weights | {
            n: as_sharded(each, weights[n]) for n, each in self._master_weights.items()
        }

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load weights as returned by `weights`."""
        _fill(self.weights(), weights, "weights")
        self._round_masters()

    def state(self) -> dict[str, Tensor]:
        """The optimizer state in float32, without the weights, not copied."""
        state = {"skipped": self.skipped}
        if self._muon is not None:
            state |= {f"momentum/{n}": each for n, each in self._muon.momenta().items()}
            bfloat16 = self._muon.precision == torch.bfloat16
            state["bfloat16"] = torch.full_like(self.skipped, float(bfloat16))
        for group in self._adamw:
            for key, each in group.moments().items():
                state[key] = as_sharded(each, self._parameters[key.partition("/")[2]].detach())
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
        # `scatter` shards by the parameter's name; a full tensor here needs the full value.
        local_shard(place).copy_(local_shard(value) if is_sharded(place) else full_tensor(value))


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
    embeddings = {
        f"{name}.weight" for name, each in model.named_modules() if isinstance(each, nn.Embedding)
    }
    return {
        name: config.embedding_weight_decay
        if name in embeddings
        else config.weight_decay
        if parameter.ndim >= 2
        else 0.0
        for name, parameter in model.named_parameters()
    }


def _precision(config: OptimConfig, device: torch.device) -> torch.dtype:
    """The dtype of Newton-Schulz, chosen by the hardware, not by timing: runs are repeatable."""
    if config.newton_schulz_dtype != "auto":
        return torch.float32 if config.newton_schulz_dtype == "float32" else torch.bfloat16
    if device.type == "cpu":
        sets = read_cpu().instruction_sets
        fast = fused.has_fast_bf16() or any(each in _FAST_BFLOAT16 for each in sets)
    else:
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(False)
    return torch.bfloat16 if fast else torch.float32
