"""The CPU engine: loads a model directory into the C++ engine, without PyTorch.

Every model family is described as one graph, `native.engine.ModelShape`. Weights are repacked from
the memory-mapped files, so nothing of the files stays in memory.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import (
    QUANTIZED,
    WeightFormat,
    check_cache_size,
    check_weight_format,
    not_finite_error,
)
from ownwords.models.configs.config import ModelConfig
from ownwords.models.safetensors_header import is_mapped
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import SINGLE, StoredWeight, open_weights, read_schemes
from ownwords.native import bindings
from ownwords.native import engine as native

_STORED: Mapping[str, native.Stored] = {
    "F32": "f32",
    "BF16": "bf16",
    "F16": "f16",
    "I8": "codes8",
    "U8": "codes4",
}
_KINDS: Mapping[int, native.Kind] = {8: "int8", 4: "int4"}


class NativeEngine:
    """A model in the C++ engine, which runs on its own threads."""

    def __init__(self, model: native.NativeModel, weights: WeightFormat) -> None:
        self.weights = weights
        self.vocabulary = model.shape.vocabulary
        self.context = model.shape.context
        kernels = bindings.describe().removeprefix("compiled kernels for ")
        self.name = f"native {model.shape.block_type}, {kernels}"
        self._model = model

    def cache(self, rows: int, length: int) -> native.NativeCache:
        check_cache_size(rows, length, self)
        return self._model.cache(rows, length)


def load(
    folder: Path,
    config: ModelConfig,
    *,
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> NativeEngine | None:
    """Load the weights of a folder; return None if the C++ engine is not compiled.

    Raises ModelError for weights that `models.weights.load` refuses and for non-finite values.
    """
    if not native.available():
        return None
    stored = open_weights(folder, config)
    floats = {weight.dtype for weight in stored if weight.scheme is None}
    schemes = QUANTIZED.get(weights)
    if any(weight.scheme for weight in stored):
        schemes = read_schemes(folder / SINGLE)
        check_weight_format(_KINDS[schemes[0].bits], weights, folder)
    if schemes:
        kinds: tuple[native.Kind, native.Kind] = (_KINDS[schemes[0].bits], _KINDS[schemes[1].bits])
        weight_format: WeightFormat = kinds[0]
    elif weights == "bf16" or (weights == "stored" and floats == {"BF16"}):
        kinds, weight_format = ("bf16", "bf16"), "bf16"
    else:  # the engine has no float16 type; float32 represents it exactly
        kinds = "f32", "f32"
        weight_format = "stored" if weights == "stored" and floats == {"F16"} else "f32"
    is_bf16 = weights == "bf16" or (weights != "f32" and floats == {"BF16"})
    try:
        model = native.NativeModel(
            _shape(config, kinds, is_bf16),
            [_source(weight) for weight in stored],
            threads=threads or hardware.threads(hardware.read_cpu()),
        )
    except OwnwordsError as error:
        for weight in stored:
            if not _is_finite(weight):
                raise not_finite_error(weight.name, folder) from error
        raise ModelError(f"{folder}: {error.message}", hint=error.hint) from error
    return NativeEngine(model, weight_format)


def _source(weight: StoredWeight) -> native.SourceTensor:
    rows, columns = (1, *weight.shape)[-2:]
    return native.SourceTensor(
        name=weight.name,
        stored=_STORED[weight.dtype],
        rows=rows,
        columns=columns,
        data=weight.array,
        scales=weight.scales,
        group=weight.scheme.group if weight.scheme else 0,
        transposed=weight.transposed,
        mapped=is_mapped(weight.array),
    )


def _is_finite(weight: StoredWeight) -> bool:
    array = weight.array if weight.scales is None else weight.scales
    if array.dtype == np.uint16:  # the bits of bfloat16
        return not bool((array & 0x7F80 == 0x7F80).any())
    return bool(np.isfinite(array).all())


def _shape(
    config: ModelConfig, kinds: tuple[native.Kind, native.Kind], is_bf16: bool
) -> native.ModelShape:
    """Describe a model family to the C++ engine; `is_bf16`: the model computes in bfloat16."""
    tables = config.rope_frequencies()
    # Round the scale before multiplying, as in training: 33.94 becomes 34 in bfloat16.
    scale = config.embedding_scale
    return native.ModelShape(
        vocabulary=config.vocabulary,
        context=config.context,
        width=config.width,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        hidden=config.hidden,
        block_type=kinds[0],
        embedding_type=kinds[1],
        kv_bf16=kinds[0] != "f32",
        layer_norm=config.LAYER_NORM,
        gelu=config.GELU,
        norm_eps=config.norm_eps,
        norm_offset=config.NORM_OFFSET,
        attention_scale=config.attention_scale,
        embedding_scale=_round_to_bf16(scale) if is_bf16 else scale,
        softcap=config.logit_softcap,
        windows=tuple(window or 0 for window in config.windows()),
        rope_table=config.rope_of_layers(),
        frequencies=np.stack(tables) if tables else np.empty((0, config.head_dim // 2), np.float32),
    )


def _round_to_bf16(number: float) -> float:
    """Round to the nearest bfloat16, ties to even."""
    bits = np.float32(number).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return float(np.uint32(rounded).view(np.float32))
