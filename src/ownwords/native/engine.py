"""The CPU engine of the compiled library, with NumPy arrays in and out; torch is not needed.

`NativeModel` holds packed weights, `NativeCache` the KV cache of the texts it has read. Both check
that arrays are as large as declared, which the library cannot know. Tensors have the names of
`models`, such as "blocks.3.mlp.up.weight".
"""

import ctypes
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ownwords.core.errors import OwnwordsError
from ownwords.native.bindings import NativeError, NativeLibrary, interface, load_library

Kind = Literal["f32", "bf16", "int8", "int4"]
Stored = Literal["f32", "bf16", "f16", "codes8", "codes4"]

KINDS: Final[tuple[Kind, ...]] = ("f32", "bf16", "int8", "int4")
STORED: Final[tuple[Stored, ...]] = ("f32", "bf16", "f16", "codes8", "codes4")
# Groups: layer, name, and weight or bias.
_NAME: Final = re.compile(r"(?:blocks\.(\d{1,4})\.)?(?:attention\.|mlp\.)?(\w+)\.(weight|bias)")


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The architecture of a model, `ModelShape` of api.h: one graph for all families.

    `windows` and `rope_table` have an entry per layer: the attention window in tokens (0: all), and
    the row of `frequencies` for its rotary positions (-1: none). Biases, QK norms, norms after
    attention and MLP, learned positions, an MLP gate and an untied head exist if their tensors do.
    """

    vocabulary: int
    context: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    block_type: Kind = "f32"
    embedding_type: Kind = "f32"  # of the embedding and the head
    kv_bf16: bool = False  # whether keys and values are cached as bfloat16
    layer_norm: bool = False
    gelu: bool = False
    norm_eps: float = 1e-6
    norm_offset: float = 0.0
    attention_scale: float
    embedding_scale: float = 1.0
    softcap: float | None = None
    windows: tuple[int, ...]
    rope_table: tuple[int, ...]
    frequencies: NDArray[np.float32]  # [tables, head_dim / 2]


@dataclass(frozen=True, kw_only=True)
class SourceTensor:
    """One tensor of a model; a matrix is [rows, columns] = [outputs, inputs].

    `data` is any contiguous array with the right number of bytes, since NumPy has no bfloat16.
    The scales of codes are float32, one per row (codes8), or bfloat16, one per `group` (codes4).
    """

    name: str
    stored: Stored
    rows: int  # 1 for a vector
    columns: int
    data: NDArray[Any]
    scales: NDArray[Any] | None = None
    group: int = 0
    transposed: bool = False  # stored [columns, rows]
    mapped: bool = False  # memory-mapped: its pages may be dropped after packing


class NativeModel:
    """A model that runs on the engine's own threads; it holds packed copies of the tensors."""

    def __init__(self, shape: ModelShape, tensors: Iterable[SourceTensor], *, threads: int) -> None:
        library = load_library()
        if library is None:
            raise OwnwordsError(
                "the compiled part of ownwords is not there",
                hint="install it where there is a C++ compiler, or use the torch engine",
            )
        self._library = library
        self.shape = shape
        sources = [_tensor_struct(tensor) for tensor in tensors]
        array = (interface().structs["TensorSource"] * len(sources))(*sources)
        handle, count = ctypes.c_void_p(), ctypes.c_int64()
        described = _shape_struct(shape)
        _call(
            "the model cannot be read",
            library.engine_new,
            ctypes.addressof(described),
            array,
            len(sources),
            threads,
            ctypes.addressof(handle),
        )
        self._handle = handle
        self._end = weakref.finalize(self, library.engine_free, handle)
        library.engine_threads(handle, ctypes.addressof(count))
        self.threads = count.value

    def cache(self, rows: int, length: int) -> "NativeCache":
        """Create a KV cache for `rows` texts of up to `length` tokens each."""
        if not self._end.alive:
            raise OwnwordsError("the model is closed")
        handle = ctypes.c_void_p()
        _call(
            f"there can be no cache of {rows} texts of {length} tokens",
            self._library.cache_new,
            self._handle,
            rows,
            length,
            ctypes.addressof(handle),
        )
        return NativeCache(self, self._library, handle, rows, length)

    def close(self) -> None:
        """Free the weights as soon as the last cache is closed, too."""
        self._end()


class LogitRange(Protocol):
    """The logits needed: of the first `vocabulary` ids, within `margin` of their maximum."""

    @property
    def margin(self) -> float: ...
    @property
    def vocabulary(self) -> int: ...


class RowInput(Protocol):
    """The ids to append to a row; logits outside `logit_range` may be returned as -inf."""

    @property
    def row(self) -> int: ...
    @property
    def ids(self) -> Sequence[int]: ...
    @property
    def logit_range(self) -> LogitRange | None: ...


class NativeCache:
    """The KV cache of the texts a model has read, one per row; made by `NativeModel.cache`."""

    def __init__(
        self,
        model: NativeModel,
        library: NativeLibrary,
        handle: ctypes.c_void_p,
        rows: int,
        length: int,
    ) -> None:
        self._model = model
        self._library = library
        self.rows, self.length = rows, length
        self._handle = handle
        self._end = weakref.finalize(self, library.cache_free, handle)
        self._lock = threading.Lock()  # keeps a cache from being freed while it is in use

    def cached_length(self, row: int) -> int:
        """The number of tokens in the row."""
        length = ctypes.c_int64()
        self._call(
            f"row {row} of {self.rows} cannot be asked",
            self._library.cache_length,
            row,
            ctypes.addressof(length),
        )
        return length.value

    def forward(
        self, inputs: Sequence[RowInput], *, all_positions: bool = False
    ) -> NDArray[np.float32]:
        """Append ids to some rows; see `inference.engine.EngineCache`.

        The library checks rows, ids and lengths before it changes anything.
        """
        rows = np.array([each.row for each in inputs], dtype=np.int64)
        counts = np.array([len(each.ids) for each in inputs], dtype=np.int64)
        ids = np.array([i for each in inputs for i in each.ids], dtype=np.int64)
        near = inputs[0].logit_range if len(inputs) == 1 else None
        vocabulary = self._model.shape.vocabulary
        logits = np.empty((len(ids) if all_positions else len(rows), vocabulary), dtype=np.float32)
        try:
            self._call(
                "the texts cannot be read",
                self._library.cache_forward,
                len(rows),
                rows.ctypes.data,
                counts.ctypes.data,
                ids.ctypes.data,
                int(all_positions),
                *((near.margin, near.vocabulary) if near else (-1.0, 0)),
                logits.ctypes.data,
            )
        except NativeError as error:
            if error.status != "BAD_ID":
                raise
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise OwnwordsError(
                f"id {wrong} is not in the vocabulary ({vocabulary} tokens)",
                hint="use the tokenizer that belongs to this model",
            ) from None
        return logits

    def truncate(self, row: int, length: int) -> None:
        """Drop all but the first `length` tokens of the row."""
        what = f"row {row} cannot be cut to {length} tokens"
        length = min(length, self.cached_length(row))
        self._call(what, self._library.cache_truncate, row, length)

    def copy_prefix(self, source: int, row: int, length: int) -> None:
        """Set the row to the first `length` tokens of another row."""
        what = f"row {row} cannot begin with {length} tokens of row {source}"
        self._call(what, self._library.cache_copy, source, row, length)

    def close(self) -> None:
        """Free the memory of the cache."""
        with self._lock:
            self._end()

    def _call(self, what: str, function: Callable[..., int], *arguments: object) -> None:
        with self._lock:
            if not self._end.alive:
                raise OwnwordsError("the cache is closed")
            _call(what, function, self._handle, *arguments)


def available() -> bool:
    """Whether the compiled library is available."""
    return load_library() is not None


def _call(what: str, function: Callable[..., int], *arguments: object) -> None:
    """Call the library; error messages start with `what`."""
    try:
        function(*arguments)
    except NativeError as error:
        error.message = f"{what}: {error.message}"
        raise


def _shape_struct(shape: ModelShape) -> Any:  # noqa: ANN401 - a structure of ctypes
    """Build the ModelShape struct of api.h, which keeps its arrays alive."""
    windows = np.array(shape.windows, dtype=np.int64)
    rope_table = np.array(shape.rope_table, dtype=np.int64)
    frequencies = np.ascontiguousarray(shape.frequencies, dtype=np.float32)
    if len(windows) != shape.layers or len(rope_table) != shape.layers:
        raise OwnwordsError(f"{shape.layers} layers need as many windows and rotations")
    if frequencies.ndim != 2 or (len(frequencies) and frequencies.shape[1] != shape.head_dim // 2):
        raise OwnwordsError(f"frequencies are not [tables, {shape.head_dim // 2}]")
    numbers = {
        field.name: getattr(shape, field.name)
        for field in fields(shape)
        if field.name not in ("windows", "rope_table", "frequencies")
    }
    struct = interface().structs["ModelShape"](
        **numbers
        | {
            "block_type": KINDS.index(shape.block_type),
            "embedding_type": KINDS.index(shape.embedding_type),
            "softcap": shape.softcap or 0.0,
            "rope_tables": len(frequencies),
            "windows": windows.ctypes.data,
            "rope_table": rope_table.ctypes.data,
            "frequencies": frequencies.ctypes.data,
        }
    )
    struct.arrays = (windows, rope_table, frequencies)
    return struct


def _tensor_struct(tensor: SourceTensor) -> Any:  # noqa: ANN401 - a structure of ctypes
    name, rows, columns, stored = tensor.name, tensor.rows, tensor.columns, tensor.stored
    parts = _NAME.fullmatch(name)
    role = None
    if parts is not None:
        suffix = "_BIAS" if parts[3] == "bias" else ""
        role = interface().constants.get(f"ROLE_{parts[2].upper()}{suffix}")
    if parts is None or role is None:
        raise OwnwordsError(f"{name!r} is no tensor of a model")
    if not 1 <= rows <= 1 << 32 or not 1 <= columns <= 1 << 32:
        raise OwnwordsError(f"{name!r} cannot have {rows} rows of {columns}")
    if stored == "codes4":
        if tensor.group not in (32, 64, 128):
            raise OwnwordsError(f"{name!r} has a scale for every {tensor.group} codes")
        wanted = rows * -(-columns // 2), rows * -(-columns // tensor.group) * 2
    else:
        size = {"f32": 4, "bf16": 2, "f16": 2, "codes8": 1}[stored]
        wanted = rows * columns * size, rows * 4 if stored == "codes8" else 0
    given = tensor.data.nbytes, 0 if tensor.scales is None else tensor.scales.nbytes
    if given != wanted:
        raise OwnwordsError(
            f"{name!r} has {given[0]} bytes and {given[1]} of scales, where [{rows}, {columns}] as "
            f"{stored} have {wanted[0]} and {wanted[1]}"
        )
    for array in (tensor.data, tensor.scales):
        if array is not None and not array.flags.c_contiguous:
            raise OwnwordsError(f"{name!r} is not contiguous")
    struct = interface().structs["TensorSource"](
        role=role,
        layer=int(parts[1] or 0),
        type=STORED.index(stored),
        data=tensor.data.ctypes.data,
        scales=None if tensor.scales is None else tensor.scales.ctypes.data,
        group=tensor.group,
        rows=rows,
        columns=columns,
        transposed=int(tensor.transposed),
        mapped=int(tensor.mapped),
    )
    struct.arrays = (tensor.data, tensor.scales)  # keeps them alive: `tensors` may be a generator
    return struct
