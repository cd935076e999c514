"""The CPU engine of the compiled library, with NumPy arrays in and out; torch is not needed.

`NativeCore` is a model whose weights have been packed, `NativeCache` the texts that it reads. Both
check what they are given where the library alone could not know: that arrays are as large as they
are said to be. Names of tensors are ours, as in `models`: "blocks.3.mlp.up.weight".
"""

import ctypes
import re
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ownwords.core.errors import OwnwordsError
from ownwords.native.bindings import NativeLibrary, load_library

Kind = Literal["f32", "bf16", "int8", "int4"]
Stored = Literal["f32", "bf16", "f16", "codes8", "codes4"]

KINDS: Final[tuple[Kind, ...]] = ("f32", "bf16", "int8", "int4")
STORED: Final[tuple[Stored, ...]] = ("f32", "bf16", "f16", "codes8", "codes4")
# Of the tensors, in the order of `Role` in shape.h; "{i}" is the layer's number.
ROLES: Final = (
    "embedding.weight",
    "positions.weight",
    "final_norm.weight",
    "final_norm.bias",
    "head.weight",
    "blocks.{i}.attention_norm.weight",
    "blocks.{i}.attention_norm.bias",
    "blocks.{i}.attention.query.weight",
    "blocks.{i}.attention.key.weight",
    "blocks.{i}.attention.value.weight",
    "blocks.{i}.attention.query_key_value.weight",
    "blocks.{i}.attention.query_key_value.bias",
    "blocks.{i}.attention.query_norm.weight",
    "blocks.{i}.attention.key_norm.weight",
    "blocks.{i}.attention.output.weight",
    "blocks.{i}.attention.output.bias",
    "blocks.{i}.attention_output_norm.weight",
    "blocks.{i}.mlp_norm.weight",
    "blocks.{i}.mlp_norm.bias",
    "blocks.{i}.mlp.gate.weight",
    "blocks.{i}.mlp.up.weight",
    "blocks.{i}.mlp.up.bias",
    "blocks.{i}.mlp.down.weight",
    "blocks.{i}.mlp.down.bias",
    "blocks.{i}.mlp_output_norm.weight",
)
_LAYER: Final = re.compile(r"blocks\.(\d{1,4})\.")
# By the number that `Trouble` in shape.h gives them.
_TROUBLES: Final = (
    "",
    "nothing was given where an array is needed",
    "its sizes are those of no model",
    "a tensor is unknown, there twice, or not of the model's sizes",
    "a tensor is missing",
    "it holds numbers that are not finite",
    "there is not enough memory",
    "a row is not one of the cache's",
    "a row was named twice in one call",
    "a number of rows, feeds or ids is out of range",
    "an id is not in the vocabulary",
    "a text is longer than the cache holds",
    "a length is out of range",
    "the compiled library failed",
)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A model as the engine sees it: one graph, of which the families are different parts.

    `windows` and `turns` are by layer: how many tokens it sees (0: all), and which row of
    `frequencies` turns its queries and keys (-1: none, as in GPT-2). Biases, norms of queries and
    keys, norms after each half, learned positions, a gate and a head of its own are there if their
    tensors are.
    """

    vocabulary: int
    context: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    matrices: Kind = "f32"
    ends: Kind = "f32"  # embedding and head
    narrow: bool = False  # keys and values are kept as bfloat16
    layer_norm: bool = False
    gelu: bool = False
    norm_eps: float = 1e-6
    norm_offset: float = 0.0
    attention_scale: float
    embedding_scale: float = 1.0
    softcap: float | None = None
    windows: tuple[int, ...]
    turns: tuple[int, ...]
    frequencies: NDArray[np.float32]  # [tables, head_dim / 2]


@dataclass(frozen=True, kw_only=True)
class SourceTensor:
    """One tensor of a model: [rows, columns] of a matrix, whose rows belong to the outputs.

    `data` may be any contiguous array of the right number of bytes: NumPy has no bfloat16. Of codes
    the scales are float32, one a row (codes8), or bfloat16, one for every `group` (codes4).
    """

    name: str
    stored: Stored
    rows: int  # 1 for a vector
    columns: int
    data: NDArray[Any]
    scales: NDArray[Any] | None = None
    group: int = 0
    transposed: bool = False  # stored [columns, rows]
    mapped: bool = False  # the data is a mapped file's, whose pages may go once it is packed


class NativeModel:
    """A model on the engine's own threads. Weights are packed here: `tensors` may go after."""

    def __init__(self, shape: ModelShape, tensors: Iterable[SourceTensor], *, threads: int) -> None:
        self._library = _library()
        self._loaded = self._library.loaded
        self.shape = shape
        given = list(tensors)
        known = {name: role for role, name in enumerate(ROLES)}
        packed = (_Tensor * len(given))(*(_tensor(one, known) for one in given))
        made = ctypes.c_void_p()
        _check(
            self._loaded.ownwords_engine_new(
                ctypes.byref(_shape(shape)), packed, len(given), threads, ctypes.byref(made)
            ),
            "the model cannot be read",
        )
        self._handle = made
        self._end = weakref.finalize(self, self._loaded.ownwords_engine_free, made)
        count = ctypes.c_int64()
        self._loaded.ownwords_engine_threads(made, ctypes.byref(count))
        self.threads = count.value

    @property
    def level(self) -> int:
        """That of the library's instructions."""
        return self._library.level

    def cache(self, rows: int, length: int) -> "NativeCache":
        """Room for `rows` texts of up to `length` tokens each."""
        if not self._end.alive:
            raise OwnwordsError("the model is closed")
        made = ctypes.c_void_p()
        _check(
            self._loaded.ownwords_engine_cache(self._handle, rows, length, ctypes.byref(made)),
            f"there can be no cache of {rows} texts of {length} tokens",
        )
        return NativeCache(self, self._loaded, made, rows, length)

    def close(self) -> None:
        """Give the weights back, when the last cache is closed too."""
        self._end()


class NativeCache:
    """Texts that a model has read, each in a row; made by `NativeCore.cache`."""

    def __init__(
        self, core: NativeModel, loaded: ctypes.CDLL, made: ctypes.c_void_p, rows: int, length: int
    ) -> None:
        self._core = core
        self._loaded = loaded
        self.rows, self.length = rows, length
        self._handle = made
        self._end = weakref.finalize(self, loaded.ownwords_cache_free, made)
        self._using = threading.Lock()  # what is in use is not given back

    def held(self, row: int) -> int:
        """How many tokens the row holds."""
        held = ctypes.c_int64()
        self._call("held", f"row {row} of {self.rows} cannot be asked", row, ctypes.byref(held))
        return held.value

    def read(
        self,
        rows: Sequence[int],
        ids: Sequence[Sequence[int]],
        *,
        every: bool = False,
        near: tuple[float, int] | None = None,
    ) -> NDArray[np.float32]:
        """Read on in each of these rows: scores of what follows its last id, [len(rows), V].

        With `every`, of what follows each id, in the order of the rows: [sum of ids, V]. `near` is
        a margin and how many of the first ids are asked about: scores that are further below the
        highest of these may be -inf, as those of all others.
        """
        if len(rows) != len(ids):
            raise OwnwordsError(f"{len(rows)} rows were named, and {len(ids)} texts given")
        counts = np.array([len(some) for some in ids], dtype=np.int64)
        flat = np.array([one for some in ids for one in some], dtype=np.int64)
        if len(flat) and (flat.min() < 0 or flat.max() >= self._core.shape.vocabulary):
            wrong = flat.min() if flat.min() < 0 else flat.max()
            raise OwnwordsError(
                f"id {wrong} is not in the vocabulary ({self._core.shape.vocabulary} tokens)",
                hint="use the tokenizer that belongs to this model",
            )
        numbers = flat.astype(np.int32)
        places = np.array(rows, dtype=np.int64)
        made = np.empty(
            (len(numbers) if every else len(places), self._core.shape.vocabulary), dtype=np.float32
        )
        self._call(
            "read",
            "the texts cannot be read",
            len(places),
            places.ctypes.data,
            counts.ctypes.data,
            numbers.ctypes.data,
            int(every),
            *(near or (-1.0, 0)),
            made.ctypes.data,
        )
        return made

    def cut(self, row: int, length: int) -> None:
        """Forget what the row holds beyond `length`."""
        self._call("cut", f"row {row} cannot be cut to {length} tokens", row, length)

    def copy(self, source: int, row: int, length: int) -> None:
        """The row begins with the first `length` tokens of `source`."""
        what = f"row {row} cannot begin with {length} tokens of row {source}"
        self._call("copy", what, source, row, length)

    def close(self) -> None:
        """Give the room back."""
        with self._using:
            self._end()

    def _call(self, name: str, what: str, *arguments: object) -> None:
        with self._using:
            if not self._end.alive:
                raise OwnwordsError("the cache is closed")
            function = getattr(self._loaded, f"ownwords_cache_{name}")
            _check(function(self._handle, *arguments), what)


def available() -> bool:
    """Whether the compiled library is there."""
    return load_library() is not None


_SIZES: Final = (
    *("vocabulary", "context", "width", "layers"),
    *("heads", "kv_heads", "head_dim", "hidden"),
)


class _Shape(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_int64) for name in ("matrices", "ends", "narrow", "layer_norm")),
        *((name, ctypes.c_int64) for name in ("gelu", "tables")),
        *((name, ctypes.c_double) for name in ("norm_eps", "norm_offset", "attention_scale")),
        *((name, ctypes.c_double) for name in ("embedding_scale", "softcap")),
        *((name, ctypes.c_void_p) for name in ("windows", "turns", "frequencies")),
    ]


class _Tensor(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("role", "layer", "type")),
        *((name, ctypes.c_void_p) for name in ("data", "scales")),
        *((name, ctypes.c_int64) for name in ("group", "rows", "columns", "transposed", "mapped")),
    ]


def _library() -> NativeLibrary:
    found = load_library()
    if found is None:
        raise OwnwordsError(
            "the compiled part of ownwords is not there",
            hint="install it where there is a C++ compiler, or use the torch engine",
        )
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    for name, arguments in (
        ("engine_new", (pointer, pointer, whole, whole, pointer)),
        ("engine_threads", (pointer, pointer)),
        ("engine_cache", (pointer, whole, whole, pointer)),
        ("engine_free", (pointer,)),
        (
            "cache_read",
            (pointer, whole, *[pointer] * 3, ctypes.c_int, ctypes.c_double, whole, pointer),
        ),
        ("cache_held", (pointer, whole, pointer)),
        ("cache_cut", (pointer, whole, whole)),
        ("cache_copy", (pointer, whole, whole, whole)),
        ("cache_free", (pointer,)),
    ):
        function = getattr(found.loaded, f"ownwords_{name}")
        function.argtypes = arguments
        function.restype = None if name.endswith("_free") else ctypes.c_int
    return found


def _shape(shape: ModelShape) -> _Shape:
    if len(shape.windows) != shape.layers or len(shape.turns) != shape.layers:
        raise OwnwordsError(
            f"{len(shape.windows)} windows and {len(shape.turns)} turns were given for "
            f"{shape.layers} layers"
        )
    frequencies = np.ascontiguousarray(shape.frequencies, dtype=np.float32)
    if frequencies.ndim != 2 or (len(frequencies) and frequencies.shape[1] != shape.head_dim // 2):
        raise OwnwordsError(
            f"frequencies {frequencies.shape} are not [tables, {shape.head_dim // 2}]"
        )
    windows = np.array(shape.windows, dtype=np.int64)
    turns = np.array(shape.turns, dtype=np.int64)
    made = _Shape(
        **{
            name: getattr(shape, name)
            for name in (*_SIZES, "narrow", "layer_norm", "gelu", "norm_eps", "norm_offset")
        },
        attention_scale=shape.attention_scale,
        embedding_scale=shape.embedding_scale,
        matrices=KINDS.index(shape.matrices),
        ends=KINDS.index(shape.ends),
        tables=len(frequencies),
        softcap=shape.softcap or 0.0,
        windows=windows.ctypes.data,
        turns=turns.ctypes.data,
        frequencies=frequencies.ctypes.data,
    )
    made.kept = (windows, turns, frequencies)  # as long as their addresses
    return made


def _tensor(one: SourceTensor, known: dict[str, int]) -> _Tensor:
    layer = _LAYER.match(one.name)
    role = known.get(_LAYER.sub("blocks.{i}.", one.name))
    if role is None:
        raise OwnwordsError(f"{one.name!r} is no tensor of a model")
    if not 1 <= one.rows <= 1 << 32 or not 1 <= one.columns <= 1 << 32:
        raise OwnwordsError(f"{one.name!r} cannot have {one.rows} rows of {one.columns}")
    if one.stored == "codes4":
        if one.group not in (32, 64, 128):
            raise OwnwordsError(f"{one.name!r} has a scale for every {one.group} codes")
        wanted = one.rows * -(-one.columns // 2), one.rows * -(-one.columns // one.group) * 2
    else:
        size = {"f32": 4, "bf16": 2, "f16": 2, "codes8": 1}[one.stored]
        wanted = one.rows * one.columns * size, one.rows * 4 if one.stored == "codes8" else 0
    seen = one.data.nbytes, 0 if one.scales is None else one.scales.nbytes
    if seen != wanted:
        raise OwnwordsError(
            f"{one.name!r} has {seen[0]} bytes and {seen[1]} of scales, where [{one.rows}, "
            f"{one.columns}] as {one.stored} have {wanted[0]} and {wanted[1]}"
        )
    for array in (one.data, one.scales):
        if array is not None and not array.flags.c_contiguous:
            raise OwnwordsError(f"{one.name!r} is not contiguous")
    return _Tensor(
        role=role,
        layer=int(layer[1]) if layer else 0,
        type=STORED.index(one.stored),
        data=one.data.ctypes.data,
        scales=None if one.scales is None else one.scales.ctypes.data,
        group=one.group,
        rows=one.rows,
        columns=one.columns,
        transposed=int(one.transposed),
        mapped=int(one.mapped),
    )


def _check(trouble: int, what: str) -> None:
    if trouble == 0:
        return
    if trouble == _TROUBLES.index("there is not enough memory"):
        raise OwnwordsError(f"{what}: there is not enough memory", hint="ask for less at once")
    raise OwnwordsError(f"{what}: {_TROUBLES[trouble]}")
