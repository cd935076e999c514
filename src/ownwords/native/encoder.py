"""BERT in the compiled library: token ids in, sentence embeddings out; torch is not needed."""

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.native.bindings import NativeLibrary, interface

Floats = npt.NDArray[np.float32]

# Our names of the tensors, in the order of EncoderTensor in api.h: each with its bias.
_ONCE = ("embedding.weight", "positions.weight", "token_types.weight")
_NORM = "embedding_norm"
_LAYER = (
    *(f"attention.{part}" for part in ("query", "key", "value", "output")),
    "attention_norm",
    "mlp.up",
    "mlp.down",
    "mlp_norm",
)
_PARTS = ("weight", "bias")


class NativeEncoder:
    """A BERT whose matrices are packed as bfloat16. Any number of threads may use it at once."""

    def __init__(
        self,
        library: NativeLibrary,
        config: Any,  # noqa: ANN401 - a `BertConfig`, which `native` does not import
        weights: Mapping[str, Floats],
        *,
        pool_first: bool,
    ) -> None:
        """Pack the `weights`, which have the names of `models.bert`."""
        self._library, self._width = library, config.width
        names = [*_ONCE, f"{_NORM}.weight", f"{_NORM}.bias"]
        for layer in range(config.layers):
            names += [f"blocks.{layer}.{name}.{part}" for name in _LAYER for part in _PARTS]
        # The library reads the embeddings and norms where they are.
        self._weights = [np.ascontiguousarray(weights[name], np.float32) for name in names]
        shape = interface().structs["EncoderShape"](pool_first=pool_first)
        for name, _ in shape._fields_:
            if name != "pool_first":
                setattr(shape, name, getattr(config, name))
        pointers = (ctypes.c_void_p * len(names))(*(each.ctypes.data for each in self._weights))
        handle = ctypes.c_void_p()
        library.encoder_new(ctypes.addressof(shape), pointers, len(names), ctypes.addressof(handle))
        self._handle = handle
        weakref.finalize(self, library.encoder_free, handle)

    def vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Unit vectors [texts, width] of texts given by their ids, on the caller's thread."""
        lengths = np.array([len(ids) for ids in texts], np.int64)
        ids = np.fromiter(chain.from_iterable(texts), np.int32, int(lengths.sum()))
        rows = np.empty((len(texts), self._width), np.float32)
        self._library.encoder_forward(
            self._handle, len(texts), lengths.ctypes.data, ids.ctypes.data, rows.ctypes.data
        )
        return rows
