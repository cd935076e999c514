"""Saves and loads LoRA adapters in PEFT's format.

An adapter is a folder with `adapter_config.json` and `adapter_model.safetensors`. Its tensors are
named `base_model.model.<layer in transformers>.lora_A.weight` ([rank, inputs]) and `.lora_B.weight`
([outputs, rank]), whether or not transformers stores the layer itself transposed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from ownwords.core.errors import ConfigError
from ownwords.models import atomic_dir
from ownwords.models.decoder import CausalLM
from ownwords.models.lora import (
    AdapterConfig,
    LoraAdapter,
    attach_to_layers,
    can_be_adapted,
    check_no_adapter,
)
from ownwords.models.safetensors import FLOATS, TensorToWrite, read_blocks, write_tensors
from ownwords.models.safetensors_header import TensorInfo, read_header
from ownwords.models.untrusted_files import ModelError, open_file, preview, read_json
from ownwords.models.weight_mapping import hf_names

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_MAX_CONFIG_BYTES: Final = 1 << 20
_PREFIX: Final = "base_model.model."
_PARTS: Final = {".lora_A.weight": "down", ".lora_B.weight": "up"}

# Fields of adapter_config.json without effect here: provenance and how the adapter was trained.
_WITHOUT_EFFECT: Final = {
    "auto_mapping",
    "base_model_name_or_path",
    "exclude_modules",
    "fan_in_fan_out",  # how transformers stores the layer; the adapter's layout is the same
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
}
_HONOURED: Final = {
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "lora_dropout",
    "peft_type",
    "r",
    "target_modules",
    "use_rslora",
}
# Values of init_lora_weights that leave the base layer unchanged; the others modify it.
_BEGINNINGS: Final = (True, False, None, "gaussian", "orthogonal", "eva")


def save(folder: Path, adapter: LoraAdapter, base: str = "") -> None:
    """Write a PEFT adapter directory atomically; `base` is the base model's name or path."""
    theirs = _theirs(adapter.model)
    layers = {theirs[name]: layer for name, layer in adapter.layers.items()}
    settings = adapter.settings
    config: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base or None,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "use_rslora": settings.rank_stabilised,
        "target_modules": _targets(set(layers), set(theirs.values())),
        "fan_in_fan_out": any(transposed for *_, transposed in hf_names(adapter.model.config)),
        "bias": "none",
        "init_lora_weights": True,
        "inference_mode": True,
    }
    tensors = [
        TensorToWrite(f"{_PREFIX}{name}{end}", part.dtype, tuple(part.shape), [part.cpu()])
        for name, layer in layers.items()
        for end, attribute in _PARTS.items()
        for part in [getattr(layer, attribute).detach()]
    ]
    unsupported = {path.name for path in folder.glob("*")} - {CONFIG, WEIGHTS, "README.md"}
    if unsupported:
        raise ModelError(
            f"{folder} holds {preview(unsupported)}, which no adapter has",
            hint="save the adapter into a folder of its own",
        )
    with atomic_dir.replace_dir(folder) as beside:
        encoded = (json.dumps(config, indent=2) + "\n").encode()
        atomic_dir.write_file(beside / CONFIG, encoded)
        write_tensors(beside / WEIGHTS, tensors)


def load(folder: Path, model: CausalLM) -> LoraAdapter:
    """Load a PEFT adapter directory and attach the adapter to `model`.

    Raises ModelError for anything damaged, unsupported or not matching the model; no part of an
    adapter is ignored silently.
    """
    check_no_adapter(model)
    try:
        settings = _read_settings(read_json(folder / CONFIG, _MAX_CONFIG_BYTES))
    except ModelError as error:
        raise ModelError(f"{folder / CONFIG} {error.message}", hint=error.hint) from error
    ours = {theirs: name for name, theirs in _theirs(model).items()}
    pairs = _pairs(folder / WEIGHTS, ours)
    for name, pair in pairs.items():
        outputs, inputs = model.get_parameter(f"{name}.weight").shape
        for part, shape in (("down", (settings.rank, inputs)), ("up", (outputs, settings.rank))):
            if pair[part].shape != shape:
                raise ModelError(
                    f"{folder / WEIGHTS}: {pair[part].name!r} has the shape"
                    f" {list(pair[part].shape)}, and the model and {CONFIG} ask for {list(shape)}",
                    hint="the adapter is of another model",
                )
    values = {name: {part: _read(pair[part]) for part in pair} for name, pair in pairs.items()}
    adapter = attach_to_layers(model, settings, pairs, seed=0)
    with torch.no_grad():
        for name, parts in values.items():
            adapter.layers[name].down.copy_(parts["down"])
            adapter.layers[name].up.copy_(parts["up"])
    return adapter


def _theirs(model: CausalLM) -> dict[str, str]:
    """The layers that can have an adapter: our name to the name in transformers."""
    linear = {
        name.removesuffix(".base")
        for name, module in model.named_modules()
        if can_be_adapted(name, module)
    }
    return {
        ours.removesuffix(".weight"): theirs.removesuffix(".weight")
        for ours, theirs, _ in hf_names(model.config)
        if ours.removesuffix(".weight") in linear
    }


def _ends_in(name: str, ending: str) -> bool:
    return name == ending or name.endswith("." + ending)


def _targets(chosen: set[str], every: set[str]) -> list[str]:
    """PEFT's `target_modules`: last name parts if they select exactly `chosen`, else full names."""
    endings = {name.rpartition(".")[2] for name in chosen}
    if {name for name in every if any(_ends_in(name, end) for end in endings)} == chosen:
        return sorted(endings)
    return sorted(chosen)


def _read_settings(fields: Mapping[str, object]) -> AdapterConfig:
    """The settings of an adapter; ModelError names unsupported fields."""
    if fields.get("peft_type") != "LORA":
        raise ModelError(
            f"is of the kind {fields.get('peft_type')!r:.40}, and LORA is the one known"
        )
    unsupported = [name for name in fields.keys() - _HONOURED - _WITHOUT_EFFECT if fields[name]]
    unsupported += ["bias"] * (fields.get("bias", "none") != "none")
    unsupported += ["init_lora_weights"] * (fields.get("init_lora_weights") not in _BEGINNINGS)
    if unsupported:
        details = ", ".join(
            f"{name} = {str(fields[name])[:60]!r}" for name in sorted(unsupported)[:3]
        )
        raise ModelError(
            f"asks for what is not implemented: {details}",
            hint="merge it into its model with PEFT, and open the merged model",
        )
    rank, alpha = _number(fields, "r"), _number(fields, "lora_alpha")
    dropout = _number({"lora_dropout": 0.0, **fields}, "lora_dropout")
    if not 1 <= rank <= 1 << 20 or rank != int(rank):
        raise ModelError(f"asks for a rank of {rank}")
    try:
        return AdapterConfig(int(rank), alpha, dropout, (), bool(fields.get("use_rslora")))
    except ConfigError as error:
        raise ModelError(f"cannot be honoured: {error.message}") from error


def _number(fields: Mapping[str, object], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 53:
        raise ModelError(f"has {name} = {str(value)[:40]!r}, where a number is needed")
    return value


def _pairs(path: Path, known: Mapping[str, str]) -> dict[str, dict[str, TensorInfo]]:
    """The "down" and "up" matrices of every layer, by our name for it."""
    pairs: dict[str, dict[str, TensorInfo]] = {}
    for name, stored in read_header(path).items():
        end = next((end for end in _PARTS if name.endswith(end)), "")
        layer = name.removeprefix(_PREFIX).removesuffix(end)
        if not end or not name.startswith(_PREFIX) or layer not in known:
            raise ModelError(
                f"{path} holds {preview([name])}, which is no LoRA matrix of a layer of this model",
                hint="DoRA, trained biases, embeddings and whole modules are not implemented",
            )
        if stored.dtype not in FLOATS:
            raise ModelError(f"{path}: {preview([name])} is {stored.dtype}, which no adapter is")
        pairs.setdefault(known[layer], {})[_PARTS[end]] = stored
    halves = {name for name, pair in pairs.items() if len(pair) < len(_PARTS)}
    if halves or not pairs:
        raise ModelError(
            f"{path} has only one matrix of {preview(halves)}"
            if halves
            else f"{path} holds no adapter"
        )
    return pairs


def _read(stored: TensorInfo) -> Tensor:
    with open_file(stored.path) as file:
        value = torch.cat([block.clone() for block in read_blocks(stored, file)])
    if not value.isfinite().all():
        raise ModelError(f"{stored.path}: {stored.name!r} holds numbers that are not finite")
    return value
