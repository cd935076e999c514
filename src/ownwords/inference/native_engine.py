"""The engine of the processor: a model directory in the hands of the part in C++, without PyTorch.

Each family is told to it in the words of one graph, `native.engine.Shape`. Weights are read from
the mapped files and packed anew, so that nothing of the files stays in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import (
    ROUNDED,
    ForwardInput,
    Logits,
    WeightFormat,
    check_cache_size,
    check_copy,
    check_cut,
    check_feeds,
    check_row,
    check_weight_format,
    closed_cache_error,
    not_finite_error,
)
from ownwords.models import mmap_tensors
from ownwords.models.configs.config import ModelConfig
from ownwords.models.mmap_tensors import Array, is_mapped
from ownwords.models.quantization_scheme import ENDS, QuantizationScheme
from ownwords.models.safetensors_header import FLOATS
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import (
    SINGLE,
    MappedTensor,
    check_shapes,
    find_tensors,
    map_quantized_weights,
    map_weights,
    read_schemes,
    weight_shapes,
)
from ownwords.native import bindings
from ownwords.native import engine as native

_NUMBERS: Mapping[str, native.Stored] = {"F32": "f32", "BF16": "bf16", "F16": "f16"}
_KINDS: Mapping[int, native.Kind] = {8: "int8", 4: "int4"}


class NativeEngine:
    """A model in the part in C++, on threads of its own."""

    def __init__(self, core: native.NativeModel, weights: WeightFormat) -> None:
        self.weights = weights
        self.vocabulary = core.shape.vocabulary
        self.context = core.shape.context
        found = bindings.describe().removeprefix("compiled kernels for ")
        self.name = f"native {core.shape.matrices}, {found}"
        self._core = core

    def cache(self, rows: int, length: int) -> "NativeCache":
        check_cache_size(rows, length, self)
        return NativeCache(self, self._core.cache(rows, length))


class NativeCache:
    """The contract's cache; it keeps its engine."""

    def __init__(self, engine: NativeEngine, kept: native.NativeCache) -> None:
        self.rows = kept.rows
        self.length = kept.length
        self._engine = engine
        self._kept: native.NativeCache | None = kept

    def held(self, row: int) -> int:
        check_row(row, self)
        return self._open().held(row)

    def read(self, feeds: Sequence[ForwardInput], *, every: bool = False) -> Logits:
        kept = self._open()
        check_feeds(feeds, self, self._engine)
        near = feeds[0].near if len(feeds) == 1 else None
        return kept.read(
            [feed.row for feed in feeds],
            [feed.ids for feed in feeds],
            every=every,
            near=None if near is None else (near.margin, near.among),
        )

    def cut(self, row: int, length: int) -> None:
        check_cut(row, length, self)
        self._open().cut(row, min(length, self.held(row)))

    def copy(self, source: int, row: int, length: int) -> None:
        check_copy(source, row, length, self)
        self._open().copy(source, row, length)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _open(self) -> native.NativeCache:
        if self._kept is None:
            raise closed_cache_error()
        return self._kept


def load(
    folder: Path,
    config: ModelConfig,
    *,
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> NativeEngine | None:
    """The engine for the weights of a folder, or None where the part in C++ was not compiled.

    ModelError for what `models.weights.load` refuses, and for numbers that are not finite.
    """
    if not native.available():
        return None
    stored = find_tensors(folder)
    if any(name.endswith(".packed") for name in stored):
        made_with = read_schemes(folder / SINGLE)
        kinds = _kinds_of(made_with)
        told: WeightFormat = kinds[0]
        check_weight_format(told, weights, folder)
        fitted = map_quantized_weights(stored, made_with, config, folder)
        arrays = mmap_tensors.map_arrays(each.stored for each in fitted)
        tensors = list(_of_codes(fitted, arrays, weight_shapes(config), made_with))
    else:
        fitted = map_weights(stored, config, folder)
        check_shapes(fitted, config, folder)
        kinds, told = _kinds({each.stored.dtype for each in fitted}, weights)
        arrays = mmap_tensors.map_arrays(each.stored for each in fitted)
        sizes = weight_shapes(config)
        tensors = [_tensor(each, sizes[each.ours], arrays) for each in fitted]
    # The scales of int8 are float32 whatever the model was.
    numbers = [each for each in fitted if not each.ours.endswith(".scale")]
    floats = {each.stored.dtype for each in numbers if each.stored.dtype in FLOATS}
    is_narrow = weights == "bf16" or (weights != "f32" and floats == {"BF16"})
    try:
        core = native.NativeModel(
            _shape(config, kinds, is_narrow),
            tensors,
            threads=threads or hardware.threads(hardware.read_cpu()),
        )
    except OwnwordsError as error:
        for each in fitted:
            if not _is_finite(each, arrays):
                raise not_finite_error(each.ours, folder) from error
        raise ModelError(f"{folder}: {error.message}", hint=error.hint) from error
    return NativeEngine(core, told)


def _kinds_of(
    made_with: tuple[QuantizationScheme, QuantizationScheme],
) -> tuple[native.Kind, native.Kind]:
    body, ends = made_with
    return _KINDS[body.bits], _KINDS[ends.bits]


def _kinds(
    stored: set[str], weights: WeightFormat
) -> tuple[tuple[native.Kind, native.Kind], WeightFormat]:
    """What matrices and ends are packed as, and what that is called."""
    if weights in ROUNDED:
        return _kinds_of(ROUNDED[weights]), weights
    if weights == "bf16" or (weights == "stored" and stored == {"BF16"}):
        return ("bf16", "bf16"), "bf16"
    # There is no kind for float16; float32 holds it exactly.
    return ("f32", "f32"), "stored" if weights == "stored" and stored == {"F16"} else "f32"


def _tensor(
    each: MappedTensor, shape: tuple[int, ...], arrays: Mapping[str, Array]
) -> native.SourceTensor:
    rows, columns = (1, *shape)[-2:]
    return native.SourceTensor(
        name=each.ours,
        stored=_NUMBERS[each.stored.dtype],
        rows=rows,
        columns=columns,
        data=arrays[each.stored.name],
        transposed=each.transposed,
        mapped=is_mapped(arrays[each.stored.name]),
    )


def _of_codes(
    fitted: list[MappedTensor],
    arrays: Mapping[str, Array],
    sizes: Mapping[str, tuple[int, ...]],
    made_with: tuple[QuantizationScheme, QuantizationScheme],
) -> Iterator[native.SourceTensor]:
    for each in fitted:
        owner, _, part = each.ours.rpartition(".")
        if part == "packed":
            scheme = made_with[owner in ENDS]
            rows, columns = sizes[f"{owner}.weight"]
            yield native.SourceTensor(
                name=f"{owner}.weight",
                stored="codes8" if scheme.bits == 8 else "codes4",
                rows=rows,
                columns=columns,
                data=arrays[each.ours],
                scales=arrays[f"{owner}.scale"],
                group=scheme.group,
                mapped=is_mapped(arrays[each.ours]),
            )
        elif part != "scale":
            yield _tensor(each, sizes[each.ours], arrays)


def _is_finite(each: MappedTensor, arrays: Mapping[str, Array]) -> bool:
    array = arrays[each.stored.name]
    if each.stored.dtype == "BF16":
        return not bool((array & 0x7F80 == 0x7F80).any())
    return bool(np.isfinite(array).all())


def _shape(
    config: ModelConfig, kinds: tuple[native.Kind, native.Kind], is_narrow: bool
) -> native.ModelShape:
    """A family in the engine's words; `is_narrow`: its numbers are bfloat16."""
    tables = config.rope_frequencies()
    # Rounded before it multiplies, as in training: 33.94 is 34 in bfloat16.
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
        matrices=kinds[0],
        ends=kinds[1],
        narrow=kinds[0] != "f32",
        layer_norm=config.LAYER_NORM,
        gelu=config.GELU,
        norm_eps=config.norm_eps,
        norm_offset=config.NORM_OFFSET,
        attention_scale=config.attention_scale,
        embedding_scale=_in_bfloat16(scale) if is_narrow else scale,
        softcap=config.logit_softcap,
        windows=tuple(window or 0 for window in config.windows()),
        turns=config.rope_of_layers(),
        frequencies=np.stack(tables) if tables else np.empty((0, config.head_dim // 2), np.float32),
    )


def _in_bfloat16(number: float) -> float:
    """The nearest bfloat16; of two as near, the one with an even last bit."""
    bits = np.float32(number).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return float(np.uint32(rounded).view(np.float32))
