"""Tiny models with a tokenizer that takes any text, as a base must, for the tests."""

import tempfile
from pathlib import Path

import model_directories
from ownwords.models import bundle
from ownwords.models.bundle import Bundle
from ownwords.models.decoder import CausalLM
from ownwords.models.gguf.reading import convert
from ownwords.tokenizers.bpe import ByteTokenizer


def model(family: str = "qwen3", seed: int = 1) -> CausalLM:
    return model_directories.model(family, seed, vocab_size=ByteTokenizer().vocabulary_size)


def write(
    folder: Path, family: str = "qwen3", seed: int = 1, shard_bytes: int | None = None
) -> CausalLM:
    """Save a tiny model there."""
    network = model(family, seed)
    bundle.save(folder, network, ByteTokenizer())
    model_directories.shard(folder, shard_bytes)
    return network


def read_gguf(path: Path) -> Bundle:
    """The model of a GGUF file in float32, which holds the weights of all types exactly."""
    with tempfile.TemporaryDirectory() as folder:
        convert(path, Path(folder), type="f32")
        return bundle.load(folder)
