"""A tiny encoder in a folder, its BERT of random weights."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ownwords.ask.encoder import KNOWN
from ownwords.models.bert import BertConfig
from ownwords.models.safetensors_header import encode_header
from ownwords.models.weight_mapping import hf_names, weight_shapes

WORDS = ["the", "a", "rain", "kettle", "garden", "bus", "broke", "fell", "in", "on", "of", "my"]
_LETTERS = "abcdefghijklmnopqrstuvwxyz."
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TOKENS += [letter for letter in _LETTERS if letter not in TOKENS]
TOKENS += [f"##{letter}" for letter in _LETTERS]

CONFIG = BertConfig(
    vocabulary=len(TOKENS), context=24, width=12, layers=2, heads=3, hidden=20, token_types=2
)
LONGEST = 16
TINY = replace(KNOWN[0], title="small", max_tokens=LONGEST)

Weights = dict[str, npt.NDArray[np.float32]]


def weights_of(config: BertConfig = CONFIG, seed: int = 1) -> Weights:
    """Random weights under our names, none of them trivial."""
    lot = np.random.default_rng(seed)
    return {
        name: (lot.normal(size=shape) * 0.5 + ("norm.weight" in name)).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }


def write_weights(path: Path, tensors: Mapping[str, npt.NDArray[np.float32]]) -> None:
    entries = [(name, "F32", tensor.shape) for name, tensor in tensors.items()]
    data = b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in tensors.values())
    path.write_bytes(encode_header(entries, {}) + data)


def folder_in(
    folder: Path,
    *,
    config: BertConfig = CONFIG,
    weights: Weights | None = None,
    prefix: str = "",
) -> Path:
    """Write the folder; `prefix` precedes the names of the weights, as in some files."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = weights_of(config) if weights is None else weights
    named = {ours: theirs.removeprefix("bert.") for ours, theirs, _ in hf_names(config)}
    write_weights(
        folder / "model.safetensors",
        {prefix + named[name]: tensor for name, tensor in weights.items()},
    )
    put(folder / "config.json", config.to_hf())
    put(folder / "tokenizer.json", tokenizer())
    return folder


def tokenizer() -> object:
    """WordPiece as BERT's, with settings of its own for length and padding, as such files have."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {token: at for at, token in enumerate(TOKENS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.add_special_tokens(TOKENS[:5])
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, vocabulary[name]) for name in TOKENS[2:4]]
    )
    made.decoder = tokenizers.decoders.WordPiece()
    made.enable_truncation(5)
    made.enable_padding(length=20)
    return json.loads(made.to_str())


def put(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
