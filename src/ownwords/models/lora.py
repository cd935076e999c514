"""LoRA: trains a low-rank matrix pair for each chosen layer and freezes the layer itself.

    y = layer(x) + alpha / rank * up(down(dropout(x)))

`up` starts at zero, so a new adapter does not change the model. Hu et al. 2021,
https://arxiv.org/abs/2106.09685. A stored adapter is one file with `<layer>.down` and `<layer>.up`,
which includes the scale; int8 matrices also have one scale per row. PEFT's format is a folder with
`adapter_config.json` and `adapter_model.safetensors`, whose tensors are named
`base_model.model.<layer in transformers>.lora_A.weight` ([rank, inputs]) and `.lora_B.weight`
([outputs, rank]), whether or not transformers stores the layer itself transposed.

Suffixes of tensors: R rank, I inputs, O outputs of the layer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import torch
from torch import Tensor, nn

from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, seed_of
from ownwords.models.fused_block import products_of
from ownwords.models.layers import LoraLinear, ResidualBlock
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import hf_names
from ownwords.models.weights import read_tensors

PEFT_CONFIG: Final = "adapter_config.json"
PEFT_WEIGHTS: Final = "adapter_model.safetensors"
_BEFORE = "before."  # prefix of the tensors of an adapter already merged into the base


@dataclass(frozen=True)
class AdapterConfig:
    """The rank, scale and dropout of a LoRA adapter."""

    rank: int
    alpha: float = 16.0
    dropout: float = 0.0

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class LoraAdapter:
    """An adapter attached to a model: the LoRA layers by name, with their settings."""

    def __init__(
        self, model: CausalLM, settings: AdapterConfig, layers: Mapping[str, LoraLinear]
    ) -> None:
        self.model, self.settings, self.layers = model, settings, dict(layers)

    def merge(self) -> None:
        """Add the adapter to the layers' weights in float32; a second call changes nothing."""
        for layer in self.layers.values():
            if not layer.merged:
                weight = layer.base.get_parameter("weight").detach()
                weight.copy_(weight.float() + layer.delta())
                layer.merged = True
        self._end_joining()

    def detach(self) -> None:
        """Remove the adapter; the base layers keep its changes if it was merged."""
        self._end_joining()
        for name, layer in self.layers.items():
            self.model.set_submodule(name, layer.base)

    def _end_joining(self) -> None:
        self.model.adapter_groups = ()
        for layer in self.layers.values():
            layer.joined = None


def attach(model: CausalLM, settings: AdapterConfig, seed: int) -> LoraAdapter:
    """Attach new adapters to the linear layers of all blocks, and freeze the model.

    The same seed gives the same adapters on any machine. ModelError if the model has one already: a
    second would be trained on top of it.
    """
    modules = dict(model.named_modules())
    if any(isinstance(module, LoraLinear) for module in modules.values()):
        raise ModelError("the model already has an adapter", hint="detach it first")
    model.requires_grad_(False)
    layers: dict[str, LoraLinear] = {}
    for name, module in modules.items():
        if isinstance(module, nn.Linear) and name != "head":  # the loss uses the head's weight
            layer_seed = seed_of(seed, name)
            layer = LoraLinear(module, settings.rank, settings.scale, settings.dropout, layer_seed)
            layers[name] = layer.train(model.training)
            model.set_submodule(name, layer)
    products = [products_of(cast(ResidualBlock, block)) for block in model.blocks]
    model.adapter_groups = [*zip(*products, strict=True)]
    return LoraAdapter(model, settings, layers)


def merge_stored(model: CausalLM, path: Path) -> None:
    """Add a stored adapter to the weights of a model; ModelError if their shapes differ."""
    stored = read_tensors(path)
    try:
        for name in {name.rpartition(".")[0] for name in stored if name.endswith(".up")}:
            weight = model.get_parameter(f"{name}.weight").detach()
            delta = stored_matrix(stored, f"{name}.up") @ stored_matrix(stored, f"{name}.down")
            weight.copy_(weight.float() + delta.to(weight.device))
    except (AttributeError, LookupError, RuntimeError) as error:
        raise ModelError(f"{path} is not an adapter for this model ({error})") from error


def stored_tensors(adapter: LoraAdapter, before: Path | None = None) -> dict[str, Tensor]:
    """Return an adapter's tensors as stored, and those of `before`, merged into the base."""
    earlier = read_tensors(before) if before else {}
    tensors = {f"{_BEFORE}{name}": tensor for name, tensor in earlier.items()}
    for name, layer in adapter.layers.items():
        tensors[f"{name}.down"] = layer.down.detach().clone()
        tensors[f"{name}.up"] = layer.scale * layer.up.detach()
    return tensors


def peft_files(path: Path, config: ModelConfig, base: str) -> tuple[bytes, dict[str, Tensor]]:
    """Return PEFT's settings and tensors for a stored adapter; `base` is the name of its base.

    An adapter merged into the base before training is joined with this one into a LoRA with the
    sum of their ranks. ModelError if it does not fit the model.
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
        "lora_alpha": rank,  # the matrices include the scale
        "target_modules": sorted(layers),
        "fan_in_fan_out": any(transposed for _, _, transposed in names),
    }
    return (json.dumps(settings, indent=2) + "\n").encode(), tensors


def stored_matrix(stored: Mapping[str, Tensor], name: str) -> Tensor:
    """Return a stored matrix of an adapter in float32."""
    matrix, scale = stored[name].float(), stored.get(f"{name}.scale")
    return matrix if scale is None else matrix * scale.float()[:, None]
