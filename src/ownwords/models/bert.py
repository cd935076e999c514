"""BERT, a bidirectional encoder, for sentence embeddings; inference only, without PyTorch.

Devlin et al. 2018 (arXiv 1810.04805); pooled sentence embeddings as in Reimers and Gurevych 2019
(arXiv 1908.10084). `NativeBert` uses the compiled library; `Bert`, in NumPy, is the reference, and
replaces it if the library is missing. Neither is in the registry of causal language models.
Shapes: T tokens, C width, H heads, D dimensions of a head.
"""

import ctypes
import math
import re
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError
from ownwords.models.configs.config import HFField, ModelConfig, WeightName, weight_names
from ownwords.models.safetensors_header import map_arrays
from ownwords.models.untrusted_files import read_json
from ownwords.models.weight_mapping import find_tensors, map_weights
from ownwords.native.bindings import NativeLibrary, interface, load_library

Pooling = Literal["mean", "cls"]
Floats = npt.NDArray[np.float32]

# Stored tensors that embeddings do not need: position and token type ids, pooler and heads.
_BESIDE = re.compile(r"(bert\.)?(embeddings\.(position|token_type)_ids|pooler\..+)|cls\..+")
# erf within 1.5e-7: Abramowitz and Stegun 7.1.26.
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERF_SLOPE = 0.3275911
_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")  # names of the tanh approximation of GELU


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """The config of a BERT: learned positions, token types, post-norm."""

    MODEL_TYPE: ClassVar[str] = "bert"
    ARCHITECTURE: ClassVar[str] = "BertModel"
    WEIGHTS: ClassVar[tuple[WeightName, ...]] = (
        *weight_names(
            """
            embedding.weight       word_embeddings.weight        -  vocabulary width
            positions.weight       position_embeddings.weight    -  context width
            token_types.weight     token_type_embeddings.weight  -  token_types width
            embedding_norm.weight  LayerNorm.weight              -  width
            embedding_norm.bias    LayerNorm.bias                -  width
            """,
            prefix="bert.embeddings.",
        ),
        *weight_names(
            """
            attention.query.weight   attention.self.query.weight        -  q_width width
            attention.query.bias     attention.self.query.bias          -  q_width
            attention.key.weight     attention.self.key.weight          -  kv_width width
            attention.key.bias       attention.self.key.bias            -  kv_width
            attention.value.weight   attention.self.value.weight        -  kv_width width
            attention.value.bias     attention.self.value.bias          -  kv_width
            attention.output.weight  attention.output.dense.weight      -  width q_width
            attention.output.bias    attention.output.dense.bias        -  width
            attention_norm.weight    attention.output.LayerNorm.weight  -  width
            attention_norm.bias      attention.output.LayerNorm.bias    -  width
            mlp.up.weight            intermediate.dense.weight          -  hidden width
            mlp.up.bias              intermediate.dense.bias            -  hidden
            mlp.down.weight          output.dense.weight                -  width hidden
            mlp.down.bias            output.dense.bias                  -  width
            mlp_norm.weight          output.LayerNorm.weight            -  width
            mlp_norm.bias            output.LayerNorm.bias              -  width
            """,
            prefix="bert.encoder.layer.{i}.",
        ),
    )
    HF_FIELDS: ClassVar[Mapping[str, HFField]] = {
        "vocabulary": HFField("vocab_size"),
        "context": HFField("max_position_embeddings"),
        "width": HFField("hidden_size"),
        "layers": HFField("num_hidden_layers"),
        "heads": HFField("num_attention_heads"),
        "hidden": HFField("intermediate_size"),
        "token_types": HFField("type_vocab_size", 2),
        "norm_eps": HFField("layer_norm_eps", 1e-12),
    }
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "model_type": ("bert",),
        "hidden_act": ("gelu", "gelu_python", *_TANH),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }
    LIMITS: ClassVar[Mapping[str, int]] = {**ModelConfig.LIMITS, "token_types": 2**10}

    token_types: int = 2  # segment embeddings; we always use the first
    gelu_tanh: bool = False  # the tanh approximation
    norm_eps: float = 1e-12
    tied: bool = True  # it has no head

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kv_heads != self.heads or self.head_dim * self.heads != self.width:
            raise ConfigError(f"heads ({self.heads}) must divide width ({self.width}) in BERT")

    @classmethod
    def hf_values(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().hf_values(data), "gelu_tanh": data.get("hidden_act") in _TANH}

    def to_hf(self) -> dict[str, object]:
        return {**super().to_hf(), "hidden_act": _TANH[1] if self.gelu_tanh else "gelu"}


def load_weights(folder: Path) -> tuple[BertConfig, dict[str, Floats]]:
    """Return the config and the weights of a Hugging Face directory, by our names, in float32.

    Weights stored in float32 stay mapped. ModelError or ConfigError says what is missing, damaged
    or inconsistent.
    """
    config = BertConfig.from_hf(read_json(folder / "config.json"))
    stored = {
        name: each for name, each in find_tensors(folder).items() if not _BESIDE.fullmatch(name)
    }
    mapped = map_weights(stored, config, folder)
    arrays = map_arrays(info for _, info, _ in mapped)
    return config, {ours: _as_float(arrays[info.name], info.dtype) for ours, info, _ in mapped}


class Bert:
    """BERT without heads: the ids of a text in, hidden states or one embedding out."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Floats], pooling: Pooling) -> None:
        self.config, self._weights, self._pooling = config, weights, pooling

    def vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Return embeddings [texts, C] of length 1: the mean hidden state, or the first ("cls")."""
        rows = np.empty((len(texts), self.config.width), np.float32)
        for at, ids in enumerate(texts):
            hidden_TC = self.states(ids, self.config.layers)
            vector_C = hidden_TC[0] if self._pooling == "cls" else hidden_TC.mean(0)
            rows[at] = vector_C / max(float(np.linalg.norm(vector_C)), 1e-12)
        return rows

    def states(self, ids: Sequence[int], layers: int) -> Floats:
        w = self._weights
        x_TC = w["embedding.weight"][list(ids)] + w["positions.weight"][: len(ids)]
        x_TC = self._norm(x_TC + w["token_types.weight"][0], "embedding_norm")
        return self._run(x_TC, layers)

    def run(self, x_TC: Floats) -> Floats:
        """Return the states of one text after all layers; `x_TC` is the first layer's input."""
        return self._run(x_TC, self.config.layers)

    def _run(self, x_TC: Floats, layers: int) -> Floats:
        for layer in range(layers):
            name = f"blocks.{layer}"
            x_TC = self._norm(x_TC + self._attention(x_TC, name), f"{name}.attention_norm")
            hidden = _gelu(self._linear(x_TC, f"{name}.mlp.up"), is_tanh=self.config.gelu_tanh)
            x_TC = self._norm(x_TC + self._linear(hidden, f"{name}.mlp.down"), f"{name}.mlp_norm")
        return x_TC

    def _attention(self, x_TC: Floats, name: str) -> Floats:
        heads = (len(x_TC), self.config.heads, self.config.head_dim)
        query_HTD, key_HTD, value_HTD = (
            self._linear(x_TC, f"{name}.attention.{part}").reshape(heads).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores_HTT = query_HTD @ key_HTD.swapaxes(1, 2) / np.float32(self.config.head_dim**0.5)
        weights_HTT = np.exp(scores_HTT - scores_HTT.max(-1, keepdims=True))
        weights_HTT /= weights_HTT.sum(-1, keepdims=True)
        attended_TC = (weights_HTT @ value_HTD).swapaxes(0, 1).reshape(x_TC.shape)
        return self._linear(attended_TC, f"{name}.attention.output")

    def _linear(self, x: Floats, name: str) -> Floats:
        y: Floats = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return y

    def _norm(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(self.config.norm_eps))
        y: Floats = centred / deviation * self._weights[f"{name}.weight"]
        return y + self._weights[f"{name}.bias"]


def _gelu(x: Floats, *, is_tanh: bool) -> Floats:
    if is_tanh:
        inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
        y: Floats = x / 2 * (1 + np.tanh(inner))
        return y
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = 1 / (1 + np.float32(_ERF_SLOPE) * z)
    tail = np.polyval(np.array((*_ERF, 0), np.float32), t) * np.exp(-z * z) / 2
    y = x * np.where(x > 0, 1 - tail, tail)
    return y


def _as_float(array: npt.NDArray[np.generic], dtype: str) -> Floats:
    if dtype == "BF16":  # mapped as the upper halves of float32
        return (array.astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(array, np.float32)


class NativeBert:
    """A BERT with packed matrices: bfloat16 with AMX, int8 if the processor has int8 dot products.

    Otherwise they are float32. Any number of threads may use it at once.
    """

    def __init__(
        self,
        library: NativeLibrary,
        config: BertConfig,
        weights: Mapping[str, Floats],
        *,
        pool_first: bool,
    ) -> None:
        """Pack the `weights`."""
        self._library, self._width, self._layers = library, config.width, config.layers
        # Layer by layer: `WEIGHTS` has the order of EncoderTensor in api.h.
        names = [name.ours for name in config.WEIGHTS if "{i}" not in name.ours]
        for layer in range(config.layers):
            blocks = (name.ours for name in config.WEIGHTS if "{i}" in name.ours)
            names += [name.replace("{i}", str(layer)) for name in blocks]
        # The library copies the matrices, and reads all other tensors in place.
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
        """Return unit vectors [texts, width] of texts given as ids, on the caller's thread."""
        lengths = np.array([len(ids) for ids in texts], np.int64)
        ids = np.fromiter(chain.from_iterable(texts), np.int32, int(lengths.sum()))
        rows = np.empty((len(texts), self._width), np.float32)
        self._library.encoder_forward(
            self._handle, len(texts), lengths.ctypes.data, ids.ctypes.data, rows.ctypes.data
        )
        return rows

    def states(self, ids: Sequence[int], layers: int) -> Floats:
        x_TC = np.empty((len(ids), self._width), np.float32)
        self._states(x_TC, np.asarray(ids, np.int32).ctypes, layers)
        return x_TC

    def run(self, x_TC: Floats) -> Floats:
        """Return the states of one text after all layers; `x_TC` is the first layer's input."""
        x_TC = np.array(x_TC, np.float32, order="C")
        self._states(x_TC, None, self._layers)
        return x_TC

    def _states(self, x_TC: Floats, ids: Any, layers: int) -> None:  # noqa: ANN401 - of ctypes
        if x_TC.shape[1:] != (self._width,):  # the library would write past the end
            raise ValueError(f"states of shape {x_TC.shape} for an encoder of width {self._width}")
        lengths = np.array([len(x_TC)], np.int64)
        self._library.encoder_states(
            self._handle, 1, lengths.ctypes.data, ids and ids.data, layers, x_TC.ctypes.data
        )


def bert_of(
    config: BertConfig, weights: Mapping[str, Floats], pooling: Pooling
) -> Bert | NativeBert:
    """Return the model in the compiled library, or in NumPy if that is missing."""
    if library := load_library():
        return NativeBert(library, config, weights, pool_first=pooling == "cls")
    return Bert(config, weights, pooling)
