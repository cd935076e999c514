"""Adapters in PEFT's format, both ways, named as in the transformers twin of the model.

A folder of `adapter_config.json` and `adapter_model.safetensors`, whose tensors are called
`base_model.model.<layer of the twin>.lora_A.weight` ([rank, inputs]) and `.lora_B.weight`
([outputs, rank]), whichever way the twin stores the layer itself.
"""

import json
import re
from collections.abc import Mapping, Set
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
    layer_size,
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

# What a config of PEFT may say that changes nothing here: where it comes from, how it was trained.
_WITHOUT_EFFECT: Final = {
    "auto_mapping",
    "base_model_name_or_path",
    "exclude_modules",
    "fan_in_fan_out",  # says how the twin stores its layer; the adapter is the same either way
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
    "alpha_pattern",
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "lora_dropout",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "use_rslora",
}
# Ways to begin that leave the layer itself alone; others hide a change of it in the beginning.
_BEGINNINGS: Final = (True, False, None, "gaussian", "orthogonal", "eva")


def save(folder: Path, adapter: LoraAdapter, base: str = "") -> None:
    """Write PEFT's directory, whole or not at all; `base` names the model it belongs to."""
    theirs = _theirs(adapter.model)
    layers = {theirs[name]: layer for name, layer in adapter.layers.items()}
    said = adapter.settings
    config: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base or None,
        "r": said.rank,
        "lora_alpha": said.alpha,
        "lora_dropout": said.dropout,
        "use_rslora": said.rank_stabilised,
        "target_modules": _targets(set(layers), set(theirs.values())),
        "rank_pattern": {n: each.rank for n, each in layers.items() if each.rank != said.rank},
        "alpha_pattern": {n: each.alpha for n, each in layers.items() if each.alpha != said.alpha},
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
    strange = {path.name for path in folder.glob("*")} - {CONFIG, WEIGHTS, "README.md"}
    if strange:
        raise ModelError(
            f"{folder} holds {preview(strange)}, which no adapter has",
            hint="save the adapter into a folder of its own",
        )
    with atomic_dir.replace_dir(folder) as beside:
        encoded = (json.dumps(config, indent=2) + "\n").encode()
        atomic_dir.write_file(beside / CONFIG, encoded)
        write_tensors(beside / WEIGHTS, tensors)


def load(folder: Path, model: CausalLM) -> LoraAdapter:
    """Attach the adapter of a PEFT directory.

    ModelError for what is damaged, does not fit the model, or cannot be honoured: nothing of an
    adapter is left out in silence.
    """
    check_no_adapter(model)
    said = read_json(folder / CONFIG, _MAX_CONFIG_BYTES)
    try:
        settings, ranks, alphas = _understood(said)
    except ModelError as error:
        raise ModelError(f"{folder / CONFIG} {error.message}", hint=error.hint) from error
    ours = {theirs: name for name, theirs in _theirs(model).items()}
    pairs = _pairs(folder / WEIGHTS, ours)
    _check_targets(folder, said, pairs.keys(), ours.keys())
    found = {}
    for name, pair in pairs.items():
        outputs, inputs = layer_size(model.get_submodule(ours[name]))
        rank = _matching(ranks, name, settings.rank)
        for part, shape in (("down", (rank, inputs)), ("up", (outputs, rank))):
            if pair[part].shape != shape:
                raise ModelError(
                    f"{folder / WEIGHTS}: {pair[part].name!r} has the shape"
                    f" {list(pair[part].shape)}, and the model and {CONFIG} ask for {list(shape)}",
                    hint="the adapter is of another model",
                )
        found[ours[name]] = (int(rank), _matching(alphas, name, settings.alpha))
    values = {
        (ours[name], part): _read(stored)
        for name, pair in pairs.items()
        for part, stored in pair.items()
    }
    adapter = attach_to_layers(model, settings, found, seed=0)
    with torch.no_grad():
        for (name, part), value in values.items():
            getattr(adapter.layers[name], part).copy_(value)
    return adapter


def _theirs(model: CausalLM) -> dict[str, str]:
    """The layers that can have an adapter: our name, and the one in the transformers twin."""
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
    """The shortest endings that say `chosen` and no more; PEFT's `target_modules`."""
    endings = {name.rpartition(".")[2] for name in chosen}
    if {name for name in every if any(_ends_in(name, end) for end in endings)} == chosen:
        return sorted(endings)
    return sorted(chosen)


def _understood(
    said: Mapping[str, object],
) -> tuple[AdapterConfig, Mapping[str, float], Mapping[str, float]]:
    """Settings, and the ranks and alphas of single layers by pattern; ModelError by name."""
    if said.get("peft_type") != "LORA":
        raise ModelError(f"is of the kind {said.get('peft_type')!r:.40}, and LORA is the one known")
    strange = [name for name in said.keys() - _HONOURED - _WITHOUT_EFFECT if said[name]]
    if said.get("bias", "none") != "none":
        strange.append("bias")
    if not any(said.get("init_lora_weights") is each for each in _BEGINNINGS[:3]) and (
        said.get("init_lora_weights") not in _BEGINNINGS[3:]
    ):
        strange.append("init_lora_weights")
    if strange:
        told = ", ".join(f"{name} = {str(said[name])[:60]!r}" for name in sorted(strange)[:3])
        raise ModelError(
            f"asks for what is not implemented here: {told}",
            hint="merge it into its model with PEFT, and open the merged model",
        )
    rank, alpha = _number(said, "r"), _number(said, "lora_alpha")
    dropout = _number({"lora_dropout": 0.0, **said}, "lora_dropout")
    ranks, alphas = _numbers(said, "rank_pattern"), _numbers(said, "alpha_pattern")
    for value in (rank, *ranks.values()):
        if not 1 <= value <= 1 << 20 or value != int(value):
            raise ModelError(f"asks for a rank of {value}")
    try:
        settings = AdapterConfig(int(rank), alpha, dropout, (), bool(said.get("use_rslora")))
    except ConfigError as error:
        raise ModelError(f"cannot be honoured: {error.message}") from error
    return settings, ranks, alphas


def _number(said: Mapping[str, object], name: str) -> float:
    value = said.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 53:
        raise ModelError(f"has {name} = {str(value)[:40]!r}, where a number is needed")
    return value


def _numbers(said: Mapping[str, object], name: str) -> dict[str, float]:
    table = said.get(name) or {}
    if not isinstance(table, dict):
        raise ModelError(f"has {name} = {str(table)[:40]!r}, where a table is needed")
    for key in table:  # to PEFT a regular expression; what is more than a name is refused
        if re.fullmatch(r"[\w.]+", key) is None:
            raise ModelError(f"has {name} for {key!r:.80}, which is not the end of a name")
    return {key: _number(table, key) for key in table}


def _matching(patterns: Mapping[str, float], name: str, default: float) -> float:
    """The value of the first pattern that a name ends in."""
    return next((value for end, value in patterns.items() if _ends_in(name, end)), default)


def _pairs(path: Path, known: Mapping[str, str]) -> dict[str, dict[str, TensorInfo]]:
    """The two matrices of every layer, by its name in the twin."""
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
        pairs.setdefault(layer, {})[_PARTS[end]] = stored
    halves = {name for name, pair in pairs.items() if len(pair) < len(_PARTS)}
    if halves or not pairs:
        raise ModelError(
            f"{path} has only one matrix of {preview(halves)}"
            if halves
            else f"{path} holds no adapter"
        )
    return pairs


def _check_targets(
    folder: Path, said: Mapping[str, object], found: Set[str], every: Set[str]
) -> None:
    """All that `target_modules` lists must be there, unless the config leaves some out."""
    targets = said.get("target_modules")
    if (
        isinstance(targets, list)
        and not said.get("layers_to_transform")
        and not said.get("exclude_modules")
    ):
        wanted = {name for name in every if any(_ends_in(name, str(end)) for end in targets)}
        if wanted - found:
            raise ModelError(
                f"{folder / WEIGHTS} has no matrices for {preview(wanted - found)}, which"
                f" {CONFIG} lists",
                hint="is it whole, and of this model?",
            )


def _read(stored: TensorInfo) -> Tensor:
    with open_file(stored.path) as file:
        value = torch.cat([block.clone() for block in read_blocks(stored, file)])
    if not value.isfinite().all():
        raise ModelError(f"{stored.path}: {stored.name!r} holds numbers that are not finite")
    return value
