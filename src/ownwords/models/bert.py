"""BERT, a bidirectional encoder, used here for sentence embeddings; inference only, in NumPy.

Devlin et al. 2018 (arXiv 1810.04805); pooled sentence embeddings as in Reimers and Gurevych 2019
(arXiv 1908.10084). The reference of `native.encoder`, and what computes where no compiled library
is there. Shapes: T tokens, C width, H heads, D dimensions of a head.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ownwords.models.configs.bert import BertConfig
from ownwords.models.safetensors_header import map_arrays
from ownwords.models.untrusted_files import read_json
from ownwords.models.weight_mapping import find_tensors, map_weights

Pooling = Literal["mean", "cls"]
Floats = npt.NDArray[np.float32]

# Stored tensors that embeddings do not need: position and token type ids, pooler and heads.
_BESIDE = re.compile(r"(bert\.)?(embeddings\.(position|token_type)_ids|pooler\..+)|cls\..+")
# erf within 1.5e-7: Abramowitz and Stegun 7.1.26.
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERF_SLOPE = 0.3275911


def load_weights(folder: Path) -> tuple[BertConfig, dict[str, Floats]]:
    """The config and the weights of a Hugging Face directory, by our names, in float32.

    Weights stored in float32 stay mapped. ModelError or ConfigError says what is missing, damaged
    or does not fit.
    """
    config = BertConfig.from_hf(read_json(folder / "config.json"))
    stored = {
        name: each for name, each in find_tensors(folder).items() if not _BESIDE.fullmatch(name)
    }
    mapped = map_weights(stored, config, folder)
    arrays = map_arrays(each.stored for each in mapped)
    return config, {
        each.ours: _as_float(arrays[each.stored.name], each.stored.dtype) for each in mapped
    }


class Bert:
    """BERT without heads: the ids of a text in, hidden states or one embedding out."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Floats], pooling: Pooling) -> None:
        self.config, self._weights, self._pooling = config, weights, pooling

    def vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Embeddings [texts, C] of length 1: the mean hidden state, or the first ("cls")."""
        rows = np.empty((len(texts), self.config.width), np.float32)
        for at, ids in enumerate(texts):
            hidden_TC = self.forward(ids)
            vector_C = hidden_TC[0] if self._pooling == "cls" else hidden_TC.mean(0)
            rows[at] = vector_C / max(float(np.linalg.norm(vector_C)), 1e-12)
        return rows

    def forward(self, ids: Sequence[int]) -> Floats:
        """The hidden states [T, C] of one text."""
        w = self._weights
        x_TC = w["embedding.weight"][list(ids)] + w["positions.weight"][: len(ids)]
        x_TC = self._norm(x_TC + w["token_types.weight"][0], "embedding_norm")
        for layer in range(self.config.layers):
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
