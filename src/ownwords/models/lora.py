"""LoRA: trains a low-rank matrix pair for each chosen layer and freezes the layer itself.

    y = layer(x) + alpha / rank * up(down(dropout(x)))

`up` starts at zero, so a new adapter does not change the model. Hu et al. 2021,
https://arxiv.org/abs/2106.09685. A stored adapter is one file with `<layer>.down` and `<layer>.up`,
which has the scale; matrices in int8 have a scale a row besides. PEFT's format is a folder with
`adapter_config.json` and `adapter_model.safetensors`, whose tensors are named
`base_model.model.<layer in transformers>.lora_A.weight` ([rank, inputs]) and `.lora_B.weight`
([outputs, rank]), whether or not transformers stores the layer itself transposed.

Suffixes of tensors: R rank, I inputs, O outputs of the layer.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, seed_of
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import hf_names
from ownwords.models.weights import read_tensors

PEFT_CONFIG: Final = "adapter_config.json"
PEFT_WEIGHTS: Final = "adapter_model.safetensors"
_BEFORE = "before."  # begins the names of an adapter that was merged into the base before


@dataclass(frozen=True)
class AdapterConfig:
    """The settings of a LoRA adapter."""

    rank: int
    alpha: float = 16.0
    dropout: float = 0.0

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


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
    """Attach new adapters to the linear layers of all blocks, and freeze the model.

    The same seed gives the same adapters on any machine. Raises ModelError if the model has an
    adapter: a second would be trained on top of it.
    """
    modules = dict(model.named_modules())
    if any(isinstance(module, LoraLinear) for module in modules.values()):
        raise ModelError("the model has an adapter already", hint="detach it first, merged or not")
    model.requires_grad_(False)
    layers = {
        name: LoraLinear(module, settings, seed_of(seed, name)).train(model.training)
        for name, module in modules.items()
        if isinstance(module, nn.Linear) and name != "head"  # the loss uses its weight directly
    }
    for name, layer in layers.items():
        model.set_submodule(name, layer)
    return LoraAdapter(model, settings, layers)


def merge_stored(model: CausalLM, path: Path) -> None:
    """Add a stored adapter to the weights of a model; ModelError if it is not of its shape."""
    stored = read_tensors(path)
    try:
        for name in {name.rpartition(".")[0] for name in stored if name.endswith(".up")}:
            weight = model.get_parameter(f"{name}.weight").detach()
            delta = stored_matrix(stored, f"{name}.up") @ stored_matrix(stored, f"{name}.down")
            weight.copy_(weight.float() + delta.to(weight.device))
    except (AttributeError, LookupError, RuntimeError) as error:
        raise ModelError(f"{path} is not an adapter for this model ({error})") from error


def stored_tensors(adapter: LoraAdapter, before: Path | None = None) -> dict[str, Tensor]:
    """The tensors to store of an adapter, and of the stored one merged into its base `before`."""
    earlier = read_tensors(before) if before else {}
    tensors = {f"{_BEFORE}{name}": tensor for name, tensor in earlier.items()}
    for name, layer in adapter.layers.items():
        tensors[f"{name}.down"] = layer.down.detach().clone()
        tensors[f"{name}.up"] = layer.scale * layer.up.detach()
    return tensors


def peft_files(path: Path, config: ModelConfig, base: str) -> tuple[bytes, dict[str, Tensor]]:
    """PEFT's settings and tensors for a stored adapter of a model; `base` is its base's name.

    With an adapter that was merged before it, it becomes one LoRA of the sum of their ranks, which
    adds to the base what both add. ModelError if it is not of the model's shape.
    """
    stored = read_tensors(path)
    tensors: dict[str, Tensor] = {}
    layers, ranks = set[str](), set[int]()
    names = hf_names(config)
    try:
        for ours, theirs, _ in names:
            name, layer = ours.removesuffix(".weight"), theirs.removesuffix(".weight")
            parts = [part for part in (name, f"{_BEFORE}{name}") if f"{part}.up" in stored]
            if not parts:
                continue
            down_RI = torch.cat([stored_matrix(stored, f"{part}.down") for part in parts])
            up_OR = torch.cat([stored_matrix(stored, f"{part}.up") for part in parts], dim=1)
            tensors[f"base_model.model.{layer}.lora_A.weight"] = down_RI
            tensors[f"base_model.model.{layer}.lora_B.weight"] = up_OR
            layers.add(layer.rpartition(".")[2])
            ranks |= {len(down_RI), up_OR.shape[1]}
        (rank,) = ranks
    except (LookupError, RuntimeError, ValueError) as error:
        raise ModelError(f"{path} is not an adapter for this model ({error})") from error
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base or None,
        "r": rank,
        "lora_alpha": rank,  # the scale is in the matrices
        "target_modules": sorted(layers),
        "fan_in_fan_out": any(transposed for _, _, transposed in names),
    }
    return (json.dumps(settings, indent=2) + "\n").encode(), tensors


def stored_matrix(stored: Mapping[str, Tensor], name: str) -> Tensor:
    """A matrix of an adapter as it is stored, in float32."""
    matrix, scale = stored[name].float(), stored.get(f"{name}.scale")
    return matrix if scale is None else matrix * scale.float()[:, None]
