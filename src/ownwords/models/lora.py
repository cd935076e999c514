"""LoRA: trains a low-rank matrix pair for each chosen layer and freezes the layer itself.

    y = layer(x) + alpha / rank * up(down(dropout(x)))

`up` starts at zero, so a new adapter does not change the model. Hu et al. 2021,
https://arxiv.org/abs/2106.09685. peft.py saves and loads adapters.

Suffixes of tensors: R rank, I inputs, O outputs of the layer.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn import functional

from ownwords.core.errors import ConfigError
from ownwords.models.decoder import CausalLM, seed_of
from ownwords.models.untrusted_files import ModelError, preview


@dataclass(frozen=True)
class AdapterConfig:
    """The settings of a LoRA adapter: rank, scaling, dropout and target layers."""

    rank: int
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

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilised else self.rank)


class LoraLinear(nn.Module):
    """A frozen linear layer with its trainable pair of matrices, `down` and `up`."""

    def __init__(
        self,
        base: nn.Linear,
        settings: AdapterConfig,
        seed: int,
    ) -> None:
        super().__init__()
        outputs, inputs = base.weight.shape
        device = base.weight.device
        self.base, self.scale = base, settings.scale
        self.dropout = settings.dropout
        self.merged = False
        source = torch.Generator().manual_seed(seed)
        bound = 1 / math.sqrt(inputs)
        down_RI = torch.empty(settings.rank, inputs).uniform_(-bound, bound, generator=source)
        # Float32 regardless of the layer's type: small updates would be lost in bfloat16.
        self.down = nn.Parameter(down_RI.to(device))
        self.up = nn.Parameter(torch.zeros(outputs, settings.rank, device=device))

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
    chosen: set[str] = set()
    for pattern in settings.targets:
        matching = [name for name in linear if fnmatchcase(name, pattern)]
        if not matching:
            raise ConfigError(
                f"no layer is called {pattern!r}",
                hint=f"patterns are held to names like {preview(linear)}",
            )
        chosen.update(matching)
    return attach_to_layers(model, settings, [name for name in linear if name in chosen], seed)


def attach_to_layers(
    model: CausalLM, settings: AdapterConfig, names: Iterable[str], seed: int
) -> LoraAdapter:
    """Attach new adapters to the layers of these names."""
    model.requires_grad_(False)
    layers = {}
    for name in names:
        base = model.get_submodule(name)
        assert isinstance(base, nn.Linear)
        layers[name] = LoraLinear(base, settings, seed_of(seed, name))
        model.set_submodule(name, layers[name].train(model.training))
    return LoraAdapter(model, settings, layers)


def check_no_adapter(model: CausalLM) -> None:
    """Raise ModelError if the model has an adapter: a second would be trained on top of it."""
    if any(isinstance(module, LoraLinear) for module in model.modules()):
        raise ModelError("the model has an adapter already", hint="detach it first, merged or not")


def can_be_adapted(name: str, module: nn.Module) -> bool:
    """Whether a module is a linear layer, but not the head: the loss uses its weight directly."""
    return isinstance(module, nn.Linear) and name != "head"
