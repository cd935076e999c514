"""The CPU engine: runs a model directory in the C++ library, without PyTorch.

All model families share one graph, `ModelShape` in api.h. Weights are repacked from memory-mapped
files.
"""

import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.inference.engine import (
    Logits,
    RowInputs,
    WeightFormat,
    check_cache_size,
    check_token_ids,
    check_weight_format,
    not_finite_error,
)
from ownwords.models.configs.config import ModelConfig, frequencies
from ownwords.models.untrusted_files import ModelError
from ownwords.models.weight_mapping import StoredWeight, open_weights
from ownwords.native.bindings import NativeError, NativeLibrary, interface, load_library

Kind = Literal["f32", "bf16", "int8"]

# In the order of WeightType and SourceType in packed_matrix.h.
_KINDS: Final[tuple[Kind, ...]] = ("f32", "bf16", "int8")
_STORED: Final = ("F32", "BF16", "F16", "I8")
_CLOSED = "the cache is closed"


class NativeEngine:
    """A model with packed copies of its weights, on the library's own threads.

    `kind` is the format of the matrices. `is_bf16`: the model computes in bfloat16.
    """

    def __init__(
        self,
        library: NativeLibrary,
        config: ModelConfig,
        stored: Sequence[StoredWeight],
        kind: Kind,
        *,
        weights: WeightFormat,
        threads: int,
        is_bf16: bool = False,
    ) -> None:
        self.name = f"native {kind}, {library.isa.label}"
        self.vocabulary = config.vocabulary
        self.context = config.context
        self.weights = weights
        self.library = library
        self.handle = ctypes.c_void_p()
        shape, _arrays = _shape(config, kind, is_bf16)
        tensors = (interface().structs["TensorSource"] * len(stored))(*map(_tensor, stored))
        library.engine_new(
            *(ctypes.addressof(shape), tensors, len(stored), threads),
            ctypes.addressof(self.handle),
        )
        weakref.finalize(self, library.engine_free, self.handle)

    def cache(self, rows: int, length: int) -> "NativeCache":
        return NativeCache(self, rows, length)


class NativeCache:
    """Implements `EngineCache`; the library checks each call before it changes anything."""

    def __init__(self, engine: NativeEngine, rows: int, length: int) -> None:
        check_cache_size(rows, length, engine)
        self._vocabulary = engine.vocabulary
        self._library = engine.library
        self._handle = ctypes.c_void_p()
        engine.library.cache_new(engine.handle, rows, length, ctypes.addressof(self._handle))
        self._end = weakref.finalize(self, self._library.cache_free, self._handle)
        self._lock = threading.Lock()  # prevents freeing the cache while it is in use

    def cached_length(self, row: int) -> int:
        length = ctypes.c_int64()
        self._call(
            f"row {row} has no length",
            *(self._library.cache_length, row, ctypes.addressof(length)),
        )
        return length.value

    def forward(self, inputs: RowInputs, *, all_positions: bool = False) -> Logits:
        rows = np.array([*inputs], np.int64)
        counts = np.array([*map(len, inputs.values())], np.int64)
        ids = np.array([*chain.from_iterable(inputs.values())], np.int64)
        logits = np.empty((len(ids if all_positions else rows), self._vocabulary), np.float32)
        with self._lock:
            if not self._end.alive:
                raise OwnwordsError(_CLOSED)
            try:
                self._library.cache_forward(
                    *(self._handle, len(rows)),
                    *(rows.ctypes.data, counts.ctypes.data, ids.ctypes.data),
                    *(int(all_positions), logits.ctypes.data),
                )
            except NativeError as error:
                if error.status == "BAD_ID":
                    check_token_ids(ids.tolist(), self._vocabulary)
                error.message = f"the texts cannot be read: {error.message}"
                raise
        return logits

    def truncate(self, row: int, length: int) -> None:
        what = f"row {row} cannot be cut to {length} tokens"
        length = min(length, self.cached_length(row))
        self._call(what, self._library.cache_truncate, row, length)

    def copy_prefix(self, source: int, row: int, length: int) -> None:
        what = f"row {row} cannot begin with {length} tokens of row {source}"
        self._call(what, self._library.cache_copy, source, row, length)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _call(self, what: str, function: Callable[..., int], *arguments: object) -> None:
        """Call a function of this cache; error messages start with `what`."""
        with self._lock:
            if not self._end.alive:
                raise OwnwordsError(_CLOSED)
            try:
                function(self._handle, *arguments)
            except NativeError as error:
                error.message = f"{what}: {error.message}"
                raise


def load(
    folder: Path,
    config: ModelConfig,
    *,
    weights: WeightFormat = "stored",
    threads: int | None = None,
    adapter: Path | None = None,
) -> NativeEngine | None:
    """Load the weights of a folder; return None if the C++ engine is not compiled.

    Raises ModelError for weights that `models.weights.load` refuses and for non-finite values.
    """
    library = load_library()
    if library is None:
        return None
    stored = open_weights(folder, config, adapter)
    floats = {weight.dtype for weight in stored if weight.scales is None}
    kind: Kind = "bf16" if floats == {"BF16"} else "f32"
    if any(weight.scales is not None for weight in stored):
        check_weight_format(weights, folder)
        kind = "int8"
    elif weights != "stored":
        kind = weights
    # The engine has no float16 type; float32 represents it exactly.
    is_f16 = weights == "stored" and floats == {"F16"} and kind == "f32"
    try:
        return NativeEngine(
            *(library, config, stored, kind),
            weights="stored" if is_f16 else kind,
            threads=threads or hardware.threads(hardware.read_cpu()),
            is_bf16=weights == "bf16" or (weights != "f32" and floats == {"BF16"}),
        )
    except NativeError as error:
        for weight in stored:
            if not _is_finite(weight):
                raise not_finite_error(weight.name, folder) from error
        raise ModelError(f"{folder}: {error.message}", hint=error.hint) from error


def _is_finite(weight: StoredWeight) -> bool:
    array = weight.array if weight.scales is None else weight.scales
    if array.dtype == np.uint16:  # the bits of bfloat16
        return not bool((array & 0x7F80 == 0x7F80).any())
    return bool(np.isfinite(array).all())


def _tensor(weight: StoredWeight) -> Any:  # noqa: ANN401 - a structure of ctypes
    """Return the TensorSource of api.h for a weight, which must outlive it."""
    *place, name, kind = weight.name.split(".")  # such as blocks.3.mlp.up.bias
    role = f"ROLE_{name}_BIAS" if kind == "bias" else f"ROLE_{name}"
    rows, columns = (1, *weight.shape)[-2:]
    return interface().structs["TensorSource"](
        role=interface().constants[role.upper()],
        layer=int(place[1]) if place else 0,
        type=_STORED.index(weight.dtype),
        data=weight.array.ctypes.data,
        scales=None if weight.scales is None else weight.scales.ctypes.data,
        rows=rows,
        columns=columns,
        transposed=int(weight.transposed),
    )


def _shape(config: ModelConfig, kind: Kind, is_bf16: bool) -> tuple[Any, object]:
    tables = [frequencies(config.head_dim, *spec) for spec in config.rope_specs()]
    table_rows = np.ascontiguousarray(tables, np.float32)
    windows = np.array([window or 0 for window in config.windows()], np.int64)
    rope_table = np.array(config.rope_of_layers(), np.int64)
    scale = config.embedding_scale
    struct = interface().structs["ModelShape"](
        vocabulary=config.vocabulary,
        context=config.context,
        width=config.width,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        hidden=config.hidden,
        weight_type=_KINDS.index(kind),
        kv_bf16=kind != "f32",
        layer_norm=config.LAYER_NORM,
        gelu=config.GELU,
        norm_eps=config.norm_eps,
        norm_offset=config.NORM_OFFSET,
        attention_scale=config.attention_scale,
        # Round the scale before multiplying, as in training: 33.94 becomes 34 in bfloat16.
        embedding_scale=_round_to_bf16(scale) if is_bf16 else scale,
        softcap=config.logit_softcap or 0.0,
        windows=windows.ctypes.data,
        rope_table=rope_table.ctypes.data,
        rope_tables=len(tables),
        frequencies=table_rows.ctypes.data,
    )
    return struct, (windows, rope_table, table_rows)


def _round_to_bf16(number: float) -> float:
    """Round to the nearest bfloat16, ties to even."""
    bits = np.float32(number).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return float(np.uint32(rounded).view(np.float32))
