"""One damaged model directory after another, for the quick test and for fuzzing."""

import random
from collections.abc import Callable
from pathlib import Path

import damage
import model_directories as models
from ownwords.core.errors import OwnwordsError
from ownwords.inference import native_engine
from ownwords.models import bundle, directory
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

# Of what kind, and in files of how many bytes; a quantised model is one file.
CASES: list[tuple[str, int | None]] = [
    *((kind, size) for kind in models.CONFIGS for size in (None, 6000)),
    ("int8", None),
]
VOCABULARY = 300  # all bytes, and some


def load_network(folder: Path) -> None:
    """Load it as PyTorch's model."""
    loaded = bundle.load(folder)
    loaded.check_tokenizer(Tokenizer(loaded.tokenizer_files))


def load_engine(folder: Path) -> None:
    """Load it into the native engine, and read some ids."""
    opened = directory.read(folder)
    engine = native_engine.load(folder, opened.config, threads=1)
    assert engine is not None
    length = min(30, engine.context)
    scores = engine.cache(2, length).forward({1: [1] * length, 0: [2]})
    assert scores.shape == (2, engine.vocabulary)


def try_damaged(
    folder: Path,
    kind: str,
    shard_bytes: int | None,
    generator: random.Random,
    goes_on: Callable[[int], bool],
    load: Callable[[Path], None] = load_network,
) -> int:
    """Damage one file of a kind's directory at a time and load it; returns the number of tries.

    Any error but our own, a message of more than a line or a hang fails.
    """
    model = models.model(kind if kind in models.CONFIGS else "qwen3", vocab_size=VOCABULARY)
    bundle.save(folder, model, ByteTokenizer(), int8=kind == "int8")
    models.shard(folder, shard_bytes)
    files = sorted(folder.iterdir())
    originals = {path: path.read_bytes() for path in files}
    load(folder)
    tried = refused = 0
    while goes_on(tried):
        path = generator.choice(files)
        path.write_bytes(damage.of_file(path, originals[path], generator))
        try:
            load(folder)
        except OwnwordsError as error:
            refused += 1
            assert error.message
            assert "\n" not in str(error)
            assert len(str(error)) < 1200
            str(error).encode("utf-8")
        path.write_bytes(originals[path])
        tried += 1
    assert refused > tried // 4
    return tried
