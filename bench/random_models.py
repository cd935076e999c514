"""Models of known shapes with random weights, as a directory and as GGUF files.

    python -m bench.random_models SHAPE FOLDER [--no-gguf]

How fast a model writes does not depend on what it learned. The quantised GGUF files are made by
llama.cpp itself, to be like those of its users: its Q4_0 keeps some matrices at higher precision.
"""

import json
import math
import sys
from itertools import chain, islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ownwords.models.configs.config import ModelConfig
    from ownwords.tokenizers.tokenizer import Tokenizer

TITLES = {
    "5m": "Qwen3 shape, 5M",
    "30m": "Qwen3 shape, 30M",
    "gpt2": "GPT-2 124M",
    "gemma270m": "Gemma 3 270M",
    "gemma1b": "Gemma 3 1B",
}
DIRECTORY = "model"
# llama.cpp's number of each file type, by the name of the file.
QUANTISED = {"q8_0": 7, "q4_0": 2}


def gguf_file(folder: Path, type: str) -> Path:
    return folder / f"{type}.gguf"


def config(shape: str) -> "ModelConfig":
    from ownwords.base.catalogue import find_known
    from ownwords.models.configs.gpt2 import GPT2Config
    from ownwords.models.configs.llama import config_for_budget

    if shape in ("5m", "30m"):
        return config_for_budget({"5m": 5_000_000, "30m": 30_000_000}[shape], 8192, 1024)
    if shape == "gpt2":
        return GPT2Config(layers=12, width=768, heads=12)
    known = find_known({"gemma270m": "gemma3-270m", "gemma1b": "gemma3-1b"}[shape])
    assert known
    return known.config


def make(shape: str, folder: Path, *, with_gguf: bool) -> None:
    """Write DIRECTORY in bfloat16, and GGUF files of it; needs the memory of one float32 copy."""
    import torch

    from ownwords.models import bundle
    from ownwords.models.decoder import build
    from ownwords.models.gguf import saving

    tokenizer = tokenizer_of(shape)
    model = build(config(shape), dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                spread = 0.02 if "embedding" in name else 1 / math.sqrt(parameter.shape[-1])
                parameter.normal_(0.0, spread, generator=generator)
            else:
                plain = "bias" in name or shape.startswith("gemma")  # Gemma's norms store w - 1
                parameter.fill_(0.0 if plain else 1.0)
    bundle.save(folder / DIRECTORY, model, tokenizer)
    if with_gguf:
        saving.save(gguf_file(folder, "bf16"), model, tokenizer.files(), type="bf16")
        for type in QUANTISED:
            quantise(gguf_file(folder, "bf16"), gguf_file(folder, type), type)


def tokenizer_of(shape: str) -> "Tokenizer":
    """Return a tokenizer of bytes and tokens of two to four letters, as many as the model has."""
    from ownwords.tokenizers.bpe import BPETokenizer, ByteTokenizer

    room = config(shape).vocabulary - ByteTokenizer().vocabulary_size
    pairs = [a + b for a, b in product(ascii_lowercase, repeat=2)]
    triples = product(pairs, ascii_lowercase)
    quads = product((a + b for a, b in product(pairs, ascii_lowercase)), ascii_lowercase)
    merges = chain(((pair[0], pair[1]) for pair in pairs), triples, quads)
    return BPETokenizer(list(islice(merges, room)))


def quantise(source: Path, into: Path, type: str, *, threads: int = 2) -> None:
    """Quantise a file as `llama-quantize` does."""
    import llama_cpp
    from bench.llama import silent

    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = QUANTISED[type]
    parameters.nthread = threads
    with silent():
        failed = llama_cpp.llama_model_quantize(
            str(source).encode(), str(into).encode(), parameters
        )
    if failed:
        raise SystemExit(f"llama.cpp could not write {into}")


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]), with_gguf="--no-gguf" not in sys.argv)
    print(json.dumps({}))
