"""LoRA: trains a low-rank matrix pair for each chosen layer and freezes the layer itself.

    y = layer(x) + alpha / rank * up(down(dropout(x)))

`up` starts at zero, so a new adapter does not change the model. Hu et al. 2021,
https://arxiv.org/abs/2106.09685. peft.py saves and loads adapters.

Suffixes of tensors: R rank, I inputs, O outputs of the layer.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional

from ownwords.core.errors import ConfigError
from ownwords.models.decoder import CausalLM
from ownwords.models.quantize import QuantizedLinear
from ownwords.models.untrusted_files import ModelError, preview


@dataclass(frozen=True)
class AdapterConfig:
    """The settings of a LoRA adapter: rank, scaling, dropout and target layers."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("blocks.*",)  # shell-style patterns of module names
    rank_stabilised: bool = False  # alpha / sqrt(rank), https://arxiv.org/abs/2312.03732

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"a LoRA rank of {self.rank} is not possible", hint="use 8 or so")
        if not math.isfinite(self.alpha) or not 0 <= self.dropout < 1:
            raise ConfigError(
                f"alpha {self.alpha} must be finite, and dropout {self.dropout} from 0 to below 1"
            )

    def scale(self, rank: int, alpha: float) -> float:
        return alpha / (math.sqrt(rank) if self.rank_stabilised else rank)


class LoraLinear(nn.Module):
    """A frozen linear layer with its trainable pair of matrices, `down` and `up`."""

    def __init__(
        self,
        base: nn.Module,
        settings: AdapterConfig,
        rank: int,
        alpha: float,
        seed: int,
    ) -> None:
        super().__init__()
        outputs, inputs = layer_size(base)
        device = next(chain(base.parameters(), base.buffers())).device
        self.base, self.alpha, self.scale = base, alpha, settings.scale(rank, alpha)
        self.dropout = settings.dropout
        self.merged = False
        source = torch.Generator().manual_seed(seed)
        bound = 1 / math.sqrt(inputs)
        down_RI = torch.empty(rank, inputs).uniform_(-bound, bound, generator=source)
        # Float32 regardless of the layer's type: small updates would be lost in bfloat16.
        self.down = nn.Parameter(down_RI.to(device))
        self.up = nn.Parameter(torch.zeros(outputs, rank, device=device))

    @property
    def rank(self) -> int:
        return self.down.shape[0]

    @property
    def active_dropout(self) -> float:
        """`dropout` while the adapter is trained, else 0."""
        return self.dropout if self.training and not self.merged else 0.0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        if self.merged:
            return y
        kept = functional.dropout(x, self.dropout, self.training).to(self.down.dtype)
        beside = functional.linear(functional.linear(kept, self.down), self.up)
        return y + (self.scale * beside).to(y.dtype)

    def delta(self) -> Tensor:
        """The float32 matrix [O, I] that the adapter adds to the layer's weight."""
        return self.scale * (self.up.detach().float() @ self.down.detach().float())


class LoraAdapter:
    """An adapter attached to a model: the LoRA layers by name, with their settings."""

    def __init__(
        self, model: CausalLM, settings: AdapterConfig, layers: Mapping[str, LoraLinear]
    ) -> None:
        self.model, self.settings, self.layers = model, settings, dict(layers)

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters."""
        return [each for layer in self.layers.values() for each in (layer.down, layer.up)]

    def merge(self) -> None:
        """Add the adapter to the layers' weights, computed in float32, once."""
        frozen = [n for n, layer in self.layers.items() if isinstance(layer.base, QuantizedLinear)]
        if frozen:
            raise ModelError(
                f"{preview(frozen)} cannot take an adapter in: the layer is quantised",
                hint="merge into the model as it was before, then quantise",
            )
        for layer in self.layers.values():
            if not layer.merged:
                weight = layer.base.get_parameter("weight").detach()
                weight.copy_(weight.float() + layer.delta())
                layer.merged = True

    def detach(self) -> None:
        """Remove the adapter: put the base layers back, with merged weights if it was merged."""
        for name, layer in self.layers.items():
            self.model.set_submodule(name, layer.base)


def attach(model: CausalLM, settings: AdapterConfig, seed: int) -> LoraAdapter:
    """Attach new adapters to the layers that match `settings.targets`, and freeze the model.

    The same seed gives the same adapters on any machine.
    """
    check_no_adapter(model)
    linear = [name for name, module in model.named_modules() if can_be_adapted(name, module)]
    layer_ranks: dict[str, tuple[int, float]] = {}
    for pattern in settings.targets:
        matching = [name for name in linear if fnmatchcase(name, pattern)]
        if not matching:
            raise ConfigError(
                f"no layer is called {pattern!r}",
                hint=f"patterns are held to names like {preview(linear)}",
            )
        layer_ranks |= dict.fromkeys(matching, (settings.rank, settings.alpha))
    return attach_to_layers(
        model, settings, {n: layer_ranks[n] for n in linear if n in layer_ranks}, seed
    )


def attach_to_layers(
    model: CausalLM,
    settings: AdapterConfig,
    layer_ranks: Mapping[str, tuple[int, float]],
    seed: int,
) -> LoraAdapter:
    """Attach new adapters to the layers of `layer_ranks`, which maps names to (rank, alpha)."""
    model.requires_grad_(False)
    layers = {}
    for name, (rank, alpha) in layer_ranks.items():
        base = model.get_submodule(name)
        layers[name] = LoraLinear(base, settings, rank, alpha, _seed_of(seed, name))
        model.set_submodule(name, layers[name].train(model.training))
    return LoraAdapter(model, settings, layers)


def check_no_adapter(model: CausalLM) -> None:
    """Raise ModelError if the model has an adapter: a second would be trained on top of it."""
    if any(isinstance(module, LoraLinear) for module in model.modules()):
        raise ModelError("the model has an adapter already", hint="detach it first, merged or not")


def can_be_adapted(name: str, module: nn.Module) -> bool:
    """Whether a module is a linear layer, but not the head: the loss uses its weight directly."""
    return isinstance(module, nn.Linear | QuantizedLinear) and name != "head"


def layer_size(layer: nn.Module) -> tuple[int, int]:
    """The numbers of outputs and inputs of a linear layer, quantised or not."""
    if isinstance(layer, QuantizedLinear):
        return layer.rows, layer.columns
    if isinstance(layer, nn.Linear):
        return layer.out_features, layer.in_features
    raise ModelError(f"an adapter of a {type(layer).__name__} is not implemented")


def _seed_of(seed: int, what: str) -> int:
    key = hashlib.blake2b(f"{seed}/{what}".encode(), digest_size=8).digest()
    return int.from_bytes(key) >> 1
